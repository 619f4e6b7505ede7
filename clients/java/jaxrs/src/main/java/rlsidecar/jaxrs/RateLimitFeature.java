package rlsidecar.jaxrs;

import jakarta.ws.rs.container.ContainerRequestContext;
import jakarta.ws.rs.container.DynamicFeature;
import jakarta.ws.rs.container.ResourceInfo;
import jakarta.ws.rs.core.FeatureContext;
import java.util.function.Function;
import rlsidecar.RlSidecarClient;
import rlsidecar.http.Gate;
import rlsidecar.http.HeaderStyle;

/**
 * Puts a filter before each resource method that is {@link RateLimited}.
 *
 * <pre>{@code
 * new ResourceConfig(Orders.class)
 *     .register(new RateLimitFeature(client, request -> request.getHeaderString("X-Api-Key")));
 * }</pre>
 */
public final class RateLimitFeature implements DynamicFeature {
  private final RlSidecarClient client;
  private final Function<ContainerRequestContext, String> key;
  private final HeaderStyle style;

  /**
   * With the headers of {@link HeaderStyle#X}.
   *
   * @param client whom to ask
   * @param key tells who sent a request: any text, or null for a request that is not limited. Jakarta
   *     REST itself does not know the peer's address
   */
  public RateLimitFeature(RlSidecarClient client, Function<ContainerRequestContext, String> key) {
    this(client, key, HeaderStyle.X);
  }

  /**
   * With headers of choice.
   *
   * @param client whom to ask
   * @param key tells who sent a request: any text, or null for a request that is not limited
   * @param style the headers of responses
   */
  public RateLimitFeature(
      RlSidecarClient client, Function<ContainerRequestContext, String> key, HeaderStyle style) {
    this.client = client;
    this.key = key;
    this.style = style;
  }

  @Override
  public void configure(ResourceInfo resource, FeatureContext context) {
    RateLimited limits = resource.getResourceMethod().getAnnotation(RateLimited.class);
    if (limits == null) {
      limits = resource.getResourceClass().getAnnotation(RateLimited.class);
    }
    if (limits == null) {
      return;
    }
    Gate gate = new Gate(client).scope(resource.getResourceClass().getName());
    for (String limit : limits.value()) {
      gate = gate.limit(limit);
    }
    context.register(new RateLimitFilter(gate, key, style));
  }
}
