<?php

declare(strict_types=1);

namespace RlSidecar\Tests;

use Illuminate\Cache\ArrayStore;
use Illuminate\Cache\RateLimiter;
use Illuminate\Cache\RateLimiting\Limit as LaravelsLimit;
use Illuminate\Cache\Repository;
use Illuminate\Http\Exceptions\HttpResponseException;
use Illuminate\Http\Exceptions\ThrottleRequestsException;
use Illuminate\Http\Request;
use Illuminate\Http\Response;
use Illuminate\Routing\Route;
use RlSidecar\Client;
use RlSidecar\Exception\Unavailable;
use RlSidecar\Laravel\ThrottleRequests;
use RlSidecar\OnUnavailable;

/**
 * Laravel's own middleware class, of the version that Debian has, with a real agent.
 */
final class LaravelTest extends TestCase
{
    private RateLimiter $limiter;

    protected function setUp(): void
    {
        parent::setUp();
        $this->limiter = new RateLimiter(new Repository(new ArrayStore()));
    }

    private function agent(): Client
    {
        $policies = "admin: {listen: \"127.0.0.1:0\"}\npolicies:\n  web: {limit: 2/hour}\n";
        return self::client($this->started(Process::agent($this->folder, $policies))->socket);
    }

    private function ask(Client $client, string|int ...$parameters): Response
    {
        $request = Request::create('/', server: ['REMOTE_ADDR' => '203.0.113.7']);
        $request->setRouteResolver(static fn () => new Route('GET', '/', []));
        $request->setUserResolver(static fn () => null);
        $middleware = new ThrottleRequests($this->limiter, $client);
        return $middleware->handle($request, static fn () => new Response('done'), ...$parameters);
    }

    public function testNumbersAsLaravelTakesThem(): void
    {
        $client = $this->agent();
        $first = $this->ask($client, '2', '1');
        self::assertSame(['2', '1'], [$first->headers->get('X-RateLimit-Limit'), $first->headers->get('X-RateLimit-Remaining')]);
        $this->ask($client, '2', '1');
        try {
            $this->ask($client, '2', '1');
            self::fail('not throttled');
        } catch (ThrottleRequestsException $e) {
            self::assertSame(429, $e->getStatusCode());
            self::assertGreaterThan(0, $e->getHeaders()['Retry-After']);
            self::assertSame(0, $e->getHeaders()['X-RateLimit-Remaining']);
        }
    }

    public function testAPolicyOfTheAgent(): void
    {
        $client = $this->agent();
        self::assertSame('2', $this->ask($client, 'web')->headers->get('X-RateLimit-Limit'));
        $this->ask($client, 'web');
        $this->expectException(ThrottleRequestsException::class);
        $this->ask($client, 'web');
    }

    public function testANamedLimiterWithSeveralLimits(): void
    {
        $this->limiter->for('api', static fn () => [
            LaravelsLimit::perMinute(100)->by('all'),
            LaravelsLimit::perMinute(1)->by('one')->response(static fn ($request, $headers) => new Response('slow down', 429, $headers)),
        ]);
        $client = $this->agent();
        self::assertSame('0', $this->ask($client, 'api')->headers->get('X-RateLimit-Remaining'));
        try {
            $this->ask($client, 'api');
            self::fail('not throttled');
        } catch (HttpResponseException $e) {
            self::assertSame('slow down', $e->getResponse()->getContent());
        }
    }

    public function testNoAttemptsAtAll(): void
    {
        $this->expectException(ThrottleRequestsException::class);
        $this->ask($this->agent(), 0, 1);
    }

    public function testWithoutAnAgent(): void
    {
        $client = fn (OnUnavailable $mode): Client => new Client("$this->folder/no", onUnavailable: $mode);
        self::assertSame('done', $this->ask($client(OnUnavailable::Allow), 'web')->getContent());
        try {
            $this->ask($client(OnUnavailable::Deny), 'web');
            self::fail('not throttled');
        } catch (ThrottleRequestsException $e) {
            self::assertSame(1, $e->getHeaders()['Retry-After']);
        }
        $this->expectException(Unavailable::class);
        $this->ask($client(OnUnavailable::Raise), 'web');
    }
}
