<?php

declare(strict_types=1);

namespace RlSidecar\Http;

use Psr\Http\Message\ResponseFactoryInterface;
use Psr\Http\Message\ResponseInterface;
use Psr\Http\Message\ServerRequestInterface;
use Psr\Http\Server\MiddlewareInterface;
use Psr\Http\Server\RequestHandlerInterface;
use RlSidecar\Client;
use RlSidecar\Exception\RlSidecarException;
use RlSidecar\Limit;
use RlSidecar\Result;

/**
 * PSR-15: lets a request through when its limit allows, and answers 429 otherwise.
 */
final class RateLimitMiddleware implements MiddlewareInterface
{
    private readonly \Closure $key;

    /**
     * @param string|Limit                                    $limit as for Client::acquire
     * @param (callable(ServerRequestInterface): ?string)|null $key   whom to count the request for, null: it is not
     *                                                                limited; default the peer's address, which
     *                                                                behind a proxy is the proxy's
     */
    public function __construct(
        private readonly Client $client,
        private readonly ResponseFactoryInterface $responses,
        private readonly string|Limit $limit,
        ?callable $key = null,
        private readonly HeaderStyle $headers = HeaderStyle::XRateLimit,
    ) {
        $this->key = $key === null ? self::peer(...) : $key(...);
    }

    /** @throws RlSidecarException as Client::acquire */
    public function process(ServerRequestInterface $request, RequestHandlerInterface $handler): ResponseInterface
    {
        $key = ($this->key)($request);
        if ($key === null) {
            return $handler->handle($request);
        }
        $result = $this->client->acquire($this->limit, $key);
        $response = $result->isAllowed() ? $handler->handle($request) : $this->responses->createResponse(429);
        return $this->tell($response, $result);
    }

    private function tell(ResponseInterface $response, Result $result): ResponseInterface
    {
        foreach (Headers::of($this->limit, $result, $this->headers, $response->getHeaderLine(...)) as $name => $value) {
            $response = $response->withHeader($name, $value);
        }
        return $response;
    }

    private static function peer(ServerRequestInterface $request): ?string
    {
        return $request->getServerParams()['REMOTE_ADDR'] ?? null;
    }
}
