<?php

declare(strict_types=1);

namespace RlSidecar\Tests;

/**
 * PHP-FPM with one child and a persistent connection: a request that dies in a call (C-18) must not
 * leave its reply to the next.
 */
final class FpmTest extends TestCase
{
    private string $agent;
    private FastCgi $web;

    protected function setUp(): void
    {
        parent::setUp();
        $this->agent = $this->fakeAgent();
        $this->web = $this->fpm($this->agent);
    }

    private function fpm(string $agent, string ...$options): FastCgi
    {
        $socket = "$this->folder/fpm-for-" . basename($agent);
        $user = posix_geteuid() === 0 ? "user = root\ngroup = root\n" : '';
        file_put_contents("$this->folder/fpm.conf", <<<INI
            [global]
            error_log = /dev/null
            daemonize = no
            [www]
            {$user}listen = $socket
            pm = static
            pm.max_children = 1
            env[AGENT] = $agent
            php_admin_value[error_log] = $this->folder/php.log
            php_admin_value[sys_temp_dir] = $this->folder
            php_admin_flag[log_errors] = on
            php_admin_flag[display_errors] = off
            catch_workers_output = no
            INI);
        $command = [self::binary(), '-F', '-y', "$this->folder/fpm.conf", ...$options];
        $this->started(new Process([...$command, ...(posix_geteuid() === 0 ? ['-R'] : [])], $socket));
        return new FastCgi($socket);
    }

    private static function binary(): string
    {
        $version = PHP_MAJOR_VERSION . '.' . PHP_MINOR_VERSION;
        foreach (["/usr/sbin/php-fpm$version", '/usr/sbin/php-fpm', '/usr/local/sbin/php-fpm'] as $path) {
            if (is_executable($path)) {
                return $path;
            }
        }
        throw new \RuntimeException('php-fpm is missing: install the package php-fpm');
    }

    private function ask(array $query = []): string
    {
        return $this->web->get(__DIR__ . '/fpm-app.php', $query)[1];
    }

    /** @return array<string, mixed> */
    private function assertRight(string $key, string $why = ''): array
    {
        $body = $this->ask(['key' => $key]);
        $told = json_decode($body, true);
        self::assertIsArray($told, "$why: $body");
        self::assertSame([crc32($key), true, false], [$told['limit'], $told['allowed'], $told['degraded']], $why);
        return $told;
    }

    private function connections(): int
    {
        return self::client($this->agent)->info()['connections'];
    }

    public function testTheConnectionOutlivesTheRequest(): void
    {
        $first = $this->assertRight('first');
        $before = $this->connections();
        for ($i = 0; $i < 20; $i++) {
            self::assertSame($first['pid'], $this->assertRight("k$i")['pid']);
        }
        self::assertSame($before, $this->connections());
    }

    /**
     * @dataProvider deaths
     * @param array<string, string> $query
     */
    public function testC18ARequestThatDiesInACall(array $query): void
    {
        $pid = $this->assertRight('before')['pid'];
        for ($i = 0; $i < 3; $i++) {
            self::assertSame('', $this->ask($query));
            $after = $this->assertRight("after $i", json_encode($query, JSON_THROW_ON_ERROR));
            if ($query['do'] !== 'kill') {
                self::assertSame($pid, $after['pid'], 'another child answered: nothing was tested');
            }
            usleep(100_000);
            $this->assertRight("later $i");
        }
    }

    public static function deaths(): array
    {
        $deaths = [];
        foreach (['exit', 'exception', 'kill'] as $how) {
            $deaths["$how, the reply is there"] = [['do' => $how, 'key' => 'lost']];
            $deaths["$how, the reply comes later"] = [['do' => $how, 'key' => 'late:60:lost']];
        }
        return $deaths;
    }

    public function testC18MaxExecutionTime(): void
    {
        $pid = $this->assertRight('before')['pid'];
        for ($i = 0; $i < 2; $i++) {
            $this->ask(['do' => 'loop']);
            self::assertSame($pid, $this->assertRight("after $i")['pid']);
        }
        self::assertStringContainsString('Maximum execution time', (string) file_get_contents("$this->folder/php.log"));
    }

    public function testC18MemoryLimit(): void
    {
        $pid = $this->assertRight('before')['pid'];
        foreach (range(200, 3000, 200) as $piece) {
            $this->ask(['do' => 'memory', 'piece' => (string) $piece, 'key' => 'lost']);
            self::assertSame($pid, $this->assertRight("after $piece")['pid']);
        }
        $log = (string) file_get_contents("$this->folder/php.log");
        self::assertMatchesRegularExpression('~Allowed memory size.*/src/Transport/Connection.php~', $log);
    }

    public function testC18ATimeOut(): void
    {
        $this->assertRight('before');
        $told = json_decode($this->ask(['key' => 'late:60:a', 'timeout' => '0.01']), true);
        self::assertTrue($told['degraded']);
        $this->assertRight('after');
        usleep(100_000);
        $this->assertRight('later');
    }

    public function testC19TwoRepliesInOneSegment(): void
    {
        $this->assertRight('before');
        self::assertTrue(json_decode($this->ask(['key' => 'twice:a']), true)['degraded']);
        $this->assertRight('after');
    }

    public function testAPermitComesBackAfterAFatalError(): void
    {
        $this->ask(['do' => 'hold-and-die']);
        $asked = array_column(self::client($this->agent)->info()['asked'], 2, 1);
        self::assertSame([7], $asked['release'] ?? null);
    }

    /** @dataProvider withAndWithoutApcu */
    public function testOneLogLineForManyRequestsWithoutAnAgent(string $enabled): void
    {
        $this->web = $this->fpm("$this->folder/nobody", '-d', "apc.enabled=$enabled");
        for ($i = 0; $i < 20; $i++) {
            self::assertTrue(json_decode($this->ask(), true)['degraded']);
        }
        $log = (string) file_get_contents("$this->folder/php.log");
        self::assertSame(1, substr_count($log, 'no decision from the rlsidecar agent'), $log);
    }

    public static function withAndWithoutApcu(): array
    {
        return ['without APCu' => ['0'], 'with APCu' => ['1']];
    }

    public function testWithApcuALocalLimitOutlivesTheRequest(): void
    {
        $this->web = $this->fpm("$this->folder/nobody", '-d', 'apc.enabled=1');
        $allowed = [];
        for ($i = 0; $i < 4; $i++) {
            $allowed[] = json_decode($this->ask(['mode' => 'local', 'limit' => '2/hour']), true)['allowed'];
        }
        self::assertSame([true, true, false, false], $allowed);
    }

    public function testWithApcuTheBackOffOutlivesTheRequest(): void
    {
        $this->web = $this->fpm("$this->folder/nobody", '-d', 'apc.enabled=1');
        $reasons = [];
        for ($i = 0; $i < 100; $i++) {
            $reasons[] = $this->ask(['do' => 'reason']);
        }
        $notTried = preg_grep('~next try is due shortly~', $reasons);
        self::assertGreaterThan(30, count((array) $notTried), implode("\n", array_unique($reasons)));
        self::assertNotCount(100, (array) $notTried);
    }
}
