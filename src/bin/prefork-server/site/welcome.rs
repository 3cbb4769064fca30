//! The page that is shown when nothing was asked to be served.

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Request, Response, StatusCode,
    header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS},
};
use prefork_server::{Generation, Slot};

use super::{Answer, NOSNIFF, full, plain};

const PAGE: &str = include_str!("welcome.html");

/// Who answers: the page shows it, so that reloading the page shows the workers at work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identity {
    /// The seat of the worker.
    pub(crate) slot: Slot,
    /// The round it was spawned in.
    pub(crate) generation: Generation,
    /// Its process.
    pub(crate) pid: u32,
    /// The master's process, to which signals go.
    pub(crate) master: u32,
}

/// The page, written once per worker.
#[derive(Debug)]
pub(crate) struct Welcome {
    page: Bytes,
}

impl Welcome {
    /// The page of this worker.
    pub(crate) fn new(identity: Identity) -> Self {
        let page = PAGE
            .replace("{slot}", &identity.slot.to_string())
            .replace("{generation}", &identity.generation.to_string())
            .replace("{pid}", &identity.pid.to_string())
            .replace("{master}", &identity.master.to_string());
        Self { page: page.into() }
    }

    /// The answer to a GET or HEAD.
    pub(super) fn answer<B>(&self, request: &Request<B>) -> Response<Answer<B>> {
        if request.uri().path() != "/" {
            return plain(StatusCode::NOT_FOUND, request.method());
        }
        let mut headers = HeaderMap::new();
        headers.insert(
            CONTENT_TYPE,
            HeaderValue::from_static("text/html; charset=utf-8"),
        );
        // Each worker says something else, and a reload says something new.
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(
            CONTENT_SECURITY_POLICY,
            HeaderValue::from_static("default-src 'none'; style-src 'unsafe-inline'"),
        );
        headers.insert(X_CONTENT_TYPE_OPTIONS, NOSNIFF);
        let body = full(self.page.clone(), request.method(), &mut headers);
        let mut response = Response::new(body);
        *response.headers_mut() = headers;
        response
    }
}
