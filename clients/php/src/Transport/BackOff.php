<?php

declare(strict_types=1);

namespace RlSidecar\Transport;

use RlSidecar\Exception\AgentNotRunning;

/**
 * When to try again after nobody was reached: after a random pause that grows from 25 ms to 1 s.
 *
 * PHP-FPM forgets all variables between two requests. What is to be remembered for longer
 * has to lie in APCu, where that is enabled; without it each request tries once, which
 * for a Unix socket is one system call that the agent does not notice.
 *
 * @internal
 */
final class BackOff
{
    private const SHORTEST = 25_000_000;
    private const LONGEST = 1_000_000_000;
    private const KEPT_SECONDS = 2;

    /** On hrtime, which all processes of a host share; nanoseconds. */
    private int $retryAt = 0;
    private int $failures = 0;
    private readonly bool $shared;

    public function __construct(private readonly string $path)
    {
        $this->shared = function_exists('apcu_enabled') && apcu_enabled();
        $state = $this->shared ? apcu_fetch($this->key()) : false;
        if (is_array($state)) {
            [$this->retryAt, $this->failures] = $state;
        }
    }

    /** @throws AgentNotRunning while it lasts */
    public function check(): void
    {
        if ($this->retryAt > 0 && hrtime(true) < $this->retryAt) {
            throw new AgentNotRunning("nobody was reached on $this->path, next try is due shortly");
        }
    }

    public function failed(): void
    {
        $longest = min(self::LONGEST, self::SHORTEST << $this->failures);
        $this->retryAt = hrtime(true) + random_int(0, $longest);
        $this->failures = min($this->failures + 1, 10);
        if ($this->shared) {
            apcu_store($this->key(), [$this->retryAt, $this->failures], self::KEPT_SECONDS);
        }
    }

    public function worked(): void
    {
        if ($this->failures > 0 && $this->shared) {
            apcu_delete($this->key());
        }
        $this->failures = $this->retryAt = 0;
    }

    private function key(): string
    {
        return "rlsidecar:back-off:$this->path";
    }
}
