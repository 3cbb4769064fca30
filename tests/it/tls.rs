//! HTTPS: bad files, renewed files, and sessions that resume after a worker is replaced.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use prefork_server::{Response, TestServer, Tls, handler};
use rustls::SupportedProtocolVersion;
use rustls::version::{TLS12, TLS13};

use crate::admin::ask;
use crate::apps;
use crate::client::{Client, get, parse_response};
use crate::https::{Authority, Browser, Visit};
use crate::placing::{assert_even, until_they_know_each_other};
use crate::support::{
    BINARY, CEILING, Server, app_command, binary, can_change_user, pid_of, proc_file, refused,
    until, until_within,
};
use crate::upgrade::Installed;

tests! {
    https_is_served_with_the_configured_certificate,
    a_server_in_this_process_speaks_tls,
    sessions_resume_on_every_worker_after_a_crash_a_reload_and_an_upgrade,
    sessions_resume_across_a_rotation_of_keys,
    an_upgrade_can_add_and_remove_tls,
    ticket_keys_are_in_no_core_and_workers_can_only_read_them,
    bad_files_are_refused_before_anything_is_bound,
    a_reload_with_bad_files_touches_no_worker_and_says_why,
    a_respawned_worker_serves_while_its_files_are_being_replaced,
    the_end_of_a_certificate_is_told_after_an_upgrade_without_its_file,
    a_key_that_only_the_master_can_read_is_enough,
    a_reload_loads_the_renewed_certificate,
    http_on_a_tls_port_gets_400_with_the_reason,
    clients_are_accepted_by_their_certificates,
    a_session_accepted_by_a_replaced_client_ca_does_not_resume,
    a_handshake_that_takes_too_long_is_closed,
    tls_is_refused_when_the_app_serves_the_connections,
    connections_are_spread_evenly,
}

pub(crate) const VERSIONS: [&SupportedProtocolVersion; 2] = [&TLS12, &TLS13];

/// With this number of visits each of four workers gets one: it fails once in 25 000 runs.
const VISITS: usize = 40;

pub(crate) fn start(authority: &Authority, arguments: &[&str]) -> Server {
    let flags = authority.flags();
    let all: Vec<_> = flags.iter().map(String::as_str).collect();
    Server::start(&[&all, arguments].concat())
}

/// The slots that responded. All visits must be resumed.
fn resumed(visits: impl Iterator<Item = Visit>) -> BTreeSet<u32> {
    visits
        .map(|visit| {
            assert!(visit.is_resumed(), "{:?}", visit.response);
            visit.response.worker("slot")
        })
        .collect()
}

/// A client of each version that has tickets for many more visits.
fn regulars(authority: &Authority, address: SocketAddr) -> [Browser; 2] {
    VERSIONS.map(|version| {
        let browser = authority.client(version);
        assert!(!browser.visit(address).is_resumed(), "the first time");
        let slots = resumed((0..VISITS).map(|_| browser.visit(address)));
        assert_eq!(
            slots.len(),
            4,
            "every worker opens the tickets of the others"
        );
        browser.gather(address, 4 * VISITS);
        browser
    })
}

fn https_is_served_with_the_configured_certificate() {
    let authority = Authority::new();
    let mut server = start(&authority, &["--respond", "hi", "--listen", "127.0.0.1:0"]);
    let address = server.address();
    for version in VERSIONS {
        let visit = authority.client(version).visit(address);
        assert_eq!(visit.response.body, "hi");
    }
    let stranger = Authority::new().client(&TLS13);
    assert!(
        stranger.try_visit(address).is_err(),
        "it does not know the CA"
    );
    let ended = server.stop();
    assert!(
        ended.log.contains(&format!("https://{address}/")),
        "{}",
        ended.log
    );
}

fn a_server_in_this_process_speaks_tls() {
    let authority = Authority::new();
    let tls = Tls::new()
        .certificate_file(authority.path("cert.pem"))
        .key_pem(fs::read(authority.path("key.pem")).expect("it is ours"));
    let server = TestServer::start_with(|server| {
        server
            .tls(tls)
            .serve(async |_worker| Ok(handler(async |_request| Ok(Response::new("hi".into())))))
    });
    let server = server.expect("it serves");
    let browser = authority.client(&TLS13);
    let [first, second] = [(); 2].map(|()| browser.visit(server.address()));
    server.stop().expect("it drains");
    assert_eq!(
        (first.response.body.as_str(), first.is_resumed()),
        ("hi", false)
    );
    assert!(second.is_resumed());
}

