//! A worker that has as many connections as its limit allows.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use prefork_server::{Error, Http, Request, Response, Worker, service_fn};
use socket2::{Domain, Socket, Type};

use crate::admin::Watched;
use crate::apps;
use crate::client::Client;
use crate::support::until;

tests! {
    the_connection_idle_for_longest_is_closed_for_a_new_one,
    a_connection_beyond_the_limit_per_client_is_closed,
}

/// Allows three connections, and closes none of them to accept another.
pub(crate) fn patient() -> Result<(), Error> {
    let http = Http::new().linger(Duration::from_secs(3600));
    let server = apps::server().workers(1).max_connections(3).http(http);
    server.serve(async |worker: Worker| {
        let pid = worker.info().pid;
        Ok(service_fn(move |_request: Request| async move {
            let response =
                http::Response::builder().header("x-prefork-worker", format!("pid={pid}"));
            response.body("hi".into()) as Result<Response, _>
        }))
    })
}

fn the_connection_idle_for_longest_is_closed_for_a_new_one() {
    let arguments = ["--workers", "1", "--echo", "--max-connections", "3"];
    let mut watched = Watched::start(&arguments);
    let address = watched.server.address();
    let mut busy = Client::connect(address);
    busy.send("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 5\r\n\r\nhe");
    let mut idle = [(); 2].map(|()| {
        let mut client = Client::connect(address);
        client.get("/");
        client
    });
    let mut new = Client::connect(address);
    new.get("/");
    idle[0].expect_hang_up();
    let limited = "prefork_connections_limited_total";
    assert_eq!(watched.metric(limited), 1);
    assert_eq!(watched.status()["totals"]["limited"], 1);
    assert_eq!(idle[1].get("/").body, "");
    busy.send("llo");
    assert_eq!(busy.response().body, "hello");
}

fn a_connection_beyond_the_limit_per_client_is_closed() {
    let limit = ["--max-connections-per-client", "2"];
    let arguments = [&["--workers", "1", "--respond", "hi"][..], &limit].concat();
    let mut watched = Watched::start(&arguments);
    let address = watched.server.address();
    let mut clients = [(); 2].map(|()| Client::connect(address));
    for client in &mut clients {
        client.get("/");
    }
    Client::connect(address).expect_hang_up();
    let limited = "prefork_connections_limited_total{limit=\"client\"}";
    let page = watched.get("/metrics").body;
    assert!(
        page.lines().any(|line| line == format!("{limited} 1")),
        "{page}"
    );
    connect_from("127.0.0.2:0", address).get("/");
    let [_, left] = clients;
    drop(left);
    until(|| {
        let mut another = TcpStream::connect(address).expect("it listens");
        // The server may have closed it already.
        let _: io::Result<()> = another.write_all(b"GET / HTTP/1.1\r\nHost: test\r\n\r\n");
        another.read(&mut [0]).is_ok_and(|len| len > 0)
    });
}

pub(crate) fn connect_from(client: &str, address: SocketAddr) -> Client {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    let client: SocketAddr = client.parse().expect("an address");
    socket.bind(&client.into()).expect("a loopback address");
    socket.connect(&address.into()).expect("it listens");
    Client::from_stream(socket.into()).expect("a TCP socket")
}
