<?php

declare(strict_types=1);

namespace RlSidecar\Http;

use RlSidecar\Limit;
use RlSidecar\Result;
use RlSidecar\Source;

/**
 * What a response says about a limit: one place for all frameworks.
 *
 * Times are whole seconds from now, rounded up: who waits as long as told is not told to wait again.
 * A result that the agent did not make says nothing but Retry-After.
 */
final class Headers
{
    /**
     * The headers to set, in place of those of the same name.
     *
     * @param callable(string): string $present the value that a header of the response has already, or ''
     *
     * @return array<string, string>
     */
    public static function of(string|Limit $limit, Result $result, HeaderStyle $style, callable $present): array
    {
        $retryAfter = $result->getRetryAfter();
        $headers = $result->isAllowed() || $retryAfter === null ? [] : ['Retry-After' => self::wait($retryAfter)];
        if ($result->getSource() === Source::Client || $result->getLimit() === 0) {
            return $headers;
        }
        return $headers + match ($style) {
            HeaderStyle::XRateLimit => self::xRateLimit($result, $present),
            HeaderStyle::Ietf => self::ietf($limit, $result, $present),
            HeaderStyle::Silent => [],
        };
    }

    /** Leaves what stands there when that limit has less left. */
    private static function xRateLimit(Result $result, callable $present): array
    {
        $left = $present('X-RateLimit-Remaining');
        if ($result->isAllowed() && is_numeric($left) && (int) $left <= $result->getRemaining()) {
            return [];
        }
        return [
            'X-RateLimit-Limit' => (string) $result->getLimit(),
            'X-RateLimit-Remaining' => (string) $result->getRemaining(),
            'X-RateLimit-Reset' => self::seconds($result->getResetAfter()),
        ];
    }

    /** Each limit is an item of a list, which others may have begun. */
    private static function ietf(string|Limit $limit, Result $result, callable $present): array
    {
        $name = self::quoted($limit);
        $limit = is_string($limit) ? Limit::parse($limit) : $limit;
        $window = $limit === null || $limit->periodMs < 1000 ? '' : ';w=' . self::seconds($limit->periodMs / 1000);
        $items = [
            'RateLimit-Policy' => "$name;q={$result->getLimit()}$window",
            'RateLimit' => "$name;r={$result->getRemaining()};t=" . self::seconds($result->getResetAfter()),
        ];
        foreach ($items as $header => $item) {
            $before = $present($header);
            $items[$header] = $before === '' ? $item : "$before, $item";
        }
        return $items;
    }

    /** A string of structured fields, which has printable ASCII only. */
    private static function quoted(string|Limit $limit): string
    {
        $name = is_string($limit) ? $limit : "$limit->count/{$limit->periodMs}ms";
        return '"' . addcslashes((string) preg_replace('~[^ -\~]~', '?', $name), '"\\') . '"';
    }

    private static function wait(float $seconds): string
    {
        return (string) max(1, (int) self::seconds($seconds));
    }

    private static function seconds(float $seconds): string
    {
        return (string) (int) ceil($seconds);
    }
}
