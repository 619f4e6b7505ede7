<?php

declare(strict_types=1);

namespace RlSidecar\Tests;

use RlSidecar\Algorithm;
use RlSidecar\Client;
use RlSidecar\Exception\InvalidRequest;
use RlSidecar\Limit;
use RlSidecar\OnUnavailable;
use RlSidecar\Settings;

/**
 * What may be passed, and where settings come from.
 */
final class ArgumentsTest extends TestCase
{
    /** @dataProvider texts */
    public function testLimitsAsText(string $text, ?array $onTheWire): void
    {
        self::assertSame($onTheWire, Limit::parse($text)?->onTheWire());
    }

    public static function texts(): array
    {
        return [
            ['10/minute', [10, 60_000]], ['5 / 250ms', [5, 250]], ['1_000/2 hours', [1000, 7_200_000]],
            ['3/2days', [3, 172_800_000]], ['7/s', [7, 1000]], ['7/3sec', [7, 3000]], ['7/m', [7, 60_000]],
            ['1/1500milliseconds', [1, 1500]],
            ['login', null], ['shop/2nd', null], ['10/fortnight', null], ['10/minute ', null], ["10/minute\n", null],
            ['-1/minute', null], ['10/secs', null],
        ];
    }

    /** @dataProvider impossible */
    public function testImpossibleLimits(\Closure $make, string $message): void
    {
        $this->expectException(InvalidRequest::class);
        $this->expectExceptionMessage($message);
        $make();
    }

    public static function impossible(): array
    {
        return [
            [static fn () => Limit::perMinute(0), 'count 0: allowed are 1 to 1000000000'],
            [static fn () => Limit::perMinute(1_000_000_001), 'count 1000000001: allowed'],
            [static fn () => Limit::perMinute(1, burst: 0), 'burst 0: allowed'],
            [static fn () => Limit::perMinute(1, burst: 2, algorithm: Algorithm::FixedWindow), 'a fixed_window has none'],
            [static fn () => Limit::perDay(10_001, algorithm: Algorithm::SlidingLog), 'a sliding_log allows 1 to 10000'],
            [static fn () => new Limit(1, 0.0005), 'period 0.0005 s: allowed are whole milliseconds'],
            [static fn () => new Limit(1, 0.0015), 'period 0.0015 s'],
            [static fn () => new Limit(1, NAN), 'period NAN s'],
            [static fn () => new Limit(1, 367 * 86_400), 'allowed are whole milliseconds, 1 ms to 366 days'],
            [static fn () => Limit::concurrency(1, 0), 'maxHold 0 s'],
            [static fn () => Limit::parse('10/0s'), 'period 0 s'],
            [static fn () => Limit::parse('0/s'), 'count 0'],
            [static fn () => Limit::parse('99999999999999999999/s'), 'at most 16 digits'],
        ];
    }

    public function testLimitsOnTheWire(): void
    {
        self::assertSame([60, 60_000, 10], Limit::perMinute(60, burst: 10)->onTheWire());
        self::assertSame([5, 250], (new Limit(5, 0.25))->onTheWire());
        self::assertSame([2, 1000, 0, 'sliding_log'], Limit::perSecond(2, algorithm: Algorithm::SlidingLog)->onTheWire());
        self::assertSame([3, 600_000, 0, 'concurrency'], Limit::concurrency(3, maxHold: 600)->onTheWire());
    }

    /** @dataProvider wrongCalls */
    public function testWrongCallsThrowInEveryModeBeforeAnythingIsSent(\Closure $call, string $message): void
    {
        foreach (OnUnavailable::cases() as $mode) {
            try {
                $call(new Client("$this->folder/nobody", onUnavailable: $mode));
                self::fail("nothing thrown in mode $mode->value");
            } catch (InvalidRequest $e) {
                self::assertStringContainsString($message, $e->getMessage());
            }
        }
    }

    public static function wrongCalls(): array
    {
        return [
            [static fn (Client $c) => $c->acquire('', 'k'), "policy '': has 0 bytes, allowed are 1 to 128"],
            [static fn (Client $c) => $c->acquire(str_repeat('p', 129), 'k'), 'has 129 bytes'],
            [static fn (Client $c) => $c->acquire('api', ''), "key '': has 0 bytes, allowed are 1 to 1024"],
            [static fn (Client $c) => $c->peek('api', str_repeat('k', 1025)), 'has 1025 bytes'],
            [static fn (Client $c) => $c->acquire('api', 'k', 0), 'cost 0: allowed are whole numbers from 1 to 2^53-1'],
            [static fn (Client $c) => $c->acquire('api', 'k', -1), 'cost -1'],
            [static fn (Client $c) => $c->refund('api', 'k', 2 ** 53), 'cost 9007199254740992'],
            [static fn (Client $c) => $c->peek('api', 'k', -1), 'cost -1: allowed are whole numbers from 0'],
            [static fn (Client $c) => $c->acquire('api', 'k', wait: 61), 'wait 61: allowed are 0 to 60 seconds'],
            [static fn (Client $c) => $c->acquire('api', 'k', wait: -0.1), 'wait -0.1'],
            [static fn (Client $c) => $c->hold('api', 'k', wait: NAN), 'wait NAN'],
            [static fn (Client $c) => $c->acquire('api', 'k', timeout: 0), 'timeout 0: allowed are more than 0 to 3600'],
            [static fn (Client $c) => $c->acquire('api', 'k', timeout: 3601), 'timeout 3601'],
            [static fn (Client $c) => $c->acquireAll([]), '0 items: allowed are 1 to 32'],
            [static fn (Client $c) => $c->acquireAll(array_fill(0, 33, ['api', 'k'])), '33 items'],
            [static fn (Client $c) => $c->acquireAll(['api']), 'item string: write [limit, key]'],
            [static fn (Client $c) => $c->acquireAll([['api', 'k', 0]]), 'cost 0'],
            [static fn (Client $c) => $c->acquireAll([[5, 'k']]), 'limit int: write a policy name'],
            [static fn (Client $c) => $c->acquireAll([['api', 'k', '1']]), 'the cost a whole number'],
            [static fn (Client $c) => $c->release(0), 'permit 0'],
            [static fn (Client $c) => $c->throttle('k', -1, 1, 1), 'maxBurst -1'],
            [static fn (Client $c) => $c->throttle('k', 1, 0, 1), 'count 0'],
        ];
    }

