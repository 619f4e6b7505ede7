// The client: one method per question. How they are asked is elsewhere.
package rlsidecar;

import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.Executor;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Consumer;
import java.util.function.Supplier;

/**
 * Asks the rlsidecar agent on this host whether a call may go through. Share one per process, between
 * all threads.
 *
 * <pre>{@code
 * RlSidecarClient limits = RlSidecarClient.builder().build();
 * Decision decision = limits.tryAcquire("login", username);
 * if (!decision.allowed()) {
 *   return tooManyRequests(decision.retryAfter());
 * }
 * }</pre>
 *
 * <p>Building a client connects to nothing: a missing agent is noticed by the first call. A denial is
 * a {@link Decision}, never an exception, but for {@code acquireOrThrow} and {@code hold}. A {@code
 * limit} given as text is the name of a policy, or a limit like {@code "10/minute"}.
 *
 * <p>Every call throws {@link InvalidRequestException}, {@link UnknownPolicyException} or {@link
 * NotPermittedException} when the question itself is wrong, and {@link UnavailableException} in mode
 * {@link OnUnavailable#RAISE} only.
 *
 * <p>An interrupt, before a call or during it, does not break it off, as it ends soon anyway; the
 * thread's flag is set again when the call returns. Only a call that waits for permits stops waiting,
 * and is denied.
 *
 * <p>The methods whose names end in {@code Async} never block. They share one connection and one
 * daemon thread, which are there from the first such call until {@link #close}. The stages complete
 * on the executor of the builder, which is the common pool unless told otherwise, so what hangs on
 * them may take its time. They complete with the exceptions that the blocking methods throw.
 */
public final class RlSidecarClient implements AutoCloseable {
  private final Questions questions;
  private final Unanswered unanswered;
  private final boolean disabled;
  private final Pool pool;
  private final BlockingCalls blocking;
  private final AsyncCalls async;

  private RlSidecarClient(Builder builder) {
    Settings settings = new Settings(builder.environment);
    String path = settings.path(builder.address);
    questions = new Questions(settings.timeout(builder.timeout), settings.app(builder.app));
    unanswered = new Unanswered(settings.onUnavailable(builder.onUnavailable));
    disabled = settings.isDisabled();
    Dialer dialer = new Dialer(Transport.ofThisJava(), path);
    pool = new Pool(dialer, builder.maxConnections);
    blocking = new BlockingCalls(pool, builder.maxConnections);
    async = new AsyncCalls(dialer, builder.executor);
  }

  /**
   * A builder that takes what it is not told from the environment.
   *
   * @return a new builder
   */
  public static Builder builder() {
    return new Builder();
  }

  /**
   * Takes one permit if it is there.
   *
   * @param limit the name of a policy, or a limit like {@code "10/minute"}
   * @param key whose call it is, 1 to 1024 bytes in UTF-8
   * @return the decision, allowed or denied
   */
  public Decision tryAcquire(String limit, String key) {
    return tryAcquire(Call.of(limit, key));
  }

  /**
   * Takes permits if they are all there.
   *
   * @param limit the name of a policy, or a limit like {@code "10/minute"}
   * @param key whose call it is, 1 to 1024 bytes in UTF-8
   * @param cost permits, 1 to 2^53-1
   * @return the decision, allowed or denied
   */
  public Decision tryAcquire(String limit, String key, long cost) {
    return tryAcquire(Call.of(limit, key).cost(cost));
  }

  /**
   * Takes one permit if it is there.
   *
   * @param limit a limit of your own
   * @param key whose call it is, 1 to 1024 bytes in UTF-8
   * @return the decision, allowed or denied
   */
  public Decision tryAcquire(Limit limit, String key) {
    return tryAcquire(Call.of(limit, key));
  }

  /**
   * Takes permits if they are all there.
   *
   * @param limit a limit of your own
   * @param key whose call it is, 1 to 1024 bytes in UTF-8
   * @param cost permits, 1 to 2^53-1
   * @return the decision, allowed or denied
   */
  public Decision tryAcquire(Limit limit, String key, long cost) {
    return tryAcquire(Call.of(limit, key).cost(cost));
  }

  /**
   * Takes permits if they are all there, or come while the call may wait.
   *
   * @param call limit, key, cost, waiting and timeout
   * @return the decision, allowed or denied
   */
  public Decision tryAcquire(Call call) {
    return ask(questions.acquire(call));
  }

