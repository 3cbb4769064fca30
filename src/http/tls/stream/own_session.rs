//! A session that began at this server. rustls does the handshake, and then the records.

use std::io::{self, IoSlice};
use std::sync::Arc;

use bytes::Bytes;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, UnbufferedStatus};
use rustls::{ConnectionTrafficSecrets, HandshakeKind, ServerConfig, SupportedCipherSuite};

use crate::http::info::tls::TlsInfo;
use crate::http::tls::learned::Learned;
use crate::http::tls::stream::input::{Decrypted, Input, Put, record_len};
use crate::http::tls::stream::output::{self, Output};
use crate::http::tls::stream::taken_session::SessionParts;
use crate::http::tls::stream::traffic::TrafficRecord;
use crate::secret::Secret;

const UNEXPECTED: &str = "rustls is in a state that does not follow from ours";

pub(crate) struct OwnSession {
    connection: UnbufferedServerConnection,
    learned: Learned,
    /// After the handshake the client may have sent something that was no data, such as a key
    /// update that asks for another. rustls gives its reply away together with the next data only.
    may_owe_reply: bool,
}

impl OwnSession {
    pub(super) fn new(config: Arc<ServerConfig>) -> io::Result<Self> {
        Ok(Self {
            connection: UnbufferedServerConnection::new(config).map_err(io::Error::other)?,
            learned: Learned::NOTHING,
            may_owe_reply: false,
        })
    }

    pub(super) fn info(&self) -> TlsInfo {
        TlsInfo::of(&self.connection, self.learned.name.as_deref())
    }

    pub(super) fn alpn(&self) -> Option<&[u8]> {
        self.connection.alpn_protocol()
    }

    pub(super) fn is_resumed(&self) -> bool {
        self.connection.handshake_kind() == Some(HandshakeKind::Resumed)
    }

    pub(super) fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    pub(super) fn can_move(&self) -> bool {
        let is_known = match self.connection.negotiated_cipher_suite() {
            Some(SupportedCipherSuite::Tls13(_)) => {
                self.learned.has_secrets() && !self.may_owe_reply
            }
            // It has no key updates.
            Some(SupportedCipherSuite::Tls12(_)) => true,
            None => false,
        };
        is_known && !self.is_handshaking()
    }

    /// Call it if [`OwnSession::can_move`].
    pub(super) fn into_parts(self) -> Option<SessionParts> {
        let info = self.info();
        let suite = self.connection.negotiated_cipher_suite()?;
        let (secrets, _) = self.connection.dangerous_into_kernel_connection().ok()?;
        let traffic = |first: Option<Secret>, (next, secrets)| {
            let (key, iv) = parts(&secrets)?;
            match suite {
                SupportedCipherSuite::Tls13(suite) => {
                    TrafficRecord::with_key(suite, first?, key, next)
                }
                SupportedCipherSuite::Tls12(_) => Some(TrafficRecord {
                    secret: Secret::new(key),
                    iv: Bytes::copy_from_slice(iv),
                    next,
                }),
            }
        };
        Some(SessionParts {
            suite,
            received: traffic(self.learned.client_secret, secrets.rx)?,
            sent: traffic(self.learned.server_secret, secrets.tx)?,
            info,
        })
    }

    /// Gives rustls these bytes and does what it asks for.
    pub(super) fn decrypt(
        &mut self,
        bytes: &mut [u8],
        put: Put<'_>,
        output: &mut Output,
    ) -> io::Result<Decrypted> {
        let mut used = 0;
        loop {
            let first = record_len(&bytes[used..]);
            let was_handshaking = self.is_handshaking();
            let (connection, left) = (&mut self.connection, &mut bytes[used..]);
            let status = match was_handshaking {
                true => self.learned.during(|| connection.process_tls_records(left)),
                false => connection.process_tls_records(left),
            };
            let UnbufferedStatus { mut discard, state } = status;
            let is_data = matches!(state, Ok(ConnectionState::ReadTraffic(_)));
            let is_open = is_data || matches!(state, Ok(ConnectionState::WriteTraffic(_)));
            // Nothing, or data alone: rustls returns after each record of data. Or the handshake
            // alone: at its end rustls returns too, if it has tickets for the client.
            let is_plain =
                discard == 0 || is_data && Some(discard) == first || was_handshaking && !is_open;
            self.may_owe_reply |= !is_plain;
            let mut needs_more = false;
            match state.map_err(invalid)? {
                ConnectionState::ReadTraffic(mut records) => {
                    while let Some(record) = records.next_record() {
                        let record = record.map_err(invalid)?;
                        discard += record.discard;
                        put(record.payload);
                    }
                }
                ConnectionState::EncodeTlsData(mut data) => output.append(&mut data)?,
                // It is in the output.
                ConnectionState::TransmitTlsData(data) => data.done(),
                ConnectionState::PeerClosed | ConnectionState::Closed => return Ok(Decrypted::All),
                ConnectionState::BlockedHandshake | ConnectionState::WriteTraffic(_) => {
                    needs_more = true;
                }
                _ => return Err(io::Error::other(UNEXPECTED)),
            }
            used += discard;
            if needs_more {
                return Ok(Decrypted::Used(used));
            }
        }
    }

    pub(super) fn encrypt(
        &mut self,
        slices: &[IoSlice<'_>],
        input: &mut Input,
        out: &mut [u8],
    ) -> io::Result<(usize, usize)> {
        let mut len = 0;
        loop {
            let status = self.connection.process_tls_records(input.sealed());
            let UnbufferedStatus { discard, state } = status;
            match state.map_err(invalid)? {
                ConnectionState::WriteTraffic(mut traffic) => {
                    let encrypt = |plain: &[u8], out: &mut [u8]| traffic.encrypt(plain, out);
                    let (taken, sealed) = output::seal(encrypt, slices, &mut out[len..])?;
                    self.may_owe_reply &= taken == 0;
                    return Ok((taken, len + sealed));
                }
                ConnectionState::EncodeTlsData(mut data) => {
                    len += data.encode(&mut out[len..]).map_err(io::Error::other)?;
                }
                ConnectionState::TransmitTlsData(data) => data.done(),
                _ => return Err(io::Error::other(UNEXPECTED)),
            }
            input.discard(discard);
        }
    }

    pub(super) fn last_words(&mut self, output: &mut Output) {
        while self.connection.wants_write() {
            // rustls gives away the alert before it looks at the input.
            let state = self.connection.process_tls_records(&mut []).state;
            let Ok(ConnectionState::EncodeTlsData(mut data)) = state else {
                break;
            };
            if output.append(&mut data).is_err() {
                break;
            }
        }
    }

    pub(super) fn close(&mut self, input: &mut Input, output: &mut Output) -> io::Result<()> {
        let state = self.connection.process_tls_records(input.sealed()).state;
        match state {
            Ok(ConnectionState::WriteTraffic(traffic)) => output.close(traffic),
            _ => Ok(()),
        }
    }
}

/// The key and the initialization vector.
fn parts(secrets: &ConnectionTrafficSecrets) -> Option<(&[u8], &[u8])> {
    match secrets {
        ConnectionTrafficSecrets::Aes128Gcm { key, iv }
        | ConnectionTrafficSecrets::Aes256Gcm { key, iv }
        | ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => {
            Some((key.as_ref(), iv.as_ref()))
        }
        _ => None,
    }
}

fn invalid(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}
