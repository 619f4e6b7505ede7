<?php

/**
 * Finds the classes of this package and of its tests where Composer has not been run, and the
 * interfaces and frameworks where Debian's packages put them.
 */

declare(strict_types=1);

spl_autoload_register(static function (string $class): void {
    foreach (['RlSidecar\\Tests\\' => __DIR__, 'RlSidecar\\' => __DIR__ . '/../src'] as $prefix => $folder) {
        if (str_starts_with($class, $prefix)) {
            $file = $folder . '/' . str_replace('\\', '/', substr($class, strlen($prefix))) . '.php';
            if (is_file($file)) {
                require $file;
            }
            return;
        }
    }
});

foreach (['Psr/Log'] as $package) {
    @include_once "$package/autoload.php";
}
