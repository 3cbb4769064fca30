//! The HTTP options.

pub(crate) mod refused;

use std::num::NonZeroU32;
use std::time::Duration;

use http::HeaderValue;

use crate::http::options::refused::{OnRefused, Refused};

/// How connections are served: what a client may take, and how long.
///
/// A timeout may pass late, by half a second at the most, but never early.
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
    pub(crate) on_refused: OnRefused,
    #[cfg(feature = "http2")]
    pub(crate) http2: Http2,
    #[cfg(feature = "http2")]
    pub(crate) max_concurrent_streams: u32,
    /// So that a test can have hyper serve what is plain too.
    #[cfg(test)]
    pub(crate) by_hyper: bool,
}

/// Whether a connection may carry more than one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeepAlive {
    /// As many as the client likes.
    Enabled,
    /// Each response carries `Connection: close`.
    Disabled,
}

/// Whether responses carry `Date` (RFC 9110 6.6.1) if the handler did not set it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DateHeader {
    /// They do.
    Sent,
    /// They do not: for a server that has no clock worth the name, or to save 37 bytes.
    Omitted,
}

/// Whether HTTP/2 (RFC 9113) is served beside HTTP/1.
#[cfg(feature = "http2")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Http2 {
    /// To clients that know it beforehand: their first bytes are its preface (RFC 9113 3.3).
    /// `Upgrade: h2c` is not heard; RFC 9113 has retired it.
    Enabled,
    /// A connection that begins so is closed.
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
            on_refused: OnRefused::default(),
            #[cfg(feature = "http2")]
            http2: Http2::Enabled,
            #[cfg(feature = "http2")]
            max_concurrent_streams: 128,
            #[cfg(test)]
            by_hyper: false,
        }
    }
}

/// HTTP/2, with the feature `http2`.
///
/// The other options hold for each request, whatever its connection speaks, with these
/// differences. [`Http::header_timeout`] is for the client's preface; a head that does not come to
/// its end keeps no connection from being idle. [`Http::write_timeout`] is for each stream: one
/// whose client grants no window is reset, if its response is not finished; if it is, the
/// connection ends. A sixth of that time is for a stream that keeps others of its connection
/// waiting, as below. [`Http::idle_timeout`] is for connections without an open stream, which are
/// told GOAWAY and left a second later at most; a PING does not count. In a drain they are told at
/// once, new ones after their first request or when there is none for as long as [`Http::linger`]
/// says of new ones. [`Http::max_warm`] is not for them, nor is [`Http::keep_alive`].
///
/// Fixed limits, after which a client is told GOAWAY with ENHANCE_YOUR_CALM (RFC 9113 10.5): 20
/// streams that are reset before they are looked at; 1,024 streams that are reset for errors of the
/// client; more CONTINUATION frames than a head of [`Http::max_header_size`] has need of; 1,024
/// frames that serve no request (PING, SETTINGS, WINDOW_UPDATE, PRIORITY, RST_STREAM, unknown ones,
/// DATA without a byte), to which each request and each write of a response's data adds 16, and
/// each second 32.
///
/// A request that begins a second after GOAWAY is refused (REFUSED_STREAM), whether or not the
/// client has acknowledged the PING that comes with it. A head with over 100 fields is answered
/// 431. The pieces of `Cookie` are one field, and handlers see one (RFC 9113 8.2.3). A client may
/// send 256 KiB ahead on one stream, 1 MiB on all of a connection.
///
/// A worker keeps 64 KiB and a piece of each response's body ahead of its client, and of all
/// responses of a connection less than 160 KiB and a piece, whatever window the client grants:
/// beyond that no body is asked for more. While all connections of a worker keep 64 MiB, each has
/// one piece. What a handler has in memory by itself is not counted.
#[cfg(feature = "http2")]
impl Http {
    /// Whether HTTP/2 is served.
    ///
    /// Default: [`Http2::Enabled`].
    pub fn http2(mut self, http2: Http2) -> Self {
        self.http2 = http2;
        self
    }

