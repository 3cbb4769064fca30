//! The options of HTTP/2.

use crate::http::options::{Http, Http2};

/// A window has at most 31 bits, and that of a connection is four times as large.
const UPLOAD_WINDOW_MAX: u32 = (u32::MAX >> 1) / 4;

/// HTTP/2, with the feature `http2`.
///
/// The other options apply to each request, in HTTP/1 and in HTTP/2, with these differences:
///
/// - [`Http::header_timeout`] limits the wait for the client's preface. An incomplete head does not
///   keep a connection from being idle.
/// - [`Http::write_timeout`] applies to each stream. If its client grants no window, a stream is
///   reset if its response is not finished; if the response is finished, the connection ends. A
///   stream that keeps other streams of its connection waiting, as described below, has a sixth of
///   that time.
/// - [`Http::idle_timeout`] applies to connections without an open stream. The server sends them
///   GOAWAY and closes them at most a second later. A PING does not count as activity. At the end
///   of the server it sends GOAWAY at once; to a new connection it sends GOAWAY after the first
///   request, or when none has come for as long as [`Http::linger`] gives new connections. In a
///   reload see the [guide](crate::guide::http2).
/// - [`Http::max_warm`] and [`Http::keep_alive`] do not apply.
///
/// Fixed limits, after which a client is sent GOAWAY with ENHANCE_YOUR_CALM (RFC 9113 10.5):
///
/// - 20 streams that are reset before the server has looked at them;
/// - more CONTINUATION frames than a head of [`Http::max_header_size`] needs;
/// - 1,024 frames that serve no request (PING, SETTINGS, WINDOW_UPDATE, PRIORITY, RST_STREAM,
///   unknown ones, DATA without a byte, HEADERS that neither begin nor end a request, DATA for a
///   request that is over). SETTINGS count as 64 frames, and a stream that the server resets for an
///   error of the client as 17. Each request adds 16 to this limit, each piece of a response 16,
///   each 512 bytes of responses one, and each second 32;
/// - 100 DATA frames without a byte that are not the last ones of their stream, since the
///   connection was last at rest;
/// - some 2,000 DATA frames of fewer than 256 bytes that the handler does not read, also because
///   the client does not read its response.
///
/// A request that begins more than a second after GOAWAY is refused (REFUSED_STREAM), even if the
/// client has not acknowledged the PING that comes with GOAWAY. A head with over 100 fields gets a
/// 431. The parts of a split `Cookie` field count as one field, and handlers see one (RFC 9113
/// 8.2.3).
///
/// Of each response's body a worker buffers 64 KiB and one piece at the most, and of all responses
/// of a connection less than 160 KiB and one piece, whatever window the client grants. Above that
/// it asks no body for more. While all connections of a worker buffer 64 MiB, each may buffer one
/// piece. Memory that a handler itself uses is not counted.
impl Http {
    /// Whether HTTP/2 is served.
    ///
    /// Default: [`Http2::Enabled`].
    pub fn http2(mut self, http2: Http2) -> Self {
        self.http2 = http2;
        self
    }

    /// How many requests may be open at the same time on one HTTP/2 connection, at least one
    /// (SETTINGS_MAX_CONCURRENT_STREAMS, RFC 9113 5.1.2). Requests above the limit are refused, and
    /// the client may send them again.
    ///
    /// Default: 128.
    pub fn max_concurrent_streams(mut self, streams: u32) -> Self {
        self.max_concurrent_streams = streams.max(1);
        self
    }

    /// How many bytes of a request's body an HTTP/2 client may send before the handler reads them
    /// (SETTINGS_INITIAL_WINDOW_SIZE, RFC 9113 6.9.2), from 64 KiB to 512 MiB. So many bytes at
    /// most come in each round trip: 256 KiB over 100 ms are 2.6 MB/s. A worker may have to keep
    /// four times as many of each connection, and at least 1 MiB. HTTP/1 needs no such limit: a
    /// client of it that is ahead waits in the kernel.
    ///
    /// Default: 256 KiB.
    ///
    /// ```
    /// // Clients that are far away upload large files.
    /// let http = prefork_server::Http::new().upload_window(4 << 20);
    /// ```
    pub fn upload_window(mut self, bytes: u32) -> Self {
        self.upload_window = bytes.clamp(64 * 1024, UPLOAD_WINDOW_MAX);
        self
    }
}
