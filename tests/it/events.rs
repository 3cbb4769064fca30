//! What the library logs: its events, and the span of each worker.

use std::convert::Infallible;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt, Either, Full, StreamBody};
use hyper::body::Frame;
use prefork_server::{BoxError, Error, Http, Request, Response, TestServer, handler, service_fn};
use tracing::Level;

use crate::client::Client;
use crate::support::Server;

tests! {
    an_event_of_a_failed_handler_names_the_worker_and_the_request,
    a_wrong_content_length_is_logged_with_its_request,
    the_first_body_over_the_limit_is_logged,
    a_slow_request_is_logged,
    each_worker_has_a_span_and_the_master_says_that_it_serves,
}

/// A log in memory.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        log.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    /// Starts a server that logs here.
    fn of_server(&self, start: impl FnOnce() -> Result<TestServer, Error>) -> TestServer {
        let writer = self.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(Level::INFO)
            .with_target(false)
            .with_ansi(false)
            .without_time()
            .with_writer(move || writer.clone())
            .finish();
        tracing::subscriber::with_default(subscriber, start).expect("it serves")
    }

    fn lines(&self) -> Vec<String> {
        let log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let text = std::str::from_utf8(&log).expect("text");
        text.lines().map(str::to_owned).collect()
    }
}

fn an_event_of_a_failed_handler_names_the_worker_and_the_request() {
    let log = Log::default();
    let server = log.of_server(|| {
        TestServer::start(async |_worker| {
            Ok(handler(async |request| match request.uri().path() {
                "/fails" => Err("no tea".into()),
                "/panics" => panic!("no milk"),
                _ => Ok(Response::default()),
            }))
        })
    });
    let mut client = Client::connect(server.address());
    let mut ask = |request: &str| {
        client.send(&format!("{request} HTTP/1.1\r\nhost: x\r\n\r\n"));
        client.response().head
    };
    // The first are plain. hyper serves the others.
    for request in [
        "GET /fails?sugar=1",
        "GET /panics",
        "DELETE /fails?sugar=2",
        "DELETE http://x/panics",
    ] {
        assert!(ask(request).starts_with("HTTP/1.1 500 "), "{request}");
    }
    let address = server.address();
    server.stop().expect("it drains");
    let worker = "worker{slot=0 generation=1}:";
    let expected = [
        format!(" INFO {worker} serving addresses={address}"),
        format!(" WARN {worker} handler failed error=no tea method=GET uri=/fails?sugar=1"),
        format!("ERROR {worker} handler panicked panic=\"no milk\" method=GET uri=/panics"),
        format!(" WARN {worker} handler failed error=no tea method=DELETE uri=/fails?sugar=2"),
        format!("ERROR {worker} handler panicked panic=\"no milk\" method=DELETE uri=/panics"),
    ];
    assert_eq!(log.lines(), expected);
}

fn a_wrong_content_length_is_logged_with_its_request() {
    let log = Log::default();
    let server = log.of_server(|| {
        TestServer::start(async |_worker| {
            Ok(service_fn(async |request: Request| {
                let pieces = [Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"tea")))];
                let pieces = StreamBody::new(stream::iter(pieces));
                let body = match request.uri().path() {
                    "/pieces" => Either::Left(pieces),
                    _ => Either::Right(Full::new(Bytes::from_static(b"tea"))),
                };
                let response = hyper::Response::builder().header("content-length", 5);
                response.body(body)
            }))
        })
    });
    // The first is plain. hyper serves the others.
    for request in ["GET /whole", "DELETE http://x/whole", "GET /pieces"] {
        let mut client = Client::connect(server.address());
        client.send(&format!("{request} HTTP/1.1\r\nhost: x\r\n\r\n"));
        match client.try_response() {
            Ok(response) => assert_eq!(response.status(), 500),
            Err(_broken_off) => assert_eq!(request, "GET /pieces"),
        }
    }
    server.stop().expect("it drains");
    let begin = "ERROR worker{slot=0 generation=1}: \
                 the response's Content-Length is not the length of its body \
                 content_length=5 body_length=3";
    let expected = ["GET uri=/whole", "DELETE uri=/whole", "GET uri=/pieces"]
        .map(|request| format!("{begin} method={request}"));
    assert_eq!(log.lines()[1..], expected);
}

