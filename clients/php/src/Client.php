<?php

declare(strict_types=1);

namespace RlSidecar;

use Psr\Log\LoggerInterface;
use RlSidecar\Exception\InvalidRequest;
use RlSidecar\Exception\RateLimited;
use RlSidecar\Exception\RlSidecarException;
use RlSidecar\Exception\Unavailable;
use RlSidecar\Transport\Connection;
use RlSidecar\Transport\Lost;
use RlSidecar\Transport\Pool;
use RlSidecar\Wire\Replies;

/**
 * Asks the agent on this host whether a call may go through.
 *
 * A limit is the name of a policy, a Limit, or a text like "10/minute". A key has 1 to 1024
 * bytes, a cost is 1 to 2^53-1, all times are in seconds. With $wait the agent may hold the
 * answer so long, up to 60 s, for permits to come, and the call may take $wait + $timeout.
 *
 * Every call throws InvalidRequest, UnknownPolicy or NotPermitted when the question itself is
 * wrong, and Unavailable in mode "raise" only.
 */
final class Client
{
    private readonly Pool $pool;
    private readonly float $timeout;
    private readonly OnUnavailable $onUnavailable;
    /** @var array{}|array{array{app: string}} the options of a call that has none of its own */
    private readonly array $always;
    private readonly bool $disabled;
    private readonly LogInterval $log;
    private readonly Fallback $fallback;
    /** @var \Closure(mixed): Result */
    private readonly \Closure $decision;

    /**
     * Does not connect: a missing agent is noticed by the first call.
     *
     * @param string|null               $address       `unix:///path` or a path, up to 107 bytes; default
     *                                                 RLSIDECAR_ADDRESS, then unix:///run/rlsidecar/rlsidecar.sock
     * @param float|null                $timeout       seconds a whole call may take, connecting included, up to an
     *                                                 hour; default RLSIDECAR_TIMEOUT_MS, then 0.05
     * @param OnUnavailable|string|null $onUnavailable what a call that gets no decision does: allow, deny, local
     *                                                 or raise; default RLSIDECAR_ON_UNAVAILABLE, then allow
     * @param string|null               $app           the name of the calling application, where the operator
     *                                                 lets callers say so; default RLSIDECAR_APP, then none
     * @param array<string, string|Limit> $localLimits what to keep in mode local for the agent's policies, by
     *                                                 name; those left out are allowed
     * @param LoggerInterface|null      $logger        gets a warning per ten seconds while the agent is away;
     *                                                 default error_log
     * @param bool                      $persistent    whether the connection outlives the request
     *
     * @throws InvalidRequest for a value that cannot be
     */
    public function __construct(
        ?string $address = null,
        ?float $timeout = null,
        OnUnavailable|string|null $onUnavailable = null,
        ?string $app = null,
        array $localLimits = [],
        ?LoggerInterface $logger = null,
        bool $persistent = true,
    ) {
        $path = Settings::path($address);
        $this->timeout = Settings::timeout($timeout);
        $this->onUnavailable = Settings::onUnavailable($onUnavailable);
        $app = Settings::app($app);
        $this->always = $app === null ? [] : [['app' => $app]];
        $this->disabled = Settings::isDisabled();
        $mode = $this->disabled ? OnUnavailable::Allow : $this->onUnavailable;
        $this->fallback = new Fallback($mode, Settings::localLimits($localLimits));
        $this->log = new LogInterval($path, $logger);
        $this->pool = Pool::of($path, $persistent);
        $this->decision = Replies::decision(...);
    }

    /**
     * Takes $cost permits if they are there. A denial is returned, never thrown.
     *
     * @throws RlSidecarException
     */
    public function acquire(
        string|Limit $limit,
        string $key,
        int $cost = 1,
        float $wait = 0,
        ?float $timeout = null,
    ): Result {
        $limit = Arguments::limit($limit);
        $params = [self::wire($limit), Arguments::key($key), Arguments::cost($cost), ...$this->options($wait)];
        $otherwise = fn (): Result => $this->fallback->acquire($limit, $key, $cost);
        return $this->ask('acquire', $params, $this->budget($timeout) + $wait, $this->decision, $otherwise);
    }

