<?php

declare(strict_types=1);

namespace RlSidecar\Transport;

use RlSidecar\Exception\AgentNotRunning;
use RlSidecar\Exception\RlSidecarException;
use RlSidecar\Wire\Replies;

/**
 * The connections of this process to one socket, and the calls over them.
 *
 * One is enough for a program that does one thing at a time. Others come into being when a
 * call finds it busy: in a signal handler, or in a coroutine that runs while another waits
 * for its reply. PHP has one persistent stream per address, so of them one is persistent.
 *
 * @internal
 */
final class Pool
{
    private const MAX_IDLE = 64;

    /** @var array<string, self> */
    private static array $pools = [];

    private readonly Dialer $dialer;
    private readonly BackOff $backOff;
    /** @var list<Connection> idle, the last one used on top */
    private array $idle = [];
    /** @var array<int, Connection> in a call, by object id */
    private array $busy = [];

    private function __construct(string $path, private readonly bool $persistent)
    {
        $this->dialer = new Dialer($path);
        $this->backOff = new BackOff($path);
        // Not when the object dies: after a fatal error no destructor runs.
        register_shutdown_function($this->closeBusy(...));
    }

    /** The pool for a socket. All clients of the process share it. */
    public static function of(string $path, bool $persistent): self
    {
        return self::$pools[$path . ($persistent ? '|p' : '|')] ??= new self($path, $persistent);
    }

    /**
     * Asks once; once more only if a connection that was used before turns out to be dead.
     *
     * @template T
     *
     * @param list<mixed>        $params
     * @param int                $deadline on hrtime, nanoseconds
     * @param callable(mixed): T $decode
     *
     * @return T
     *
     * @throws RlSidecarException
     */
    public function call(string $method, array $params, int $deadline, callable $decode): mixed
    {
        $connection = $this->take() ?? $this->connect($deadline, $this->persistent);
        try {
            $outcome = $this->exchange($connection, $method, $params, $deadline, $decode);
        } catch (Lost $lost) {
            if (!$connection->isUsed()) {
                throw $lost;
            }
            $this->closeIdle();
            $connection = $this->connect($deadline, $this->persistent);
            $outcome = $this->exchange($connection, $method, $params, $deadline, $decode);
        }
        $this->give($connection);
        return self::orThrow($outcome);
    }

    /**
     * Asks over a connection that is the caller's own, and over no other.
     *
     * @template T
     *
     * @param list<mixed>        $params
     * @param int                $deadline on hrtime, nanoseconds
     * @param callable(mixed): T $decode
     *
     * @return T
     *
     * @throws Lost               when it is dead, or proves to be before a byte of the reply
     * @throws RlSidecarException
     */
    public function callOver(Connection $own, string $method, array $params, int $deadline, callable $decode): mixed
    {
        if (!$own->isClean()) {
            throw new Lost('the connection that was set aside has ended');
        }
        return self::orThrow($this->exchange($own, $method, $params, $deadline, $decode));
    }

    /** A new connection that no call but the caller's uses. */
    public function own(int $deadline): Connection
    {
        return $this->connect($deadline, false);
    }

    public function closeIdle(): void
    {
        foreach ($this->idle as $connection) {
            $connection->close();
        }
        $this->idle = [];
    }

    private function take(): ?Connection
    {
        while (($connection = array_pop($this->idle)) !== null) {
            if ($connection->isClean()) {
                return $connection;
            }
            $connection->close();
        }
        return null;
    }

    private function connect(int $deadline, bool $persistent): Connection
    {
        $this->backOff->check();
        try {
            $connection = $this->dialer->open($deadline, $persistent && !$this->persistentIsBusy());
        } catch (AgentNotRunning $nobody) {
            $this->backOff->failed();
            throw $nobody;
        }
        $this->backOff->worked();
        return $connection;
    }

    private function persistentIsBusy(): bool
    {
        foreach ($this->busy as $connection) {
            if ($connection->persistent) {
                return true;
            }
        }
        return false;
    }

    /**
     * One call on one connection, which is idle again afterwards, or closed.
     *
     * @param list<mixed>            $params
     * @param callable(mixed): mixed $decode
     *
     * @return mixed what was decoded, or the exception that the agent's error stands for
     */
    private function exchange(
        Connection $connection,
        string $method,
        array $params,
        int $deadline,
        callable $decode,
    ): mixed {
        $id = spl_object_id($connection);
        $this->busy[$id] = $connection;
        try {
            [$error, $result] = $connection->call($method, $params, $deadline);
            $outcome = $error === null ? $decode($result) : Replies::failure($error);
            $connection->settle();
            return $outcome;
        } catch (\Throwable $any) {
            $connection->close();
            throw $any;
        } finally {
            unset($this->busy[$id]);
        }
    }

    private function give(Connection $connection): void
    {
        if (count($this->idle) < self::MAX_IDLE) {
            $this->idle[] = $connection;
        } else {
            $connection->close();
        }
    }

    private static function orThrow(mixed $outcome): mixed
    {
        return $outcome instanceof RlSidecarException ? throw $outcome : $outcome;
    }

    private function closeBusy(): void
    {
        foreach ($this->busy as $connection) {
            $connection->close();
        }
        $this->busy = [];
    }
}
