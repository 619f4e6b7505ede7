package rlsidecar.jaxrs;

import jakarta.annotation.Priority;
import jakarta.ws.rs.Priorities;
import jakarta.ws.rs.container.ContainerRequestContext;
import jakarta.ws.rs.container.ContainerRequestFilter;
import jakarta.ws.rs.container.ContainerResponseContext;
import jakarta.ws.rs.container.ContainerResponseFilter;
import jakarta.ws.rs.core.MediaType;
import jakarta.ws.rs.core.MultivaluedMap;
import jakarta.ws.rs.core.Response;
import java.util.Collections;
import java.util.function.Function;
import rlsidecar.http.Gate;
import rlsidecar.http.HeaderStyle;
import rlsidecar.http.Outcome;

/**
 * Asks for each request, and passes it on or answers 429. To be registered for a whole application, or
 * by {@link RateLimitFeature} for some methods. Comes after authentication and authorization, so that
 * the key may be the user.
 *
 * <p>Headers that are in the response already stay. In mode {@code RAISE}, {@code UnavailableException}
 * goes to the exception mappers.
 */
@Priority(Priorities.AUTHORIZATION + 500)
public final class RateLimitFilter implements ContainerRequestFilter, ContainerResponseFilter {
  private static final int TOO_MANY_REQUESTS = 429;

  private final String property = "rlsidecar.outcome." + System.identityHashCode(this);
  private final Gate gate;
  private final Function<ContainerRequestContext, String> key;
  private final HeaderStyle style;

  /**
   * A filter with these rules.
   *
   * @param gate the rules, and whom to ask
   * @param key tells who sent a request: any text, or null for a request that is not limited
   * @param style the headers of responses
   */
  public RateLimitFilter(Gate gate, Function<ContainerRequestContext, String> key, HeaderStyle style) {
    this.gate = gate;
    this.key = key;
    this.style = style;
  }

  @Override
  public void filter(ContainerRequestContext request) {
    String who = gate.isOpen() ? null : key.apply(request);
    if (who == null) {
      return;
    }
    Outcome outcome = gate.ask(who);
    request.setProperty(property, outcome);
    if (!outcome.allowed()) {
      request.abortWith(
          Response.status(TOO_MANY_REQUESTS)
              .type(MediaType.TEXT_PLAIN_TYPE)
              .entity("Too many requests\n")
              .build());
    }
  }

  @Override
  public void filter(ContainerRequestContext request, ContainerResponseContext response) {
    Object outcome = request.getProperty(property);
    if (outcome != null) {
      MultivaluedMap<String, Object> headers = response.getHeaders();
      ((Outcome) outcome)
          .headers(style)
          .forEach((name, value) -> headers.putIfAbsent(name, Collections.singletonList(value)));
    }
  }
}