fn the_first_body_over_the_limit_is_logged() {
    let read = async |request: Request| {
        request.into_body().collect().await?;
        Ok::<_, BoxError>(Response::default())
    };
    for body in [
        "content-length: 5\r\n\r\n",
        "transfer-encoding: chunked\r\n\r\n5\r\nmilk.\r\n0\r\n\r\n",
    ] {
        let log = Log::default();
        let http = Http::new().max_body_size(4);
        let server = log.of_server(|| {
            TestServer::start_with(move |server| {
                server
                    .http(http)
                    .serve(async move |_worker| Ok(handler(read)))
            })
        });
        for path in ["/first", "/second"] {
            let mut client = Client::connect(server.address());
            client.send(&format!("POST {path} HTTP/1.1\r\nhost: x\r\n{body}"));
            assert_eq!(client.response().status(), 413);
        }
        server.stop().expect("it drains");
        let expected = " INFO worker{slot=0 generation=1}: \
                        request refused: its body is over max_body_size; \
                        this worker logs more of them as debug \
                        limit=4 method=POST uri=/first";
        assert_eq!(log.lines()[1..], [expected]);
    }
}

/// No limit is as short as this one, so each request is slow.
fn a_slow_request_is_logged() {
    let log = Log::default();
    let http = Http::new().slow_request(Duration::ZERO).request_ids(true);
    let server = log.of_server(|| {
        TestServer::start_with(move |server| {
            server.http(http).serve(async |_worker| {
                Ok(handler(async |request| {
                    let length = &request.uri().path()[1..];
                    let response = hyper::Response::builder().header("content-length", length);
                    Ok(response.body("tea".into())?)
                }))
            })
        })
    });
    let mut client = Client::connect(server.address());
    // With a wrong length a response becomes a 500. DELETE with a URI is for hyper.
    let requests = [
        ("GET", "/3", 200),
        ("DELETE", "/3", 200),
        ("GET", "/5", 500),
        ("DELETE", "http://x/5", 500),
    ];
    for (method, uri, status) in requests {
        client.send(&format!(
            "{method} {uri} HTTP/1.1\r\nhost: x\r\nx-request-id: {method}-1\r\n\r\n"
        ));
        assert_eq!(client.response().status(), status);
    }
    server.stop().expect("it drains");
    let mut lines = log.lines();
    lines.retain(|line| line.contains(": slow request "));
    for (line, (method, uri, status)) in lines.iter().zip(requests) {
        let (begin, took) = line.split_once("took=").expect("a duration");
        assert_eq!(begin, " WARN worker{slot=0 generation=1}: slow request ");
        let (_, rest) = took.split_once(' ').expect("more fields");
        let path = uri.trim_start_matches("http://x");
        let request = format!("method={method} uri={path} request_id=\"{method}-1\"");
        assert_eq!(rest, format!("status={status} {request}"));
    }
    assert_eq!(lines.len(), requests.len(), "{lines:?}");
}

fn each_worker_has_a_span_and_the_master_says_that_it_serves() {
    let mut server = Server::start(&["--respond", "hi", "--log-level", "debug"]);
    let address = server.address();
    server.reload();
    let log = server.stop().log;
    for wanted in [
        format!(" INFO serving addresses={address} workers=2"),
        "DEBUG worker{slot=0 generation=1}: worker served".into(),
        "DEBUG worker{slot=1 generation=2}: worker served".into(),
    ] {
        assert!(log.contains(&wanted), "{wanted}: {log}");
    }
}
