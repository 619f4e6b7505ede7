<?php

declare(strict_types=1);

namespace RlSidecar;

use RlSidecar\Exception\InvalidRequest;

/**
 * A limit that the caller brings along: so many permits per period.
 */
final class Limit
{
    private const MAX_COUNT = 1_000_000_000;
    private const MAX_LOGGED = 10_000;
    private const MAX_PERIOD_MS = 366 * 86_400_000;
    private const MILLISECONDS = [
        'ms' => 1, 'millisecond' => 1,
        's' => 1000, 'sec' => 1000, 'second' => 1000,
        'm' => 60_000, 'min' => 60_000, 'minute' => 60_000,
        'h' => 3_600_000, 'hour' => 3_600_000,
        'd' => 86_400_000, 'day' => 86_400_000,
    ];
    private const TEXT = '~^(\d[\d_]*)\s*/\s*(\d[\d_]*)?\s*'
        . '(ms|s|m|h|d|sec|min|(?:millisecond|second|minute|hour|day)s?)$~D';

    public readonly int $periodMs;

    /**
     * @param int            $count     permits per period, 1 to 10^9; of a sliding_log 1 to 10,000
     * @param float          $period    seconds, in whole milliseconds, up to 366 days
     * @param int|null       $burst     what can be taken at once, 1 to 10^9; null: the same as count.
     *                                  Only a token_bucket and a leaky_bucket have one
     * @param Algorithm|null $algorithm null: the agent's default, token_bucket. For concurrency
     *                                  there is Limit::concurrency
     *
     * @throws InvalidRequest
     */
    public function __construct(
        public readonly int $count,
        float $period,
        public readonly ?int $burst = null,
        public readonly ?Algorithm $algorithm = null,
    ) {
        self::checkCount('count', $count);
        if ($burst !== null) {
            self::checkCount('burst', $burst);
        }
        if ($algorithm !== null) {
            self::checkAlgorithm($algorithm, $count, $burst);
        }
        $this->periodMs = self::milliseconds($algorithm === Algorithm::Concurrency ? 'maxHold' : 'period', $period);
    }

    /** @throws InvalidRequest */
    public static function perSecond(int $count, ?int $burst = null, ?Algorithm $algorithm = null): self
    {
        return new self($count, 1, $burst, $algorithm);
    }

    /** @throws InvalidRequest */
    public static function perMinute(int $count, ?int $burst = null, ?Algorithm $algorithm = null): self
    {
        return new self($count, 60, $burst, $algorithm);
    }

    /** @throws InvalidRequest */
    public static function perHour(int $count, ?int $burst = null, ?Algorithm $algorithm = null): self
    {
        return new self($count, 3600, $burst, $algorithm);
    }

    /** @throws InvalidRequest */
    public static function perDay(int $count, ?int $burst = null, ?Algorithm $algorithm = null): self
    {
        return new self($count, 86_400, $burst, $algorithm);
    }

    /**
     * So many permits held at once; one not released after $maxHold seconds is taken back.
     *
     * @throws InvalidRequest
     */
    public static function concurrency(int $count, float $maxHold): self
    {
        return new self($count, $maxHold, null, Algorithm::Concurrency);
    }

    /**
     * The limit that a text like "10/minute", "5 / 250ms" or "1_000/2 hours" stands for;
     * null for any other text, which is the name of a policy.
     *
     * @throws InvalidRequest when it reads like a limit with impossible numbers
     */
    public static function parse(string $text): ?self
    {
        if (!str_contains($text, '/') || preg_match(self::TEXT, $text, $part) !== 1) {
            return null;
        }
        $times = $part[2] === '' ? 1 : self::number($part[2]);
        $unit = self::MILLISECONDS[$part[3]] ?? self::MILLISECONDS[rtrim($part[3], 's')];
        return new self(self::number($part[1]), $times * $unit / 1000);
    }

    /** The most that one call can take. */
    public function capacity(): int
    {
        return $this->burst ?? $this->count;
    }

    /**
     * @return list<int|string> as the agent reads it
     *
     * @internal
     */
    public function onTheWire(): array
    {
        if ($this->algorithm !== null) {
            return [$this->count, $this->periodMs, $this->burst ?? 0, $this->algorithm->value];
        }
        return $this->burst === null ? [$this->count, $this->periodMs] : [$this->count, $this->periodMs, $this->burst];
    }

    private static function checkCount(string $name, int $value): void
    {
        if ($value < 1 || $value > self::MAX_COUNT) {
            throw new InvalidRequest("$name $value: allowed are 1 to " . self::MAX_COUNT);
        }
    }

    private static function checkAlgorithm(Algorithm $algorithm, int $count, ?int $burst): void
    {
        if ($burst !== null && !$algorithm->hasBurst()) {
            throw new InvalidRequest("burst $burst: a $algorithm->value has none, leave it out");
        }
        if ($algorithm === Algorithm::SlidingLog && $count > self::MAX_LOGGED) {
            $allowed = '1 to ' . self::MAX_LOGGED . '; a sliding_window has no such bound';
            throw new InvalidRequest("count $count: a sliding_log allows $allowed");
        }
    }

    private static function milliseconds(string $name, float $seconds): int
    {
        $exact = round($seconds * 1000, 3);
        if (!($exact >= 1 && $exact <= self::MAX_PERIOD_MS) || $exact !== floor($exact)) {
            throw new InvalidRequest("$name $seconds s: allowed are whole milliseconds, 1 ms to 366 days");
        }
        return (int) $exact;
    }

    private static function number(string $digits): int
    {
        if (strlen($digits) > 16) {
            $start = substr($digits, 0, 16);
            throw new InvalidRequest("number $start...: at most 16 digits are allowed in a limit");
        }
        return (int) str_replace('_', '', $digits);
    }
}
