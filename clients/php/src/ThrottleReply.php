<?php

declare(strict_types=1);

namespace RlSidecar;

/**
 * The answer to Client::throttle, with the numbers of redis-cell's CL.THROTTLE.
 */
final class ThrottleReply
{
    /**
     * @param int  $retryAfter whole seconds, -1 when not limited
     * @param int  $resetAfter whole seconds until the bucket is full again
     * @param bool $degraded   the agent gave no decision, on_unavailable did
     */
    public function __construct(
        public readonly bool $limited,
        public readonly int $limit,
        public readonly int $remaining,
        public readonly int $retryAfter,
        public readonly int $resetAfter,
        public readonly bool $degraded = false,
    ) {
    }

    /** @return array{int, int, int, int, int} what CL.THROTTLE replies */
    public function toArray(): array
    {
        return [(int) $this->limited, $this->limit, $this->remaining, $this->retryAfter, $this->resetAfter];
    }
}
