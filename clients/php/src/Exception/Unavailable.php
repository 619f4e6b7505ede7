<?php

declare(strict_types=1);

namespace RlSidecar\Exception;

/**
 * No decision was had: the agent could not be asked, or could not decide.
 */
class Unavailable extends \RuntimeException implements RlSidecarException
{
}
