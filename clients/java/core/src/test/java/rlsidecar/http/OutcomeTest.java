// C-28: what responses say about limits.
package rlsidecar.http;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;

import java.io.IOException;
import java.time.Duration;
import java.util.Map;
import org.junit.jupiter.api.Test;
import rlsidecar.Limit;
import rlsidecar.RlSidecarClient;
import rlsidecar.testing.FakeAgent;

class OutcomeTest {
  /** Allowed, 99 of 100 left, full again in 29,001 ms. */
  private static final String LEFT_99 = "97c36463cd7149000000";

  /** Denied, 0 of 5 left, full again in a minute, to be tried again in 12,500 ms. */
  private static final String DENIED = "97c20500cdea60cd30d40100";

  private static final String NEVER = "97c2646400ff0100";

  private static Outcome outcome(String result, Rule... rules) throws IOException {
    try (FakeAgent agent = FakeAgent.answering(result);
        RlSidecarClient client =
            RlSidecarClient.builder().address(agent.address()).timeout(Duration.ofSeconds(10)).build()) {
      Gate gate = new Gate(client);
      for (Rule rule : rules) {
        gate = gate.with(rule);
      }
      return gate.ask("k");
    }
  }

  @Test
  void timesAreRoundedUp() throws IOException {
    assertEquals(
        Map.of("X-RateLimit-Limit", "100", "X-RateLimit-Remaining", "99", "X-RateLimit-Reset", "30"),
        outcome(LEFT_99, Rule.of("api")).headers(HeaderStyle.X));
    assertEquals("13", outcome(DENIED, Rule.of("api")).headers(HeaderStyle.X).get("Retry-After"));
    assertEquals(Map.of("Retry-After", "13"), outcome(DENIED, Rule.of("api")).headers(HeaderStyle.NONE));
  }

  @Test
  void whatCanNeverBeAllowedHasNoRetryAfter() throws IOException {
    assertFalse(outcome(NEVER, Rule.of("api")).headers(HeaderStyle.X).containsKey("Retry-After"));
  }

  @Test
  void ietf() throws IOException {
    assertEquals(
        Map.of("RateLimit-Policy", "\"api\";q=100", "RateLimit", "\"api\";r=99;t=30"),
        outcome(LEFT_99, Rule.of("api")).headers(HeaderStyle.IETF));
    assertEquals(
        "\"100/minute\";q=100;w=60",
        outcome(LEFT_99, Rule.of("100/minute")).headers(HeaderStyle.IETF).get("RateLimit-Policy"));
    Limit short250 = Limit.per(100, Duration.ofMillis(250));
    assertEquals(
        "\"100/250ms\";q=100", outcome(LEFT_99, Rule.of(short250)).headers(HeaderStyle.IETF).get("RateLimit-Policy"));
    assertEquals(
        "\"a\\\"\\\\??\";q=100", outcome(LEFT_99, Rule.of("a\"\\é\n")).headers(HeaderStyle.IETF).get("RateLimit-Policy"));
  }

  @Test
  void ofSeveralTheTightestIsTold() throws IOException {
    String first = LEFT_99;
    String both = "92c292" + first + DENIED;
    Outcome outcome = outcome(both, Rule.of("api"), Rule.of("login"));
    assertFalse(outcome.allowed());
    assertEquals("5", outcome.headers(HeaderStyle.X).get("X-RateLimit-Limit"));
    assertEquals(
        "\"api\";r=99;t=30, \"login\";r=0;t=60", outcome.headers(HeaderStyle.IETF).get("RateLimit"));
  }

  @Test
  void nothingIsSaidOfWhatIsNotKnown() {
    try (RlSidecarClient alone = RlSidecarClient.builder().address("/nowhere/agent.sock").build()) {
      assertEquals(Map.of(), new Gate(alone).limit("api").ask("k").headers(HeaderStyle.X));
      assertEquals(Map.of(), new Gate(alone).limit("10/minute").ask("k").headers(HeaderStyle.IETF));
    }
  }

  @Test
  void keysOfVisitorsAreMadeToFit() throws IOException {
    for (String key : new String[] {"", "x".repeat(2000), "\ud800"}) {
      assertEquals(99, outcomeForKey(key).decision().remaining());
    }
  }

  private static Outcome outcomeForKey(String key) throws IOException {
    try (FakeAgent agent = FakeAgent.answering(LEFT_99);
        RlSidecarClient client =
            RlSidecarClient.builder().address(agent.address()).timeout(Duration.ofSeconds(10)).build()) {
      return new Gate(client).limit("api").ask(key);
    }
  }
}
