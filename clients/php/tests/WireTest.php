<?php

declare(strict_types=1);

namespace RlSidecar\Tests;

use PHPUnit\Framework\TestCase;
use RlSidecar\AllResult;
use RlSidecar\Exception;
use RlSidecar\Exception\ProtocolError;
use RlSidecar\Exception\Unavailable;
use RlSidecar\Result;
use RlSidecar\Source;
use RlSidecar\Transport\Connection;
use RlSidecar\Wire\Incomplete;
use RlSidecar\Wire\Packer;
use RlSidecar\Wire\Replies;
use RlSidecar\Wire\Unpacker;

/**
 * The bytes: the golden messages of all clients, and what is made of each reply.
 */
final class WireTest extends TestCase
{
    /** @return array<string, array{array<string, mixed>}> */
    private static function vectors(string $kind, callable $wanted): array
    {
        $file = (string) file_get_contents(__DIR__ . '/../../../protocol/testdata/golden.json');
        $found = [];
        foreach (json_decode($file, true, 32, JSON_THROW_ON_ERROR)[$kind] as $vector) {
            if ($wanted($vector)) {
                $found[$vector['id']] = [$vector];
            }
        }
        return $found;
    }

    public static function requests(): array
    {
        return self::vectors('good', static fn (array $v): bool => $v['kind'] === 'request' && $v['canonical']);
    }

    public static function replies(): array
    {
        return self::vectors('good', static fn (array $v): bool => $v['kind'] === 'response');
    }

    public static function notifications(): array
    {
        return self::vectors('good', static fn (array $v): bool => $v['kind'] === 'notification');
    }

    public static function bad(): array
    {
        return self::vectors('bad', static fn (array $v): bool => $v['reader'] === 'client');
    }

