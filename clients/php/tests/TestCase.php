<?php

declare(strict_types=1);

namespace RlSidecar\Tests;

use PHPUnit\Framework\TestCase as PhpUnit;
use RlSidecar\Client;
use RlSidecar\OnUnavailable;

/**
 * A folder for sockets, programs that end with the test, and an environment without our variables.
 */
abstract class TestCase extends PhpUnit
{
    protected string $folder;
    /** @var list<Process> */
    private array $processes = [];

    protected function setUp(): void
    {
        $this->folder = sys_get_temp_dir() . '/rls-' . bin2hex(random_bytes(5));
        mkdir($this->folder, 0755);
        foreach (['ADDRESS', 'TIMEOUT_MS', 'ON_UNAVAILABLE', 'DISABLE', 'APP'] as $name) {
            putenv("RLSIDECAR_$name");
        }
    }

    protected function tearDown(): void
    {
        foreach (array_reverse($this->processes) as $process) {
            $process->stop();
        }
        exec('rm -rf ' . escapeshellarg($this->folder));
    }

    protected function started(Process $process): Process
    {
        return $this->processes[] = $process;
    }

    /** The path of a scripted agent's socket. */
    protected function fakeAgent(): string
    {
        return $this->started(Process::fakeAgent("$this->folder/agent"))->socket;
    }

    protected static function client(string $socket, OnUnavailable $mode = OnUnavailable::Raise, float $timeout = 5): Client
    {
        return new Client($socket, $timeout, $mode);
    }

    protected static function assertOwn(string $key, \RlSidecar\Result $result): void
    {
        self::assertFalse($result->isDegraded(), "$key: degraded");
        self::assertSame(crc32($key), $result->getLimit(), "$key: got the reply to another call");
    }

    /**
     * What a piece of PHP prints in a process of its own; it finds the package and $argv[1] upwards.
     *
     * @return array{int, string} exit status and output
     */
    protected static function php(string $code, string ...$arguments): array
    {
        $code = 'require ' . var_export(__DIR__ . '/autoload.php', true) . ';' . $code;
        $command = array_map(escapeshellarg(...), [PHP_BINARY, '-d', 'display_errors=0', '-d', 'error_log=/dev/null', '-r', $code, ...$arguments]);
        exec(implode(' ', $command) . ' 2>&1', $output, $status);
        return [$status, implode("\n", $output)];
    }
}
