// Mode LOCAL: the buckets at times given by the tests, and what a client without an agent makes of them.
package rlsidecar;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.Map;
import java.util.Optional;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class LocalBucketsTest {
  private static final long MILLI = 1_000_000;
  private static final Limit TEN_A_SECOND = Limit.perSecond(10).burst(5);

  private final LocalBuckets buckets = new LocalBuckets();

  private Decision take(Limit limit, String key, long cost, long now) {
    return buckets.ask(limit, Call.of(limit, key).cost(cost), true, now);
  }

  private static void assertDenied(long milliseconds, Decision decision) {
    assertFalse(decision.allowed());
    assertEquals(Optional.of(Duration.ofMillis(milliseconds)), decision.retryAfter());
  }

  @ParameterizedTest
  @ValueSource(longs = {0, Long.MAX_VALUE - 60 * MILLI, Long.MIN_VALUE})
  void permitsComeBack(long start) {
    Decision first = take(TEN_A_SECOND, "k", 3, start);
    assertTrue(first.allowed() && first.degraded());
    assertEquals(5, first.limit());
    assertEquals(2, first.remaining());
    assertEquals(Duration.ofMillis(300), first.resetAfter());
    assertTrue(take(TEN_A_SECOND, "k", 2, start).allowed());
    assertDenied(100, take(TEN_A_SECOND, "k", 1, start));
    assertDenied(150, take(TEN_A_SECOND, "k", 2, start + 50 * MILLI));
    assertTrue(take(TEN_A_SECOND, "k", 2, start + 200 * MILLI).allowed());
    assertEquals(0, take(TEN_A_SECOND, "k", 5, start + 3_600_000 * MILLI).remaining());
  }

  @Test
  void aPeekTakesNothing() {
    Call call = Call.of(TEN_A_SECOND, "k").cost(5);
    assertTrue(buckets.ask(TEN_A_SECOND, call, false, 0).allowed());
    assertEquals(5, buckets.ask(TEN_A_SECOND, call, false, 0).remaining());
    assertEquals(0, buckets.size());
  }

  @Test
  void eachLimitAndKeyHasItsOwn() {
    Limit one = Limit.perHour(1);
    assertTrue(take(one, "k", 1, 0).allowed());
    assertTrue(take(one, "j", 1, 0).allowed());
    assertTrue(take(Limit.perMinute(1), "k", 1, 0).allowed());
    assertDenied(3_600_000, buckets.ask(one, Call.of(one, "k".getBytes()), true, 0));
  }

  @Test
  void aCostAboveTheCapacityIsNeverAllowed() {
    assertEquals(Optional.empty(), take(TEN_A_SECOND, "k", 6, 0).retryAfter());
  }

  @Test
  void nothingIsKeptOfAConcurrencyLimit() {
    Limit limit = Limit.concurrency(1, Duration.ofMinutes(1));
    assertTrue(IntStream.range(0, 3).allMatch(i -> take(limit, "k", 1, 0).allowed()));
  }

  @ParameterizedTest
  @ValueSource(longs = {1, 3, 7, 1_000_000_007})
  void awkwardNumbersAddUp(long count) {
    Limit limit = Limit.per(count, Duration.ofDays(366));
    assertTrue(IntStream.rangeClosed(1, (int) Math.min(count, 7)).allMatch(i -> take(limit, "k", 1, i).allowed()));
    assertEquals(count > 7, take(limit, "k", 1, 8).allowed());
  }

  @Test
  void thePeriodMayBeLongerThanTheClock() {
    Limit limit = Limit.per(1, Duration.ofMillis(Arguments.MAX_NUMBER));
    assertTrue(take(limit, "k", 1, 0).allowed());
    assertFalse(take(limit, "k", 1, Duration.ofDays(365).toNanos()).allowed());
  }

  @Test
  void theBucketsUsedLastAreKept() {
    Limit limit = Limit.perHour(1);
    take(limit, "often", 1, 0);
    for (int i = 0; i < 2 * LocalBuckets.MAX_BUCKETS; i++) {
      assertTrue(take(limit, "once" + i, 1, 0).allowed());
      assertFalse(take(limit, "often", 1, 0).allowed());
    }
    assertEquals(LocalBuckets.MAX_BUCKETS, buckets.size());
  }

  @Test
  void allWaysToAskShareTheBuckets() throws Exception {
    try (RlSidecarClient client =
        RlSidecarClient.builder()
            .address("/nowhere/agent.sock")
            .environment(Map.of("RLSIDECAR_ON_UNAVAILABLE", "local"))
            .build()) {
      Call two = Call.of("3/hour", "k").cost(2);
      assertTrue(client.tryAcquireAsync(two).toCompletableFuture().get().allowed());
      assertFalse(client.tryAcquire(two).allowed());
      assertFalse(client.peekAsync(two).toCompletableFuture().get().allowed());
      assertFalse(client.tryAcquireAll(two.cost(1), two, Call.of("3/hour", "j")).allowed());
      assertEquals(1, client.peek("3/hour", "k").remaining(), "a denied tryAcquireAll took permits");
      assertFalse(client.refund(two));
      assertFalse(client.reset(two));
      assertTrue(client.tryAcquireAll(two.cost(1), Call.of("api", "k")).allowed());
      assertFalse(client.tryAcquire("3/hour", "k").allowed());
    }
  }
}
