// How long a decision takes, and how many there are in a second, beside what it could take at best and
// what asking Redis takes. One JSON object per line on standard output.
package rlsidecar.bench;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.CountDownLatch;

/**
 * Usage: {@code Bench latency|throughput agent|ping|redis ADDRESS [SECONDS [THREADS [BEGIN]]]}, where the
 * address is that of the agent, or the port of Redis. {@code ping} brings a peer of its own. Throughput is
 * measured from BEGIN, in milliseconds of the clock, so that several processes begin together and warm.
 */
public final class Bench {
  private static final long WARM_UP = 2_000_000_000L;
  private static final int WARM_UP_CALLS = 30_000; // enough for the compiler to be done with them

  private Bench() {}

  /** Makes one kind of call until the time is over. */
  public static void main(String[] args) throws Exception {
    Asker.Kind kind = Asker.Kind.valueOf(args[1].toUpperCase(Locale.ROOT));
    long seconds = args.length > 3 ? Long.parseLong(args[3]) : 5;
    int threads = args.length > 4 ? Integer.parseInt(args[4]) : 8;
    if (args[0].equals("latency")) {
      latency(kind, args[2], seconds);
    } else {
      long begin = args.length > 5 ? Long.parseLong(args[5]) : System.currentTimeMillis() + WARM_UP / 1_000_000;
      throughput(kind, args[2], seconds, threads, begin);
    }
    System.exit(0);
  }

  private static void latency(Asker.Kind kind, String address, long seconds) throws Exception {
    try (Asker asker = kind.open(address)) {
      for (int i = 0; i < WARM_UP_CALLS; i++) {
        asker.ask(i);
      }
      measure(asker, WARM_UP);
      long[] sorted = measure(asker, seconds * 1_000_000_000L);
      Arrays.sort(sorted);
      System.out.printf(
          Locale.ROOT,
          "{\"lang\":\"java\",\"what\":\"%s\",\"p50_us\":%.1f,\"p99_us\":%.1f,\"calls\":%d}%n",
          name(kind), sorted[sorted.length / 2] / 1e3, sorted[sorted.length * 99 / 100] / 1e3, sorted.length);
    }
  }

  private static long[] measure(Asker asker, long nanoseconds) throws IOException {
    long[] taken = new long[1024];
    int calls = 0;
    long end = System.nanoTime() + nanoseconds;
    long before = System.nanoTime();
    while (before < end) {
      asker.ask(calls);
      long after = System.nanoTime();
      taken = calls < taken.length ? taken : Arrays.copyOf(taken, 2 * calls);
      taken[calls++] = after - before;
      before = after;
    }
    return Arrays.copyOf(taken, calls);
  }

  private static void throughput(Asker.Kind kind, String address, long seconds, int threads, long begin)
      throws Exception {
    new Load(kind, address, threads, Math.max(0, begin - System.currentTimeMillis()) * 1_000_000).run();
    Load load = new Load(kind, address, threads, seconds * 1_000_000_000L);
    load.run();
    System.out.printf(
        Locale.ROOT,
        "{\"lang\":\"java\",\"what\":\"%s\",\"threads\":%d,\"per_second\":%d}%n",
        name(kind), threads, load.calls() / seconds);
  }

  private static String name(Asker.Kind kind) {
    return kind.name().toLowerCase(Locale.ROOT);
  }

  /** So many threads, each with calls of its own. */
  private static final class Load {
    private final Asker.Kind kind;
    private final String address;
    private final long nanoseconds;
    private final CountDownLatch ready;
    private final List<Thread> threads = new ArrayList<>();
    private final long[] calls;

    Load(Asker.Kind kind, String address, int count, long nanoseconds) {
      this.kind = kind;
      this.address = address;
      this.nanoseconds = nanoseconds;
      this.ready = new CountDownLatch(count);
      this.calls = new long[count];
      for (int i = 0; i < count; i++) {
        int number = i;
        threads.add(new Thread(() -> call(number)));
      }
    }

    void run() throws InterruptedException {
      threads.forEach(Thread::start);
      for (Thread thread : threads) {
        thread.join();
      }
    }

    long calls() {
      return Arrays.stream(calls).sum();
    }

    private void call(int number) {
      try (Asker asker = kind.open(address)) {
        ready.countDown();
        ready.await();
        long end = System.nanoTime() + nanoseconds;
        while (System.nanoTime() < end) {
          asker.ask((int) calls[number]++);
        }
      } catch (Exception e) {
        throw new IllegalStateException(e);
      }
    }
  }
}
