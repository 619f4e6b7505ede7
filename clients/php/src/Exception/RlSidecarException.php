<?php

declare(strict_types=1);

namespace RlSidecar\Exception;

/**
 * Every exception of this package.
 *
 * Unavailable and its subclasses mean that no decision was had: they pass through
 * on_unavailable and reach the caller in mode "raise" only. The others are mistakes
 * of the calling code or of its policies, and are always thrown.
 */
interface RlSidecarException extends \Throwable
{
}
