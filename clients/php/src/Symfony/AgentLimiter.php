<?php

declare(strict_types=1);

namespace RlSidecar\Symfony;

use RlSidecar\Client;
use RlSidecar\Limit;
use RlSidecar\Result;
use RlSidecar\Source;
use Symfony\Component\RateLimiter\Exception\MaxWaitDurationExceededException;
use Symfony\Component\RateLimiter\LimiterInterface;
use Symfony\Component\RateLimiter\RateLimit;
use Symfony\Component\RateLimiter\Reservation;

/**
 * One key of a limit, by Symfony's interface.
 */
final class AgentLimiter implements LimiterInterface
{
    private const LONGEST_WAIT = 60.0;
    private const NEVER = '+1 year';

    public function __construct(
        private readonly Client $client,
        private readonly string|Limit $limit,
        private readonly string $key,
    ) {
    }

    /**
     * Waits in the agent's queue until the tokens are there, 60 seconds at most; the reservation that
     * it returns is due at once. Whoever gives up waiting has taken nothing.
     *
     * @throws MaxWaitDurationExceededException when they did not come within $maxTime seconds
     * @throws \InvalidArgumentException        when there can never be so many
     */
    public function reserve(int $tokens = 1, ?float $maxTime = null): Reservation
    {
        $wait = max(0.0, min($maxTime ?? self::LONGEST_WAIT, self::LONGEST_WAIT));
        $result = $this->client->acquire($this->limit, $this->key, $tokens, $wait);
        if ($result->isAllowed()) {
            return new Reservation(microtime(true), self::rateLimit($result));
        }
        if ($result->getRetryAfter() === null) {
            throw new \InvalidArgumentException("$tokens tokens: the limit has {$result->getLimit()}");
        }
        throw new MaxWaitDurationExceededException("no $tokens tokens within $wait s", self::rateLimit($result));
    }

    /** With 0 tokens: what is there, without taking any. */
    public function consume(int $tokens = 1): RateLimit
    {
        return self::rateLimit($tokens === 0
            ? $this->client->peek($this->limit, $this->key, 0)
            : $this->client->acquire($this->limit, $this->key, $tokens));
    }

    public function reset(): void
    {
        $this->client->reset($this->limit, $this->key);
    }

    /**
     * Symfony takes "none remaining" for a denial in some places. So a call that was allowed without
     * the agent, when nobody counts, says that one remains.
     */
    private static function rateLimit(Result $result): RateLimit
    {
        $uncounted = $result->isAllowed() && $result->getSource() === Source::Client;
        $remaining = $uncounted ? max(1, $result->getRemaining()) : $result->getRemaining();
        $wait = $result->getRetryAfter();
        $milliseconds = (int) round(1000 * ($wait ?? 0));
        $at = (new \DateTimeImmutable())->modify($wait === null ? self::NEVER : "+$milliseconds ms");
        return new RateLimit($remaining, $at, $result->isAllowed(), max($remaining, $result->getLimit()));
    }
}
