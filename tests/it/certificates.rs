//! Several certificates, and the choice of versions and cipher suites.

use std::fs;
use std::net::SocketAddr;

use rustls::version::{TLS12, TLS13};
use rustls::{CipherSuite, NamedGroup};

use crate::https::Authority;
use crate::support::{Server, binary, refused, until};
use nix::sys::signal::Signal;

tests! {
    a_client_gets_the_certificate_with_the_name_it_asks_for,
    a_reload_reads_all_certificates_again,
    after_an_upgrade_each_worker_has_the_certificates_of_now,
    a_certificate_comes_with_its_ocsp_response,
    versions_and_cipher_suites_can_be_limited,
    the_key_exchange_is_the_best_of_the_provider,
    a_certificate_without_a_key_is_refused,
}

/// A server with certificates for `localhost`, `example.net` and `*.example.org`.
fn start(authority: &Authority, options: &[&str]) -> (Server, SocketAddr) {
    let mut flags = authority.flags().to_vec();
    for (name, file) in [("example.net", "net"), ("*.example.org", "org")] {
        authority.issue(name, file, &format!("{file}.key"));
        for (flag, file) in [
            ("--tls-cert", file.to_owned()),
            ("--tls-key", format!("{file}.key")),
        ] {
            flags.extend([flag.into(), authority.path(&file).display().to_string()]);
        }
    }
    let mut all: Vec<_> = flags.iter().map(String::as_str).collect();
    all.extend(options);
    let mut server = Server::start(&all);
    let address = server.address();
    (server, address)
}

fn a_client_gets_the_certificate_with_the_name_it_asks_for() {
    let authority = Authority::new();
    let (_server, address) = start(&authority, &[]);
    for version in [&TLS12, &TLS13] {
        // The client verifies the name.
        let visit = |name| authority.client(version).try_visit_host(address, name);
        for name in ["localhost", "example.net", "EXAMPLE.net", "a.example.org"] {
            visit(name).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
        for name in ["example.org", "b.a.example.org", "net"] {
            let error = visit(name)
                .err()
                .expect("no certificate has this name")
                .to_string();
            assert!(error.contains("not valid for name"), "{name}: {error}");
            assert!(
                error.contains("localhost"),
                "the first certificate; {name}: {error}"
            );
        }
    }
}

fn a_reload_reads_all_certificates_again() {
    let authority = Authority::new();
    let (mut server, address) = start(&authority, &[]);
    authority.issue("renewed.test", "net", "net.key");
    let browser = authority.client(&TLS13);
    let visit = |name| browser.try_visit_host(address, name);
    visit("renewed.test")
        .err()
        .expect("the server has not read it");
    server.reload();
    // The old workers accept what is in their queues.
    until(|| visit("renewed.test").is_ok() && visit("example.net").is_err());
}

/// The only worker is the canary, which was started before the master read the files again.
fn after_an_upgrade_each_worker_has_the_certificates_of_now() {
    let authority = Authority::new();
    let (mut server, address) = start(&authority, &["--workers", "1"]);
    authority.issue("renewed.test", "net", "net.key");
    server.signal(Signal::SIGUSR2);
    server.wait("upgrade_finished");
    let browser = authority.client(&TLS13);
    let visit = |name| browser.try_visit_host(address, name);
    until(|| visit("renewed.test").is_ok() && visit("example.net").is_err());
}

fn a_certificate_comes_with_its_ocsp_response() {
    let authority = Authority::new();
    let file = authority.path("net.ocsp");
    let path = file.display().to_string();
    let write = |response: &[u8]| fs::write(&file, response).expect("writable");
    // A successful response, as far as the server looks: the rest is for clients.
    let response = |letter| [&b"\x30\x14\x0a\x01\x00"[..], &[letter; 17]].concat();
    let (first, second) = (response(b'1'), response(b'2'));
    write(&first);
    let options = ["none", &path, "none"].map(|value| ["--tls-ocsp", value]);
    let (mut server, address) = start(&authority, options.as_flattened());
    // TLS 1.2 does not encrypt what comes with a certificate. Each client makes a full handshake.
    let gets = |name, response: &[u8]| {
        let browser = authority.client(&TLS12);
        let visit = browser.try_visit_host(address, name);
        let wire = visit.expect("it is served").wire;
        wire.windows(response.len()).any(|bytes| bytes == response)
    };
    assert!(gets("example.net", &first));
    assert!(!gets("localhost", &first) && !gets("a.example.org", &first));
    write(b"nonsense");
    server.signal(Signal::SIGHUP);
    let abandoned = server.wait("reload_abandoned");
    let why = abandoned["why"].as_str().expect("a reason");
    let says = format!("the OCSP file {path} is no OCSP response in DER");
    assert!(why.contains(&says), "{why}");
    assert!(gets("example.net", &first));
    write(&second);
    server.reload();
    until(|| gets("example.net", &second) && !gets("example.net", &first));
}

fn versions_and_cipher_suites_can_be_limited() {
    let authority = Authority::new();
    let suites = "TLS13_CHACHA20_POLY1305_SHA256,TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256";
    let (_server, address) = start(&authority, &["--tls-ciphers", suites]);
    let suite = |version| authority.client(version).visit(address).suite;
    assert_eq!(suite(&TLS13), CipherSuite::TLS13_CHACHA20_POLY1305_SHA256);
    assert_eq!(
        suite(&TLS12),
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
    );
    let (_server, address) = start(&authority, &["--tls-min-version", "1.3"]);
    authority.client(&TLS13).visit(address);
    let error = authority
        .client(&TLS12)
        .try_visit(address)
        .err()
        .expect("too old");
    assert!(error.to_string().contains("ProtocolVersion"), "{error}");
}

fn the_key_exchange_is_the_best_of_the_provider() {
    let authority = Authority::new();
    let (_server, address) = start(&authority, &[]);
    let best = match cfg!(feature = "aws-lc-rs") {
        true => NamedGroup::X25519MLKEM768,
        false => NamedGroup::X25519,
    };
    assert_eq!(authority.client(&TLS13).visit(address).group, Some(best));
}

fn a_certificate_without_a_key_is_refused() {
    let authority = Authority::new();
    let certificate = authority.path("cert.pem");
    let mut command = binary();
    command
        .args(authority.flags())
        .arg("--tls-cert")
        .arg(certificate);
    let told = refused(&mut command);
    assert!(told.contains("one key for each certificate"), "{told}");
}
