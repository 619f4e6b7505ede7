<?php

/**
 * What a decision costs: a call of the agent, against
 *
 *     ping    the same bytes sent by plain PHP to a bare echo in Go: nothing asked over a socket can be faster by much
 *     raw     the same bytes sent to the agent by plain PHP: what the client itself costs
 *     redis   phpredis that asks a token bucket in Lua
 *
 * All over Unix sockets. With opcache, as PHP-FPM has it:
 *
 *     php -d opcache.enable_cli=1 bench/compare.php [--agent=build/rlsidecar] [--rounds=7] [--calls=3000] [--seconds=1] [--processes=8]
 *
 * Latency is taken with both ends pinned to one CPU, throughput with all CPUs. The contestants
 * take turns within a round; what is printed is the median of the rounds, as JSON lines.
 */

declare(strict_types=1);

namespace RlSidecar\Bench;

use RlSidecar\Client;

require __DIR__ . '/../tests/autoload.php';

const REQUEST = "\x94\x00\x07\xa7acquire\x93\xa3api\xa7user:42\x01";

const BUCKET = <<<'LUA'
    local rate, capacity, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
    local t = redis.call('TIME')
    local now = t[1] * 1000 + t[2] / 1000
    local state = redis.call('HMGET', KEYS[1], 'level', 'at')
    local level, at = tonumber(state[1]) or capacity, tonumber(state[2]) or now
    level = math.min(capacity, level + math.max(0, now - at) * rate)
    local allowed = level >= cost
    if allowed then level = level - cost end
    redis.call('HSET', KEYS[1], 'level', level, 'at', now)
    redis.call('PEXPIRE', KEYS[1], math.ceil(capacity / rate) + 1000)
    return {allowed and 1 or 0, math.floor(level)}
    LUA;

const POLICIES = <<<'YAML'
    redis: {url: "unix://%s/redis"}
    admin: {listen: "127.0.0.1:0"}
    policies:
      api: {limit: 1000000000/second}
    YAML;

/** The servers that are asked, and how one call of each is made. */
final class Contestants
{
    /** @var array<string, resource> */
    private array $servers = [];

    public function __construct(private readonly string $folder, string $agent)
    {
        file_put_contents("$folder/c.yaml", sprintf(POLICIES, $folder));
        $this->start('redis', ['redis-server', '--port', '0', '--unixsocket', "$folder/redis", '--save', '']);
        $this->start('ping', [$agent, 'bench', 'echo', '--socket', "$folder/ping"]);
        $this->start('agent', [$agent, 'serve', '--config', "$folder/c.yaml", '--socket', "$folder/agent", '--log-level', 'warn']);
    }

    /** @return \Closure(string): void one call for a key */
    public function caller(string $what): \Closure
    {
        return match ($what) {
            'agent' => $this->agent(),
            'ping' => $this->ping(),
            'raw' => $this->raw(),
            'redis' => $this->redis(),
        };
    }

    /** @return list<int> */
    public function pids(): array
    {
        return array_map(static fn ($server): int => proc_get_status($server)['pid'], array_values($this->servers));
    }

    public function stop(): void
    {
        foreach (array_reverse($this->servers) as $server) {
            proc_terminate($server);
            proc_close($server);
        }
        array_map(unlink(...), glob("$this->folder/*") ?: []);
        rmdir($this->folder);
    }

    private function agent(): \Closure
    {
        $client = new Client("$this->folder/agent", timeout: 1.0, onUnavailable: 'raise');
        return static function (string $key) use ($client): void {
            $client->acquire('api', $key)->isAllowed() || throw new \RuntimeException('denied');
        };
    }

    private function ping(): \Closure
    {
        $stream = stream_socket_client("unix://$this->folder/ping");
        return static function () use ($stream): void {
            fwrite($stream, REQUEST);
            fread($stream, 8192) === REQUEST || throw new \RuntimeException('no echo');
        };
    }

    private function raw(): \Closure
    {
        $stream = stream_socket_client("unix://$this->folder/agent");
        return static function () use ($stream): void {
            fwrite($stream, REQUEST);
            str_starts_with((string) fread($stream, 8192), "\x94\x01\x07\xc0\x97\xc3") || throw new \RuntimeException('denied');
        };
    }

    private function redis(): \Closure
    {
        $redis = new \Redis();
        $redis->connect("$this->folder/redis");
        $script = $redis->script('load', BUCKET);
        return static function (string $key) use ($redis, $script): void {
            $redis->evalSha($script, ["bucket:$key", 1e6, 1e9, 1], 1)[0] === 1 || throw new \RuntimeException('denied');
        };
    }

    /** @param list<string> $command */
    private function start(string $name, array $command): void
    {
        $this->servers[$name] = proc_open($command, [1 => ['file', '/dev/null', 'w']], $pipes);
        for ($tries = 0; $tries < 1000; $tries++) {
            $socket = @stream_socket_client("unix://$this->folder/$name");
            if ($socket !== false) {
                return;
            }
            usleep(10_000);
        }
        throw new \RuntimeException("$name did not start");
    }
}

