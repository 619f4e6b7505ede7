package rlsidecar.bench;

import java.io.IOException;
import java.time.Duration;
import java.util.List;
import redis.clients.jedis.Jedis;
import rlsidecar.OnUnavailable;
import rlsidecar.RlSidecarClient;

/** One caller, which is used by one thread. */
interface Asker extends AutoCloseable {
  /** Asks once, and fails when the answer is not "allowed". */
  void ask(int number) throws IOException;

  @Override
  void close() throws IOException;

  /** What is asked. */
  enum Kind {
    /** The agent, through the client. Its policy "bench" must allow everything. */
    AGENT {
      @Override
      Asker open(String address) {
        return new AgentAsker(address);
      }
    },
    /** A peer that answers a request of the same size with a reply of the same size. */
    PING {
      @Override
      Asker open(String address) throws IOException {
        return new PingAsker(address);
      }
    },
    /** Redis over TCP on loopback, by Jedis, which has no Unix sockets of its own. */
    REDIS {
      @Override
      Asker open(String address) {
        return new RedisAsker(Integer.parseInt(address));
      }
    };

    abstract Asker open(String address) throws IOException;
  }

  /** The client, as an application uses it. */
  final class AgentAsker implements Asker {
    private final RlSidecarClient client;

    AgentAsker(String address) {
      client =
          RlSidecarClient.builder()
              .address(address)
              .timeout(Duration.ofSeconds(5))
              .onUnavailable(OnUnavailable.RAISE)
              .build();
    }

    @Override
    public void ask(int number) {
      if (!client.tryAcquire("bench", "user:42").allowed()) {
        throw new IllegalStateException("denied: the policy must allow everything");
      }
    }

    @Override
    public void close() {
      client.close();
    }
  }

  /** A token bucket as applications keep it in Redis: one script, one key. */
  final class RedisAsker implements Asker {
    private static final String BUCKET =
        String.join(
            "\n",
            "local rate, burst = tonumber(ARGV[1]), tonumber(ARGV[2])",
            "local time = redis.call('TIME')",
            "local now = time[1] + time[2] / 1e6",
            "local state = redis.call('HMGET', KEYS[1], 'level', 'at')",
            "local level = math.min(burst, (tonumber(state[1]) or burst)",
            "  + (now - (tonumber(state[2]) or now)) * rate)",
            "local allowed = level >= 1",
            "if allowed then level = level - 1 end",
            "redis.call('HSET', KEYS[1], 'level', tostring(level), 'at', tostring(now))",
            "redis.call('PEXPIRE', KEYS[1], 60000)",
            "return {allowed and 1 or 0, math.floor(level)}");

    private final Jedis jedis;
    private final String sha;

    RedisAsker(int port) {
      jedis = new Jedis("127.0.0.1", port);
      sha = jedis.scriptLoad(BUCKET);
    }

    @Override
    public void ask(int number) {
      List<?> reply = (List<?>) jedis.evalsha(sha, 1, "user:42", "1000000", "1000000");
      if ((Long) reply.get(0) != 1) {
        throw new IllegalStateException("denied: the bucket must allow everything");
      }
    }

    @Override
    public void close() {
      jedis.close();
    }
  }
}
