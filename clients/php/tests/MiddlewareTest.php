<?php

declare(strict_types=1);

namespace RlSidecar\Tests;

use Nyholm\Psr7\Factory\Psr17Factory;
use Nyholm\Psr7\Response;
use Nyholm\Psr7\ServerRequest;
use Psr\Http\Message\ResponseInterface;
use Psr\Http\Message\ServerRequestInterface;
use Psr\Http\Server\RequestHandlerInterface;
use RlSidecar\Client;
use RlSidecar\Exception\Unavailable;
use RlSidecar\Http\HeaderStyle;
use RlSidecar\Http\RateLimitMiddleware;
use RlSidecar\Limit;
use RlSidecar\OnUnavailable;

require_once __DIR__ . '/stand-ins.php';

/**
 * The PSR-15 middleware, with a real agent.
 *
 * @group psr15
 */
final class MiddlewareTest extends TestCase
{
    private const TOLD = ['X-RateLimit-Limit', 'X-RateLimit-Remaining', 'X-RateLimit-Reset', 'RateLimit-Policy', 'RateLimit', 'Retry-After'];

    private function agent(): Client
    {
        $policies = "admin: {listen: \"127.0.0.1:0\"}\npolicies:\n  web: {limit: 2/hour}\n";
        return self::client($this->started(Process::agent($this->folder, $policies))->socket);
    }

    private static function answer(RateLimitMiddleware $middleware, ?ResponseInterface $own = null): ResponseInterface
    {
        $request = new ServerRequest('GET', '/', [], null, '1.1', ['REMOTE_ADDR' => '203.0.113.7']);
        return $middleware->process($request, new class ($own ?? new Response(200, [], 'done')) implements RequestHandlerInterface {
            public function __construct(private readonly ResponseInterface $response)
            {
            }

            public function handle(ServerRequestInterface $request): ResponseInterface
            {
                return $this->response;
            }
        });
    }

    /** @return array<string, string> */
    private static function told(ResponseInterface $response): array
    {
        return array_filter(array_combine(self::TOLD, array_map($response->getHeaderLine(...), self::TOLD)));
    }

    public function testXRateLimitHeaders(): void
    {
        $middleware = new RateLimitMiddleware($this->agent(), new Psr17Factory(), 'web');
        $first = self::answer($middleware);
        self::assertSame('done', (string) $first->getBody());
        self::assertSame(['X-RateLimit-Limit' => '2', 'X-RateLimit-Remaining' => '1', 'X-RateLimit-Reset' => '1800'], self::told($first));
        self::assertSame('2', self::answer($middleware, new Response(302))->getHeaderLine('X-RateLimit-Limit'));
        $denied = self::answer($middleware);
        self::assertSame(429, $denied->getStatusCode());
        self::assertSame('', (string) $denied->getBody());
        self::assertEqualsWithDelta(1800, (int) $denied->getHeaderLine('Retry-After'), 20);
        self::assertSame('0', $denied->getHeaderLine('X-RateLimit-Remaining'));
    }

    public function testIetfHeadersAddToAList(): void
    {
        $client = $this->agent();
        $web = new RateLimitMiddleware($client, new Psr17Factory(), 'web', headers: HeaderStyle::Ietf);
        $own = new Response(200, ['RateLimit-Policy' => '"x";q=5', 'RateLimit' => '"x";r=4;t=1']);
        self::assertSame([
            'RateLimit-Policy' => '"x";q=5, "web";q=2', 'RateLimit' => '"x";r=4;t=1, "web";r=1;t=1800',
        ], self::told(self::answer($web, $own)));
        $inline = new RateLimitMiddleware($client, new Psr17Factory(), Limit::perMinute(60), headers: HeaderStyle::Ietf);
        self::assertSame([
            'RateLimit-Policy' => '"60/60000ms";q=60;w=60', 'RateLimit' => '"60/60000ms";r=59;t=1',
        ], self::told(self::answer($inline)));
        $short = new RateLimitMiddleware($client, new Psr17Factory(), '60/500ms', headers: HeaderStyle::Ietf);
        self::assertSame('"60/500ms";q=60', self::answer($short)->getHeaderLine('RateLimit-Policy'));
    }

    public function testHeadersThatAreThereStayWhenTheirLimitHasLessLeft(): void
    {
        $middleware = new RateLimitMiddleware($this->agent(), new Psr17Factory(), 'web');
        $own = new Response(200, ['X-RateLimit-Limit' => '9', 'X-RateLimit-Remaining' => '0']);
        self::assertSame('9', self::answer($middleware, $own)->getHeaderLine('X-RateLimit-Limit'));
        $more = new Response(200, ['X-RateLimit-Limit' => '9', 'X-RateLimit-Remaining' => '5']);
        self::assertSame('2', self::answer($middleware, $more)->getHeaderLine('X-RateLimit-Limit'));
    }

    public function testARequestWithoutKeyIsNotLimited(): void
    {
        $middleware = new RateLimitMiddleware($this->agent(), new Psr17Factory(), '1/hour', static fn () => null);
        self::assertSame([200, 200], [self::answer($middleware)->getStatusCode(), self::answer($middleware)->getStatusCode()]);
    }

    public function testC20WithoutAnAgent(): void
    {
        $status = function (OnUnavailable $mode): array {
            $client = new Client("$this->folder/nobody", onUnavailable: $mode);
            $response = self::answer(new RateLimitMiddleware($client, new Psr17Factory(), 'web'));
            return [$response->getStatusCode(), self::told($response)];
        };
        self::assertSame([200, []], $status(OnUnavailable::Allow));
        self::assertSame([429, ['Retry-After' => '1']], $status(OnUnavailable::Deny));
        self::assertSame([200, []], $status(OnUnavailable::Local));
        $this->expectException(Unavailable::class);
        $status(OnUnavailable::Raise);
    }
}
