<?php

/**
 * The application behind PHP-FPM: makes one call, or dies in one, as the query says.
 */

declare(strict_types=1);

use RlSidecar\Client;
use RlSidecar\Exception\Unavailable;
use RlSidecar\Transport\Connection;
use RlSidecar\Transport\Dialer;
use RlSidecar\Wire\Packer;

require __DIR__ . '/autoload.php';

/** Writes a request over the persistent stream, as Connection::call does, and does not read the reply. */
function writeOnly(string $socket, string $key): void
{
    $connection = (new Dialer($socket))->open(hrtime(true) + 1_000_000_000, true);
    $stream = (new ReflectionProperty(Connection::class, 'stream'))->getValue($connection);
    stream_set_chunk_size($stream, (new ReflectionClassConstant(Connection::class, 'BUSY'))->getValue());
    fwrite($stream, Packer::pack([0, 5, 'acquire', ['api', $key, 1]]));
}

/** Calls with less and less memory, down to the call that dies of it. */
function callUntilMemoryEnds(Client $client, string $key, int $piece): void
{
    ini_set('memory_limit', '6M');
    $ballast = new SplFixedArray(100_000);
    for ($n = 0; true; $n++) {
        $ballast[$n] = str_repeat('x', $piece);
        if (memory_get_usage() > 5 << 20) {
            $client->acquire('api', $key);
        }
    }
}

function reason(Client $client): string
{
    try {
        return (string) $client->ping();
    } catch (Unavailable $e) {
        return $e->getMessage();
    }
}

$client = new Client($_SERVER['AGENT'] ?? getenv('AGENT'), (float) ($_GET['timeout'] ?? 5), $_GET['mode'] ?? 'allow');
$key = $_GET['key'] ?? 'k';
match ($_GET['do'] ?? 'ok') {
    'ok' => null,
    'reason' => exit(reason($client)),
    'exit' => [writeOnly(getenv('AGENT'), $key), exit()],
    'exception' => [writeOnly(getenv('AGENT'), $key), throw new RuntimeException()],
    'loop' => (static function () use ($client): void {
        set_time_limit(1);
        while (true) {
            $client->acquire('api', 'loop');
        }
    })(),
    'memory' => callUntilMemoryEnds($client, $key, (int) $_GET['piece']),
    'kill' => [writeOnly(getenv('AGENT'), $key), posix_kill(posix_getpid(), SIGKILL)],
    'hold-and-die' => [$permit = $client->hold('exports', 'permit:7'), str_repeat('x', strlen($key) << 30)],
};
$result = $client->acquire($_GET['limit'] ?? 'api', $key);
echo json_encode([
    'pid' => getmypid(),
    'limit' => $result->getLimit(),
    'allowed' => $result->isAllowed(),
    'degraded' => $result->isDegraded(),
], JSON_THROW_ON_ERROR);
