//! HTTPS connections that one worker hands over to another, with their sessions.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::time::Instant;

use nix::sys::signal::Signal;
use rustls::version::{TLS12, TLS13};

use crate::apps;
use crate::client::Response;
use crate::handover::{fail_with_canary, settled};
use crate::https::{Authority, Browser, Private};
use crate::support::{BINARY, Server, pid_of, words};
use crate::tls::{self, VERSIONS};
use crate::upgrade::Installed;
use crate::websocket::{HASTY, Talk};

tests! {
    reloads_upgrades_and_resizes_close_no_connection,
    busy_connections_of_one_worker_are_spread_over_both,
    a_request_of_which_a_part_has_come_is_served,
    a_client_that_a_replaced_ca_accepted_is_served_no_more,
    a_connection_ends_where_the_next_worker_speaks_no_tls,
    a_failed_canary_hands_its_connections_back,
    recycling_closes_no_connection,
    a_new_certificate_is_for_new_connections,
    a_client_can_end_its_half_after_a_move,
    a_connection_that_is_too_old_ends_with_a_response_after_a_move,
    large_bodies_pass_whole_in_both_directions_after_a_move,
    a_file_for_a_slow_client_is_sent_between_two_moves,
    a_tunnel_stays_with_its_worker_and_passes_bytes_to_its_end,
    websockets_get_going_away_and_are_cut_after_the_grace,
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

fn reloads_upgrades_and_resizes_close_no_connection() {
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
        server.replace_workers(how);
        let after = pids(&mut clients);
        assert!(after.is_disjoint(&before), "{how}: {after:?}");
        before = after;
    }
    server.signal(Signal::SIGTTOU);
    let last = settled(&server, 1);
    assert_eq!(pids(&mut clients), last);
    server.signal(Signal::SIGTERM);
    clients.into_iter().for_each(expect_closed);
    let ended = server.end_well();
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
    let options = words("--workers 1 --respond hi --worker-header --delay 1ms");
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
    server.replace_workers(Signal::SIGHUP);
    assert!(
        pids(&mut clients).is_disjoint(&before),
        "the CA is the same"
    );
    fs::copy(other.path("ca.pem"), ca).expect("writable");
    server.replace_workers(Signal::SIGHUP);
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
    server.replace_workers(Signal::SIGUSR2);
    expect_closed(client);
}

fn a_failed_canary_hands_its_connections_back() {
    let authority = Authority::new();
    let browsers = VERSIONS.map(|version| authority.client(version));
    fail_with_canary(&[(apps::FILES, authority.path(""))], |address| {
        [0, 1, 0, 1, 0, 1, 0, 1].map(|at: usize| browsers[at].client(address))
    });
}

fn recycling_closes_no_connection() {
    let authority = Authority::new();
    let options = ["--max-requests", "40", "--respond", "hi", "--worker-header"];
    let mut server = tls::start(&authority, &options);
    let address = server.address();
    let browsers = VERSIONS.map(|version| authority.client(version));
    let clients = browsers.iter().cycle().take(8);
    let mut clients: Vec<_> = clients.map(|it| it.client(address)).collect();
    let mut workers = BTreeSet::new();
    while workers.len() < 6 {
        workers.extend(pids(&mut clients));
    }
    server.signal(Signal::SIGTERM);
    clients.into_iter().for_each(expect_closed);
    let ended = server.end_well();
    assert_eq!(ended.notices.last().expect("some")["connections"], 8);
}

fn a_new_certificate_is_for_new_connections() {
    let authority = Authority::new();
    let mut server = tls::start(&authority, &["--respond", "hi", "--worker-header"]);
    let address = server.address();
    let shown = |client: &mut Private| {
        let certificates = client.stream().conn.peer_certificates();
        certificates.expect("the server's")[0].clone()
    };
    for version in VERSIONS {
        let mut client = authority.client(version).client(address);
        let before = get(&mut client).worker("pid");
        authority.issue("localhost", "cert.pem", "key.pem");
        server.replace_workers(Signal::SIGHUP);
        assert_ne!(get(&mut client).worker("pid"), before);
        let mut new = authority.client(version).client(address);
        get(&mut new);
        assert_ne!(shown(&mut new), shown(&mut client));
    }
}

/// A client whose session has moved once.
fn moved(browser: &Browser, server: &mut Server, address: SocketAddr) -> Private {
    let mut client = browser.client(address);
    let before = client.get("/").body;
    server.replace_workers(Signal::SIGHUP);
    assert_ne!(client.get("/").body, before, "it is the worker's pid");
    client
}

/// For each version a client whose session has moved, and then one whose session has not.
fn moved_and_own(authority: &Authority, server: &mut Server) -> impl Iterator<Item = Private> {
    let address = server.address();
    let browsers = VERSIONS.map(|version| authority.client(version));
    let moved = browsers.each_ref().map(|it| moved(it, server, address));
    let own = browsers.map(|it| it.client(address));
    moved.into_iter().chain(own)
}

fn close_notify(client: &mut Private) {
    client.stream().conn.send_close_notify();
    client.stream().flush().expect("it is open");
}