function pin(int $pid, string $cpus): void
{
    exec("taskset -acp $cpus $pid", $output, $status);
    $status === 0 || throw new \RuntimeException('taskset failed: ' . implode(' ', $output));
}

/** @return array{float, float} p50 and p99 in microseconds */
function latency(\Closure $call, int $calls): array
{
    $times = [];
    for ($i = -intdiv($calls, 10); $i < $calls; $i++) {
        $began = hrtime(true);
        $call('user:42');
        $times[$i] = hrtime(true) - $began;
    }
    $times = array_filter($times, static fn (int $i): bool => $i >= 0, ARRAY_FILTER_USE_KEY);
    sort($times);
    return [$times[intdiv($calls, 2)] / 1000, $times[intdiv($calls * 99, 100)] / 1000];
}

/** Calls per second of so many processes together. */
function throughput(Contestants $contestants, string $what, int $processes, float $seconds): float
{
    $pipes = $children = [];
    for ($i = 0; $i < $processes; $i++) {
        [$pipes[$i], $write] = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0);
        if (($children[] = pcntl_fork()) === 0) {
            fwrite($write, (string) countCalls($contestants->caller($what), "user:$i", $seconds));
            posix_kill(posix_getpid(), SIGKILL);
        }
        fclose($write);
    }
    $total = array_sum(array_map(static fn ($pipe): int => (int) stream_get_contents($pipe), $pipes));
    array_map(static fn (int $child): int => pcntl_waitpid($child, $status), $children);
    return $total / $seconds;
}

function countCalls(\Closure $call, string $key, float $seconds): int
{
    $call($key);
    $end = hrtime(true) + (int) ($seconds * 1e9);
    for ($calls = 0; hrtime(true) < $end; $calls++) {
        $call($key);
    }
    return $calls;
}

/** @param list<float> $values */
function median(array $values): float
{
    sort($values);
    return $values[intdiv(count($values), 2)];
}

/** @param array<string, mixed> $line */
function show(array $line): void
{
    echo json_encode(['lang' => 'php'] + $line, JSON_THROW_ON_ERROR | JSON_UNESCAPED_SLASHES), "\n";
}

function compareLatency(Contestants $contestants, int $rounds, int $calls): void
{
    foreach ([getmypid(), ...$contestants->pids()] as $pid) {
        pin($pid, '0');
    }
    $callers = [];
    foreach (['agent', 'ping', 'raw', 'redis'] as $what) {
        $callers[$what] = $contestants->caller($what);
    }
    $found = [];
    for ($round = 0; $round < $rounds; $round++) {
        foreach ($callers as $what => $call) {
            $found[$what][] = latency($call, $calls);
        }
    }
    $p50 = [];
    foreach ($found as $what => $pairs) {
        $p50[$what] = median(array_column($pairs, 0));
        show(['what' => $what, 'p50_us' => round($p50[$what], 1), 'p99_us' => round(median(array_column($pairs, 1)), 1)]);
    }
    show(['what' => 'p50 agent/ping', 'ratio' => round($p50['agent'] / $p50['ping'], 2)]);
    show(['what' => 'p50 agent/raw', 'ratio' => round($p50['agent'] / $p50['raw'], 2)]);
    show(['what' => 'p50 redis/agent', 'ratio' => round($p50['redis'] / $p50['agent'], 2)]);
}

function compareThroughput(Contestants $contestants, int $rounds, int $processes, float $seconds): void
{
    $last = (int) shell_exec('nproc --all') - 1;
    foreach ([getmypid(), ...$contestants->pids()] as $pid) {
        pin($pid, "0-$last");
    }
    $found = [];
    for ($round = 0; $round < $rounds; $round++) {
        foreach (['agent', 'ping', 'redis'] as $what) {
            $found[$what][] = throughput($contestants, $what, $processes, $seconds);
        }
    }
    foreach ($found as $what => $rates) {
        show(['what' => $what, 'processes' => $processes, 'per_second' => (int) median($rates)]);
    }
    $ratio = round(median($found['agent']) / median($found['redis']), 2);
    show(['what' => 'throughput agent/redis', 'processes' => $processes, 'ratio' => $ratio]);
}

$options = getopt('', ['agent:', 'rounds:', 'calls:', 'seconds:', 'processes:']) + [
    'agent' => __DIR__ . '/../../../build/rlsidecar', 'rounds' => 7, 'calls' => 3000, 'seconds' => 1, 'processes' => 8,
];
$folder = sys_get_temp_dir() . '/rls-' . bin2hex(random_bytes(4));
mkdir($folder, 0700);
$contestants = new Contestants($folder, $options['agent']);
try {
    compareLatency($contestants, (int) $options['rounds'], (int) $options['calls']);
    compareThroughput($contestants, (int) $options['rounds'], (int) $options['processes'], (float) $options['seconds']);
} finally {
    $contestants->stop();
}
