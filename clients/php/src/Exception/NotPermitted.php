<?php

declare(strict_types=1);

namespace RlSidecar\Exception;

/**
 * The operator does not let this application use this policy or method.
 */
final class NotPermitted extends \RuntimeException implements RlSidecarException
{
}
