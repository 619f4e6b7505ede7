// The bytes that all languages agree on: protocol/testdata/golden.json.
package rlsidecar;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import java.util.stream.StreamSupport;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.TestFactory;

class GoldenTest {
  private static final Duration TIMEOUT = Duration.ofSeconds(1);

  private static Stream<JsonObject> entries(String list) throws IOException {
    String text = Files.readString(Path.of("../../../protocol/testdata/golden.json"));
    JsonArray entries = JsonParser.parseString(text).getAsJsonObject().getAsJsonArray(list);
    return StreamSupport.stream(entries.spliterator(), false).map(JsonElement::getAsJsonObject);
  }

  private static String text(JsonObject entry, String field) {
    return entry.get(field).getAsString();
  }

  @TestFactory
  Stream<DynamicTest> requestsAreWrittenSo() throws IOException {
    return entries("good")
        .filter(entry -> text(entry, "kind").equals("request") && entry.get("canonical").getAsBoolean())
        .filter(entry -> entry.get("msgid").getAsLong() <= Connection.MAX_MSGID)
        .map(entry -> DynamicTest.dynamicTest(text(entry, "id"), () -> assertWritten(entry)));
  }

  private static void assertWritten(JsonObject entry) {
    Question<?> question = question(text(entry, "method"), entry.getAsJsonArray("params"));
    Packer packer = new Packer();
    question.pack(packer, entry.get("msgid").getAsInt());
    assertEquals(text(entry, "hex"), HexFormat.of().formatHex(packer.toBytes()));
  }

  private static Question<?> question(String method, JsonArray params) {
    switch (method) {
      case "acquire":
        return questions(params, 3).acquire(call(params));
      case "peek":
        return questions(params, 3).peek(call(params));
      case "refund":
        return questions(params, 3).refund(call(params));
      case "reset":
        return questions(params, 3).reset(call(params));
      case "acquire_all":
        return questions(params, 1).acquireAll(calls(params));
      case "release":
        return questions(params, 9).release(params.get(0).getAsLong());
      case "throttle":
        return questions(params, 9).throttle(
            params.get(0).getAsString(), number(params, 1), number(params, 2), number(params, 3), number(params, 4));
      case "info":
        return questions(params, 9).info();
      default:
        return questions(params, 9).ping();
    }
  }

  private static long number(JsonArray params, int index) {
    return params.get(index).getAsLong();
  }

  private static Questions questions(JsonArray params, int options) {
    boolean hasApp = params.size() > options && params.get(options).getAsJsonObject().has("app");
    String app = hasApp ? params.get(options).getAsJsonObject().get("app").getAsString() : null;
    return new Questions(TIMEOUT, app == null ? null : Arguments.app(app));
  }

  private static Call call(JsonArray params) {
    JsonElement limit = params.get(0);
    String key = params.get(1).getAsString();
    Call call = limit.isJsonArray() ? Call.of(inline(limit.getAsJsonArray()), key) : Call.of(limit.getAsString(), key);
    call = params.size() > 2 ? call.cost(number(params, 2)) : call;
    return params.size() > 3 ? waiting(call, params.get(3).getAsJsonObject()) : call;
  }

  private static Call waiting(Call call, JsonObject options) {
    return options.has("wait_ms") ? call.waitUpTo(Duration.ofMillis(options.get("wait_ms").getAsLong())) : call;
  }

  private static List<Call> calls(JsonArray params) {
    List<Call> calls = new ArrayList<>();
    for (JsonElement item : params.get(0).getAsJsonArray()) {
      Call call = call(item.getAsJsonArray());
      calls.add(params.size() > 1 ? waiting(call, params.get(1).getAsJsonObject()) : call);
    }
    return calls;
  }

  private static Limit inline(JsonArray wire) {
    Limit limit = Limit.per(number(wire, 0), Duration.ofMillis(number(wire, 1)));
    if (wire.size() > 2 && number(wire, 2) > 0) {
      limit = limit.burst(number(wire, 2));
    }
    return wire.size() > 3 ? withAlgorithm(limit, wire) : limit;
  }

  private static Limit withAlgorithm(Limit limit, JsonArray wire) {
    Algorithm algorithm =
        Arrays.stream(Algorithm.values())
            .filter(known -> known.wireName().equals(wire.get(3).getAsString()))
            .findFirst()
            .orElseThrow();
    return algorithm == Algorithm.CONCURRENCY
        ? Limit.concurrency(number(wire, 0), Duration.ofMillis(number(wire, 1)))
        : limit.algorithm(algorithm);
  }

