// Many threads that share one client: whether each gets the answers to its own questions.
package rlsidecar.conformance;

import com.google.gson.JsonObject;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import rlsidecar.Call;
import rlsidecar.Decision;
import rlsidecar.RlSidecarClient;

final class Many {
  private static final int FIRST_LIMIT = 1000;

  private final Asker asker;
  private final RlSidecarClient client;
  private final int threads;
  private final int calls;
  private final List<Call> byKey = new ArrayList<>();
  private final AtomicInteger wrong = new AtomicInteger();
  private final AtomicInteger unavailable = new AtomicInteger();
  private final List<Exception> failures = new ArrayList<>();

  Many(Asker asker, RlSidecarClient client, JsonObject request) {
    this.asker = asker;
    this.client = client;
    this.threads = request.get("threads").getAsInt();
    this.calls = request.get("calls").getAsInt();
    request
        .getAsJsonArray("keys")
        .forEach(
            key -> byKey.add(Calls.withTimes(Calls.of(request.get("limit"), key.getAsString()), request)));
  }

  Map<String, Object> run() throws Exception {
    List<Thread> running = new ArrayList<>();
    for (int i = 0; i < threads; i++) {
      int first = i;
      Thread thread = new Thread(() -> callInTurn(first));
      thread.start();
      running.add(thread);
    }
    for (Thread thread : running) {
      thread.join();
    }
    synchronized (failures) {
      if (!failures.isEmpty()) {
        throw failures.get(0);
      }
    }
    return Map.of("ok", true, "wrong", wrong.get(), "unavailable", unavailable.get());
  }

  private void callInTurn(int first) {
    try {
      for (int i = 0; i < calls; i++) {
        int index = (first + i) % byKey.size();
        count(asker.acquire(client, byKey.get(index)), FIRST_LIMIT + index);
      }
    } catch (Exception e) {
      synchronized (failures) {
        failures.add(e);
      }
    }
  }

  private void count(Decision decision, int expected) {
    if (decision.degraded()) {
      unavailable.incrementAndGet();
    } else if (decision.limit() != expected) {
      wrong.incrementAndGet();
    }
  }
}
