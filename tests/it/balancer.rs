//! Connections that come through a load balancer, which names the client in a PROXY header.

use std::net::{Ipv4Addr, SocketAddr};

use nix::sys::signal::Signal;
use socket2::{Domain, SockAddr, Socket, Type};

use crate::client::Client;
use crate::support::{CEILING, Server, words};

tests! {
    the_header_names_the_client,
    a_connection_that_is_handed_over_keeps_the_client_of_its_header,
    a_connection_of_a_balancer_without_a_header_is_closed,
    a_header_from_another_address_is_refused,
    a_connection_on_which_no_header_comes_does_not_delay_the_end,
}

const LINE: &str = "PROXY TCP4 192.0.2.7 198.51.100.1 56324 443\r\n";
const NAMED: &str = "Tcp(192.0.2.7:56324)";

fn binary() -> Vec<u8> {
    let mut header = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c".to_vec();
    header.extend([192, 0, 2, 7, 198, 51, 100, 1, 0xdc, 0x04, 0x01, 0xbb]);
    header
}

fn the_header_names_the_client() {
    let mut server = Server::start_app("balanced");
    let address = server.address();
    for header in [LINE.as_bytes(), &binary()] {
        let mut client = Client::connect(address);
        client.send_bytes(header);
        assert_eq!(client.get("/").body, NAMED);
        assert_eq!(client.get("/").body, NAMED, "for the whole connection");
    }
    let mut client = Client::connect(address);
    client.send("PROXY UNKNOWN\r\n");
    let local = client.local().to_string();
    assert_eq!(
        client.get("/").body,
        format!("Tcp({local})"),
        "the header names no client"
    );
}

fn a_connection_that_is_handed_over_keeps_the_client_of_its_header() {
    let mut server = Server::start_app("balanced");
    let mut client = Client::connect(server.address());
    client.send(LINE);
    assert_eq!(client.get("/").body, NAMED);
    for _ in 0..2 {
        server.reload();
        assert_eq!(client.get("/").body, NAMED, "after a hand-over");
    }
}

fn a_connection_of_a_balancer_without_a_header_is_closed() {
    let mut server = Server::start_app("balanced");
    let address = server.address();
    for bytes in [
        "GET / HTTP/1.1\r\nhost: test\r\n\r\n",
        "PROXY TCP4 x\r\n",
        "\0",
    ] {
        let mut client = Client::connect(address);
        client.send(bytes);
        client.expect_hang_up();
    }
    let mut client = Client::connect(address);
    client.send(LINE);
    assert_eq!(client.get("/").body, NAMED, "the server still serves");
}

fn a_header_from_another_address_is_refused() {
    let mut server = Server::start_app("balanced");
    let address = server.address();
    let mut client = connect_from(Ipv4Addr::new(127, 0, 0, 9), address);
    client.send(LINE);
    let response = client.get("/");
    assert_eq!(response.status(), 400, "{response:?}");
    let mut client = connect_from(Ipv4Addr::new(127, 0, 0, 9), address);
    assert!(client.get("/").body.starts_with("Tcp(127.0.0.9:"));
}

fn a_connection_on_which_no_header_comes_does_not_delay_the_end() {
    let options = "--workers 1 --respond hi --header-timeout 1h --proxy-protocol 127.0.0.1";
    let mut server = Server::start(&words(options));
    let address = server.address();
    let mut silent = Client::connect(address);
    let mut next = Client::connect(address);
    next.send(LINE);
    assert_eq!(next.get("/").body, "hi", "the worker has both");
    server.signal(Signal::SIGTERM);
    silent.expect_end();
    server.end_well();
}

fn connect_from(source: Ipv4Addr, address: SocketAddr) -> Client {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket
        .bind(&SockAddr::from(SocketAddr::from((source, 0))))
        .expect("all of 127.0.0.0/8 is this machine");
    socket
        .connect_timeout(&address.into(), CEILING)
        .expect("the server accepts");
    Client::from_stream(socket.into()).expect("a TCP socket")
}
