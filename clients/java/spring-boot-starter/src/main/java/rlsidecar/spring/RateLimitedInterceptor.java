package rlsidecar.spring;

import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.aopalliance.intercept.MethodInterceptor;
import org.aopalliance.intercept.MethodInvocation;
import org.springframework.aop.support.AopUtils;
import org.springframework.beans.factory.BeanFactory;
import org.springframework.beans.factory.ObjectProvider;
import org.springframework.context.expression.BeanFactoryResolver;
import org.springframework.context.expression.MethodBasedEvaluationContext;
import org.springframework.core.DefaultParameterNameDiscoverer;
import org.springframework.core.ParameterNameDiscoverer;
import org.springframework.core.annotation.AnnotatedElementUtils;
import org.springframework.expression.EvaluationContext;
import org.springframework.expression.Expression;
import org.springframework.expression.ExpressionParser;
import org.springframework.expression.spel.standard.SpelExpressionParser;
import rlsidecar.Call;
import rlsidecar.RateLimitExceededException;
import rlsidecar.RlSidecarClient;
import rlsidecar.http.Gate;
import rlsidecar.http.Outcome;
import rlsidecar.http.Rule;

/** Asks before a method runs. What there is to ask is worked out once for each method. */
final class RateLimitedInterceptor implements MethodInterceptor {
  private static final ExpressionParser PARSER = new SpelExpressionParser();
  private static final ParameterNameDiscoverer NAMES = new DefaultParameterNameDiscoverer();

  private final Map<Method, List<Asked>> askedByMethod = new ConcurrentHashMap<>();
  private final ObjectProvider<RlSidecarClient> client;
  private final ObjectProvider<Caller> caller;
  private final BeanFactoryResolver beans;

  RateLimitedInterceptor(
      ObjectProvider<RlSidecarClient> client, ObjectProvider<Caller> caller, BeanFactory beans) {
    this.client = client;
    this.caller = caller;
    this.beans = new BeanFactoryResolver(beans);
  }

  private record Asked(Rule rule, Expression key, Expression cost, String scope) {
    static Asked of(RateLimited limited, String scope) {
      Expression key = limited.key().isEmpty() ? null : PARSER.parseExpression(limited.key());
      return new Asked(Rule.of(limited.value()), key, PARSER.parseExpression(limited.cost()), scope);
    }
  }

  @Override
  public Object invoke(MethodInvocation invocation) throws Throwable {
    Method method = AopUtils.getMostSpecificMethod(invocation.getMethod(), invocation.getThis().getClass());
    List<Asked> asked = askedByMethod.computeIfAbsent(method, RateLimitedInterceptor::asked);
    MethodBasedEvaluationContext context =
        new MethodBasedEvaluationContext(invocation.getThis(), method, invocation.getArguments(), NAMES);
    context.setBeanResolver(beans);
    List<Call> calls = new ArrayList<>();
    for (Asked each : asked) {
      calls.add(call(each, context));
    }
    Outcome outcome = Gate.ask(client.getObject(), asked.stream().map(Asked::rule).toList(), calls);
    caller.ifAvailable(web -> web.tell(outcome));
    if (!outcome.allowed()) {
      throw new RateLimitExceededException(outcome.decision());
    }
    return invocation.proceed();
  }

  /** The scope is the method, which keeps limits like "10/minute" apart from those of other methods. */
  private static List<Asked> asked(Method method) {
    String scope = method.getDeclaringClass().getName() + "." + method.getName();
    return AnnotatedElementUtils.findMergedRepeatableAnnotations(method, RateLimited.class, RateLimited.Several.class)
        .stream()
        .map(limited -> Asked.of(limited, scope))
        .toList();
  }

  private Call call(Asked asked, EvaluationContext context) {
    Long cost = asked.cost().getValue(context, Long.class);
    if (cost == null) {
      throw new IllegalArgumentException("cost " + asked.cost().getExpressionString() + ": gives null");
    }
    return asked.rule().call(key(asked, context), asked.scope()).cost(cost);
  }

  private String key(Asked asked, EvaluationContext context) {
    if (asked.key() == null) {
      Caller web = caller.getIfAvailable();
      if (web == null) {
        throw new IllegalStateException("@RateLimited needs a key outside of a web application");
      }
      return web.key();
    }
    Object key = asked.key().getValue(context);
    if (key == null) {
      throw new IllegalArgumentException("key " + asked.key().getExpressionString() + ": gives null");
    }
    return key.toString();
  }
}