    public function testKeysFromAnArrayMayBeNumbers(): void
    {
        $client = new Client("$this->folder/nobody", onUnavailable: 'allow');
        self::assertTrue($client->acquireAll([['api', 42]])->isAllowed());
    }

    public function testSettingsComeFromTheConstructorThenTheEnvironmentThenTheDefault(): void
    {
        self::assertSame('/run/rlsidecar/rlsidecar.sock', Settings::path(null));
        self::assertSame(0.05, Settings::timeout(null));
        self::assertSame(OnUnavailable::Allow, Settings::onUnavailable(null));
        self::assertNull(Settings::app(null));
        putenv('RLSIDECAR_ADDRESS=unix:///run/other.sock');
        putenv('RLSIDECAR_TIMEOUT_MS=7.5');
        putenv('RLSIDECAR_ON_UNAVAILABLE=deny');
        putenv('RLSIDECAR_APP=shop');
        self::assertSame('/run/other.sock', Settings::path(null));
        self::assertSame(0.0075, Settings::timeout(null));
        self::assertSame(OnUnavailable::Deny, Settings::onUnavailable(null));
        self::assertSame('shop', Settings::app(null));
        self::assertSame('relative.sock', Settings::path('relative.sock'));
        self::assertSame(2.0, Settings::timeout(2));
        self::assertSame(OnUnavailable::Raise, Settings::onUnavailable('raise'));
        self::assertSame('other', Settings::app('other'));
    }

    public function testAServerMayPassSettingsAsParameters(): void
    {
        $_SERVER['RLSIDECAR_ON_UNAVAILABLE'] = 'deny';
        self::assertSame(OnUnavailable::Deny, Settings::onUnavailable(null));
        unset($_SERVER['RLSIDECAR_ON_UNAVAILABLE']);
    }

    /** @dataProvider wrongSettings */
    public function testWrongSettings(array $arguments, array $environment, string $message): void
    {
        foreach ($environment as $name => $value) {
            putenv("RLSIDECAR_$name=$value");
        }
        $this->expectException(InvalidRequest::class);
        $this->expectExceptionMessage($message);
        new Client(...$arguments);
    }

    public static function wrongSettings(): array
    {
        $long = '/' . str_repeat('p', 107);
        return [
            [['address' => 'tcp://127.0.0.1:1'], [], "address 'tcp://127.0.0.1:1': write unix:///path/to/socket or a path"],
            [['address' => 'unix://relative'], [], 'write unix:///path'],
            [['address' => 'unix://'], [], "address 'unix://'"],
            [['address' => ''], [], 'must not be empty'],
            [['address' => "/a\0b"], [], 'NUL'],
            [['address' => $long], [], 'the path has 108 bytes, at most 107 are allowed'],
            [[], ['ADDRESS' => 'http://x'], 'write unix:///path'],
            [['timeout' => 0.0], [], 'timeout 0'],
            [[], ['TIMEOUT_MS' => 'soon'], "RLSIDECAR_TIMEOUT_MS 'soon'"],
            [[], ['TIMEOUT_MS' => '0'], "RLSIDECAR_TIMEOUT_MS '0'"],
            [['onUnavailable' => 'panic'], [], "on_unavailable 'panic': there are allow, deny, local, raise"],
            [[], ['ON_UNAVAILABLE' => 'no'], "on_unavailable 'no'"],
            [[], ['DISABLE' => 'maybe'], "RLSIDECAR_DISABLE 'maybe': write 1 or 0"],
            [['app' => ''], [], "app ''"],
            [['app' => str_repeat('a', 129)], [], '1 to 128 bytes'],
            [['app' => "a\nb"], [], 'app'],
            [['localLimits' => ['api' => 'sometimes']], [], "localLimits 'sometimes': write a Limit"],
        ];
    }

    /** Building a client must not cost an application without an agent anything. */
    public function testC29ConstructionTouchesNoSocket(): void
    {
        $socket = stream_socket_server("unix://$this->folder/agent");
        new Client("$this->folder/agent");
        self::assertFalse(@stream_socket_accept($socket, 0));
    }
}
