<?php

declare(strict_types=1);

namespace RlSidecar\Laravel;

use Illuminate\Cache\RateLimiter;
use Illuminate\Http\Exceptions\HttpResponseException;
use Illuminate\Http\Exceptions\ThrottleRequestsException;
use Illuminate\Routing\Middleware\ThrottleRequests as LaravelsOwn;
use RlSidecar\Algorithm;
use RlSidecar\Client;
use RlSidecar\Limit;
use RlSidecar\Result;
use RlSidecar\Source;

/**
 * Laravel's `throttle` with the agent in the place of the cache.
 *
 * It takes what Laravel's takes: `throttle:60,1`, and the name of a limiter made with
 * RateLimiter::for. The name of neither is one of the agent's policies: `throttle:login`.
 *
 * All limits of a request are asked for at once: when one denies, none is consumed.
 */
class ThrottleRequests extends LaravelsOwn
{
    public function __construct(RateLimiter $limiter, private readonly Client $client)
    {
        parent::__construct($limiter);
    }

    public function handle($request, \Closure $next, $maxAttempts = 60, $decayMinutes = 1, $prefix = '')
    {
        if (func_num_args() !== 3 || !$this->isPolicy($maxAttempts)) {
            return parent::handle(...func_get_args());
        }
        $key = $this->resolveRequestSignature($request);
        return $this->handleRequest($request, $next, [(object) ['key' => $key, 'policy' => $maxAttempts]]);
    }

    protected function handleRequest($request, \Closure $next, array $limits)
    {
        $limits = array_values($limits);
        foreach ($this->ask($limits) as $i => $result) {
            if (!$result->isAllowed()) {
                throw $this->denial($request, $limits[$i], $result);
            }
            $results[] = $result;
        }
        $response = $next($request);
        foreach ($results ?? [] as $result) {
            if ($result->getLimit() > 0) {
                $response = $this->addHeaders($response, $result->getLimit(), $result->getRemaining());
            }
        }
        return $response;
    }

    private function isPolicy(mixed $name): bool
    {
        return is_string($name) && !is_numeric($name) && !str_contains($name, '|')
            && $this->limiter->limiter($name) === null;
    }

    /**
     * @param list<object> $limits
     *
     * @return array<int, Result>
     */
    private function ask(array $limits): array
    {
        foreach ($limits as $i => $limit) {
            if (!isset($limit->policy) && $limit->maxAttempts < 1) {
                return [$i => new Result(false, 0, 0, 0, -1, Source::Client)];
            }
        }
        $items = array_map(static fn (object $limit): array => [self::limit($limit), (string) $limit->key], $limits);
        return $items === [] ? [] : $this->client->acquireAll($items)->getResults();
    }

    private static function limit(object $limit): string|Limit
    {
        if (isset($limit->policy)) {
            return $limit->policy;
        }
        $seconds = $limit->decaySeconds ?? $limit->decayMinutes * 60;
        return new Limit((int) $limit->maxAttempts, (float) $seconds, algorithm: Algorithm::FixedWindow);
    }

    private function denial(mixed $request, object $limit, Result $result): \RuntimeException
    {
        $wait = $result->getRetryAfter();
        $seconds = $wait === null ? null : max(1, (int) ceil($wait));
        $headers = $this->getHeaders($result->getLimit(), 0, $seconds);
        $respond = $limit->responseCallback ?? null;
        return is_callable($respond)
            ? new HttpResponseException($respond($request, $headers))
            : new ThrottleRequestsException('Too Many Attempts.', null, $headers);
    }
}
