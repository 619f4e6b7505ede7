<?php

declare(strict_types=1);

namespace RlSidecar;

use Psr\Log\LoggerInterface;

/**
 * Says that the agent is away, in one line per ten seconds.
 *
 * PHP-FPM forgets all variables between two requests, and an application with a thousand
 * requests per second must not get a thousand lines. So the time of the last line is kept
 * in APCu, or, where that is not enabled, as the time of an empty file in the temporary folder.
 * A program of the command line remembers it by itself.
 *
 * @internal
 */
final class LogInterval
{
    private const SECONDS = 10;

    /** @var array<string, float> when the next line is due in this process, by path */
    private static array $due = [];

    public function __construct(private readonly string $path, private readonly ?LoggerInterface $logger)
    {
    }

    public function report(\Throwable $failure, OnUnavailable $mode): void
    {
        $now = hrtime(true) / 1e9;
        if ($now < (self::$due[$this->path] ?? 0)) {
            return;
        }
        self::$due[$this->path] = $now + self::SECONDS;
        if ($this->isFirst()) {
            $this->write("no decision from the rlsidecar agent, on_unavailable=$mode->value applies", $failure);
        }
    }

    /** Whether no other process of this user has written a line in the interval. */
    private function isFirst(): bool
    {
        if (function_exists('apcu_enabled') && apcu_enabled()) {
            return apcu_add("rlsidecar:logged:$this->path", true, self::SECONDS);
        }
        return PHP_SAPI === 'cli' || $this->isFirstByFile();
    }

    private function isFirstByFile(): bool
    {
        $user = function_exists('posix_geteuid') ? posix_geteuid() : getmyuid();
        $file = sys_get_temp_dir() . "/rlsidecar-$user-" . hash('crc32b', $this->path);
        set_error_handler(static fn (): bool => true);
        try {
            clearstatcache(true, $file);
            $last = @filemtime($file);
            @touch($file);
        } finally {
            restore_error_handler();
        }
        return $last === false || $last > time() || time() - $last >= self::SECONDS;
    }

    private function write(string $text, \Throwable $failure): void
    {
        if ($this->logger === null) {
            error_log("rlsidecar: $text: {$failure->getMessage()}");
            return;
        }
        $this->logger->warning("$text: {reason}", ['reason' => $failure->getMessage(), 'exception' => $failure]);
    }
}
