// Telling limits that are written as text, like "10/minute", from names of policies.
package rlsidecar;

import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

final class LimitText {
  private static final Pattern TEXT =
      Pattern.compile(
          "([0-9][0-9_]*)\\s*/\\s*([0-9][0-9_]*)?\\s*"
              + "(ms|milliseconds?|s|sec|seconds?|m|min|minutes?|h|hours?|d|days?)");
  private static final int MAX_DIGITS = 16;
  private static final int REMEMBERED = 1024;
  private static final Map<String, Long> MILLISECONDS = new HashMap<>();

  static {
    unit(1, "ms", "millisecond");
    unit(1000, "s", "sec", "second");
    unit(60_000, "m", "min", "minute");
    unit(3_600_000, "h", "hour");
    unit(86_400_000, "d", "day");
  }

  private static final Map<String, Limit> KNOWN = new ConcurrentHashMap<>();

  private LimitText() {}

  private static void unit(long milliseconds, String... names) {
    for (String name : names) {
      MILLISECONDS.put(name, milliseconds);
    }
  }

  /** The limit that the text states; empty: it is the name of a policy. */
  static Optional<Limit> parse(String text) {
    if (text.isEmpty() || text.charAt(0) < '0' || text.charAt(0) > '9') {
      return Optional.empty();
    }
    Limit known = KNOWN.get(text);
    if (known != null) {
      return Optional.of(known);
    }
    Matcher matcher = TEXT.matcher(text);
    if (!matcher.matches()) {
      return Optional.empty();
    }
    Limit limit = Limit.per(number(matcher.group(1)), period(matcher.group(2), matcher.group(3)));
    if (KNOWN.size() < REMEMBERED) {
      KNOWN.put(text, limit);
    }
    return Optional.of(limit);
  }

  private static Duration period(String times, String unit) {
    Long milliseconds = MILLISECONDS.get(unit);
    if (milliseconds == null) {
      milliseconds = MILLISECONDS.get(unit.substring(0, unit.length() - 1));
    }
    try {
      return Duration.ofMillis(Math.multiplyExact(times == null ? 1 : number(times), milliseconds));
    } catch (ArithmeticException e) {
      throw new InvalidRequestException("period " + times + " " + unit + ": is too long, allowed are 366 days");
    }
  }

  private static long number(String digits) {
    if (digits.length() > MAX_DIGITS) {
      throw new InvalidRequestException(
          "number " + digits.substring(0, MAX_DIGITS) + "...: at most " + MAX_DIGITS
              + " digits are allowed in a limit");
    }
    return Long.parseLong(digits.replace("_", ""));
  }
}
