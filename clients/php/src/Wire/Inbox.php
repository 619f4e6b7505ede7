<?php

declare(strict_types=1);

namespace RlSidecar\Wire;

use RlSidecar\Exception\ProtocolError;

use function count;
use function is_array;
use function is_string;
use function strlen;

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
    private const FIRST = 512;
    private const MORE = 8192;

    private string $bytes = '';
    private readonly string $success;

    public function __construct(private readonly int $msgid)
    {
        $this->success = "\x94\x01" . Packer::pack($msgid) . "\xc0";
    }

    /** How many bytes to take next: enough for a decision, then more, never above the bound of a message. */
    public function room(): int
    {
        return $this->bytes === '' ? self::FIRST : min(self::MORE, $this->left());
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
            if ($this->left() <= 0) {
                throw new ProtocolError("the agent's message is over " . Unpacker::MAX_MESSAGE . ' bytes');
            }
        }
        return $reply;
    }

    private function left(): int
    {
        return Unpacker::MAX_MESSAGE - strlen($this->bytes);
    }

    /**
     * @param array{mixed, mixed}|null $reply what is there already
     *
     * @return array{mixed, mixed}|null
     */
    private function message(?array $reply): ?array
    {
        if ($reply === null && str_starts_with($this->bytes, $this->success)) {
            return [null, $this->next(strlen($this->success), 1)];
        }
        $message = $this->next(0, 0);
        if ($reply === null && $this->isReply($message)) {
            return [$message[2], $message[3]];
        }
        if (!self::isNotification($message)) {
            throw new ProtocolError("the agent's message answers no call");
        }
        return $reply;
    }

    /** The value at an offset, so deep in the message. It and all before it are taken out. */
    private function next(int $at, int $depth): mixed
    {
        $unpacker = new Unpacker($this->bytes, $at);
        $value = $unpacker->next($depth);
        $this->bytes = substr($this->bytes, $unpacker->position());
        return $value;
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
