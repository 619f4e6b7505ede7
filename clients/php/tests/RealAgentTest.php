<?php

declare(strict_types=1);

namespace RlSidecar\Tests;

use RlSidecar\Algorithm;
use RlSidecar\Client;
use RlSidecar\Exception\InvalidRequest;
use RlSidecar\Exception\RateLimited;
use RlSidecar\Exception\UnknownPolicy;
use RlSidecar\Limit;
use RlSidecar\Source;

/**
 * Calls of a real agent.
 */
final class RealAgentTest extends TestCase
{
    private Client $client;
    private Process $agent;

    protected function setUp(): void
    {
        parent::setUp();
        $this->agent = $this->started(Process::agent($this->folder, <<<'YAML'
            admin: {listen: "127.0.0.1:0"}
            policies:
              api: {limit: 3/hour}
              exports: {limit: 2, algorithm: concurrency, max_hold: 10m}
              watched: {limit: 1/hour, mode: shadow}
            YAML));
        $this->client = self::client($this->agent->socket);
    }

    public function testAPolicyFromItsFirstCallToItsReset(): void
    {
        $first = $this->client->acquire('api', 'u');
        self::assertSame([true, 3, 2, Source::Standalone], [
            $first->isAllowed(), $first->getLimit(), $first->getRemaining(), $first->getSource(),
        ]);
        self::assertTrue($this->client->acquire('api', 'u', 2)->isAllowed());
        $denied = $this->client->acquire('api', 'u');
        self::assertFalse($denied->isAllowed());
        self::assertEqualsWithDelta(1200, $denied->getRetryAfter(), 20);
        self::assertNull($this->client->acquire('api', 'u', 4)->getRetryAfter());
        self::assertTrue($this->client->refund('api', 'u'));
        self::assertSame(1, $this->client->peek('api', 'u', 0)->getRemaining());
        self::assertTrue($this->client->reset('api', 'u'));
        self::assertSame(3, $this->client->peek('api', 'u')->getRemaining());
    }

    public function testAllOrNothing(): void
    {
        $this->client->acquire('api', 'b', 3);
        $all = $this->client->acquireAll([['api', 'a'], ['5/minute', 'a', 2], ['api', 'b']]);
        self::assertFalse($all->isAccepted());
        self::assertSame([true, true, false], array_map(static fn ($r): bool => $r->isAllowed(), $all->getResults()));
        self::assertSame(3, $this->client->peek('api', 'a')->getRemaining());
        self::assertTrue($this->client->acquireAll([['api', 'a'], ['5/minute', 'a', 2]])->isAllowed());
    }

    public function testShadow(): void
    {
        $this->client->acquire('watched', 'u');
        $second = $this->client->acquire('watched', 'u');
        self::assertSame([true, true], [$second->isAllowed(), $second->isShadow()]);
    }

    public function testMistakes(): void
    {
        try {
            $this->client->acquire('apx', 'u');
            self::fail('no such policy');
        } catch (UnknownPolicy $e) {
            self::assertStringContainsString('"api"', $e->getMessage());
        }
        $this->expectException(InvalidRequest::class);
        $this->client->refund('exports', 'u');
    }

    public function testThrottleInfoPing(): void
    {
        self::assertSame([0, 16, 15, -1, 2], $this->client->throttle('u', 15, 30, 60)->toArray());
        self::assertTrue($this->client->throttle('u', 15, 30, 60, 16)->limited);
        self::assertSame('standalone', $this->client->info()['mode']);
        self::assertTrue($this->client->ping());
    }

    /** @dataProvider limits */
    public function testAlgorithms(Limit $limit): void
    {
        $allowed = array_map(fn (): bool => $this->client->acquire($limit, 'a')->isAllowed(), range(1, 3));
        self::assertSame([true, true, false], $allowed);
    }

    public static function limits(): array
    {
        $limits = ['burst' => [Limit::perDay(5, burst: 2)]];
        foreach (Algorithm::cases() as $algorithm) {
            $limits[$algorithm->value] = [new Limit(2, 86_400, null, $algorithm)];
        }
        return $limits;
    }

    public function testSoManyAtOnce(): void
    {
        $one = $this->client->hold('exports', 'u');
        $two = $this->client->hold('exports', 'u');
        self::assertSame(0, $two->getResult()->getRemaining());
        try {
            $this->client->hold('exports', 'u');
            self::fail('a third permit of two');
        } catch (RateLimited $e) {
            self::assertFalse($e->getResult()->isAllowed());
        }
        self::assertSame([true, false], [$one->release(), $one->release()]);
        unset($two);
        self::assertSame(2, $this->client->peek('exports', 'u')->getRemaining());
        $number = $this->client->acquire('exports', 'u')->getPermit();
        self::assertSame([true, false, false], [
            $this->client->release($number), $this->client->release($number), $this->client->release(null),
        ]);
    }

    /** For longer than the second after which a process without connections loses its permits. */
    public function testAHoldAloneKeepsThePermit(): void
    {
        $permit = $this->client->hold('exports', 'u', 2);
        $this->client->close();
        self::assertSame([0, 'denied'], self::php(<<<'PHP'
            $result = (new RlSidecar\Client($argv[1], 5, 'raise'))->acquire('exports', 'u', wait: 2);
            echo $result->isAllowed() ? 'allowed' : 'denied';
            PHP, $this->agent->socket));
        self::assertTrue($permit->release());
    }

    public function testThePermitsOfADeadProcessComeBack(): void
    {
        self::php(<<<'PHP'
            $permit = (new RlSidecar\Client($argv[1], 5, 'raise'))->hold('exports', 'd', 2);
            posix_kill(getmypid(), SIGKILL);
            PHP, $this->agent->socket);
        self::assertTrue($this->client->acquire('exports', 'd', wait: 10)->isAllowed());
    }

    public function testAHoldWhoseAgentRestarts(): void
    {
        $permit = $this->client->hold('exports', 'u');
        $this->agent->stop();
        self::assertFalse($permit->release());
    }
}
