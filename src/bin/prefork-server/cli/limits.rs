//! What a client may take.

use std::{
    num::{NonZeroU32, NonZeroU64, NonZeroUsize},
    time::Duration,
};

use clap::Args;
use prefork_server::Network;

#[cfg(feature = "http2")]
use super::Http2;
use super::value;

/// What a client may take.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Limits")]
pub(crate) struct Limits {
    /// How long a request's head may take to arrive
    #[arg(
        long,
        value_name = "DURATION",
        env = "PREFORK_HEADER_TIMEOUT",
        default_value = "10s"
    )]
    #[arg(value_parser = value::positive_duration)]
    pub(crate) header_timeout: Duration,

    /// How long a request's body may make no progress
    #[arg(
        long,
        value_name = "DURATION",
        env = "PREFORK_BODY_TIMEOUT",
        default_value = "30s"
    )]
    #[arg(value_parser = value::positive_duration)]
    pub(crate) body_timeout: Duration,

    /// How long a client may take for 4KiB of a response, or the rest of it
    #[arg(
        long,
        value_name = "DURATION",
        env = "PREFORK_WRITE_TIMEOUT",
        default_value = "30s"
    )]
    #[arg(value_parser = value::positive_duration)]
    pub(crate) write_timeout: Duration,

    /// How long a connection may rest between requests
    #[arg(
        long,
        value_name = "DURATION",
        env = "PREFORK_IDLE_TIMEOUT",
        default_value = "75s"
    )]
    #[arg(value_parser = value::positive_duration)]
    pub(crate) idle_timeout: Duration,

    /// The longest target of a request; more is answered 414
    #[arg(
        long,
        value_name = "SIZE",
        env = "PREFORK_MAX_TARGET_SIZE",
        default_value = "8KiB"
    )]
    #[arg(value_parser = value::target_size)]
    pub(crate) max_target_size: usize,

    /// The longest head of a request, at least 8KiB; more is answered 431
    #[arg(
        long,
        value_name = "SIZE",
        env = "PREFORK_MAX_HEADER_SIZE",
        default_value = "16KiB"
    )]
    #[arg(value_parser = value::header_size)]
    pub(crate) max_header_size: usize,

    /// The longest body of a request; more is answered 413
    #[arg(
        long,
        value_name = "SIZE",
        env = "PREFORK_MAX_BODY_SIZE",
        default_value = "4MiB"
    )]
    #[arg(value_parser = value::body_size)]
    pub(crate) max_body_size: u64,

    /// Whether HTTP/2 is spoken beside HTTP/1
    #[cfg(feature = "http2")]
    #[arg(long, value_name = "MODE", env = "PREFORK_HTTP2", default_value = "on")]
    pub(crate) http2: Http2,

    /// Connections that one worker holds at a time [default: what the limit on open files allows]
    #[arg(long, value_name = "N", env = "PREFORK_MAX_CONNECTIONS")]
    #[arg(value_parser = value::count::<NonZeroUsize>)]
    pub(crate) max_connections: Option<NonZeroUsize>,

    /// Connections that one worker holds of one client: an IPv4 address, or an IPv6 network of 64
    /// bits; more are closed [default: any number]
    #[arg(long, value_name = "N", env = "PREFORK_MAX_CONNECTIONS_PER_CLIENT")]
    #[arg(value_parser = value::count::<NonZeroUsize>)]
    pub(crate) max_connections_per_client: Option<NonZeroUsize>,

    /// The answer to this many requests ends a connection [default: any number]
    #[arg(long, value_name = "N", env = "PREFORK_MAX_CONNECTION_REQUESTS")]
    #[arg(value_parser = value::count::<NonZeroU32>)]
    pub(crate) max_connection_requests: Option<NonZeroU32>,

    /// The first answer of a connection that is this old, or up to a quarter older, ends it
    /// [default: never]
    #[arg(long, value_name = "DURATION", env = "PREFORK_MAX_CONNECTION_AGE")]
    #[arg(value_parser = value::positive_duration)]
    pub(crate) max_connection_age: Option<Duration>,

    /// Connections from there begin with a PROXY header, which says who the client is: 10.0.0.0/8,
    /// an address, or unix; repeatable
    #[arg(
        long,
        value_name = "NETWORK",
        env = "PREFORK_PROXY_PROTOCOL",
        value_delimiter = ','
    )]
    pub(crate) proxy_protocol: Vec<Network>,

    /// Connections that one worker keeps ready for their next request; the others are at rest,
    /// which takes less than a kilobyte each
    #[arg(
        long,
        value_name = "N",
        env = "PREFORK_MAX_WARM",
        default_value_t = 1024
    )]
    pub(crate) max_warm: usize,

    /// Replace a worker after so many requests, and up to a quarter more [default: never]
    #[arg(long, value_name = "N", env = "PREFORK_MAX_REQUESTS")]
    #[arg(value_parser = value::count::<NonZeroU64>)]
    pub(crate) max_requests: Option<NonZeroU64>,

    /// Replace a worker that is this old, or up to a quarter older [default: never]
    #[arg(long, value_name = "DURATION", env = "PREFORK_MAX_WORKER_AGE")]
    #[arg(value_parser = value::positive_duration)]
    pub(crate) max_worker_age: Option<Duration>,
}
