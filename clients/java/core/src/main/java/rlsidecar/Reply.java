// Reading what the agent says: shapes and error codes. Items beyond those known here are skipped.
package rlsidecar;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;

final class Reply {
  static final int REQUEST = 0;
  static final int RESPONSE = 1;
  static final int NOTIFICATION = 2;

  private static final int DECISION_ITEMS = 7;
  private static final int SHADOW = 1;
  private static final long NEVER = -1;

  private Reply() {}

  /** The msgid that a message answers; empty: it is a notification. */
  static Optional<Long> msgid(Unpacker message) {
    int items = message.isArray() ? message.array() : 0;
    long type = items >= 3 && message.isInteger() ? message.integer() : -1;
    if (type == NOTIFICATION && message.isText()) {
      return Optional.empty();
    }
    if (type != RESPONSE || items < 4 || !message.isInteger()) {
      throw new ProtocolException("the agent sent a message that is neither reply nor notification");
    }
    return Optional.of(message.integer());
  }

  /**
   * The answer to the question, in a message that was read up to its msgid.
   *
   * @throws ProtocolException when it has another shape; then the connection is not to be used again
   * @throws RlSidecarException the agent's error
   */
  static <T> T read(Unpacker message, Question<T> question) {
    if (message.nil()) {
      return question.read(message);
    }
    throw failure(message);
  }

  private static RlSidecarException failure(Unpacker error) {
    if (error.array() < 2) {
      throw new ProtocolException("the agent's error has neither code nor message");
    }
    long code = error.integer();
    Object message = error.value();
    return failure(code, String.valueOf(message));
  }

  private static RlSidecarException failure(long code, String message) {
    switch ((int) Math.min(code, Integer.MAX_VALUE)) {
      case 1:
        // Thrown, not returned: the agent closes the connection after it.
        throw new ProtocolException("the agent refused the request: " + message);
      case 2:
        return new UnavailableException(
            "the agent does not know the method, it may be older than this client: " + message);
      case 3:
        return new UnknownPolicyException(message);
      case 4:
        return new InvalidRequestException(message);
      case 8:
        return new NotPermittedException(message);
      default:
        return new UnavailableException(message);
    }
  }

  static Decision decision(Unpacker in) {
    int items = in.array();
    if (items < DECISION_ITEMS) {
      throw new ProtocolException("the agent's decision has " + items + " items, at least 7 are needed");
    }
    boolean allowed = in.bool();
    long limit = natural("limit", in);
    long remaining = natural("remaining", in);
    long resetAfter = natural("reset_after_ms", in);
    long retryAfter = atLeast(NEVER, "retry_after_ms", in);
    Source source = Source.of(natural("source", in));
    boolean shadow = (natural("flags", in) & SHADOW) != 0;
    long permit = items > DECISION_ITEMS ? permit(in) : 0;
    in.skip(Math.max(0, items - DECISION_ITEMS - 1));
    return new Decision(allowed, limit, remaining, resetAfter, retryAfter, source, shadow, permit);
  }

  private static long permit(Unpacker in) {
    if (in.isInteger()) {
      return in.integer();
    }
    in.skip();
    return 0;
  }

  static AllDecision all(int calls, Unpacker in) {
    if (in.array() < 2) {
      throw new ProtocolException("the agent's answer to acquire_all has fewer than 2 items");
    }
    boolean allowed = in.bool();
    int items = in.array();
    if (items != calls) {
      throw new ProtocolException("the agent sent " + items + " decisions for " + calls + " calls");
    }
    List<Decision> decisions = new ArrayList<>(items);
    for (int i = 0; i < items; i++) {
      decisions.add(decision(in));
    }
    return new AllDecision(allowed, decisions);
  }

  static ThrottleReply throttle(Unpacker in) {
    if (in.array() < 5) {
      throw new ProtocolException("the agent's answer to throttle has fewer than 5 items");
    }
    return new ThrottleReply(
        in.integer() != 0, in.integer(), in.integer(), in.integer(), in.integer(), false);
  }

  @SuppressWarnings("unchecked")
  static Map<String, Object> info(Unpacker in) {
    Object value = in.value();
    if (!(value instanceof Map)) {
      throw new ProtocolException("the agent's answer to info is no map");
    }
    return (Map<String, Object>) value;
  }

  static boolean pong(Unpacker in) {
    if (!in.text().equals("pong")) {
      throw new ProtocolException("the agent's answer to ping is not pong");
    }
    return true;
  }

  private static long natural(String name, Unpacker in) {
    return atLeast(0, name, in);
  }

  private static long atLeast(long least, String name, Unpacker in) {
    long value = in.integer();
    if (value < least || value > Arguments.MAX_NUMBER) {
      throw new ProtocolException("the agent's decision has a " + name + " of " + value);
    }
    return value;
  }
}