    /// How many requests may be open at the same time on one connection of HTTP/2, at least one
    /// (SETTINGS_MAX_CONCURRENT_STREAMS, RFC 9113 5.1.2). Those beyond are refused, and the client
    /// may try again.
    ///
    /// Default: 128.
    pub fn max_concurrent_streams(mut self, streams: u32) -> Self {
        self.max_concurrent_streams = streams.max(1);
        self
    }
}

impl Http {
    /// Whether plain requests are served without hyper.
    pub(crate) fn serves_directly(&self) -> bool {
        #[cfg(test)]
        if self.by_hyper {
            return false;
        }
        self.keep_alive == KeepAlive::Enabled
    }

    /// Whether HTTP/2 is served, and so may be offered in a TLS handshake.
    pub(crate) fn speaks_http2(&self) -> bool {
        #[cfg(feature = "http2")]
        return self.http2 == Http2::Enabled;
        #[cfg(not(feature = "http2"))]
        return false;
    }
}

impl Http {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// How long a request's head may take from its first byte to its last; then the client is
    /// answered 408. A new connection that says nothing for as long is closed without a word.
    ///
    /// Default: 10 s.
    pub fn header_timeout(mut self, timeout: Duration) -> Self {
        self.header_timeout = timeout;
        self
    }

    /// How long a handler that reads the request's body may wait for the next piece of it; then it
    /// gets [`BodyError::TimedOut`](crate::BodyError::TimedOut), and if it fails the client is
    /// answered 408. The whole body may take any time, and so may the handler.
    ///
    /// Default: 30 s.
    pub fn body_timeout(mut self, timeout: Duration) -> Self {
        self.body_timeout = timeout;
        self
    }

    /// How long a client may take to accept 4 KiB of a response that is there to be sent, or the
    /// rest of it; then its connection is dropped. The whole response may take any time. A byte now
    /// and then is no progress: at the default a client takes 137 bytes a second or more.
    ///
    /// Default: 30 s.
    pub fn write_timeout(mut self, timeout: Duration) -> Self {
        self.write_timeout = timeout;
        self
    }

    /// How long a connection may stay open between requests; then it is closed without a word.
    ///
    /// Default: 75 s.
    pub fn idle_timeout(mut self, timeout: Duration) -> Self {
        self.idle_timeout = timeout;
        self
    }

    /// How long an idle connection that nobody takes over is left open in a drain. A request that
    /// comes within it, being on its way already, is answered with `Connection: close` instead of a
    /// reset. A connection that has not asked for anything yet has a second from its begin, or
    /// [`Http::header_timeout`] if that is shorter: its first request is a round trip away. A
    /// client that has been sent the last response of its connection and does not close has as long
    /// from the drain's begin.
    ///
    /// If another worker comes after this one, nobody waits for the end of the drain. A connection
    /// that cannot be handed over is closed then when its client has been silent for five seconds,
    /// or for [`Http::idle_timeout`] if that is shorter.
    ///
    /// Default: 100 ms.
    pub fn linger(mut self, linger: Duration) -> Self {
        self.linger = linger;
        self
    }

    /// How old a connection may become, or up to a quarter older so that those of one moment do not
    /// all come back in another. From then on the next answer is its last: `Connection: close` in
    /// HTTP/1, GOAWAY in HTTP/2. So nothing is lost; one on which nothing comes has
    /// [`Http::idle_timeout`]. It has balancers, and clients that never leave, look for a server
    /// anew now and then. A connection that another worker takes over begins anew.
    ///
    /// Default: `None`, which is for ever.
    pub fn max_connection_age(mut self, age: impl Into<Option<Duration>>) -> Self {
        self.max_connection_age = age.into();
        self
    }

    /// How many requests a connection may carry; the answer to the last one ends it, as
    /// [`Http::max_connection_age`] does.
    ///
    /// Default: `None`, which is any number.
    pub fn max_connection_requests(mut self, requests: impl Into<Option<NonZeroU32>>) -> Self {
        self.max_connection_requests = requests.into();
        self
    }