    /**
     * Takes from all of 1 to 32 [limit, key] or [limit, key, cost], or from none.
     *
     * @param array<array{0: string|Limit, 1: string, 2?: int}> $items
     *
     * @throws RlSidecarException
     */
    public function acquireAll(array $items, float $wait = 0, ?float $timeout = null): AllResult
    {
        $items = Arguments::items($items);
        $asked = array_map(static fn (array $item): array => [self::wire($item[0]), $item[1], $item[2]], $items);
        $params = [$asked, ...$this->options($wait)];
        $otherwise = fn (): AllResult => $this->fallback->acquireAll($items);
        $decode = Replies::all(count($items));
        return $this->ask('acquire_all', $params, $this->budget($timeout) + $wait, $decode, $otherwise);
    }

    /**
     * Takes permits of a concurrency limit, until release() of the Permit, or until no variable has it.
     *
     *     $permit = $client->hold('exports', $user, wait: 2.0);
     *     try {
     *         export();
     *     } finally {
     *         $permit->release();
     *     }
     *
     * Without an agent, on_unavailable says whether to go on without a permit.
     *
     * @throws RateLimited        when there is no permit within $wait seconds
     * @throws RlSidecarException
     */
    public function hold(
        string|Limit $limit,
        string $key,
        int $cost = 1,
        float $wait = 0,
        ?float $timeout = null,
    ): Permit {
        $limit = Arguments::limit($limit);
        $params = [self::wire($limit), Arguments::key($key), Arguments::cost($cost), ...$this->options($wait)];
        $budget = $this->budget($timeout);
        $own = null;
        $otherwise = fn (): Result => $this->fallback->acquire($limit, $key, $cost);
        $open = function (int $deadline) use (&$own): Connection {
            return $own = $this->pool->own($deadline);
        };
        $result = $this->ask('acquire', $params, $budget + $wait, $this->decision, $otherwise, $open);
        if (!$result->isAllowed()) {
            $own?->close();
        }
        return $this->permit($result->ensureAccepted(), $own, $budget);
    }

    /**
     * Gives back the permit of a result. A Permit of hold has a release of its own.
     *
     * @return bool false: it was not held any more, the agent was not reached, or the permit is null,
     *              as in a result that took none
     *
     * @throws RlSidecarException
     */
    public function release(?int $permit, ?float $timeout = null): bool
    {
        $budget = $this->budget($timeout);
        return $permit !== null && $this->do('release', [Arguments::number('permit', $permit, 1)], $budget);
    }

    /**
     * What acquire would say, without taking anything. The cost may be 0.
     *
     * @throws RlSidecarException
     */
    public function peek(string|Limit $limit, string $key, int $cost = 1, ?float $timeout = null): Result
    {
        $limit = Arguments::limit($limit);
        $params = [self::wire($limit), Arguments::key($key), Arguments::cost($cost, 0), ...$this->options()];
        $otherwise = fn (): Result => $this->fallback->peek($limit, $key, $cost);
        return $this->ask('peek', $params, $this->budget($timeout), $this->decision, $otherwise);
    }

    /**
     * Gives permits back, never above the capacity. False: the agent was not reached.
     *
     * @throws RlSidecarException
     */
    public function refund(string|Limit $limit, string $key, int $cost = 1, ?float $timeout = null): bool
    {
        $limit = self::wire(Arguments::limit($limit));
        $params = [$limit, Arguments::key($key), Arguments::cost($cost), ...$this->options()];
        return $this->do('refund', $params, $this->budget($timeout));
    }

    /**
     * Starts the bucket afresh, on every host. False: the agent was not reached.
     *
     * @throws RlSidecarException
     */
    public function reset(string|Limit $limit, string $key, ?float $timeout = null): bool
    {
        $options = $this->options();
        $params = [self::wire(Arguments::limit($limit)), Arguments::key($key)];
        return $this->do('reset', $options === [] ? $params : [...$params, 1, ...$options], $this->budget($timeout));
    }

