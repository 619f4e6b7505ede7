// Connecting to the agent's socket, and not doing so too often while nobody is there.
package rlsidecar;

import java.io.IOException;
import java.net.BindException;
import java.net.ConnectException;
import java.net.SocketException;
import java.nio.channels.Selector;
import java.nio.channels.SocketChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.concurrent.ThreadLocalRandom;

/**
 * Opens non-blocking channels to one path. After a failure, further tries are refused for a random
 * pause that grows from 25 ms to 1 s. Threads may race on the two fields of the pause; all that
 * comes of it is a pause a little too short or one try too many.
 */
final class Dialer {
  private static final long SHORTEST_PAUSE = 25_000_000;
  private static final long LONGEST_PAUSE = 1_000_000_000;
  private static final int MOST_DOUBLINGS = 6;

  private final Transport transport;
  private final String path;
  private volatile int failures;
  private volatile long retryAt = System.nanoTime();

  Dialer(Transport transport, String path) {
    this.transport = transport;
    this.path = path;
  }

  /**
   * A connected channel; null when the agent is there but has its backlog full, which is to be tried
   * again. Never blocks.
   *
   * @throws AgentNotRunningException when nobody can be reached
   */
  SocketChannel dial() {
    if (System.nanoTime() - retryAt < 0) {
      throw new AgentNotRunningException("nobody was reached on " + path + ", the next try is due shortly");
    }
    SocketChannel channel = open();
    boolean connected = false;
    try {
      connected = connect(channel);
    } finally {
      if (!connected) {
        close(channel);
      }
    }
    failures = 0;
    return connected ? channel : null;
  }

  /** A selector for the channels that are dialled. */
  Selector openSelector() {
    try {
      return transport.openSelector();
    } catch (IOException e) {
      throw new UnavailableException("cannot open a selector: " + e.getMessage());
    }
  }

  private SocketChannel open() {
    try {
      return transport.open();
    } catch (IOException e) {
      throw new UnavailableException("cannot open a socket: " + e.getMessage());
    }
  }

  /** False when the backlog is full. A blocking connect would hang then, for as long as it is. */
  private boolean connect(SocketChannel channel) {
    try {
      channel.configureBlocking(false);
      return channel.connect(transport.address(path));
    } catch (IOException e) {
      if (isBacklogFull(e)) {
        return false;
      }
      pause();
      throw new AgentNotRunningException(whyNot(e));
    }
  }

  /**
   * The JDK tells EAGAIN by a plain SocketException with the system's text, which depends on the
   * locale. ENOENT and EPROTOTYPE come as the same class, so these are told apart first.
   */
  private boolean isBacklogFull(IOException e) {
    return e.getClass() == SocketException.class
        && Files.exists(Paths.get(path))
        && !String.valueOf(e.getMessage()).contains("Protocol wrong type");
  }

  private void pause() {
    long most = Math.min(LONGEST_PAUSE, SHORTEST_PAUSE << Math.min(failures, MOST_DOUBLINGS));
    failures++;
    retryAt = System.nanoTime() + ThreadLocalRandom.current().nextLong(most + 1);
  }

  private String whyNot(IOException e) {
    Path file = Paths.get(path);
    if (!Files.exists(file)) {
      return "nobody listens on " + path + ": there is no such file, or it cannot be seen";
    }
    if (Files.isRegularFile(file) || Files.isDirectory(file)) {
      return path + " is not a socket: set RLSIDECAR_ADDRESS to the agent's socket";
    }
    if (e instanceof BindException || !Files.isWritable(file)) {
      return "permission denied on " + path + ": this user must be in the group of the agent's socket";
    }
    if (e instanceof ConnectException) {
      return "nobody listens on " + path;
    }
    return "cannot connect to " + path + ": " + e.getMessage();
  }

  static void close(SocketChannel channel) {
    try {
      channel.close();
    } catch (IOException e) {
      // There is nothing left to lose: the connection was not to be used again anyway.
    }
  }
}
