<?php

declare(strict_types=1);

namespace RlSidecar\Tests;

use RlSidecar\Client;
use RlSidecar\Exception\AgentNotRunning;
use RlSidecar\Exception\AgentTimeout;
use RlSidecar\Exception\ProtocolError;
use RlSidecar\Exception\RateLimited;
use RlSidecar\Exception\Unavailable;
use RlSidecar\Exception\UnknownPolicy;
use RlSidecar\Limit;
use RlSidecar\OnUnavailable;
use RlSidecar\Source;
use RlSidecar\Transport\Connection;
use RlSidecar\Transport\Dialer;

/**
 * Calls of a scripted agent, and of none.
 */
final class ClientTest extends TestCase
{
    public function testEachMethodSaysWhatItMeans(): void
    {
        $client = new Client($this->fakeAgent(), 5, 'raise', app: 'shop');
        $client->acquire('api', 'k', 2, wait: 0.0011);
        $client->acquire(Limit::perMinute(60, burst: 10), 'k');
        $client->acquire('60/minute', 'k');
        $client->acquireAll([['api', 'a'], ['60/minute', 'b', 3]], wait: 1);
        $client->peek('api', 'k', 0);
        $client->refund('api', 'k', 3);
        $client->reset('api', 'k');
        $client->release(9);
        $client->throttle('k', 15, 30, 60);
        $app = ['app' => 'shop'];
        self::assertSame([
            ['acquire', ['api', 'k', 2, $app + ['wait_ms' => 2]]],
            ['acquire', [[60, 60_000, 10], 'k', 1, $app]],
            ['acquire', [[60, 60_000], 'k', 1, $app]],
            ['acquire_all', [[['api', 'a', 1], [[60, 60_000], 'b', 3]], $app + ['wait_ms' => 1000]]],
            ['peek', ['api', 'k', 0, $app]],
            ['refund', ['api', 'k', 3, $app]],
            ['reset', ['api', 'k', 1, $app]],
            ['release', [9]],
            ['throttle', ['k', 15, 30, 60, 1]],
        ], array_map(static fn (array $asked): array => array_slice($asked, 1), $client->info()['asked']));
    }

    public function testOptionsThatAreNotNeededAreNotSent(): void
    {
        $client = self::client($this->fakeAgent());
        $client->acquire('api', 'k');
        $client->reset('api', 'k');
        self::assertSame([[1, 'acquire', ['api', 'k', 1]], [1, 'reset', ['api', 'k']]], self::asked($client));
    }

    private static function asked(Client $client): array
    {
        $asked = $client->info()['asked'];
        $first = min(array_column($asked, 0));
        return array_map(static fn (array $call): array => [$call[0] - $first + 1, $call[1], $call[2]], $asked);
    }

    public function testADenialIsAResult(): void
    {
        $result = self::client($this->fakeAgent())->acquire('api', 'deny:250');
        self::assertFalse($result->isAccepted());
        self::assertSame(0.25, $result->getRetryAfter());
        $this->expectException(RateLimited::class);
        $this->expectExceptionMessage('rate limited: retry after 0.25 s');
        $result->ensureAccepted();
    }

    public function testClientsOfOneSocketShareItsConnection(): void
    {
        $socket = $this->fakeAgent();
        [$one, $other] = [self::client($socket), self::client($socket)];
        self::assertOwn('a', $one->acquire('api', 'a'));
        self::assertOwn('b', $other->acquire('api', 'b'));
        $one->close();
        self::assertOwn('c', $other->acquire('api', 'c'));
        self::assertSame([1, 1, 2], array_column(self::asked($other), 0));
    }

    public function testALateReplyIsNobodyElses(): void
    {
        $client = self::client($this->fakeAgent());
        foreach (['late:40:a', 'late:40:b', 'late:40:c'] as $key) {
            try {
                $client->acquire('api', $key, timeout: 0.01);
                self::fail('no time-out');
            } catch (AgentTimeout) {
            }
            self::assertOwn("after $key", $client->acquire('api', "after $key"));
        }
    }

    public function testC19TwoRepliesInOneSegment(): void
    {
        $client = self::client($this->fakeAgent());
        self::assertOwn('a', $client->acquire('api', 'a'));
        try {
            $client->acquire('api', 'twice:b');
            self::fail('not noticed');
        } catch (ProtocolError) {
        }
        self::assertOwn('c', $client->acquire('api', 'c'));
    }

