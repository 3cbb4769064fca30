//! gRPC by tonic in `serve`, in the open and over TLS: calls of all four kinds, errors in trailers,
//! deadlines, health, and reloads.

use std::future::pending;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use axum::routing::post;
use futures_util::stream::{self, Stream, StreamExt};
use nix::sys::signal::Signal;
use prefork_server::{Error, Prefork, Worker};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::service::Routes;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use tonic::{Code, Request, Response, Status, Streaming};
use tonic_health::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::health_server::{Health, HealthServer};
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};
use tonic_prost::ProstCodec;

use super::{start, with_app};
use crate::apps;
use crate::https::Authority;
use crate::support::{Server, program, this, until};
use crate::upgrade::Installed;

tests! {
    calls_of_all_kinds_in_the_open,
    calls_of_all_kinds_over_tls,
    an_error_arrives_with_its_code_message_and_metadata,
    a_call_ends_at_its_deadline_on_both_sides,
    health_is_not_serving_at_the_drain,
    a_watch_that_begins_in_the_drain_ends_too,
    a_stream_of_the_server_ends_at_the_drain,
    no_call_fails_during_reloads_and_upgrades,
    tonics_own_server_works_in_run,
}

type Reply<T> = Result<Response<T>, Status>;

pub(super) fn app(server: Prefork, name: &str) -> Result<(), Error> {
    match name {
        "grpc" => server.serve(async |worker| Ok(routes(&worker))),
        "grpc_tls" => server
            .tls(apps::tls())
            .serve(async |worker| Ok(routes(&worker))),
        "grpc_in_run" => server.run(async |worker, incoming| {
            let server = tonic::transport::Server::builder().add_service(health(&worker));
            Ok(server
                .serve_with_incoming_shutdown(incoming, worker.drain())
                .await?)
        }),
        other => panic!("no such app: {other}"),
    }
}

/// A service for health, whose watchers get `NotServing` and the end at the drain.
fn health(worker: &Worker) -> HealthServer<impl Health + use<>> {
    let (mut reporter, health) = tonic_health::server::health_reporter();
    let drain = worker.drain();
    tokio::task::spawn_local(async move {
        drain.await;
        let mut second = tokio::time::interval(Duration::from_secs(1));
        loop {
            let not_serving = ServingStatus::NotServing;
            reporter.set_service_status("", not_serving).await;
            second.tick().await;
            reporter.clear_service_status("").await;
        }
    });
    health
}

/// The methods of the service `test.Echo`, whose messages are texts.
fn routes(worker: &Worker) -> axum::Router {
    macro_rules! method {
        ($kind:ident, $method:expr) => {
            post(async |request: axum::extract::Request| {
                let mut grpc = tonic::server::Grpc::new(Codec::default());
                grpc.$kind(tower::service_fn($method), request).await
            })
        };
    }
    let endless = {
        let worker = worker.clone();
        move |_: Request<String>| {
            let texts = stream::once(async { Ok("first".to_owned()) }).chain(stream::pending());
            let reply: Texts = Box::pin(worker.until_drain(texts));
            async { Reply::Ok(Response::new(reply)) }
        }
    };
    let endless = post(async move |request: axum::extract::Request| {
        let mut grpc = tonic::server::Grpc::new(Codec::default());
        grpc.server_streaming(tower::service_fn(endless.clone()), request)
            .await
    });
    Routes::new(health(worker))
        .into_axum_router()
        .route("/test.Echo/Same", method!(unary, same))
        .route("/test.Echo/Fail", method!(unary, fail))
        .route("/test.Echo/Never", method!(unary, never))
        .route("/test.Echo/Dropped", method!(unary, dropped))
        .route("/test.Echo/Letters", method!(server_streaming, letters))
        .route("/test.Echo/Join", method!(client_streaming, join))
        .route("/test.Echo/Each", method!(streaming, each))
        .route("/test.Echo/Endless", endless)
}

type Codec = ProstCodec<String, String>;
type Texts = Pin<Box<dyn Stream<Item = Result<String, Status>> + Send>>;