  /**
   * Takes one permit.
   *
   * @param limit the name of a policy, or a limit like {@code "10/minute"}
   * @param key whose call it is, 1 to 1024 bytes in UTF-8
   * @return the decision, which is allowed
   * @throws RateLimitExceededException when it is denied
   */
  public Decision acquireOrThrow(String limit, String key) {
    return acquireOrThrow(Call.of(limit, key));
  }

  /**
   * Takes permits.
   *
   * @param call limit, key, cost, waiting and timeout
   * @return the decision, which is allowed
   * @throws RateLimitExceededException when it is denied
   */
  public Decision acquireOrThrow(Call call) {
    Decision decision = tryAcquire(call);
    if (!decision.allowed()) {
      throw new RateLimitExceededException(decision);
    }
    return decision;
  }

  /**
   * Takes from all, or from none.
   *
   * @param calls 1 to 32; the longest of their waits and of their timeouts hold for the whole
   * @return a decision for each
   */
  public AllDecision tryAcquireAll(Call... calls) {
    return tryAcquireAll(Arrays.asList(calls));
  }

  /**
   * Takes from all, or from none.
   *
   * @param calls 1 to 32; the longest of their waits and of their timeouts hold for the whole
   * @return a decision for each
   */
  public AllDecision tryAcquireAll(List<Call> calls) {
    return ask(questions.acquireAll(calls));
  }

  /**
   * Holds a permit of a concurrency limit.
   *
   * <pre>{@code
   * try (Permit permit = limits.hold("exports", user)) {
   *   export();
   * }
   * }</pre>
   *
   * @param limit the name of a policy
   * @param key whose call it is, 1 to 1024 bytes in UTF-8
   * @return the permit, to be closed
   * @throws RateLimitExceededException when there is none
   */
  public Permit hold(String limit, String key) {
    return hold(Call.of(limit, key));
  }

  /**
   * Holds permits of a concurrency limit.
   *
   * @param call limit, key, cost, waiting and timeout
   * @return the permit, to be closed
   * @throws RateLimitExceededException when there is none, or none came while the call could wait
   */
  public Permit hold(Call call) {
    AtomicReference<Connection> kept = new AtomicReference<>();
    Decision decision = ask(questions.acquire(call), kept::set);
    Connection connection = kept.get();
    if (connection != null && !(decision.allowed() && decision.permit().isPresent())) {
      pool.give(connection);
      connection = null;
    }
    if (!decision.allowed()) {
      throw new RateLimitExceededException(decision);
    }
    return new Permit(decision, connection, over -> releaseOver(over, decision));
  }

  private boolean releaseOver(Connection connection, Decision decision) {
    try {
      return blocking.askOver(connection, questions.release(decision.permit().getAsLong()));
    } catch (RlSidecarException failure) {
      unanswered.report(failure);
      return false;
    }
  }

  /**
   * Gives back the permit of a decision. What {@link #hold} gave does this by itself.
   *
   * @param permit 1 to 2^53-1
   * @return true: it was held. False: it was not any more, or the agent was not reached
   */
  public boolean release(long permit) {
    return ask(questions.release(permit));
  }

  /**
   * What {@code tryAcquire} would say. Takes nothing.
   *
   * @param limit the name of a policy, or a limit like {@code "10/minute"}
   * @param key whose call it is, 1 to 1024 bytes in UTF-8
   * @return the decision
   */
  public Decision peek(String limit, String key) {
    return peek(Call.of(limit, key));
  }

  /**
   * What {@code tryAcquire} would say. Takes nothing and does not wait.
   *
   * @param call limit, key, cost of 0 or more, and timeout
   * @return the decision
   */
  public Decision peek(Call call) {
    return ask(questions.peek(call));
  }

  /**
   * Puts one permit back, up to the capacity.
   *
   * @param limit the name of a policy, or a limit like {@code "10/minute"}
   * @param key whose call it was, 1 to 1024 bytes in UTF-8
   * @return false: the agent was not reached
   */
  public boolean refund(String limit, String key) {
    return refund(Call.of(limit, key));
  }

