<?php

declare(strict_types=1);

namespace RlSidecar\Exception;

/**
 * The agent did not answer within the call's budget. The call may have counted.
 */
final class AgentTimeout extends Unavailable
{
}
