<?php

declare(strict_types=1);

namespace RlSidecar\Tests;

/**
 * What happens around a call in the process: signals, forks, calls within calls, many descriptors.
 */
final class ProcessTest extends TestCase
{
    private const CALLER = <<<'PHP'
        use RlSidecar\Client;
        function own(string $key, ?RlSidecar\Result $result): void {
            if ($result === null || $result->isDegraded() || $result->getLimit() !== crc32($key)) {
                echo "wrong for $key"; exit(1);
            }
        }
        $client = new Client($argv[1], 5, 'raise');
        PHP;

    public function testASignalHandlerThatThrowsInACall(): void
    {
        self::assertSame([0, 'thrown'], self::php(self::CALLER . <<<'PHP'
            pcntl_async_signals(true);
            pcntl_signal(SIGALRM, fn () => throw new DomainException());
            own('a', $client->acquire('api', 'a'));
            pcntl_alarm(1);
            try { $client->acquire('api', 'late:1500:b'); echo 'not '; } catch (DomainException) { echo 'thrown'; }
            own('c', $client->acquire('api', 'c'));
            usleep(700_000);
            own('d', $client->acquire('api', 'd'));
            PHP, $this->fakeAgent()));
    }

    public function testACallInASignalHandlerInACall(): void
    {
        self::assertSame([0, 'inner outer'], self::php(self::CALLER . <<<'PHP'
            pcntl_async_signals(true);
            pcntl_signal(SIGALRM, function () use ($client) { own('in', $client->acquire('api', 'in')); echo 'inner '; });
            pcntl_alarm(1);
            own('late:1500:out', $client->acquire('api', 'late:1500:out'));
            echo 'outer';
            own('after', $client->acquire('api', 'after'));
            PHP, $this->fakeAgent()));
    }

    public function testSignalsDoNotEndACallNorStretchItsBudget(): void
    {
        [$status, $output] = self::php(self::CALLER . <<<'PHP'
            pcntl_async_signals(true);
            pcntl_signal(SIGUSR1, fn () => null);
            $parent = getmypid();
            if (($child = pcntl_fork()) === 0) {
                for ($i = 0; $i < 200; $i++) { posix_kill($parent, SIGUSR1); usleep(5000); }
                posix_kill(getmypid(), SIGKILL);
            }
            own('late:200:a', $client->acquire('api', 'late:200:a'));
            $began = hrtime(true);
            try { $client->acquire('api', 'late:3000:b', timeout: 0.2); } catch (RlSidecar\Exception\AgentTimeout) {}
            echo hrtime(true) - $began < 1_500_000_000 ? 'in time' : 'late';
            posix_kill($child, SIGKILL);
            PHP, $this->fakeAgent());
        self::assertSame([0, 'in time'], [$status, $output]);
    }

    public function testC15BothSidesCallAfterAFork(): void
    {
        self::assertSame([0, 'child parent'], self::php(self::CALLER . <<<'PHP'
            own('before', $client->acquire('api', 'before'));
            $pid = pcntl_fork();
            $name = $pid === 0 ? 'child' : 'parent';
            for ($i = 0; $i < 1000; $i++) { own("$name$i", $client->acquire('api', "$name$i")); }
            if ($pid === 0) { echo 'child '; exit(0); }
            pcntl_waitpid($pid, $status);
            if ($status !== 0) { exit(2); }
            own('still there', $client->acquire('api', 'still there'));
            echo 'parent';
            PHP, $this->fakeAgent()));
    }

    public function testAChildDoesNotReleaseItsParentsPermit(): void
    {
        self::assertSame([0, 'false true'], self::php(self::CALLER . <<<'PHP'
            $permit = $client->hold('exports', 'permit:7');
            $pid = pcntl_fork();
            if ($pid === 0) { echo json_encode($permit->release()), ' '; exit(0); }
            pcntl_waitpid($pid, $status);
            echo json_encode($permit->release());
            PHP, $this->fakeAgent()));
    }