  /**
   * Puts permits back, up to the capacity.
   *
   * @param call limit, key, cost and timeout
   * @return false: the agent was not reached
   */
  public boolean refund(Call call) {
    return ask(questions.refund(call));
  }

  /**
   * Starts a bucket afresh, on every host.
   *
   * @param limit the name of a policy, or a limit like {@code "10/minute"}
   * @param key whose bucket it is, 1 to 1024 bytes in UTF-8
   * @return false: the agent was not reached
   */
  public boolean reset(String limit, String key) {
    return reset(Call.of(limit, key));
  }

  /**
   * Starts a bucket afresh, on every host.
   *
   * @param call limit, key and timeout
   * @return false: the agent was not reached
   */
  public boolean reset(Call call) {
    return ask(questions.reset(call));
  }

  /**
   * redis-cell's {@code CL.THROTTLE}: {@code count} per {@code period}, and {@code maxBurst} on top.
   *
   * @param key whose call it is, 1 to 1024 bytes in UTF-8
   * @param maxBurst 0 to 2^53-1
   * @param count 1 to 2^53-1
   * @param period seconds, 1 to 2^53-1
   * @param quantity 0 to 2^53-1; 0 takes nothing
   * @return its five values
   */
  public ThrottleReply throttle(String key, long maxBurst, long count, long period, long quantity) {
    return ask(questions.throttle(key, maxBurst, count, period, quantity));
  }

  /**
   * The agent about itself: {@code version}, {@code mode}, {@code stats} and more.
   *
   * @return values are Map, List, String, Long, Double or Boolean
   * @throws UnavailableException in every mode: there is no other answer
   */
  public Map<String, Object> info() {
    return askAgent(questions.info());
  }

  /**
   * Returns when the agent answers.
   *
   * @throws UnavailableException in every mode when it does not
   */
  public void ping() {
    askAgent(questions.ping());
  }

  /**
   * As {@link #tryAcquire(String, String)}, without blocking.
   *
   * @param limit the name of a policy, or a limit like {@code "10/minute"}
   * @param key whose call it is, 1 to 1024 bytes in UTF-8
   * @return completes with the decision
   */
  public CompletionStage<Decision> tryAcquireAsync(String limit, String key) {
    return askAsync(() -> questions.acquire(Call.of(limit, key)));
  }

  /**
   * As {@link #tryAcquire(Call)}, without blocking.
   *
   * @param call limit, key, cost, waiting and timeout
   * @return completes with the decision
   */
  public CompletionStage<Decision> tryAcquireAsync(Call call) {
    return askAsync(() -> questions.acquire(call));
  }

  /**
   * As {@link #tryAcquireAll(List)}, without blocking.
   *
   * @param calls 1 to 32; the longest of their waits and of their timeouts hold for the whole
   * @return completes with a decision for each
   */
  public CompletionStage<AllDecision> tryAcquireAllAsync(List<Call> calls) {
    return askAsync(() -> questions.acquireAll(calls));
  }

  /**
   * As {@link #peek(Call)}, without blocking.
   *
   * @param call limit, key, cost of 0 or more, and timeout
   * @return completes with the decision
   */
  public CompletionStage<Decision> peekAsync(Call call) {
    return askAsync(() -> questions.peek(call));
  }

  /**
   * As {@link #refund(Call)}, without blocking.
   *
   * @param call limit, key, cost and timeout
   * @return completes with false when the agent was not reached
   */
  public CompletionStage<Boolean> refundAsync(Call call) {
    return askAsync(() -> questions.refund(call));
  }

  /**
   * As {@link #reset(Call)}, without blocking.
   *
   * @param call limit, key and timeout
   * @return completes with false when the agent was not reached
   */
  public CompletionStage<Boolean> resetAsync(Call call) {
    return askAsync(() -> questions.reset(call));
  }

  /**
   * As {@link #release(long)}, without blocking.
   *
   * @param permit 1 to 2^53-1
   * @return completes with true when it was held
   */
  public CompletionStage<Boolean> releaseAsync(long permit) {
    return askAsync(() -> questions.release(permit));
  }

  private <T> T ask(Question<T> question) {
    return ask(question, pool::give);
  }

  private <T> T ask(Question<T> question, Consumer<Connection> keeper) {
    if (disabled) {
      return question.without(Substitute.ALLOW);
    }
    try {
      return blocking.ask(question, keeper);
    } catch (UnavailableException failure) {
      return unanswered.answer(question, failure);
    }
  }

