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

$packages = [
    'Psr/Log', 'Nyholm/Psr7', 'Psr/Http/Message', 'Symfony/Component/RateLimiter', 'Symfony/Component/HttpKernel',
    'Symfony/Component/EventDispatcher', 'Illuminate/Routing', 'Illuminate/Cache',
];
spl_autoload_register(static function (string $class) use ($packages): void {
    static $loaded = false;
    if (!$loaded && preg_match('~^(Psr|Nyholm|Symfony|Illuminate)\\\\~', $class) === 1) {
        $loaded = true;
        foreach ($packages as $package) {
            if (stream_resolve_include_path("$package/autoload.php") !== false) {
                require_once "$package/autoload.php";
            }
        }
        spl_autoload_call($class);
    }
});
