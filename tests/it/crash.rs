//! Workers that die.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::future::pending;
use std::pin::Pin;
use std::process::exit;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use http_body::Body;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::wait;
use nix::unistd::Pid;
use prefork_server::{
    Backoff, BoxError, Error, Http, Prefork, Request, Response, Role, role, service_fn,
};

use crate::admin::Watched;
use crate::apps;
use crate::client::{Client, get};
use crate::support::{
    Server, app_command, descendants, descriptors, pid_of, proc_file, status_field, until, words,
};

tests! {
    queued_connections_survive_the_crash_of_their_worker,
    only_requests_in_progress_fail_when_a_worker_is_killed,
    a_worker_that_always_crashes_ends_the_server_with_the_reason,
    an_app_that_never_becomes_ready_ends_the_server_at_once,
    the_error_says_that_an_app_panicked_at_the_start,
    the_error_says_that_an_app_was_not_ready_in_time,
    the_error_says_that_a_worker_did_not_serve,
    the_error_says_that_main_runs_in_a_worker_that_ended_before_it_served,
    a_worker_that_exits_unasked_is_replaced_and_does_not_count_as_a_crash,
    a_process_that_another_thread_reaps_is_replaced,
    respawns_leave_nothing_behind,
    a_panic_ends_the_worker_although_a_thread_is_busy,
    a_panic_in_the_task_that_drives_deadlines_ends_the_worker,
    a_worker_that_exits_as_soon_as_it_accepts_does_not_count_as_a_crash,
    a_worker_that_cannot_be_started_does_not_count_as_a_crash,
    a_server_that_can_start_no_worker_says_which_call_fails,
    a_server_that_ends_after_crashes_has_no_pause_before_its_drain,
}

fn queued_connections_survive_the_crash_of_their_worker() {
    let mut server = Server::start(&["--workers", "1", "--respond", "hi", "--worker-header"]);
    let pid = pid_of(&server.wait("worker_ready"));
    let address = server.address();
    kill(pid, Signal::SIGSTOP).expect("it lives");
    let mut clients = Client::ask_many(address, 50, "/");
    kill(pid, Signal::SIGKILL).expect("it lives");
    let exited = server.wait("worker_exited");
    assert_eq!(
        (pid_of(&exited), &exited["status"]),
        (pid, &"signal 9".into())
    );
    for client in &mut clients {
        let response = client.response();
        assert_eq!(response.body, "hi");
        assert_ne!(response.worker("pid"), pid.as_raw().unsigned_abs());
    }
}

fn only_requests_in_progress_fail_when_a_worker_is_killed() {
    let mut server = Server::start(&words(
        "--workers 3 --respond hi --worker-header --crash-limit 100/60s",
    ));
    let workers: Vec<_> = (0..3)
        .map(|_| pid_of(&server.wait("worker_ready")))
        .collect();
    let address = server.address();
    let unanswered = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..300 {
                    let mut client =
                        Client::try_connect(address).expect("no connection is refused");
                    client.ask("/");
                    match client.try_response() {
                        Ok(response) => assert_eq!(response.body, "hi"),
                        Err(_) => drop(unanswered.fetch_add(1, Ordering::Relaxed)),
                    }
                }
            });
        }
        for pid in workers {
            kill(pid, Signal::SIGKILL).expect("it lives");
            server.wait_for("worker_exited", |exited| pid_of(exited) == pid);
            server.wait("worker_ready");
        }
    });
    // Each of the four clients has at most one request under way in a worker that is killed.
    let unanswered = unanswered.into_inner();
    assert!(
        unanswered <= 3 * 4,
        "{unanswered} requests were not answered"
    );
}

fn a_worker_that_always_crashes_ends_the_server_with_the_reason() {
    let ended = Server::start_app("crashes").end();
    assert_eq!(ended.code, Some(4), "{}", ended.log);
    assert!(ended.log.contains("the disk is on fire"), "{}", ended.log);
    let told = "4 crashes or failed starts within 60s";
    assert!(ended.log.contains(told), "{}", ended.log);
    assert_eq!(ended.count("worker_ready"), 4);
    assert_eq!(
        ended.notices.last().expect("some")["outcome"],
        "crash-limit"
    );
}

fn an_app_that_never_becomes_ready_ends_the_server_at_once() {
    let ended = Server::start_app("unready: fails").end();
    assert_eq!(ended.code, Some(3), "{}", ended.log);
    assert!(
        ended.log.contains("no database at 127.0.0.1:5432"),
        "{}",
        ended.log
    );
    // Each slot's first respawn is at once, before the other slot's worker has failed too.
    assert!(ended.count("worker_spawned") <= 4, "{}", ended.log);
    assert_eq!(
        ended.notices.last().expect("some")["outcome"],
        "never-ready"
    );
}