  private <T> T askAgent(Question<T> question) {
    if (disabled) {
      throw new UnavailableException("switched off by RLSIDECAR_DISABLE").withStack();
    }
    try {
      return blocking.ask(question, pool::give);
    } catch (UnavailableException failure) {
      throw failure.withStack();
    }
  }

  private <T> CompletionStage<T> askAsync(Supplier<Question<T>> asked) {
    CompletableFuture<T> answer = new CompletableFuture<>();
    try {
      Question<T> question = asked.get();
      if (disabled) {
        answer.complete(question.without(Substitute.ALLOW));
      } else {
        async.ask(question, failure -> unanswered.answer(question, failure), answer);
      }
    } catch (RlSidecarException e) {
      answer.completeExceptionally(e);
    }
    return answer;
  }

  /**
   * Closes the connections, and ends the thread of the asynchronous calls; those under way get no
   * answer from the agent. A call made afterwards connects again.
   */
  @Override
  public void close() {
    pool.close();
    async.close();
  }

  /** Builds a client. What it is not told comes from the environment, else from the default. */
  public static final class Builder {
    private String address;
    private Duration timeout;
    private OnUnavailable onUnavailable;
    private String app;
    private int maxConnections = 64;
    private Executor executor = AsyncCalls.commonPool();
    private Map<String, String> environment = System.getenv();

    private Builder() {}

    /**
     * The agent's socket; else {@code RLSIDECAR_ADDRESS}, else {@code
     * unix:///run/rlsidecar/rlsidecar.sock}.
     *
     * @param address {@code unix:///path} or a path, up to 107 bytes
     * @return this builder
     */
    public Builder address(String address) {
      this.address = address;
      return this;
    }

    /**
     * What a whole call may take, connecting included; else {@code RLSIDECAR_TIMEOUT_MS}, else 50 ms.
     *
     * @param timeout more than 0, up to an hour
     * @return this builder
     */
    public Builder timeout(Duration timeout) {
      this.timeout = timeout;
      return this;
    }

    /**
     * What a call does that gets no decision; else {@code RLSIDECAR_ON_UNAVAILABLE}, which is {@code
     * allow}, {@code deny}, {@code local} or {@code raise}, else {@link OnUnavailable#ALLOW}.
     *
     * @param mode the mode
     * @return this builder
     */
    public Builder onUnavailable(OnUnavailable mode) {
      this.onUnavailable = mode;
      return this;
    }

    /**
     * The name of the calling application, where the operator lets callers say so; else {@code
     * RLSIDECAR_APP}, else none.
     *
     * @param name 1 to 128 bytes
     * @return this builder
     */
    public Builder app(String name) {
      this.app = name;
      return this;
    }

    /**
     * How many blocking calls are under way at once; more wait for their turn, within their timeout.
     * Each has a connection, of three file descriptors, which stays open for the next one. Calls that wait for permits, and holds, come
     * on top.
     *
     * @param most 1 or more; 64 unless told otherwise
     * @return this builder
     */
    public Builder maxConnections(int most) {
      if (most < 1) {
        throw new InvalidRequestException("maxConnections " + most + ": allowed are 1 or more");
      }
      this.maxConnections = most;
      return this;
    }

    /**
     * What the stages of asynchronous calls complete on. {@code Runnable::run} saves the hand-over,
     * and then nothing that hangs on them may block.
     *
     * @param executor the common pool unless told otherwise
     * @return this builder
     */
    public Builder executor(Executor executor) {
      this.executor = executor;
      return this;
    }

    /**
     * Other variables than those of the process, for tests and for frameworks with settings of their
     * own.
     *
     * @param variables by name, like {@code RLSIDECAR_ADDRESS}
     * @return this builder
     */
    public Builder environment(Map<String, String> variables) {
      this.environment = variables;
      return this;
    }

    /**
     * Builds the client. Connects to nothing.
     *
     * @return a new client, to be closed in the end
     * @throws InvalidRequestException when the address, the timeout, the mode or the name cannot be
     * @throws IllegalStateException before Java 16 without junixsocket
     */
    public RlSidecarClient build() {
      return new RlSidecarClient(this);
    }
  }
}
