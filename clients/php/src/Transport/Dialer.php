<?php

declare(strict_types=1);

namespace RlSidecar\Transport;

use RlSidecar\Exception\AgentNotRunning;
use RlSidecar\Exception\AgentTimeout;
use RlSidecar\Exception\Unavailable;

/**
 * Opens connections to the agent's socket.
 *
 * @internal
 */
final class Dialer
{
    private const REFUSED = 111;
    private const DENIED = 13;
    private const AGAIN = 11;
    private const NO_ERROR = 0;
    private const PAUSE_MICROSECONDS = [500, 5000];

    public function __construct(public readonly string $path)
    {
    }

    /**
     * A connection: a new one, or the persistent one of an earlier request if it is clean.
     *
     * @param int $deadline on hrtime, nanoseconds
     *
     * @throws AgentNotRunning when nobody can be reached there
     * @throws AgentTimeout    when the agent's backlog stays full until the deadline
     * @throws Unavailable     when this process cannot open a socket
     */
    public function open(int $deadline, bool $persistent): Connection
    {
        do {
            $connection = new Connection($this->connect($deadline, $persistent), $persistent);
            if (!$connection->isUsed() || $connection->isClean()) {
                return $connection;
            }
            $connection->close();
        } while (true);
    }

    /** @return resource */
    private function connect(int $deadline, bool $persistent)
    {
        [$pause, $longest] = self::PAUSE_MICROSECONDS;
        while (($left = $deadline - hrtime(true)) > 0) {
            [$stream, $error, $text] = $this->attempt($left / 1e9, $persistent);
            if ($stream !== false) {
                return $stream;
            }
            if ($error !== self::AGAIN) {
                throw $this->whyNot($error, $text);
            }
            // The agent is there, and its backlog is full.
            usleep(min($pause, intdiv($left, 1000)));
            $pause = min(2 * $pause, $longest);
        }
        throw new AgentTimeout("could not connect to $this->path in time");
    }

    /** @return array{resource|false, int, string} */
    private function attempt(float $seconds, bool $persistent): array
    {
        $flags = STREAM_CLIENT_CONNECT | ($persistent ? STREAM_CLIENT_PERSISTENT : 0);
        set_error_handler(static fn (): bool => true);
        try {
            $stream = @stream_socket_client("unix://$this->path", $error, $text, $seconds, $flags);
        } finally {
            restore_error_handler();
        }
        return [$stream, (int) $error, (string) $text];
    }

    private function whyNot(int $error, string $text): Unavailable
    {
        clearstatcache(true, $this->path);
        return match (true) {
            $error === self::NO_ERROR => new Unavailable("cannot open a socket: $text"),
            $error === self::DENIED => new AgentNotRunning(
                "permission denied on $this->path: this user must be in the group of the agent's socket"
            ),
            $error !== self::REFUSED => new AgentNotRunning("cannot connect to $this->path: $text"),
            @filetype($this->path) !== 'socket' => new AgentNotRunning(
                "$this->path is not a socket: set RLSIDECAR_ADDRESS to the agent's socket"
            ),
            default => new AgentNotRunning("nobody listens on $this->path"),
        };
    }
}
