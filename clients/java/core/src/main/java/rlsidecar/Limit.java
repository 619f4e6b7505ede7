package rlsidecar;

import java.time.Duration;
import java.util.Arrays;
import java.util.Optional;

/**
 * A limit that the caller brings along, instead of the name of a policy: so many permits per period.
 * Immutable; build it once and share it.
 *
 * <pre>{@code
 * Limit.perMinute(60)                                       // 60 per minute, at most 60 at once
 * Limit.perMinute(60).burst(10)                             // 60 per minute, at most 10 at once
 * Limit.per(5, Duration.ofSeconds(10)).algorithm(Algorithm.SLIDING_WINDOW)
 * Limit.concurrency(3, Duration.ofMinutes(10))              // three at once, 10 minutes each at most
 * Limit.parse("10/minute")
 * }</pre>
 *
 * <p>Numbers are 1 to 2^53-1 and periods whole milliseconds, else {@link InvalidRequestException}; the
 * agent has narrower ranges of its own and answers with the same exception.
 */
public final class Limit {
  private static final int MAX_LOGGED = 10_000;

  private final long count;
  private final Duration period;
  private final long burst; // 0: not given
  private final Algorithm algorithm; // null: not given
  private final byte[] wire;

  private Limit(long count, Duration period, long burst, Algorithm algorithm) {
    this.count = Arguments.number("count", count, 1);
    this.period = checkPeriod(algorithm, period);
    this.burst = burst;
    this.algorithm = algorithm;
    checkAlgorithm();
    this.wire = pack();
  }

  /**
   * So many permits per period.
   *
   * @param count permits, 1 to 2^53-1
   * @param period whole milliseconds, at least one
   * @return a token bucket that holds {@code count}
   */
  public static Limit per(long count, Duration period) {
    return new Limit(count, period, 0, null);
  }

  /**
   * So many permits per second.
   *
   * @param count permits, 1 to 2^53-1
   * @return a token bucket that holds {@code count}
   */
  public static Limit perSecond(long count) {
    return per(count, Duration.ofSeconds(1));
  }

  /**
   * So many permits per minute.
   *
   * @param count permits, 1 to 2^53-1
   * @return a token bucket that holds {@code count}
   */
  public static Limit perMinute(long count) {
    return per(count, Duration.ofMinutes(1));
  }

  /**
   * So many permits per hour.
   *
   * @param count permits, 1 to 2^53-1
   * @return a token bucket that holds {@code count}
   */
  public static Limit perHour(long count) {
    return per(count, Duration.ofHours(1));
  }

  /**
   * So many permits per day.
   *
   * @param count permits, 1 to 2^53-1
   * @return a token bucket that holds {@code count}
   */
  public static Limit perDay(long count) {
    return per(count, Duration.ofDays(1));
  }

  /**
   * So many permits held at once.
   *
   * @param count permits, 1 to 2^53-1
   * @param maxHold after which a permit is taken back; whole milliseconds, at least one
   * @return a concurrency limit
   */
  public static Limit concurrency(long count, Duration maxHold) {
    return new Limit(count, maxHold, 0, Algorithm.CONCURRENCY);
  }

  /**
   * The limit that a text states: a number, a slash, a period, and nothing else, like {@code
   * "10/minute"}, {@code "1_000/2 hours"}, {@code "5/250ms"}. Units are {@code ms s m h d}, {@code sec
   * min} and {@code millisecond second minute hour day}, with or without {@code s}.
   *
   * @param text the limit
   * @return a token bucket
   */
  public static Limit parse(String text) {
    return LimitText.parse(text)
        .orElseThrow(
            () -> new InvalidRequestException("limit '" + text + "': write one like 10/minute or 5/250ms"));
  }

  /**
   * The limit that a text states, if it states one, as for {@link #parse}.
   *
   * @param text a limit, or the name of a policy
   * @return empty: it is the name of a policy
   */
  public static Optional<Limit> ifStated(String text) {
    return LimitText.parse(text);
  }

  /**
   * The same limit with another capacity, which is {@code count} otherwise. Only a token bucket and a
   * leaky bucket have one.
   *
   * @param permits the most that can be taken at once, 1 to 2^53-1
   * @return a new limit
   */
  public Limit burst(long permits) {
    return new Limit(count, period, Arguments.number("burst", permits, 1), algorithm);
  }

  /**
   * The same limit with another algorithm.
   *
   * @param other any but {@link Algorithm#CONCURRENCY}, for which there is {@link #concurrency}
   * @return a new limit
   */
  public Limit algorithm(Algorithm other) {
    if ((other == Algorithm.CONCURRENCY) != (algorithm == Algorithm.CONCURRENCY)) {
      throw new InvalidRequestException("algorithm " + other + ": write Limit.concurrency(count, maxHold)");
    }
    return new Limit(count, period, burst, other);
  }

  /**
   * The most that one call can take.
   *
   * @return permits
   */
  public long capacity() {
    return burst == 0 ? count : burst;
  }

  /**
   * The time in which {@code count} permits come back, or after which held ones are taken back.
   *
   * @return whole milliseconds
   */
  public Duration period() {
    return period;
  }

  byte[] wire() {
    return wire;
  }

  boolean isConcurrency() {
    return algorithm == Algorithm.CONCURRENCY;
  }

  /** The time in which one permit comes back. */
  double nanosPerPermit() {
    return period.toMillis() * 1e6 / count;
  }

  private byte[] pack() {
    int items = algorithm != null ? 4 : burst != 0 ? 3 : 2;
    Packer packer = new Packer(48).array(items).number(count).number(period.toMillis());
    if (items > 2) {
      packer.number(burst);
    }
    if (items > 3) {
      packer.text(algorithm.wireName());
    }
    return packer.toBytes();
  }

  private void checkAlgorithm() {
    if (algorithm == null) {
      return;
    }
    if (burst != 0 && !algorithm.hasBurst()) {
      throw new InvalidRequestException(
          "burst " + burst + ": a " + algorithm.wireName() + " has none, leave it out");
    }
    if (algorithm == Algorithm.SLIDING_LOG && count > MAX_LOGGED) {
      throw new InvalidRequestException(
          "count " + count + ": a sliding_log allows 1 to " + MAX_LOGGED
              + "; a sliding_window has no such bound");
    }
  }

  private static Duration checkPeriod(Algorithm algorithm, Duration period) {
    boolean isWhole = period.getNano() % 1_000_000 == 0;
    if (period.isNegative() || period.isZero() || !isWhole || period.getSeconds() > Arguments.MAX_NUMBER / 1000) {
      String name = algorithm == Algorithm.CONCURRENCY ? "maxHold" : "period";
      throw new InvalidRequestException(name + " " + period + ": must be whole milliseconds, at least one");
    }
    return period;
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof Limit && Arrays.equals(wire, ((Limit) other).wire);
  }

  @Override
  public int hashCode() {
    return Arrays.hashCode(wire);
  }

  @Override
  public String toString() {
    return count + "/" + period.toMillis() + "ms"
        + (burst == 0 ? "" : " burst " + burst)
        + (algorithm == null ? "" : " " + algorithm.wireName());
  }
}
