// The client and the agent together.
package rlsidecar;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import rlsidecar.testing.RealAgent;

@Timeout(60)
class RealAgentTest {
  private static final String POLICIES =
      String.join(
          "\n",
          "policies:",
          "  api: {limit: 100/hour}",
          "  login: {limit: 2/hour}",
          "  exports: {limit: 1, algorithm: concurrency, max_hold: 1m}",
          "");

  private static RealAgent agent;
  private static RlSidecarClient client;

  @BeforeAll
  static void start() throws Exception {
    agent = RealAgent.serving(POLICIES);
    client = agent.client();
  }

  @AfterAll
  static void stop() throws Exception {
    client.close();
    agent.close();
  }

  @Test
  void allowsAndDenies() {
    Decision first = client.tryAcquire("login", "ann");
    assertTrue(first.allowed());
    assertEquals(2, first.limit());
    assertEquals(1, first.remaining());
    assertFalse(first.degraded());
    assertTrue(client.acquireOrThrow("login", "ann").allowed());
    Decision third = client.tryAcquire("login", "ann");
    assertFalse(third.allowed());
    assertTrue(third.retryAfter().orElseThrow().compareTo(Duration.ofMinutes(20)) > 0);
    RateLimitExceededException e =
        assertThrows(RateLimitExceededException.class, () -> client.acquireOrThrow("login", "ann"));
    assertFalse(e.decision().allowed());
    assertTrue(client.tryAcquire("login", "bob").allowed());
  }

  @Test
  void limitsOfItsOwn() {
    Limit limit = Limit.perMinute(60).burst(3);
    assertEquals(3, client.tryAcquire(limit, "own").limit());
    assertFalse(client.tryAcquire(limit, "own", 3).allowed());
    assertTrue(client.tryAcquire(limit, "own", 4).retryAfter().isEmpty());
    assertEquals(10, client.tryAcquire("10/minute", "own").limit());
    Limit window = Limit.perMinute(5).algorithm(Algorithm.SLIDING_WINDOW);
    assertEquals(5, client.tryAcquire(window, "own").limit());
  }

  @Test
  void peeksRefundsAndResets() {
    Call call = Call.of("api", "eve").cost(40);
    assertEquals(100, client.peek(Call.of("api", "eve").cost(0)).remaining());
    assertEquals(60, client.tryAcquire(call).remaining());
    assertTrue(client.refund(call));
    assertEquals(100, client.peek("api", "eve").remaining());
    client.tryAcquire(call);
    assertTrue(client.reset("api", "eve"));
    assertEquals(100, client.peek("api", "eve").remaining());
  }

  @Test
  void textAndBytesAreTheSameKey() {
    client.tryAcquire("api", "käthe");
    byte[] bytes = "käthe".getBytes(StandardCharsets.UTF_8);
    assertEquals(98, client.tryAcquire(Call.of("api", bytes)).remaining());
  }

  @Test
  void c23AllOrNothing() {
    AllDecision all =
        client.tryAcquireAll(Call.of("api", "all"), Call.of("login", "all").cost(2), Call.of("login", "all"));
    assertFalse(all.allowed());
    assertEquals(3, all.decisions().size());
    assertEquals(100, client.peek("api", "all").remaining());
    assertTrue(client.tryAcquireAll(Call.of("api", "all"), Call.of("login", "all")).allowed());
  }

  @Test
  void holdsAndReleases() {
    try (Permit permit = client.hold("exports", "ann")) {
      assertTrue(permit.decision().permit().isPresent());
      assertThrows(RateLimitExceededException.class, () -> client.hold("exports", "ann"));
    }
    try (Permit permit = client.hold("exports", "ann")) {
      assertTrue(permit.release());
      assertFalse(permit.release());
    }
    client.hold("exports", "ann").close();
  }

  @Test
  void holdWaitsForItsTurn() {
    Permit first = client.hold("exports", "bob");
    CompletableFuture<Void> released = CompletableFuture.runAsync(() -> releaseAfter(first, 100));
    try (Permit second = client.hold(Call.of("exports", "bob").waitUpTo(Duration.ofSeconds(10)))) {
      assertTrue(second.decision().allowed());
    }
    released.join();
  }

  private static void releaseAfter(Permit permit, long milliseconds) {
    try {
      Thread.sleep(milliseconds);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
    permit.release();
  }

  @Test
  void asks() {
    assertTrue(client.tryAcquireAsync("api", "async").toCompletableFuture().join().allowed());
    Call call = Call.of("api", "async").cost(9);
    assertEquals(90, client.tryAcquireAsync(call).toCompletableFuture().join().remaining());
    assertTrue(client.refundAsync(call).toCompletableFuture().join());
    assertEquals(99, client.peekAsync(call).toCompletableFuture().join().remaining());
    assertTrue(client.resetAsync(call).toCompletableFuture().join());
    assertTrue(client.tryAcquireAllAsync(List.of(call, call)).toCompletableFuture().join().allowed());
    Decision held = client.tryAcquireAsync("exports", "async").toCompletableFuture().join();
    assertTrue(client.releaseAsync(held.permit().orElseThrow()).toCompletableFuture().join());
  }

  @Test
  void speaksRedisCell() {
    assertEquals("[0, 16, 15, -1, 2]", client.throttle("cell", 15, 30, 60, 1).toString());
  }

  @Test
  void mistakesAreToldInEveryMode() throws Exception {
    UnknownPolicyException e =
        assertThrows(UnknownPolicyException.class, () -> client.tryAcquire("logn", "k"));
    assertTrue(e.getMessage().contains("login"), e.getMessage());
    try (RlSidecarClient allowing = RlSidecarClient.builder().address(agent.address()).build()) {
      assertThrows(UnknownPolicyException.class, () -> allowing.tryAcquire("logn", "k"));
    }
  }

  @Test
  void tellsAboutItself() {
    client.ping();
    assertEquals("standalone", client.info().get("mode"));
  }

  @Test
  void c09ARestartIsNotNoticed() throws Exception {
    try (RealAgent other = RealAgent.serving(POLICIES);
        RlSidecarClient patient = other.client()) {
      for (int i = 0; i < 3; i++) {
        assertTrue(patient.tryAcquire("api", "k").allowed());
        assertTrue(patient.tryAcquireAsync("api", "k").toCompletableFuture().join().allowed());
        other.stop();
        other.start();
      }
      assertTrue(patient.tryAcquire("api", "k").allowed());
    }
  }
}
