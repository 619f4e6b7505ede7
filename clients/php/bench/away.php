<?php

/**
 * What a call costs while the agent is away, as a table in Markdown.
 *
 *     php -d opcache.enable_cli=1 bench/away.php
 *
 * A "first call" is one with no memory of calls before, as in a request of PHP-FPM without APCu.
 */

declare(strict_types=1);

namespace RlSidecar\Bench;

use RlSidecar\Client;
use RlSidecar\Tests\Process;
use RlSidecar\Transport\Pool;

require __DIR__ . '/../tests/autoload.php';

/** @return array{list<float>, list<float>} microseconds of first and of further calls */
function measure(string $socket, int $firsts, int $further): array
{
    for ($request = 0; $request < $firsts; $request++) {
        forget();
        $client = new Client($socket);
        $first[] = timed($client);
    }
    for ($call = 0; $call < $further; $call++) {
        $all[] = timed($client);
    }
    return [$first ?? [], $all ?? []];
}

/** What PHP-FPM does between two requests: the connections and the back-off are gone. */
function forget(): void
{
    (new \ReflectionProperty(Pool::class, 'pools'))->setValue(null, []);
}

function timed(Client $client): float
{
    $began = hrtime(true);
    $client->acquire('api', 'user:42');
    return (hrtime(true) - $began) / 1000;
}

/** @return list<float> microseconds of calls while the agent restarts over and over */
function whileItRestarts(string $socket): array
{
    $client = new Client($socket);
    for ($restart = 0; $restart < 5; $restart++) {
        $agent = Process::fakeAgent($socket);
        for ($end = hrtime(true) + 300_000_000; hrtime(true) < $end;) {
            $times[] = timed($client);
        }
        $agent->stop();
        unlink($socket);
    }
    return $times;
}

/** @param list<float> $times */
function cell(array $times): string
{
    sort($times);
    return $times === [] ? '-' : sprintf('%s / %s', human($times[intdiv(count($times), 2)]), human(end($times)));
}

function human(float $microseconds): string
{
    return $microseconds < 1000 ? sprintf('%.0f µs', $microseconds) : sprintf('%.1f ms', $microseconds / 1000);
}

function row(string ...$cells): void
{
    echo '| ', implode(' | ', $cells), " |\n";
}

ini_set('error_log', '/dev/null');
$folder = sys_get_temp_dir() . '/rls-' . bin2hex(random_bytes(4));
mkdir($folder, 0700);
(new Client("$folder/warm-up"))->acquire('api', 'k');

row('the agent', 'first call of a request, median / longest', 'further calls, median / longest');
row('---', '---', '---');
row('missing: no socket', ...array_map(cell(...), measure("$folder/missing", 1000, 1000)));
Process::fakeAgent("$folder/stale")->stop(SIGKILL);
row('stale: a socket that nobody listens on', ...array_map(cell(...), measure("$folder/stale", 1000, 1000)));
$hung = stream_socket_server("unix://$folder/hung", $e, $t, STREAM_SERVER_BIND | STREAM_SERVER_LISTEN, stream_context_create(['socket' => ['backlog' => 1000]]));
row('hung: accepts and never answers (timeout 50 ms)', ...array_map(cell(...), measure("$folder/hung", 20, 20)));
row('restarting every 0.3 s', '-', cell(whileItRestarts("$folder/restarting")));
array_map(unlink(...), glob("$folder/*") ?: []);
rmdir($folder);
