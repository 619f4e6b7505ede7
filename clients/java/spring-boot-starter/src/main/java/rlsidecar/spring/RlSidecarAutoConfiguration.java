// The client and @RateLimited, for any application.
package rlsidecar.spring;

import java.util.Optional;
import org.springframework.aop.Advisor;
import org.springframework.aop.support.DefaultPointcutAdvisor;
import org.springframework.beans.factory.BeanFactory;
import org.springframework.beans.factory.ObjectProvider;
import org.springframework.beans.factory.config.BeanDefinition;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.aop.AopAutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnMissingBean;
import org.springframework.boot.context.properties.EnableConfigurationProperties;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Role;
import rlsidecar.RlSidecarClient;

/** Makes the client a bean, and {@link RateLimited} work. */
@AutoConfiguration(before = AopAutoConfiguration.class)
@EnableConfigurationProperties(RlSidecarProperties.class)
public class RlSidecarAutoConfiguration {
  /** Made by Spring Boot. */
  public RlSidecarAutoConfiguration() {}

  /**
   * The client; connects to nothing before the first call.
   *
   * @param properties the settings
   * @return a client that the context closes
   */
  @Bean
  @ConditionalOnMissingBean
  public RlSidecarClient rlSidecarClient(RlSidecarProperties properties) {
    RlSidecarClient.Builder builder = RlSidecarClient.builder();
    Optional.ofNullable(properties.address()).ifPresent(builder::address);
    Optional.ofNullable(properties.timeout()).ifPresent(builder::timeout);
    Optional.ofNullable(properties.onUnavailable()).ifPresent(builder::onUnavailable);
    Optional.ofNullable(properties.app()).ifPresent(builder::app);
    return builder.build();
  }

  /**
   * What stands before the methods that are {@link RateLimited}.
   *
   * @param client whom to ask, looked up at the first call
   * @param caller tells who sent the web request under way, and gets the outcome
   * @param beans for expressions
   * @return the advice and where it applies
   */
  @Bean
  @Role(BeanDefinition.ROLE_INFRASTRUCTURE)
  public static Advisor rateLimitedAdvisor(
      ObjectProvider<RlSidecarClient> client, ObjectProvider<Caller> caller, BeanFactory beans) {
    return new DefaultPointcutAdvisor(
        new RateLimitedPointcut(), new RateLimitedInterceptor(client, caller, beans));
  }
}
