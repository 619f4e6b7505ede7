// The filter in a real Jetty, asked over HTTP, with a real agent behind it. C-28.
package rlsidecar.servlet;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import jakarta.servlet.DispatcherType;
import jakarta.servlet.Filter;
import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.EnumSet;
import java.util.Map;
import org.eclipse.jetty.ee9.servlet.FilterHolder;
import org.eclipse.jetty.ee9.servlet.ServletContextHandler;
import org.eclipse.jetty.ee9.servlet.ServletHolder;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import rlsidecar.OnUnavailable;
import rlsidecar.RlSidecarClient;
import rlsidecar.http.Gate;
import rlsidecar.http.HeaderStyle;
import rlsidecar.testing.RealAgent;

@Timeout(60)
class RateLimitFilterTest {
  private static final String POLICIES =
      String.join("\n", "policies:", "  api: {limit: 2/hour}", "  site: {limit: 100/hour}", "");
  private static final HttpClient BROWSER = HttpClient.newHttpClient();

  private RealAgent agent;
  private RlSidecarClient client;
  private Server server;

  @BeforeEach
  void startAgent() throws Exception {
    agent = RealAgent.serving(POLICIES);
    client = agent.client();
  }

  @AfterEach
  void stop() throws Exception {
    if (server != null) {
      server.stop();
    }
    client.close();
    agent.close();
  }

  private void serve(Filter filter) throws Exception {
    server = new Server(0);
    ServletContextHandler context = new ServletContextHandler();
    context.addFilter(new FilterHolder(filter), "/*", EnumSet.allOf(DispatcherType.class));
    context.addServlet(new ServletHolder(new Site()), "/*");
    server.setHandler(context);
    server.start();
  }

  private HttpResponse<String> get(String path, String... headers) throws Exception {
    int port = ((ServerConnector) server.getConnectors()[0]).getLocalPort();
    HttpRequest.Builder request = HttpRequest.newBuilder(URI.create("http://127.0.0.1:" + port + path));
    if (headers.length > 0) {
      request.headers(headers);
    }
    return BROWSER.send(request.timeout(Duration.ofSeconds(30)).build(), HttpResponse.BodyHandlers.ofString());
  }

  private static String header(HttpResponse<?> response, String name) {
    return response.headers().firstValue(name).orElse("none");
  }

  /** What an application may do with a response. */
  private static final class Site extends HttpServlet {
    private static final long serialVersionUID = 1;

    @Override
    protected void doGet(HttpServletRequest request, HttpServletResponse response) throws IOException {
      switch (request.getRequestURI()) {
        case "/redirect":
          response.sendRedirect("/elsewhere");
          break;
        case "/error":
          response.sendError(500);
          break;
        case "/stream":
          for (int i = 0; i < 3; i++) {
            response.getWriter().write("part\n");
            response.flushBuffer();
          }
          break;
        case "/own":
          response.setHeader("X-RateLimit-Limit", "mine");
          response.getWriter().write("own");
          break;
        default:
          response.getWriter().write(String.valueOf(request.getAttribute(RateLimitFilter.DECISION)));
      }
    }
  }

  @Test
  void allowsAndDenies() throws Exception {
    serve(new RateLimitFilter(new Gate(client).limit("api")));
    HttpResponse<String> first = get("/");
    assertEquals(200, first.statusCode());
    assertTrue(first.body().startsWith("allowed (1 of 2 left"), first.body());
    assertEquals("2", header(first, "X-RateLimit-Limit"));
    assertEquals("1", header(first, "X-RateLimit-Remaining"));
    assertTrue(Integer.parseInt(header(first, "X-RateLimit-Reset")) > 1700);
    assertEquals("none", header(first, "Retry-After"));
    get("/");
    HttpResponse<String> third = get("/");
    assertEquals(429, third.statusCode());
    assertEquals("Too many requests\n", third.body());
    assertTrue(Integer.parseInt(header(third, "Retry-After")) > 1700);
    assertEquals("0", header(third, "X-RateLimit-Remaining"));
  }

  @Test
  void limitsByTheKeyThatItIsTold() throws Exception {
    serve(new RateLimitFilter(new Gate(client).limit("api")).key(request -> request.getHeader("X-User")));
    for (int i = 0; i < 3; i++) {
      assertEquals(i < 2 ? 200 : 429, get("/", "X-User", "ann").statusCode());
    }
    assertEquals(200, get("/", "X-User", "bob").statusCode());
    assertEquals("none", header(get("/"), "X-RateLimit-Limit"));
  }

  @Test
  void c28HeadersAreThereHoweverTheApplicationAnswers() throws Exception {
    serve(new RateLimitFilter(new Gate(client).limit("site")).headers(HeaderStyle.IETF));
    for (Map.Entry<String, Integer> page : Map.of("/", 200, "/redirect", 302, "/error", 500, "/stream", 200).entrySet()) {
      HttpResponse<String> response = get(page.getKey());
      assertEquals(page.getValue(), response.statusCode());
      assertEquals("\"site\";q=100", header(response, "RateLimit-Policy"), page.getKey());
      assertTrue(header(response, "RateLimit").startsWith("\"site\";r="), page.getKey());
    }
    assertTrue(client.peek("site", "127.0.0.1").remaining() == 96, "one permit for each request");
  }

  @Test
  void c28HeadersOfTheApplicationWin() throws Exception {
    serve(new RateLimitFilter(new Gate(client).limit("site")));
    assertEquals("mine", header(get("/own"), "X-RateLimit-Limit"));
    assertEquals(1, get("/own").headers().allValues("X-RateLimit-Limit").size());
  }

  @Test
  void severalLimitsAreAllOrNothing() throws Exception {
    serve(new RateLimitFilter(new Gate(client).limit("site").limit("1/hour").scope("shop")));
    assertEquals(200, get("/").statusCode());
    HttpResponse<String> second = get("/");
    assertEquals(429, second.statusCode());
    assertEquals("1", header(second, "X-RateLimit-Limit"));
    assertEquals(99, client.peek("site", "127.0.0.1").remaining());
  }

  @Test
  void c20WithoutAnAgent() throws Exception {
    for (OnUnavailable mode : OnUnavailable.values()) {
      try (RlSidecarClient alone = RlSidecarClient.builder().address("/nowhere/s").onUnavailable(mode).build()) {
        serve(new RateLimitFilter(new Gate(alone).limit("api")));
        int expected = mode == OnUnavailable.RAISE ? 500 : mode == OnUnavailable.DENY ? 429 : 200;
        HttpResponse<String> response = get("/");
        assertEquals(expected, response.statusCode());
        assertEquals(mode == OnUnavailable.DENY ? "1" : "none", header(response, "Retry-After"));
        assertEquals("none", header(response, "X-RateLimit-Limit"));
        server.stop();
      }
    }
  }

  @Test
  void takesInitParameters() throws Exception {
    server = new Server(0);
    ServletContextHandler context = new ServletContextHandler();
    FilterHolder holder = new FilterHolder(RateLimitFilter.class);
    holder.setInitParameters(Map.of("limits", "api, 10/minute", "headers", "ietf", "scope", "site"));
    context.addFilter(holder, "/*", EnumSet.of(DispatcherType.REQUEST));
    context.addServlet(new ServletHolder(new Site()), "/*");
    server.setHandler(context);
    server.start();
    assertEquals(200, get("/").statusCode());
  }
}
