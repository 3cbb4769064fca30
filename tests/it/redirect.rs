//! Addresses without TLS whose requests are redirected to https.

use std::fs;
use std::net::{SocketAddr, TcpListener};

use nix::sys::signal::Signal;
use nix::unistd::geteuid;
use rustls::version::TLS13;

use crate::client::Client;
use crate::https::Authority;
use crate::init::{activated, input};
use crate::support::{BINARY, Server, binary, output, refused, words};
use crate::tls::start;
use crate::upgrade::Installed;

tests! {
    only_the_listener_of_the_redirect_redirects,
    a_redirect_needs_tls,
    root_may_not_redirect_on_a_public_address_without_a_user_for_the_workers,
    a_passed_listener_redirects_and_one_that_is_not_passed_is_named,
    an_address_still_redirects_after_an_upgrade_that_does_not_name_it,
    after_an_upgrade_to_tls_open_plain_connections_are_told_of_https,
    a_redirect_is_in_the_access_log,
}

/// More than the listener of one worker gets: some are placed.
const CLIENTS: usize = 20;

/// The addresses of a server that serves one and redirects another.
fn both(server: &mut Server) -> [SocketAddr; 2] {
    let addresses = server.addresses();
    [&addresses[0], &addresses[1]].map(|it| it.parse().expect("TCP"))
}

fn assert_redirects(client: &mut Client, host: &str, place: &str) {
    client.send(&format!("GET /a?b HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    let redirect = client.response();
    assert_eq!(redirect.status(), 308, "{redirect:?}");
    assert_eq!(redirect.header("location"), Some(place));
}

/// Also if the kernel chooses both ports of one host.
fn only_the_listener_of_the_redirect_redirects() {
    let authority = Authority::new();
    for asked in ["127.0.0.1:0", "127.0.0.2:0"] {
        let arguments = ["--redirect-to-https", asked, "--respond", "hi"];
        let mut server = start(&authority, &arguments);
        let [secure, plain] = both(&mut server);
        let mut clients = Client::connect_many(plain, CLIENTS);
        let place = format!("https://a.example:{}/a?b", secure.port());
        let told = format!("https://{secure}/  http://{plain}/ (redirects to https)\n");
        assert!(server.log().contains(&told), "{}", server.log());
        for client in &mut clients {
            assert_redirects(client, "a.example", "https://a.example/a?b");
            assert_redirects(client, "a.example:8080", &place);
        }
        let visit = authority.client(&TLS13).visit(secure);
        assert_eq!(visit.response.body, "hi");
    }
}

fn a_redirect_needs_tls() {
    let said = refused(binary().args(["--redirect-to-https", "127.0.0.2:0"]));
    assert!(said.contains("--tls-cert"), "{said}");
}

fn root_may_not_redirect_on_a_public_address_without_a_user_for_the_workers() {
    if !geteuid().is_root() {
        println!("not root: workers cannot run as root");
        return;
    }
    let mut command = binary();
    command.env_remove("PREFORK_USER");
    command.args(words("--listen 127.0.0.1:0 --redirect-to-https 0.0.0.0:0"));
    let ended = output(command.args(["--tls-cert", "a", "--tls-key", "b"]));
    let said = String::from_utf8(ended.stderr).expect("text");
    assert!(said.contains("Workers would run as root"), "{said}");
}

/// The service manager's listener is for IPv4 too, and the option means IPv4.
fn a_passed_listener_redirects_and_one_that_is_not_passed_is_named() {
    let authority = Authority::new();
    let listener = TcpListener::bind("[::]:0").expect("a free port");
    let port = listener.local_addr().expect("bound").port();
    let mut command = binary();
    command
        .args(authority.flags())
        .args(["--announce-fd", "1", "--respond", "hi"])
        .args(["--redirect-to-https", &port.to_string()])
        .args(["--redirect-to-https", "127.0.0.3:1"])
        .env("PREFORK_USER", geteuid().to_string());
    let mut command = activated(&command, "$$", "app.socket");
    let mut server = Server::spawn_with_input(&mut command, input(listener));
    server.address();
    let mut client = Client::connect(([127, 0, 0, 1], port).into());
    assert_redirects(&mut client, "a.example", "https://a.example/a?b");
    let log = server.log();
    let warning = "127.0.0.3:1 of redirect_to_https is no address of LISTEN_FDS";
    assert!(log.contains(warning), "{log}");
    assert_eq!(log.matches("of redirect_to_https").count(), 1, "{log}");
}

/// Upgrades the server to one with this address and these arguments, until no old worker is left.
fn upgrade(installed: &Installed, server: &mut Server, address: SocketAddr, arguments: &str) {
    let new = format!("exec {BINARY} --announce-fd 1 --listen {address} {arguments}");
    installed.replace_by_script("/bin/sh", &new);
    server.replace_workers(Signal::SIGUSR2);
}

fn an_address_still_redirects_after_an_upgrade_that_does_not_name_it() {
    let authority = Authority::new();
    let installed = Installed::new(BINARY);
    let flags = authority.flags();
    let mut arguments: Vec<_> = flags.iter().map(String::as_str).collect();
    arguments.extend(["--workers", "2", "--respond", "hi"]);
    let redirect = ["--redirect-to-https", "127.0.0.1:0"];
    let mut server = installed.start(&[&arguments[..], &redirect].concat());
    let [secure, plain] = both(&mut server);
    upgrade(&installed, &mut server, secure, &arguments.join(" "));
    for _ in 0..CLIENTS {
        let mut client = Client::connect(plain);
        assert_redirects(&mut client, "a.example", "https://a.example/a?b");
    }
    let visit = authority.client(&TLS13).visit(secure);
    assert_eq!(visit.response.body, "hi");
}

/// They are handed over to workers that speak TLS, and get what new plain connections get there.
fn after_an_upgrade_to_tls_open_plain_connections_are_told_of_https() {
    let authority = Authority::new();
    let installed = Installed::new(BINARY);
    let arguments = ["--workers", "2", "--respond", "hi"];
    let mut server = installed.start(&arguments);
    let address = server.address();
    let mut clients = Client::connect_many(address, CLIENTS);
    for client in &mut clients {
        assert_eq!(client.get("/").body, "hi");
    }
    let arguments = [authority.flags().join(" "), arguments.join(" ")].join(" ");
    upgrade(&installed, &mut server, address, &arguments);
    clients.push(Client::connect(address));
    for client in &mut clients {
        let told = client.get("/");
        assert_eq!(told.status(), 400, "{told:?}");
        assert!(told.body.contains("https://"), "{told:?}");
    }
}

fn a_redirect_is_in_the_access_log() {
    let authority = Authority::new();
    let log = authority.path("access.log");
    let arguments = ["--redirect-to-https", "127.0.0.2:0", "--respond", "hi"];
    let logged = ["--access-log", log.to_str().expect("text")];
    let mut server = start(&authority, &[&arguments[..], &logged].concat());
    let [_, plain] = both(&mut server);
    let mut client = Client::connect(plain);
    client.send("GET /a?b HTTP/1.1\r\nHost: a.example\r\n\r\n");
    let redirect = client.response();
    let id = redirect.header("x-request-id").expect("an id");
    server.stop();
    let log = fs::read_to_string(log).expect("it was written");
    let line = log.lines().find(|line| line.contains(id));
    let line = line.expect("a line");
    assert!(line.contains(r#""GET /a?b HTTP/1.1" 308 0 "#), "{line}");
}
