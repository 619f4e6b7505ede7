<?php

declare(strict_types=1);

namespace RlSidecar;

use RlSidecar\Exception\InvalidRequest;

/**
 * Where the settings come from: the constructor, then the environment, then the default.
 *
 * @internal
 */
final class Settings
{
    private const ADDRESS = 'unix:///run/rlsidecar/rlsidecar.sock';
    private const TIMEOUT = 0.05;
    private const MAX_PATH_BYTES = 107;
    private const MAX_APP_BYTES = 128;

    /** The path to connect to. */
    public static function path(?string $address): string
    {
        $address ??= self::environment('ADDRESS') ?? self::ADDRESS;
        $path = str_starts_with($address, 'unix://') ? substr($address, 7) : $address;
        $wrong = $path === $address
            ? preg_match('~^[A-Za-z][A-Za-z0-9+.-]*:~', $path) === 1
            : !str_starts_with($path, '/');
        if ($wrong) {
            throw new InvalidRequest("address '$address': write unix:///path/to/socket or a path");
        }
        if ($path === '' || str_contains($path, "\0")) {
            throw new InvalidRequest("address '$address': a path must not be empty or have NUL bytes");
        }
        $size = strlen($path);
        if ($size > self::MAX_PATH_BYTES) {
            $most = self::MAX_PATH_BYTES;
            throw new InvalidRequest("address '$address': the path has $size bytes, at most $most are allowed");
        }
        return $path;
    }

    /** Seconds. */
    public static function timeout(?float $seconds): float
    {
        if ($seconds !== null) {
            return Arguments::timeout($seconds);
        }
        $text = self::environment('TIMEOUT_MS');
        if ($text === null) {
            return self::TIMEOUT;
        }
        if (!is_numeric($text) || !($text > 0 && $text <= 3_600_000)) {
            throw new InvalidRequest("RLSIDECAR_TIMEOUT_MS '$text': allowed are more than 0 to 3600000");
        }
        return (float) $text / 1000;
    }

    public static function onUnavailable(OnUnavailable|string|null $mode): OnUnavailable
    {
        $mode ??= self::environment('ON_UNAVAILABLE') ?? OnUnavailable::Allow;
        if ($mode instanceof OnUnavailable) {
            return $mode;
        }
        $thereAre = implode(', ', array_column(OnUnavailable::cases(), 'value'));
        return OnUnavailable::tryFrom($mode)
            ?? throw new InvalidRequest("on_unavailable '$mode': there are $thereAre");
    }

    /** The application's name, null when it has none. */
    public static function app(?string $name): ?string
    {
        $name ??= self::environment('APP');
        if ($name !== null && preg_match('~^[^\x00-\x1f\x7f]{1,' . self::MAX_APP_BYTES . '}$~D', $name) !== 1) {
            throw new InvalidRequest("app '$name': write a name of 1 to " . self::MAX_APP_BYTES . ' bytes');
        }
        return $name;
    }

    /** Whether the agent is not to be asked at all. */
    public static function isDisabled(): bool
    {
        $text = trim(self::environment('DISABLE') ?? '0');
        return match (strtolower($text)) {
            '1', 'true', 'yes', 'on' => true,
            '0', 'false', 'no', 'off', '' => false,
            default => throw new InvalidRequest("RLSIDECAR_DISABLE '$text': write 1 or 0"),
        };
    }

    /**
     * @param array<mixed> $limits by the name of a policy
     *
     * @return array<string, Limit>
     */
    public static function localLimits(array $limits): array
    {
        return array_map(static function (mixed $limit): Limit {
            $read = is_string($limit) ? Limit::parse($limit) : $limit;
            if (!$read instanceof Limit) {
                throw new InvalidRequest('localLimits ' . var_export($limit, true) . ": write a Limit or '10/minute'");
            }
            return $read;
        }, $limits);
    }

    /**
     * PHP-FPM's env[] lines, Apache's SetEnv and FastCGI parameters are in $_SERVER, not all of them in getenv's.
     */
    private static function environment(string $name): ?string
    {
        $value = getenv("RLSIDECAR_$name");
        if ($value === false) {
            $value = $_SERVER["RLSIDECAR_$name"] ?? null;
        }
        return is_string($value) && $value !== '' ? $value : null;
    }
}
