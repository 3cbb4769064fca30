//! What an app counts by the facade `metrics`.

use std::process::Command;
use std::sync::mpsc::{TryRecvError, channel};

use metrics::{
    Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use prefork_server::{BoxError, CrashLimit, Error, Metrics, Request, Response, Worker, service_fn};

use crate::admin::{Watched, metric};
use crate::apps;
use crate::client::{Client, get};
use crate::support::{CEILING, Server, this, until};
use crate::upgrade::Installed;

tests! {
    each_request_counts_once_over_crashes_reloads_upgrades_and_resizes,
    a_program_with_another_recorder_serves_and_the_log_says_so,
}

/// Names the admin address of the app.
const ADMIN: &str = "PREFORK_TEST_ADMIN";

/// Counts its requests. The worker is killed in the middle of a request for `/kill`.
pub(crate) fn app() -> Result<(), Error> {
    let admin = std::env::var(ADMIN).expect("the test says where");
    let metrics = Metrics::new()
        .buckets("order.seconds", [0.5, 2.0])
        .per_slot("order_generation");
    let server = apps::server().admin(admin.as_str()).metrics(metrics);
    // Requests are on connections of their own, so no other request is cut by a kill.
    let server = server.crash_limit(CrashLimit::new(100, CEILING));
    server.serve(async |worker: Worker| {
        describe_counter!("orders_total", "Orders that were placed");
        describe_histogram!("order.seconds", Unit::Seconds, "Time of an order");
        describe_gauge!("orders_open", "Orders that are not finished");
        describe_gauge!("order_generation", "The generation that takes orders");
        gauge!("order_generation").set(worker.generation().0);
        Ok(service_fn(order))
    })
}

async fn order(request: Request) -> Result<Response, BoxError> {
    let path = request.uri().path().to_owned();
    gauge!("orders_open").increment(1);
    counter!("orders_total", "path" => path.clone()).increment(1);
    histogram!("order.seconds").record(1);
    if path == "/kill" {
        kill(Pid::this(), Signal::SIGKILL)?;
    }
    gauge!("orders_open").decrement(1);
    Ok(Response::new("ordered".into()))
}

/// Its own recorder is there before the server's.
pub(crate) fn recorded() -> Result<(), Error> {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .init();
    metrics::set_global_recorder(metrics::NoopRecorder).expect("it is the first");
    let server = apps::server().workers(1).metrics(Metrics::new());
    server.serve(async |_| Ok(service_fn(apps::hello)))
}

fn each_request_counts_once_over_crashes_reloads_upgrades_and_resizes() {
    let installed = Installed::new(this());
    let mut watched = Watched::start_with(|socket| {
        let mut command = Command::new(installed.path());
        command.env(apps::VARIABLE, "own_metrics");
        Server::spawn(command.env(ADMIN, socket))
    });
    let address = watched.server.address();
    let (socket, (all_sent, ended)) = (watched.socket.clone(), channel::<()>());
    std::thread::scope(|scope| {
        // A page at any moment has no less than the page before.
        scope.spawn(move || {
            let mut before = 0;
            while ended.try_recv() == Err(TryRecvError::Empty) {
                let now = metric(&socket, "orders_total");
                assert!(now >= before, "{now} orders after {before}");
                before = now;
            }
        });
        for round in 1..=5 {
            for at in 0..10 {
                assert_eq!(get(address, &format!("/{}", at % 2)).body, "ordered");
            }
            let mut killed = Client::connect(address);
            killed.ask("/kill");
            killed.expect_hang_up();
            watched.server.wait("worker_exited");
            watched.server.wait("worker_ready");
            change(&mut watched.server, round);
            // The admin process learns of a new worker some milliseconds after the notice.
            until(|| watched.metric("orders_total") == round * 11);
            until(|| watched.metric("order_seconds_count") == round * 11);
        }
        drop(all_sent);
    });
    // The gauges of killed workers are gone, and those of the others have no open order.
    until(|| watched.metric("orders_open") == 0);
    until(|| watched.metric("order_generation") == 3);
    let page = watched.get("/metrics").body;
    for line in [
        "# HELP orders_total Orders that were placed.",
        "# TYPE order_seconds histogram",
        "orders_total{path=\"/0\"} 25",
        "orders_total{path=\"/kill\"} 5",
        "order_seconds_bucket{le=\"0.5\"} 0",
        "order_seconds_bucket{le=\"2\"} 55",
        "order_seconds_sum 55",
        "order_generation{slot=\"0\"} 3",
        "prefork_own_metrics_refused_total 0",
    ] {
        assert!(page.lines().any(|it| it == line), "{line} in\n{page}");
    }
    watched.server.stop();
}

/// What becomes of the server in a round of the test.
fn change(server: &mut Server, round: u64) {
    let (signal, finished) = match round {
        2 => (Signal::SIGHUP, "reload_finished"),
        // The upgrade ends with a reload.
        3 => (Signal::SIGUSR2, "reload_finished"),
        4 => (Signal::SIGTTOU, "resized"),
        _ => return,
    };
    server.signal(signal);
    server.wait(finished);
}

fn a_program_with_another_recorder_serves_and_the_log_says_so() {
    let mut server = Server::start_app("other_recorder");
    assert_eq!(get(server.address(), "/").body, "hello");
    let ended = server.stop();
    let line = "the program has set another recorder";
    assert!(ended.log.contains(line), "{}", ended.log);
}
