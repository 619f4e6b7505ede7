// Where the settings come from: the builder, then the environment, then the default.
package rlsidecar;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.regex.Pattern;

final class Settings {
  private static final String DEFAULT_ADDRESS = "unix:///run/rlsidecar/rlsidecar.sock";
  private static final Duration DEFAULT_TIMEOUT = Duration.ofMillis(50);
  private static final int MAX_PATH_BYTES = 107;
  private static final String UNIX = "unix://";
  private static final Pattern SCHEME = Pattern.compile("[A-Za-z][A-Za-z0-9+.-]*:.*", Pattern.DOTALL);
  private static final List<String> YES = Arrays.asList("1", "true", "yes", "on");
  private static final List<String> NO = Arrays.asList("", "0", "false", "no", "off");

  private final Map<String, String> environment;

  Settings(Map<String, String> environment) {
    this.environment = environment;
  }

  /** The path to connect to. */
  String path(String given) {
    String address = or(given, "RLSIDECAR_ADDRESS", DEFAULT_ADDRESS);
    boolean hasScheme = address.startsWith(UNIX);
    String path = hasScheme ? address.substring(UNIX.length()) : address;
    if (hasScheme ? !path.startsWith("/") : SCHEME.matcher(path).matches()) {
      throw wrong("address", address, "write unix:///path/to/socket or a path");
    }
    if (path.isEmpty() || path.indexOf('\0') >= 0) {
      throw wrong("address", address, "a path must not be empty or have NUL bytes");
    }
    int size = path.getBytes(StandardCharsets.UTF_8).length;
    if (size > MAX_PATH_BYTES) {
      throw wrong("address", address, "the path has " + size + " bytes, at most 107 are allowed");
    }
    return path;
  }

  Duration timeout(Duration given) {
    if (given != null) {
      return Arguments.timeout(given);
    }
    String text = or(null, "RLSIDECAR_TIMEOUT_MS", "");
    if (text.isEmpty()) {
      return DEFAULT_TIMEOUT;
    }
    try {
      return Arguments.timeout(Duration.ofNanos(Math.round(Double.parseDouble(text) * 1e6)));
    } catch (NumberFormatException | InvalidRequestException e) {
      throw wrong("RLSIDECAR_TIMEOUT_MS", text, "allowed are more than 0 to 3600000");
    }
  }

  OnUnavailable onUnavailable(OnUnavailable given) {
    if (given != null) {
      return given;
    }
    String text = or(null, "RLSIDECAR_ON_UNAVAILABLE", "allow");
    for (OnUnavailable mode : OnUnavailable.values()) {
      if (mode.name().toLowerCase(Locale.ROOT).equals(text)) {
        return mode;
      }
    }
    throw wrong("RLSIDECAR_ON_UNAVAILABLE", text, "there are allow, deny, local, raise");
  }

  /** The application's name in UTF-8, null when it has none. */
  byte[] app(String given) {
    String name = or(given, "RLSIDECAR_APP", "");
    if (name.isEmpty() && given == null) {
      return null;
    }
    if (name.chars().anyMatch(Character::isISOControl)) {
      throw wrong("app", name, "write a name of 1 to 128 bytes without control characters");
    }
    return Arguments.app(name);
  }

  boolean isDisabled() {
    String text = or(null, "RLSIDECAR_DISABLE", "").trim().toLowerCase(Locale.ROOT);
    if (!YES.contains(text) && !NO.contains(text)) {
      throw wrong("RLSIDECAR_DISABLE", text, "write 1 or 0");
    }
    return YES.contains(text);
  }

  private String or(String given, String variable, String otherwise) {
    if (given != null) {
      return given;
    }
    String value = environment.get(variable);
    return value == null || value.isEmpty() ? otherwise : value;
  }

  private static InvalidRequestException wrong(String name, String value, String allowed) {
    return new InvalidRequestException(name + " '" + value + "': " + allowed);
  }
}