  @TestFactory
  Stream<DynamicTest> repliesAreReadSo() throws IOException {
    return entries("good")
        .filter(entry -> text(entry, "kind").equals("response"))
        .map(entry -> DynamicTest.dynamicTest(text(entry, "id"), () -> assertRead(entry)));
  }

  private static void assertRead(JsonObject entry) {
    byte[] bytes = HexFormat.of().parseHex(text(entry, "hex"));
    assertEquals(bytes.length, end(bytes));
    Unpacker message = new Unpacker(bytes, 0);
    assertEquals(entry.get("msgid").getAsLong(), Reply.msgid(message).orElseThrow());
    Questions questions = new Questions(TIMEOUT, null);
    Question<?> ping = questions.ping();
    if (entry.has("error")) {
      RlSidecarException e = assertThrows(RlSidecarException.class, () -> Reply.read(message, ping));
      assertEquals(entry.getAsJsonArray("error").get(1).getAsString(), e.getMessage());
      return;
    }
    String as = text(entry, "as");
    if (as.equals("decision")) {
      assertDecision(entry.getAsJsonArray("result"), read(message, questions.acquire(Call.of("api", "k"))));
    } else if (as.equals("all")) {
      assertAll(entry.getAsJsonArray("result"), message, questions);
    } else if (as.equals("throttle")) {
      assertEquals("[0, 16, 15, -1, 2]", read(message, questions.throttle("k", 15, 30, 60, 1)).toString());
    } else if (as.equals("bool")) {
      assertEquals(entry.get("result").getAsBoolean(), read(message, questions.release(9)));
    } else if (as.equals("info")) {
      assertEquals(1L, read(message, questions.info()).get("api_level"));
    } else {
      assertNotNull(read(message, ping));
    }
  }

  private static <T> T read(Unpacker message, Question<T> question) {
    return Reply.read(message, question);
  }

  private static void assertDecision(JsonArray wire, Decision decision) {
    assertEquals(wire.get(0).getAsBoolean(), decision.allowed());
    assertEquals(number(wire, 1), decision.limit());
    assertEquals(number(wire, 2), decision.remaining());
    assertEquals(number(wire, 3), decision.resetAfter().toMillis());
    assertEquals(number(wire, 4), decision.retryAfter().map(Duration::toMillis).orElse(-1L));
    assertEquals(number(wire, 5), decision.source().ordinal());
    assertEquals(number(wire, 6) == 1, decision.shadow());
    assertEquals(wire.size() > 7 ? number(wire, 7) : 0, decision.permit().orElse(0));
  }

  private static void assertAll(JsonArray wire, Unpacker message, Questions questions) {
    JsonArray decisions = wire.get(1).getAsJsonArray();
    List<Call> calls =
        Stream.generate(() -> Call.of("api", "k")).limit(decisions.size()).collect(Collectors.toList());
    AllDecision all = read(message, questions.acquireAll(calls));
    assertEquals(wire.get(0).getAsBoolean(), all.allowed());
    for (int i = 0; i < decisions.size(); i++) {
      assertDecision(decisions.get(i).getAsJsonArray(), all.decisions().get(i));
    }
  }

  @TestFactory
  Stream<DynamicTest> badRepliesAreRefused() throws IOException {
    return entries("bad")
        .filter(entry -> text(entry, "reader").equals("client"))
        .map(entry -> DynamicTest.dynamicTest(text(entry, "id"), () -> assertRefused(entry)));
  }

  private static void assertRefused(JsonObject entry) {
    byte[] bytes = HexFormat.of().parseHex(text(entry, "hex"));
    Question<?> acquire = new Questions(TIMEOUT, null).acquire(Call.of("api", "k"));
    assertThrows(
        ProtocolException.class,
        () -> {
          end(bytes);
          Unpacker message = new Unpacker(bytes, 0);
          Reply.msgid(message);
          Reply.read(message, acquire);
        });
  }

  /** Where the message ends, found byte by byte as from a slow agent. */
  private static int end(byte[] bytes) {
    Scanner scanner = new Scanner();
    scanner.reset(0);
    int end = 1;
    while (!scanner.isComplete(bytes, end)) {
      end++;
      assertTrue(end <= bytes.length, "the end was not seen");
    }
    return end;
  }
}
