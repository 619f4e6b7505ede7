// A servlet filter: any application of a servlet container behind limits.
package rlsidecar.servlet;

import jakarta.servlet.DispatcherType;
import jakarta.servlet.Filter;
import jakarta.servlet.FilterChain;
import jakarta.servlet.FilterConfig;
import jakarta.servlet.ServletException;
import jakarta.servlet.ServletRequest;
import jakarta.servlet.ServletResponse;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.util.Locale;
import java.util.Map;
import java.util.function.Function;
import rlsidecar.RlSidecarClient;
import rlsidecar.http.Gate;
import rlsidecar.http.HeaderStyle;
import rlsidecar.http.Outcome;

/**
 * Asks for each request, and passes it on or answers 429.
 *
 * <pre>{@code
 * RateLimitFilter filter = new RateLimitFilter(new Gate(client).limit("api"));
 * filter.key(request -> request.getHeader("X-Api-Key"));
 * }</pre>
 *
 * <p>In a {@code web.xml} it takes the init parameters {@code limits} (names of policies or limits like
 * {@code 10/minute}, separated by commas), {@code headers} ({@code x}, {@code ietf} or {@code none}) and
 * {@code scope}, and a client of its own, with the settings of the environment.
 *
 * <p>The headers are set before the application runs, so that they are there however it answers: with
 * a redirect, an error, or a stream. One that an outer filter has set stays, and the application may
 * set its own. The decision is the request's attribute {@link #DECISION}. Dispatches inside the
 * container are not asked for again. In mode {@code RAISE}, {@code UnavailableException} goes through to
 * the container.
 */
public class RateLimitFilter implements Filter {
  /** The name of the request attribute with the {@code rlsidecar.Decision}. */
  public static final String DECISION = "rlsidecar.decision";

  private static final int TOO_MANY_REQUESTS = 429;

  private RlSidecarClient owned; // null: the client is somebody else's
  private Gate gate;
  private HeaderStyle style = HeaderStyle.X;
  private Function<HttpServletRequest, String> key = HttpServletRequest::getRemoteAddr;

  /** A filter that takes its rules from init parameters. */
  public RateLimitFilter() {}

  /**
   * A filter with these rules.
   *
   * @param gate the rules, and whom to ask
   */
  public RateLimitFilter(Gate gate) {
    this.gate = gate;
  }

  /**
   * Tells who sent a request; the address of the peer, unless told otherwise.
   *
   * @param function gives any text, or null for a request that is not limited
   * @return this filter
   */
  public final RateLimitFilter key(Function<HttpServletRequest, String> function) {
    this.key = function;
    return this;
  }

  /**
   * Chooses the headers of responses; {@link HeaderStyle#X} unless told otherwise.
   *
   * @param headers which ones
   * @return this filter
   */
  public final RateLimitFilter headers(HeaderStyle headers) {
    this.style = headers;
    return this;
  }

  @Override
  public void init(FilterConfig config) throws ServletException {
    if (gate != null) {
      return;
    }
    String limits = config.getInitParameter("limits");
    if (limits == null) {
      throw new ServletException("filter " + config.getFilterName() + ": the init parameter limits is missing");
    }
    style = HeaderStyle.valueOf(or(config.getInitParameter("headers"), "x").toUpperCase(Locale.ROOT));
    owned = RlSidecarClient.builder().build();
    gate = new Gate(owned).scope(or(config.getInitParameter("scope"), ""));
    for (String limit : limits.trim().split("\\s*,\\s*")) {
      gate = gate.limit(limit);
    }
  }

  private static String or(String value, String otherwise) {
    return value == null ? otherwise : value.trim();
  }

  @Override
  public void doFilter(ServletRequest request, ServletResponse response, FilterChain chain)
      throws IOException, ServletException {
    boolean isHttp = request instanceof HttpServletRequest && response instanceof HttpServletResponse;
    if (!isHttp || gate.isOpen() || request.getDispatcherType() != DispatcherType.REQUEST) {
      chain.doFilter(request, response);
      return;
    }
    filter((HttpServletRequest) request, (HttpServletResponse) response, chain);
  }

  private void filter(HttpServletRequest request, HttpServletResponse response, FilterChain chain)
      throws IOException, ServletException {
    String who = key.apply(request);
    if (who == null) {
      chain.doFilter(request, response);
      return;
    }
    Outcome outcome = gate.ask(who);
    request.setAttribute(DECISION, outcome.decision());
    for (Map.Entry<String, String> header : outcome.headers(style).entrySet()) {
      if (!response.containsHeader(header.getKey())) {
        response.setHeader(header.getKey(), header.getValue());
      }
    }
    if (outcome.allowed()) {
      chain.doFilter(request, response);
    } else {
      tooManyRequests(request, response);
    }
  }

  /**
   * Answers a request that is denied. Its headers about limits are set already.
   *
   * @param request the request, with its decision as attribute {@link #DECISION}
   * @param response to be filled; status 429 and a line of text, unless overridden
   * @throws IOException when the response cannot be written
   * @throws ServletException not unless overridden
   */
  protected void tooManyRequests(HttpServletRequest request, HttpServletResponse response)
      throws IOException, ServletException {
    response.setStatus(TOO_MANY_REQUESTS);
    response.setContentType("text/plain;charset=utf-8");
    response.getWriter().write("Too many requests\n");
  }

  @Override
  public void destroy() {
    if (owned != null) {
      owned.close();
    }
  }
}
