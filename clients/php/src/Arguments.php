<?php

declare(strict_types=1);

namespace RlSidecar;

use RlSidecar\Exception\InvalidRequest;

use function count;
use function is_array;
use function is_int;
use function is_string;
use function strlen;

/**
 * What a caller may pass, checked before a byte is sent.
 *
 * The agent checks the same bounds. Checking here as well makes a mistake look the same
 * on a developer's machine without an agent as it does in production.
 *
 * @internal
 */
final class Arguments
{
    private const MAX_NUMBER = 2 ** 53 - 1;
    private const MAX_KEY_BYTES = 1024;
    private const MAX_POLICY_BYTES = 128;
    private const MAX_ITEMS = 32;
    private const MAX_SECONDS = 3600;
    private const MAX_WAIT = 60;

    /** The limit that a text stands for, or the policy's name. */
    public static function limit(string|Limit $limit): string|Limit
    {
        if (!is_string($limit)) {
            return $limit;
        }
        return Limit::parse($limit) ?? self::text('policy', $limit, self::MAX_POLICY_BYTES);
    }

    public static function key(string $key): string
    {
        return self::text('key', $key, self::MAX_KEY_BYTES);
    }

    public static function cost(int $cost, int $least = 1): int
    {
        return self::number('cost', $cost, $least);
    }

    public static function number(string $name, int $value, int $least): int
    {
        if ($value < $least || $value > self::MAX_NUMBER) {
            throw new InvalidRequest("$name $value: allowed are whole numbers from $least to 2^53-1");
        }
        return $value;
    }

    public static function timeout(float $seconds): float
    {
        if (!($seconds > 0 && $seconds <= self::MAX_SECONDS)) {
            throw new InvalidRequest("timeout $seconds: allowed are more than 0 to " . self::MAX_SECONDS . ' seconds');
        }
        return $seconds;
    }

    /** Milliseconds, rounded up. */
    public static function wait(float $seconds): int
    {
        if (!($seconds >= 0 && $seconds <= self::MAX_WAIT)) {
            throw new InvalidRequest("wait $seconds: allowed are 0 to " . self::MAX_WAIT . ' seconds');
        }
        return (int) ceil(round($seconds * 1000, 3));
    }

    /**
     * @param array<mixed> $items
     *
     * @return list<array{string|Limit, string, int}>
     */
    public static function items(array $items): array
    {
        $count = count($items);
        if ($count < 1 || $count > self::MAX_ITEMS) {
            throw new InvalidRequest("$count items: allowed are 1 to " . self::MAX_ITEMS);
        }
        return array_map(self::item(...), array_values($items));
    }

    /** @return array{string|Limit, string, int} */
    private static function item(mixed $item): array
    {
        if (!is_array($item) || !array_is_list($item) || count($item) < 2 || count($item) > 3) {
            throw new InvalidRequest('item ' . get_debug_type($item) . ': write [limit, key] or [limit, key, cost]');
        }
        [$limit, $key, $cost] = [...$item, 1];
        if (!is_string($limit) && !$limit instanceof Limit) {
            $given = get_debug_type($limit);
            throw new InvalidRequest("limit $given: write a policy name, a Limit, or '10/minute'");
        }
        if (!is_string($key) && !is_int($key) || !is_int($cost)) {
            throw new InvalidRequest('item: the key must be a string and the cost a whole number');
        }
        return [self::limit($limit), self::key((string) $key), self::cost($cost)];
    }

    private static function text(string $name, string $text, int $most): string
    {
        $size = strlen($text);
        if ($size < 1 || $size > $most) {
            throw new InvalidRequest("$name '" . substr($text, 0, 40) . "': has $size bytes, allowed are 1 to $most");
        }
        return $text;
    }
}
