//! The page that is served if no content was given.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Request, Response, StatusCode,
    header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS},
};
use prefork_server::WorkerInfo;

use super::{NOSNIFF, ResponseBody, full, plain};

const PAGE: &str = include_str!("welcome.html");

/// How to see the page of the admin process.
const HOW: &str = "on the live page. Start the server with an admin address that a browser can \
open, then go to http://127.0.0.1:9090/
<pre>prefork-server --admin 127.0.0.1:9090</pre>";

/// The page, made once in each worker.
#[derive(Debug)]
pub(crate) struct Welcome {
    page: Bytes,
}

impl Welcome {
    /// The page of this worker; `master` is the process that signals go to. The page shows both,
    /// so that a user who loads it again sees the workers at work. It links to the page at `admin`.
    pub(crate) fn new(worker: &WorkerInfo, master: u32, admin: Option<SocketAddr>) -> Self {
        let live = match admin {
            Some(admin) => {
                format!("on the live page: <a href=\"http://{admin}/\">http://{admin}/</a>")
            }
            None => HOW.to_owned(),
        };
        let page = PAGE
            .replace("{slot}", &worker.slot.to_string())
            .replace("{generation}", &worker.generation.to_string())
            .replace("{pid}", &worker.pid.to_string())
            .replace("{master}", &master.to_string())
            .replace("{live}", &live);
        Self { page: page.into() }
    }

    /// The response to a GET or HEAD.
    pub(super) fn respond<A, B>(&self, request: &Request<A>) -> Response<ResponseBody<B>> {
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