async fn same(request: Request<String>) -> Reply<String> {
    Ok(Response::new(request.into_inner()))
}

async fn fail(_request: Request<String>) -> Reply<String> {
    let mut status = Status::not_found("no such text");
    status
        .metadata_mut()
        .insert("hint", "look elsewhere".parse().expect("ASCII"));
    Err(status)
}

/// How many calls of [`never`] were dropped.
static DROPPED: AtomicUsize = AtomicUsize::new(0);

async fn never(_request: Request<String>) -> Reply<String> {
    struct CountDrop;
    impl Drop for CountDrop {
        fn drop(&mut self) {
            DROPPED.fetch_add(1, Ordering::Relaxed);
        }
    }
    let _count = CountDrop;
    pending().await
}

async fn dropped(_request: Request<String>) -> Reply<String> {
    Ok(Response::new(DROPPED.load(Ordering::Relaxed).to_string()))
}

async fn letters(request: Request<String>) -> Reply<Texts> {
    let letters: Vec<_> = request
        .into_inner()
        .chars()
        .map(String::from)
        .map(Ok)
        .collect();
    Ok(Response::new(Box::pin(stream::iter(letters))))
}

async fn join(request: Request<Streaming<String>>) -> Reply<String> {
    let mut texts = request.into_inner();
    let mut joined = String::new();
    while let Some(text) = texts.message().await? {
        joined += &text;
    }
    Ok(Response::new(joined))
}

async fn each(request: Request<Streaming<String>>) -> Reply<Texts> {
    let texts = request.into_inner();
    Ok(Response::new(Box::pin(
        texts.map(|text| text.map(|text| text + "!")),
    )))
}

/// A client of `test.Echo`.
struct Client(tonic::client::Grpc<Channel>);

impl Client {
    fn new(channel: Channel) -> Self {
        Self(tonic::client::Grpc::new(channel))
    }

    async fn ready(&mut self, method: &str) -> Result<PathAndQuery, Status> {
        let ready = self.0.ready().await;
        ready.map_err(|error| Status::unavailable(error.to_string()))?;
        Ok(format!("/test.Echo/{method}").parse().expect("a path"))
    }

    async fn unary(&mut self, method: &str, text: impl IntoRequest) -> Result<String, Status> {
        let path = self.ready(method).await?;
        let called = self
            .0
            .unary(text.into_request(), path, Codec::default())
            .await;
        called.map(Response::into_inner)
    }

    async fn server_stream(&mut self, method: &str, text: &str) -> Reply<Streaming<String>> {
        let path = self.ready(method).await?;
        let request = Request::new(text.to_owned());
        self.0
            .server_streaming(request, path, Codec::default())
            .await
    }
}

trait IntoRequest {
    fn into_request(self) -> Request<String>;
}

impl IntoRequest for &str {
    fn into_request(self) -> Request<String> {
        Request::new(self.to_owned())
    }
}

impl IntoRequest for Request<String> {
    fn into_request(self) -> Request<String> {
        self
    }
}

fn block_on<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(test)
}

fn endpoint(address: SocketAddr) -> Endpoint {
    let endpoint = Endpoint::from_shared(format!("http://{address}"));
    endpoint.expect("a URL")
}

async fn texts(mut stream: Streaming<String>) -> Vec<String> {
    let mut texts = Vec::new();
    while let Some(text) = stream.message().await.expect("no error") {
        texts.push(text);
    }
    texts
}

