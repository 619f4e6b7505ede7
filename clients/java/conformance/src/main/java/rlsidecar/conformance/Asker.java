// The two ways to ask, as one.
package rlsidecar.conformance;

import java.util.List;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ExecutionException;
import rlsidecar.AllDecision;
import rlsidecar.Call;
import rlsidecar.Decision;
import rlsidecar.RlSidecarClient;

interface Asker {
  Decision acquire(RlSidecarClient client, Call call) throws Exception;

  Decision peek(RlSidecarClient client, Call call) throws Exception;

  boolean refund(RlSidecarClient client, Call call) throws Exception;

  boolean reset(RlSidecarClient client, Call call) throws Exception;

  AllDecision acquireAll(RlSidecarClient client, List<Call> calls) throws Exception;

  Asker BLOCKING =
      new Asker() {
        @Override
        public Decision acquire(RlSidecarClient client, Call call) {
          return client.tryAcquire(call);
        }

        @Override
        public Decision peek(RlSidecarClient client, Call call) {
          return client.peek(call);
        }

        @Override
        public boolean refund(RlSidecarClient client, Call call) {
          return client.refund(call);
        }

        @Override
        public boolean reset(RlSidecarClient client, Call call) {
          return client.reset(call);
        }

        @Override
        public AllDecision acquireAll(RlSidecarClient client, List<Call> calls) {
          return client.tryAcquireAll(calls);
        }
      };

  Asker ASYNC =
      new Asker() {
        @Override
        public Decision acquire(RlSidecarClient client, Call call) throws Exception {
          return await(client.tryAcquireAsync(call));
        }

        @Override
        public Decision peek(RlSidecarClient client, Call call) throws Exception {
          return await(client.peekAsync(call));
        }

        @Override
        public boolean refund(RlSidecarClient client, Call call) throws Exception {
          return await(client.refundAsync(call));
        }

        @Override
        public boolean reset(RlSidecarClient client, Call call) throws Exception {
          return await(client.resetAsync(call));
        }

        @Override
        public AllDecision acquireAll(RlSidecarClient client, List<Call> calls) throws Exception {
          return await(client.tryAcquireAllAsync(calls));
        }
      };

  private static <T> T await(CompletionStage<T> stage) throws Exception {
    try {
      return stage.toCompletableFuture().get();
    } catch (ExecutionException e) {
      throw (Exception) e.getCause();
    }
  }
}
