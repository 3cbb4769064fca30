//! What a client may take.

use std::{
    num::{NonZeroU32, NonZeroU64, NonZeroUsize},
    time::Duration,
};

use clap::Args;
#[cfg(feature = "http2")]
use prefork_server::Http2;
use prefork_server::Network;

use super::value;

/// What a client may take.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Limits")]
pub(crate) struct Limits {
    /// Time that a client has to send the head of a request. A later one gets 408
    #[arg(long, value_name = "DURATION", env = "PREFORK_HEADER_TIMEOUT")]
    #[arg(default_value = "10s", value_parser = value::positive_duration)]
    pub(crate) header_timeout: Duration,

    /// Longest wait for more data of a request's body
    #[arg(long, value_name = "DURATION", env = "PREFORK_BODY_TIMEOUT")]
    #[arg(default_value = "30s", value_parser = value::positive_duration)]
    pub(crate) body_timeout: Duration,

    /// Time that a client has to accept 4KiB of a response, or the rest of it if that is less. Then
    /// the connection is closed
    #[arg(long, value_name = "DURATION", env = "PREFORK_WRITE_TIMEOUT")]
    #[arg(default_value = "30s", value_parser = value::positive_duration)]
    pub(crate) write_timeout: Duration,

    /// Close a connection that has had no request for this long
    #[arg(long, value_name = "DURATION", env = "PREFORK_IDLE_TIMEOUT")]
    #[arg(default_value = "75s", value_parser = value::positive_duration)]
    pub(crate) idle_timeout: Duration,

    /// Longest target of a request, from 1KiB to 64KiB. A longer one gets 414
    #[arg(long, value_name = "SIZE", env = "PREFORK_MAX_TARGET_SIZE")]
    #[arg(default_value = "8KiB", value_parser = value::target_size)]
    pub(crate) max_target_size: usize,

    /// Longest head of a request, from 8KiB to 1MiB. A longer one gets 431
    #[arg(long, value_name = "SIZE", env = "PREFORK_MAX_HEADER_SIZE")]
    #[arg(default_value = "16KiB", value_parser = value::header_size)]
    pub(crate) max_header_size: usize,

    /// Longest body of a request. A longer one gets 413
    #[arg(long, value_name = "SIZE", env = "PREFORK_MAX_BODY_SIZE")]
    #[arg(default_value = "4MiB", value_parser = value::body_size)]
    pub(crate) max_body_size: u64,

    /// on: serve HTTP/2 and HTTP/1. off: serve HTTP/1 only
    #[cfg(feature = "http2")]
    #[arg(long, value_name = "MODE", env = "PREFORK_HTTP2", default_value = "on")]
    #[arg(value_parser = value::named::<Http2>(Http2::NAMES))]
    pub(crate) http2: Http2,

    /// Number of connections that one worker holds at the same time. For one more it closes the
    /// connection that has been idle longest [default: what the limit on open files allows]
    #[arg(long, value_name = "N", env = "PREFORK_MAX_CONNECTIONS")]
    #[arg(value_parser = value::count::<NonZeroUsize>)]
    pub(crate) max_connections: Option<NonZeroUsize>,

    /// Number of connections that one worker holds of one client: an IPv4 address, or an IPv6
    /// network of 64 bits. It closes further ones. Connections on Unix sockets and from networks of
    /// --proxy-protocol are not counted [default: no limit]
    #[arg(long, value_name = "N", env = "PREFORK_MAX_CONNECTIONS_PER_CLIENT")]
    #[arg(value_parser = value::count::<NonZeroUsize>)]
    pub(crate) max_connections_per_client: Option<NonZeroUsize>,

    /// Close a connection after this many requests [default: no limit]
    #[arg(long, value_name = "N", env = "PREFORK_MAX_CONNECTION_REQUESTS")]
    #[arg(value_parser = value::count::<NonZeroU32>)]
    pub(crate) max_connection_requests: Option<NonZeroU32>,

    /// Close a connection with the first response after DURATION to 1.25 DURATION [default: never]
    #[arg(long, value_name = "DURATION", env = "PREFORK_MAX_CONNECTION_AGE")]
    #[arg(value_parser = value::positive_duration)]
    pub(crate) max_connection_age: Option<Duration>,

    /// Load balancers whose connections begin with a PROXY header, which names the client. NETWORK
    /// is 10.0.0.0/8, one address, or unix for Unix sockets; may be given several times
    #[arg(long, value_name = "NETWORK", env = "PREFORK_PROXY_PROTOCOL")]
    #[arg(value_delimiter = ',')]
    pub(crate) proxy_protocol: Vec<Network>,

    /// Number of connections that one worker keeps ready for their next request. The others give up
    /// their buffers: then one needs less than a kilobyte, or 5 KB within TLS
    #[arg(long, value_name = "N", env = "PREFORK_MAX_WARM")]
    #[arg(default_value = "1024", value_parser = value::warm)]
    pub(crate) max_warm: usize,

    /// Replace a worker after N to 1.25 N requests [default: never]
    #[arg(long, value_name = "N", env = "PREFORK_MAX_REQUESTS")]
    #[arg(value_parser = value::count::<NonZeroU64>)]
    pub(crate) max_requests: Option<NonZeroU64>,

    /// Replace a worker after DURATION to 1.25 DURATION [default: never]
    #[arg(long, value_name = "DURATION", env = "PREFORK_MAX_WORKER_AGE")]
    #[arg(value_parser = value::positive_duration)]
    pub(crate) max_worker_age: Option<Duration>,
}
