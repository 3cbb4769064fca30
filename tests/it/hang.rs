//! Hung workers, and workers that only look hung.

use nix::sys::ptrace;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::Pid;

use crate::client::{Client, Response, get_unix};
use crate::support::{BINARY, Server, can_change_user, pid_of, program, until, words};

tests! {
    a_hung_worker_is_replaced_and_its_queue_served,
    a_worker_with_slow_responses_does_not_count_as_hung,
    an_app_that_does_not_accept_does_not_count_as_hung,
    a_hung_worker_is_found_by_the_queues_that_it_adopted,
    a_hung_worker_is_found_by_the_connections_in_its_inbox,
    a_hung_worker_is_found_by_a_queue_that_others_share,
    a_hung_worker_is_found_by_its_open_connections,
    a_stopped_worker_counts_as_hung_only_when_work_waits,
    a_server_goes_on_and_ends_without_workers_that_the_kernel_does_not_end,
    a_master_without_the_right_to_end_a_worker_says_so_once,
}

/// The worker that responded.
fn pid_in(response: &Response) -> Pid {
    Pid::from_raw(response.body.parse().expect("the app sends its pid"))
}

fn a_hung_worker_is_replaced_and_its_queue_served() {
    let mut server = Server::start_app("hangs");
    let address = server.address();
    let mut victim = Client::connect(address);
    let hung = pid_in(&victim.get("/"));
    victim.ask("/hang");
    server.wait("blocked");
    // Some clients wait for the other worker, which serves them, and some for the hung worker.
    let mut clients = Client::ask_many(address, 40, "/");
    assert_eq!(pid_of(&server.wait("worker_hung")), hung);
    let exited = server.wait_for("worker_exited", |exited| pid_of(exited) == hung);
    let status = exited["status"].as_str().expect("text");
    assert!(status.starts_with("signal 6"), "{status}");
    for client in &mut clients {
        assert_ne!(pid_in(&client.response()), hung);
    }
    server.wait("worker_ready");
}

/// Each response takes longer than the hang timeout, and the event loop runs all the time.
fn a_worker_with_slow_responses_does_not_count_as_hung() {
    let mut server = Server::start(&words(
        "--respond hi --workers 1 --hang-timeout 1s --delay 2500ms",
    ));
    let address = server.address();
    let mut clients = Client::ask_many(address, 20, "/");
    for client in &mut clients {
        assert_eq!(client.response().body, "hi");
    }
    let ended = server.stop();
    assert_eq!(ended.count("worker_hung"), 0, "{}", ended.log);
}

/// The app's queue fills as the queue of a hung worker does.
fn an_app_that_does_not_accept_does_not_count_as_hung() {
    let mut server = Server::start_app("rests");
    let address = server.address();
    let _clients = Client::connect_many(address, 40);
    assert_eq!(server.wait("worker_hung")["slot"], 1);
    // The master checks both slots in the same round, slot 0 first.
    assert_eq!(server.wait("worker_exited")["slot"], 1);
}

/// Most new connections wait in queues that the worker has adopted.
fn a_hung_worker_is_found_by_the_queues_that_it_adopted() {
    let mut server = Server::start(&["--workers", "16", "--hang-timeout", "1s", "--respond", "hi"]);
    let address = server.address();
    for _ in 1..16 {
        server.signal(Signal::SIGTTOU);
        server.wait("resized");
    }
    until(|| server.workers().len() == 1);
    let only = server.workers()[0];
    kill(only, Signal::SIGSTOP).expect("it lives");
    let mut client = Client::connect(address);
    client.ask("/");
    assert_eq!(pid_of(&server.wait("worker_hung")), only);
    assert_eq!(client.response().body, "hi");
}

/// No connection waits in a queue. Connections wait in the worker's inbox only.
fn a_hung_worker_is_found_by_the_connections_in_its_inbox() {
    let mut server = Server::start_app("hangs");
    let mut ready = [(); 2].map(|()| server.wait("worker_ready"));
    ready.sort_by_key(|ready| ready["slot"].as_u64());
    let [stays, retires] = ready.map(|ready| pid_of(&ready));
    let address = server.address();
    let mut clients = Vec::new();
    while clients.len() < 3 {
        let mut client = Client::connect(address);
        if pid_in(&client.get("/")) == retires {
            clients.push(client);
        }
    }
    kill(stays, Signal::SIGSTOP).expect("it lives");
    server.signal(Signal::SIGTTOU);
    server.wait_for("worker_exited", |exited| pid_of(exited) == retires);
    assert_eq!(pid_of(&server.wait("worker_hung")), stays);
    let next = pid_of(&server.wait("worker_ready"));
    for client in &mut clients {
        assert_eq!(pid_in(&client.get("/")), next);
    }
}

