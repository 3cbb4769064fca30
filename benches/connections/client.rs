//! The connections of one process of clients.

use std::io::{self, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use socket2::{Domain, Socket, Type};

use crate::connection::{Connection, Exchange, Habit};
use crate::crowd::{Counts, Share, Step, receive, send};
use crate::http2::{Clients, is_goaway};
use crate::options::Protocol;
use crate::support::load::{Fate, Handshakes, Tls};
use crate::support::process::Trouble;

/// The port of a process' first connection.
const PORT_MIN: u16 = 10_000;

impl Share {
    /// In a process of clients, until the bench ends it.
    pub(crate) fn hold(self) -> ! {
        let control = UnixStream::connect(&self.control).expect("the bench listens");
        let bench = BufReader::new(control);
        match self.protocol {
            Protocol::Http1 | Protocol::Tls => self.hold_http1(bench),
            Protocol::Http2 | Protocol::Http2Tls => self.hold_http2(bench),
        }
    }

    fn hold_http1(self, mut bench: BufReader<UnixStream>) -> ! {
        let tls = self.tls().map(|tls| Arc::new(tls.config()));
        let hello = Exchange::echo(Habit::KeepsAlive, "hello");
        let mut open = Vec::with_capacity(self.connections);
        loop {
            let step: Step = receive(&mut bench).expect("a step");
            let mut counts = Counts::default();
            match step {
                Step::Open => {
                    for number in 0..self.connections {
                        let opened = self.open(number, tls.as_ref()).map_err(Trouble::from);
                        let asked = opened.and_then(|mut it| Ok((it.ask(&hello)?, it)));
                        open.extend(counts.note(asked));
                    }
                }
                Step::Ask => open.retain_mut(|connection: &mut Connection| {
                    if !connection.is_open() {
                        counts.closed += 1;
                        return false;
                    }
                    let asked = connection.ask(&hello).map_err(Trouble::from);
                    counts.note(asked.map(|fate| (fate, ()))).is_some()
                }),
            }
            send(bench.get_mut(), &counts).expect("the bench listens");
        }
    }

    fn hold_http2(self, mut bench: BufReader<UnixStream>) -> ! {
        let none: [io::Result<TcpStream>; 0] = [];
        let mut clients = Clients::new(none, None, b"").expect("a runtime");
        loop {
            let step;
            (step, bench) = clients.meanwhile(move || (receive(&mut bench), bench));
            let mut counts = Counts::default();
            match step.expect("a step") {
                Step::Open => match self.open_http2() {
                    Ok(open) => {
                        clients = open;
                        counts.answered = self.connections;
                    }
                    Err(trouble) => {
                        counts.lost = self.connections;
                        counts.why = Some(trouble.to_string());
                    }
                },
                Step::Ask => clients.ask_again("/", |asked| match asked {
                    Ok(()) => counts.answered += 1,
                    Err(error) if is_goaway(&error) => counts.closed += 1,
                    Err(error) => counts.lose(error),
                }),
            }
            send(bench.get_mut(), &counts).expect("the bench listens");
        }
    }

    fn open_http2(&self) -> Result<Clients, Trouble> {
        let streams = (0..self.connections).map(|number| self.connect(number));
        let clients = Clients::new(streams, self.tls().as_ref(), b"")?;
        clients.ask_each("/")?;
        Ok(clients)
    }

    fn open(&self, number: usize, tls: Option<&Arc<ClientConfig>>) -> io::Result<Connection> {
        let connection = Connection::over(self.connect(number)?);
        Ok(match tls {
            None => connection,
            Some(tls) => connection.within(Tls::connection(tls)),
        })
    }

    fn tls(&self) -> Option<Tls> {
        self.protocol.is_within_tls().then(|| {
            let certificate = CertificateDer::from_pem_file(&self.certificate);
            Tls::trusting(certificate.expect("the bench wrote it"), Handshakes::Full)
        })
    }

    /// The connection with this number.
    fn connect(&self, number: usize) -> io::Result<TcpStream> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        // The kernel would look long for a port. This one may still rest from an earlier run.
        socket.set_reuse_address(true)?;
        let port = PORT_MIN + u16::try_from(number).expect("fewer than `CLIENTS_MAX`");
        socket.bind(&SocketAddr::from((self.source, port)).into())?;
        socket.connect(&self.server.into())?;
        Ok(socket.into())
    }
}

impl Counts {
    /// What was asked, if it can be asked again.
    fn note<T>(&mut self, asked: Result<(Fate, T), Trouble>) -> Option<T> {
        match asked {
            Ok((fate, it)) => {
                self.answered += 1;
                self.closed += usize::from(fate == Fate::Closed);
                (fate == Fate::Kept).then_some(it)
            }
            Err(trouble) => {
                self.lose(trouble);
                None
            }
        }
    }

    fn lose(&mut self, why: impl ToString) {
        self.lost += 1;
        self.why.get_or_insert_with(|| why.to_string());
    }
}
