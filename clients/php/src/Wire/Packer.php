<?php

declare(strict_types=1);

namespace RlSidecar\Wire;

use function chr;
use function count;
use function is_array;
use function is_bool;
use function is_int;
use function is_string;
use function strlen;

/**
 * Writes MessagePack, in the shortest form, as far as a client says anything: nil, bool,
 * int, text, list, and map with text keys.
 *
 * There is an extension for it, which not every host has, and a client should ask for none.
 *
 * @internal
 */
final class Packer
{
    public static function pack(mixed $value): string
    {
        return match (true) {
            is_string($value) => self::text($value),
            is_int($value) => self::int($value),
            is_array($value) => array_is_list($value) ? self::list($value) : self::map($value),
            $value === null => "\xc0",
            is_bool($value) => $value ? "\xc3" : "\xc2",
            default => throw new \LogicException('cannot pack ' . get_debug_type($value)),
        };
    }

    private static function int(int $value): string
    {
        return match (true) {
            $value < 0 => self::negative($value),
            $value < 0x80 => chr($value),
            $value < 0x100 => "\xcc" . chr($value),
            $value < 0x10000 => pack('Cn', 0xcd, $value),
            $value < 0x100000000 => pack('CN', 0xce, $value),
            default => pack('CJ', 0xcf, $value),
        };
    }

    private static function negative(int $value): string
    {
        return match (true) {
            $value >= -0x20 => chr($value + 0x100),
            $value >= -0x80 => "\xd0" . chr($value + 0x100),
            $value >= -0x8000 => pack('Cn', 0xd1, $value & 0xffff),
            $value >= -0x80000000 => pack('CN', 0xd2, $value & 0xffffffff),
            default => pack('CJ', 0xd3, $value),
        };
    }

    private static function text(string $text): string
    {
        $size = strlen($text);
        if ($size < 0x20) {
            return chr(0xa0 | $size) . $text;
        }
        return match (true) {
            $size < 0x100 => "\xd9" . chr($size) . $text,
            $size < 0x10000 => pack('Cn', 0xda, $size) . $text,
            default => pack('CN', 0xdb, $size) . $text,
        };
    }

    /** @param list<mixed> $items */
    private static function list(array $items): string
    {
        $size = count($items);
        $bytes = $size < 0x10 ? chr(0x90 | $size) : pack('Cn', 0xdc, $size);
        foreach ($items as $item) {
            $bytes .= is_string($item) ? self::text($item) : self::pack($item);
        }
        return $bytes;
    }

    /** @param array<string, mixed> $pairs */
    private static function map(array $pairs): string
    {
        $size = count($pairs);
        $bytes = $size < 0x10 ? chr(0x80 | $size) : pack('Cn', 0xde, $size);
        foreach ($pairs as $key => $value) {
            $bytes .= self::text((string) $key) . self::pack($value);
        }
        return $bytes;
    }
}