    public function testAConnectionThatClosesBeforeTheReplyIsRetriedOnceIfReused(): void
    {
        $client = self::client($this->fakeAgent());
        $client->ping();
        try {
            $client->acquire('api', 'close:');
            self::fail('nothing thrown');
        } catch (Unavailable) {
        }
        $asked = array_filter(self::asked($client), static fn (array $call): bool => $call[1] === 'acquire');
        self::assertCount(2, $asked);
    }

    public function testTheAgentRestartsBetweenCalls(): void
    {
        $agent = $this->started(Process::fakeAgent("$this->folder/agent"));
        $client = self::client($agent->socket);
        $client->ping();
        $agent->stop();
        unlink($agent->socket);
        $this->fakeAgent();
        self::assertOwn('k', $client->acquire('api', 'k'));
    }

    /** What PHP-FPM does between two requests, seen from the stream. */
    public function testAPersistentStreamSaysInWhatStateItWasLeft(): void
    {
        $dialer = new Dialer($this->fakeAgent());
        $open = static fn (): Connection => $dialer->open(hrtime(true) + 5_000_000_000, true);
        $first = $open();
        self::assertFalse($first->isUsed());
        $first->call('ping', [], hrtime(true) + 5_000_000_000);
        $first->settle();
        self::assertTrue($open()->isUsed());
        $open()->call('ping', [], hrtime(true) + 5_000_000_000);
        $new = $open();
        self::assertFalse($new->isUsed(), 'the last call was not settled');
        $new->settle();
        self::assertTrue($open()->isUsed());
        $lost = (new \ReflectionProperty(Connection::class, 'stream'))->getValue($new);
        fwrite($lost, \RlSidecar\Wire\Packer::pack([0, 5, 'ping', []]));
        usleep(50_000);
        self::assertFalse($open()->isUsed(), 'there was something to be read');
    }

    /** @dataProvider unavailable */
    public function testC20OneChokePoint(string $failure): void
    {
        $socket = "$this->folder/agent";
        match ($failure) {
            'missing' => null,
            'file' => touch($socket),
            'stale' => $this->started(Process::fakeAgent($socket))->stop(SIGKILL),
            'hung' => $hung = stream_socket_server("unix://$socket"),
            'full' => [$hung = self::withBacklog($socket), $waiting = self::fill($socket)],
        };
        foreach (OnUnavailable::cases() as $mode) {
            foreach (self::calls() as $name => [$call, $allowed, $denied]) {
                $client = new Client($socket, 0.02, $mode, logger: new Collector(), persistent: false);
                if ($mode === OnUnavailable::Raise) {
                    self::assertThrown(fn () => $call($client), $failure, $name);
                } else {
                    self::assertSame($mode === OnUnavailable::Deny ? $denied : $allowed, $call($client), "$name, $mode->value");
                }
            }
        }
    }

    public static function unavailable(): array
    {
        return ['missing' => ['missing'], 'file' => ['file'], 'stale' => ['stale'], 'hung' => ['hung'], 'full' => ['full']];
    }

    /** @return resource a listener that has room for one */
    private static function withBacklog(string $socket)
    {
        $context = stream_context_create(['socket' => ['backlog' => 0]]);
        return stream_socket_server("unix://$socket", $e, $t, STREAM_SERVER_BIND | STREAM_SERVER_LISTEN, $context);
    }

    /** @return list<resource> connections until no more go in */
    private static function fill(string $socket): array
    {
        $waiting = [];
        while (($stream = @stream_socket_client("unix://$socket", $error, $text, 0.01)) !== false) {
            $waiting[] = $stream;
        }
        self::assertSame(11, $error, $text);
        return $waiting;
    }

    /** @return array<string, array{\Closure(Client): mixed, mixed, mixed}> call; what it gives when allowed, and when denied */
    private static function calls(): array
    {
        $told = static fn ($result): array => [$result->isAllowed(), $result->isDegraded()];
        return [
            'acquire' => [static fn (Client $c) => $told($c->acquire('api', 'k')), [true, true], [false, true]],
            'above capacity' => [static fn (Client $c) => $told($c->acquire('5/hour', 'k', 6)), [false, true], [false, true]],
            'acquireAll' => [static fn (Client $c) => $told($c->acquireAll([['api', 'k'], ['api', 'l']])), [true, true], [false, true]],
            'peek' => [static fn (Client $c) => $told($c->peek('api', 'k')), [true, true], [false, true]],
            'hold' => [static fn (Client $c) => self::held($c), [true, null, false], 'rate limited'],
            'throttle' => [
                static fn (Client $c) => $c->throttle('k', 15, 30, 60)->toArray(), [0, 16, 0, -1, 0], [1, 16, 0, 1, 0],
            ],
            'refund' => [static fn (Client $c) => $c->refund('api', 'k'), false, false],
            'reset' => [static fn (Client $c) => $c->reset('api', 'k'), false, false],
            'release' => [static fn (Client $c) => $c->release(7), false, false],
        ];
    }

