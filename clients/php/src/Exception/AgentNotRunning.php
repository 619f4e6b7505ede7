<?php

declare(strict_types=1);

namespace RlSidecar\Exception;

/**
 * Nobody listens on the agent's socket, or this process may not connect to it.
 */
final class AgentNotRunning extends Unavailable
{
}
