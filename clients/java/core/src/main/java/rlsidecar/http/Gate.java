package rlsidecar.http;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.stream.Collectors;
import rlsidecar.Call;
import rlsidecar.Decision;
import rlsidecar.RlSidecarClient;

/**
 * Asks for each request under a set of rules, all at once: when one denies, none is charged.
 * Immutable.
 */
public final class Gate {
  private final RlSidecarClient client;
  private final List<Rule> rules;
  private final String scope;

  /**
   * A gate without rules, to add to.
   *
   * @param client whom to ask
   */
  public Gate(RlSidecarClient client) {
    this(client, Collections.emptyList(), "");
  }

  private Gate(RlSidecarClient client, List<Rule> rules, String scope) {
    this.client = client;
    this.rules = rules;
    this.scope = scope;
  }

  /**
   * The same gate with one rule more.
   *
   * @param limit the name of a policy, or a limit like {@code "10/minute"}
   * @return a new gate
   */
  public Gate limit(String limit) {
    return with(Rule.of(limit));
  }

  /**
   * The same gate with one rule more.
   *
   * @param rule the rule
   * @return a new gate
   */
  public Gate with(Rule rule) {
    List<Rule> more = new ArrayList<>(rules);
    more.add(rule);
    return new Gate(client, more, scope);
  }

  /**
   * The same gate with a scope, which keeps limits like {@code "10/minute"} apart from equal ones of
   * other gates.
   *
   * @param name of the application, or of the place in it
   * @return a new gate
   */
  public Gate scope(String name) {
    return new Gate(client, rules, name);
  }

  /**
   * Whether there is nothing to ask.
   *
   * @return true without rules
   */
  public boolean isOpen() {
    return rules.isEmpty();
  }

  /**
   * Asks for a request.
   *
   * @param key who sent it
   * @return the answers of all rules
   */
  public Outcome ask(String key) {
    List<Call> calls = rules.stream().map(rule -> rule.call(key, scope)).collect(Collectors.toList());
    return ask(client, rules, calls);
  }

  /**
   * Asks under rules whose calls were made one by one.
   *
   * @param client whom to ask
   * @param rules one or more
   * @param calls one for each rule
   * @return the answers
   */
  public static Outcome ask(RlSidecarClient client, List<Rule> rules, List<Call> calls) {
    List<Decision> decisions =
        calls.size() == 1
            ? Collections.singletonList(client.tryAcquire(calls.get(0)))
            : client.tryAcquireAll(calls).decisions();
    return new Outcome(rules, decisions);
  }
}
