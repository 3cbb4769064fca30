// Java's java.net.http.HttpClient. The arguments are in `programs.rs`.

import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.net.http.WebSocket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Set;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;

public class Client {
    static final int FAILURES_MAX = 5;
    static final Duration LIMIT = Duration.ofSeconds(20);
    static String upstream;
    static int wanted;
    static int wantedGenerations;

    public static void main(String[] arguments) throws Exception {
        upstream = arguments[3];
        wanted = Integer.parseInt(arguments[4]);
        wantedGenerations = Integer.parseInt(arguments[5]);
        SSLContext trust = trust(Path.of(arguments[2]));
        // On a connection without TLS, a client with HTTP/2 sends `Upgrade: h2c`, which the server
        // ignores.
        for (String kind : List.of("http", "http, upgrade", "https", "h2")) {
            if (kind.equals("h2") && upstream.equals("-")) {
                String why = "Java 17 and 25 fail what is in progress when GOAWAY comes";
                System.out.println("{\"case\":\"h2\",\"skipped\":\"" + why + "\"}");
                continue;
            }
            boolean isHttp2 = kind.equals("h2") || kind.equals("http, upgrade");
            HttpClient client = HttpClient.newBuilder()
                .sslContext(trust)
                .connectTimeout(LIMIT)
                .version(isHttp2 ? HttpClient.Version.HTTP_2 : HttpClient.Version.HTTP_1_1)
                .build();
            String base = kind.startsWith("http,") || kind.equals("http") ? arguments[0] : arguments[1];
            boolean isMultiplexed = kind.equals("h2");
            String version = isMultiplexed ? "HTTP/2.0" : "HTTP/1.1";
            for (String operation : List.of("get", "post", "chunked")) {
                new Client(kind, operation, version).run(client, base, isMultiplexed ? 4 : 1);
            }
            if (!isHttp2) {
                new Client(kind, "websocket", version).talk(client, base.replaceFirst("^http", "ws"));
            }
        }
        // The client's threads do not end.
        System.exit(0);
    }

    static SSLContext trust(Path ca) throws Exception {
        KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
        store.load(null, null);
        var bytes = new ByteArrayInputStream(Files.readAllBytes(ca));
        var certificates = CertificateFactory.getInstance("X.509");
        store.setCertificateEntry("ca", certificates.generateCertificate(bytes));
        var managers = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        managers.init(store);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(null, managers.getTrustManagers(), null);
        return context;
    }

    // What a case has to send, and what has come back.
    final String name;
    final String operation;
    final String version;
    int requests;
    int closed;
    final AtomicInteger failed = new AtomicInteger();
    final Set<String> peers = ConcurrentHashMap.newKeySet();
    final Set<String> generations = ConcurrentHashMap.newKeySet();

    Client(String name, String operation, String version) {
        this.name = name;
        this.operation = operation;
        this.version = version;
    }

    boolean goesOn() {
        int least = operation.equals("post") || operation.equals("chunked") ? wanted / 8 : wanted;
        boolean isDone = requests >= least && generations.size() >= wantedGenerations;
        return !isDone && failed.get() < FAILURES_MAX;
    }

    void run(HttpClient client, String base, int parallel) {
        while (goesOn()) {
            List<CompletableFuture<Void>> asked = new ArrayList<>();
            for (int at = 0; at < parallel; at++) {
                requests++;
                int number = requests;
                asked.add(ask(client, base, number).exceptionally(error -> {
                    fail(number, error);
                    return null;
                }));
            }
            asked.forEach(CompletableFuture::join);
        }
        report();
    }

