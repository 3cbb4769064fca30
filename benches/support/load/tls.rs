//! TLS 1.3 as a client, by rustls on the driver's own non-blocking sockets.
//!
//! A full handshake costs the one driving thread more than it costs a server, which signs once
//! where it checks two signatures; a resumed one costs either the same. So the throughput of a
//! question about them is the driver's, and only the CPU time tells servers apart.
//!
//! Each connection allocates here; those without TLS know nothing of it.

use std::io::{self, ErrorKind, Read, Write};
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::version::TLS13;
use rustls::{ClientConfig, ClientConnection, HandshakeKind, RootCertStore};
use socket2::Socket;

use super::outcome::Failure;

/// The name that a server's certificate has to be for.
const SERVER: &str = "localhost";

/// Which certificates clients trust, and how their handshakes must be.
#[derive(Clone, Debug)]
pub(crate) struct Tls {
    config: ClientConfig,
    handshakes: Handshakes,
}

/// What the handshakes of a client are. Others count as failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Handshakes {
    /// No client keeps a ticket.
    Full,
    /// Each client keeps the tickets that it is given, and every handshake but its first resumes.
    Resumed,
}

impl Tls {
    /// The server must show this certificate, or one that it has signed, for `localhost`.
    ///
    /// # Panics
    ///
    /// If it is no certificate.
    pub(crate) fn trusting(certificate: CertificateDer<'static>, handshakes: Handshakes) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add(certificate).expect("a certificate");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .expect("the provider has suites for it")
            .with_root_certificates(roots)
            .with_no_client_auth();
        Self { config, handshakes }
    }

    /// Without sessions to resume, for a client of another kind.
    pub(crate) fn config(&self) -> ClientConfig {
        let mut config = self.config.clone();
        config.resumption = Resumption::disabled();
        config
    }

    /// A connection of a client that blocks.
    pub(crate) fn connection(config: &Arc<ClientConfig>) -> ClientConnection {
        let server = ServerName::try_from(SERVER).expect("a name");
        let connection = ClientConnection::new(Arc::clone(config), server);
        connection.expect("the configuration has all it takes")
    }

    /// Of one client, which does not share its tickets.
    pub(super) fn sessions(&self) -> Sessions {
        let mut config = self.config.clone();
        config.resumption = match self.handshakes {
            Handshakes::Full => Resumption::disabled(),
            Handshakes::Resumed => Resumption::in_memory_sessions(1),
        };
        Sessions {
            config: config.into(),
            handshakes: self.handshakes,
            next: Handshakes::Full,
        }
    }
}

/// What a client remembers from connection to connection.
pub(super) struct Sessions {
    config: Arc<ClientConfig>,
    handshakes: Handshakes,
    /// There is nothing to be resumed at first.
    next: Handshakes,
}

impl Sessions {
    pub(super) fn begin(&mut self) -> Session {
        let connection = Tls::connection(&self.config);
        let due = self.next;
        self.next = self.handshakes;
        Session { connection, due }
    }
}

/// TLS on a socket that need not be connected yet.
pub(super) struct Session {
    connection: ClientConnection,
    /// What its handshake should be.
    due: Handshakes,
}

impl Session {
    /// Now, or with the client's last word of the handshake. Where it would block nothing is taken:
    /// the socket is not connected.
    pub(super) fn send(&mut self, socket: &mut Socket, bytes: &[u8]) -> io::Result<()> {
        self.flush(socket)?;
        self.connection.writer().write_all(bytes)?;
        self.flush(socket)
    }

    /// Asked when a response begins. The tickets come before it, so the next handshake has one even
    /// if this connection is given up for its own.
    pub(super) fn judge(&self) -> Result<(), Failure> {
        match (self.due, self.connection.handshake_kind()) {
            (Handshakes::Full, Some(HandshakeKind::Full)) => Ok(()),
            (Handshakes::Resumed, Some(HandshakeKind::Resumed)) => Ok(()),
            (Handshakes::Full, _) => Err(Failure::NotFull),
            (Handshakes::Resumed, _) => Err(Failure::NotResumed),
        }
    }

    fn flush(&mut self, socket: &mut Socket) -> io::Result<()> {
        while self.connection.wants_write() {
            self.connection.write_tls(socket)?;
        }
        Ok(())
    }

    /// What was said within TLS; with `InvalidData`, TLS went wrong. A connection that ends without
    /// a last word was cut (RFC 8446 6.1), which is `UnexpectedEof`.
    pub(super) fn read(&mut self, socket: &mut Socket, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.connection.reader().read(buffer) {
                // After `close_notify`: the end of the connection. A client that closes before it
                // may be the first to do so, and would keep the port in TIME_WAIT.
                Ok(0) if socket.read(&mut [0])? == 0 => return Ok(0),
                Ok(0) => return Err(ErrorKind::InvalidData.into()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                read => return read,
            }
            self.connection.read_tls(socket)?;
            match self.connection.process_new_packets() {
                Ok(_) => self.flush(socket)?,
                Err(error) => {
                    // Sends the alert. The failure is the same without it.
                    let _ = self.flush(socket);
                    return Err(io::Error::new(ErrorKind::InvalidData, error));
                }
            }
        }
    }
}
