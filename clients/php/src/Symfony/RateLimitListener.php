<?php

declare(strict_types=1);

namespace RlSidecar\Symfony;

use RlSidecar\Client;
use RlSidecar\Exception\RlSidecarException;
use RlSidecar\Http\Headers;
use RlSidecar\Http\HeaderStyle;
use RlSidecar\Limit;
use RlSidecar\Result;
use Symfony\Component\EventDispatcher\EventSubscriberInterface;
use Symfony\Component\HttpFoundation\Request;
use Symfony\Component\HttpFoundation\Response;
use Symfony\Component\HttpKernel\Event\RequestEvent;
use Symfony\Component\HttpKernel\Event\ResponseEvent;
use Symfony\Component\HttpKernel\KernelEvents;

/**
 * Lets the kernel's requests through when their limit allows, and answers 429 otherwise.
 */
final class RateLimitListener implements EventSubscriberInterface
{
    /** After the router (32), so that a key can depend on the route; before the firewall (8). */
    private const PRIORITY = 16;

    private readonly \Closure $key;
    /** @var \WeakMap<Request, Result> */
    private readonly \WeakMap $results;

    /**
     * @param string|Limit                     $limit as for Client::acquire
     * @param (callable(Request): ?string)|null $key   whom to count the request for, null: it is not limited;
     *                                                 default the client's address, by Symfony's trusted proxies
     */
    public function __construct(
        private readonly Client $client,
        private readonly string|Limit $limit,
        ?callable $key = null,
        private readonly HeaderStyle $headers = HeaderStyle::XRateLimit,
    ) {
        $this->key = $key === null ? static fn (Request $request): ?string => $request->getClientIp() : $key(...);
        $this->results = new \WeakMap();
    }

    public static function getSubscribedEvents(): array
    {
        return [
            KernelEvents::REQUEST => ['onRequest', self::PRIORITY],
            KernelEvents::RESPONSE => 'onResponse',
        ];
    }

    /** @throws RlSidecarException as Client::acquire */
    public function onRequest(RequestEvent $event): void
    {
        $key = $event->isMainRequest() ? ($this->key)($event->getRequest()) : null;
        if ($key === null) {
            return;
        }
        $result = $this->client->acquire($this->limit, $key);
        $this->results[$event->getRequest()] = $result;
        if (!$result->isAllowed()) {
            $event->setResponse(new Response('Too Many Requests', Response::HTTP_TOO_MANY_REQUESTS));
        }
    }

    public function onResponse(ResponseEvent $event): void
    {
        $result = $this->results[$event->getRequest()] ?? null;
        if ($result === null) {
            return;
        }
        $headers = $event->getResponse()->headers;
        $present = static fn (string $name): string => $headers->get($name) ?? '';
        $headers->add(Headers::of($this->limit, $result, $this->headers, $present));
    }
}
