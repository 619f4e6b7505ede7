// Lets the conformance suite, which is one for all languages, drive this client: JSON requests by
// line on standard input, one line of answer each on standard output.
package rlsidecar.conformance;

import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import rlsidecar.AllDecision;
import rlsidecar.Call;
import rlsidecar.Decision;
import rlsidecar.OnUnavailable;
import rlsidecar.RlSidecarClient;

/** Reads requests until the end of its input. */
public final class Driver {
  private static final Gson JSON = new GsonBuilder().serializeNulls().create();

  private final Map<String, RlSidecarClient> clients = new HashMap<>();
  private final Map<String, String> environment = new HashMap<>(System.getenv());
  private final Asker asker;

  private Driver(Asker asker) {
    this.asker = asker;
  }

  /** Drives the blocking methods, or with {@code --async} the others. */
  public static void main(String[] args) throws IOException {
    boolean isAsync = args.length > 0 && args[0].equals("--async");
    Driver driver = new Driver(isAsync ? Asker.ASYNC : Asker.BLOCKING);
    PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      out.println(JSON.toJson(driver.answer(JsonParser.parseString(line).getAsJsonObject())));
    }
    System.exit(0);
  }

  private Map<String, Object> answer(JsonObject request) {
    long began = System.nanoTime();
    try {
      return act(request);
    } catch (Exception e) {
      return Answers.error(e, began);
    }
  }

  private Map<String, Object> act(JsonObject request) throws Exception {
    switch (request.get("do").getAsString()) {
      case "open":
        return open(request);
      case "acquire":
        return decision(() -> asker.acquire(client(request), Calls.of(request)));
      case "peek":
        return decision(() -> asker.peek(client(request), Calls.of(request)));
      case "refund":
        return done(() -> asker.refund(client(request), Calls.of(request)));
      case "reset":
        return done(() -> asker.reset(client(request), Calls.of(request)));
      case "acquire_all":
        return acquireAll(request);
      case "many":
        return new Many(asker, client(request), request).run();
      case "fds":
        return Map.of("fds", new File("/proc/self/fd").list().length);
      case "close":
        clients.remove(request.get("client").getAsString()).close();
        return Answers.ok(true);
      case "sleep":
        Thread.sleep(request.get("ms").getAsLong());
        return Answers.ok(true);
      default:
        throw new IllegalArgumentException("do: " + request.get("do"));
    }
  }

  private Map<String, Object> open(JsonObject request) {
    setEnvironment(request);
    RlSidecarClient.Builder builder = RlSidecarClient.builder().environment(environment);
    if (isGiven(request, "address")) {
      builder.address(request.get("address").getAsString());
    }
    if (isGiven(request, "timeout_ms")) {
      builder.timeout(Duration.ofNanos((long) (request.get("timeout_ms").getAsDouble() * 1e6)));
    }
    if (isGiven(request, "on_unavailable")) {
      String mode = request.get("on_unavailable").getAsString();
      builder.onUnavailable(OnUnavailable.valueOf(mode.toUpperCase(Locale.ROOT)));
    }
    RlSidecarClient before = clients.put(request.get("client").getAsString(), builder.build());
    if (before != null) {
      before.close();
    }
    return Answers.ok(true);
  }

  private void setEnvironment(JsonObject request) {
    if (!isGiven(request, "env")) {
      return;
    }
    for (Map.Entry<String, JsonElement> variable : request.getAsJsonObject("env").entrySet()) {
      if (variable.getValue().isJsonNull()) {
        environment.remove(variable.getKey());
      } else {
        environment.put(variable.getKey(), variable.getValue().getAsString());
      }
    }
  }

  private static Map<String, Object> decision(Asked<Decision> call) throws Exception {
    long began = System.nanoTime();
    Decision decision = call.get();
    return Answers.decision(decision, System.nanoTime() - began);
  }

  private static Map<String, Object> done(Asked<Boolean> call) throws Exception {
    long began = System.nanoTime();
    boolean done = call.get();
    return Answers.done(done, System.nanoTime() - began);
  }

  private Map<String, Object> acquireAll(JsonObject request) throws Exception {
    List<Call> calls = new ArrayList<>();
    for (JsonElement item : request.getAsJsonArray("items")) {
      JsonArray parts = item.getAsJsonArray();
      Call call = Calls.of(parts.get(0), parts.get(1).getAsString());
      call = parts.size() > 2 ? call.cost(parts.get(2).getAsLong()) : call;
      calls.add(Calls.withTimes(call, request));
    }
    long began = System.nanoTime();
    AllDecision all = asker.acquireAll(client(request), calls);
    return Answers.all(all, System.nanoTime() - began);
  }

  private RlSidecarClient client(JsonObject request) {
    return clients.get(request.get("client").getAsString());
  }

  static boolean isGiven(JsonObject request, String field) {
    return request.has(field) && !request.get(field).isJsonNull();
  }

  private interface Asked<T> {
    T get() throws Exception;
  }
}