    /// How long a connection that was upgraded, to WebSocket or by CONNECT, may go on in a drain, a
    /// reload's included: such connections are not handed over. The task that has one hears of the
    /// drain by [`Worker::drain`](crate::Worker::drain) and has this long to say goodbye. Then its
    /// reads and writes fail ([`ConnectionAborted`](std::io::ErrorKind::ConnectionAborted)), and
    /// [`Totals::upgrades_cut`](crate::Totals::upgrades_cut) counts it. It is counted from the
    /// drain's begin, also for who is upgraded after that; the drain timeout comes first if it is
    /// shorter. Zero ends them as soon as they are told.
    ///
    /// Until the drain an upgraded connection has no deadline at all: none of the timeouts is for
    /// it, and one whose client says nothing and reads nothing stays until its task lets go of it.
    /// A tunnel of HTTP/2 (CONNECT) is a stream among others, and ends by the drain timeout.
    ///
    /// Default: 10 s.
    pub fn upgrade_grace(mut self, grace: Duration) -> Self {
        self.upgrade_grace = grace;
        self
    }

    /// How many connections are kept ready for their next request; the others give up all but
    /// their socket, which takes less than a kilobyte, where a connection that is ready has its
    /// buffers. Those that were active last are kept, for about a second. While more than that
    /// work at the same time, more are ready.
    ///
    /// Default: 1,024.
    pub fn max_warm(mut self, connections: usize) -> Self {
        self.max_warm = connections;
        self
    }

    /// The most bytes that a request's target may have: in a request line, what stands between the
    /// method and the version. A longer one is answered 414, whatever else is too large about its
    /// head. Two heads whose target is too long are answered 431: one that is longer than this and
    /// [`Http::max_header_size`] together and has come in one piece with the request before it, and
    /// in HTTP/2 one beyond [`Http::max_header_size`]. Above 65534 bytes a target is 414 whatever
    /// the limit.
    ///
    /// Default: 8 KiB.
    pub fn max_target_size(mut self, bytes: usize) -> Self {
        self.max_target_size = bytes;
        self
    }

    /// The most bytes that a request's head may have, from the request line to the empty line. A
    /// longer one is answered 431, as is one with more than 100 fields. A field counts as if it had
    /// been written `name: value`, and in HTTP/2 as 32 bytes more than its name and value (RFC 9113
    /// 6.5.2); of other white space, empty lines before the head, and trailers, hyper takes as much
    /// as this and [`Http::max_target_size`] together.
    ///
    /// Default: 16 KiB.
    pub fn max_header_size(mut self, bytes: usize) -> Self {
        self.max_header_size = bytes;
        self
    }

    /// The most bytes that a request's body may have; `None` for no limit. If a longer one is
    /// announced the client is answered 413 and the handler never hears of it. If it turns out to
    /// be longer the handler gets [`BodyError::TooLarge`](crate::BodyError::TooLarge), and if it
    /// fails the client is answered 413.
    ///
    /// Default: 4 MiB.
    pub fn max_body_size(mut self, bytes: impl Into<Option<u64>>) -> Self {
        self.max_body_size = bytes.into();
        self
    }

    /// Whether a connection may carry more than one request.
    ///
    /// Default: [`KeepAlive::Enabled`].
    pub fn keep_alive(mut self, keep_alive: KeepAlive) -> Self {
        self.keep_alive = keep_alive;
        self
    }

    /// What responses carry as `Server` (RFC 9110 10.2.4) if the handler did not set it; `None`
    /// for nothing.
    ///
    /// Default: `None`.
    pub fn server_header(mut self, value: impl Into<Option<HeaderValue>>) -> Self {
        self.server_header = value.into();
        self
    }

    /// Calls `log` for each request that the server itself refuses, so that no handler sees it: one
    /// call in a worker, when the response is made, before any of it is sent. It is for an access
    /// log, and must not block: the worker serves nothing meanwhile.
    ///
    /// Not told are streams of HTTP/2 that are reset, and connections that end without a response.
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

    /// Whether responses carry `Date`.
    ///
    /// Default: [`DateHeader::Sent`].
    pub fn date_header(mut self, date_header: DateHeader) -> Self {
        self.date_header = date_header;
        self
    }
}
