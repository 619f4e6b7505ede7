<?php

declare(strict_types=1);

namespace RlSidecar;

/**
 * The answer to Client::acquireAll. When it is denied, nothing was taken from any limit.
 */
final class AllResult
{
    /**
     * @param list<Result> $results one per item, in the order asked
     *
     * @internal use Client
     */
    public function __construct(private readonly bool $allowed, private readonly array $results)
    {
    }

    /** Whether all items are allowed. */
    public function isAllowed(): bool
    {
        return $this->allowed;
    }

    /** The same as isAllowed. */
    public function isAccepted(): bool
    {
        return $this->allowed;
    }

    /** @return list<Result> one per item, in the order asked */
    public function getResults(): array
    {
        return $this->results;
    }

    /** Whether any item was decided without Redis, or all without the agent. */
    public function isDegraded(): bool
    {
        foreach ($this->results as $result) {
            if ($result->isDegraded()) {
                return true;
            }
        }
        return false;
    }
}
