// From what the client gave to the suite's JSON.
package rlsidecar.conformance;

import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.stream.Collectors;
import rlsidecar.AgentNotRunningException;
import rlsidecar.AgentTimeoutException;
import rlsidecar.AllDecision;
import rlsidecar.Decision;
import rlsidecar.InvalidRequestException;
import rlsidecar.NotPermittedException;
import rlsidecar.ProtocolException;
import rlsidecar.RateLimitExceededException;
import rlsidecar.Source;
import rlsidecar.UnavailableException;
import rlsidecar.UnknownPolicyException;

final class Answers {
  private static final Map<Class<?>, String> KINDS =
      Map.of(
          UnavailableException.class, "unavailable",
          AgentTimeoutException.class, "timeout",
          AgentNotRunningException.class, "not_running",
          ProtocolException.class, "protocol",
          UnknownPolicyException.class, "unknown_policy",
          InvalidRequestException.class, "invalid_request",
          NotPermittedException.class, "not_permitted",
          RateLimitExceededException.class, "rate_limited");

  private Answers() {}

  static Map<String, Object> ok(boolean ok) {
    return Map.of("ok", ok);
  }

  static Map<String, Object> done(boolean ok, long elapsed) {
    return Map.of("ok", ok, "elapsed_us", elapsed / 1000);
  }

  static Map<String, Object> decision(Decision decision, long elapsed) {
    Map<String, Object> answer = new LinkedHashMap<>();
    answer.put("allowed", decision.allowed());
    answer.put("limit", decision.limit());
    answer.put("remaining", decision.remaining());
    answer.put("reset_after_ms", decision.resetAfter().toMillis());
    answer.put("retry_after_ms", decision.retryAfter().map(Duration::toMillis).orElse(-1L));
    answer.put("source", number(decision.source()));
    answer.put("degraded", decision.degraded());
    answer.put("shadow", decision.shadow());
    answer.put("permit", decision.permit().isPresent() ? decision.permit().getAsLong() : null);
    answer.put("elapsed_us", elapsed / 1000);
    return answer;
  }

  static Map<String, Object> all(AllDecision all, long elapsed) {
    Map<String, Object> answer = new LinkedHashMap<>();
    answer.put("allowed", all.allowed());
    answer.put("decisions", all.decisions().stream().map(d -> decision(d, elapsed)).collect(Collectors.toList()));
    answer.put("degraded", all.degraded());
    answer.put("elapsed_us", elapsed / 1000);
    return answer;
  }

  static Map<String, Object> error(Exception e, long began) {
    Map<String, Object> answer = new LinkedHashMap<>();
    answer.put("error", kind(e.getClass()));
    answer.put("message", String.valueOf(e.getMessage()));
    answer.put("elapsed_us", (System.nanoTime() - began) / 1000);
    return answer;
  }

  private static String kind(Class<?> thrown) {
    if (thrown == Object.class) {
      return "other";
    }
    String kind = KINDS.get(thrown);
    return kind != null ? kind : kind(thrown.getSuperclass());
  }

  /** The wire's number; -1 when there is none. */
  private static int number(Source source) {
    return source.compareTo(Source.LIST) <= 0 ? source.ordinal() : -1;
  }
}
