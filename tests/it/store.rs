//! What the service manager keeps for the next master: listeners, with their queues.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};

use nix::sys::signal::{Signal, kill};
use nix::unistd::geteuid;
use socket2::{Domain, Socket, Type};

use crate::client::{Client, get};
use crate::init::{Manager, activated, copy, input, respond};
use crate::support::{Server, until};

tests! {
    listeners_that_the_manager_keeps_come_back_with_their_queues,
    a_store_that_is_too_small_is_logged_once,
    a_kept_listener_of_an_address_that_is_not_configured_is_closed,
    an_address_is_free_although_the_manager_still_has_the_old_listener,
    a_kept_listener_that_does_not_listen_at_its_address_is_replaced,
    a_kept_listener_of_this_machine_needs_no_user,
}

fn listeners_that_the_manager_keeps_come_back_with_their_queues() {
    let (manager, mut server) = storing("2", "8");
    let address = server.address();
    let (first, second) = (manager.hear(), manager.hear());
    assert_eq!(
        first,
        "FDSTORE=1\nFDPOLL=0\nFDNAME=prefork-server/slot-0/127.0.0.1,0\nfds=1"
    );
    assert_eq!(
        second,
        "FDSTORE=1\nFDPOLL=0\nFDNAME=prefork-server/slot-1/127.0.0.1,0\nfds=1"
    );
    manager.hear_until("READY=1");
    server.signal(Signal::SIGTTIN);
    let third = manager.hear_until("FDSTORE=1");
    assert!(third.contains("slot-2/127.0.0.1,0"), "{third}");
    kill(server.pid, Signal::SIGKILL).expect("it lives");
    server.end();
    until_refused(address);

    // The manager's listeners, and a client that connected while no server ran.
    let kept = Socket::new(Domain::IPV4, Type::STREAM.cloexec(), None).expect("a socket");
    kept.set_reuse_address(true).expect("an option");
    kept.set_reuse_port(true).expect("an option");
    kept.bind(&address.into()).expect("the address is free");
    kept.listen(128).expect("it is bound");
    let mut client = Client::connect(address);
    client.ask("/");
    let name = "prefork-server/slot-2/127.0.0.1,0";
    let arguments = ["--workers", "1", "--worker-header"];
    let mut command = activated(&respond(&arguments), "$$", name);
    let mut server = Server::spawn_with_input(&mut command, input(kept));
    assert_eq!(server.wait("resized")["workers"], 1);
    assert_eq!(server.address(), address, "the port of the first server");
    // Slot 2 does not exist any more: slot 0 accepts from its listener.
    assert_eq!(client.response().body, "hi");
    until(|| server.workers().len() == 1);
    for _ in 0..50 {
        assert_eq!(get(address, "/").worker("slot"), 0);
    }
}

fn a_store_that_is_too_small_is_logged_once() {
    let (_manager, mut server) = storing("3", "1");
    server.address();
    let log = server.log();
    assert_eq!(
        log.matches("raise FileDescriptorStoreMax").count(),
        1,
        "{log}"
    );
}

fn a_kept_listener_of_an_address_that_is_not_configured_is_closed() {
    let manager = Manager::new();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    let name = format!("prefork-server/shared/127.0.0.1,{}", address.port());
    let mut command = activated(&respond(&[]), "$$", &name);
    command.env("NOTIFY_SOCKET", manager.path());
    let mut server = Server::spawn_with_input(&mut command, input(listener));
    drop(command);
    assert_eq!(manager.hear(), format!("FDSTOREREMOVE=1\nFDNAME={name}\n"));
    assert_ne!(server.address(), address);
    until_refused(address);
}

/// Waits until no process listens there. One that another test starts has the descriptors of this
/// process until it executes its program.
fn until_refused(address: SocketAddr) {
    let connect = || Client::try_connect(address).map(drop);
    until(|| connect().is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused));
}

/// From all interfaces to one, on the same port.
fn an_address_is_free_although_the_manager_still_has_the_old_listener() {
    let listener = TcpListener::bind("0.0.0.0:0").expect("a free port");
    let port = listener.local_addr().expect("bound").port();
    let wanted = SocketAddr::from(([127, 0, 0, 1], port));
    let name = format!("prefork-server/shared/0.0.0.0,{port}");
    let mut command = activated(&respond(&["--listen", &wanted.to_string()]), "$$", &name);
    let mut server = Server::spawn_with_input(&mut command, input(copy(&listener)));
    assert_eq!(server.addresses()[1], wanted.to_string());
    assert_eq!(get(wanted, "/").body, "hi");
}

/// The manager still has it, and a socket without `SO_REUSEADDR` keeps its address.
fn a_kept_listener_that_does_not_listen_at_its_address_is_replaced() {
    let bound = || {
        let socket = Socket::new(Domain::IPV4, Type::STREAM.cloexec(), None).expect("a socket");
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        socket.bind(&any.into()).expect("a free port");
        socket
    };
    let elsewhere = bound();
    elsewhere.listen(8).expect("it is bound");
    for (kept, host) in [(bound(), "127.0.0.1"), (elsewhere, "127.0.0.2")] {
        let local = kept.local_addr().expect("bound").as_socket();
        let port = local.expect("a TCP address").port();
        let name = format!("prefork-server/slot-0/{host},{port}");
        let wanted = format!("{host}:{port}");
        let manager = Manager::new();
        let mut command = activated(&respond(&["--listen", &wanted]), "$$", &name);
        command.env("NOTIFY_SOCKET", manager.path());
        let mut server = Server::spawn_with_input(&mut command, input(kept));
        assert_eq!(manager.hear(), format!("FDSTOREREMOVE=1\nFDNAME={name}\n"));
        assert_eq!(server.addresses()[1], wanted);
        let address = wanted.parse().expect("an address");
        assert_eq!(get(address, "/").body, "hi");
    }
}

/// A server that root has started without `--user` must start again after its master died.
fn a_kept_listener_of_this_machine_needs_no_user() {
    for (name, is_kept) in [("prefork-server/slot-0/127.0.0.1,0", true), ("web", false)] {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        let mut command = activated(respond(&[]).env_remove("PREFORK_USER"), "$$", name);
        let mut server = Server::spawn_with_input(&mut command, input(listener));
        if is_kept || !geteuid().is_root() {
            assert_eq!(server.address(), address);
            assert_eq!(get(address, "/").body, "hi");
        } else {
            assert_eq!(server.end().code, Some(2), "a unit may listen anywhere");
        }
    }
}

/// A server with so many workers, and its manager, which keeps at most `max` listeners.
fn storing(workers: &str, max: &str) -> (Manager, Server) {
    let manager = Manager::new();
    let mut command = respond(&["--workers", workers]);
    command
        .env("NOTIFY_SOCKET", manager.path())
        .env("FDSTORE", max);
    let server = Server::spawn(&mut command);
    (manager, server)
}
