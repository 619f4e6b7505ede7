// From the calls of the public API to what goes on the wire for them.
package rlsidecar;

import static rlsidecar.Question.Method.ACQUIRE;
import static rlsidecar.Question.Method.ACQUIRE_ALL;
import static rlsidecar.Question.Method.INFO;
import static rlsidecar.Question.Method.PEEK;
import static rlsidecar.Question.Method.PING;
import static rlsidecar.Question.Method.REFUND;
import static rlsidecar.Question.Method.RELEASE;
import static rlsidecar.Question.Method.RESET;
import static rlsidecar.Question.Method.THROTTLE;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.function.Consumer;
import java.util.function.Function;

final class Questions {
  private final Duration timeout;
  private final byte[] app; // null: none

  Questions(Duration timeout, byte[] app) {
    this.timeout = timeout;
    this.app = app;
  }

  Question<Decision> acquire(Call call) {
    long cost = call.costOfAtLeastOne();
    long wait = call.waitMillis();
    return decision(
        ACQUIRE, call, wait, packer -> packBucket(packer, call, cost, wait), instead -> instead.take(call));
  }

  Question<Decision> peek(Call call) {
    return decision(
        PEEK, call, 0, packer -> packBucket(packer, call, call.cost(), 0), instead -> instead.peek(call));
  }

  Question<Boolean> refund(Call call) {
    long cost = call.costOfAtLeastOne();
    return done(REFUND, call, packer -> packBucket(packer, call, cost, 0));
  }

  Question<Boolean> reset(Call call) {
    if (app != null) {
      return done(RESET, call, packer -> packBucket(packer, call, 1, 0));
    }
    return done(RESET, call, packer -> call.packBucket(packer.array(2)));
  }

  Question<AllDecision> acquireAll(List<Call> calls) {
    if (calls.isEmpty() || calls.size() > Arguments.MAX_CALLS) {
      throw new InvalidRequestException(calls.size() + " calls: allowed are 1 to " + Arguments.MAX_CALLS);
    }
    calls.forEach(Call::costOfAtLeastOne);
    long wait = calls.stream().mapToLong(Call::waitMillis).max().getAsLong();
    return new Question<>(
        ACQUIRE_ALL,
        packer -> packAll(packer, calls, wait),
        result -> Reply.all(calls.size(), result),
        instead -> instead.takeAll(calls),
        wait,
        calls.stream().map(this::timeout).max(Duration::compareTo).get());
  }

  Question<Boolean> release(long permit) {
    Arguments.number("permit", permit, 1);
    Consumer<Packer> params = packer -> packer.array(1).number(permit);
    return new Question<>(RELEASE, params, Unpacker::bool, instead -> false, 0, timeout);
  }

  Question<ThrottleReply> throttle(String key, long maxBurst, long count, long period, long quantity) {
    byte[] packedKey = Arguments.key(key);
    Arguments.number("maxBurst", maxBurst, 0);
    Arguments.number("count", count, 1);
    Arguments.number("period", period, 1);
    Arguments.number("quantity", quantity, 0);
    return new Question<>(
        THROTTLE,
        packer -> {
          packer.array(5).text(packedKey).number(maxBurst).number(count).number(period).number(quantity);
        },
        Reply::throttle,
        instead -> ThrottleReply.unanswered(instead.allows(), quantity, maxBurst + 1),
        0,
        timeout);
  }

  Question<Map<String, Object>> info() {
    return about(INFO, Reply::info);
  }

  Question<Boolean> ping() {
    return about(PING, Reply::pong);
  }

  private Question<Decision> decision(
      Question.Method method,
      Call call,
      long wait,
      Consumer<Packer> params,
      Function<Substitute, Decision> unanswered) {
    return new Question<>(method, params, Reply::decision, unanswered, wait, timeout(call));
  }

  private Question<Boolean> done(Question.Method method, Call call, Consumer<Packer> params) {
    return new Question<>(method, params, Unpacker::bool, instead -> false, 0, timeout(call));
  }

  private <T> Question<T> about(Question.Method method, Function<Unpacker, T> answer) {
    Function<Substitute, T> none =
        instead -> {
          throw new IllegalStateException("there is no answer but the agent's");
        };
    return new Question<>(method, packer -> packer.array(0), answer, none, 0, timeout);
  }

  private Duration timeout(Call call) {
    return call.timeout().orElse(timeout);
  }

  private void packBucket(Packer packer, Call call, long cost, long wait) {
    boolean hasOptions = app != null || wait > 0;
    call.packBucket(packer.array(hasOptions ? 4 : 3));
    packer.number(cost);
    packOptions(packer, wait);
  }

  private void packAll(Packer packer, List<Call> calls, long wait) {
    packer.array(app != null || wait > 0 ? 2 : 1).array(calls.size());
    for (Call call : calls) {
      call.packBucket(packer.array(3));
      packer.number(call.cost());
    }
    packOptions(packer, wait);
  }

  private void packOptions(Packer packer, long wait) {
    int options = (app != null ? 1 : 0) + (wait > 0 ? 1 : 0);
    if (options > 0) {
      packer.map(options);
    }
    if (app != null) {
      packer.text("app").text(app);
    }
    if (wait > 0) {
      packer.text("wait_ms").number(wait);
    }
  }
}
