<?php

declare(strict_types=1);

namespace RlSidecar\Exception;

/**
 * Client and agent do not understand each other; the connection was closed.
 */
final class ProtocolError extends Unavailable
{
}
