//! The library's public API: hooks, handles, other HTTP servers, and a server without a master.

use std::convert::Infallible;

use nix::sys::signal::{Signal, kill};
use prefork_server::{
    Address, BoxError, Hooks, Prefork, Request, Response, Stop, TestServer, WorkerInfo, handler,
    service_fn,
};

use crate::client::{Client, get};
use crate::support::{CEILING, Server, pid_of};

tests! {
    a_server_in_this_process_serves_and_stops,
    servers_for_tests_serve_beside_each_other_and_end_when_they_are_dropped,
    a_server_for_tests_finishes_what_is_open_when_it_is_stopped,
    a_server_for_tests_works_inside_a_runtime,
    a_server_for_tests_says_why_it_cannot_start,
    a_hook_that_panics_ends_a_server_in_this_process,
    waiting_for_a_server_that_cannot_start_ends,
    hooks_are_called_at_each_step_of_a_server,
    a_hook_that_refuses_ends_the_server,
    a_handle_works_in_master_and_worker,
    an_axum_router_runs_and_drains,
}

fn a_server_in_this_process_serves_and_stops() {
    let mut server = Prefork::bind("127.0.0.1:0").in_process();
    let handle = server.handle().expect("a socket pair");
    let other = handle.clone();
    let client = std::thread::spawn(move || {
        let addresses = other.wait_serving().expect("it serves");
        let Address::Tcp(address) = addresses[0] else {
            panic!("TCP")
        };
        let body = get(address, "/").body;
        other.stop(Stop::Drain).expect("it runs");
        body
    });
    let greeting = std::rc::Rc::new("not Send".to_owned());
    server
        .serve(async move |_worker| {
            Ok(service_fn(move |_request: Request| {
                let body = (*greeting).clone();
                async move { Ok::<Response, Infallible>(Response::new(body.into())) }
            }))
        })
        .expect("it drains");
    assert_eq!(client.join().expect("the client is served"), "not Send");
    assert_eq!(handle.wait_serving(), None, "it has ended");
}

/// Responds with `text`.
fn saying(text: &'static str) -> TestServer {
    let app = async move |_worker| {
        Ok(handler(move |_request| async move {
            Ok(Response::new(text.into()))
        }))
    };
    TestServer::start(app).expect("it serves")
}

fn servers_for_tests_serve_beside_each_other_and_end_when_they_are_dropped() {
    let (first, second) = (saying("first"), saying("second"));
    let mut client = Client::connect(first.address());
    assert_eq!(client.get("/").body, "first");
    assert_eq!(get(second.address(), "/").body, "second");
    assert_eq!(first.url(), format!("http://{}", first.address()));
    let handle = first.handle().clone();
    drop(first);
    client.expect_end();
    assert_eq!(handle.wait_serving(), None);
    assert_eq!(get(second.address(), "/").body, "second");
}

fn a_server_for_tests_finishes_what_is_open_when_it_is_stopped() {
    let (tell, told) = std::sync::mpsc::channel();
    let server = TestServer::start(async move |worker| {
        Ok(handler(move |_request| {
            let (worker, tell) = (worker.clone(), tell.clone());
            async move {
                tell.send(())?;
                worker.drain().await;
                Ok(Response::new("finished".into()))
            }
        }))
    });
    let server = server.expect("it serves");
    let address = server.address();
    let client = std::thread::spawn(move || get(address, "/").body);
    told.recv_timeout(CEILING).expect("the request is open");
    server.stop().expect("it drains");
    assert_eq!(client.join().expect("it is served"), "finished");
}

fn a_server_for_tests_works_inside_a_runtime() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let body = runtime.block_on(async {
        let server = saying("inside");
        let address = server.address();
        let body = tokio::task::spawn_blocking(move || get(address, "/").body).await;
        server.stop().expect("it drains");
        body
    });
    assert_eq!(body.expect("it is served"), "inside");
}

fn a_server_for_tests_says_why_it_cannot_start() {
    let refused = TestServer::start_with(|server| {
        server.run(async |_worker, _incoming| Err("no database".into()))
    });
    let error = refused.expect_err("the app fails");
    assert_eq!(format!("{error:?}"), "the app failed: no database");
    let unused = TestServer::start_with(|_server| Ok(()));
    let error = unused.expect_err("it does not serve");
    assert_eq!(error.exit_code(), 2);
    let panics = || TestServer::start_with(|_server| panic!("on purpose"));
    assert!(std::panic::catch_unwind(panics).is_err());
}

struct Asserts;

impl Hooks for Asserts {
    fn serving(&mut self, _: &[Address], _: &[WorkerInfo]) -> Result<(), BoxError> {
        panic!("on purpose");
    }
}

fn a_hook_that_panics_ends_a_server_in_this_process() {
    let serve = |server: Prefork| {
        let server = server.hooks(Asserts);
        server.serve(async |_worker| Ok(service_fn(nothing)))
    };
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let panics = std::panic::catch_unwind(|| TestServer::start_with(serve));
        tell.send(panics.is_err())
    });
    assert_eq!(told.recv_timeout(CEILING), Ok(true));
}

fn waiting_for_a_server_that_cannot_start_ends() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("it is bound");
    let mut server = Prefork::bind(address).in_process();
    let handle = server.handle().expect("a socket pair");
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || tell.send(handle.wait_serving()));
    server
        .serve(async |_worker| Ok(service_fn(nothing)))
        .expect_err("the port is taken");
    assert_eq!(told.recv_timeout(CEILING), Ok(None));
}

async fn nothing(_request: Request) -> Result<Response, Infallible> {
    Ok(Response::default())
}

fn hooks_are_called_at_each_step_of_a_server() {
    let mut server = Server::start_app("hooks");
    let mut hook =
        |name: &str| server.wait_for("hook", |told| told["hook"] == name)["more"].clone();
    assert_eq!(hook("worker_command"), serde_json::json!([0, 1]));
    assert!(hook("worker_spawned").as_u64() > Some(1));
    assert_eq!(hook("serving"), serde_json::json!([1, 2]));
    let pid = server.workers()[0];
    kill(pid, Signal::SIGKILL).expect("it lives");
    let told = server.wait_for("hook", |told| told["hook"] == "worker_respawned");
    assert_eq!(told["more"][0], pid.as_raw());
    assert_eq!(told["more"][1], "signal 9");
    server.signal(Signal::SIGTERM);
    let told = server.wait_for("hook", |told| told["hook"] == "notice");
    assert_eq!(told["more"], "drained");
}

fn a_hook_that_refuses_ends_the_server() {
    let ended = Server::start_app("refuses").end();
    assert_eq!(ended.code, Some(1), "{}", ended.log);
    assert!(
        ended.log.contains("the hook worker_spawned refused"),
        "{}",
        ended.log
    );
}

fn a_handle_works_in_master_and_worker() {
    let mut server = Server::start_app("handle");
    let address = server.address();
    assert_eq!(get(address, "/reload").body, "asked");
    server.wait("reload_finished");
    assert_eq!(get(address, "/resize").body, "asked");
    assert_eq!(server.wait("resized")["workers"], 3);
    assert_eq!(get(address, "/stop").body, "asked");
    server.end_well();
}

fn an_axum_router_runs_and_drains() {
    let mut server = Server::start_app("axum");
    let first = pid_of(&server.wait("worker_ready"));
    let address = server.address();
    let pid: i32 = get(address, "/").body.parse().expect("a pid");
    assert!(
        server.workers().iter().any(|worker| worker.as_raw() == pid),
        "{first} or the other"
    );
    server.stop();
}
