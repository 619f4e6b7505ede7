<?php

/**
 * Drives the client for the conformance suite: one JSON object per line in, one out.
 *
 * See internal/conformance for what may be asked and what is answered.
 */

declare(strict_types=1);

namespace RlSidecar\Conformance;

use RlSidecar\Client;
use RlSidecar\Exception;
use RlSidecar\Algorithm;
use RlSidecar\Limit;
use RlSidecar\Result;
use RlSidecar\Source;

require __DIR__ . '/../tests/autoload.php';

final class Driver
{
    private const ERRORS = [
        Exception\AgentTimeout::class => 'timeout',
        Exception\AgentNotRunning::class => 'not_running',
        Exception\ProtocolError::class => 'protocol',
        Exception\UnknownPolicy::class => 'unknown_policy',
        Exception\InvalidRequest::class => 'invalid_request',
        Exception\NotPermitted::class => 'not_permitted',
        Exception\RateLimited::class => 'rate_limited',
    ];

    /** @var array<string, Client> */
    private array $clients = [];

    /**
     * @param array<string, mixed> $ask
     *
     * @return array<string, mixed>
     */
    public function answer(array $ask): array
    {
        $began = hrtime(true);
        try {
            $answer = $this->do($ask);
        } catch (\Throwable $thrown) {
            $answer = ['error' => self::kind($thrown), 'message' => $thrown->getMessage()];
        }
        return $answer + ['elapsed_us' => intdiv(hrtime(true) - $began, 1000)];
    }

    private function do(array $ask): array
    {
        return match ($ask['do']) {
            'open' => $this->open($ask),
            'acquire' => self::decision($this->client($ask)->acquire(...self::call($ask), wait: ($ask['wait_ms'] ?? 0) / 1000)),
            'peek' => self::decision($this->client($ask)->peek(...self::call($ask))),
            'refund' => ['ok' => $this->client($ask)->refund(...self::call($ask))],
            'reset' => ['ok' => $this->client($ask)->reset(...array_diff_key(self::call($ask), ['cost' => 0]))],
            'acquire_all' => $this->acquireAll($ask),
            'many' => $this->many($ask),
            'fds' => ['fds' => count((array) scandir('/proc/self/fd')) - 3],
            'close' => $this->close($ask),
            'sleep' => $this->sleep($ask),
        };
    }

    private function client(array $ask): Client
    {
        return $this->clients[$ask['client']];
    }

    private function open(array $ask): array
    {
        foreach ($ask['env'] ?? [] as $name => $value) {
            putenv($value === null ? $name : "$name=$value");
        }
        $this->clients[$ask['client']] = new Client(
            address: $ask['address'] ?? null,
            timeout: isset($ask['timeout_ms']) ? $ask['timeout_ms'] / 1000 : null,
            onUnavailable: $ask['on_unavailable'] ?? null,
        );
        return ['ok' => true];
    }

    private function acquireAll(array $ask): array
    {
        $items = array_map(static fn (array $item): array => [self::limit($item[0]), ...array_slice($item, 1)], $ask['items']);
        $timeout = isset($ask['timeout_ms']) ? $ask['timeout_ms'] / 1000 : null;
        $all = $this->client($ask)->acquireAll($items, ($ask['wait_ms'] ?? 0) / 1000, $timeout);
        return [
            'allowed' => $all->isAllowed(),
            'decisions' => array_map(self::decision(...), $all->getResults()),
            'degraded' => $all->isDegraded(),
        ];
    }

    private function many(array $ask): array
    {
        [$wrong, $unavailable, $keys] = [0, 0, $ask['keys']];
        for ($thread = 0; $thread < $ask['threads']; $thread++) {
            for ($call = 0; $call < $ask['calls']; $call++) {
                $key = $keys[($thread + $call) % count($keys)];
                $result = $this->client($ask)->acquire(self::limit($ask['limit']), $key);
                $unavailable += (int) $result->isDegraded();
                $wrong += (int) (!$result->isDegraded() && $result->getLimit() !== 1000 + (int) substr($key, 1));
            }
        }
        return ['ok' => true, 'wrong' => $wrong, 'unavailable' => $unavailable];
    }

    private function close(array $ask): array
    {
        $this->client($ask)->close();
        unset($this->clients[$ask['client']]);
        return ['ok' => true];
    }

    private function sleep(array $ask): array
    {
        usleep($ask['ms'] * 1000);
        return ['ok' => true];
    }

    private static function call(array $ask): array
    {
        $timeout = isset($ask['timeout_ms']) ? $ask['timeout_ms'] / 1000 : null;
        return [
            'limit' => self::limit($ask['limit']),
            'key' => $ask['key'],
            'cost' => $ask['cost'] ?? 1,
            'timeout' => $timeout,
        ];
    }

    private static function limit(string|array $limit): string|Limit
    {
        if (is_string($limit)) {
            return $limit;
        }
        $algorithm = isset($limit['algorithm']) ? Algorithm::from($limit['algorithm']) : null;
        return new Limit($limit['count'], $limit['period_ms'] / 1000, $limit['burst'] ?? null, $algorithm);
    }

    private static function decision(Result $result): array
    {
        $retryAfter = $result->getRetryAfter();
        return [
            'allowed' => $result->isAllowed(),
            'limit' => $result->getLimit(),
            'remaining' => $result->getRemaining(),
            'reset_after_ms' => (int) round($result->getResetAfter() * 1000),
            'retry_after_ms' => $retryAfter === null ? -1 : (int) round($retryAfter * 1000),
            'source' => $result->getSource() === Source::Client ? -1 : $result->getSource()->value,
            'degraded' => $result->isDegraded(),
            'shadow' => $result->isShadow(),
            'permit' => $result->getPermit(),
        ];
    }

    private static function kind(\Throwable $thrown): string
    {
        foreach (self::ERRORS as $class => $kind) {
            if ($thrown instanceof $class) {
                return $kind;
            }
        }
        return $thrown instanceof Exception\Unavailable ? 'unavailable' : 'other';
    }
}

ini_set('display_errors', 'stderr');
$driver = new Driver();
while (($line = fgets(STDIN)) !== false) {
    $ask = json_decode($line, true, 16, JSON_THROW_ON_ERROR);
    fwrite(STDOUT, json_encode($driver->answer($ask), JSON_THROW_ON_ERROR | JSON_INVALID_UTF8_SUBSTITUTE) . "\n");
}
