package rlsidecar;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.Map;
import java.util.concurrent.Callable;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

class LimitTest {
  @ParameterizedTest
  @CsvSource({
    "10/minute, 10, 60000",
    "1_000/2 hours, 1000, 7200000",
    "5 / 250ms, 5, 250",
    "1/s, 1, 1000",
    "3/10 seconds, 3, 10000",
    "7/days, 7, 86400000"
  })
  void textsThatAreLimits(String text, long count, long milliseconds) {
    assertEquals(Limit.per(count, Duration.ofMillis(milliseconds)), Limit.parse(text));
  }

  @ParameterizedTest
  @ValueSource(strings = {"login", "10", "10/fortnight", "a 10/minute", "10/minute burst 5", "shop/checkout"})
  void textsThatAreNot(String text) {
    assertFalse(Limit.ifStated(text).isPresent());
    assertThrows(InvalidRequestException.class, () -> Limit.parse(text));
  }

  @Test
  void whatIsOutOfRangeIsNamed() {
    assertRefused("count 0: allowed are whole numbers from 1 to 2^53-1", () -> Limit.perMinute(0));
    assertRefused("burst -1: allowed", () -> Limit.perMinute(1).burst(-1));
    assertRefused("cost -1: allowed", () -> Call.of("api", "k").cost(-1));
    assertRefused("period PT0S: must be whole milliseconds", () -> Limit.per(1, Duration.ZERO));
    assertRefused("period PT0.0000005S: must", () -> Limit.per(1, Duration.ofNanos(500)));
    assertRefused("maxHold PT-1S: must", () -> Limit.concurrency(1, Duration.ofSeconds(-1)));
    assertRefused("burst 5: a fixed_window has none", () -> Limit.perMinute(9).burst(5).algorithm(Algorithm.FIXED_WINDOW));
    assertRefused("count 10001: a sliding_log allows", () -> Limit.perMinute(10_001).algorithm(Algorithm.SLIDING_LOG));
    assertRefused("period 9999999999999999 days", () -> Limit.parse("1/9999999999999999 days"));
    assertRefused("number 1000000000000000...: at most 16 digits", () -> Limit.parse("10000000000000000/s"));
    assertRefused("key '': has 0 bytes, allowed are 1 to 1024", () -> Call.of("api", ""));
    assertRefused("has 1025 bytes", () -> Call.of("api", "k".repeat(1025)));
    assertRefused("a surrogate stands alone", () -> Call.of("api", "\ud800"));
    assertRefused("has 129 bytes, allowed are 1 to 128", () -> Call.of("p".repeat(129), "k"));
    assertRefused("wait PT1M0.001S: allowed are 0 to PT1M", () -> Call.of("api", "k").waitUpTo(Duration.ofMillis(60_001)));
    assertRefused("timeout PT0S: allowed", () -> Call.of("api", "k").timeout(Duration.ZERO));
  }

  @Test
  void c30SettingsThatCannotBe() {
    assertRefused("address 'tcp://x': write unix:///path", () -> built("RLSIDECAR_ADDRESS", "tcp://x"));
    assertRefused("the path has 108 bytes, at most 107", () -> built("RLSIDECAR_ADDRESS", "/" + "x".repeat(107)));
    assertRefused("RLSIDECAR_TIMEOUT_MS 'soon': allowed", () -> built("RLSIDECAR_TIMEOUT_MS", "soon"));
    assertRefused("RLSIDECAR_ON_UNAVAILABLE 'maybe': there are", () -> built("RLSIDECAR_ON_UNAVAILABLE", "maybe"));
    assertRefused("RLSIDECAR_DISABLE 'maybe': write 1 or 0", () -> built("RLSIDECAR_DISABLE", "maybe"));
    assertRefused("app 'a", () -> built("RLSIDECAR_APP", "a".repeat(129)));
  }

  private static RlSidecarClient built(String variable, String value) {
    return RlSidecarClient.builder().environment(Map.of(variable, value)).build();
  }

  private static void assertRefused(String message, Callable<?> made) {
    InvalidRequestException e = assertThrows(InvalidRequestException.class, made::call);
    assertTrue(e.getMessage().contains(message), e.getMessage());
  }
}