fn sessions_resume_on_every_worker_after_a_crash_a_reload_and_an_upgrade() {
    let authority = Authority::new();
    let installed = Installed::new(BINARY);
    let flags = authority.flags();
    let flags: Vec<_> = flags.iter().map(String::as_str).collect();
    let arguments = ["--workers", "4", "--worker-header", "--respond", "hi"];
    let mut server = installed.start(&[&flags, &arguments[..]].concat());
    let address = server.address();
    let browsers = regulars(&authority, address);
    let all_resume = |after: &str| {
        for browser in &browsers {
            let slots = resumed((0..VISITS).map(|_| browser.visit(address)));
            assert_eq!(slots.len(), 4, "after {after}");
        }
    };
    let killed = server.workers()[0];
    kill(killed, Signal::SIGKILL).expect("it lives");
    server.wait_for("worker_exited", |exited| pid_of(exited) == killed);
    server.wait("worker_ready");
    all_resume("a crash");
    server.reload();
    all_resume("a reload");
    installed.replace(BINARY);
    server.upgrade();
    all_resume("an upgrade");
    server.stop();
}

fn ticket_keys_are_in_no_core_and_workers_can_only_read_them() {
    let authority = Authority::new();
    let mut server = start(&authority, &["--respond", "hi"]);
    server.address();
    let workers = server.workers().into_iter().map(|worker| (worker, "r--s"));
    for (pid, rights) in workers.chain([(server.pid, "rw-s")]) {
        let maps = proc_file(pid, "smaps").expect("it lives");
        let (before, after) = maps.split_once("prefork-ticket-keys").expect("mapped");
        let head = before.lines().last().expect("where it is mapped");
        assert_eq!(head.split(' ').nth(1), Some(rights), "{head}");
        let flags = after.lines().find(|line| line.starts_with("VmFlags:"));
        let is_left_out = flags
            .expect("the kernel tells")
            .split(' ')
            .any(|flag| flag == "dd");
        assert!(is_left_out, "{flags:?}");
        assert!(!after.contains("prefork-ticket-keys"), "mapped once");
    }
}

/// The canary of such an upgrade starts without the keys that the workers share.
fn an_upgrade_can_add_and_remove_tls() {
    let authority = Authority::new();
    let installed = Installed::new(BINARY);
    let mut server = installed.start(&["--workers", "2", "--respond", "hi"]);
    let address = server.address();
    let new = format!("exec {BINARY} --announce-fd 1 --workers 2 --respond hi --listen {address}");
    let upgrade = |server: &mut Server, script: &str| {
        installed.replace_by_script("/bin/sh", script);
        server.replace_workers(Signal::SIGUSR2);
    };
    let private = format!("{new} --worker-header {}", authority.flags().join(" "));
    upgrade(&mut server, &private);
    let browser = authority.client(&TLS13);
    browser.visit(address);
    let slots = resumed((0..VISITS).map(|_| browser.visit(address)));
    assert_eq!(slots.len(), 2);
    upgrade(&mut server, &new);
    assert_eq!(get(address, "/").body, "hi");
}

/// The key is replaced every 3 s here. Tickets from just before must resume just after, in both
/// versions.
fn sessions_resume_across_a_rotation_of_keys() {
    let authority = Authority::new();
    let mut server = app(&authority, "short_tickets");
    let address = server.address();
    let are_resumed = || {
        let (begun, browsers) = gathered_before_a_rotation(&authority, address);
        let mut visits = browsers.iter().flat_map(|browser| [browser; 8]);
        let are_resumed = visits.all(|browser| browser.visit(address).is_resumed());
        // A ticket is good for 3 whole seconds. On a busy machine it may be older now.
        assert!(are_resumed || begun.elapsed() > Duration::from_secs(2));
        are_resumed
    };
    until_within(6 * CEILING, are_resumed);
}

/// Clients with eight tickets each, when the key that has sealed them has just been replaced. No
/// ticket is from before that time.
fn gathered_before_a_rotation(
    authority: &Authority,
    address: SocketAddr,
) -> (Instant, [Browser; 2]) {
    // The key that seals now. A client of TLS 1.2 without a ticket gets its name in plain text.
    let key = || authority.client(&TLS12).visit(address).key_name();
    let (start, mut first) = (Instant::now(), key());
    let mut sealed_by_first = None;
    loop {
        let begun = Instant::now();
        let browsers = VERSIONS.map(|version| {
            let browser = authority.client(version);
            browser.gather(address, 8);
            browser
        });
        let now = key();
        assert!(start.elapsed() < 6 * CEILING, "too slow for any key");
        if now == first {
            sealed_by_first = Some((begun, browsers));
        } else if let Some(gathered) = sealed_by_first.take() {
            return gathered;
        } else {
            first = now;
        }
    }
}