    CompletableFuture<Void> ask(HttpClient client, String base, int number) {
        String path = "/" + operation + "/" + number;
        var request = HttpRequest.newBuilder(URI.create(base + path)).timeout(LIMIT);
        // Some versions send `Content-Length: 0`.
        String start = "GET " + path + " (empty|length=0) ";
        byte[] sent = new byte[0];
        if (operation.equals("post")) {
            sent = body(number, 65536);
            start = "POST " + path + " length=" + sent.length + " ";
            request.POST(BodyPublishers.ofByteArray(sent));
        } else if (operation.equals("chunked")) {
            sent = body(number, 16384);
            byte[] streamed = sent;
            start = "POST " + path + " stream ";
            request.POST(BodyPublishers.ofInputStream(() -> new ByteArrayInputStream(streamed)));
        }
        String expected = start + (upstream.equals("-") ? version : upstream) + " ";
        byte[] echo = sent;
        return client.sendAsync(request.build(), BodyHandlers.ofByteArray())
            .thenAccept(response -> check(response, expected, echo));
    }

    static byte[] body(int number, int times) {
        return String.format("%016d", number).repeat(times).getBytes(StandardCharsets.US_ASCII);
    }

    void check(HttpResponse<byte[]> response, String expected, byte[] sent) {
        byte[] received = response.body();
        int end = 0;
        while (end < received.length && received[end] != '\n') {
            end++;
        }
        String line = new String(received, 0, end, StandardCharsets.UTF_8);
        boolean isHttp2 = response.version() == HttpClient.Version.HTTP_2;
        if (response.statusCode() != 200
            || isHttp2 != version.equals("HTTP/2.0")
            || !line.matches(expected + "\\S+ \\S+")) {
            throw new IllegalStateException(response + ": " + line);
        }
        int begin = Math.min(end + 1, received.length);
        if (!Arrays.equals(received, begin, received.length, sent, 0, sent.length)) {
            throw new IllegalStateException((received.length - begin) + " other bytes");
        }
        String[] words = line.split(" ");
        generations.add(words[4]);
        peers.add(words[5]);
    }

    // What comes on a WebSocket: messages, and `closed CODE` at its end.
    static final class Listener implements WebSocket.Listener {
        final BlockingQueue<String> received = new LinkedBlockingQueue<>();

        @Override
        public CompletionStage<?> onText(WebSocket socket, CharSequence data, boolean isLast) {
            received.add(data.toString());
            socket.request(1);
            return null;
        }

        @Override
        public CompletionStage<?> onClose(WebSocket socket, int code, String reason) {
            received.add("closed " + code);
            return null;
        }

        @Override
        public void onError(WebSocket socket, Throwable error) {
            received.add("closed by " + error);
        }

        String take() throws Exception {
            String text = received.poll(LIMIT.toSeconds(), TimeUnit.SECONDS);
            if (text == null) {
                throw new IOException("nothing came");
            }
            return text;
        }
    }

    // A message whose echo has not come before Going Away is sent again on the next connection.
    void talk(HttpClient client, String base) {
        WebSocket socket = null;
        Listener listener = null;
        while (goesOn()) {
            requests++;
            String sent = "message " + requests;
            try {
                String echo = null;
                while (!sent.equals(echo)) {
                    if (socket == null) {
                        listener = new Listener();
                        URI uri = URI.create(base + "/websocket");
                        socket = client.newWebSocketBuilder().buildAsync(uri, listener).join();
                        generations.add(listener.take());
                        peers.add(String.valueOf(peers.size()));
                    }
                    // It fails after a Close, which the listener reports.
                    socket.sendText(sent, true).exceptionally(error -> null).join();
                    echo = listener.take();
                    if (echo.equals("closed 1001")) {
                        closed++;
                        socket = null;
                    } else if (!echo.equals(sent)) {
                        throw new IOException(echo);
                    }
                }
            } catch (Exception error) {
                fail(requests, error);
                socket = null;
            }
        }
        report();
    }

    void fail(int number, Throwable error) {
        failed.incrementAndGet();
        System.err.println(name + " " + operation + " " + number + ":");
        error.printStackTrace();
    }

    void report() {
        System.out.println(String.format(
            "{\"case\":\"%s %s\",\"requests\":%d,\"failed\":%d,\"connections\":%d,"
                + "\"generations\":%d,\"closed\":%d}",
            name, operation, requests, failed.get(), peers.size(), generations.size(), closed));
    }
}
