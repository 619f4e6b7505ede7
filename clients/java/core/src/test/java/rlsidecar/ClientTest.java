// What the conformance suite cannot see from outside: threads, interrupts, the wrap of the msgid,
// transports, and the calls that only this client has.
package rlsidecar;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.condition.EnabledForJreRange;
import org.junit.jupiter.api.condition.JRE;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;
import rlsidecar.testing.FakeAgent;

@Timeout(60)
class ClientTest {
  private static final Duration LONG = Duration.ofSeconds(30);

  private RlSidecarClient client;
  private String path; // of the agent, for tests below the client

  @AfterEach
  void close() {
    Thread.interrupted();
    System.clearProperty("rlsidecar.transport");
    if (client != null) {
      client.close();
    }
  }

  private RlSidecarClient connect(String address, Duration timeout) {
    client =
        RlSidecarClient.builder()
            .address(address)
            .timeout(timeout)
            .onUnavailable(OnUnavailable.RAISE)
            .environment(Map.of())
            .build();
    return client;
  }

  /** Answers with a limit that is the number at the end of the key, to see who got whose answer. */
  private static String echo(FakeAgent agent, int number, byte[] request) {
    int end = request.length - 1;
    int limit = Integer.parseInt(new String(request, end - 5, 5));
    return FakeAgent.reply(request, String.format("97c3ce%08x63cd03e8000000", limit));
  }

  private static String key(int number) {
    return String.format("user:%05d", number);
  }

  @Test
  void c17InterruptBeforeTheCall() throws IOException {
    try (FakeAgent agent = FakeAgent.scripted(ClientTest::echo)) {
      connect(agent.address(), LONG);
      for (int i = 0; i < 100; i++) {
        Thread.currentThread().interrupt();
        assertEquals(i, client.tryAcquire("api", key(i)).limit());
        assertTrue(Thread.interrupted(), "the flag is given back");
      }
      assertEquals(1, agent.connections());
    }
  }

  @Test
  void c17InterruptWhileReading() throws Exception {
    CountDownLatch asked = new CountDownLatch(1);
    CountDownLatch interrupted = new CountDownLatch(1);
    FakeAgent.Script script =
        (agent, number, request) -> {
          if (number == 0) {
            asked.countDown();
            interrupted.await();
            Thread.sleep(20);
          }
          return echo(agent, number, request);
        };
    try (FakeAgent agent = FakeAgent.scripted(script)) {
      connect(agent.address(), LONG);
      AtomicReference<Long> limit = new AtomicReference<>();
      CompletableFuture<Boolean> flag = new CompletableFuture<>();
      Thread caller =
          new Thread(
              () -> {
                limit.set(client.tryAcquire("api", key(7)).limit());
                flag.complete(Thread.currentThread().isInterrupted());
              });
      caller.start();
      asked.await();
      caller.interrupt();
      interrupted.countDown();
      assertTrue(flag.get(30, TimeUnit.SECONDS), "the flag is given back");
      assertEquals(7, limit.get());
      assertEquals(8, client.tryAcquire("api", key(8)).limit());
      assertEquals(1, agent.connections());
    }
  }

  @Test
  void c17InterruptWhileWriting() throws Exception {
    CountDownLatch go = new CountDownLatch(1);
    FakeAgent.Script script =
        (agent, number, request) -> {
          go.await();
          return null;
        };
    try (FakeAgent agent = FakeAgent.scripted(script)) {
      Duration timeout = Duration.ofMillis(300);
      path = agent.path();
      connect(agent.address(), timeout);
      CompletableFuture<Boolean> flag = new CompletableFuture<>();
      CountDownLatch started = new CountDownLatch(1);
      Thread caller =
          new Thread(
              () -> {
                started.countDown();
                assertThrows(AgentTimeoutException.class, () -> writeMuch(timeout));
                flag.complete(Thread.currentThread().isInterrupted());
              });
      caller.start();
      started.await();
      Thread.sleep(100);
      caller.interrupt();
      assertTrue(flag.get(30, TimeUnit.SECONDS), "the flag is given back");
      go.countDown();
    }
  }

  /** Fills the socket with requests until a write has to wait. */
  private void writeMuch(Duration timeout) {
    List<Call> calls =
        IntStream.range(0, 32).mapToObj(i -> Call.of("api", "k".repeat(1024))).collect(Collectors.toList());
    Question<AllDecision> question = new Questions(timeout, null).acquireAll(calls);
    Packer many = new Packer();
    for (int i = 0; i < 100; i++) {
      question.pack(many, i);
    }
    byte[] bytes = many.toBytes();
    Question<Boolean> large =
        new Question<>(
            Question.Method.PING, packer -> packer.array(0).raw(bytes), Unpacker::bool, instead -> false, 0, timeout);
    Pool pool = new Pool(new Dialer(Transport.ofThisJava(), path), 1);
    try {
      new BlockingCalls(pool, 1).ask(large);
    } finally {
      pool.close();
    }
  }

