package rlsidecar;

import java.time.Duration;
import java.util.Optional;

/**
 * One call to be decided: a limit, a key, and what else there is to say about it. Immutable.
 *
 * <pre>{@code
 * client.tryAcquire(Call.of("exports", userId).cost(3).waitUpTo(Duration.ofSeconds(2)));
 * }</pre>
 *
 * <p>All methods throw {@link InvalidRequestException} for what is out of range.
 */
public final class Call {
  private final byte[] limit; // packed
  private final Limit own; // null: a policy of the agent
  private final byte[] key;
  private final boolean isBinary;
  private final long cost;
  private final Duration wait;
  private final Duration timeout; // null: the client's

  private Call(
      byte[] limit,
      Limit own,
      byte[] key,
      boolean isBinary,
      long cost,
      Duration wait,
      Duration timeout) {
    this.limit = limit;
    this.own = own;
    this.key = key;
    this.isBinary = isBinary;
    this.cost = cost;
    this.wait = wait;
    this.timeout = timeout;
  }

  /**
   * A call under a policy of the agent, or a limit written as text.
   *
   * @param limit the name of a policy, 1 to 128 bytes; or a limit like {@code "10/minute"}, see {@link
   *     Limit#parse}
   * @param key whose call it is, 1 to 1024 bytes in UTF-8
   * @return a call of cost 1 that does not wait
   */
  public static Call of(String limit, String key) {
    return of(limit, Arguments.key(key), false);
  }

  /**
   * A call under a policy of the agent, or a limit written as text, with a key of bytes.
   *
   * @param limit as for {@link #of(String, String)}
   * @param key 1 to 1024 bytes; a text and its UTF-8 bytes are the same key
   * @return a call of cost 1 that does not wait
   */
  public static Call of(String limit, byte[] key) {
    return of(limit, Arguments.key(key), true);
  }

  /**
   * A call under a limit of the caller's own.
   *
   * @param limit the limit
   * @param key whose call it is, 1 to 1024 bytes in UTF-8
   * @return a call of cost 1 that does not wait
   */
  public static Call of(Limit limit, String key) {
    return of(limit, Arguments.key(key), false);
  }

  /**
   * A call under a limit of the caller's own, with a key of bytes.
   *
   * @param limit the limit
   * @param key 1 to 1024 bytes; a text and its UTF-8 bytes are the same key
   * @return a call of cost 1 that does not wait
   */
  public static Call of(Limit limit, byte[] key) {
    return of(limit, Arguments.key(key), true);
  }

  private static Call of(String limit, byte[] key, boolean isBinary) {
    Optional<Limit> stated = LimitText.parse(limit);
    if (stated.isPresent()) {
      return of(stated.get(), key, isBinary);
    }
    byte[] name = Arguments.policy(limit);
    byte[] packed = new Packer(name.length + 2).text(name).toBytes();
    return new Call(packed, null, key, isBinary, 1, Duration.ZERO, null);
  }

  private static Call of(Limit limit, byte[] key, boolean isBinary) {
    return new Call(limit.wire(), limit, key, isBinary, 1, Duration.ZERO, null);
  }

  /**
   * The same call with another cost.
   *
   * @param permits 1 to 2^53-1; 0 in {@code peek} only
   * @return a new call
   */
  public Call cost(long permits) {
    return new Call(limit, own, key, isBinary, Arguments.number("cost", permits, 0), wait, timeout);
  }

  /**
   * The same call, for which the agent may hold back its answer until permits come. Whoever waits for
   * a bucket is served in the order of arrival. The call may then take this long and its timeout.
   *
   * @param longest 0 to 60 seconds; rounded up to milliseconds
   * @return a new call
   */
  public Call waitUpTo(Duration longest) {
    return new Call(limit, own, key, isBinary, cost, Arguments.wait(longest), timeout);
  }

  /**
   * The same call with a timeout of its own, instead of the client's.
   *
   * @param budget for the whole call, connecting included; more than 0, up to an hour
   * @return a new call
   */
  public Call timeout(Duration budget) {
    return new Call(limit, own, key, isBinary, cost, wait, Arguments.timeout(budget));
  }

  long cost() {
    return cost;
  }

  long costOfAtLeastOne() {
    return Arguments.number("cost", cost, 1);
  }

  /** The limit, where it is not a policy of the agent. */
  Optional<Limit> ownLimit() {
    return Optional.ofNullable(own);
  }

  byte[] key() {
    return key;
  }

  long waitMillis() {
    return (wait.toNanos() + 999_999) / 1_000_000;
  }

  Optional<Duration> timeout() {
    return Optional.ofNullable(timeout);
  }

  /** Writes limit and key. */
  void packBucket(Packer packer) {
    packer.raw(limit);
    if (isBinary) {
      packer.binary(key);
    } else {
      packer.text(key);
    }
  }
}
