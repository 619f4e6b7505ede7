<?php

declare(strict_types=1);

namespace RlSidecar;

/**
 * What the caller gets when the agent gave no decision: the one place where on_unavailable is turned
 * into answers.
 *
 * @internal
 */
final class Fallback
{
    private const TRY_AGAIN_MS = 1000;

    /** @param array<string, Limit> $policies what to keep in mode local for the agent's policies */
    public function __construct(
        private readonly OnUnavailable $mode,
        private readonly array $policies = [],
    ) {
    }

    public function acquire(string|Limit $limit, string $key, int $cost): Result
    {
        return $this->result($limit, $key, $cost, true);
    }

    public function peek(string|Limit $limit, string $key, int $cost): Result
    {
        return $this->result($limit, $key, $cost, false);
    }

    /** @param list<array{string|Limit, string, int}> $items */
    public function acquireAll(array $items): AllResult
    {
        $results = array_map(fn (array $item): Result => $this->peek(...$item), $items);
        foreach ($results as $result) {
            if (!$result->isAllowed()) {
                return new AllResult(false, $results);
            }
        }
        return new AllResult(true, array_map(fn (array $item): Result => $this->acquire(...$item), $items));
    }

    public function throttle(string $key, int $maxBurst, int $count, int $period, int $quantity): ThrottleReply
    {
        $limited = $this->mode === OnUnavailable::Deny || $quantity > $maxBurst + 1;
        return new ThrottleReply($limited, $maxBurst + 1, 0, $limited ? 1 : -1, 0, true);
    }

    private function result(string|Limit $limit, string $key, int $cost, bool $take): Result
    {
        if ($this->mode === OnUnavailable::Local) {
            $limit = $limit instanceof Limit ? $limit : $this->policies[$limit] ?? $limit;
        }
        $capacity = $limit instanceof Limit ? $limit->capacity() : 0;
        if ($capacity > 0 && $cost > $capacity) {
            return new Result(false, $capacity, 0, 0, -1, Source::Client, true);
        }
        if ($this->mode === OnUnavailable::Local && $limit instanceof Limit) {
            return LocalBucket::ask($limit, $key, $cost, $take);
        }
        $allowed = $this->mode !== OnUnavailable::Deny;
        return new Result($allowed, $capacity, 0, 0, $allowed ? 0 : self::TRY_AGAIN_MS, Source::Client, true);
    }
}
