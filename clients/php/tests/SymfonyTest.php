<?php

declare(strict_types=1);

namespace RlSidecar\Tests;

use RlSidecar\Client;
use RlSidecar\Exception\Unavailable;
use RlSidecar\Limit;
use RlSidecar\OnUnavailable;
use RlSidecar\Symfony\AgentLimiter;
use RlSidecar\Symfony\AgentLimiterFactory;
use RlSidecar\Symfony\RateLimitListener;
use Symfony\Component\EventDispatcher\EventDispatcher;
use Symfony\Component\HttpFoundation\Request;
use Symfony\Component\HttpFoundation\Response;
use Symfony\Component\HttpFoundation\StreamedResponse;
use Symfony\Component\HttpKernel\Controller\ControllerResolver;
use Symfony\Component\HttpKernel\HttpKernel;
use Symfony\Component\RateLimiter\Exception\MaxWaitDurationExceededException;
use Symfony\Component\RateLimiter\Exception\RateLimitExceededException;

require_once __DIR__ . '/stand-ins.php';

/**
 * Symfony's limiter interface and kernel, with a real agent.
 */
final class SymfonyTest extends TestCase
{
    private function agent(): Client
    {
        $policies = "admin: {listen: \"127.0.0.1:0\"}\npolicies:\n  web: {limit: 2/hour}\n";
        return self::client($this->started(Process::agent($this->folder, $policies))->socket);
    }

    public function testConsume(): void
    {
        $limiter = (new AgentLimiterFactory($this->agent(), 'web'))->create('u1');
        self::assertSame(2, $limiter->consume(0)->getRemainingTokens());
        $first = $limiter->consume();
        self::assertSame([true, 1, 2], [$first->isAccepted(), $first->getRemainingTokens(), $first->getLimit()]);
        self::assertEqualsWithDelta(time(), $first->getRetryAfter()->getTimestamp(), 2);
        $limiter->consume()->ensureAccepted();
        $denied = $limiter->consume();
        self::assertEqualsWithDelta(time() + 1800, $denied->getRetryAfter()->getTimestamp(), 20);
        try {
            $denied->ensureAccepted();
            self::fail('accepted');
        } catch (RateLimitExceededException) {
        }
        $limiter->reset();
        self::assertTrue($limiter->consume(2)->isAccepted());
        self::assertFalse($limiter->consume(3)->isAccepted());
    }

    public function testWithoutAKeyAllShareOneBucket(): void
    {
        $factory = new AgentLimiterFactory($this->agent(), '1/hour');
        self::assertTrue($factory->create()->consume()->isAccepted());
        self::assertFalse($factory->create()->consume()->isAccepted());
    }

    public function testReserveWaitsInTheAgentsQueue(): void
    {
        $client = $this->agent();
        $limiter = new AgentLimiter($client, new Limit(1, 0.2), 'u1');
        $limiter->reserve();
        $began = microtime(true);
        $reservation = $limiter->reserve(1, 20.0);
        self::assertGreaterThan(0.1, microtime(true) - $began);
        self::assertEqualsWithDelta(0, $reservation->getWaitDuration(), 0.001);
        self::assertTrue($reservation->getRateLimit()->isAccepted());
        $slow = new AgentLimiter($client, '1/hour', 'u1');
        $slow->reserve();
        try {
            $slow->reserve(1, 0.01);
            self::fail('reserved');
        } catch (MaxWaitDurationExceededException $e) {
            self::assertFalse($e->getRateLimit()->isAccepted());
        }
        $this->expectException(\InvalidArgumentException::class);
        $slow->reserve(2);
    }

    public function testALimiterWithoutAnAgent(): void
    {
        $limiter = fn (OnUnavailable $mode) => new AgentLimiter(new Client("$this->folder/no", onUnavailable: $mode), 'web', 'u');
        $allowed = $limiter(OnUnavailable::Allow)->consume(0);
        self::assertSame([true, 1], [$allowed->isAccepted(), $allowed->getRemainingTokens()]);
        self::assertFalse($limiter(OnUnavailable::Deny)->consume()->isAccepted());
        $this->expectException(Unavailable::class);
        $limiter(OnUnavailable::Raise)->consume();
    }

    private static function kernel(RateLimitListener $listener, \Closure $controller): HttpKernel
    {
        $dispatcher = new EventDispatcher();
        $dispatcher->addSubscriber($listener);
        $dispatcher->addListener('kernel.request', static function ($event) use ($controller): void {
            $event->getRequest()->attributes->set('_controller', $controller);
        }, 32);
        return new HttpKernel($dispatcher, new ControllerResolver());
    }

    private static function ask(HttpKernel $kernel): Response
    {
        return $kernel->handle(Request::create('/', server: ['REMOTE_ADDR' => '203.0.113.7']));
    }

    public function testTheKernelsRequests(): void
    {
        $calls = 0;
        $kernel = self::kernel(new RateLimitListener($this->agent(), 'web'), static function () use (&$calls): Response {
            return ++$calls === 1 ? new Response('done') : new StreamedResponse(static fn () => null, 303);
        });
        $first = self::ask($kernel);
        self::assertSame(['2', '1', '1800'], [
            $first->headers->get('X-RateLimit-Limit'), $first->headers->get('X-RateLimit-Remaining'), $first->headers->get('X-RateLimit-Reset'),
        ]);
        self::assertSame([303, '0'], [($second = self::ask($kernel))->getStatusCode(), $second->headers->get('X-RateLimit-Remaining')]);
        $denied = self::ask($kernel);
        self::assertSame([429, 2], [$denied->getStatusCode(), $calls]);
        self::assertEqualsWithDelta(1800, (int) $denied->headers->get('Retry-After'), 20);
    }

    public function testTheKernelWithoutAnAgent(): void
    {
        $ask = fn (OnUnavailable $mode): int => self::ask(self::kernel(
            new RateLimitListener(new Client("$this->folder/no", onUnavailable: $mode), 'web'),
            static fn (): Response => new Response()
        ))->getStatusCode();
        self::assertSame([200, 429], [$ask(OnUnavailable::Allow), $ask(OnUnavailable::Deny)]);
        $this->expectException(Unavailable::class);
        $ask(OnUnavailable::Raise);
    }
}
