//! What the HTTP/1 connections of a worker have in common, whatever their service is.

use hyper::server::conn::http1::Builder;

use crate::http::conn::stream::READ_AT_ONCE;
use crate::http::exchange::rules;
use crate::http::http1::buffers::Buffers;
use crate::http::http1::date::Date;
use crate::http::options::{DateHeader, Http, KeepAlive};

/// What the connections have in common, whatever their service is.
pub(crate) struct Shared {
    pub(crate) builder: Builder,
    pub(crate) date: Date,
    pub(crate) buffers: Buffers,
}

impl Shared {
    pub(crate) fn new(http: &Http) -> Self {
        Self {
            builder: builder(http),
            date: Date::new(),
            buffers: Buffers::new(),
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
        // It bounds what is read ahead of a handler and what is written ahead of a client; a head
        // must fit in.
        .max_buf_size(READ_AT_ONCE.max(max_head))
        // Our registry times heads, without a timer for each.
        .header_read_timeout(None)
        // `false` has hyper read on while a handler works, to notice a client that leaves: into a
        // second read buffer (8 KiB, allocated anew) for each request, and a client that
        // half-closes after its request is taken for one that left. Our registry has the stream
        // look whether the client is still there instead, and only if there is silence for a while.
        .half_close(true)
        // Our stream gathers pipelined answers: see there.
        .pipeline_flush(false);
    builder
}