    private static function held(Client $client): mixed
    {
        try {
            $permit = $client->hold('exports', 'k');
        } catch (RateLimited) {
            return 'rate limited';
        }
        return [$permit->getResult()->isDegraded(), $permit->getResult()->getPermit(), $permit->release()];
    }

    private static function assertThrown(\Closure $call, string $failure, string $name): void
    {
        try {
            $call();
            self::fail("$name: nothing thrown");
        } catch (Unavailable $e) {
            $timeout = $failure === 'hung' || $failure === 'full';
            self::assertInstanceOf($timeout ? AgentTimeout::class : AgentNotRunning::class, $e, $name);
        }
    }

    public function testInfoAndPingThrowInEveryMode(): void
    {
        foreach (OnUnavailable::cases() as $mode) {
            foreach (['info', 'ping'] as $method) {
                try {
                    (new Client("$this->folder/nobody", onUnavailable: $mode))->$method();
                    self::fail("$method in mode $mode->value");
                } catch (AgentNotRunning $e) {
                    self::assertStringContainsString('nobody', $e->getMessage());
                }
            }
        }
    }

    public function testTheReasonIsTold(): void
    {
        $reason = static function (string $socket): string {
            try {
                self::client($socket)->ping();
            } catch (AgentNotRunning $e) {
                return $e->getMessage();
            }
            return '';
        };
        touch("$this->folder/file");
        $this->started(Process::fakeAgent("$this->folder/stale"))->stop(SIGKILL);
        self::assertSame("cannot connect to $this->folder/none: No such file or directory", $reason("$this->folder/none"));
        self::assertSame("$this->folder/file is not a socket: set RLSIDECAR_ADDRESS to the agent's socket", $reason("$this->folder/file"));
        self::assertSame("nobody listens on $this->folder/stale", $reason("$this->folder/stale"));
    }

    public function testErrorsThatAreTheCallersThrowInEveryMode(): void
    {
        $client = self::client($this->fakeAgent(), OnUnavailable::Allow);
        self::assertTrue($client->acquire('api', 'error:6')->isDegraded());
        $this->expectException(UnknownPolicy::class);
        $client->acquire('api', 'error:3');
    }

    public function testTheConnectionStaysAfterAnErrorAboutOneCall(): void
    {
        $client = self::client($this->fakeAgent(), OnUnavailable::Allow);
        foreach (['error:6', 'k', 'error:5', 'l'] as $key) {
            $client->acquire('api', $key);
        }
        self::assertSame([1, 1, 1, 1], array_column(self::asked($client), 0));
    }

    public function testDisabledAsksNobody(): void
    {
        $socket = $this->fakeAgent();
        putenv('RLSIDECAR_DISABLE=1');
        $client = new Client($socket, onUnavailable: 'deny');
        self::assertTrue($client->acquire('api', 'k')->isAllowed());
        self::assertSame(Source::Client, $client->acquire('api', 'k')->getSource());
        self::assertFalse($client->refund('api', 'k'));
        putenv('RLSIDECAR_DISABLE');
        self::assertSame([], self::client($socket)->info()['asked']);
    }

    public function testNoAgentIsBackedOffFrom(): void
    {
        $client = new Client("$this->folder/agent", 1, 'raise');
        $texts = [];
        for ($i = 0; $i < 200; $i++) {
            try {
                $client->ping();
            } catch (AgentNotRunning $e) {
                $texts[] = preg_replace('~ to .*| on .*~', '', $e->getMessage());
            }
        }
        $counts = array_count_values($texts);
        self::assertGreaterThan(100, $counts['nobody was reached'] ?? 0, json_encode($counts, JSON_THROW_ON_ERROR));
        $this->fakeAgent();
        $end = hrtime(true) + 3_000_000_000;
        do {
            usleep(10_000);
            $back = self::client("$this->folder/agent", OnUnavailable::Allow)->acquire('api', 'k');
        } while ($back->isDegraded() && hrtime(true) < $end);
        self::assertOwn('k', $back);
    }

