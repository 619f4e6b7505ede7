<?php

declare(strict_types=1);

namespace RlSidecar\Exception;

use RlSidecar\Result;

/**
 * A denial, thrown by Client::hold and Result::ensureAccepted. Client::acquire never throws it.
 */
final class RateLimited extends \RuntimeException implements RlSidecarException
{
    public function __construct(private readonly Result $result)
    {
        $wait = $result->getRetryAfter();
        parent::__construct('rate limited: ' . ($wait === null ? 'can never be allowed' : "retry after $wait s"));
    }

    public function getResult(): Result
    {
        return $this->result;
    }
}
