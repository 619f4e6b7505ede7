// What only a web application on servlets needs.
package rlsidecar.spring;

import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnClass;
import org.springframework.boot.autoconfigure.condition.ConditionalOnMissingBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnProperty;
import org.springframework.boot.autoconfigure.condition.ConditionalOnWebApplication;
import org.springframework.boot.web.servlet.FilterRegistrationBean;
import org.springframework.context.annotation.Bean;
import org.springframework.web.servlet.DispatcherServlet;
import rlsidecar.RlSidecarClient;
import rlsidecar.http.Gate;
import rlsidecar.servlet.RateLimitFilter;

/** Answers 429, sets headers, and registers the filter of {@code rlsidecar.filter}. */
@AutoConfiguration(after = RlSidecarAutoConfiguration.class)
@ConditionalOnWebApplication(type = ConditionalOnWebApplication.Type.SERVLET)
@ConditionalOnClass(DispatcherServlet.class)
public class RlSidecarWebAutoConfiguration {
  /** Made by Spring Boot. */
  public RlSidecarWebAutoConfiguration() {}

  /**
   * Who sent the request under way, by its remote address.
   *
   * @param properties the settings
   * @return for limits without a key
   */
  @Bean
  @ConditionalOnMissingBean
  public Caller rlSidecarCaller(RlSidecarProperties properties) {
    return new ServletCaller(properties.headers());
  }

  /**
   * Answers requests that are denied with 429 and a problem detail. An exception handler of the
   * application for {@code RateLimitExceededException} comes first.
   *
   * @return the advice for all controllers
   */
  @Bean
  public TooManyRequestsAdvice rlSidecarTooManyRequestsAdvice() {
    return new TooManyRequestsAdvice();
  }

  /**
   * The servlet filter, if it has limits.
   *
   * @param client whom to ask
   * @param properties the settings
   * @return the filter, before those of the application
   */
  @Bean
  @ConditionalOnProperty("rlsidecar.filter.limits")
  public FilterRegistrationBean<RateLimitFilter> rlSidecarFilter(
      RlSidecarClient client, RlSidecarProperties properties) {
    Gate gate = new Gate(client).scope("filter");
    for (String limit : properties.filter().limits()) {
      gate = gate.limit(limit);
    }
    RateLimitFilter filter = new RateLimitFilter(gate).headers(properties.headers());
    FilterRegistrationBean<RateLimitFilter> registration = new FilterRegistrationBean<>(filter);
    registration.setUrlPatterns(properties.filter().urlPatterns());
    return registration;
  }
}
