//! Starting, reloading, resizing, and the files that a running server makes.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::net::UnixListener;
use std::process::Command;

use nix::sys::signal::{Signal, kill};

use crate::client::{Client, Response, get, get_unix, under_load};
use crate::support::{Server, binary, refused, until, words};

tests! {
    every_slot_responds,
    a_unix_address_is_served_and_its_file_removed,
    a_reload_or_an_upgrade_makes_a_removed_socket_file_again,
    a_socket_file_that_an_abandoned_reload_has_made_again_is_served,
    several_addresses_and_shared_listeners_are_served,
    the_pid_file_exists_as_long_as_the_master,
    a_reload_or_an_upgrade_makes_a_removed_pid_file_again,
    a_second_server_with_the_pid_file_does_not_start,
    a_reload_replaces_every_worker_and_refuses_no_connection,
    a_reload_that_cannot_start_leaves_the_old_workers_serving_and_says_why,
    an_abandoned_reload_announces_its_own_reason_and_respawns_no_worker,
    signals_add_and_remove_slots,
    logs_are_reopened_in_every_process,
    an_echo_of_a_body_beyond_the_limit_is_413,
    notices_go_to_any_descriptor,
}

fn every_slot_responds() {
    let mut server = Server::start(&["--workers", "4", "--respond", "hi", "--worker-header"]);
    let address = server.address();
    let slots: BTreeSet<_> = (0..200).map(|_| get(address, "/").worker("slot")).collect();
    assert_eq!(slots, BTreeSet::from([0, 1, 2, 3]));
    let ended = server.stop();
    assert_eq!(ended.count("worker_exited"), 4);
    assert_eq!(ended.notices.last().expect("some")["outcome"], "drained");
}

fn a_unix_address_is_served_and_its_file_removed() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("app.sock");
    let listen = format!("unix:{}", path.display());
    let mut server = Server::start(&["--listen", &listen, "--respond", "hi"]);
    assert_eq!(server.addresses(), [listen]);
    for _ in 0..10 {
        assert_eq!(get_unix(&path), "hi");
    }
    server.stop();
    assert!(!path.exists(), "the socket file is left");
}

/// Also that of the admin process. A file that another server has made is left alone.
fn a_reload_or_an_upgrade_makes_a_removed_socket_file_again() {
    let dir = tempfile::tempdir().expect("a directory");
    let [path, admin] = ["app.sock", "admin.sock"].map(|name| dir.path().join(name));
    let [listen, admin_address] = [&path, &admin].map(|path| format!("unix:{}", path.display()));
    let mut server = Server::start(&[
        "--listen",
        &listen,
        "--admin",
        &admin_address,
        "--respond",
        "hi",
    ]);
    server.wait("serving");
    for signal in [Signal::SIGHUP, Signal::SIGUSR2] {
        for path in [&path, &admin] {
            fs::remove_file(path).expect("it is there");
        }
        server.signal(signal);
        let reopened = server.wait("listener_reopened");
        assert_eq!(reopened["address"], listen);
        server.wait("reload_finished");
        assert_eq!(get_unix(&path), "hi");
        assert!(!get_unix(&admin).is_empty());
    }
    fs::remove_file(&path).expect("it is there");
    let _other = UnixListener::bind(&path).expect("a new path");
    server.reload();
    let ended = server.stop();
    assert!(
        ended.log.contains("cannot be opened again"),
        "{}",
        ended.log
    );
    assert!(path.exists(), "it is that of the other server");
    assert!(!admin.exists());
}

/// By the workers that have the socket of the file before.
fn a_socket_file_that_an_abandoned_reload_has_made_again_is_served() {
    let dir = tempfile::tempdir().expect("a directory");
    let (path, files) = (dir.path().join("app.sock"), dir.path().join("site"));
    fs::create_dir(&files).expect("a directory");
    fs::write(files.join("index.html"), "hi").expect("a file");
    let listen = format!("unix:{}", path.display());
    let mut server = Server::start(&["--listen", &listen, files.to_str().expect("text")]);
    server.wait("serving");
    fs::rename(&files, dir.path().join("elsewhere")).expect("it is ours");
    fs::remove_file(&path).expect("it is there");
    server.signal(Signal::SIGHUP);
    server.wait("listener_reopened");
    server.wait("reload_abandoned");
    for _ in 0..10 {
        assert_eq!(get_unix(&path), "hi");
    }
}

