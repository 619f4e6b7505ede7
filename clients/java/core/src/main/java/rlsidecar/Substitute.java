package rlsidecar;

import java.util.ArrayList;
import java.util.List;
import java.util.Optional;

/** Decides about calls instead of the agent. */
final class Substitute {
  static final Substitute ALLOW = new Substitute(true, null);
  static final Substitute DENY = new Substitute(false, null);

  private final boolean allows;
  private final LocalBuckets buckets; // null: nothing is counted

  private Substitute(boolean allows, LocalBuckets buckets) {
    this.allows = allows;
    this.buckets = buckets;
  }

  /** What a mode other than RAISE decides by. */
  static Substitute of(OnUnavailable mode) {
    if (mode == OnUnavailable.LOCAL) {
      return new Substitute(true, new LocalBuckets());
    }
    return mode == OnUnavailable.DENY ? DENY : ALLOW;
  }

  /** Whether a call of which nothing is counted is allowed. */
  boolean allows() {
    return allows;
  }

  Decision take(Call call) {
    return decide(call, true);
  }

  Decision peek(Call call) {
    return decide(call, false);
  }

  /** Takes from all calls or from none, as far as each is for another bucket. */
  AllDecision takeAll(List<Call> calls) {
    AllDecision before = decideAll(calls, false);
    return before.allowed() ? decideAll(calls, true) : before;
  }

  private AllDecision decideAll(List<Call> calls, boolean take) {
    List<Decision> decisions = new ArrayList<>();
    for (Call call : calls) {
      decisions.add(decide(call, take));
    }
    return new AllDecision(decisions.stream().allMatch(Decision::allowed), decisions);
  }

  private Decision decide(Call call, boolean take) {
    Optional<Limit> own = call.ownLimit();
    if (buckets == null || !own.isPresent()) {
      return Decision.unanswered(allows, call);
    }
    return buckets.ask(own.get(), call, take, System.nanoTime());
  }
}
