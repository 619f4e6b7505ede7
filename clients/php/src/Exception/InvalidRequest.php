<?php

declare(strict_types=1);

namespace RlSidecar\Exception;

/**
 * An argument is out of range; the message names it and what is allowed.
 */
final class InvalidRequest extends \InvalidArgumentException implements RlSidecarException
{
}
