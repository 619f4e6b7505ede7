package rlsidecar;

import java.util.Locale;

/** How the permits of a {@link Limit} come back. */
public enum Algorithm {
  /** Evenly, one by one; unused ones are saved up to the burst. */
  TOKEN_BUCKET,
  /** Like a token bucket; calls that wait leave at an even pace. */
  LEAKY_BUCKET,
  /** All at once, at the start of each period. */
  FIXED_WINDOW,
  /** As those of the last period fall out of sight, by an estimate from parts of the period. */
  SLIDING_WINDOW,
  /** As those of the last period fall out of sight, exactly; for counts of up to 10,000. */
  SLIDING_LOG,
  /** When they are released. */
  CONCURRENCY;

  boolean hasBurst() {
    return this == TOKEN_BUCKET || this == LEAKY_BUCKET;
  }

  String wireName() {
    return name().toLowerCase(Locale.ROOT);
  }
}
