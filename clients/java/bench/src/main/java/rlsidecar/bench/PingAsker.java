// What a decision could take at best in Java: the same bytes, on the same kind of channel.
package rlsidecar.bench;

import java.io.IOException;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.SocketChannel;
import java.util.HexFormat;

/** A non-blocking channel and its selector, and nothing else. */
final class PingAsker implements Asker {
  private static final byte[] REQUEST =
      HexFormat.of().parseHex("9400ce12345678a76163717569726593a562656e6368a7757365723a343201");

  private final SocketChannel channel;
  private final Selector selector;
  private final ByteBuffer reply = ByteBuffer.wrap(new byte[512]);

  PingAsker(String address) throws IOException {
    channel = SocketChannel.open(StandardProtocolFamily.UNIX);
    channel.configureBlocking(false);
    channel.connect(UnixDomainSocketAddress.of(address));
    selector = channel.provider().openSelector();
    channel.register(selector, SelectionKey.OP_READ);
  }

  @Override
  public void ask(int number) throws IOException {
    channel.write(ByteBuffer.wrap(REQUEST));
    reply.clear();
    selector.select(5000);
    selector.selectedKeys().clear();
    if (channel.read(reply) <= 0) {
      throw new IOException("no reply");
    }
  }

  @Override
  public void close() throws IOException {
    channel.close();
    selector.close();
  }
}
