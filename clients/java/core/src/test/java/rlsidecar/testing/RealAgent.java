// The agent itself, for the tests that ask it.
package rlsidecar.testing;

import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.concurrent.TimeUnit;
import rlsidecar.OnUnavailable;
import rlsidecar.RlSidecarClient;
import rlsidecar.UnavailableException;

/**
 * Runs the binary that RLSIDECAR_AGENT names, as scripts/test has it, else build/rlsidecar of this
 * repository, which {@code go build -o build/rlsidecar ./cmd/rlsidecar} makes.
 */
public final class RealAgent implements AutoCloseable {
  private final Path directory;
  private final Path socket;
  private Process process;

  private RealAgent(String policies) throws IOException {
    directory = Files.createTempDirectory("rls-");
    socket = directory.resolve("agent.sock");
    Files.writeString(directory.resolve("config.yaml"), policies);
  }

  /** Starts an agent with this configuration and returns when it answers. */
  public static RealAgent serving(String configuration) throws Exception {
    RealAgent agent = new RealAgent(configuration);
    agent.start();
    return agent;
  }

  public String address() {
    return "unix://" + socket;
  }

  /** A client that fails rather than going without the agent. */
  public RlSidecarClient client() {
    return RlSidecarClient.builder()
        .address(address())
        .timeout(Duration.ofSeconds(5))
        .onUnavailable(OnUnavailable.RAISE)
        .build();
  }

  /** Starts it, again after a stop. */
  public void start() throws Exception {
    process =
        new ProcessBuilder(binary(), "serve", "--config", directory.resolve("config.yaml").toString(),
                "--socket", socket.toString(), "--log-level", "error")
            .redirectErrorStream(true)
            .redirectOutput(directory.resolve("log").toFile())
            .start();
    Runtime.getRuntime().addShutdownHook(new Thread(process::destroy));
    long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(10);
    try (RlSidecarClient client = client()) {
      while (!answers(client)) {
        if (!process.isAlive() || System.nanoTime() > end) {
          throw new IllegalStateException("the agent did not start");
        }
        Thread.sleep(10);
      }
    }
  }

  private static boolean answers(RlSidecarClient client) {
    try {
      client.ping();
      return true;
    } catch (UnavailableException e) {
      return false;
    }
  }

  private static String binary() {
    String named = System.getenv("RLSIDECAR_AGENT");
    if (named != null) {
      return named;
    }
    File root = new File("").getAbsoluteFile();
    while (root != null && !new File(root, "build/rlsidecar").exists()) {
      root = root.getParentFile();
    }
    if (root == null) {
      throw new IllegalStateException("run: go build -o build/rlsidecar ./cmd/rlsidecar");
    }
    return new File(root, "build/rlsidecar").getPath();
  }

  /** Ends it, as at a restart. */
  public void stop() {
    process.destroy();
    process.onExit().orTimeout(10, TimeUnit.SECONDS).join();
  }

  @Override
  public void close() throws IOException {
    stop();
    for (String name : directory.toFile().list()) {
      Files.delete(directory.resolve(name));
    }
    Files.delete(directory);
  }
}
