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
 * processes that fight for one bucket more than a few times are both let through.
 *
 * @internal
 */
final class LocalBucket
{
    private const TRIES = 5;
    private const MAX_BUCKETS = 10_000;

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
        $new = (int) ($fullAt + $cost * $perPermit);
        $late = (int) ($new - $now - $limit->capacity() * $perPermit);
        $allowed = $late <= 0;
        $level = $allowed && $take ? $new : $fullAt;
        $remaining = max(0, (int) ($limit->capacity() - ($level - $now) / $perPermit));
        $retry = $allowed ? 0 : self::milliseconds($late);
        $reset = self::milliseconds($level - $now);
        return [new Result($allowed, $limit->capacity(), $remaining, $reset, $retry, Source::Client, true), $new];
    }

    private static function milliseconds(int $nanoseconds): int
    {
        return intdiv($nanoseconds + 999_999, 1_000_000);
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
