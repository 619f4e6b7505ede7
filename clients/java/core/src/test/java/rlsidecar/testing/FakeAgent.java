// A scripted agent on a real Unix socket, for tests of this and the other modules.
package rlsidecar.testing;

import java.io.IOException;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HexFormat;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicInteger;

/** Calls its script with each request, in a thread per connection, and writes what that returns. */
public final class FakeAgent implements AutoCloseable {
  /** A decision that allows, with 99 of 100 left. */
  public static final String ALLOWED = "97c36463cd03e8000000";

  /** A decision that denies for 250 ms, remembered by the host. */
  public static final String DENIED = "97c26400cd03e8ccfa0200";

  private final Path directory;
  private final Path path;
  private final ServerSocketChannel listener;
  private final List<SocketChannel> connections = new CopyOnWriteArrayList<>();
  private final AtomicInteger requests = new AtomicInteger();
  private final Script script;

  /** What to answer, as bytes in hexadecimal; null: nothing. */
  @FunctionalInterface
  public interface Script {
    String answer(FakeAgent agent, int number, byte[] request) throws Exception;
  }

  private FakeAgent(Script script) throws IOException {
    this.script = script;
    directory = Files.createTempDirectory("rls-");
    path = directory.resolve("agent.sock");
    listener = ServerSocketChannel.open(StandardProtocolFamily.UNIX);
    listener.bind(UnixDomainSocketAddress.of(path), 128);
    start(this::accept);
  }

  /** An agent that answers by a script. */
  public static FakeAgent scripted(Script script) throws IOException {
    return new FakeAgent(script);
  }

  /** An agent that answers every request with this result, in hexadecimal. */
  public static FakeAgent answering(String result) throws IOException {
    return new FakeAgent((agent, number, request) -> reply(request, result));
  }

  /** An agent that reads and never answers. */
  public static FakeAgent silent() throws IOException {
    return new FakeAgent((agent, number, request) -> null);
  }

  /** The reply to a request with a result, both in MessagePack. */
  public static String reply(byte[] request, String result) {
    return "9401" + msgid(request) + "c0" + result;
  }

  /** The msgid of a request, as it is encoded, in hexadecimal. */
  public static String msgid(byte[] request) {
    int tag = request[2] & 0xff;
    int size = tag < 0x80 ? 1 : 1 + (1 << (tag - 0xcc));
    return HexFormat.of().formatHex(request, 2, 2 + size);
  }

  public String address() {
    return "unix://" + path;
  }

  public String path() {
    return path.toString();
  }

  public int connections() {
    return connections.size();
  }

  public int requests() {
    return requests.get();
  }

  private void accept() throws IOException {
    while (listener.isOpen()) {
      SocketChannel connection = listener.accept();
      connections.add(connection);
      start(() -> serve(connection));
    }
  }

  /** Each read is taken for one request, as the clients of the tests send them one by one. */
  private void serve(SocketChannel connection) throws Exception {
    ByteBuffer buffer = ByteBuffer.allocate(65536);
    while (connection.read(buffer.clear()) > 0) {
      byte[] request = new byte[buffer.flip().remaining()];
      buffer.get(request);
      String answer = script.answer(this, requests.getAndIncrement(), request);
      if (answer != null) {
        connection.write(ByteBuffer.wrap(HexFormat.of().parseHex(answer)));
      }
    }
    connection.close();
  }

  private static void start(Running running) {
    Thread thread =
        new Thread(
            () -> {
              try {
                running.run();
              } catch (IOException closed) {
                // The test is over, or the client has closed.
              } catch (Exception e) {
                throw new IllegalStateException(e);
              }
            });
    thread.setDaemon(true);
    thread.start();
  }

  /** Closes the connections that there are, and goes on listening. */
  public void disconnect() throws IOException {
    for (SocketChannel connection : connections) {
      connection.close();
    }
  }

  @Override
  public void close() throws IOException {
    listener.close();
    disconnect();
    Files.deleteIfExists(path);
    Files.delete(directory);
  }

  private interface Running {
    void run() throws Exception;
  }
}
