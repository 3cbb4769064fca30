//! Connections that the kernel keeps until their first byte comes.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;
use prefork_server::{Error, Http, service_fn};
use socket2::SockRef;

use crate::apps;
use crate::client::{Client, Over, get};
use crate::handover::settled;
use crate::support::{BINARY, CEILING, Server, app_after, program, until, until_within, words};
use crate::upgrade::Installed;

tests! {
    connections_without_a_first_byte_outlive_reloads_and_upgrades,
    a_connection_without_a_first_byte_comes_to_a_worker_all_the_same,
    connections_are_kept_while_their_worker_has_a_rush,
    a_server_that_ends_in_a_rush_serves_what_the_kernel_keeps,
}

/// What the kernel has of a connection (its `include/net/tcp_states.h`).
const ESTABLISHED: &str = "01";
const SYN_RECV: &str = "03";

/// No worker has these connections: they wait in the kernel.
fn connections_without_a_first_byte_outlive_reloads_and_upgrades() {
    let installed = Installed::new(BINARY);
    let arguments = words("--workers 2 --respond hi --worker-header --defer-accept on");
    let mut server = installed.start(&arguments);
    let address = server.address();
    for signal in [Signal::SIGHUP, Signal::SIGUSR2] {
        let mut clients = Client::connect_many(address, 20);
        server.signal(signal);
        server.wait("reload_finished");
        let workers = settled(&server, 2);
        for client in &mut clients {
            let response = client.get("/");
            assert_eq!(response.body, "hi");
            assert!(workers.contains(&response.worker("pid")));
        }
    }
    let ended = server.stop();
    let finished = ended.notices.last().expect("some");
    assert_eq!(finished["connections"], 2 * 20, "each was accepted once");
}

fn a_connection_without_a_first_byte_comes_to_a_worker_all_the_same() {
    let mut server = Server::start(&["--respond", "hi", "--defer-accept", "on"]);
    let address = server.address();
    let mut silent = Client::connect(address);
    until(|| state(address, &silent).as_deref() == Some(ESTABLISHED));
    assert_eq!(silent.get("/").body, "hi");
}

fn connections_are_kept_while_their_worker_has_a_rush() {
    let mut server = start_ahead_of_others();
    let address = server.address();
    assert!(!is_kept(address, &Client::connect(address)));
    let mut kept = kept_in_a_rush(address, || {});
    until(|| !is_kept(address, &Client::connect(address)));
    assert_eq!(kept.get("/").body, "hello");
}

fn a_server_that_ends_in_a_rush_serves_what_the_kernel_keeps() {
    let mut server = start_ahead_of_others();
    let address = server.address();
    let mut kept = kept_in_a_rush(address, || server.signal(Signal::SIGTERM));
    server.wait("draining");
    assert_eq!(state(address, &kept).as_deref(), Some(ESTABLISHED));
    assert_eq!(kept.get("/").body, "hello");
    // The response is not the last one if the worker has not heard of the drain before it.
    drop(kept);
    server.end_well();
}

/// A server with one worker, which gets the CPU before other programs. A worker that gets hardly
/// any time accepts so few connections that it has no rush. If the user may not ask for this,
/// nice(1) says so and goes on.
fn start_ahead_of_others() -> Server {
    let mut command = program("nice");
    Server::spawn(app_after(command.arg("--adjustment=-10"), "first_byte"))
}

/// One worker. Its drain waits until each connection has got a response, as slow as the client is.
pub(crate) fn app() -> Result<(), Error> {
    let http = Http::new().linger(Duration::from_secs(3600));
    let server = apps::server().workers(1).http(http);
    server.serve(async |_| Ok(service_fn(apps::hello)))
}

/// A connection that the kernel keeps because its worker has a rush. The rush ends after `then`.
fn kept_in_a_rush(address: SocketAddr, then: impl FnOnce()) -> Client {
    let over = AtomicBool::new(false);
    // Some at a time, so that the worker has many to accept whenever it gets the CPU.
    let rush = || {
        while !over.load(Ordering::Relaxed) {
            let mut clients: Vec<_> = (0..32).map(|_| connect_and_reset(address)).collect();
            clients.iter_mut().for_each(|client| client.ask("/"));
            for client in &mut clients {
                assert_eq!(client.response().body, "hello");
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(rush);
        }
        let _over = Over(&over);
        // Beside many other tests a machine makes no rush.
        until_within(6 * CEILING, || is_kept(address, &Client::connect(address)));
        let kept = Client::connect(address);
        then();
        kept
    })
}

/// A client that resets its connection at the end. The kernel forgets it at once: the table of
/// connections stays short, in which the others are looked up.
fn connect_and_reset(address: SocketAddr) -> Client {
    let stream = TcpStream::connect(address).expect("the server accepts");
    let socket = SockRef::from(&stream);
    socket.set_linger(Some(Duration::ZERO)).expect("a socket");
    Client::from_stream(stream).expect("a socket")
}

/// Whether a connection on which nothing was sent is not even in the queue of its listener when a
/// later one has been served.
fn is_kept(address: SocketAddr, silent: &Client) -> bool {
    assert_eq!(get(address, "/").body, "hello");
    state(address, silent).as_deref() == Some(SYN_RECV)
}

/// The state of the server's side of a connection (proc(5), `/proc/net/tcp`).
fn state(server: SocketAddr, client: &Client) -> Option<String> {
    let ports = [server, client.local()].map(|address| format!(":{:04X}", address.port()));
    let table = fs::read_to_string("/proc/net/tcp").expect("it is there");
    let mut lines = table.lines().map(|line| line.split_whitespace().skip(1));
    lines.find_map(|mut fields| {
        let has_ports = ports
            .iter()
            .all(|port| fields.next().is_some_and(|it| it.ends_with(port)));
        fields.next().filter(|_| has_ports).map(str::to_owned)
    })
}
