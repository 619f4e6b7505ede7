// The feature in a real Jersey, asked over HTTP, with a real agent behind it.
package rlsidecar.jaxrs;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.sun.net.httpserver.HttpServer;
import jakarta.ws.rs.GET;
import jakarta.ws.rs.Path;
import jakarta.ws.rs.core.Response;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import org.glassfish.jersey.jdkhttp.JdkHttpServerFactory;
import org.glassfish.jersey.server.ResourceConfig;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import rlsidecar.OnUnavailable;
import rlsidecar.RlSidecarClient;
import rlsidecar.http.HeaderStyle;
import rlsidecar.testing.RealAgent;

@Timeout(60)
class RateLimitFeatureTest {
  private static final HttpClient BROWSER = HttpClient.newHttpClient();

  private RealAgent agent;
  private RlSidecarClient client;
  private HttpServer server;

  @BeforeEach
  void startAgent() throws Exception {
    agent = RealAgent.serving("policies:\n  api: {limit: 2/hour}\n  site: {limit: 100/hour}\n");
    client = agent.client();
  }

  @AfterEach
  void stop() throws Exception {
    if (server != null) {
      server.stop(0);
    }
    client.close();
    agent.close();
  }

  /** A resource with limits of its own on one method. */
  @Path("/")
  @RateLimited("api")
  public static class Orders {
    @GET
    public String list() {
      return "orders";
    }

    @GET
    @Path("report")
    @RateLimited({"site", "1/hour"})
    public Response report() {
      return Response.seeOther(URI.create("/elsewhere")).header("X-RateLimit-Limit", "mine").build();
    }
  }

  /** A resource without limits. */
  @Path("free")
  public static class Free {
    @GET
    public String get() {
      return "free";
    }
  }

  private void serve(RlSidecarClient asked, HeaderStyle style) {
    ResourceConfig application =
        new ResourceConfig(Orders.class, Free.class)
            .register(new RateLimitFeature(asked, request -> request.getHeaderString("X-User"), style));
    server = JdkHttpServerFactory.createHttpServer(URI.create("http://127.0.0.1:0/"), application);
  }

  private HttpResponse<String> get(String path, String user) throws Exception {
    URI uri = URI.create("http://127.0.0.1:" + server.getAddress().getPort() + path);
    HttpRequest request = HttpRequest.newBuilder(uri).header("X-User", user).timeout(Duration.ofSeconds(30)).build();
    return BROWSER.send(request, HttpResponse.BodyHandlers.ofString());
  }

  private static String header(HttpResponse<?> response, String name) {
    return response.headers().firstValue(name).orElse("none");
  }

  @Test
  void allowsAndDenies() throws Exception {
    serve(client, HeaderStyle.X);
    HttpResponse<String> first = get("/", "ann");
    assertEquals("orders", first.body());
    assertEquals("1", header(first, "X-RateLimit-Remaining"));
    get("/", "ann");
    HttpResponse<String> third = get("/", "ann");
    assertEquals(429, third.statusCode());
    assertTrue(Integer.parseInt(header(third, "Retry-After")) > 1700);
    assertEquals(200, get("/", "bob").statusCode());
    assertEquals("none", header(get("/free", "ann"), "X-RateLimit-Limit"));
  }

  @Test
  void aMethodMayHaveItsOwn() throws Exception {
    serve(client, HeaderStyle.X);
    HttpResponse<String> first = get("/report", "ann");
    assertEquals(303, first.statusCode());
    assertEquals("mine", header(first, "X-RateLimit-Limit"));
    assertEquals(429, get("/report", "ann").statusCode());
    assertEquals(99, client.peek("site", "ann").remaining());
  }

  @Test
  void ietf() throws Exception {
    serve(client, HeaderStyle.IETF);
    assertEquals("\"api\";q=2", header(get("/", "eve"), "RateLimit-Policy"));
  }

  @Test
  void c20WithoutAnAgent() throws Exception {
    try (RlSidecarClient denying =
        RlSidecarClient.builder().address("/nowhere/s").onUnavailable(OnUnavailable.DENY).build()) {
      serve(denying, HeaderStyle.X);
      HttpResponse<String> response = get("/", "ann");
      assertEquals(429, response.statusCode());
      assertEquals("1", header(response, "Retry-After"));
    }
  }
}
