// One question to the agent, apart from how it is sent: the blocking and the asynchronous way ask
// the same questions, read the answers alike, and go without an answer alike.
package rlsidecar;

import java.time.Duration;
import java.util.Locale;
import java.util.function.Consumer;
import java.util.function.Function;

final class Question<T> {
  private final byte[] method;
  private final Consumer<Packer> params;
  private final Function<Unpacker, T> answer;
  private final Function<Substitute, T> unanswered;
  private final long waitNanos;
  private final long budgetNanos;

  /**
   * @param params writes the list of parameters
   * @param answer reads the result
   * @param unanswered what to make of having no answer, told what decides instead of the agent
   */
  Question(
      Method method,
      Consumer<Packer> params,
      Function<Unpacker, T> answer,
      Function<Substitute, T> unanswered,
      long waitMillis,
      Duration timeout) {
    this.method = method.packed;
    this.params = params;
    this.answer = answer;
    this.unanswered = unanswered;
    this.waitNanos = waitMillis * 1_000_000;
    this.budgetNanos = timeout.toNanos() + waitNanos;
  }

  /** How long the whole call may take, in nanoseconds. */
  long budget() {
    return budgetNanos;
  }

  /** Whether the agent may hold back the answer. */
  boolean waits() {
    return waitNanos > 0;
  }

  void pack(Packer packer, int msgid) {
    packer.array(4).number(Reply.REQUEST).number(msgid).raw(method);
    params.accept(packer);
  }

  T read(Unpacker result) {
    return answer.apply(result);
  }

  T without(Substitute substitute) {
    return unanswered.apply(substitute);
  }

  /** The methods of the wire, packed once. */
  enum Method {
    ACQUIRE,
    ACQUIRE_ALL,
    PEEK,
    REFUND,
    RELEASE,
    RESET,
    THROTTLE,
    INFO,
    PING;

    private final byte[] packed =
        new Packer(16).text(name().toLowerCase(Locale.ROOT)).toBytes();
  }
}
