//! Workers that are replaced after a number of requests, after a time, or when they ask for it.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use prefork_server::{Error, Worker, service_fn};
use serde_json::Value;

use crate::apps;
use crate::client::{Response, get, under_load};
use crate::support::{Server, pid_of};

tests! {
    workers_are_replaced_after_their_requests_and_refuse_no_connection,
    workers_are_replaced_by_age_one_after_the_other,
    workers_that_ask_for_it_at_once_are_replaced_ever_more_slowly,
    replacements_that_cannot_start_do_not_end_a_serving_server,
}

fn workers_are_replaced_after_their_requests_and_refuse_no_connection() {
    let mut server = Server::start(&["--max-requests", "50", "--respond", "hi"]);
    let address = server.address();
    let is_served = |response: Response| assert_eq!(response.body, "hi");
    under_load(address, 1, is_served, || {
        for _ in 0..4 {
            server.wait("worker_draining");
        }
    });
    let ended = server.stop();
    expect_ready_before_draining(&ended.history);
}

fn replacements_that_cannot_start_do_not_end_a_serving_server() {
    let dir = tempfile::tempdir().expect("a directory");
    let logs = dir.path().join("logs");
    fs::create_dir(&logs).expect("a new name");
    let log = logs.join("access").display().to_string();
    let mut server = Server::start(&[
        "--workers",
        "1",
        "--max-requests",
        "4",
        "--crash-limit",
        "1/60s",
        "--respond",
        "hi",
        "--access-log",
        &log,
    ]);
    let serving = pid_of(&server.wait("worker_ready"));
    let address = server.address();
    fs::remove_dir_all(&logs).expect("it is ours");
    let answered = |count| (0..count).all(|_| get(address, "/").body == "hi");
    for _ in 0..3 {
        assert!(answered(100));
        assert_eq!(server.wait("worker_exited")["status"], "exit 3");
    }
    fs::create_dir(&logs).expect("a new name");
    assert!(answered(1000));
    assert_eq!(pid_of(&server.wait("worker_draining")), serving);
    server.stop();
}

fn workers_are_replaced_by_age_one_after_the_other() {
    let mut server = Server::start(&["--max-worker-age", "300ms", "--respond", "hi"]);
    for _ in 0..4 {
        server.wait("worker_draining");
    }
    let ended = server.stop();
    assert!(
        ended
            .notices
            .iter()
            .filter(|notice| notice["notice"] == "worker_exited")
            .all(|notice| notice["status"] == "exit 0"),
        "{}",
        ended.log
    );
    expect_ready_before_draining(&ended.history);
}

fn workers_that_ask_for_it_at_once_are_replaced_ever_more_slowly() {
    let mut server = Server::start_app("restless");
    let address = server.address();
    for most in [100, 200, 400] {
        let pause = server.wait("backing_off")["pause_ms"].clone();
        let pause = pause.as_u64().expect("a number");
        assert!(pause >= most / 2 && pause <= most, "{pause} of {most} ms");
    }
    assert_eq!(get(address, "/").body, "hello", "it still serves");
    server.stop();
}

/// Each worker asks to be replaced as soon as it serves.
pub(crate) fn restless() -> Result<(), Error> {
    apps::server().workers(1).serve(async |worker: Worker| {
        tokio::task::spawn_local(async move {
            let mut often = tokio::time::interval(Duration::from_millis(1));
            loop {
                often.tick().await;
                worker.recycle();
            }
        });
        Ok(service_fn(apps::hello))
    })
}

/// Until the server drains, a slot's worker drains only when the slot has another ready worker.
fn expect_ready_before_draining(notices: &[Value]) {
    let mut ready: BTreeMap<u64, usize> = BTreeMap::new();
    for notice in notices {
        let serving = ready
            .entry(notice["slot"].as_u64().unwrap_or(u64::MAX))
            .or_default();
        match notice["notice"].as_str() {
            Some("draining") => return,
            Some("worker_ready") => *serving += 1,
            Some("worker_draining") => {
                *serving -= 1;
                let pid = pid_of(notice);
                assert!(*serving > 0, "{pid} drained too early: {notices:?}");
            }
            _ => {}
        }
    }
}
