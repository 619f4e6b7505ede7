<?php

declare(strict_types=1);

namespace RlSidecar;

use RlSidecar\Transport\Connection;

/**
 * A permit of a concurrency limit, from Client::hold until release.
 *
 * It is released at the latest when the last variable that has it goes, and when the request
 * ends, by a fatal error too. The agent takes permits back by itself from a process that has
 * no connection any more, and from anybody after the limit's longest hold; so the permit keeps
 * a connection open that no call uses. After a fork it is the parent's alone.
 */
final class Permit
{
    /** @var array<int, \WeakReference<self>>|null by object id; null: nothing was ever held */
    private static ?array $held = null;

    private readonly int $pid;

    /**
     * @param \Closure(Connection): bool $giveBack
     *
     * @internal use Client::hold
     */
    public function __construct(
        private readonly Result $result,
        private ?Connection $kept,
        private readonly \Closure $giveBack,
    ) {
        $this->pid = (int) getmypid();
        if ($kept !== null) {
            self::remember($this);
        }
    }

    /**
     * What let the holder go on. Its permit is null when there is nothing to release: the key is
     * exempt, or nobody decided and on_unavailable allows (then it is degraded).
     */
    public function getResult(): Result
    {
        return $this->result;
    }

    /**
     * Gives the permit back; throws nothing.
     *
     * @return bool true: the agent took it. False: there was none any more, or the agent gave no
     *              answer and will take it back by itself
     */
    public function release(): bool
    {
        $kept = $this->kept;
        $this->kept = null;
        unset(self::$held[spl_object_id($this)]);
        if ($kept === null || $this->pid !== getmypid()) {
            return false;
        }
        return ($this->giveBack)($kept);
    }

    public function __destruct()
    {
        $this->release();
    }

    /** After a fatal error no destructor runs, but what is registered for the end of the request does. */
    private static function remember(self $permit): void
    {
        if (self::$held === null) {
            self::$held = [];
            register_shutdown_function(self::releaseAll(...));
        }
        self::$held[spl_object_id($permit)] = \WeakReference::create($permit);
    }

    private static function releaseAll(): void
    {
        foreach (self::$held ?? [] as $permit) {
            $permit->get()?->release();
        }
    }
}
