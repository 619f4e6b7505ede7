<?php

declare(strict_types=1);

namespace RlSidecar\Tests;

/**
 * A program that the tests have started, until stop.
 */
final class Process
{
    /** @var resource */
    private $process;

    /** @param list<string> $command */
    public function __construct(array $command, public readonly ?string $socket = null)
    {
        $this->process = proc_open($command, [['file', '/dev/null', 'r'], ['file', '/dev/null', 'w'], STDERR], $pipes);
        if ($socket !== null) {
            $this->awaitSocket($socket);
        }
    }

    public static function fakeAgent(string $socket): self
    {
        return new self([PHP_BINARY, __DIR__ . '/fake-agent.php', $socket], $socket);
    }

    /** The agent that RLSIDECAR_AGENT names, or the one built in the repository's build folder. */
    public static function agent(string $folder, string $policies): self
    {
        $binary = getenv('RLSIDECAR_AGENT') ?: __DIR__ . '/../../../build/rlsidecar';
        if (!is_executable($binary)) {
            throw new \RuntimeException("no agent at $binary: build it, and name it in RLSIDECAR_AGENT");
        }
        file_put_contents("$folder/c.yaml", $policies);
        $command = [$binary, 'serve', '--config', "$folder/c.yaml", '--socket', "$folder/agent", '--log-level', 'warn'];
        return new self($command, "$folder/agent");
    }

    public function pid(): int
    {
        return proc_get_status($this->process)['pid'];
    }

    public function stop(int $signal = SIGTERM): void
    {
        if (is_resource($this->process)) {
            proc_terminate($this->process, $signal);
            proc_close($this->process);
        }
    }

    private function awaitSocket(string $socket): void
    {
        $end = microtime(true) + 15;
        while (($stream = @stream_socket_client("unix://$socket")) === false) {
            if (microtime(true) > $end || !proc_get_status($this->process)['running']) {
                throw new \RuntimeException("nobody came to listen on $socket");
            }
            usleep(10_000);
        }
        fclose($stream);
    }
}