async fn calls_of_all_kinds(channel: Channel) {
    let mut client = Client::new(channel);
    assert_eq!(
        client.unary("Same", "hello").await.expect("a reply"),
        "hello"
    );
    let letters = client
        .server_stream("Letters", "abc")
        .await
        .expect("a reply");
    assert_eq!(texts(letters.into_inner()).await, ["a", "b", "c"]);
    let path = client.ready("Join").await.expect("it serves");
    let sent = Request::new(stream::iter(["x", "y", "z"].map(String::from)));
    let joined = client
        .0
        .client_streaming(sent, path, Codec::default())
        .await;
    let joined: String = joined.expect("a reply").into_inner();
    assert_eq!(joined, "xyz");
    // Each text is sent when the one before it has come back.
    let path = client.ready("Each").await.expect("it serves");
    let (say, said) = tokio::sync::mpsc::unbounded_channel::<String>();
    let said = stream::unfold(said, |mut said| async { Some((said.recv().await?, said)) });
    let replies = client
        .0
        .streaming(Request::new(said), path, Codec::default())
        .await;
    let mut replies: Streaming<String> = replies.expect("a reply").into_inner();
    for text in ["1", "2", "3"] {
        say.send(text.to_owned()).expect("the call is open");
        let reply = replies.message().await.expect("no error");
        assert_eq!(reply.as_deref(), Some(&*format!("{text}!")));
    }
    drop(say);
    assert_eq!(replies.message().await.expect("no error"), None);
}

fn calls_of_all_kinds_in_the_open() {
    let mut server = start("grpc");
    let endpoint = endpoint(server.address());
    block_on(async { calls_of_all_kinds(endpoint.connect().await.expect("it serves")).await });
}

fn calls_of_all_kinds_over_tls() {
    let authority = Authority::new();
    let ca = std::fs::read(authority.path("ca.pem")).expect("it is there");
    let files = authority.path("ca.pem");
    let files = files.parent().expect("a directory");
    let mut server = Server::spawn(with_app(program(this()), "grpc_tls").env(apps::FILES, files));
    let url = format!("https://{}", server.address());
    let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(ca));
    let endpoint = Endpoint::from_shared(url).expect("a URL");
    let endpoint = endpoint
        .tls_config(tls.domain_name("localhost"))
        .expect("a certificate");
    block_on(async { calls_of_all_kinds(endpoint.connect().await.expect("it serves")).await });
}

fn an_error_arrives_with_its_code_message_and_metadata() {
    let mut server = start("grpc");
    let endpoint = endpoint(server.address());
    block_on(async {
        let mut client = Client::new(endpoint.connect().await.expect("it serves"));
        let status = client.unary("Fail", "x").await.expect_err("it fails");
        assert_eq!(
            (status.code(), status.message()),
            (Code::NotFound, "no such text")
        );
        assert_eq!(
            status.metadata().get("hint").expect("it is sent"),
            "look elsewhere"
        );
        let status = client
            .unary("Missing", "x")
            .await
            .expect_err("no such method");
        assert_eq!(status.code(), Code::Unimplemented);
    });
}

/// The client resets the call, and the server drops its handler.
fn a_call_ends_at_its_deadline_on_both_sides() {
    let mut server = start("grpc");
    let endpoint = endpoint(server.address());
    block_on(async {
        let mut client = Client::new(endpoint.connect().await.expect("it serves"));
        let mut request = Request::new(String::new());
        request.set_timeout(Duration::from_millis(100));
        let status = client
            .unary("Never", request)
            .await
            .expect_err("it is over");
        assert!(
            matches!(status.code(), Code::Cancelled | Code::DeadlineExceeded),
            "{status}"
        );
        while client.unary("Dropped", "").await.expect("a reply") != "1" {}
    });
}

/// A client of the health service, which has replied that the server serves.
async fn healthy(endpoint: &Endpoint) -> HealthClient<Channel> {
    let mut health = HealthClient::new(endpoint.connect().await.expect("it serves"));
    let status = health
        .check(HealthCheckRequest::default())
        .await
        .expect("a reply");
    assert_eq!(status.into_inner().status, ServingStatus::Serving as i32);
    health
}

async fn watching(health: &mut HealthClient<Channel>) -> Streaming<HealthCheckResponse> {
    let watch = health.watch(HealthCheckRequest::default()).await;
    watch.expect("a reply").into_inner()
}

