// Mode LOCAL: limits that the caller brings along, kept by this process while there is no agent.
package rlsidecar;

import java.nio.ByteBuffer;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.locks.ReentrantLock;

/**
 * Token buckets, whatever the limit's algorithm; of a concurrency limit nothing is kept. A bucket is
 * one number: when it is full again.
 *
 * <p>Each process counts for itself, so that n of them may let through n times the limit. The buckets
 * used last are kept: who asks for more than MAX_BUCKETS keys in turn is not limited.
 */
final class LocalBuckets {
  static final int MAX_BUCKETS = 10_000;

  private static final double NANOS_PER_MILLI = 1e6;
  private static final double ROUNDING = 1e-6; // permits
  private static final double CENTURY = 3e18; // nanoseconds, the longest that a bucket is kept for

  private final ReentrantLock lock = new ReentrantLock();
  private final Map<ByteBuffer, Long> fullAt =
      new LinkedHashMap<ByteBuffer, Long>(16, 0.75f, true) {
        @Override
        protected boolean removeEldestEntry(Map.Entry<ByteBuffer, Long> eldest) {
          return size() > MAX_BUCKETS;
        }
      };

  /**
   * Decides, and takes the permits unless it only peeks.
   *
   * @param now on System.nanoTime
   */
  Decision ask(Limit limit, Call call, boolean take, long now) {
    if (limit.isConcurrency() || call.cost() > limit.capacity()) {
      return Decision.unanswered(true, call);
    }
    ByteBuffer name = name(limit, call.key());
    double perPermit = limit.nanosPerPermit();
    lock.lock();
    try {
      double used = Math.max(0, fullAt.getOrDefault(name, now) - now) / perPermit;
      double lacking = used + call.cost() - limit.capacity();
      boolean allowed = lacking <= ROUNDING;
      if (allowed && take) {
        used += call.cost();
        fullAt.put(name, now + (long) Math.min(CENTURY, used * perPermit));
      }
      return decision(limit, used, allowed ? 0 : lacking);
    } finally {
      lock.unlock();
    }
  }

  int size() {
    return fullAt.size();
  }

  /** Limit and key; the packed limit says itself where it ends. */
  private static ByteBuffer name(Limit limit, byte[] key) {
    byte[] wire = limit.wire();
    return ByteBuffer.wrap(new Packer(wire.length + key.length).raw(wire).raw(key).toBytes());
  }

  private static Decision decision(Limit limit, double used, double lacking) {
    long capacity = limit.capacity();
    long remaining = Math.max(0, (long) (capacity - used + ROUNDING));
    long resetAfter = milliseconds(used * limit.nanosPerPermit());
    long retryAfter = milliseconds(lacking * limit.nanosPerPermit());
    return new Decision(lacking == 0, capacity, remaining, resetAfter, retryAfter, Source.CLIENT, false, 0);
  }

  private static long milliseconds(double nanos) {
    return (long) Math.ceil(Math.rint(nanos) / NANOS_PER_MILLI);
  }
}