fn bad_files_are_refused_before_anything_is_bound() {
    let (authority, other) = (Authority::new(), Authority::new());
    let path = |name: &str| authority.path(name).display().to_string();
    let (certificate, key) = (path("cert.pem"), path("key.pem"));
    let others_key = other.path("key.pem").display().to_string();
    for (arguments, says) in [
        (
            ["--tls-cert", "/no/such.pem", "--tls-key", &key],
            "cannot read the certificate file /no/such.pem: No such file".to_owned(),
        ),
        (
            ["--tls-cert", &key, "--tls-key", &certificate],
            format!("the certificate file {key} holds a key and no certificate; are the two"),
        ),
        (
            ["--tls-cert", &certificate, "--tls-key", &others_key],
            format!("the key file {others_key} does not belong to the certificate in"),
        ),
    ] {
        // An address that this machine does not have: binding it would fail with another error.
        let mut command = binary();
        command.args(["--listen", "192.0.2.1:1", "--user", "root"]);
        let said = refused(command.args(arguments));
        assert!(said.contains(&says), "{arguments:?}: {said}");
    }
}

fn a_reload_with_bad_files_touches_no_worker_and_says_why() {
    let authority = Authority::new();
    let mut server = start(&authority, &["--respond", "hi"]);
    let address = server.address();
    let workers = server.workers();
    let good = fs::read(authority.path("key.pem")).expect("it is ours");
    for (bad, says) in [
        (&b"nonsense"[..], "holds no private key"),
        (b"", "holds no"),
    ] {
        fs::write(authority.path("key.pem"), bad).expect("writable");
        server.signal(Signal::SIGHUP);
        let abandoned = server.wait("reload_abandoned");
        let why = abandoned["why"].as_str().expect("a reason");
        let file = authority.path("key.pem").display().to_string();
        assert!(why.contains(&file) && why.contains(says), "{why}");
        assert_eq!(server.workers(), workers, "no worker was replaced");
        assert_eq!(authority.client(&TLS13).visit(address).response.body, "hi");
    }
    fs::write(authority.path("key.pem"), good).expect("writable");
    server.reload();
    server.stop();
}

fn a_respawned_worker_serves_while_its_files_are_being_replaced() {
    let authority = Authority::new();
    let mut server = start(&authority, &["--workers", "1", "--respond", "hi"]);
    let address = server.address();
    fs::remove_file(authority.path("cert.pem")).expect("it is ours");
    fs::write(authority.path("key.pem"), "half of").expect("writable");
    let killed = server.workers()[0];
    kill(killed, Signal::SIGKILL).expect("it lives");
    server.wait_for("worker_exited", |exited| pid_of(exited) == killed);
    server.wait("worker_ready");
    assert_eq!(authority.client(&TLS13).visit(address).response.body, "hi");
}

fn the_end_of_a_certificate_is_told_after_an_upgrade_without_its_file() {
    let authority = Authority::new();
    let socket = authority.path("admin.sock");
    let admin = format!("unix:{}", socket.display());
    let mut server = start(
        &authority,
        &["--workers", "1", "--respond", "hi", "--admin", &admin],
    );
    server.address();
    let end = || {
        let page = ask(&socket, "GET", "/metrics").body;
        let mut lines = page.lines().map(str::to_owned);
        lines.find(|line| line.starts_with("prefork_tls_certificate_end_timestamp_seconds{"))
    };
    until(|| end().is_some());
    let before = end();
    fs::remove_file(authority.path("cert.pem")).expect("it is ours");
    server.signal(Signal::SIGUSR2);
    server.wait("reload_finished");
    // The next admin process.
    until(|| end() == before);
}

fn a_key_that_only_the_master_can_read_is_enough() {
    if !can_change_user() {
        return;
    }
    let authority = Authority::new();
    // No other user may enter the directory.
    let only_owner = fs::Permissions::from_mode(0o700);
    fs::set_permissions(authority.path(""), only_owner).expect("it is ours");
    let mut server = start(&authority, &["--user", "nobody", "--respond", "hi"]);
    let address = server.address();
    for signal in [Signal::SIGHUP, Signal::SIGUSR2] {
        let browser = authority.client(&TLS13);
        assert_eq!(browser.visit(address).response.body, "hi");
        server.signal(signal);
        server.wait("reload_finished");
        assert!(browser.visit(address).is_resumed(), "after {signal}");
    }
}

