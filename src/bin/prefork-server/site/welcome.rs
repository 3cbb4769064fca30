//! The page that is served if no content was given.

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Request, Response, StatusCode,
    header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS},
};
use prefork_server::WorkerInfo;

use super::{NOSNIFF, ResponseBody, full, plain};

const PAGE: &str = include_str!("welcome.html");

/// The page, made once in each worker.
#[derive(Debug)]
pub(crate) struct Welcome {
    page: Bytes,
}

impl Welcome {
    /// The page of this worker; `master` is the process that signals go to. The page shows both,
    /// so that a user who loads it again sees the workers at work.
    pub(crate) fn new(worker: &WorkerInfo, master: u32) -> Self {
        let page = PAGE
            .replace("{slot}", &worker.slot.to_string())
            .replace("{generation}", &worker.generation.to_string())
            .replace("{pid}", &worker.pid.to_string())
            .replace("{master}", &master.to_string());
        Self { page: page.into() }
    }

    /// The response to a GET or HEAD.
    pub(super) fn respond<B>(&self, request: &Request<B>) -> Response<ResponseBody<B>> {
        if request.uri().path() != "/" {
            return plain(StatusCode::NOT_FOUND, request.method());
        }
        let mut headers = HeaderMap::new();
        headers.insert(
            CONTENT_TYPE,
            HeaderValue::from_static("text/html; charset=utf-8"),
        );
        // Each worker has another page, and after a reload it changes.
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
