// A real Spring Boot application on its Tomcat, asked over HTTP, with a real agent behind it.
package rlsidecar.spring;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.boot.web.servlet.context.ServletWebServerApplicationContext;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.stereotype.Service;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.RequestParam;
import org.springframework.web.bind.annotation.RestController;
import rlsidecar.Call;
import rlsidecar.InvalidRequestException;
import rlsidecar.RateLimitExceededException;
import rlsidecar.RlSidecarClient;
import rlsidecar.testing.RealAgent;

@Timeout(120)
class BootTest {
  private static final String POLICIES =
      String.join("\n", "policies:", "  api: {limit: 2/hour}", "  site: {limit: 100/hour}", "");
  private static final HttpClient BROWSER = HttpClient.newHttpClient();

  private RealAgent agent;
  private ConfigurableApplicationContext context;

  /** The application. */
  @SpringBootApplication
  @RestController
  static class Site {
    @GetMapping("/")
    @RateLimited("api")
    public String home() {
      return "home";
    }

    @GetMapping("/user")
    @RateLimited(value = "api", key = "#user")
    @RateLimited(value = "1/hour", key = "#user")
    public String user(@RequestParam("user") String user) {
      return "hello " + user;
    }

    @GetMapping("/free")
    public String free() {
      return "free";
    }

    /** A bean that is no controller. */
    @Service
    static class Mailer {
      @RateLimited(value = "site", key = "'mail:' + #to.get(0)", cost = "#to.size()")
      public int send(List<String> to) {
        return to.size();
      }

      @RateLimited("site")
      public void withoutKey() {
        throw new AssertionError("runs only when allowed");
      }
    }
  }

  @BeforeEach
  void startAgent() throws Exception {
    agent = RealAgent.serving(POLICIES);
  }

  @AfterEach
  void stop() throws Exception {
    if (context != null) {
      context.close();
    }
    agent.close();
  }

  private void run(String... properties) {
    String[] all = Arrays.copyOf(properties, properties.length + 3);
    all[properties.length] = "--server.port=0";
    all[properties.length + 1] = "--rlsidecar.timeout=5s";
    all[properties.length + 2] = "--rlsidecar.address=" + agent.address();
    context = new SpringApplication(Site.class).run(all);
  }

  private HttpResponse<String> get(String path) throws Exception {
    int port = ((ServletWebServerApplicationContext) context).getWebServer().getPort();
    URI uri = URI.create("http://127.0.0.1:" + port + path);
    return BROWSER.send(
        HttpRequest.newBuilder(uri).timeout(Duration.ofSeconds(30)).build(), HttpResponse.BodyHandlers.ofString());
  }

  private static String header(HttpResponse<?> response, String name) {
    return response.headers().firstValue(name).orElse("none");
  }

  @Test
  void controllersAreLimitedByTheAddressOfTheCaller() throws Exception {
    run();
    HttpResponse<String> first = get("/");
    assertEquals("home", first.body());
    assertEquals("1", header(first, "X-RateLimit-Remaining"));
    get("/");
    HttpResponse<String> third = get("/");
    assertEquals(429, third.statusCode());
    assertEquals("application/problem+json", header(third, "Content-Type"));
    assertTrue(third.body().contains("rate limited: retry after"), third.body());
    assertTrue(Integer.parseInt(header(third, "Retry-After")) > 1700);
    assertEquals(0, client().peek("api", "127.0.0.1").remaining());
    assertEquals("none", header(get("/free"), "X-RateLimit-Limit"));
  }

  @Test
  void severalLimitsByAnArgument() throws Exception {
    run("--rlsidecar.headers=ietf");
    HttpResponse<String> first = get("/user?user=ann");
    assertEquals("hello ann", first.body());
    assertEquals("\"api\";q=2, \"1/hour\";q=1;w=3600", header(first, "RateLimit-Policy"));
    assertEquals(429, get("/user?user=ann").statusCode());
    assertEquals(1, client().peek("api", "ann").remaining());
    assertEquals(200, get("/user?user=bob").statusCode());
  }

  @Test
  void otherBeansAreLimited() {
    run();
    Site.Mailer mailer = context.getBean(Site.Mailer.class);
    assertEquals(2, mailer.send(List.of("ann", "bob")));
    assertEquals(98, client().peek("site", "mail:ann").remaining());
    client().tryAcquire(Call.of("site", "mail:ann").cost(98));
    assertThrows(RateLimitExceededException.class, () -> mailer.send(List.of("ann")));
    IllegalStateException e = assertThrows(IllegalStateException.class, mailer::withoutKey);
    assertTrue(e.getMessage().contains("needs a key"), e.getMessage());
  }

  @Test
  void theFilterLimitsAllRequests() throws Exception {
    run("--rlsidecar.filter.limits=3/hour,site");
    for (int i = 0; i < 3; i++) {
      assertEquals(200, get("/free").statusCode());
    }
    HttpResponse<String> fourth = get("/free");
    assertEquals(429, fourth.statusCode());
    assertEquals("3", header(fourth, "X-RateLimit-Limit"));
  }

  @Test
  void startsAndServesWithoutAnAgent() throws Exception {
    agent.stop();
    run("--rlsidecar.on-unavailable=allow");
    assertEquals(200, get("/").statusCode());
    assertTrue(client().tryAcquire("api", "k").degraded());
    context.close();
    run("--rlsidecar.on-unavailable=deny");
    HttpResponse<String> denied = get("/");
    assertEquals(429, denied.statusCode());
    assertEquals("1", header(denied, "Retry-After"));
    assertFalse(client().tryAcquire("api", "k").allowed());
  }

  @Test
  void aWrongSettingStopsTheStart() {
    Exception e = assertThrows(Exception.class, () -> run("--rlsidecar.app=" + "a".repeat(129)));
    Throwable cause = e;
    while (cause.getCause() != null) {
      cause = cause.getCause();
    }
    assertEquals(InvalidRequestException.class, cause.getClass());
  }

  private RlSidecarClient client() {
    return context.getBean(RlSidecarClient.class);
  }
}
