//! The HTTP options.

#[cfg(feature = "http2")]
mod http2;
pub(crate) mod refused;

use std::num::NonZeroU32;
use std::time::Duration;

use http::HeaderValue;

use crate::http::options::refused::{OnRefused, Refused};

/// How connections are served: limits and timeouts.
///
/// A timeout may pass up to half a second late, but never early.
///
/// For a server that clients reach without a reverse proxy:
///
/// ```
/// use std::{num::NonZeroUsize, time::Duration};
///
/// use prefork_server::{Http, Prefork};
///
/// let http = Http::new()
///     .header_timeout(Duration::from_secs(5))
///     // No handler takes more.
///     .max_body_size(64 * 1024)
///     // Clients that never close connect to another server of the group some day.
///     .max_connection_age(Duration::from_secs(60 * 60))
///     .on_refused(|refused| eprintln!("{} {:?}", refused.status, refused.connection.client()));
/// let server = Prefork::bind("0.0.0.0:80")
///     .http(http)
///     .max_connections_per_client(NonZeroUsize::new(50));
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Http {
    pub(crate) header_timeout: Duration,
    pub(crate) body_timeout: Duration,
    pub(crate) write_timeout: Duration,
    pub(crate) idle_timeout: Duration,
    pub(crate) linger: Duration,
    pub(crate) max_connection_age: Option<Duration>,
    pub(crate) max_connection_requests: Option<NonZeroU32>,
    pub(crate) upgrade_grace: Duration,
    pub(crate) max_warm: usize,
    pub(crate) max_target_size: usize,
    pub(crate) max_header_size: usize,
    pub(crate) max_body_size: Option<u64>,
    pub(crate) keep_alive: KeepAlive,
    pub(crate) server_header: Option<HeaderValue>,
    pub(crate) date_header: DateHeader,
    pub(crate) request_ids: bool,
    pub(crate) slow_request: Option<Duration>,
    pub(crate) on_refused: OnRefused,
    #[cfg(feature = "http2")]
    pub(crate) http2: Http2,
    #[cfg(feature = "http2")]
    pub(crate) max_concurrent_streams: u32,
    #[cfg(feature = "http2")]
    pub(crate) upload_window: u32,
}

/// Whether a connection may carry more than one request.
///
/// ```
/// use std::io::{Write, read_to_string};
///
/// use prefork_server::{Http, KeepAlive, Response, TestServer, handler};
///
/// let http = Http::new().keep_alive(KeepAlive::Disabled);
/// let app = async |_worker| Ok(handler(async |_request| Ok(Response::default())));
/// let server = TestServer::start_with(move |server| server.http(http).serve(app))?;
/// let mut client = std::net::TcpStream::connect(server.address())?;
/// client.write_all(b"GET / HTTP/1.1\r\nhost: test\r\n\r\n")?;
/// assert!(read_to_string(client)?.contains("\r\nconnection: close\r\n"));
/// # Ok::<(), prefork_server::BoxError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeepAlive {
    /// A connection may carry any number of requests.
    Enabled,
    /// Each response carries `Connection: close`.
    Disabled,
}

/// Whether responses carry `Date` (RFC 9110 6.6.1) if the handler did not set it.
///
/// ```
/// use prefork_server::{DateHeader, Http, Prefork};
///
/// // A device without a battery for its clock.
/// let http = Http::new().date_header(DateHeader::Omitted);
/// let server = Prefork::bind("0.0.0.0:80").http(http);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DateHeader {
    /// Responses carry `Date`.
    Sent,
    /// Responses carry no `Date`: for a server without a reliable clock, or to save 37 bytes.
    Omitted,
}

/// Whether HTTP/2 (RFC 9113) is served beside HTTP/1.
///
/// ```
/// use prefork_server::{Http, Http2, Prefork};
///
/// let http = Http::new().http2(Http2::Disabled);
/// let server = Prefork::bind("127.0.0.1:8080").http(http);
///
/// assert_eq!("off".parse(), Ok(Http2::Disabled));
/// ```
#[cfg(feature = "http2")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Http2 {
    /// HTTP/2 is served to clients that know beforehand that the server supports it: their first
    /// bytes are the HTTP/2 preface (RFC 9113 3.3). `Upgrade: h2c` is ignored; RFC 9113 has retired
    /// it.
    Enabled,
    /// A connection that begins with the HTTP/2 preface is closed.
    Disabled,
}

