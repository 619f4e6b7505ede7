<?php

declare(strict_types=1);

namespace RlSidecar\Symfony;

use RlSidecar\Client;
use RlSidecar\Limit;
use Symfony\Component\RateLimiter\LimiterInterface;
use Symfony\Component\RateLimiter\RateLimiterFactoryInterface;

/**
 * Makes limiters of the agent for whatever takes Symfony's factories. Needs Symfony 7.3; with an
 * earlier one, build an AgentLimiter.
 */
final class AgentLimiterFactory implements RateLimiterFactoryInterface
{
    private const SHARED_BY_ALL = '*';

    /** @param string|Limit $limit as for Client::acquire */
    public function __construct(private readonly Client $client, private readonly string|Limit $limit)
    {
    }

    public function create(?string $key = null): LimiterInterface
    {
        return new AgentLimiter($this->client, $this->limit, $key ?? self::SHARED_BY_ALL);
    }
}