fn health_is_not_serving_at_the_drain() {
    let mut server = start("grpc");
    let endpoint = endpoint(server.address());
    block_on(async {
        let mut health = healthy(&endpoint).await;
        let mut watch = watching(&mut health).await;
        let status = watch.message().await.expect("no error").expect("a status");
        assert_eq!(status.status, ServingStatus::Serving as i32);
        server.signal(Signal::SIGTERM);
        let status = watch.message().await.expect("no error").expect("a status");
        assert_eq!(status.status, ServingStatus::NotServing as i32);
        assert_eq!(watch.message().await.expect("no error"), None);
    });
    server.end_well();
}

/// A connection gets GOAWAY after its first call, so this call may begin in the drain.
fn a_watch_that_begins_in_the_drain_ends_too() {
    let mut server = start("grpc");
    let endpoint = endpoint(server.address());
    block_on(async {
        let mut early = healthy(&endpoint).await;
        let mut late = HealthClient::new(endpoint.connect().await.expect("it serves"));
        let mut watch = watching(&mut early).await;
        server.signal(Signal::SIGTERM);
        while watch.message().await.expect("no error").is_some() {}
        let mut watch = watching(&mut late).await;
        while watch.message().await.expect("no error").is_some() {}
    });
    server.end_well();
}

fn a_stream_of_the_server_ends_at_the_drain() {
    let mut server = start("grpc");
    let endpoint = endpoint(server.address());
    block_on(async {
        let mut client = Client::new(endpoint.connect().await.expect("it serves"));
        let stream = client.server_stream("Endless", "").await.expect("a reply");
        let mut stream = stream.into_inner();
        assert_eq!(
            stream.message().await.expect("no error").expect("a text"),
            "first"
        );
        server.signal(Signal::SIGHUP);
        assert_eq!(stream.message().await.expect("no error"), None);
    });
    server.wait("reload_finished");
}

/// Calls by clients that repeat none.
fn no_call_fails_during_reloads_and_upgrades() {
    const CLIENTS: usize = 4;
    const RELOADS: usize = 3;
    const UPGRADES: usize = 1;
    /// Before each reload.
    const CALLS: usize = 200;
    let installed = Installed::new(this());
    let mut server = Server::spawn(&mut with_app(program(installed.path()), "grpc"));
    let address = server.address();
    let counts = Arc::new(Counts::default());
    let over = Over(Arc::clone(&counts));
    let clients = {
        let counts = Arc::clone(&counts);
        std::thread::spawn(move || {
            block_on(async {
                let clients = (0..CLIENTS).map(|_| call_until_over(address, &counts));
                futures_util::future::join_all(clients).await
            })
        })
    };
    let more_calls = || {
        let wanted = counts.calls.load(Ordering::Relaxed) + CALLS;
        until(|| clients.is_finished() || counts.calls.load(Ordering::Relaxed) >= wanted);
    };
    for change in 0..RELOADS + UPGRADES {
        more_calls();
        match change < RELOADS {
            true => server.signal(Signal::SIGHUP),
            false => {
                installed.replace(this());
                server.signal(Signal::SIGUSR2);
            }
        }
        for _ in 0..2 {
            assert_eq!(server.wait("worker_exited")["cut"], 0);
        }
    }
    more_calls();
    drop(over);
    clients.join().expect("no call failed");
}

/// What the clients have done, and whether it is enough.
#[derive(Default)]
struct Counts {
    calls: AtomicUsize,
    over: AtomicBool,
}

/// Ends the clients when it is dropped, also if the test fails.
struct Over(Arc<Counts>);

impl Drop for Over {
    fn drop(&mut self) {
        self.0.over.store(true, Ordering::Relaxed);
    }
}

async fn call_until_over(address: SocketAddr, counts: &Counts) {
    let mut client = Client::new(endpoint(address).connect_lazy());
    while !counts.over.load(Ordering::Relaxed) {
        let text = client.unary("Same", "hello").await.expect("a reply");
        assert_eq!(text, "hello");
        counts.calls.fetch_add(1, Ordering::Relaxed);
    }
}

fn tonics_own_server_works_in_run() {
    let mut server = start("grpc_in_run");
    let endpoint = endpoint(server.address());
    block_on(healthy(&endpoint));
    server.stop();
}
