<?php

/**
 * A scripted agent, in a process of its own. What it does with a call is written in the call's key:
 *
 *     late:MS:...   replies after so many milliseconds
 *     twice:...     replies twice, in one segment
 *     close:...     closes the connection without a reply
 *     error:CODE    replies with this error
 *     permit:N      allows, with the permit N
 *     deny:MS       denies, to be tried again after so many milliseconds
 *
 * Any other call is allowed. The limit in each decision is the crc32 of the key, by which a caller
 * knows its own reply. `info` tells what was asked so far.
 *
 *     php fake-agent.php SOCKET
 */

declare(strict_types=1);

namespace RlSidecar\Tests;

use RlSidecar\Wire\Incomplete;
use RlSidecar\Wire\Packer;
use RlSidecar\Wire\Unpacker;

require __DIR__ . '/autoload.php';

final class ScriptedAgent
{
    /** @var array<int, resource> */
    private array $peers = [];
    /** @var array<int, string> what came in and is no whole message yet */
    private array $in = [];
    /** @var list<array{int, int, string}> due on hrtime, peer, bytes */
    private array $due = [];
    private int $connections = 0;
    /** @var list<array{int, string, mixed}> connection, method, parameters */
    private array $asked = [];

    /** @param resource $listener */
    public function __construct(private $listener)
    {
    }

    public function run(): void
    {
        while (true) {
            $read = ['listener' => $this->listener] + $this->peers;
            $write = $except = [];
            stream_select($read, $write, $except, 0, $this->due === [] ? 200_000 : 1000);
            foreach ($read as $id => $stream) {
                $id === 'listener' ? $this->accept() : $this->read($id);
            }
            $this->sendWhatIsDue();
        }
    }

    private function accept(): void
    {
        $stream = stream_socket_accept($this->listener, 0);
        if ($stream !== false) {
            $this->peers[++$this->connections] = $stream;
            $this->in[$this->connections] = '';
        }
    }

    private function read(int $peer): void
    {
        $bytes = fread($this->peers[$peer], 65536);
        if ($bytes === '' || $bytes === false) {
            $this->close($peer);
            return;
        }
        $this->in[$peer] .= $bytes;
        try {
            while (isset($this->peers[$peer]) && $this->in[$peer] !== '') {
                $unpacker = new Unpacker($this->in[$peer]);
                [, $msgid, $method, $params] = $unpacker->next();
                $this->in[$peer] = substr($this->in[$peer], $unpacker->position());
                $this->answer($peer, $msgid, $method, $params);
            }
        } catch (Incomplete) {
        }
    }

    private function answer(int $peer, int $msgid, string $method, array $params): void
    {
        $told = ['connections' => $this->connections, 'open' => count($this->peers), 'asked' => array_slice($this->asked, -100)];
        $this->asked[] = [$peer, $method, $params];
        $result = match ($method) {
            'ping' => 'pong',
            'info' => $told,
            'acquire', 'peek' => $this->decide($peer, $msgid, (string) $params[1]),
            'acquire_all' => [true, array_map(fn (array $item): array => self::decision($item[1]), $params[0])],
            'throttle' => [0, 16, 15, -1, 2],
            default => true,
        };
        if ($result !== null) {
            $this->reply($peer, $msgid, null, $result);
        }
    }

    private function decide(int $peer, int $msgid, string $key): ?array
    {
        [$what, $number] = explode(':', $key) + ['', '0'];
        $decision = self::decision($key);
        $both = Packer::pack([1, $msgid, null, $decision]);
        match ($what) {
            'late' => $this->due[] = [hrtime(true) + (int) $number * 1_000_000, $peer, $both],
            'twice' => $this->due[] = [0, $peer, $both . $both],
            'close' => $this->close($peer),
            'error' => $this->reply($peer, $msgid, [(int) $number, "error $number"], null),
            'permit' => $this->reply($peer, $msgid, null, [...$decision, (int) $number]),
            'deny' => $this->reply($peer, $msgid, null, [false, 10, 0, 1000, (int) $number, 2, 0]),
            default => $this->reply($peer, $msgid, null, $decision),
        };
        return null;
    }

    private static function decision(string $key): array
    {
        return [true, crc32($key), 0, 0, 0, 0, 0];
    }

    private function reply(int $peer, int $msgid, mixed $error, mixed $result): void
    {
        fwrite($this->peers[$peer], Packer::pack([1, $msgid, $error, $result]));
    }

    private function sendWhatIsDue(): void
    {
        foreach ($this->due as $i => [$at, $peer, $bytes]) {
            if (hrtime(true) >= $at) {
                unset($this->due[$i]);
                isset($this->peers[$peer]) && @fwrite($this->peers[$peer], $bytes);
            }
        }
    }

    private function close(int $peer): void
    {
        fclose($this->peers[$peer]);
        unset($this->peers[$peer], $this->in[$peer]);
    }
}

$listener = stream_socket_server("unix://$argv[1]", $error, $text);
$listener !== false || throw new \RuntimeException($text);
(new ScriptedAgent($listener))->run();