fn a_reload_loads_the_renewed_certificate() {
    let (old, new) = (Authority::new(), Authority::new());
    let mut server = start(&old, &["--respond", "hi"]);
    let address = server.address();
    assert_eq!(old.client(&TLS13).visit(address).response.body, "hi");
    for name in ["cert.pem", "key.pem"] {
        fs::copy(new.path(name), old.path(name)).expect("writable");
    }
    server.replace_workers(Signal::SIGHUP);
    assert!(old.client(&TLS13).try_visit(address).is_err());
    assert_eq!(new.client(&TLS13).visit(address).response.body, "hi");
}

fn http_on_a_tls_port_gets_400_with_the_reason() {
    let authority = Authority::new();
    let mut server = start(&authority, &["--respond", "hi"]);
    let mut client = Client::connect(server.address());
    let response = client.get("/");
    assert_eq!(response.status(), 400, "{}", response.head);
    assert!(response.body.contains("TLS"), "{}", response.body);
    client.expect_end();
}

fn clients_are_accepted_by_their_certificates() {
    let authority = Authority::new();
    let ca = authority.path("ca.pem").display().to_string();
    for (mode, without) in [(&["--tls-client-auth", "optional"][..], true), (&[], false)] {
        let arguments = [&["--tls-client-ca", &ca, "--respond", "hi"][..], mode].concat();
        let mut server = start(&authority, &arguments);
        let address = server.address();
        for version in VERSIONS {
            let known = authority.client_signed_by(version, &authority);
            assert_eq!(known.visit(address).response.body, "hi");
            assert!(known.visit(address).is_resumed(), "{version:?}");
            let unsigned = authority.client(version);
            assert_eq!(
                unsigned.try_visit(address).is_ok(),
                without,
                "{mode:?} {version:?}"
            );
            let stranger = authority.client_signed_by(version, &Authority::new());
            assert!(stranger.try_visit(address).is_err(), "{mode:?} {version:?}");
        }
    }
}

/// A ticket accepts a client without its certificate, so it must not outlive the CA that accepted
/// the certificate.
fn a_session_accepted_by_a_replaced_client_ca_does_not_resume() {
    let (authority, other) = (Authority::new(), Authority::new());
    let ca = authority.path("ca.pem");
    let mut server = start(
        &authority,
        &[
            "--tls-client-ca",
            &ca.display().to_string(),
            "--respond",
            "hi",
        ],
    );
    let address = server.address();
    let browsers = VERSIONS.map(|version| authority.client_signed_by(version, &authority));
    for browser in &browsers {
        browser.visit(address);
        assert!(browser.visit(address).is_resumed());
    }
    fs::copy(other.path("ca.pem"), ca).expect("writable");
    server.replace_workers(Signal::SIGHUP);
    for browser in &browsers {
        assert!(
            browser.try_visit(address).is_err(),
            "its CA is not accepted any more"
        );
    }
}

fn a_handshake_that_takes_too_long_is_closed() {
    let authority = Authority::new();
    let mut server = start(&authority, &["--header-timeout", "200ms"]);
    let address = server.address();
    let mut silent = Client::connect(address);
    let mut slow = Client::connect(address);
    // The head of a record whose rest never comes.
    slow.send("\u{16}\u{3}\u{1}\u{1}");
    silent.expect_end();
    slow.expect_end();
}

fn tls_is_refused_when_the_app_serves_the_connections() {
    let authority = Authority::new();
    let ended = app(&authority, "tls_in_run").end();
    assert_eq!(ended.code, Some(2), "{}", ended.log);
    assert!(
        ended.log.contains("Prefork::tls is for serve"),
        "{}",
        ended.log
    );
}

/// One of [`apps`], with the files in the authority's directory.
pub(crate) fn app(authority: &Authority, name: &str) -> Server {
    Server::spawn(app_command(name).env(apps::FILES, authority.path("")))
}

fn connections_are_spread_evenly() {
    let authority = Authority::new();
    let mut server = start(&authority, &["--respond", "hi", "--worker-header"]);
    let address = server.address();
    until_they_know_each_other(&server);
    let browser = authority.client(&TLS13);
    let open: Vec<_> = (0..4).map(|_| browser.connect(address)).collect();
    let slots = open.into_iter().map(|mut connection| {
        let request = b"GET / HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n";
        connection.write_all(request).expect("it is open");
        let mut response = Vec::new();
        connection.read_to_end(&mut response).expect("it is served");
        let response = parse_response(&mut response).expect("a whole response");
        response.worker("slot")
    });
    assert_even(&server, slots);
}
