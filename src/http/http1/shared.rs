//! State that all HTTP/1 connections of a worker share.

use hyper::server::conn::http1::Builder;

use crate::http::conn::stream::READ_AT_ONCE;
use crate::http::exchange::date::Date;
use crate::http::exchange::rules;
use crate::http::options::{DateHeader, Http, KeepAlive};

/// State that all HTTP/1 connections of a worker share. It does not depend on their service.
pub(crate) struct Shared {
    pub(crate) builder: Builder,
    pub(crate) date: Date,
}

impl Shared {
    pub(crate) fn new(http: &Http) -> Self {
        Self {
            builder: builder(http),
            date: Date::new(),
        }
    }
}

fn builder(http: &Http) -> Builder {
    let max_head = rules::raw_head_size(http);
    let mut builder = Builder::new();
    builder
        .keep_alive(http.keep_alive == KeepAlive::Enabled)
        .auto_date_header(http.date_header == DateHeader::Sent)
        .max_header_size(max_head)
        // The limit for bytes that are read ahead of a handler and written ahead of a client. A
        // head must fit in.
        .max_buf_size(READ_AT_ONCE.max(max_head))
        // The registry has the header timeout, without a timer for each connection.
        .header_read_timeout(None)
        // With `false` hyper goes on reading while a handler runs, to notice a client that closes
        // the connection. It reads into a second buffer (8 KiB, a new allocation) for each request,
        // and ends the connection of a client that closes only its sending half. Instead the
        // registry makes the stream check whether the client is still connected, and only after
        // some time without progress.
        .half_close(true)
        // `conn::stream::Stream` gathers pipelined responses.
        .pipeline_flush(false);
    builder
}
