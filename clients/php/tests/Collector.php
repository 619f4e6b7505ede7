<?php

declare(strict_types=1);

namespace RlSidecar\Tests;

use Psr\Log\AbstractLogger;

/**
 * Keeps what was logged.
 */
final class Collector extends AbstractLogger
{
    /** @var list<string> */
    public array $lines = [];

    public function log($level, $message, array $context = []): void
    {
        $this->lines[] = strtr((string) $message, ['{reason}' => (string) $context['reason']]);
    }
}