/// Apps whose workers are never ready.
pub(crate) fn unready(app: &str) -> Result<(), Error> {
    let server = apps::server();
    match app {
        "unready: fails" => begins(server, async || Err("no database at 127.0.0.1:5432".into())),
        "unready: panics" => begins(server, async || panic!("no database")),
        "unready: waits" => {
            let server = server.ready_timeout(Duration::ZERO);
            begins(server.drain_timeout(Duration::ZERO), pending)
        }
        _ if role() == Role::Master => begins(server, async || Ok(())),
        "unready: ends early" => exit(1),
        _ => Ok(()),
    }
}

/// The app serves if `start` succeeds.
fn begins<A>(server: Prefork, start: A) -> Result<(), Error>
where
    A: AsyncFnOnce() -> Result<(), BoxError>,
{
    server.serve(async |_| {
        start().await?;
        Ok(service_fn(apps::hello))
    })
}

/// The error that the app's server ends with, as `main` prints it.
fn why_never_ready(app: &str) -> String {
    let ended = Server::start_app(app).end();
    assert_eq!(ended.code, Some(3), "{}", ended.log);
    ended.log.lines().last().expect("an error").to_owned()
}

fn the_error_says_that_an_app_panicked_at_the_start() {
    let error = why_never_ready("unready: panics");
    assert!(error.ends_with(": it panicked: no database"), "{error}");
}

fn the_error_says_that_an_app_was_not_ready_in_time() {
    let error = why_never_ready("unready: waits");
    assert!(error.contains(": it was not ready in time"), "{error}");
}

fn the_error_says_that_a_worker_did_not_serve() {
    let error = why_never_ready("unready: does not serve");
    let why = ": it was not ready yet; `main` has to call `serve` or `run` in each process";
    assert!(error.contains(why), "{error}");
}

fn the_error_says_that_main_runs_in_a_worker_that_ended_before_it_served() {
    let error = why_never_ready("unready: ends early");
    let why = ": it was not ready yet; `main` runs in each worker too";
    assert!(error.contains(why), "{error}");
}

fn a_worker_that_exits_unasked_is_replaced_and_does_not_count_as_a_crash() {
    let mut server = Server::start_app("leaves");
    let address = server.address();
    // More often than the crash limit allows.
    let pids: BTreeSet<_> = (0..4).map(|_| get(address, "/").body).collect();
    assert_eq!(pids.len(), 4);
    server.stop();
}

/// The thread or the master may be the first to reap a process.
fn a_process_that_another_thread_reaps_is_replaced() {
    let mut watched = Watched::start_with(|socket| {
        Server::spawn(app_command("waits_for_all").env(ADMIN, socket))
    });
    let workers = [(); 2].map(|()| pid_of(&watched.server.wait("worker_ready")));
    let is_admin = |pid: &Pid| proc_file(*pid, "comm").is_some_and(|it| it == "admin\n");
    let admin = || descendants(watched.server.pid).into_iter().find(is_admin);
    until(|| admin().is_some());
    kill(admin().expect("it runs"), Signal::SIGKILL).expect("it runs");
    until(|| watched.get("/readyz").body == "ready\n");
    let mut server = watched.server;
    for worker in workers {
        kill(worker, Signal::SIGKILL).expect("it lives");
        assert_eq!(pid_of(&server.wait("worker_exited")), worker);
        server.wait("worker_ready");
    }
    server.stop();
}

/// Names the admin address of the app.
const ADMIN: &str = "PREFORK_TEST_ADMIN";

/// Beside the master a thread waits for every process of the master.
pub(crate) fn waits_for_all() -> Result<(), Error> {
    if role() == Role::Master {
        std::thread::spawn(|| {
            loop {
                // It fails while the master has no process.
                let _ = wait();
            }
        });
    }
    let admin = std::env::var(ADMIN).expect("the test says where");
    let server = apps::server().admin(admin);
    server.serve(async |_| Ok(service_fn(apps::hello)))
}

fn respawns_leave_nothing_behind() {
    let mut server = Server::start_app("untiring");
    let mut workers: Vec<_> = (0..2)
        .map(|_| pid_of(&server.wait("worker_ready")))
        .collect();
    server.address();
    let before = descriptors(server.pid);
    for round in 0..100 {
        let pid = workers[round % 2];
        kill(pid, Signal::SIGTERM).expect("it lives");
        // The next worker may be spawned before or after this one ends.
        workers[round % 2] = pid_of(&server.wait("worker_ready"));
        until(|| !server.workers().contains(&pid));
    }
    // The master closes a worker's descriptors a moment after its process ends.
    until(|| descriptors(server.pid) == before);
    let mut left = server.workers();
    left.sort();
    workers.sort();
    assert_eq!(left, workers, "zombies or other processes");
    assert_eq!(status_field(server.pid, "Threads"), "1", "of the master");
}

fn a_panic_ends_the_worker_although_a_thread_is_busy() {
    let mut server = Server::start_app("panics");
    let address = server.address();
    let _client = Client::connect(address);
    assert_eq!(server.wait("worker_exited")["status"], "exit 101");
    server.wait("worker_ready");
}

