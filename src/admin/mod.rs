//! The admin process: tells operators and their programs what the server does. It has a listener of
//! its own, so it responds while every worker hangs. It reads what workers count and cannot write
//! it. If it ends, no request is lost, and the master starts another one.
//!
//! | path | what it is |
//! |---|---|
//! | `/` | a page for browsers that shows the server as it runs |
//! | `/livez` | 200 as long as the master runs |
//! | `/readyz` | 200 if the server should get requests, else 503; one line says why |
//! | `/status` | the state of the server, as JSON |
//! | `/metrics` | all counts, for Prometheus |
//! | `/events` | the notices, as they come |
//! | `/live` | the same, and once a second what has changed; for the page |
//! | `/v1/...` | commands to the master, on a Unix address |
//!
//! `view` has what the process knows, `routes` responds, `host` finds requests that a web page may
//! have sent, `metrics` writes the counts as text, `live` compares them with those of the second
//! before.

mod events;
mod host;
mod live;
mod metrics;
mod page;
mod routes;
mod view;

use std::cell::RefCell;
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use hyper::service::service_fn;
use tokio::io::unix::AsyncFd;
use tokio::task::spawn_local;
use tokio::time::sleep;

use crate::config::{Config, ListenerUse};
use crate::error::Error;
use crate::handle::Handle;
use crate::hooks::NoHooks;
use crate::http::{Http, Server};
use crate::protocol::admin::{AdminInheritance, AdminMarker, FromAdmin};
use crate::protocol::inheritance::ProcessRole;
use crate::sys::{listener, spawn};
use crate::worker;
use crate::worker::alone::Purpose;
use crate::worker::serve::{Connections, serve_plain};
use crate::worker::span;

use self::events::COMMENT_INTERVAL;
use self::view::View;

/// How many connections the process has open, so that it needs little memory.
const CONNECTIONS_MAX: usize = 64;

/// How many of them one client may have, so that the probes of the others are served.
const CONNECTIONS_PER_CLIENT: NonZeroUsize = NonZeroUsize::new(16).expect("not 0");

/// How long a client may take for a head. After a late head the server discards input for as long
/// again, so a silent client has its connections for twice this time.
const HEADER_TIMEOUT: Duration = Duration::from_secs(2);

/// How long requests may go on when the process has to leave.
const DRAIN: Duration = Duration::from_secs(8);

/// What the master has left to this process; `None` if this process is no admin process.
pub(crate) fn marker() -> Option<AdminMarker> {
    match ProcessRole::of_this_process() {
        ProcessRole::Admin(marker) => Some(marker),
        _ => None,
    }
}

/// Serves as the admin process of the master, and exits the process.
pub(crate) fn run_and_exit(marker: AdminMarker) -> ! {
    spawn::set_name(c"admin");
    let _entered = span::of_admin().entered();
    let code = match run(marker) {
        Ok(()) => 0,
        Err(error) => {
            tracing::error!(?error, "the admin process ends");
            1
        }
    };
    std::process::exit(code)
}

fn run(marker: AdminMarker) -> Result<(), Error> {
    let AdminInheritance {
        master,
        channel,
        listener,
    } = marker
        .take()
        .map_err(|error| Error::system("fcntl(2)", error))?;
    let address =
        listener::address(&listener).map_err(|error| Error::system("getsockname(2)", error))?;
    let (handle, commands) =
        Handle::pair().map_err(|error| Error::system("socketpair(2)", error))?;
    let config = Config {
        drain_timeout: DRAIN,
        max_connections: Some(CONNECTIONS_MAX),
        max_connections_per_client: Some(CONNECTIONS_PER_CLIENT),
        ..Config::default()
    };
    let setup = worker::Setup {
        config,
        hooks: Box::new(NoHooks),
        handle: handle.clone(),
        commands,
    };
    let http = Http::new()
        .header_timeout(HEADER_TIMEOUT)
        .max_body_size(1 << 10);
    let purpose = Purpose::Admin;
    worker::alone::run(
        purpose,
        setup,
        vec![(listener, ListenerUse::App)],
        vec![address.clone()],
        async |worker, incoming| {
            let readable = channel.watch()?;
            let view = View::new(master, channel.clone(), address.clone(), handle.clone());
            let view = Rc::new(RefCell::new(view));
            while !view.borrow().is_complete() {
                hear(&readable, &view).await?;
            }
            channel.send(FromAdmin::Ready)?;
            let later = Rc::clone(&view);
            spawn_local(async move { while hear(&readable, &later).await.is_ok() {} });
            spawn_local(comment(Rc::clone(&view)));
            let server = Server::new(http, worker.stats().clone());
            let endpoint = server.endpoint(service_fn(move |request| {
                routes::respond(Rc::clone(&view), request.into_parts().0)
            }));
            let connections = Connections {
                incoming,
                balancers: Vec::new(),
            };
            serve_plain(server, endpoint, worker, connections).await;
            Ok(())
        },
    )
}

/// Sends comments to the clients of the event stream.
async fn comment(view: Rc<RefCell<View>>) {
    loop {
        sleep(COMMENT_INTERVAL).await;
        view.borrow_mut().listeners.comment();
    }
}

/// Waits for what the master tells, and hears it.
async fn hear(readable: &AsyncFd<Arc<OwnedFd>>, view: &RefCell<View>) -> io::Result<()> {
    let mut ready = readable.readable().await?;
    view.borrow_mut().hear();
    ready.clear_ready();
    Ok(())
}
