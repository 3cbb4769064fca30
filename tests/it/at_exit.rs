//! What an app does before its worker exits.

use std::future::pending;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use nix::sys::signal::Signal;
use prefork_server::{Error, Response, TestServer, handler};
use serde_json::json;

use crate::apps::server;
use crate::client::{Client, get};
use crate::support::{CEILING, Server};

tests! {
    it_runs_after_the_last_request_the_last_first,
    it_runs_after_the_requests_that_a_drain_cuts,
    it_does_not_run_in_a_server_that_is_stopped_now,
    it_runs_after_an_app_that_failed,
    it_runs_in_each_worker_that_drains,
    a_worker_whose_work_at_the_exit_never_ends_exits_in_time,
}

/// Stops the server while a handler has the client's request. Returns what was told after that.
fn stop_in_request(
    server: TestServer,
    told: &Receiver<&'static str>,
) -> (Client, Vec<&'static str>) {
    let mut client = Client::connect(server.address());
    client.ask("/");
    let mut told = std::iter::from_fn(|| told.recv_timeout(CEILING).ok());
    assert_eq!(told.next(), Some("asked"));
    server.stop().expect("it drains");
    (client, told.collect())
}

fn it_runs_after_the_last_request_the_last_first() {
    let (tell, told) = channel();
    let server = TestServer::start(async move |worker| {
        for work in ["closed", "flushed"] {
            let tell = tell.clone();
            worker.at_exit(async move {
                tokio::task::yield_now().await;
                tell.send(work).expect("the test waits");
            });
        }
        Ok(handler(move |_request| {
            let (worker, tell) = (worker.clone(), tell.clone());
            async move {
                tell.send("asked")?;
                worker.drain().await;
                tell.send("answered")?;
                Ok(Response::default())
            }
        }))
    });
    let (mut client, told) = stop_in_request(server.expect("it serves"), &told);
    assert_eq!(told, ["answered", "flushed", "closed"]);
    assert_eq!(client.response().status(), 200);
}

/// Tells when a request ends.
struct TellsEnd(Sender<&'static str>);

impl Drop for TellsEnd {
    fn drop(&mut self) {
        self.0.send("cut").expect("the test waits");
    }
}

fn it_runs_after_the_requests_that_a_drain_cuts() {
    let (tell, told) = channel();
    let server = TestServer::start_with(|server| {
        let server = server.drain_timeout(Duration::from_millis(100));
        server.serve(async move |worker| {
            let at_exit = tell.clone();
            worker.at_exit(async move { at_exit.send("exit").expect("the test waits") });
            Ok(handler(move |_request| {
                let request = TellsEnd(tell.clone());
                async move {
                    request.0.send("asked")?;
                    pending::<()>().await;
                    Ok(Response::default())
                }
            }))
        })
    });
    let (_client, told) = stop_in_request(server.expect("it serves"), &told);
    assert_eq!(told, ["cut", "exit"]);
}

fn it_does_not_run_in_a_server_that_is_stopped_now() {
    let (tell, told) = channel();
    let server = TestServer::start(async move |worker| {
        worker.at_exit(async move { tell.send(()).expect("the test waits") });
        Ok(handler(async |_request| Ok(Response::default())))
    });
    drop(server.expect("it serves"));
    assert!(told.recv_timeout(CEILING).is_err(), "it was dropped");
}

fn it_runs_after_an_app_that_failed() {
    let (tell, told) = channel();
    let refused = TestServer::start_with(|server| {
        server.run(async move |worker, _incoming| {
            worker.at_exit(async move { tell.send(()).expect("the test waits") });
            Err("no database".into())
        })
    });
    assert!(matches!(refused, Err(Error::App(_))));
    assert_eq!(told.recv_timeout(CEILING), Ok(()));
}

/// Announces the end of each worker from a thread.
pub(crate) fn app() -> Result<(), Error> {
    server().serve(async |worker| {
        let slot = worker.slot().0;
        worker.at_exit(async move {
            let tell = move || println!("{}", json!({ "notice": "at_exit", "slot": slot }));
            tokio::task::spawn_blocking(tell).await.expect("it prints");
        });
        Ok(handler(async |_request| Ok(Response::new("hi".into()))))
    })
}

fn it_runs_in_each_worker_that_drains() {
    let mut server = Server::start_app("at_exit");
    assert_eq!(get(server.address(), "/").body, "hi");
    server.signal(Signal::SIGHUP);
    let mut slots = [(); 2].map(|()| server.wait("at_exit")["slot"].as_u64());
    slots.sort_unstable();
    assert_eq!(slots, [Some(0), Some(1)]);
    let ended = server.stop();
    assert_eq!(ended.count("at_exit"), 2, "{}", ended.log);
}

/// Never ends by itself.
pub(crate) fn endless() -> Result<(), Error> {
    let server = server().drain_timeout(Duration::from_millis(100));
    server.serve(async |worker| {
        worker.at_exit(std::future::pending());
        Ok(handler(async |_request| Ok(Response::new("hi".into()))))
    })
}

fn a_worker_whose_work_at_the_exit_never_ends_exits_in_time() {
    let mut server = Server::start_app("endless_exit");
    server.address();
    let ended = server.stop();
    let exits = ended.notices.iter();
    let exits = exits.filter(|notice| notice["notice"] == "worker_exited");
    let statuses: Vec<_> = exits.map(|exit| &exit["status"]).collect();
    assert_eq!(statuses, ["exit 0"; 2], "{}", ended.log);
}
