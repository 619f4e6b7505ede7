<?php

declare(strict_types=1);

namespace RlSidecar;

/**
 * Where a decision came from. Not negative: the agent's numbers.
 */
enum Source: int
{
    /** Permits leased by this host. */
    case Lease = 0;
    /** Redis was asked for this call. */
    case Redis = 1;
    /** A denial remembered on this host. */
    case Denial = 2;
    /** The agent runs without Redis. */
    case Standalone = 3;
    /** The agent cannot reach Redis. */
    case Fallback = 4;
    /** Exempt or blocked by a list. */
    case List = 5;
    /** A number this version does not know. */
    case Unknown = -1;
    /** The agent gave no decision: on_unavailable did. */
    case Client = -2;
}
