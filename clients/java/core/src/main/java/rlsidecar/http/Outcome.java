package rlsidecar.http;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.stream.Collectors;
import rlsidecar.Decision;
import rlsidecar.Limit;
import rlsidecar.Source;

/**
 * What was asked for one request, and the answers.
 *
 * <p>All times in headers are whole seconds from now, rounded up: who waits as long as told is not
 * told to wait again. What is not known is left out: nothing but {@code Retry-After} is said of a
 * decision that the client made by itself, and no {@code Retry-After} of a call that can never be
 * allowed.
 */
public final class Outcome {
  private static final Comparator<Decision> TIGHTEST =
      Comparator.comparing(Decision::allowed)
          .thenComparingDouble(decision -> (double) decision.remaining() / Math.max(1, decision.limit()));

  private final List<Rule> rules;
  private final List<Decision> decisions;

  Outcome(List<Rule> rules, List<Decision> decisions) {
    this.rules = rules;
    this.decisions = decisions;
  }

  /**
   * Whether the request may go through.
   *
   * @return true when no rule denies it
   */
  public boolean allowed() {
    return decisions.stream().allMatch(Decision::allowed);
  }

  /**
   * The decision to tell about.
   *
   * @return that of a rule that denied, else the one with the smallest part left
   */
  public Decision decision() {
    return decisions.stream().min(TIGHTEST).orElseThrow(IllegalStateException::new);
  }

  /**
   * The headers of the response.
   *
   * @param style which ones
   * @return values by name, in order
   */
  public Map<String, String> headers(HeaderStyle style) {
    Map<String, String> headers = new LinkedHashMap<>();
    if (style == HeaderStyle.X) {
      addX(headers);
    } else if (style == HeaderStyle.IETF) {
      addIetf(headers);
    }
    retryAfter().ifPresent(seconds -> headers.put("Retry-After", Long.toString(seconds)));
    return headers;
  }

  private void addX(Map<String, String> headers) {
    Optional<Decision> tightest = decisions.stream().filter(Outcome::isKnown).min(TIGHTEST);
    tightest.ifPresent(
        decision -> {
          headers.put("X-RateLimit-Limit", Long.toString(decision.limit()));
          headers.put("X-RateLimit-Remaining", Long.toString(decision.remaining()));
          headers.put("X-RateLimit-Reset", Long.toString(seconds(decision.resetAfter())));
        });
  }

  private void addIetf(Map<String, String> headers) {
    List<String> policies = new ArrayList<>();
    List<String> left = new ArrayList<>();
    for (int i = 0; i < rules.size(); i++) {
      Decision decision = decisions.get(i);
      if (isKnown(decision)) {
        String name = quoted(rules.get(i).name());
        policies.add(name + ";q=" + decision.limit() + window(rules.get(i)));
        left.add(name + ";r=" + decision.remaining() + ";t=" + seconds(decision.resetAfter()));
      }
    }
    if (!policies.isEmpty()) {
      headers.put("RateLimit-Policy", String.join(", ", policies));
      headers.put("RateLimit", String.join(", ", left));
    }
  }

  /** The longest wait of the rules that denied; at least a second; none when one never allows. */
  private Optional<Long> retryAfter() {
    List<Optional<Duration>> waits =
        decisions.stream()
            .filter(decision -> !decision.allowed())
            .map(Decision::retryAfter)
            .collect(Collectors.toList());
    if (!waits.stream().allMatch(Optional::isPresent)) {
      return Optional.empty();
    }
    return waits.stream().map(wait -> Math.max(1, seconds(wait.get()))).max(Long::compare);
  }

  private static boolean isKnown(Decision decision) {
    return decision.limit() > 0 && decision.source() != Source.CLIENT;
  }

  private static long seconds(Duration duration) {
    return (duration.toMillis() + 999) / 1000;
  }

  /** The period of a limit of the application's own; a policy's is known to the agent only. */
  private static String window(Rule rule) {
    Duration period = rule.own().map(Limit::period).orElse(Duration.ZERO);
    return period.getSeconds() < 1 ? "" : ";w=" + seconds(period);
  }

  /** A string of structured fields: printable ASCII, with quotes and backslashes escaped. */
  private static String quoted(String name) {
    String printable = name.replaceAll("[^ -~]", "?");
    return '"' + printable.replace("\\", "\\\\").replace("\"", "\\\"") + '"';
  }
}