/// The task that drives the deadlines of all connections calls a handler's waker, which is code of
/// the app. If a panic ended only that task, no connection of the worker would time out.
fn a_panic_in_the_task_that_drives_deadlines_ends_the_worker() {
    let mut server = Server::start_app("rude_waker");
    let address = server.address();
    let mut client = Client::connect(address);
    client.send("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 5\r\n\r\n");
    assert_eq!(server.wait("worker_exited")["status"], "exit 101");
    server.wait("worker_ready");
    server.stop();
}

/// Waits for the body of a request with a waker that panics.
pub(crate) fn rude_waker() -> Result<(), Error> {
    struct Rude;

    impl Wake for Rude {
        fn wake(self: Arc<Self>) {
            panic!("do not wake me");
        }
    }

    let http = Http::new().body_timeout(Duration::from_millis(100));
    let server = apps::server().workers(1).http(http);
    server.serve(async |_| {
        Ok(service_fn(async |mut request: Request| {
            let rude = Waker::from(Arc::new(Rude));
            let mut cx = Context::from_waker(&rude);
            let _ = Pin::new(request.body_mut()).poll_frame(&mut cx);
            std::future::pending::<()>().await;
            Ok::<Response, Infallible>(Response::default())
        }))
    })
}

fn a_worker_that_exits_as_soon_as_it_accepts_does_not_count_as_a_crash() {
    let mut server = Server::start_app("glances");
    let leave = |server: &mut Server| {
        server.wait("worker_ready");
        assert_eq!(server.wait("worker_exited")["status"], "exit 0");
    };
    leave(&mut server);
    // More often than the crash limit allows, and more slowly each time.
    for most in [100, 200, 400] {
        leave(&mut server);
        let pause = server.wait("backing_off")["pause_ms"].clone();
        let pause = pause.as_u64().expect("a number");
        assert!(pause >= most / 2 && pause <= most, "{pause} of {most} ms");
    }
    server.stop();
}

fn a_server_that_can_start_no_worker_says_which_call_fails() {
    let mut server = Server::start(&["--workers", "1", "--crash-limit", "2/60s"]);
    let pid = pid_of(&server.wait("worker_ready"));
    server.address();
    // Enough to poll those that it has, but none is free.
    server.limit_descriptors("10:");
    kill(pid, Signal::SIGKILL).expect("it lives");
    let ended = server.end();
    assert_eq!(ended.code, Some(4));
    for told in [
        "3 crashes or failed starts within 60s, the last: ",
        "worker 0 could not be spawned: ",
        "(2) failed: the limit on open files is reached",
    ] {
        assert!(ended.log.contains(told), "{told}: {}", ended.log);
    }
}

/// Respawns without a backoff.
pub(crate) fn untiring() -> Result<(), Error> {
    let backoff = Backoff::new()
        .first(Duration::ZERO)
        .max(Duration::ZERO)
        .reset_after(Duration::ZERO);
    let server = apps::server().backoff(backoff);
    server.serve(async |_| Ok(service_fn(apps::hello)))
}

fn a_worker_that_cannot_be_started_does_not_count_as_a_crash() {
    let mut server = Server::start(&["--respond", "hi", "--crash-limit", "1/60s"]);
    let pid = pid_of(&server.wait("worker_ready"));
    let address = server.address();
    // Enough to poll those that it has, but none is free.
    server.limit_descriptors("12:");
    kill(pid, Signal::SIGKILL).expect("it lives");
    for _ in 0..3 {
        server.wait("backing_off");
    }
    assert_eq!(get(address, "/").body, "hi");
    server.limit_descriptors("1024:");
    server.wait("worker_ready");
    server.stop();
}

/// The pause before a drain is over when the server drains.
fn a_server_that_ends_after_crashes_has_no_pause_before_its_drain() {
    let options = "--respond hi --delay 10m --crash-limit 0/60s --pre-stop-delay 10m";
    let mut watched = Watched::start(&words(options));
    let mut client = Client::connect(watched.server.address());
    client.ask("/");
    let with_requests = |count: u64| {
        let status = watched.status();
        let slots = status["slots"].as_array().expect("a list").clone();
        let mut workers = slots.iter().map(|slot| &slot["workers"][0]);
        workers.find(|worker| worker["requests"] == count).cloned()
    };
    until(|| with_requests(1).is_some());
    let idle = pid_of(&with_requests(0).expect("the other one"));
    kill(idle, Signal::SIGKILL).expect("it lives");
    watched.server.wait("draining");
    watched.server.signal(Signal::SIGTERM);
    until(|| watched.server.log().contains("SIGTERM received"));
    until(|| watched.status()["state"] == "draining");
    // The second ask does not wait for the request.
    watched.server.signal(Signal::SIGINT);
    let ended = watched.server.end();
    assert_eq!(ended.code, Some(4), "{}", ended.log);
    let is_pause = |notice: &serde_json::Value| notice["notice"] == "stopping";
    assert!(!ended.history.iter().any(is_pause), "{:?}", ended.history);
}