  @Test
  void interruptEndsTheWaitForPermits() throws Exception {
    CountDownLatch asked = new CountDownLatch(1);
    FakeAgent.Script script =
        (agent, number, request) -> {
          asked.countDown();
          return null;
        };
    try (FakeAgent agent = FakeAgent.scripted(script)) {
      connect(agent.address(), LONG);
      Call patient = Call.of("api", "k").waitUpTo(LONG);
      CompletableFuture<Decision> answer = new CompletableFuture<>();
      Thread caller = new Thread(() -> answer.complete(client.tryAcquire(patient)));
      caller.start();
      asked.await();
      caller.interrupt();
      Decision decision = answer.get(10, TimeUnit.SECONDS);
      assertFalse(decision.allowed());
      assertEquals(Source.CLIENT, decision.source());
    }
  }

  @Test
  void c25ThreadsGetTheirOwnAnswers() throws Exception {
    try (FakeAgent agent = FakeAgent.scripted(ClientTest::echo)) {
      connect(agent.address(), LONG);
      ExecutorService threads = Executors.newFixedThreadPool(64);
      assertAllAnswered(threads, 64, 200);
      assertTrue(agent.connections() <= 64, "as many connections as calls at once");
    }
  }

  @Test
  @EnabledForJreRange(min = JRE.JAVA_21)
  void c17TenThousandVirtualThreads() throws Exception {
    try (FakeAgent agent = FakeAgent.scripted(ClientTest::echo)) {
      connect(agent.address(), LONG);
      ExecutorService threads =
          (ExecutorService) Executors.class.getMethod("newVirtualThreadPerTaskExecutor").invoke(null);
      assertAllAnswered(threads, 10_000, 5);
      assertTrue(agent.connections() <= 64, agent.connections() + " connections");
    }
  }

  private void assertAllAnswered(ExecutorService threads, int tasks, int calls) throws Exception {
    List<Future<Boolean>> running = new ArrayList<>();
    for (int i = 0; i < tasks; i++) {
      int first = i;
      running.add(threads.submit(() -> ownAnswers(first, calls)));
    }
    for (Future<Boolean> task : running) {
      assertTrue(task.get(50, TimeUnit.SECONDS), "somebody got another's answer");
    }
    threads.shutdown();
  }

  /** Every seventh caller is interrupted, which must not concern the others. */
  private boolean ownAnswers(int first, int calls) {
    for (int i = 0; i < calls; i++) {
      if (first % 7 == 0) {
        Thread.currentThread().interrupt();
      }
      int number = first + i;
      if (client.tryAcquire("api", key(number)).limit() != number || Thread.interrupted() != (first % 7 == 0)) {
        return false;
      }
    }
    return true;
  }

  @Test
  void c14MsgidsBeginAtRandom() {
    Set<Integer> first = new HashSet<>();
    for (int i = 0; i < 1000; i++) {
      first.add(Connection.randomMsgid());
    }
    assertTrue(first.size() > 990);
    assertTrue(first.stream().allMatch(msgid -> msgid >= 0));
  }

  @Test
  void c14MsgidsWrapAt31Bits() throws IOException {
    List<String> seen = new ArrayList<>();
    FakeAgent.Script script =
        (agent, number, request) -> {
          seen.add(FakeAgent.msgid(request));
          return FakeAgent.reply(request, "a4706f6e67");
        };
    try (FakeAgent agent = FakeAgent.scripted(script);
        Interruption interruption = new Interruption()) {
      path = agent.path();
      Question<Boolean> ping = new Questions(LONG, null).ping();
      Dialer dialer = new Dialer(Transport.ofThisJava(), path);
      try (Connection connection = new Connection(dialer.dial(), 0, Integer.MAX_VALUE)) {
        connection.call(ping, System.nanoTime() + LONG.toNanos(), interruption);
        connection.call(ping, System.nanoTime() + LONG.toNanos(), interruption);
      }
      assertEquals(List.of("ce7fffffff", "00"), seen);
    }
  }

  @Test
  void asynchronousCallsGetTheirOwnAnswersOverOneConnection() throws Exception {
    try (FakeAgent agent = FakeAgent.scripted(ClientTest::echo)) {
      connect(agent.address(), LONG);
      for (int i = 0; i < 1000; i++) {
        assertEquals(i, client.tryAcquireAsync("api", key(i)).toCompletableFuture().get().limit());
      }
      assertEquals(1, agent.connections());
    }
  }

  @Test
  void aPermitThatComesTooLateIsGivenBack() throws Exception {
    CompletableFuture<String> release = new CompletableFuture<>();
    CountDownLatch expired = new CountDownLatch(1);
    FakeAgent.Script script =
        (agent, number, request) -> {
          if (number > 0) {
            release.complete(HexFormat.of().formatHex(request));
            return null;
          }
          expired.await();
          return FakeAgent.reply(request, "98c30302ce000927c000010009");
        };
    try (FakeAgent agent = FakeAgent.scripted(script)) {
      connect(agent.address(), Duration.ofMillis(100));
      CompletableFuture<Decision> late = client.tryAcquireAsync("exports", "k").toCompletableFuture();
      assertThrows(CompletionException.class, late::join);
      expired.countDown();
      assertEquals("9302a772656c656173659109", release.get(10, TimeUnit.SECONDS));
    }
  }