    public function testOneLogLinePerInterval(): void
    {
        $log = new Collector();
        $client = new Client("$this->folder/nobody", logger: $log);
        for ($i = 0; $i < 50; $i++) {
            $client->acquire('api', 'k');
        }
        self::assertCount(1, $log->lines);
        self::assertStringContainsString('on_unavailable=allow applies', $log->lines[0]);
    }

    public function testLocalKeepsInlineLimitsAndThoseItWasGiven(): void
    {
        $client = new Client("$this->folder/nobody", onUnavailable: 'local', localLimits: ['login' => '2/hour']);
        $allowed = static fn (string|Limit $limit, string $key): array => array_map(
            static fn (): bool => $client->acquire($limit, $key)->isAllowed(),
            range(1, 4)
        );
        self::assertSame([true, true, true, false], $allowed('3/hour', 'a'));
        self::assertSame([true, true, true, false], $allowed('3/hour', 'b'));
        self::assertSame([true, true, false, false], $allowed('login', 'a'));
        self::assertSame([true, true, true, true], $allowed('api', 'a'));
        self::assertSame([true, true, true, true], $allowed(Limit::concurrency(1, 60), 'a'));
        $denied = $client->acquire('3/hour', 'a');
        self::assertEqualsWithDelta(1200, $denied->getRetryAfter(), 30);
        self::assertSame([3, 0, true], [$denied->getLimit(), $denied->getRemaining(), $denied->isDegraded()]);
        self::assertFalse($client->acquireAll([['3/hour', 'new'], ['3/hour', 'a']])->isAllowed());
        self::assertSame(3, $client->peek('3/hour', 'new')->getRemaining());
        self::assertNull($client->acquire('3/hour', 'c', 4)->getRetryAfter());
    }

    public function testALocalLimitOfMoreNanosecondsThanAnIntHas(): void
    {
        $client = new Client("$this->folder/nobody", onUnavailable: 'local');
        $limit = new Limit(1, 366 * 86_400, 1_000_000_000);
        $first = $client->acquire($limit, 'k', 1_000_000_000);
        self::assertSame([true, 0], [$first->isAllowed(), $first->getRemaining()]);
        self::assertTrue($client->acquire($limit, 'other')->isDegraded());
    }

    public function testALocalLimitComesBack(): void
    {
        $client = new Client("$this->folder/nobody", onUnavailable: 'local');
        $limit = new Limit(1, 0.05);
        self::assertTrue($client->acquire($limit, 'k')->isAllowed());
        usleep(60_000);
        self::assertTrue($client->acquire($limit, 'k')->isAllowed());
    }

    public function testC27FailuresLeaveNoDescriptor(): void
    {
        $count = static fn (): int => count((array) scandir('/proc/self/fd'));
        $client = new Client($this->fakeAgent(), 0.02, 'allow');
        $client->acquire('api', 'k');
        $before = $count();
        for ($i = 0; $i < 300; $i++) {
            $client->acquire('api', ['close:', 'twice:', 'error:9'][$i % 3]);
        }
        $client->acquire('api', 'late:60');
        self::assertLessThanOrEqual($before, $count());
    }

    public function testC14FirstMsgidsDiffer(): void
    {
        $seen = [];
        for ($i = 0; $i < 1000; $i++) {
            [$ours] = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0);
            $connection = new Connection($ours);
            $seen[(new \ReflectionProperty(Connection::class, 'msgid'))->getValue($connection)] = true;
        }
        self::assertGreaterThan(990, count($seen));
        self::assertLessThanOrEqual(2 ** 31 - 1, max(array_keys($seen)));
    }

    /** An application may turn warnings into exceptions without a look at "@". */
    public function testAnErrorHandlerThatThrowsSeesNothing(): void
    {
        $agent = $this->started(Process::fakeAgent("$this->folder/agent"));
        set_error_handler(static fn (int $n, string $text) => throw new \ErrorException($text));
        try {
            $client = new Client($agent->socket, 1, 'allow', logger: new Collector());
            self::assertOwn('k', $client->acquire('api', 'k'));
            $agent->stop();
            self::assertTrue($client->acquire('api', 'k')->isDegraded());
            self::assertTrue((new Client("$this->folder/none", logger: new Collector()))->acquire('api', 'k')->isDegraded());
        } finally {
            restore_error_handler();
        }
    }

    public function testAStreamThatWasClosedUnderTheClient(): void
    {
        $client = self::client($this->fakeAgent());
        $client->ping();
        fclose(stream_socket_client("unix://$this->folder/agent", flags: STREAM_CLIENT_CONNECT | STREAM_CLIENT_PERSISTENT));
        self::assertOwn('k', $client->acquire('api', 'k'));
    }
}
