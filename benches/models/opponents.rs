//! The servers that prefork is compared with: hyper as most people run it, on the same sockets,
//! with the same handlers and the same allocator.

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use socket2::Socket;
use tokio::net::TcpListener;
use tokio::runtime::{self, Runtime};
use tower_http::services::ServeDir;
use tower_http::services::fs::ServeFileSystemResponseBody;

use crate::handlers::{self, Place};
use crate::server::{Model, announce};
use crate::support::listener::listen;

/// Longer than a bench: the threads that read files stay.
const BLOCKING_THREADS_LIVE: Duration = Duration::from_secs(24 * 3600);

/// How requests are served, a copy for each connection.
#[derive(Clone)]
pub(crate) enum Respond {
    /// The handlers that prefork serves too.
    Handlers(Place),
    /// A directory, as axum and every other program on tower-http serves it.
    Files(ServeDir),
}

impl Respond {
    pub(crate) fn files(directory: PathBuf) -> Self {
        Self::Files(ServeDir::new(directory))
    }

    async fn respond(
        self,
        request: Request<Incoming>,
    ) -> io::Result<Response<Either<Full<Bytes>, ServeFileSystemResponseBody>>> {
        match self {
            Self::Handlers(place) => {
                let Ok(response) = handlers::respond(request, place).await;
                Ok(response.map(Either::Left))
            }
            Self::Files(mut files) => Ok(files.try_call(request).await?.map(Either::Right)),
        }
    }
}

/// As the model has it. `app` is called with the number of each worker that has connections of its
/// own, from 0.
pub(crate) fn serve(model: Model, workers: usize, app: impl Fn(usize) -> Respond) -> ! {
    match model {
        Model::MultiThread => multi_thread(workers, app(0)),
        _ => current_threads(workers, app),
    }
}

/// One runtime of `workers` threads behind one listener.
fn multi_thread(workers: usize, app: Respond) -> ! {
    let listener = listen((Ipv4Addr::LOCALHOST, 0).into());
    announce(Some(address_of(&listener)));

    let mut runtime = runtime::Builder::new_multi_thread();
    let runtime = build(runtime.worker_threads(workers));
    // On the runtime's own threads: accepting in `block_on`, as most programs do, costs a thread
    // more and a hop for each connection. We want to be compared with the best of its kind.
    let accepting = runtime.spawn(accept(listener, app));
    match runtime.block_on(accepting) {
        Ok(never) => match never {},
        Err(error) => panic!("{error}"),
    }
}

/// `workers` threads, each with a runtime and a listener on the same port.
fn current_threads(workers: usize, app: impl Fn(usize) -> Respond) -> ! {
    let first = listen((Ipv4Addr::LOCALHOST, 0).into());
    let address = address_of(&first);
    for number in 1..workers {
        let (listener, app) = (listen(address), app(number));
        thread::spawn(|| on_this_thread(listener, app));
    }
    announce(Some(address));
    on_this_thread(first, app(0))
}

fn on_this_thread(listener: Socket, app: Respond) -> ! {
    let runtime = build(&mut runtime::Builder::new_current_thread());
    match runtime.block_on(accept(listener, app)) {}
}

fn build(runtime: &mut runtime::Builder) -> Runtime {
    let runtime = runtime.thread_keep_alive(BLOCKING_THREADS_LIVE);
    let runtime = runtime.enable_all().build();
    runtime.expect("a runtime can be built")
}

async fn accept(listener: Socket, app: Respond) -> Infallible {
    let listener = TcpListener::from_std(listener.into()).expect("the listener is non-blocking");
    loop {
        let (stream, _) = listener.accept().await.expect("accept(2)");
        let app = app.clone();
        tokio::spawn(async move {
            let service = service_fn(|request| app.clone().respond(request));
            // Off by default, and worth a factor of four if sixteen requests come at once.
            // prefork has it on; left off here, a switch would be taken for the model.
            let connection = http1::Builder::new()
                .pipeline_flush(true)
                .serve_connection(TokioIo::new(stream), service);
            // Clients leave when they are done; what they think of it is checked on their side.
            let _ = connection.await;
        });
    }
}

fn address_of(listener: &Socket) -> SocketAddr {
    let address = listener.local_addr().expect("getsockname(2)");
    address.as_socket().expect("an IPv4 listener")
}
