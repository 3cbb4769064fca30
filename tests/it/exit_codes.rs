//! The first program of the README, and each exit code as its `main` gives it.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::process::Command;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use prefork_server::{Exit, Prefork, Response, handler};
use socket2::{Domain, Socket, Type};

use crate::client::get;
use crate::init::{activated, input};
use crate::support::{Ended, Server, app_after, app_command, until};

tests! {
    the_program_is_the_first_one_of_the_readme,
    a_drained_server_exits_with_0_and_prints_nothing,
    a_system_call_that_fails_exits_with_1,
    a_setting_that_cannot_work_exits_with_2,
    workers_that_cannot_start_exit_with_3,
    crashes_beyond_the_limit_exit_with_4,
    an_address_that_is_taken_exits_with_5,
    inside_a_runtime_no_worker_is_spawned_and_the_error_says_what_to_write,
}

fn main() -> Exit {
    Prefork::bind("127.0.0.1:8080")
        .serve(async |_worker| {
            Ok(handler(async |_request| {
                Ok(Response::new("Hello, World!".into()))
            }))
        })
        .into()
}

/// The program.
pub(crate) fn app() -> Exit {
    main()
}

fn the_program_is_the_first_one_of_the_readme() {
    let readme = fs::read_to_string("README.md").expect("text");
    let (_, program) = readme.split_once("```rust,no_run\n").expect("a program");
    let (program, _) = program.split_once("```").expect("its end");
    let (_, main) = program.split_once("\n\n").expect("imports, then `main`");
    for source in ["examples/hello.rs", file!()] {
        let source = fs::read_to_string(source).expect("text");
        assert!(source.contains(main), "{main}");
    }
}

fn a_drained_server_exits_with_0_and_prints_nothing() {
    let server = serving();
    server.signal(Signal::SIGTERM);
    let ended = server.end();
    assert_eq!((ended.code, &*ended.log), (Some(0), ""));
}

fn a_system_call_that_fails_exits_with_1() {
    // No descriptor is free but one; no file may be longer than 512 bytes, in memory neither.
    let open = "socketpair(2) failed: the limit on open files is reached; raise it (ulimit -n, \
                LimitNOFILE=)";
    let length = "memfd_create(2) failed: the limit on the length of files is reached; raise it \
                  (ulimit -f, LimitFSIZE=)";
    for (limit, why) in [("-n 4", open), ("-f 1", length)] {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("ulimit {limit}; exec \"$@\""), "sh"]);
        let ended = Server::spawn(app_after(&mut shell, "readme")).end();
        let log = format!("Error: {why}\n");
        assert_eq!((ended.code, ended.log), (Some(1), log));
    }
}

fn a_setting_that_cannot_work_exits_with_2() {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let command = &mut activated(&readme(), "$$", "app.socket");
    let ended = Server::spawn_with_input(command, input(socket)).end();
    assert_refused(&ended, 2, "descriptor 3 (app.socket) of LISTEN_FDS");
}

fn workers_that_cannot_start_exit_with_3() {
    // The program that the master runs, and then each worker, is the loader. It gets this program
    // as an argument in the master alone.
    let maps = fs::read_to_string("/proc/self/maps").expect("procfs is mounted");
    let mut paths = maps.lines().filter_map(|line| line.split(' ').next_back());
    let loader = paths.find(|path| path.contains("/ld-"));
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let mut command = Command::new(loader.expect("it is loaded"));
    let command = &mut activated(app_after(&mut command, "readme"), "$$", "app.socket");
    let ended = Server::spawn_with_input(command, input(listener)).end();
    assert_eq!(ended.code, Some(3), "{}", ended.log);
    let error = ended.log.lines().last().unwrap_or_default();
    assert!(error.starts_with("Error: no worker became ready: worker "));
}

fn crashes_beyond_the_limit_exit_with_4() {
    let server = serving();
    let mut killed = BTreeSet::new();
    // The default limit is 10.
    for _ in 0..=10 {
        let next = || {
            server
                .workers()
                .into_iter()
                .find(|pid| !killed.contains(pid))
        };
        until(|| next().is_some());
        let pid = next().expect("only this test kills it");
        kill(pid, Signal::SIGKILL).expect("its master has not reaped it");
        killed.insert(pid);
    }
    assert_refused(
        &server.end(),
        4,
        "11 crashes or failed starts within 60s, the last: worker ",
    );
}

fn an_address_that_is_taken_exits_with_5() {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 8080));
    let taken = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    taken.set_reuse_address(true).expect("an option");
    // The same test may run twice on this machine; each has a listener until its own end.
    taken.set_reuse_port(true).expect("an option");
    // If this fails, another program has the address.
    let _ = taken.bind(&address.into()).and_then(|()| taken.listen(1));
    let ended = Server::spawn(&mut readme()).end();
    let error = io::Error::from(Errno::EADDRINUSE);
    let why = format!("cannot listen on 127.0.0.1:8080: {error}");
    assert_refused(&ended, 5, &why);
}

fn inside_a_runtime_no_worker_is_spawned_and_the_error_says_what_to_write() {
    let ended = Server::start_app("inside_a_runtime").end();
    assert_eq!(ended.count("worker_spawned"), 0);
    assert_refused(
        &ended,
        2,
        "`main` is inside a tokio runtime; write `fn main() -> Exit` without",
    );
}

/// One line says why.
fn assert_refused(ended: &Ended, code: i32, why: &str) {
    let Ended { log, .. } = ended;
    assert_eq!(ended.code, Some(code), "{log}");
    assert!(log.starts_with(&format!("Error: {why}")), "{log}");
    assert_eq!(log.lines().count(), 1, "{log}");
}

/// The README's program.
fn readme() -> Command {
    app_command("readme")
}

/// The README's program on a free port, which it takes from a service manager. It has answered.
fn serving() -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let command = &mut activated(&readme(), "$$", "app.socket");
    let server = Server::spawn_with_input(command, input(listener));
    assert_eq!(get(address, "/").body, "Hello, World!");
    server
}
