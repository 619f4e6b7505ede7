<?php

declare(strict_types=1);

namespace RlSidecar;

use RlSidecar\Exception\RateLimited;

/**
 * The answer to one call.
 */
final class Result
{
    /**
     * @param int $resetAfterMs milliseconds
     * @param int $retryAfterMs milliseconds, -1: never
     *
     * @internal use Client
     */
    public function __construct(
        private readonly bool $allowed,
        private readonly int $limit,
        private readonly int $remaining,
        private readonly int $resetAfterMs,
        private readonly int $retryAfterMs,
        private readonly Source $source,
        private readonly bool $degraded = false,
        private readonly bool $shadow = false,
        private readonly ?int $permit = null,
    ) {
    }

    public function isAllowed(): bool
    {
        return $this->allowed;
    }

    /** The same as isAllowed, by the name that Symfony gave it. */
    public function isAccepted(): bool
    {
        return $this->allowed;
    }

    /** @throws RateLimited when the call was denied */
    public function ensureAccepted(): self
    {
        return $this->allowed ? $this : throw new RateLimited($this);
    }

    /** Capacity in permits; 0 when nobody said. */
    public function getLimit(): int
    {
        return $this->limit;
    }

    /** Permits left as far as this host knows, 0 to getLimit(). */
    public function getRemaining(): int
    {
        return $this->remaining;
    }

    /** Seconds, in whole milliseconds, until the bucket is full again. */
    public function getResetAfter(): float
    {
        return $this->resetAfterMs / 1000;
    }

    /**
     * Seconds, in whole milliseconds, until this same call could be allowed: 0 when it was,
     * null when it never can be because its cost is above the capacity.
     */
    public function getRetryAfter(): ?float
    {
        return $this->retryAfterMs < 0 ? null : $this->retryAfterMs / 1000;
    }

    public function getSource(): Source
    {
        return $this->source;
    }

    /** Decided without Redis because it is out of reach, or without the agent. */
    public function isDegraded(): bool
    {
        return $this->degraded;
    }

    /** The policy only observes, and would have denied this call. */
    public function isShadow(): bool
    {
        return $this->shadow;
    }

    /** Of a concurrency limit, what to give to Client::release; null: there is nothing to release. */
    public function getPermit(): ?int
    {
        return $this->permit;
    }
}
