package rlsidecar.spring;

import java.lang.reflect.Method;
import org.springframework.aop.support.StaticMethodMatcherPointcut;
import org.springframework.core.annotation.AnnotatedElementUtils;
import org.springframework.core.annotation.AnnotationUtils;

/** Methods with {@link RateLimited}, also by an annotation or in an interface that has it. */
final class RateLimitedPointcut extends StaticMethodMatcherPointcut {
  RateLimitedPointcut() {
    setClassFilter(type -> AnnotationUtils.isCandidateClass(type, RateLimited.class));
  }

  @Override
  public boolean matches(Method method, Class<?> target) {
    return AnnotatedElementUtils.hasAnnotation(method, RateLimited.class)
        || AnnotatedElementUtils.hasAnnotation(method, RateLimited.Several.class);
  }
}
