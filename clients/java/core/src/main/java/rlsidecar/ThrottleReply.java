package rlsidecar;

/** The answer to {@code throttle}: the five values of redis-cell's {@code CL.THROTTLE}. */
public final class ThrottleReply {
  private final boolean limited;
  private final long limit;
  private final long remaining;
  private final long retryAfter;
  private final long resetAfter;
  private final boolean degraded;

  ThrottleReply(
      boolean limited, long limit, long remaining, long retryAfter, long resetAfter, boolean degraded) {
    this.limited = limited;
    this.limit = limit;
    this.remaining = remaining;
    this.retryAfter = retryAfter;
    this.resetAfter = resetAfter;
    this.degraded = degraded;
  }

  static ThrottleReply unanswered(boolean allowed, long quantity, long capacity) {
    boolean limited = !allowed || quantity > capacity;
    return new ThrottleReply(limited, capacity, 0, limited ? 1 : -1, 0, true);
  }

  /**
   * Whether the call is denied.
   *
   * @return true when it is
   */
  public boolean limited() {
    return limited;
  }

  /**
   * The capacity, which is {@code maxBurst + 1}.
   *
   * @return permits
   */
  public long limit() {
    return limit;
  }

  /**
   * What is left.
   *
   * @return permits
   */
  public long remaining() {
    return remaining;
  }

  /**
   * The time until the call could be allowed.
   *
   * @return whole seconds; -1 when it is not limited
   */
  public long retryAfterSeconds() {
    return retryAfter;
  }

  /**
   * The time until the bucket is full again.
   *
   * @return whole seconds
   */
  public long resetAfterSeconds() {
    return resetAfter;
  }

  /**
   * Whether the agent gave no decision, and {@link OnUnavailable} applied.
   *
   * @return true when it did
   */
  public boolean degraded() {
    return degraded;
  }

  @Override
  public String toString() {
    return String.format(
        "[%d, %d, %d, %d, %d]", limited ? 1 : 0, limit, remaining, retryAfter, resetAfter);
  }
}
