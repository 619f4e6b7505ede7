<?php

declare(strict_types=1);

namespace RlSidecar\Exception;

/**
 * The agent has no policy of this name.
 */
final class UnknownPolicy extends \RuntimeException implements RlSidecarException
{
}