#[cfg(feature = "http2")]
crate::named::named!(Http2 { "on" = Enabled, "off" = Disabled });

impl Default for Http {
    fn default() -> Self {
        Self {
            header_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(75),
            linger: Duration::from_millis(100),
            max_connection_age: None,
            max_connection_requests: None,
            upgrade_grace: Duration::from_secs(10),
            max_warm: 1024,
            max_target_size: 8 * 1024,
            max_header_size: 16 * 1024,
            max_body_size: Some(4 * 1024 * 1024),
            keep_alive: KeepAlive::Enabled,
            server_header: None,
            date_header: DateHeader::Sent,
            request_ids: false,
            slow_request: None,
            on_refused: OnRefused::default(),
            #[cfg(feature = "http2")]
            http2: Http2::Enabled,
            #[cfg(feature = "http2")]
            max_concurrent_streams: 128,
            #[cfg(feature = "http2")]
            upload_window: 256 * 1024,
        }
    }
}

impl Http {
    /// Whether HTTP/2 is served, and so may be offered in a TLS handshake.
    pub(crate) fn speaks_http2(&self) -> bool {
        #[cfg(feature = "http2")]
        return self.http2 == Http2::Enabled;
        #[cfg(not(feature = "http2"))]
        return false;
    }
}

impl Http {
    /// All options with their defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// How long a request's head may take from its first byte to its last. After that the client
    /// gets a 408. A new connection on which nothing comes for this long is closed without a
    /// response. If the kernel has kept it until then ([`DeferAccept`](crate::DeferAccept)), this
    /// time begins a second after it was opened.
    ///
    /// Default: 10 s.
    pub fn header_timeout(mut self, timeout: Duration) -> Self {
        self.header_timeout = timeout;
        self
    }

    /// How long a handler that reads the request's body may wait for the next piece of it. After
    /// that the handler gets [`BodyError::TimedOut`](crate::BodyError::TimedOut). If the handler
    /// then fails, the client gets a 408. The whole body may take any time, and so may the handler.
    ///
    /// Default: 30 s.
    pub fn body_timeout(mut self, timeout: Duration) -> Self {
        self.body_timeout = timeout;
        self
    }

    /// How long a client may take to accept 4 KiB of a response, or the rest of it. After that the
    /// connection is closed. The whole response may take any time. A byte now and then is not
    /// enough: with the default, a client must accept at least 137 bytes a second. Over TCP a byte
    /// is accepted when the client's machine acknowledges it.
    ///
    /// Default: 30 s.
    pub fn write_timeout(mut self, timeout: Duration) -> Self {
        self.write_timeout = timeout;
        self
    }

    /// How long a connection may stay open between requests. After that it is closed without a
    /// response.
    ///
    /// Default: 75 s.
    pub fn idle_timeout(mut self, timeout: Duration) -> Self {
        self.idle_timeout = timeout;
        self
    }

    /// How long an idle connection stays open in a drain if no other worker takes it over. A
    /// request that is already on its way then gets a response with `Connection: close` instead of
    /// a reset. Two kinds of connections have a second, or [`Http::header_timeout`] if that is
    /// shorter: a connection that has carried no request yet, from its start, because its first
    /// request is a round trip away; and a connection that was sent its last response and that the
    /// client does not close, from the start of the drain.
    ///
    /// If another worker follows this one, nothing waits for the end of the drain. A connection
    /// that cannot be handed over is then closed when its client has been silent for five seconds,
    /// or for [`Http::idle_timeout`] if that is shorter.
    ///
    /// Default: 100 ms.
    pub fn linger(mut self, linger: Duration) -> Self {
        self.linger = linger;
        self
    }

