// A shop whose requests are limited: a policy for every request, one by user, and one at a time.
package rlsidecar.example;

import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.PostMapping;
import org.springframework.web.bind.annotation.RequestParam;
import org.springframework.web.bind.annotation.RestController;
import rlsidecar.Decision;
import rlsidecar.Permit;
import rlsidecar.RlSidecarClient;
import rlsidecar.spring.RateLimited;

/** Try {@code curl -i 'http://127.0.0.1:8080/?user=ann'}. */
@SpringBootApplication
@RestController
public class Shop {
  private final RlSidecarClient limits;

  /** Made by Spring. */
  public Shop(RlSidecarClient limits) {
    this.limits = limits;
  }

  public static void main(String[] args) {
    SpringApplication.run(Shop.class, args);
  }

  /** Under a policy of the agent, shared by all applications on all hosts. */
  @GetMapping("/")
  @RateLimited(value = "api", key = "#user")
  public String home(@RequestParam("user") String user) {
    return "hello " + user + "\n";
  }

  /** Under a limit of its own, and by the caller's address. */
  @PostMapping("/login")
  @RateLimited("10/minute")
  public String login() {
    return "welcome\n";
  }

  /** What is left, without taking any. */
  @GetMapping("/left")
  public String left(@RequestParam("user") String user) {
    Decision decision = limits.peek("api", user);
    return decision.remaining() + " of " + decision.limit() + "\n";
  }

  /** So many at once. */
  @GetMapping("/export")
  public String export(@RequestParam("user") String user) {
    try (Permit permit = limits.hold("exports", user)) {
      return "exported" + (permit.decision().degraded() ? ", unlimited" : "") + "\n";
    }
  }
}
