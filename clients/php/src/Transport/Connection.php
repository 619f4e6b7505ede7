<?php

declare(strict_types=1);

namespace RlSidecar\Transport;

use RlSidecar\Exception\AgentTimeout;
use RlSidecar\Exception\Unavailable;
use RlSidecar\Wire\Inbox;
use RlSidecar\Wire\Packer;

use function is_resource;
use function strlen;

/**
 * One connection to the agent, one call at a time.
 *
 * Nothing lies in the socket between two calls. Whoever breaks off between the write and
 * the end of the read leaves a reply behind that the next caller would take for its own.
 * So a call either ends with its reply, or the connection is closed.
 *
 * With a persistent stream the next caller may be another request of PHP-FPM, and the
 * request that broke off may be gone without having run a line more. Therefore the
 * stream itself says in what state it is, by the one thing that stays with it and costs no
 * system call: its chunk size. FRESH is PHP's default, BUSY is set before the first byte is
 * written, IDLE after the reply was understood. What is found BUSY was left in a call.
 * (8 KiB and one or two bytes: PHP sets aside a buffer of that size for each stream.)
 *
 * The msgid is the second line of defence: it starts at random, so that a reply to
 * somebody else does not happen to carry the number that is waited for.
 *
 * @internal
 */
final class Connection
{
    private const FRESH = 8192;
    private const IDLE = 8193;
    private const BUSY = 8194;

    private const MAX_MSGID = 0x7fffffff;
    private const POLL_MICROSECONDS = 100;

    /** @var resource|null null once closed */
    private $stream;
    private readonly int $pid;
    private int $msgid;
    private bool $used;
    private bool $selectable = true;

    /** @param resource $stream connected, and nobody else's */
    public function __construct($stream, public readonly bool $persistent = false)
    {
        $this->stream = $stream;
        $this->pid = (int) getmypid();
        $this->msgid = random_int(0, self::MAX_MSGID);
        $found = stream_set_chunk_size($stream, self::IDLE);
        $this->used = $found !== self::FRESH;
        stream_set_read_buffer($stream, 0);
        if ($found === self::BUSY || stream_get_meta_data($stream)['unread_bytes'] > 0) {
            $this->close();
            return;
        }
        stream_set_blocking($stream, false);
        set_error_handler(self::silence(...));
        $this->selectable = $this->select(0, true) !== 0;
        restore_error_handler();
    }

    /** Whether it has served a call before, maybe of another request. */
    public function isUsed(): bool
    {
        return $this->used;
    }

    /**
     * Whether it is open, this process's own, and nothing is there to be read, not even its end.
     *
     * PHP itself takes a stream with unread bytes for a live one. A look at the next byte finds
     * them, since PHP sets none aside here; false is what it returns when there is none.
     */
    public function isClean(): bool
    {
        return is_resource($this->stream) && $this->pid === getmypid()
            && stream_socket_recvfrom($this->stream, 1, STREAM_PEEK) === false;
    }

    /**
     * Sends one request and returns error and result of its reply. The caller then calls
     * settle, or close on any exception.
     *
     * @param list<mixed> $params
     * @param int         $deadline on hrtime, nanoseconds
     *
     * @return array{mixed, mixed}
     *
     * @throws Unavailable
     */
    public function call(string $method, array $params, int $deadline): array
    {
        if (hrtime(true) >= $deadline) {
            throw new AgentTimeout('the budget was spent before the request could be sent');
        }
        $msgid = $this->msgid;
        $this->msgid = ($msgid + 1) & self::MAX_MSGID;
        stream_set_chunk_size($this->stream, self::BUSY);
        set_error_handler(self::silence(...));
        try {
            $this->send(Packer::pack([0, $msgid, $method, $params]), $deadline);
            return $this->receive(new Inbox($msgid), $deadline);
        } finally {
            restore_error_handler();
        }
    }

    /** The reply was understood: the next call may follow. */
    public function settle(): void
    {
        $this->used = true;
        stream_set_chunk_size($this->stream, self::IDLE);
    }

    /** Closes it, also when it is persistent. In a forked child the parent's connection stays open. */
    public function close(): void
    {
        if (is_resource($this->stream)) {
            fclose($this->stream);
        }
        $this->stream = null;
    }

    /** "@" alone does not keep a warning from an application's handler that throws. */
    private static function silence(): bool
    {
        return true;
    }

    private function send(string $bytes, int $deadline): void
    {
        while (true) {
            $sent = @fwrite($this->stream, $bytes);
            if ($sent === strlen($bytes)) {
                return;
            }
            if ($sent === false) {
                throw new Lost('the connection to the agent broke');
            }
            $bytes = substr($bytes, $sent);
            if (!$this->wait($deadline, true)) {
                throw new AgentTimeout('the agent does not read its requests');
            }
        }
    }

    /** @return array{mixed, mixed} */
    private function receive(Inbox $inbox, int $deadline): array
    {
        $any = false;
        do {
            $inTime = $this->wait($deadline);
            $bytes = (string) @fread($this->stream, $inbox->room());
            if ($bytes !== '') {
                $any = true;
                $reply = $inbox->add($bytes);
                if ($reply !== null) {
                    return $reply;
                }
            } elseif (stream_get_meta_data($this->stream)['eof']) {
                throw $any
                    ? new Unavailable('the connection to the agent ended in the middle of a reply')
                    : new Lost('the agent closed the connection');
            }
        } while ($inTime);
        throw new AgentTimeout('the agent did not answer in time');
    }

    /** Waits until there is something to be read, or room to write. False: the deadline has passed. */
    private function wait(int $deadline, bool $forRoom = false): bool
    {
        $microseconds = intdiv($deadline - hrtime(true) + 999, 1000);
        if ($microseconds <= 0) {
            return false;
        }
        $ready = $this->selectable ? $this->select($microseconds, $forRoom) : 0;
        if ($ready === 0 && (!$this->selectable || hrtime(true) < $deadline)) {
            usleep(min(self::POLL_MICROSECONDS, $microseconds));
        }
        return true;
    }

    /**
     * How many streams are ready within the time: 0 or 1. Also 0, at once, after a signal; and
     * always 0 for a descriptor above 1023, which select(2) cannot watch: such a one is polled.
     */
    private function select(int $microseconds, bool $forRoom): int
    {
        $streams = [$this->stream];
        $none = null;
        return $forRoom
            ? (int) @stream_select($none, $streams, $none, 0, $microseconds)
            : (int) @stream_select($streams, $none, $none, 0, $microseconds);
    }
}
