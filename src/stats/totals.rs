//! The sums of all pages.

use std::fmt;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::{COUNTS, Count, Gauge, LATENCIES, Latencies, StatsView, latency};

/// What all workers have done since the server started, also those that have exited. The notice
/// [`Finished`](crate::Notice::Finished) has them.
///
/// Requests, responses and bytes are those of [`Prefork::serve`](crate::Prefork::serve). What
/// another server does with the connections of [`Prefork::run`](crate::Prefork::run) is not
/// counted.
///
/// With the feature `serde` it can be serialized, durations in seconds.
///
/// ```
/// use prefork_server::Totals;
///
/// /// As Prometheus reads it.
/// fn metrics(totals: &Totals) -> String {
///     let Totals { requests, responses: [.., server_errors], .. } = totals;
///     format!("http_requests_total {requests}\nhttp_responses_5xx_total {server_errors}\n")
/// }
///
/// let text = metrics(&Totals::default());
/// assert_eq!(text, "http_requests_total 0\nhttp_responses_5xx_total 0\n");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Totals {
    /// Connections that were accepted.
    pub connections: u64,
    /// Requests whose head was complete and well-formed.
    pub requests: u64,
    /// Responses by the first digit of their status: `responses[0]` is 1xx, `responses[4]` is 5xx.
    /// They are those of handlers and those of the server itself, but not `100 Continue`. In
    /// HTTP/1 they include the responses to bytes that are no request (400, 408, 414, 431), so
    /// there may be more responses than requests. In HTTP/2 the 431 for a head that is too
    /// long does not count.
    pub responses: [u64; 5],
    /// Bytes that were read from clients. What TLS adds, PROXY headers, and what the server
    /// discards after the last response of a connection do not count.
    pub bytes_in: u64,
    /// Bytes that were written to clients, without what TLS adds.
    pub bytes_out: u64,
    /// Panics of handlers and of response bodies.
    pub panics: u64,
    /// Requests and connections that a timeout ended.
    pub timeouts: u64,
    /// TLS handshakes that succeeded, also those that resumed a session.
    pub tls_handshakes: u64,
    /// TLS handshakes that resumed a session.
    pub tls_resumed: u64,
    /// TLS handshakes that failed because of what the client sent, for example HTTP without TLS. A
    /// handshake that takes too long counts as a timeout. A client that leaves before its first
    /// byte does not count.
    pub tls_handshake_failures: u64,
    /// Half of the requests took at most this long, from the end of the head to the end of the
    /// response. It is right within 7 %; under load one request in sixteen is timed.
    pub latency_p50: Duration,
    /// As `latency_p50`, for 99 of 100 requests.
    pub latency_p99: Duration,
    /// How often a connection went from one worker to another. `connections` counts each connection
    /// once.
    pub handed_over: u64,
    /// Upgraded connections that a drain has cut after
    /// [`Http::upgrade_grace`](crate::Http::upgrade_grace). It does not include connections that
    /// are open at the drain timeout, which [`Notice::WorkerExited`](crate::Notice::WorkerExited)
    /// counts.
    pub upgrades_cut: u64,
    /// Connections that were closed because of a limit on open ones: new connections of a client
    /// that had as many as it may have
    /// ([`Prefork::max_connections_per_client`](crate::Prefork::max_connections_per_client)), and
    /// idle ones that made room for new ones
    /// ([`Prefork::max_connections`](crate::Prefork::max_connections)).
    pub limited: u64,
    /// The longest time for which the event loop of a worker stood still and then ran again, within
    /// 0.1 s. It does not include a worker that was killed because it hung.
    pub longest_stall: Duration,
}

/// Adds up the pages.
#[derive(Clone, Debug)]
pub(crate) struct Sum {
    counts: [u64; Count::ALL.len()],
    pub(crate) latencies: Latencies,
    longest_stall_millis: u64,
}

impl Sum {
    pub(crate) const fn new() -> Self {
        Self {
            counts: [0; Count::ALL.len()],
            latencies: Latencies::new(),
            longest_stall_millis: 0,
        }
    }

    pub(crate) fn add(&mut self, stats: StatsView<'_>) {
        for (at, count) in self.counts.iter_mut().enumerate() {
            // A hostile worker may write any number into its page.
            *count = count.saturating_add(stats.0[COUNTS + at].load(Relaxed));
        }
        for bucket in 0..latency::BUCKETS {
            let hits = stats.0[LATENCIES + bucket].load(Relaxed);
            self.latencies.add(bucket, hits);
        }
        let stall = stats.gauge(Gauge::LongestStallMillis);
        self.longest_stall_millis = self.longest_stall_millis.max(stall);
    }

    pub(crate) fn of(&self, counts: &[Count]) -> u64 {
        counts
            .iter()
            .map(|&count| self.counts[count as usize])
            .fold(0, u64::saturating_add)
    }

    pub(crate) fn totals(&self) -> Totals {
        let timeouts = [
            Count::HeaderTimeouts,
            Count::BodyTimeouts,
            Count::WriteTimeouts,
            Count::IdleTimeouts,
        ];
        let classes = [
            Count::Informational,
            Count::Success,
            Count::Redirection,
            Count::ClientError,
            Count::ServerError,
        ];
        Totals {
            connections: self.of(&[Count::Connections]),
            requests: self.of(&[Count::Requests]),
            responses: classes.map(|class| self.of(&[class])),
            bytes_in: self.of(&[Count::BytesIn, Count::TunnelBytesIn]),
            bytes_out: self.of(&[Count::BytesOut, Count::TunnelBytesOut]),
            panics: self.of(&[Count::Panics]),
            timeouts: self.of(&timeouts),
            tls_handshakes: self.of(&[Count::TlsHandshakes]),
            tls_resumed: self.of(&[Count::TlsResumed]),
            tls_handshake_failures: self.of(&[Count::TlsHandshakeFailures]),
            latency_p50: self.latencies.quantile(50),
            latency_p99: self.latencies.quantile(99),
            handed_over: self.of(&[Count::HandedOver]),
            upgrades_cut: self.of(&[Count::UpgradesCut]),
            limited: self.of(&[Count::ClientLimited, Count::Evicted]),
            longest_stall: Duration::from_millis(self.longest_stall_millis),
        }
    }
}

impl fmt::Display for Totals {
    /// One line for the log when a server has ended.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            connections,
            requests,
            bytes_out,
            responses: [.., server_errors],
            ..
        } = self;
        write!(
            f,
            "{requests} requests on {connections} connections, {bytes_out} bytes sent, \
             {server_errors} responses 5xx"
        )
    }
}
