<?php

declare(strict_types=1);

namespace RlSidecar\Wire;

use RlSidecar\AllResult;
use RlSidecar\Exception\InvalidRequest;
use RlSidecar\Exception\NotPermitted;
use RlSidecar\Exception\ProtocolError;
use RlSidecar\Exception\RlSidecarException;
use RlSidecar\Exception\Unavailable;
use RlSidecar\Exception\UnknownPolicy;
use RlSidecar\Result;
use RlSidecar\Source;
use RlSidecar\ThrottleReply;

use function count;
use function is_array;
use function is_bool;
use function is_int;
use function is_string;

/**
 * Makes of an unpacked value what the caller gets, or throws ProtocolError. Items beyond
 * those known here are skipped.
 *
 * @internal
 */
final class Replies
{
    private const MAX_NUMBER = 2 ** 53 - 1;
    private const SHADOW = 1;

    public static function decision(mixed $result): Result
    {
        if (!self::isList($result, 7) || !is_bool($result[0])) {
            throw self::wrong('decision', $result);
        }
        [$allowed, $limit, $remaining, $reset, $retry, $source, $flags] = $result;
        $whole = is_int($limit) && is_int($remaining) && is_int($reset) && is_int($retry) && is_int($source)
            && is_int($flags);
        // Their bits taken together are negative, or above 2^53-1, if one of them is.
        $bits = $whole ? $limit | $remaining | $reset | ($retry === -1 ? 0 : $retry) | $source | $flags : -1;
        if ($bits < 0 || $bits > self::MAX_NUMBER) {
            throw self::wrong('decision', $result);
        }
        $source = Source::tryFrom($source) ?? Source::Unknown;
        $shadow = ($flags & self::SHADOW) !== 0;
        $degraded = $source === Source::Fallback;
        $permit = self::permit($result[7] ?? null);
        return new Result($allowed, $limit, $remaining, $reset, $retry, $source, $degraded, $shadow, $permit);
    }

    /** @return callable(mixed): AllResult for so many items */
    public static function all(int $items): callable
    {
        return static function (mixed $result) use ($items): AllResult {
            if (
                !self::isList($result, 2) || !is_bool($result[0])
                || !self::isList($result[1], $items) || count($result[1]) !== $items
            ) {
                throw self::wrong('answer to acquire_all', $result);
            }
            return new AllResult($result[0], array_map(self::decision(...), $result[1]));
        };
    }

    public static function throttle(mixed $result): ThrottleReply
    {
        if (!self::isList($result, 5)) {
            throw self::wrong('answer to throttle', $result);
        }
        [$limited, $limit, $remaining, $retry, $reset] = $result;
        if (!is_int($limited) || !is_int($limit) || !is_int($remaining) || !is_int($retry) || !is_int($reset)) {
            throw self::wrong('answer to throttle', $result);
        }
        return new ThrottleReply($limited !== 0, $limit, $remaining, $retry, $reset);
    }

    public static function truth(mixed $result): bool
    {
        return is_bool($result) ? $result : throw self::wrong('answer', $result);
    }

    public static function pong(mixed $result): bool
    {
        return $result === 'pong' ? true : throw self::wrong('answer to ping', $result);
    }

    /** @return array<string, mixed> */
    public static function info(mixed $result): array
    {
        return is_array($result) ? $result : throw self::wrong('answer to info', $result);
    }

    /**
     * The exception for `[code, message, ...]`.
     *
     * Code 1 is thrown rather than returned: the agent closes the connection after it.
     */
    public static function failure(mixed $error): RlSidecarException
    {
        if (!self::isList($error, 2) || !is_int($error[0])) {
            throw self::wrong('error', $error);
        }
        $text = is_string($error[1]) ? $error[1] : get_debug_type($error[1]);
        return match ($error[0]) {
            1 => throw new ProtocolError("the agent refused the request: $text"),
            2 => new ProtocolError("the agent does not know the method, it may be older than this client: $text"),
            3 => new UnknownPolicy($text),
            4 => new InvalidRequest($text),
            8 => new NotPermitted($text),
            default => new Unavailable($text),
        };
    }

    /** @phpstan-assert-if-true list<mixed> $value */
    private static function isList(mixed $value, int $least): bool
    {
        return is_array($value) && count($value) >= $least && array_is_list($value);
    }

    private static function permit(mixed $item): ?int
    {
        return is_int($item) && $item > 0 ? $item : null;
    }

    private static function wrong(string $what, mixed $value): ProtocolError
    {
        $shown = json_encode($value, JSON_INVALID_UTF8_SUBSTITUTE | JSON_PARTIAL_OUTPUT_ON_ERROR);
        return new ProtocolError("the agent's $what has the wrong shape: " . substr((string) $shown, 0, 200));
    }
}
