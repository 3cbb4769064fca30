//! Frameworks in `serve`: an app of each kind has the same timeouts, limits and hand-over. The
//! table of `wire` is played with each kind too.

pub(crate) mod axum;
#[cfg(all(feature = "http2", feature = "tls"))]
pub(crate) mod grpc;

use std::convert::Infallible;
use std::process::Command;
use std::time::Duration;

use ::axum::Router;
use prefork_server::{Error, Http, Request, Response, service_fn};
use warp::Filter;

use crate::apps;
use crate::client::Client;
use crate::handover::settled;
use crate::support::{Server, program, this};

tests! {
    twenty_reloads_close_no_connection_of_any_app,
    half_a_head_and_half_a_body_get_408_from_every_app,
    warp_is_served_and_its_connections_move,
}

/// What the app returns in [`Prefork::serve`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    ServiceFn,
    Tower,
    Axum,
}

impl Kind {
    pub(crate) const ALL: [Self; 3] = [Self::ServiceFn, Self::Tower, Self::Axum];
}

/// Names the app of [`app`].
const VARIABLE: &str = "PREFORK_TEST_FRAMEWORK";

/// The timeouts of the apps.
const SHORT: Duration = Duration::from_secs(1);

/// An app on a framework.
pub(crate) fn app() -> Result<(), Error> {
    let http = Http::new().header_timeout(SHORT).body_timeout(SHORT);
    let server = apps::server().http(http);
    let name = std::env::var(VARIABLE).expect("the test names it");
    match name.as_str() {
        "ServiceFn" => server.serve(async |_| Ok(service_fn(respond))),
        "Tower" => server.serve(async |_| Ok(tower::service_fn(respond))),
        "warp" => server.serve(async |_| {
            let pid = warp::any().map(|| std::process::id().to_string());
            Ok(warp::service(pid))
        }),
        "Axum" => server.serve(async |_| Ok(Router::new().fallback(respond_by_axum))),
        #[cfg(all(feature = "http2", feature = "tls"))]
        name if name.starts_with("grpc") => grpc::app(server, name),
        name => axum::app(server, name),
    }
}

fn start(name: &str) -> Server {
    Server::spawn(&mut with_app(program(this()), name))
}

fn with_app(mut command: Command, name: &str) -> Command {
    command.env(apps::VARIABLE, "framework").env(VARIABLE, name);
    command
}

/// Reads the request's body, and responds with the pid.
async fn respond(request: Request) -> Result<Response, prefork_server::BoxError> {
    http_body_util::BodyExt::collect(request.into_body()).await?;
    Ok(Response::new(std::process::id().to_string().into()))
}

async fn respond_by_axum(_body: hyper::body::Bytes) -> Result<String, Infallible> {
    Ok(std::process::id().to_string())
}

fn twenty_reloads_close_no_connection_of_any_app() {
    for kind in Kind::ALL {
        let mut server = start(&format!("{kind:?}"));
        let address = server.address();
        // The app has a timeout for the first request, and a reload may take longer.
        let open = |_| {
            let mut client = Client::connect(address);
            client.get("/");
            client
        };
        let mut clients: Vec<_> = (0..20).map(open).collect();
        for _ in 0..20 {
            server.reload();
            let workers = settled(&server, 2);
            for client in &mut clients {
                let response = client.get("/");
                assert_eq!(
                    response.header("connection"),
                    None,
                    "{kind:?}: it stays open"
                );
                let pid = response.body.parse().expect("a pid");
                assert!(workers.contains(&pid), "{kind:?}: {pid} of {workers:?}");
            }
        }
    }
}

fn half_a_head_and_half_a_body_get_408_from_every_app() {
    for kind in Kind::ALL {
        let mut server = start(&format!("{kind:?}"));
        let address = server.address();
        let halves = [
            "GET / HTTP/1.1\r\nHo",
            "POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 10\r\n\r\nhalf",
        ];
        for half in halves {
            let mut client = Client::connect(address);
            client.send(half);
            let response = client.response();
            assert_eq!(response.status(), 408, "{kind:?}: {half}: {response:?}");
            client.expect_hang_up();
        }
    }
}

fn warp_is_served_and_its_connections_move() {
    let mut server = start("warp");
    let mut client = Client::connect(server.address());
    let first = client.get("/").body;
    server.reload();
    // The old workers are gone, so they have handed the connection over.
    let workers = settled(&server, 2);
    let pid = client.get("/").body;
    assert!(workers.contains(&pid.parse().expect("a pid")), "{pid}");
    assert_ne!(pid, first);
}