    /**
     * redis-cell's CL.THROTTLE: $count per $period seconds, and $maxBurst on top.
     *
     * @throws RlSidecarException
     */
    public function throttle(
        string $key,
        int $maxBurst,
        int $count,
        int $period,
        int $quantity = 1,
        ?float $timeout = null,
    ): ThrottleReply {
        $params = [
            Arguments::key($key),
            Arguments::number('maxBurst', $maxBurst, 0),
            Arguments::number('count', $count, 1),
            Arguments::number('period', $period, 1),
            Arguments::number('quantity', $quantity, 0),
        ];
        $otherwise = fn (): ThrottleReply => $this->fallback->throttle(...$params);
        return $this->ask('throttle', $params, $this->budget($timeout), Replies::throttle(...), $otherwise);
    }

    /**
     * The agent about itself. Throws Unavailable in every mode: there is no other answer.
     *
     * @return array<string, mixed>
     *
     * @throws RlSidecarException
     */
    public function info(?float $timeout = null): array
    {
        return $this->plainly('info', $timeout, Replies::info(...));
    }

    /**
     * True when the agent answers. Throws Unavailable in every mode when it does not.
     *
     * @throws RlSidecarException
     */
    public function ping(?float $timeout = null): bool
    {
        return $this->plainly('ping', $timeout, Replies::pong(...));
    }

    /** Closes the idle connections of this process to the socket. A call made after it connects again. */
    public function close(): void
    {
        $this->pool->closeIdle();
    }

    /**
     * Asks the agent; having no answer, does what on_unavailable says, for every method alike.
     *
     * @template T
     *
     * @param list<mixed>                     $params
     * @param float                           $budget    seconds
     * @param callable(mixed): T              $decode
     * @param callable(): T                   $otherwise
     * @param (callable(int): Connection)|null $open     opens what to ask over instead of the pool's
     *
     * @return T
     */
    private function ask(
        string $method,
        array $params,
        float $budget,
        callable $decode,
        callable $otherwise,
        ?callable $open = null,
    ): mixed {
        if ($this->disabled) {
            return $otherwise();
        }
        try {
            $deadline = self::deadline($budget);
            return $open === null
                ? $this->pool->call($method, $params, $deadline, $decode)
                : $this->pool->callOver($open($deadline), $method, $params, $deadline, $decode);
        } catch (Unavailable $failure) {
            $this->log->report($failure, $this->onUnavailable);
            return $this->onUnavailable === OnUnavailable::Raise ? throw $failure : $otherwise();
        }
    }

    /** @param list<mixed> $params */
    private function do(string $method, array $params, float $budget): bool
    {
        return $this->ask($method, $params, $budget, Replies::truth(...), static fn (): bool => false);
    }

    private function plainly(string $method, ?float $timeout, callable $decode): mixed
    {
        if ($this->disabled) {
            throw new Unavailable('switched off by RLSIDECAR_DISABLE');
        }
        return $this->pool->call($method, [], self::deadline($this->budget($timeout)), $decode);
    }

    private function permit(Result $result, ?Connection $own, float $budget): Permit
    {
        $number = $result->getPermit();
        if ($number === null) {
            $own?->close();
            $own = null;
        }
        return new Permit($result, $own, fn (Connection $kept): bool => $this->releaseOver($kept, $number, $budget));
    }

    /** Ends a hold over the connection that was set aside for it, or another one should that be dead. */
    private function releaseOver(Connection $kept, ?int $permit, float $budget): bool
    {
        $deadline = self::deadline($budget);
        try {
            try {
                return $this->pool->callOver($kept, 'release', [$permit], $deadline, Replies::truth(...));
            } catch (Lost) {
                return $this->pool->call('release', [$permit], $deadline, Replies::truth(...));
            }
        } catch (RlSidecarException $failure) {
            $this->log->report($failure, $this->onUnavailable);
            return false;
        } finally {
            $kept->close();
        }
    }

    private static function deadline(float $seconds): int
    {
        return hrtime(true) + (int) ($seconds * 1e9);
    }

    private function budget(?float $timeout): float
    {
        return $timeout === null ? $this->timeout : Arguments::timeout($timeout);
    }

    /** @return list<int|string>|string */
    private static function wire(string|Limit $limit): array|string
    {
        return is_string($limit) ? $limit : $limit->onTheWire();
    }

    /** @return array{}|array{array<string, int|string>} the options of a call as its last parameter, if it has any */
    private function options(float $wait = 0): array
    {
        if ($wait === 0.0) {
            return $this->always;
        }
        return [($this->always[0] ?? []) + ['wait_ms' => Arguments::wait($wait)]];
    }
}
