//! The server that the table is played against. It responds with the request that its handler got.

use std::path::PathBuf;
use std::sync::mpsc::channel;

use axum::Router;
use http::Request;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Bytes};
use hyper::{HeaderMap, Method, StatusCode};
use prefork_server::{Address, BoxError, DateHeader, Http, Response, TestServer, service_fn};
use tempfile::TempDir;
use tokio::runtime;
use tokio::task::yield_now;

use crate::frameworks::Kind;
use crate::support::CEILING;

/// The limits are small, so that the cases at the limits are small too.
pub(crate) const MAX_TARGET: usize = 512;
pub(crate) const MAX_HEAD: usize = 2048;
pub(crate) const MAX_BODY: usize = 1000;

/// Rounds of an event loop in which a connection is accepted and its bytes are read, with some to
/// spare.
const ROUNDS: u8 = 8;

/// The server, which ends when this is dropped.
pub(crate) struct Server {
    dir: TempDir,
    runtime: runtime::Handle,
    _server: TestServer,
}

impl Server {
    pub(crate) fn start(kind: Kind) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let address = Address::Unix(dir.path().join("s"));
        let (tell, told) = channel();
        let server = TestServer::start_with(move |server| {
            let http = Http::new()
                // What the server does not end itself stays open for longer than a case waits.
                .header_timeout(2 * CEILING)
                .date_header(DateHeader::Omitted)
                .max_target_size(MAX_TARGET)
                .max_header_size(MAX_HEAD)
                .max_body_size(MAX_BODY as u64);
            let server = server.also_bind(address).http(http);
            let started = move || tell.send(runtime::Handle::current());
            match kind {
                Kind::ServiceFn => server.serve(async move |_worker| {
                    started()?;
                    Ok(service_fn(echo))
                }),
                Kind::Tower => server.serve(async move |_worker| {
                    started()?;
                    Ok(tower::service_fn(echo))
                }),
                Kind::Axum => server.serve(async move |_worker| {
                    started()?;
                    Ok(Router::new().fallback(echo_by_axum))
                }),
            }
        });
        Self {
            dir,
            _server: server.expect("it serves"),
            runtime: told.recv().expect("it has a runtime"),
        }
    }

    /// The server's address. With a Unix address the bytes are in the server's queue when send(2)
    /// returns; with TCP they may come later.
    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("s")
    }

    /// Waits until the server's event loop has run, so that the server has read all bytes that were
    /// sent before, and has responded where it can.
    pub(crate) fn wait_until_seen(&self) {
        let (tell, told) = channel();
        self.runtime.spawn(async move {
            for _ in 0..ROUNDS {
                yield_now().await;
            }
            // A test that waits no longer has failed already.
            let _ = tell.send(());
        });
        told.recv_timeout(CEILING).expect("the loop runs");
    }
}

type Said = UnsyncBoxBody<Bytes, BoxError>;

/// Responds with the method, the target, `Host`, `[body]` and `+trailer=value`. The path chooses
/// whether the body is read or streamed back, the time until the response, and the status.
async fn echo<B>(request: Request<B>) -> Result<Response<Said>, BoxError>
where
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    let (head, body) = request.into_parts();
    if head.uri.path() == "/stream" {
        return Ok(Response::new(body.map_err(B::Error::into).boxed_unsync()));
    }
    let host = head.headers.get("host").map(|host| host.to_str());
    let host = host.transpose()?.unwrap_or("-");
    let host = if host.is_empty() { "empty" } else { host };
    let mut said = format!("{} {} {host}", head.method, short(&head.uri.to_string()));
    if head.uri.path() != "/unread" {
        let body = body.collect().await.map_err(B::Error::into)?;
        let trailers: HeaderMap = body.trailers().cloned().unwrap_or_default();
        let bytes = body.to_bytes();
        if !bytes.is_empty() {
            said += &format!(" [{}]", short(&String::from_utf8_lossy(&bytes)));
        }
        for (name, value) in &trailers {
            said += &format!(" +{name}={}", value.to_str()?);
        }
    }
    if head.uri.path() == "/late" {
        for _ in 0..2 * ROUNDS {
            yield_now().await;
        }
    }
    let said = Full::from(said).map_err(|error| match error {});
    let mut response = Response::new(said.boxed_unsync());
    *response.status_mut() = match (&head.method, head.uri.path()) {
        // A response of 2xx would be the end of HTTP.
        (&Method::CONNECT, _) => StatusCode::METHOD_NOT_ALLOWED,
        (_, "/204") => StatusCode::NO_CONTENT,
        (_, "/304") => StatusCode::NOT_MODIFIED,
        _ => StatusCode::OK,
    };
    if head.method == Method::HEAD {
        let headers = response.headers_mut();
        headers.insert("to-head", hyper::header::HeaderValue::from_static("yes"));
    }
    Ok(response)
}

/// As axum's own extractors respond to a body that fails.
async fn echo_by_axum(request: Request<axum::body::Body>) -> Result<Response<Said>, StatusCode> {
    let said = echo(request).await;
    said.map_err(|_| StatusCode::BAD_REQUEST)
}

fn short(text: &str) -> String {
    match text.len() {
        0..=99 => text.to_owned(),
        len => format!("{len} bytes"),
    }
}