fn several_addresses_and_shared_listeners_are_served() {
    let mut server = Server::start(&words(
        "--listen 127.0.0.1:0 --listen [::1]:0 --listeners shared --respond hi",
    ));
    let addresses = server.addresses();
    assert_eq!(addresses.len(), 2);
    for address in addresses {
        assert_eq!(get(address.parse().expect("an address"), "/").body, "hi");
    }
    // All workers accept from a shared listener, so no worker has to adopt it.
    server.signal(Signal::SIGTTOU);
    server.wait("resized");
    let ended = server.stop();
    assert_eq!(ended.count("adopted") + ended.count("released"), 0);
}

fn the_pid_file_exists_as_long_as_the_master() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("pid");
    let text = path.to_str().expect("text");
    let mut server = Server::start(&["--pid-file", text, "--respond", "hi"]);
    server.address();
    let pid = std::fs::read_to_string(&path).expect("it is written before `serving`");
    assert_eq!(pid.trim(), server.pid.to_string());
    server.stop();
    assert!(!path.exists());
}

fn a_reload_or_an_upgrade_makes_a_removed_pid_file_again() {
    let dir = tempfile::tempdir().expect("a directory");
    let runtime = dir.path().join("run");
    fs::create_dir(&runtime).expect("a new name");
    let path = runtime.join("pid");
    let text = path.to_str().expect("text");
    let mut server = Server::start(&["--workers", "1", "--pid-file", text, "--respond", "hi"]);
    server.address();
    for signal in [Signal::SIGHUP, Signal::SIGUSR2] {
        fs::remove_dir_all(&runtime).expect("it is there");
        server.signal(signal);
        server.wait("reload_finished");
        fs::create_dir(&runtime).expect("it was not made");
        server.signal(signal);
        server.wait("reload_finished");
        let pid = fs::read_to_string(&path).expect("it is there again");
        assert_eq!(pid.trim(), server.pid.to_string());
    }
    let ended = server.stop();
    assert!(!path.exists());
    let failed = ended.log.matches("the pid file is not made again").count();
    assert_eq!(failed, 2, "{}", ended.log);
}

/// Also after a reload and an upgrade of the first one; but one that was killed holds nothing.
fn a_second_server_with_the_pid_file_does_not_start() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("pid");
    let text = path.to_str().expect("text");
    let start = || Server::start(&["--workers", "1", "--pid-file", text, "--respond", "hi"]);
    let mut server = start();
    server.address();
    let refuse_a_second = |first: &Server| {
        let mut second = binary();
        let arguments = ["--listen", "127.0.0.1:0", "--pid-file", text, "--echo"];
        let said = refused(second.args(arguments));
        let why = format!("pid file {text}: the server with process id {}", first.pid);
        assert!(said.contains(&why), "{said}");
        let pid = std::fs::read_to_string(&path).expect("it is there");
        assert_eq!(pid.trim(), first.pid.to_string());
    };
    refuse_a_second(&server);
    server.reload();
    refuse_a_second(&server);
    server.signal(Signal::SIGUSR2);
    server.wait("upgrade_finished");
    refuse_a_second(&server);
    server.signal(Signal::SIGKILL);
    server.end();
    let mut next = start();
    next.address();
    refuse_a_second(&next);
    next.stop();
    assert!(!path.exists());
}

fn a_reload_replaces_every_worker_and_refuses_no_connection() {
    let mut server = Server::start(&["--respond", "hi", "--worker-header"]);
    let address = server.address();
    let is_served = |response: Response| assert_eq!(response.body, "hi");
    under_load(address, 1, is_served, || {
        for generation in 2..5 {
            let finished = server.reload();
            assert_eq!(finished["generation"], generation);
            // A draining worker may still accept what was in its queue.
            until(|| get(address, "/").worker("generation") == generation);
        }
    });
}

