// From the suite's JSON to calls.
package rlsidecar.conformance;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.math.BigDecimal;
import java.math.RoundingMode;
import java.time.Duration;
import java.util.Locale;
import rlsidecar.Algorithm;
import rlsidecar.Call;
import rlsidecar.Limit;

final class Calls {
  private Calls() {}

  static Call of(JsonObject request) {
    Call call = of(request.get("limit"), request.get("key").getAsString());
    if (Driver.isGiven(request, "cost")) {
      call = call.cost(request.get("cost").getAsLong());
    }
    return withTimes(call, request);
  }

  static Call withTimes(Call call, JsonObject request) {
    Call timed = call;
    if (Driver.isGiven(request, "wait_ms")) {
      timed = timed.waitUpTo(milliseconds(request.get("wait_ms")));
    }
    if (Driver.isGiven(request, "timeout_ms")) {
      timed = timed.timeout(milliseconds(request.get("timeout_ms")));
    }
    return timed;
  }

  static Call of(JsonElement limit, String key) {
    return limit.isJsonObject() ? Call.of(inline(limit.getAsJsonObject()), key) : Call.of(limit.getAsString(), key);
  }

  private static Limit inline(JsonObject limit) {
    long count = limit.get("count").getAsLong();
    Duration period = milliseconds(limit.get("period_ms"));
    String algorithm = Driver.isGiven(limit, "algorithm") ? limit.get("algorithm").getAsString() : null;
    if ("concurrency".equals(algorithm)) {
      return Limit.concurrency(count, period);
    }
    Limit inline = Limit.per(count, period);
    if (Driver.isGiven(limit, "burst")) {
      inline = inline.burst(limit.get("burst").getAsLong());
    }
    return algorithm == null ? inline : inline.algorithm(Algorithm.valueOf(algorithm.toUpperCase(Locale.ROOT)));
  }

  private static Duration milliseconds(JsonElement value) {
    BigDecimal nanoseconds = value.getAsBigDecimal().movePointRight(6);
    return Duration.ofNanos(nanoseconds.setScale(0, RoundingMode.HALF_UP).longValueExact());
  }
}
