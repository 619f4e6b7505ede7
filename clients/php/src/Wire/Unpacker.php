<?php

declare(strict_types=1);

namespace RlSidecar\Wire;

use RlSidecar\Exception\ProtocolError;

use function is_int;
use function is_string;
use function ord;
use function strlen;

/**
 * Reads MessagePack within the bounds of the protocol.
 *
 * An announced length is compared with its bound where it stands, before anything is
 * allocated for it or waited for. str and bin are both a string; an ext, which the
 * protocol has no use for, is null; an unsigned number above 2^63-1 is a float.
 *
 * @internal
 */
final class Unpacker
{
    public const MAX_MESSAGE = 65_536;
    private const MAX_ITEMS = 1024;
    private const MAX_DEPTH = 8;

    public function __construct(private readonly string $bytes, private int $at = 0)
    {
    }

    /**
     * The next value, which is so deep within others.
     *
     * @throws Incomplete
     * @throws ProtocolError
     */
    public function next(int $depth = 0): mixed
    {
        return $this->value($depth + 1);
    }

    /** Where the next value begins. */
    public function position(): int
    {
        return $this->at;
    }

    private function value(int $depth): mixed
    {
        $head = ord($this->bytes[$this->at++] ?? throw new Incomplete());
        return match (true) {
            $head < 0x80 => $head,
            $head >= 0xc0 => $head < 0xe0 ? $this->marked($head, $depth) : $head - 0x100,
            $head < 0x90 => $this->map($head & 0x0f, $depth),
            $head < 0xa0 => $this->list($head & 0x0f, $depth),
            default => $this->text($head & 0x1f),
        };
    }

    private function marked(int $head, int $depth): mixed
    {
        return match ($head) {
            0xc0 => null,
            0xc2 => false,
            0xc3 => true,
            0xc4, 0xd9 => $this->text($this->number('C', 1)),
            0xc5, 0xda => $this->text($this->number('n', 2)),
            0xc6, 0xdb => $this->text($this->number('N', 4)),
            0xc7 => $this->ext($this->number('C', 1)),
            0xc8 => $this->ext($this->number('n', 2)),
            0xc9 => $this->ext($this->number('N', 4)),
            0xca => $this->number('G', 4),
            0xcb => $this->number('E', 8),
            0xcc => $this->number('C', 1),
            0xcd => $this->number('n', 2),
            0xce => $this->number('N', 4),
            0xcf => self::unsigned($this->number('J', 8)),
            0xd0 => ($this->number('C', 1) ^ 0x80) - 0x80,
            0xd1 => ($this->number('n', 2) ^ 0x8000) - 0x8000,
            0xd2 => ($this->number('N', 4) ^ 0x80000000) - 0x80000000,
            0xd3 => $this->number('J', 8),
            0xd4, 0xd5, 0xd6, 0xd7, 0xd8 => $this->ext(1 << ($head - 0xd4)),
            0xdc => $this->list($this->number('n', 2), $depth),
            0xdd => $this->list($this->number('N', 4), $depth),
            0xde => $this->map($this->number('n', 2), $depth),
            0xdf => $this->map($this->number('N', 4), $depth),
            default => throw new ProtocolError('the agent sent 0xc1, which is not MessagePack'),
        };
    }

    private static function unsigned(int $signed): int|float
    {
        return $signed < 0 ? $signed + 2 ** 64 : $signed;
    }

    private function number(string $format, int $size): int|float
    {
        if (strlen($this->bytes) - $this->at < $size) {
            throw new Incomplete();
        }
        $this->at += $size;
        return unpack($format, $this->bytes, $this->at - $size)[1];
    }

    private function text(int $size): string
    {
        if ($size > self::MAX_MESSAGE) {
            throw new ProtocolError("the agent announced $size bytes, allowed are " . self::MAX_MESSAGE);
        }
        $at = $this->at;
        if (strlen($this->bytes) - $at < $size) {
            throw new Incomplete();
        }
        $this->at += $size;
        return substr($this->bytes, $at, $size);
    }

    private function ext(int $size): mixed
    {
        $this->text($size);
        $this->text(1);
        return null;
    }

    /** @return list<mixed> */
    private function list(int $size, int $depth): array
    {
        self::check($size, $depth);
        $bytes = $this->bytes;
        $items = [];
        while ($size-- > 0) {
            $at = $this->at;
            $head = ord($bytes[$at] ?? throw new Incomplete());
            if ($head < 0x80) { // most of what is said, and the numbers next to it: worth the calls saved
                $items[] = $head;
                $this->at = $at + 1;
            } elseif ($head === 0xce && isset($bytes[$at + 4])) {
                $items[] = unpack('N', $bytes, $at + 1)[1];
                $this->at = $at + 5;
            } else {
                $items[] = $this->value($depth + 1);
            }
        }
        return $items;
    }

    /** @return array<mixed> */
    private function map(int $size, int $depth): array
    {
        self::check($size, $depth);
        $pairs = [];
        while ($size-- > 0) {
            $key = $this->value($depth + 1);
            $value = $this->value($depth + 1);
            if (is_string($key) || is_int($key)) {
                $pairs[$key] = $value;
            }
        }
        return $pairs;
    }

    private static function check(int $size, int $depth): void
    {
        if ($size > self::MAX_ITEMS) {
            throw new ProtocolError("the agent announced $size items, allowed are " . self::MAX_ITEMS);
        }
        if ($depth > self::MAX_DEPTH) {
            throw new ProtocolError('the agent sent lists in one another, deeper than ' . self::MAX_DEPTH);
        }
    }
}