  @Test
  void aStageThatBlocksDoesNotHoldUpOthers() throws Exception {
    try (FakeAgent agent = FakeAgent.scripted(ClientTest::echo)) {
      connect(agent.address(), LONG);
      long limit =
          client
              .tryAcquireAsync("api", key(1))
              .thenApply(first -> client.tryAcquireAsync("api", key(2)).toCompletableFuture().join().limit())
              .toCompletableFuture()
              .get(30, TimeUnit.SECONDS);
      assertEquals(2, limit);
    }
  }

  @Test
  void closeAnswersWhatIsUnderWay() throws Exception {
    try (FakeAgent agent = FakeAgent.silent()) {
      connect(agent.address(), LONG);
      CompletableFuture<Decision> answer = client.tryAcquireAsync("api", "k").toCompletableFuture();
      client.close();
      CompletionException e = assertThrows(CompletionException.class, answer::join);
      assertTrue(e.getCause() instanceof UnavailableException, e.toString());
    }
  }

  @Test
  void aClosedClientConnectsAgain() throws Exception {
    try (FakeAgent agent = FakeAgent.answering(FakeAgent.ALLOWED)) {
      connect(agent.address(), LONG);
      client.close();
      assertTrue(client.tryAcquire("api", "k").allowed());
      client.close();
      assertTrue(client.tryAcquireAsync("api", "k").toCompletableFuture().get().allowed());
      assertEquals(2, agent.connections());
    }
  }

  @ParameterizedTest
  @ValueSource(strings = {"jdk", "junixsocket"})
  void bothTransportsWork(String transport) throws IOException {
    System.setProperty("rlsidecar.transport", transport);
    try (FakeAgent agent = FakeAgent.scripted(ClientTest::echo)) {
      connect(agent.address(), LONG);
      Thread.currentThread().interrupt();
      assertEquals(3, client.tryAcquire("api", key(3)).limit());
      assertTrue(Thread.interrupted());
      assertEquals(4, client.tryAcquireAsync("api", key(4)).toCompletableFuture().join().limit());
      agent.disconnect();
      assertEquals(5, client.tryAcquire("api", key(5)).limit());
    }
    assertThrows(AgentNotRunningException.class, () -> client.tryAcquire("api", key(6)));
  }

  @ParameterizedTest
  @ValueSource(strings = {"jdk", "junixsocket"})
  void bothTransportsEndAtTheBudget(String transport) throws IOException {
    System.setProperty("rlsidecar.transport", transport);
    try (FakeAgent agent = FakeAgent.silent()) {
      connect(agent.address(), Duration.ofMillis(100));
      long began = System.nanoTime();
      assertThrows(AgentTimeoutException.class, () -> client.tryAcquire("api", "k"));
      long took = (System.nanoTime() - began) / 1_000_000;
      assertTrue(took >= 99 && took < 2000, took + " ms");
    }
  }

  @ParameterizedTest
  @EnumSource(OnUnavailable.class)
  void c29WithoutAnAgent(OnUnavailable mode) {
    client =
        RlSidecarClient.builder().address("/nowhere/agent.sock").onUnavailable(mode).environment(Map.of()).build();
    Call call = Call.of("exports", "k");
    if (mode == OnUnavailable.RAISE) {
      UnavailableException e = assertThrows(AgentNotRunningException.class, () -> client.tryAcquire(call));
      assertTrue(e.getStackTrace().length > 0, "says where");
      assertThrows(AgentNotRunningException.class, () -> client.hold(call));
      return;
    }
    boolean allowed = mode != OnUnavailable.DENY;
    assertEquals(allowed, client.tryAcquire(call).allowed());
    assertTrue(client.tryAcquire(call).degraded());
    assertEquals(allowed, client.tryAcquireAll(call, call).allowed());
    assertEquals(!allowed, client.throttle("k", 15, 30, 60, 1).limited());
    assertFalse(client.refund(call));
    if (allowed) {
      try (Permit permit = client.hold(call)) {
        assertTrue(permit.decision().degraded());
        assertFalse(permit.release());
      }
    } else {
      assertThrows(RateLimitExceededException.class, () -> client.hold(call));
    }
    assertThrows(UnavailableException.class, client::ping);
  }

  @Test
  void aCostAboveAKnownCapacityIsNeverAllowed() {
    client = RlSidecarClient.builder().address("/nowhere/agent.sock").environment(Map.of()).build();
    Decision decision = client.tryAcquire(Limit.perMinute(60).burst(10), "k", 11);
    assertFalse(decision.allowed());
    assertTrue(decision.retryAfter().isEmpty());
  }

  @Test
  void disabledAsksNobody() {
    Map<String, String> environment = Map.of("RLSIDECAR_DISABLE", "1");
    client = RlSidecarClient.builder().onUnavailable(OnUnavailable.RAISE).environment(environment).build();
    assertTrue(client.tryAcquire("api", "k").allowed());
    assertTrue(client.tryAcquireAsync("api", "k").toCompletableFuture().join().allowed());
  }
}
