<?php

declare(strict_types=1);

namespace RlSidecar\Tests;

/**
 * What a user installs.
 */
final class PackageTest extends TestCase
{
    private const PACKAGE = __DIR__ . '/..';

    /** @return array{int, string} */
    private function composer(string ...$arguments): array
    {
        $command = implode(' ', array_map(escapeshellarg(...), $arguments));
        $environment = "COMPOSER_ALLOW_SUPERUSER=1 COMPOSER_DISABLE_NETWORK=1 COMPOSER_HOME=$this->folder/home";
        exec("$environment composer --no-interaction $command 2>&1", $output, $status);
        return [$status, implode("\n", $output)];
    }

    public function testTheManifestIsValid(): void
    {
        [$status, $output] = $this->composer('validate', '--strict', self::PACKAGE . '/composer.json');
        self::assertSame(0, $status, $output);
    }

    public function testAnApplicationInstallsIt(): void
    {
        mkdir("$this->folder/app");
        file_put_contents("$this->folder/app/composer.json", json_encode([
            'repositories' => [
                ['type' => 'path', 'url' => realpath(self::PACKAGE), 'options' => ['symlink' => false]],
                ['packagist.org' => false],
            ],
            'require' => ['rlsidecar/rlsidecar' => '@dev'],
        ], JSON_THROW_ON_ERROR));
        [$status, $output] = $this->composer('install', '--working-dir', "$this->folder/app");
        self::assertSame(0, $status, $output);
        $code = 'require $argv[1]; echo (new RlSidecar\Client("/no/agent"))->acquire("10/minute", "k")->isDegraded();';
        $words = [PHP_BINARY, '-d', 'error_log=/dev/null', '-r', $code, "$this->folder/app/vendor/autoload.php"];
        self::assertSame('1', exec(implode(' ', array_map(escapeshellarg(...), $words))));
    }

    public function testTheFirstTenLinesOfTheReadmeRun(): void
    {
        preg_match('~```php\n(.*?)```~s', (string) file_get_contents(self::PACKAGE . '/README.md'), $found);
        $code = str_replace(['<?php', "require 'vendor/autoload.php';"], '', $found[1]);
        self::assertSame([0, ''], self::php('putenv("RLSIDECAR_ADDRESS=$argv[1]");' . $code, $this->fakeAgent()));
    }
}
