<?php

declare(strict_types=1);

namespace RlSidecar;

/**
 * How the permits of a limit come back.
 */
enum Algorithm: string
{
    /** Evenly, up to the burst. What a limit is unless it says otherwise. */
    case TokenBucket = 'token_bucket';
    /** As TokenBucket, and calls that wait are let go at an even pace. */
    case LeakyBucket = 'leaky_bucket';
    /** All at once, when the period ends. */
    case FixedWindow = 'fixed_window';
    /** A period after their use, to a tenth of the period. */
    case SlidingWindow = 'sliding_window';
    /** A period after their use, each; for counts up to 10,000. */
    case SlidingLog = 'sliding_log';
    /** When they are released: see Limit::concurrency. */
    case Concurrency = 'concurrency';

    public function hasBurst(): bool
    {
        return $this === self::TokenBucket || $this === self::LeakyBucket;
    }
}
