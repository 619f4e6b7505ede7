package rlsidecar;

import java.time.Duration;
import java.util.Optional;
import java.util.OptionalLong;

/** The answer to one call. Immutable. */
public final class Decision {
  private static final long NEVER = -1;
  private static final long TRY_AGAIN_MS = 1000;

  private final boolean allowed;
  private final long limit;
  private final long remaining;
  private final long resetAfterMs;
  private final long retryAfterMs;
  private final Source source;
  private final boolean shadow;
  private final long permit;

  Decision(
      boolean allowed,
      long limit,
      long remaining,
      long resetAfterMs,
      long retryAfterMs,
      Source source,
      boolean shadow,
      long permit) {
    this.allowed = allowed;
    this.limit = limit;
    this.remaining = remaining;
    this.resetAfterMs = resetAfterMs;
    this.retryAfterMs = retryAfterMs;
    this.source = source;
    this.shadow = shadow;
    this.permit = permit;
  }

  /** The decision of a call that the agent gave none for. A cost above a known capacity is denied. */
  static Decision unanswered(boolean allowed, Call call) {
    long capacity = call.ownLimit().map(Limit::capacity).orElse(0L);
    boolean possible = capacity == 0 || call.cost() <= capacity;
    boolean passes = allowed && possible;
    long retryAfterMs = passes ? 0 : possible ? TRY_AGAIN_MS : NEVER;
    return new Decision(passes, capacity, 0, 0, retryAfterMs, Source.CLIENT, false, 0);
  }

  /**
   * Whether the call may go through.
   *
   * @return true when it may
   */
  public boolean allowed() {
    return allowed;
  }

  /**
   * The capacity that applies.
   *
   * @return permits; 0 when it is not known
   */
  public long limit() {
    return limit;
  }

  /**
   * What is left as far as this host knows.
   *
   * @return permits, 0 to {@link #limit}
   */
  public long remaining() {
    return remaining;
  }

  /**
   * The time until the bucket is full again.
   *
   * @return whole milliseconds, rounded up
   */
  public Duration resetAfter() {
    return Duration.ofMillis(resetAfterMs);
  }

  /**
   * The time until this same call could be allowed.
   *
   * @return whole milliseconds, rounded up; zero when the call is allowed; empty when it never can
   *     be, because its cost is above the capacity
   */
  public Optional<Duration> retryAfter() {
    return retryAfterMs == NEVER ? Optional.empty() : Optional.of(Duration.ofMillis(retryAfterMs));
  }

  /**
   * Where the decision came from.
   *
   * @return never null
   */
  public Source source() {
    return source;
  }

  /**
   * Whether the decision was taken without Redis although the agent has one, or without the agent.
   *
   * @return true when it was
   */
  public boolean degraded() {
    return source == Source.FALLBACK || source == Source.CLIENT;
  }

  /**
   * Whether the policy only observes, and would have denied this call.
   *
   * @return true when it would have
   */
  public boolean shadow() {
    return shadow;
  }

  /**
   * The permit of a concurrency limit, to be released.
   *
   * @return 1 to 2^53-1; empty when there is nothing to release
   */
  public OptionalLong permit() {
    return permit > 0 ? OptionalLong.of(permit) : OptionalLong.empty();
  }

  String whenToRetry() {
    return retryAfterMs == NEVER ? "can never be allowed" : "retry after " + retryAfterMs + " ms";
  }

  @Override
  public String toString() {
    return (allowed ? "allowed" : "denied, " + whenToRetry())
        + String.format(" (%d of %d left, %s%s)", remaining, limit, source, shadow ? ", shadow" : "");
  }
}