/// The kernel does not say which worker should accept, so each is asked for a heartbeat.
fn a_hung_worker_is_found_by_a_queue_that_others_share() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("app.sock");
    let unix = format!("unix:{}", path.display());
    let arguments = ["--workers", "2", "--hang-timeout", "1s", "--respond", "hi"];
    let stopped = |more: [&str; 2]| {
        let mut server = Server::start(&[&arguments[..], &more].concat());
        let workers = [(); 2].map(|()| pid_of(&server.wait("worker_ready")));
        for worker in workers {
            kill(worker, Signal::SIGSTOP).expect("it lives");
        }
        (server, workers)
    };
    // At least the first worker hangs: the next one may have taken the connection since.
    let assert_hung = |mut server: Server, workers: [Pid; 2]| {
        let hung = pid_of(&server.wait("worker_hung"));
        assert!(workers.contains(&hung), "{hung}");
    };
    let (server, workers) = stopped(["--listen", &unix]);
    assert_eq!(get_unix(&path), "hi");
    assert_hung(server, workers);
    let (mut server, workers) = stopped(["--listeners", "shared"]);
    assert_eq!(Client::connect(server.address()).get("/").body, "hi");
    assert_hung(server, workers);
}

/// Its client may send a request at any time, and a load balancer opens no other connection.
fn a_hung_worker_is_found_by_its_open_connections() {
    let mut server = Server::start_app("hangs");
    let mut client = Client::connect(server.address());
    let stopped = pid_in(&client.get("/"));
    kill(stopped, Signal::SIGSTOP).expect("it lives");
    assert_eq!(pid_of(&server.wait("worker_hung")), stopped);
}

fn a_stopped_worker_counts_as_hung_only_when_work_waits() {
    let mut server = Server::start_app("hangs");
    let workers = [(); 2].map(|()| pid_of(&server.wait("worker_ready")));
    let address = server.address();
    let mut client = Client::connect(address);
    let busy = pid_in(&client.get("/"));
    let idle = workers.into_iter().find(|&pid| pid != busy);
    let idle = idle.expect("there are two");
    kill(idle, Signal::SIGSTOP).expect("it lives");
    // When the master notices this, the idle worker has been stopped for longer.
    client.ask("/hang");
    assert_eq!(pid_of(&server.wait("worker_hung")), busy);
    server.wait("worker_ready");
    // At least one of these connections comes to the idle worker's listener.
    let mut clients = Client::ask_many(address, 40, "/");
    assert_eq!(pid_of(&server.wait("worker_hung")), idle);
    // SIGABRT does not end a stopped process.
    let exited = server.wait_for("worker_exited", |exited| pid_of(exited) == idle);
    assert_eq!(exited["status"], "signal 9");
    for client in &mut clients {
        assert_ne!(pid_in(&client.response()), idle);
    }
}

/// A process that was killed does not end for its parent while a debugger holds it.
fn a_server_goes_on_and_ends_without_workers_that_the_kernel_does_not_end() {
    let hold = |worker| ptrace::seize(worker, ptrace::Options::empty());
    let arguments = "--respond hi --workers 1 --hang-timeout 1s --drain-timeout 100ms";
    let mut server = Server::start(&words(arguments));
    let hung = pid_of(&server.wait("worker_ready"));
    if hold(hung).is_err() {
        println!("not tested: ptrace(2) is not allowed");
        return;
    }
    kill(hung, Signal::SIGSTOP).expect("it lives");
    let mut client = Client::connect(server.address());
    client.ask("/");
    assert_eq!(pid_of(&server.wait("worker_stuck")), hung);
    let next = pid_of(&server.wait("worker_ready"));
    assert_eq!(client.response().body, "hi");
    hold(next).expect("as before");
    let ended = server.stop();
    assert_eq!(ended.count("worker_stuck"), 1, "{}", ended.log);
    assert_eq!(ended.count("worker_exited"), 0, "{}", ended.log);
    for pid in [hung, next].map(|worker| format!("pid={worker}")) {
        let named =
            |line: &str| line.contains("the kernel has not ended it") && line.contains(&pid);
        assert!(ended.log.lines().any(named), "{}", ended.log);
    }
    for worker in [hung, next] {
        waitpid(worker, None).expect("it is held");
    }
}

fn a_master_without_the_right_to_end_a_worker_says_so_once() {
    if !can_change_user() {
        return;
    }
    let mut command = program("setpriv");
    command.args(["--bounding-set=-kill", "--inh-caps=-kill", BINARY]);
    command.args([
        "--listen",
        "127.0.0.1:0",
        "--announce-fd",
        "1",
        "--respond",
        "hi",
    ]);
    command.args(["--user", "nobody", "--workers", "1", "--hang-timeout", "1s"]);
    let mut server = Server::spawn(&mut command);
    let hung = pid_of(&server.wait("worker_ready"));
    kill(hung, Signal::SIGSTOP).expect("it lives");
    let mut client = Client::connect(server.address());
    client.ask("/");
    assert_eq!(pid_of(&server.wait("worker_stuck")), hung);
    assert_eq!(client.response().body, "hi");
    kill(hung, Signal::SIGKILL).expect("it lives");
    let log = server.stop().log;
    assert_eq!(log.matches("CAP_KILL").count(), 1, "{log}");
    for untrue in ["was sent SIGKILL", "kill(2) failed"] {
        assert!(!log.contains(untrue), "{log}");
    }
}