fn a_client_can_end_its_half_after_a_move() {
    let authority = Authority::new();
    let mut server = tls::app(&authority, "tunnel");
    let address = server.address();
    for version in VERSIONS {
        let browser = authority.client(version);
        let mut client = moved(&browser, &mut server, address);
        close_notify(&mut client);
        client.expect_end();
        let mut client = moved(&browser, &mut server, address);
        client.ask("/");
        close_notify(&mut client);
        client.response();
        client.expect_end();
    }
}

fn a_connection_that_is_too_old_ends_with_a_response_after_a_move() {
    let authority = Authority::new();
    let options = ["--max-connection-age", "300ms", "--respond", "hi"];
    let mut server = tls::start(&authority, &options);
    let address = server.address();
    for version in VERSIONS {
        let mut client = authority.client(version).client(address);
        server.replace_workers(Signal::SIGHUP);
        while client.get("/").header("connection") != Some("close") {}
        client.expect_end();
    }
}

/// Numbered letters.
fn letters(len: usize) -> Vec<u8> {
    (0..len)
        .map(|at| b'a' + ((at ^ at >> 8) % 26) as u8)
        .collect()
}

fn large_bodies_pass_whole_in_both_directions_after_a_move() {
    let authority = Authority::new();
    let mut server = tls::app(&authority, "tunnel");
    let address = server.address();
    let body = letters(3_000_000);
    for version in VERSIONS {
        let mut client = moved(&authority.client(version), &mut server, address);
        let length = body.len();
        client.send(&format!(
            "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: {length}\r\n\r\n"
        ));
        client.send_bytes(&body);
        let response = client.response();
        assert!(response.body.as_bytes() == body, "other bytes");
    }
}

/// The client reads the beginning, and the rest when its worker drains.
fn a_file_for_a_slow_client_is_sent_between_two_moves() {
    let authority = Authority::new();
    let dir = tempfile::tempdir().expect("a directory");
    let file = letters(8 << 20);
    fs::write(dir.path().join("file"), &file).expect("writable");
    fs::write(dir.path().join("small"), "hi").expect("writable");
    let dir = dir.path().to_str().expect("a path");
    let mut server = tls::start(&authority, &["--workers", "1", "--worker-header", dir]);
    let address = server.address();
    let small = |client: &mut Private| client.get("/small").worker("generation");
    let browsers = VERSIONS.map(|version| authority.client(version));
    let mut clients = browsers.each_ref().map(|it| it.client(address));
    clients
        .iter_mut()
        .for_each(|client| assert_eq!(small(client), 1));
    server.replace_workers(Signal::SIGHUP);
    for client in &mut clients {
        assert_eq!(small(client), 2);
        client.ask("/file");
        client.wait_for(64);
    }
    server.signal(Signal::SIGHUP);
    server.wait("worker_draining");
    for client in &mut clients {
        let response = client.response();
        assert_eq!(response.worker("generation"), 2);
        assert_eq!(response.header("connection"), None);
        assert!(response.body.as_bytes() == file, "other bytes");
    }
    server.wait("reload_finished");
    clients
        .iter_mut()
        .for_each(|client| assert_eq!(small(client), 3));
}

/// A client, after the upgrade.
fn tunnel(mut client: Private) -> Private {
    client.send("GET /tunnel HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n");
    let response = client.response_without_body();
    assert_eq!(response.status(), 101, "{response:?}");
    client
}

fn a_tunnel_stays_with_its_worker_and_passes_bytes_to_its_end() {
    let authority = Authority::new();
    let mut server = tls::app(&authority, "tunnel");
    let clients = moved_and_own(&authority, &mut server);
    let mut tunnels: Vec<_> = clients.map(tunnel).collect();
    let [old] = server.workers()[..] else {
        panic!("there is one worker");
    };
    let part = letters(50_000);
    let pass = |tunnel: &mut Private| {
        for _ in 0..10 {
            tunnel.send_bytes(&part);
            assert!(tunnel.take(part.len()) == part, "other bytes");
        }
    };
    tunnels.iter_mut().for_each(pass);
    server.signal(Signal::SIGHUP);
    server.wait("worker_draining");
    server.wait("reload_finished");
    for mut tunnel in tunnels {
        pass(&mut tunnel);
        assert!(server.workers().contains(&old), "it has tunnels");
        tunnel.send("last");
        close_notify(&mut tunnel);
        assert_eq!(tunnel.take(4), b"last");
        tunnel.expect_end();
    }
    let exited = server.wait_for("worker_exited", |exited| pid_of(exited) == old);
    assert_eq!(
        (&exited["status"], &exited["cut"]),
        (&"exit 0".into(), &0.into())
    );
}

fn websockets_get_going_away_and_are_cut_after_the_grace() {
    let authority = Authority::new();
    let mut server = tls::app(&authority, "hasty_websocket");
    let clients = moved_and_own(&authority, &mut server);
    let mut talks: Vec<_> = clients.map(Talk::on).collect();
    talks.iter_mut().for_each(Talk::is_echoed);
    let asked = Instant::now();
    server.signal(Signal::SIGHUP);
    talks.iter_mut().for_each(Talk::expect_close);
    talks.into_iter().for_each(|talk| expect_closed(talk.0));
    assert!(asked.elapsed() >= HASTY, "{:?}", asked.elapsed());
    let ended = server.stop();
    assert_eq!(ended.notices.last().expect("some")["upgrades_cut"], 4);
}