fn a_reload_that_cannot_start_leaves_the_old_workers_serving_and_says_why() {
    let parent = tempfile::tempdir().expect("a directory");
    let files = parent.path().join("site");
    std::fs::create_dir(&files).expect("a directory");
    std::fs::write(files.join("index.html"), "hi").expect("a file");
    let mut server = Server::start(&[files.to_str().expect("text"), "--worker-header"]);
    let address = server.address();
    // The old workers have their directory open. The next generation's workers do not find it.
    let elsewhere = parent.path().join("elsewhere");
    std::fs::rename(&files, &elsewhere).expect("it is ours");
    let is_old = |response: Response| {
        assert_eq!((&*response.body, response.worker("generation")), ("hi", 1));
    };
    under_load(address, 1, is_old, || {
        for generation in 2..5 {
            server.signal(Signal::SIGHUP);
            let abandoned = server.wait("reload_abandoned");
            assert_eq!(abandoned["generation"], generation);
            let why = abandoned["why"].as_str().expect("a reason");
            assert!(why.contains("No such file or directory"), "{why}");
        }
    });
    std::fs::rename(&elsewhere, &files).expect("it is ours");
    assert_eq!(server.reload()["generation"], 5);
}

/// The notice has the reload's own reason, not the exit of a worker that died before.
fn an_abandoned_reload_announces_its_own_reason_and_respawns_no_worker() {
    let mut server = Server::start_app("sour");
    server.address();
    kill(server.workers()[0], Signal::SIGKILL).expect("it lives");
    server.wait_for("hook", |told| told["hook"] == "worker_respawned");
    server.wait("worker_ready");
    server.signal(Signal::SIGHUP);
    let why = server.wait("reload_abandoned")["why"].clone();
    let why = why.as_str().expect("a reason");
    assert!(why.contains("the milk is sour"), "{why}");
    server.signal(Signal::SIGHUP);
    let why = server.wait("reload_abandoned")["why"].clone();
    assert_eq!(why, "a new worker was not ready in time");
    assert_eq!(server.log().matches("not ready yet: the app").count(), 1);
    server.signal(Signal::SIGHUP);
    // Slot by slot, and no respawn is announced.
    for hook in ["worker_command", "worker_spawned"].repeat(2) {
        assert_eq!(server.wait("hook")["hook"], hook);
    }
    server.wait("reload_finished");
}

fn signals_add_and_remove_slots() {
    let mut server = Server::start(&["--workers", "1", "--respond", "hi", "--worker-header"]);
    let address = server.address();
    server.signal(Signal::SIGTTIN);
    assert_eq!(server.wait("resized")["workers"], 2);
    server.wait_for("worker_ready", |ready| ready["slot"] == 1);
    let slots: BTreeSet<_> = (0..100).map(|_| get(address, "/").worker("slot")).collect();
    assert_eq!(slots, BTreeSet::from([0, 1]));
    server.signal(Signal::SIGTTOU);
    assert_eq!(server.wait("resized")["workers"], 1);
    server.wait_for("worker_exited", |exited| exited["slot"] == 1);
    // The removed slot's listener still gets its share of connections: slot 0 accepts from it.
    for _ in 0..100 {
        assert_eq!(get(address, "/").worker("slot"), 0);
    }
    server.signal(Signal::SIGTTOU);
    let mut client = Client::connect(address);
    assert_eq!(client.get("/").body, "hi", "the last slot stays");
}

fn logs_are_reopened_in_every_process() {
    let mut server = Server::start_app("hooks");
    server.address();
    server.signal(Signal::SIGUSR1);
    let mut reopened = Vec::new();
    for _ in 0..3 {
        let told = server.wait_for("hook", |told| told["hook"] == "reopen_logs");
        reopened.push(told["more"].as_str().expect("a role").to_owned());
    }
    reopened.sort();
    assert_eq!(reopened, ["Master", "Worker", "Worker"]);
}

/// A worker has the master's command line, but none of its descriptors.
fn notices_go_to_any_descriptor() {
    let binary = binary();
    let script = "exec \"$0\" --listen 127.0.0.1:0 --workers 1 --announce-fd 9 9>&1 >/dev/null";
    let mut server = Server::spawn(
        Command::new("sh")
            .args(["-c", script])
            .arg(binary.get_program()),
    );
    server.address();
    server.stop();
}

fn an_echo_of_a_body_beyond_the_limit_is_413() {
    let mut server = Server::start(&["--echo", "--max-body-size", "10", "--workers", "1"]);
    let mut client = Client::connect(server.address());
    client.send("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 10\r\n\r\n0123456789");
    assert_eq!(client.response().body, "0123456789");
    client.send("POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n");
    client.send("b\r\n0123456789a\r\n0\r\n\r\n");
    let response = client.response();
    assert_eq!(response.status(), 413, "{}", response.head);
    assert_eq!(response.header("connection"), Some("close"));
    client.expect_end();
}
