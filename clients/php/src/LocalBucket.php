<?php

declare(strict_types=1);

namespace RlSidecar;

/**
 * A token bucket for the time without an agent, in mode local.
 *
 * It lies in APCu, shared by the processes of a PHP-FPM pool, or where that is not enabled
 * in the memory of this process, which under PHP-FPM lasts for one request only. All
 * algorithms are kept as a token bucket; of a concurrency limit nothing is kept.
 *
 * A bucket is one number: the time at which it is full again. Not good for exactness: two
 * processes that fight for one bucket more than a few times are both let through, and a bucket that
 * takes centuries to fill is kept for the first three.
 *
 * @internal
 */
final class LocalBucket
{
    private const TRIES = 5;
    private const MAX_BUCKETS = 10_000;
    private const LATEST = 9e18;

    /** @var array<string, int> when the bucket is full again, nanoseconds of hrtime */
    private static array $fullAt = [];

    public static function ask(Limit $limit, string $key, int $cost, bool $take): Result
    {
        if ($limit->algorithm === Algorithm::Concurrency) {
            return new Result(true, $limit->capacity(), 0, 0, 0, Source::Client, true);
        }
        $name = 'rlsidecar:local:' . implode(':', $limit->onTheWire()) . ":$key";
        for ($try = 0; $try < self::TRIES; $try++) {
            $old = self::read($name);
            $now = hrtime(true);
            [$result, $new] = self::decide($limit, $cost, max($old, $now), $now, $take);
            if (!$take || !$result->isAllowed() || self::write($name, $old, $new, $limit)) {
                break;
            }
        }
        return $result;
    }

    /** @return array{Result, int} */
    private static function decide(Limit $limit, int $cost, int $fullAt, int $now, bool $take): array
    {
        $perPermit = $limit->periodMs * 1e6 / $limit->count;
        $capacity = $limit->capacity();
        $after = $fullAt - $now + $cost * $perPermit;
        $late = $after - $capacity * $perPermit;
        $allowed = $late <= 0;
        $level = $allowed && $take ? $after : $fullAt - $now;
        $remaining = max(0, (int) ($capacity - $level / $perPermit));
        $retry = $allowed ? 0 : self::milliseconds($late);
        $result = new Result($allowed, $capacity, $remaining, self::milliseconds($level), $retry, Source::Client, true);
        return [$result, (int) min(self::LATEST, $now + $after)];
    }

    private static function milliseconds(float $nanoseconds): int
    {
        return (int) ceil(min(self::LATEST, $nanoseconds) / 1e6);
    }

    private static function read(string $name): int
    {
        return self::isShared() ? (int) apcu_fetch($name) : self::$fullAt[$name] ?? 0;
    }

    private static function write(string $name, int $old, int $new, Limit $limit): bool
    {
        if (self::isShared()) {
            $seconds = intdiv($new - hrtime(true), 1_000_000_000) + 1;
            return $old === 0 ? apcu_add($name, $new, $seconds) : apcu_cas($name, $old, $new);
        }
        unset(self::$fullAt[$name]);
        self::$fullAt[$name] = $new;
        if (count(self::$fullAt) > self::MAX_BUCKETS) {
            unset(self::$fullAt[array_key_first(self::$fullAt)]);
        }
        return true;
    }

    private static function isShared(): bool
    {
        return function_exists('apcu_enabled') && apcu_enabled();
    }
}
