<?php

declare(strict_types=1);

namespace RlSidecar\Wire;

/**
 * The bytes end before the value does: more have to come.
 *
 * @internal
 */
final class Incomplete extends \RuntimeException
{
}
