package rlsidecar;

/** Where a decision came from. */
public enum Source {
  /** Permits that this host had leased. */
  LEASE,
  /** Redis, asked for this call. */
  REDIS,
  /** A denial that this host remembered. */
  DENIAL,
  /** An agent that runs without Redis. */
  STANDALONE,
  /** An agent that cannot reach Redis. */
  FALLBACK,
  /** A list of exempt or blocked keys. */
  LIST,
  /** A newer agent's number that this version does not know. */
  UNKNOWN,
  /** Nobody: the agent gave no decision, and {@link OnUnavailable} applied. */
  CLIENT;

  private static final Source[] BY_NUMBER = {LEASE, REDIS, DENIAL, STANDALONE, FALLBACK, LIST};

  static Source of(long number) {
    return number < BY_NUMBER.length ? BY_NUMBER[(int) number] : UNKNOWN;
  }
}
