// Unix sockets: of the JDK since 16, of junixsocket before. Both are reached by reflection, since this
// code runs on Java 8 and brings no dependencies along.
package rlsidecar;

import java.io.File;
import java.io.IOException;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.net.ProtocolFamily;
import java.net.SocketAddress;
import java.net.StandardProtocolFamily;
import java.nio.channels.Selector;
import java.nio.channels.SocketChannel;

/** Opens channels that can connect to a path. */
final class Transport {
  private static final String CHOICE = "rlsidecar.transport";

  private final Method open;
  private final Object[] openArguments;
  private final Method address;
  private final boolean addressTakesFile;

  private Transport(Method open, Object[] openArguments, Method address) {
    this.open = open;
    this.openArguments = openArguments;
    this.address = address;
    this.addressTakesFile = address.getParameterTypes()[0] == File.class;
  }

  /**
   * The transport of this Java.
   *
   * @throws IllegalStateException when there is none
   */
  static Transport ofThisJava() {
    String choice = System.getProperty(CHOICE, "");
    try {
      return choice.equals("junixsocket") ? junixsocket() : jdk();
    } catch (ReflectiveOperationException | IllegalArgumentException noUnixSockets) {
      return junixsocketOrFail();
    }
  }

  private static Transport junixsocketOrFail() {
    try {
      return junixsocket();
    } catch (ReflectiveOperationException | LinkageError e) {
      throw new IllegalStateException(
          "Java " + System.getProperty("java.version")
              + " has no Unix sockets: use Java 16 or newer, or put junixsocket on the class path",
          e);
    }
  }

  private static Transport jdk() throws ReflectiveOperationException {
    Object family = StandardProtocolFamily.valueOf("UNIX");
    Method open = SocketChannel.class.getMethod("open", ProtocolFamily.class);
    Method address = Class.forName("java.net.UnixDomainSocketAddress").getMethod("of", String.class);
    return new Transport(open, new Object[] {family}, address);
  }

  private static Transport junixsocket() throws ReflectiveOperationException {
    Method open = Class.forName("org.newsclub.net.unix.AFUNIXSocketChannel").getMethod("open");
    Method address =
        Class.forName("org.newsclub.net.unix.AFUNIXSocketAddress").getMethod("of", File.class);
    return new Transport(open, new Object[0], address);
  }

  SocketChannel open() throws IOException {
    return (SocketChannel) invoke(open, openArguments);
  }

  /** A selector for channels of this transport, which other providers' selectors refuse. */
  Selector openSelector() throws IOException {
    try (SocketChannel any = open()) {
      return any.provider().openSelector();
    }
  }

  SocketAddress address(String path) throws IOException {
    return (SocketAddress) invoke(address, addressTakesFile ? new File(path) : path);
  }

  private static Object invoke(Method method, Object... arguments) throws IOException {
    try {
      return method.invoke(null, arguments);
    } catch (InvocationTargetException e) {
      Throwable cause = e.getCause();
      throw cause instanceof IOException ? (IOException) cause : new IOException(cause);
    } catch (IllegalAccessException e) {
      throw new IOException(e);
    }
  }
}
