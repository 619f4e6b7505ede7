// What a caller may pass, checked before a byte is sent. The agent checks the same; checking here as
// well makes a mistake look the same on a developer's machine without an agent as in production.
package rlsidecar;

import java.nio.charset.StandardCharsets;
import java.time.Duration;

final class Arguments {
  static final long MAX_NUMBER = (1L << 53) - 1;
  static final int MAX_KEY_BYTES = 1024;
  static final int MAX_NAME_BYTES = 128;
  static final int MAX_CALLS = 32;
  static final Duration MAX_TIMEOUT = Duration.ofHours(1);
  static final Duration MAX_WAIT = Duration.ofMinutes(1);

  private static final int SHOWN = 40;

  private Arguments() {}

  static byte[] key(String key) {
    return sized("key", key, MAX_KEY_BYTES);
  }

  static byte[] key(byte[] key) {
    if (key.length < 1 || key.length > MAX_KEY_BYTES) {
      throw wrongSize("key", key.length, MAX_KEY_BYTES);
    }
    return key.clone();
  }

  static byte[] policy(String name) {
    return sized("policy", name, MAX_NAME_BYTES);
  }

  static byte[] app(String name) {
    return sized("app", name, MAX_NAME_BYTES);
  }

  static long number(String name, long value, long least) {
    if (value < least || value > MAX_NUMBER) {
      throw new InvalidRequestException(
          name + " " + value + ": allowed are whole numbers from " + least + " to 2^53-1");
    }
    return value;
  }

  static Duration timeout(Duration timeout) {
    if (timeout.isNegative() || timeout.isZero() || timeout.compareTo(MAX_TIMEOUT) > 0) {
      throw new InvalidRequestException("timeout " + timeout + ": allowed are more than 0 to " + MAX_TIMEOUT);
    }
    return timeout;
  }

  static Duration wait(Duration wait) {
    if (wait.isNegative() || wait.compareTo(MAX_WAIT) > 0) {
      throw new InvalidRequestException("wait " + wait + ": allowed are 0 to " + MAX_WAIT);
    }
    return wait;
  }

  private static byte[] sized(String name, String text, int most) {
    byte[] utf8 = text.getBytes(StandardCharsets.UTF_8);
    if (utf8.length < 1 || utf8.length > most) {
      throw wrongSize(name + " '" + shortened(text) + "'", utf8.length, most);
    }
    if (!isUnicode(text)) {
      throw new InvalidRequestException(
          name + " '" + shortened(text) + "': is not valid Unicode, a surrogate stands alone");
    }
    return utf8;
  }

  private static InvalidRequestException wrongSize(String what, int size, int most) {
    return new InvalidRequestException(what + ": has " + size + " bytes, allowed are 1 to " + most);
  }

  private static String shortened(String text) {
    return text.length() > SHOWN ? text.substring(0, SHOWN) + "..." : text;
  }

  private static boolean isUnicode(String text) {
    for (int i = 0; i < text.length(); i++) {
      char c = text.charAt(i);
      if (Character.isSurrogate(c)) {
        boolean isPair =
            Character.isHighSurrogate(c)
                && i + 1 < text.length()
                && Character.isLowSurrogate(text.charAt(i + 1));
        if (!isPair) {
          return false;
        }
        i++;
      }
    }
    return true;
  }
}
