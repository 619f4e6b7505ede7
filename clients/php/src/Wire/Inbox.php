<?php

declare(strict_types=1);

namespace RlSidecar\Wire;

use RlSidecar\Exception\ProtocolError;

/**
 * What came in for one call, until its reply is there whole.
 *
 * Nothing but notifications may lie around the reply: anything else means that the
 * connection is not what it is taken for.
 *
 * @internal
 */
final class Inbox
{
    private const RESPONSE = 1;
    private const NOTIFICATION = 2;

    private string $bytes = '';

    public function __construct(private readonly int $msgid)
    {
    }

    /** How many bytes the message under way may still have. */
    public function room(): int
    {
        return Unpacker::MAX_MESSAGE - strlen($this->bytes);
    }

    /**
     * Takes bytes as they came.
     *
     * @return array{mixed, mixed}|null error and result of the reply; null: not there yet
     *
     * @throws ProtocolError
     */
    public function add(string $bytes): ?array
    {
        $this->bytes .= $bytes;
        $reply = null;
        try {
            while ($this->bytes !== '') {
                $reply = $this->message($reply);
            }
        } catch (Incomplete) {
            if ($reply !== null) {
                throw new ProtocolError("the agent's reply is followed by stray bytes");
            }
            if ($this->room() <= 0) {
                throw new ProtocolError("the agent's message is over " . Unpacker::MAX_MESSAGE . ' bytes');
            }
        }
        return $reply;
    }

    /**
     * @param array{mixed, mixed}|null $reply what is there already
     *
     * @return array{mixed, mixed}|null
     */
    private function message(?array $reply): ?array
    {
        $unpacker = new Unpacker($this->bytes);
        $message = $unpacker->next();
        $this->bytes = substr($this->bytes, $unpacker->position());
        if ($reply === null && $this->isReply($message)) {
            return [$message[2], $message[3]];
        }
        if (!self::isNotification($message)) {
            throw new ProtocolError("the agent's message answers no call");
        }
        return $reply;
    }

    private function isReply(mixed $message): bool
    {
        return is_array($message) && array_is_list($message) && count($message) >= 4
            && $message[0] === self::RESPONSE && $message[1] === $this->msgid;
    }

    private static function isNotification(mixed $message): bool
    {
        return is_array($message) && array_is_list($message) && count($message) >= 3
            && $message[0] === self::NOTIFICATION && is_string($message[1]);
    }
}
