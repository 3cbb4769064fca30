//! HTTPS connections that one worker hands over to another, with their sessions.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;

use nix::sys::signal::Signal;
use rustls::version::{TLS12, TLS13};

use crate::client::Response;
use crate::https::{Authority, Private};
use crate::support::{BINARY, Server, until};
use crate::tls::{self, VERSIONS};
use crate::upgrade::Installed;

tests! {
    reloads_and_upgrades_close_no_connection,
    busy_connections_of_one_worker_are_spread_over_both,
    a_request_of_which_a_part_has_come_is_served,
    a_client_that_a_replaced_ca_accepted_is_served_no_more,
    a_connection_ends_where_the_next_worker_speaks_no_tls,
}

fn response(client: &mut Private) -> Response {
    let response = client.response();
    assert_eq!(response.body, "hi");
    assert_eq!(response.header("connection"), None, "it stays open");
    response
}

fn get(client: &mut Private) -> Response {
    client.ask("/");
    response(client)
}

fn expect_closed(mut client: Private) {
    let end = client.stream().read(&mut [0]);
    assert!(matches!(end, Ok(0) | Err(_)), "{end:?}");
}

fn pids(clients: &mut [Private]) -> BTreeSet<u32> {
    let clients = clients.iter_mut();
    clients.map(|client| get(client).worker("pid")).collect()
}

/// Has all workers replaced, and waits until the old ones have exited.
fn replace(server: &mut Server, how: Signal) {
    let old = server.workers();
    server.signal(how);
    server.wait("reload_finished");
    until(|| !server.workers().iter().any(|worker| old.contains(worker)));
}

fn reloads_and_upgrades_close_no_connection() {
    let authority = Authority::new();
    let installed = Installed::new(BINARY);
    let flags = authority.flags();
    let mut arguments = vec!["--workers", "2", "--respond", "hi", "--worker-header"];
    arguments.extend(flags.iter().map(String::as_str));
    let mut server = installed.start(&arguments);
    let address = server.address();
    let browsers = VERSIONS.map(|version| authority.client(version));
    let clients = browsers.iter().cycle().take(16);
    let mut clients: Vec<_> = clients.map(|it| it.client(address)).collect();
    let mut before = pids(&mut clients);
    for how in [Signal::SIGHUP, Signal::SIGHUP, Signal::SIGUSR2] {
        replace(&mut server, how);
        let after = pids(&mut clients);
        assert!(after.is_disjoint(&before), "{how}: {after:?}");
        before = after;
    }
    server.signal(Signal::SIGTERM);
    clients.into_iter().for_each(expect_closed);
    let ended = server.end();
    assert_eq!(ended.code, Some(0), "{}", ended.log);
    let finished = ended.notices.last().expect("some");
    assert_eq!(finished["connections"], 16);
    assert!(
        finished["handed_over"].as_u64() >= Some(3 * 16),
        "{finished}"
    );
}

/// A worker that has all the busy clients gives one half of them away.
fn busy_connections_of_one_worker_are_spread_over_both() {
    let authority = Authority::new();
    let options = [
        "--workers",
        "1",
        "--respond",
        "hi",
        "--worker-header",
        "--delay",
        "1ms",
    ];
    let mut server = tls::start(&authority, &options);
    let address = server.address();
    let browser = authority.client(&TLS13);
    let mut clients: Vec<_> = (0..4).map(|_| browser.client(address)).collect();
    assert_eq!(pids(&mut clients).len(), 1);
    server.signal(Signal::SIGTTIN);
    server.wait("worker_ready");
    while pids(&mut clients).len() < 2 {}
}

fn a_request_of_which_a_part_has_come_is_served() {
    let authority = Authority::new();
    let mut server = tls::start(&authority, &["--workers", "1", "--respond", "hi"]);
    let address = server.address();
    for version in VERSIONS {
        let browser = authority.client(version);
        let mut client = browser.client(address);
        get(&mut client);
        client.send("GET / HTTP/1.1\r\nho");
        server.signal(Signal::SIGHUP);
        server.wait("worker_draining");
        client.send("st: test\r\n\r\n");
        response(&mut client);
        let exited = server.wait("worker_exited");
        assert_eq!(exited["cut"], 0);
    }
}

/// As a ticket of it is not accepted.
fn a_client_that_a_replaced_ca_accepted_is_served_no_more() {
    let (authority, other) = (Authority::new(), Authority::new());
    let ca = authority.path("ca.pem");
    let file = ca.display().to_string();
    let options = [
        "--tls-client-ca",
        &file,
        "--respond",
        "hi",
        "--worker-header",
    ];
    let mut server = tls::start(&authority, &options);
    let address = server.address();
    let browsers = VERSIONS.map(|version| authority.client_signed_by(version, &authority));
    let mut clients = browsers.each_ref().map(|it| it.client(address));
    let before = pids(&mut clients);
    replace(&mut server, Signal::SIGHUP);
    assert!(
        pids(&mut clients).is_disjoint(&before),
        "the CA is the same"
    );
    fs::copy(other.path("ca.pem"), ca).expect("writable");
    replace(&mut server, Signal::SIGHUP);
    clients.into_iter().for_each(expect_closed);
}

fn a_connection_ends_where_the_next_worker_speaks_no_tls() {
    let authority = Authority::new();
    let installed = Installed::new(BINARY);
    let flags = authority.flags();
    let mut arguments = vec!["--workers", "1", "--respond", "hi"];
    arguments.extend(flags.iter().map(String::as_str));
    let mut server = installed.start(&arguments);
    let address = server.address();
    let mut client = authority.client(&TLS12).client(address);
    get(&mut client);
    let new = format!("exec {BINARY} --announce-fd 1 --workers 1 --respond hi --listen {address}");
    installed.replace_by_script("/bin/sh", &new);
    replace(&mut server, Signal::SIGUSR2);
    expect_closed(client);
}