    /// The maximum age of a connection. Each connection gets up to a quarter more, so that
    /// connections that began together do not all reconnect together. After that age the next
    /// response is the last one: with `Connection: close` in HTTP/1, with GOAWAY in HTTP/2. So no
    /// request is lost. If no request comes, the connection ends by [`Http::idle_timeout`]. The
    /// option makes load balancers, and clients that never close, choose a server again from time
    /// to time. A connection that another worker takes over begins at age zero.
    ///
    /// Default: `None`, no maximum.
    pub fn max_connection_age(mut self, age: impl Into<Option<Duration>>) -> Self {
        self.max_connection_age = age.into();
        self
    }

    /// How many requests a connection may carry. The response to the last one ends the connection,
    /// as with [`Http::max_connection_age`].
    ///
    /// ```
    /// use std::num::NonZeroU32;
    ///
    /// use prefork_server::Http;
    ///
    /// let http = Http::new().max_connection_requests(NonZeroU32::new(1000));
    /// ```
    ///
    /// Default: `None`, any number.
    pub fn max_connection_requests(mut self, requests: impl Into<Option<NonZeroU32>>) -> Self {
        self.max_connection_requests = requests.into();
        self
    }

    /// How long an upgraded connection (WebSocket or CONNECT) may continue in a drain, also in the
    /// drain of a reload: upgraded connections are not handed over. The task that serves the
    /// connection learns of the drain from [`Worker::drain`](crate::Worker::drain), and has this
    /// long to end its protocol. Then its reads and writes fail
    /// ([`ConnectionAborted`](std::io::ErrorKind::ConnectionAborted)), and
    /// [`Totals::upgrades_cut`](crate::Totals::upgrades_cut) counts the connection. The time begins
    /// with the drain, also for connections that are upgraded later. A shorter drain timeout ends
    /// it earlier. With zero, upgraded connections end as soon as the drain begins.
    ///
    /// Before a drain an upgraded connection has no timeout: if its client sends nothing and reads
    /// nothing, the connection stays open until its task drops it. If the client has vanished, TCP
    /// keepalive ends it ([how](crate::guide::how_it_works#clients-that-leave)). An HTTP/2 tunnel
    /// (CONNECT) is a stream like others, and ends by the drain timeout.
    ///
    /// Default: 10 s.
    pub fn upgrade_grace(mut self, grace: Duration) -> Self {
        self.upgrade_grace = grace;
        self
    }

    /// How many connections keep their buffers for the next request. The others give up all but
    /// their socket, and then take less than a kilobyte, or 5 KB within TLS. The connections that
    /// were active last keep their buffers, for about a second. If more connections than this are
    /// busy at the same time, more keep theirs.
    ///
    /// Default: 1,024.
    pub fn max_warm(mut self, connections: usize) -> Self {
        self.max_warm = connections;
        self
    }

    /// Limit of bytes of a request's target, which is the part of the request line between the
    /// method and the version. For a longer target the client gets a 414, even if the head breaks
    /// other limits too. In two cases it gets a 431 instead: a head in HTTP/1 that is longer than
    /// this and [`Http::max_header_size`] together and came in one piece with the request before
    /// it, and a head in HTTP/2 above [`Http::max_header_size`]. A target above 65534 bytes always
    /// gets a 414.
    ///
    /// Default: 8 KiB.
    pub fn max_target_size(mut self, bytes: usize) -> Self {
        self.max_target_size = bytes;
        self
    }

    /// Limit of bytes of a request's head, from the request line to the empty line. For a longer
    /// head, or more than 100 fields, the client gets a 431. A field counts as if it were written
    /// `name: value`; in HTTP/2 it counts 32 bytes more than its name and value (RFC 9113 6.5.2),
    /// and the connection may end instead if the head comes in several frames.
    /// Other white space, empty lines before the head, and trailers are limited by hyper, to this
    /// and [`Http::max_target_size`] together.
    ///
    /// Default: 16 KiB.
    pub fn max_header_size(mut self, bytes: usize) -> Self {
        self.max_header_size = bytes;
        self
    }

    /// Limit of bytes of a request's body; `None` for no limit. If `Content-Length` is larger, the
    /// client gets a 413 and no handler is called. If the body turns out to be larger, the handler
    /// gets [`BodyError::TooLarge`](crate::BodyError::TooLarge). If the handler then fails, the
    /// client gets a 413. Each worker logs the first such request.
    ///
    /// ```
    /// use prefork_server::Http;
    ///
    /// let small = Http::new().max_body_size(64 * 1024);
    /// let any = Http::new().max_body_size(None);
    /// ```
    ///
    /// Default: 4 MiB.
    pub fn max_body_size(mut self, bytes: impl Into<Option<u64>>) -> Self {
        self.max_body_size = bytes.into();
        self
    }

