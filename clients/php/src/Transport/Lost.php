<?php

declare(strict_types=1);

namespace RlSidecar\Transport;

use RlSidecar\Exception\Unavailable;

/**
 * The connection ended before a byte of the reply: on one that was used before, ask again.
 *
 * @internal
 */
final class Lost extends Unavailable
{
}
