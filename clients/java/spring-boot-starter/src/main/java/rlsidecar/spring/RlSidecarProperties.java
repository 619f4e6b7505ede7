package rlsidecar.spring;

import java.time.Duration;
import java.util.List;
import org.springframework.boot.context.properties.ConfigurationProperties;
import org.springframework.boot.context.properties.bind.DefaultValue;
import rlsidecar.OnUnavailable;
import rlsidecar.http.HeaderStyle;

/**
 * The settings under {@code rlsidecar}. What is not set comes from the environment, else from the
 * client's defaults.
 *
 * @param address of the agent: {@code unix:///path} or a path
 * @param timeout of a call, like {@code 50ms}
 * @param onUnavailable {@code allow}, {@code deny}, {@code local} or {@code raise}
 * @param app the name of the calling application, where the operator lets callers say so
 * @param headers of responses: {@code x}, {@code ietf} or {@code none}
 * @param filter limits on all requests
 */
@ConfigurationProperties("rlsidecar")
public record RlSidecarProperties(
    String address,
    Duration timeout,
    OnUnavailable onUnavailable,
    String app,
    @DefaultValue("x") HeaderStyle headers,
    @DefaultValue Filter filter) {

  /**
   * Limits on all requests, by the address of the caller, before Spring sees them.
   *
   * @param limits names of policies, or limits like {@code 10/minute}; none: no filter
   * @param urlPatterns of the servlet container
   */
  public record Filter(@DefaultValue List<String> limits, @DefaultValue("/*") List<String> urlPatterns) {}
}
