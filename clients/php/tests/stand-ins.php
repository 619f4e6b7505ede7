<?php

/**
 * Interfaces that the tests cannot always have for real, as their packages declare them: PSR-15 is in
 * Debian only as a part of the extension psr, and its Symfony is older than the factory's interface (7.3).
 */

declare(strict_types=1);

namespace Psr\Http\Server {
    use Psr\Http\Message\ResponseInterface;
    use Psr\Http\Message\ServerRequestInterface;

    if (!interface_exists(RequestHandlerInterface::class)) {
        interface RequestHandlerInterface
        {
            public function handle(ServerRequestInterface $request): ResponseInterface;
        }

        interface MiddlewareInterface
        {
            public function process(ServerRequestInterface $request, RequestHandlerInterface $handler): ResponseInterface;
        }
    }
}

namespace Symfony\Component\RateLimiter {
    if (!interface_exists(RateLimiterFactoryInterface::class)) {
        interface RateLimiterFactoryInterface
        {
            public function create(?string $key = null): LimiterInterface;
        }
    }
}