    /** What a connection makes of these bytes as the answer to its call number $msgid. */
    private static function exchange(string $bytes, int $msgid): array
    {
        [$ours, $theirs] = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0);
        fwrite($theirs, $bytes);
        $connection = new Connection($ours);
        (new \ReflectionProperty($connection, 'msgid'))->setValue($connection, $msgid);
        return $connection->call('ping', [], hrtime(true) + 200_000_000);
    }

    public function testTheVectorsAreThere(): void
    {
        self::assertGreaterThan(20, count(self::requests()));
        self::assertGreaterThan(10, count(self::replies()));
        self::assertGreaterThan(5, count(self::bad()));
        self::assertNotEmpty(self::notifications());
    }

    /** @dataProvider requests */
    public function testGoldenRequestsAreWrittenExactly(array $vector): void
    {
        $message = [0, $vector['msgid'], $vector['method'], $vector['params']];
        self::assertSame($vector['hex'], bin2hex(Packer::pack($message)));
    }

    /** @dataProvider replies */
    public function testGoldenRepliesAreUnderstood(array $vector): void
    {
        [$error, $result] = self::exchange((string) hex2bin($vector['hex']), $vector['msgid']);
        if (isset($vector['error'])) {
            self::assertSame($vector['error'], array_slice($error, 0, 2));
            self::assertInstanceOf(Exception\RlSidecarException::class, Replies::failure($error));
            return;
        }
        self::assertNull($error);
        $understood = match ($vector['as']) {
            'decision' => self::sent(Replies::decision($result)),
            'all' => self::allSent(Replies::all(2)($result)),
            'throttle' => Replies::throttle($result)->toArray(),
            'bool' => Replies::truth($result),
            'pong' => Replies::pong($result) ? 'pong' : '',
            'info' => Replies::info($result),
        };
        self::assertSame($vector['result'], $understood);
    }

    /** A decision as the agent wrote it. */
    private static function sent(Result $result): array
    {
        $retry = $result->getRetryAfter() === null ? -1 : (int) round($result->getRetryAfter() * 1000);
        $permit = $result->getPermit() === null ? [] : [$result->getPermit()];
        $reset = (int) round($result->getResetAfter() * 1000);
        $numbers = [$result->getLimit(), $result->getRemaining(), $reset, $retry];
        return [$result->isAllowed(), ...$numbers, $result->getSource()->value, (int) $result->isShadow(), ...$permit];
    }

    private static function allSent(AllResult $all): array
    {
        return [$all->isAllowed(), array_map(self::sent(...), $all->getResults())];
    }

    /** @dataProvider notifications */
    public function testGoldenNotificationsAreSkipped(array $vector): void
    {
        $notification = (string) hex2bin($vector['hex']);
        $reply = "\x94\x01\x07\xc0\xc3";
        self::assertSame([null, true], self::exchange($notification . $reply . $notification, 7));
    }

    /** @dataProvider bad */
    public function testBadGoldenRepliesAreRefused(array $vector): void
    {
        $this->expectException(ProtocolError::class);
        [$error, $result] = self::exchange((string) hex2bin($vector['hex']), 7);
        $error === null ? Replies::decision($result) : Replies::failure($error);
    }

    public function testUnsignedNumbersAbove63BitsKeepTheirSize(): void
    {
        self::assertSame(PHP_INT_MAX, (new Unpacker("\xcf\x7f" . str_repeat("\xff", 7)))->next());
        self::assertSame(2 ** 64, (new Unpacker("\xcf" . str_repeat("\xff", 8)))->next());
        self::assertSame(PHP_INT_MIN, (new Unpacker("\xd3\x80" . str_repeat("\0", 7)))->next());
    }

    /** @dataProvider values */
    public function testWhatIsPackedIsUnpacked(mixed $value): void
    {
        $bytes = Packer::pack($value);
        $unpacker = new Unpacker($bytes);
        self::assertSame($value, $unpacker->next());
        self::assertSame(strlen($bytes), $unpacker->position());
        for ($part = 0; $part < min(40, strlen($bytes)); $part++) {
            try {
                (new Unpacker(substr($bytes, 0, $part)))->next();
                self::fail("$part bytes were taken for a value");
            } catch (Incomplete) {
            }
        }
    }

    public static function values(): array
    {
        $values = [];
        foreach ([0, 7, 8, 15, 16, 31, 32, 53, 62] as $bits) {
            array_push($values, [1 << $bits], [(1 << $bits) - 1], [-(1 << $bits)], [-(1 << $bits) - 1]);
        }
        foreach ([0, 1, 31, 32, 255, 256, 65535, 65536] as $size) {
            $values[] = [str_repeat('x', $size)];
        }
        return [...$values, [PHP_INT_MAX], [PHP_INT_MIN], [null], [true], [false], [range(1, 15)], [range(1, 16)],
            [['a' => 1, 'b' => ['c' => "\xff"]]], [array_fill(0, 1024, 'y')],
            [array_combine(array_map(static fn (int $i): string => "k$i", range(1, 20)), range(1, 20))]];
    }

    public function testWhatTheProtocolHasNoUseForIsRead(): void
    {
        self::assertSame([1.5, -2.25], (new Unpacker("\x92\xca\x3f\xc0\0\0\xcb\xc0\x02\0\0\0\0\0\0"))->next());
        self::assertSame([null, null, 5], (new Unpacker("\x93\xd4\x01\xaa\xc7\x02\x01\xaa\xbb\x05"))->next());
        self::assertSame(['a' => 2], (new Unpacker("\x82\xc0\x01\xa1a\x02"))->next());
    }

    /** @dataProvider bombs */
    public function testWhatIsTooLargeIsRefusedAtItsHeader(string $bytes): void
    {
        $this->expectException(ProtocolError::class);
        (new Unpacker($bytes))->next();
    }

    public static function bombs(): array
    {
        return [
            'array32' => ["\xdd\x80\0\0\0"], 'array16' => ["\xdc\x04\x01"], 'map32' => ["\xdf\xff\xff\xff\xff"],
            'map16' => ["\xde\x04\x01"], 'str32' => ["\xdb\x40\0\0\0"], 'bin32' => ["\xc6\0\x01\0\x01"],
            'ext32' => ["\xc9\xff\xff\xff\xff"], 'depth' => [str_repeat("\x91", 9)],
            'depth in a map' => [str_repeat("\x81\x01", 9)], 'never used' => ["\xc1"],
        ];
    }

    public function testAMessageThatNeverEndsIsRefusedAtTheBound(): void
    {
        $this->expectException(ProtocolError::class);
        $this->expectExceptionMessage('over 65536 bytes');
        self::exchange("\x94\x01\x07\xc0\xdc\x04\x00" . str_repeat("\xd9\xff" . str_repeat('x', 255), 260), 7);
    }

    /** @dataProvider decisions */
    public function testDecisions(array $sent, array $expected): void
    {
        $result = Replies::decision($sent);
        self::assertSame($expected, [
            $result->isAllowed(), $result->getRetryAfter(), $result->getSource(), $result->isDegraded(),
            $result->isShadow(), $result->getPermit(),
        ]);
        self::assertSame($result->isAllowed(), $result->isAccepted());
    }

    public static function decisions(): array
    {
        return [
            [[false, 5, 0, 1, -1, 1, 0], [false, null, Source::Redis, false, false, null]],
            [[false, 5, 0, 1, 250, 2, 0], [false, 0.25, Source::Denial, false, false, null]],
            [[true, 5, 0, 1, 0, 4, 0], [true, 0.0, Source::Fallback, true, false, null]],
            [[true, 5, 0, 1, 0, 3, 1], [true, 0.0, Source::Standalone, false, true, null]],
            [[true, 5, 0, 1, 0, 5, 0xfe], [true, 0.0, Source::List, false, false, null]],
            [[true, 5, 0, 1, 0, 77, 0], [true, 0.0, Source::Unknown, false, false, null]],
            [[true, 5, 0, 1, 0, 0, 0, 2 ** 53 - 1], [true, 0.0, Source::Lease, false, false, 2 ** 53 - 1]],
            [[true, 5, 0, 1, 0, 0, 0, 0], [true, 0.0, Source::Lease, false, false, null]],
            [[true, 5, 0, 1, 0, 0, 0, 2 ** 64, ['later']], [true, 0.0, Source::Lease, false, false, null]],
        ];
    }

    /** @dataProvider shapes */
    public function testWrongShapes(mixed $sent): void
    {
        $this->expectException(ProtocolError::class);
        Replies::decision($sent);
    }

    public static function shapes(): array
    {
        return [
            [null], ['yes'], [[]], [[true, 5, 0, 1, 0, 0]], [['a' => true]], [[1, 5, 0, 1, 0, 0, 0]],
            [[true, -1, 0, 1, 0, 0, 0]], [[true, 5, 0, -1, 0, 0, 0]], [[true, 5, 0, 1, -2, 0, 0]],
            [[true, 5, 0, 1, 0, -1, 0]], [[true, 5, 0, 2 ** 53, 0, 0, 0]], [[true, 5.0, 0, 1, 0, 0, 0]],
            [[true, 5, null, 1, 0, 0, 0]],
        ];
    }

    /** @dataProvider errors */
    public function testErrorCodes(int $code, string $class): void
    {
        $failure = Replies::failure([$code, 'because']);
        self::assertSame($class, $failure::class);
        self::assertSame('because', $failure->getMessage());
    }

    public static function errors(): array
    {
        return [
            [3, Exception\UnknownPolicy::class], [4, Exception\InvalidRequest::class], [5, Unavailable::class],
            [6, Unavailable::class], [7, Unavailable::class], [8, Exception\NotPermitted::class],
            [9, Unavailable::class], [99, Unavailable::class],
        ];
    }
}
