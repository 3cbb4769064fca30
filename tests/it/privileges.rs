//! Workers that run as another user than a root master, and what they cannot do to it.

use std::num::NonZeroU16;

use nix::sys::signal::Signal;
use nix::unistd::geteuid;
use prefork_server::{BoxError, Error, Request, Response, Stop, Worker, service_fn};

use crate::apps;
use crate::client::{Client, get};
use crate::support::{Server, until};

/// Does what the path says, as a worker would that an attacker has taken over.
pub(crate) fn app() -> Result<(), Error> {
    apps::server().user("nobody").serve(async |worker: Worker| {
        Ok(service_fn(move |request: Request| {
            let done = act(request.uri().path(), &worker);
            async move { Ok::<Response, BoxError>(Response::new(done?.into())) }
        }))
    })
}

fn act(path: &str, worker: &Worker) -> Result<String, BoxError> {
    let handle = worker.handle();
    match path {
        "/stop" => handle.stop(Stop::Now)?,
        "/resize" => handle.resize(NonZeroU16::new(3).expect("not zero"))?,
        "/upgrade" => handle.upgrade()?,
        "/reload" => handle.reload()?,
        _ => {}
    }
    Ok(worker.generation().to_string())
}

/// Starts the app, or nothing where the workers' user cannot be another.
fn start() -> Option<Server> {
    if !geteuid().is_root() {
        println!("not root: the workers' user cannot be another");
        return None;
    }
    Some(Server::start_app("privileges"))
}

pub(crate) fn they_may_ask_for_a_reload_and_not_for_the_end() {
    let Some(mut server) = start() else { return };
    let address = server.address();
    // One connection, so that one worker asks, and the reload comes last.
    let mut client = Client::connect(address);
    for path in ["/stop", "/resize", "/upgrade", "/reload"] {
        client.ask(path);
        assert_eq!(client.answer().body, "1");
    }
    server.wait("reload_finished");
    // Those of the first generation have left.
    until(|| server.workers().len() == 2);
    assert_eq!(get(address, "/").body, "2");
    server.signal(Signal::SIGTERM);
    assert_eq!(server.end().code, Some(0));
}