    /** @dataProvider ends */
    public function testAPermitIsReleasedHoweverTheProgramEnds(string $end): void
    {
        $socket = $this->fakeAgent();
        self::php(self::CALLER . '$permit = $client->hold("exports", "permit:7");' . $end, $socket);
        $asked = array_column(self::client($socket)->info()['asked'], 2, 1);
        self::assertSame([7], $asked['release'] ?? null);
    }

    public static function ends(): array
    {
        return [
            'end' => [''], 'exit' => ['exit(3);'], 'exception' => ['throw new Exception();'],
            'variable gone' => ['unset($permit); posix_kill(getmypid(), SIGKILL);'],
            'memory' => ['ini_set("memory_limit", "8M"); str_repeat("x", 1 << 25);'],
            'fatal' => ['ini_set("max_execution_time", "1"); set_time_limit(1); while (true);'],
        ];
    }

    /** select(2) cannot watch a descriptor above 1023. */
    public function testManyDescriptors(): void
    {
        [$status, $output] = self::php(self::CALLER . <<<'PHP'
            if (!posix_setrlimit(POSIX_RLIMIT_NOFILE, 4096, 4096)) { echo 'no limit'; exit(3); }
            for ($i = 0; $i < 1100; $i++) { $files[] = fopen('/dev/null', 'r'); }
            for ($i = 0; $i < 20; $i++) { own("k$i", $client->acquire('api', "k$i")); }
            own('late:30:a', $client->acquire('api', 'late:30:a'));
            $began = hrtime(true);
            for ($i = 0; $i < 20; $i++) { own("k$i", $client->acquire('api', "k$i", timeout: 1)); }
            echo hrtime(true) - $began < 10_000_000_000 ? 'in time' : 'late';
            PHP, $this->fakeAgent());
        self::assertSame([0, 'in time'], [$status, $output]);
    }

    public function testNoDescriptorToBeHad(): void
    {
        [$status, $output] = self::php(self::CALLER . <<<'PHP'
            class_exists(RlSidecar\Transport\Dialer::class); class_exists(RlSidecar\Exception\AgentNotRunning::class);
            class_exists(RlSidecar\Transport\Connection::class); class_exists(RlSidecar\Wire\Replies::class);
            class_exists(RlSidecar\Exception\Unavailable::class);
            while (($files[] = @fopen('/dev/null', 'r')) !== false);
            try { $client->ping(); } catch (RlSidecar\Exception\Unavailable $e) { echo get_class($e), ': ', $e->getMessage(); }
            PHP, $this->fakeAgent());
        self::assertSame(0, $status);
        self::assertStringContainsString('RlSidecar\Exception\Unavailable: cannot open a socket', $output);
    }

    public function testC10PermissionDenied(): void
    {
        $socket = $this->fakeAgent();
        chmod($socket, 0);
        [$status, $output] = self::php(<<<'PHP'
            array_map(class_exists(...), ['RlSidecar\Client', 'RlSidecar\Transport\Dialer', 'RlSidecar\Exception\AgentNotRunning']);
            if (posix_geteuid() === 0) { posix_setuid(65534); }
            $began = hrtime(true);
            try { (new RlSidecar\Client($argv[1], 5, 'raise'))->ping(); } catch (RlSidecar\Exception\AgentNotRunning $e) { echo $e->getMessage(); }
            if (hrtime(true) - $began > 2_000_000_000) { echo ' late'; }
            PHP, $socket);
        $expected = "permission denied on $socket: this user must be in the group of the agent's socket";
        self::assertSame([0, $expected], [$status, $output]);
    }

    public function testAFiberThatCallsWhileAnotherOneIsInACall(): void
    {
        self::assertSame([0, 'done'], self::php(self::CALLER . <<<'PHP'
            $fibers = [];
            foreach (['a', 'b', 'c'] as $key) {
                $fibers[] = $fiber = new Fiber(function () use ($client, $key) {
                    for ($i = 0; $i < 50; $i++) { own("$key$i", $client->acquire('api', "$key$i")); Fiber::suspend(); }
                });
                $fiber->start();
            }
            do {
                $running = array_filter($fibers, fn ($fiber) => !$fiber->isTerminated());
                array_map(fn ($fiber) => $fiber->resume(), $running);
            } while ($running !== []);
            echo 'done';
            PHP, $this->fakeAgent()));
    }
}
