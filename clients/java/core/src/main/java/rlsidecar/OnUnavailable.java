package rlsidecar;

/** What a call does that gets no decision, because the agent is away or cannot decide. */
public enum OnUnavailable {
  /** It is allowed, and {@link Decision#degraded} says so. */
  ALLOW,
  /** It is denied, to be tried again after a second. */
  DENY,
  /**
   * A limit of the caller's own is kept by the client, as a token bucket, with {@link
   * Decision#degraded} set: no more than its capacity at once, and its count per period. Each process
   * counts for itself. A policy, whose numbers only the agent knows, a concurrency limit and {@code
   * throttle} are allowed as by {@link #ALLOW}.
   */
  LOCAL,
  /** It throws {@link UnavailableException}. */
  RAISE
}
