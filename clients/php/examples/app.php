<?php

/**
 * A page behind PHP-FPM, or any other server of PHP, that keeps the agent's policy "api".
 *
 * Whoever sends X-Api-Key is counted by that, everybody else by address. Other applications on this
 * and other hosts that use the same policy and key share the limit.
 */

declare(strict_types=1);

use RlSidecar\Client;
use RlSidecar\Http\Headers;
use RlSidecar\Http\HeaderStyle;

$installed = __DIR__ . '/../vendor/autoload.php';
require is_file($installed) ? $installed : __DIR__ . '/../tests/autoload.php';

$limits = new Client();
$result = $limits->acquire('api', $_SERVER['HTTP_X_API_KEY'] ?? $_SERVER['REMOTE_ADDR']);

foreach (Headers::of('api', $result, HeaderStyle::XRateLimit, static fn (): string => '') as $name => $value) {
    header("$name: $value");
}
header('Content-Type: text/plain');
if (!$result->isAllowed()) {
    http_response_code(429);
    echo "slow down\n";
    return;
}
echo "hello from PHP, {$result->getRemaining()} left\n";