    /// Whether a connection may carry more than one request. In HTTP/2 it always may.
    ///
    /// Default: [`KeepAlive::Enabled`].
    pub fn keep_alive(mut self, keep_alive: KeepAlive) -> Self {
        self.keep_alive = keep_alive;
        self
    }

    /// Value of the `Server` field in responses (RFC 9110 10.2.4) if the handler did not set it;
    /// `None` for no such field. Responses to bytes that are no request do not have it, nor has the
    /// 431 to a head in HTTP/2 with too many bytes.
    ///
    /// ```
    /// use http::HeaderValue;
    /// use prefork_server::Http;
    ///
    /// let http = Http::new().server_header(HeaderValue::from_static("teapot"));
    /// ```
    ///
    /// Default: `None`.
    pub fn server_header(mut self, value: impl Into<Option<HeaderValue>>) -> Self {
        self.server_header = value.into();
        self
    }

    /// Calls `log` for each request that the server itself refuses, so that no handler sees it. It
    /// is called once in the worker, when the response is made and before any of it is sent. It is
    /// meant for an access log. It must not block, because the worker serves nothing meanwhile.
    ///
    /// It is not called for HTTP/2 streams that are reset, or for connections that end without a
    /// response.
    ///
    /// ```
    /// use prefork_server::Http;
    ///
    /// let http = Http::new().on_refused(|refused| {
    ///     let target = refused.head.map(|head| head.uri.path());
    ///     println!("{:?} {target:?} {}", refused.connection.client(), refused.status);
    /// });
    /// ```
    ///
    /// Default: nothing is called.
    pub fn on_refused(mut self, log: impl Fn(&Refused<'_>) + Send + Sync + 'static) -> Self {
        self.on_refused = OnRefused::new(log);
        self
    }

    /// Whether each request has an id. The id is the value of its field `X-Request-Id` if that is
    /// 1 to 64 letters, digits and characters of `-_.:=+/`; for another request the server makes an
    /// id, and the handler finds it in that field. Each response has the id in `X-Request-Id` too,
    /// also a response of the server itself. The log of a failed request has it, and so has
    /// [`Refused::request_id`](crate::Refused::request_id). Two responses have no id: the 431 to a
    /// head in HTTP/2 with too many bytes, and the 400 to a client that speaks HTTP to an address
    /// with TLS.
    ///
    /// ```
    /// use std::io::{Write, read_to_string};
    ///
    /// use prefork_server::{Http, Response, TestServer, handler};
    ///
    /// let http = Http::new().request_ids(true);
    /// let app = async |_worker| Ok(handler(async |_request| Ok(Response::default())));
    /// let server = TestServer::start_with(move |server| server.http(http).serve(app))?;
    /// let mut client = std::net::TcpStream::connect(server.address())?;
    /// client.write_all(b"GET / HTTP/1.0\r\nx-request-id: tea-1\r\n\r\n")?;
    /// assert!(read_to_string(client)?.contains("x-request-id: tea-1\r\n"));
    /// # Ok::<(), prefork_server::BoxError>(())
    /// ```
    ///
    /// Default: `false`.
    pub fn request_ids(mut self, have_ids: bool) -> Self {
        self.request_ids = have_ids;
        self
    }

    /// Logs a warning with method and target for each request whose handler takes this long or
    /// longer until it responds, or until its client leaves. The time begins when the request's
    /// head is complete. It does not include the time in which the response is sent.
    ///
    /// Default: `None`, no warning.
    pub fn slow_request(mut self, limit: impl Into<Option<Duration>>) -> Self {
        self.slow_request = limit.into();
        self
    }

    /// Whether responses carry `Date`. The 431 to a head in HTTP/2 with too many bytes never does.
    ///
    /// Default: [`DateHeader::Sent`].
    pub fn date_header(mut self, date_header: DateHeader) -> Self {
        self.date_header = date_header;
        self
    }
}
