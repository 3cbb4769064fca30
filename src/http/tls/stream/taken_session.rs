//! A session that another server opened. rustls cannot go on with a session of another process, so
//! the records are ours: data, alerts and key updates (RFC 8446 4.6.3, 5 and 6; RFC 5246 6 and
//! 7.2). The handshake, with all that is chosen and verified in it, was rustls'.

use std::io::{self, IoSlice};

use rustls::SupportedCipherSuite;

use crate::http::info::tls::TlsInfo;
use crate::http::tls::stream::input::{Decrypted, Put, RECORD_MAX, record_len};
use crate::http::tls::stream::output::{self, Output};
use crate::http::tls::stream::traffic::{
    ALERT, ALERT_MAX, APPLICATION_DATA, Alert, HANDSHAKE, PLAIN_MAX, Traffic, TrafficRecord,
};

/// A key update: the type of the message, its length, and whether the other side is asked for one.
const UPDATE_NOT_REQUESTED: &[u8] = &[24, 0, 0, 1, 0];
const UPDATE_REQUESTED: &[u8] = &[24, 0, 0, 1, 1];
const UPDATE_HEADER: &[u8] = &[24, 0, 0, 1];

/// The type of the message by which a client of TLS 1.2 asks for another handshake (RFC 5246 7.4).
const CLIENT_HELLO: u8 = 1;

/// The longest such message. It is kept until it is whole.
const HELLO_MAX: usize = PLAIN_MAX;

/// The level of an alert that is no error in TLS 1.2.
const WARNING: u8 = 1;

/// The alert of a client that has given up what it did. It is no error in TLS 1.3 either.
const USER_CANCELED: u8 = 90;

/// So many records without data may come between two with data. rustls has the same limit.
const WITHOUT_DATA_MAX: u32 = 32;

pub(crate) struct TakenSession {
    received: Traffic,
    sent: Traffic,
    /// The part of a handshake message that has come: of a key update, or in TLS 1.2 of a request
    /// for another handshake.
    begun: Vec<u8>,
    /// The client has asked for a key update. It gets one before the next data.
    owes_update: bool,
    /// The records since the last data.
    without_data: u32,
    renegotiation: Renegotiation,
    /// The session has failed, and the client gets this alert.
    alert: Option<Alert>,
    info: TlsInfo,
}

/// What a session is made of.
pub(super) struct SessionParts {
    pub(super) suite: SupportedCipherSuite,
    pub(super) received: TrafficRecord,
    pub(super) sent: TrafficRecord,
    /// What was agreed on.
    pub(super) info: TlsInfo,
}

/// Whether the client of TLS 1.2 has asked for another handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Renegotiation {
    NotAsked,
    /// It has got an alert, and the session goes on (RFC 5246 7.2.2). Each further request would
    /// add another one to the output, so it ends the session, as with rustls.
    Refused,
}

/// Why a session fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failure {
    /// The client gets this alert.
    Wrong(Alert),
    /// The client has sent this alert.
    Alerted(u8),
}

/// What was in a record.
enum Opened<'a> {
    Data(&'a [u8]),
    /// Something that the session has dealt with.
    Nothing,
    /// The client sends nothing more.
    End,
}

impl TakenSession {
    pub(super) fn new(received: Traffic, sent: Traffic, info: TlsInfo) -> Self {
        Self {
            received,
            sent,
            begun: Vec::new(),
            owes_update: false,
            without_data: 0,
            renegotiation: Renegotiation::NotAsked,
            alert: None,
            info,
        }
    }

    pub(super) fn info(&self) -> &TlsInfo {
        &self.info
    }

    pub(super) fn can_move(&self) -> bool {
        !self.owes_update && self.begun.is_empty()
    }

    pub(super) fn into_parts(self) -> SessionParts {
        SessionParts {
            suite: self.sent.suite(),
            received: self.received.into_record(),
            sent: self.sent.into_record(),
            info: self.info,
        }
    }

    pub(super) fn decrypt(
        &mut self,
        bytes: &mut [u8],
        put: Put<'_>,
        output: &mut Output,
    ) -> io::Result<Decrypted> {
        self.open_all(bytes, put, output).map_err(|failure| {
            if let Failure::Wrong(alert) = failure {
                self.alert = Some(alert);
            }
            failure.into()
        })
    }

    fn open_all(
        &mut self,
        bytes: &mut [u8],
        put: Put<'_>,
        output: &mut Output,
    ) -> Result<Decrypted, Failure> {
        let mut used = 0;
        while let Some(len) = record_len(&bytes[used..]) {
            // Bytes that are no record have no length, so none is waited for.
            if !is_of_tls(&bytes[used..]) {
                return Err(Failure::Wrong(Alert::DecodeError));
            }
            if len > RECORD_MAX {
                return Err(Failure::Wrong(Alert::RecordOverflow));
            }
            let Some(record) = bytes.get_mut(used..used + len) else {
                break;
            };
            match self.open(record, output)? {
                Opened::Data(data @ [_, ..]) => {
                    self.without_data = 0;
                    put(data);
                }
                Opened::Data([]) | Opened::Nothing if self.without_data < WITHOUT_DATA_MAX => {
                    self.without_data += 1;
                }
                Opened::Data([]) | Opened::Nothing => {
                    return Err(Failure::Wrong(Alert::UnexpectedMessage));
                }
                Opened::End => return Ok(Decrypted::All),
            }
            used += len;
        }
        Ok(Decrypted::Used(used))
    }

    fn open<'a>(
        &mut self,
        record: &'a mut [u8],
        output: &mut Output,
    ) -> Result<Opened<'a>, Failure> {
        let (kind, content) = self.received.open(record).map_err(Failure::Wrong)?;
        let wrong = match (kind, content) {
            (HANDSHAKE, part @ [_, ..]) => {
                self.begun.extend_from_slice(part);
                return match self.received.is_tls12() {
                    true => self.refuse_handshake(output),
                    false => self.take_update(),
                };
            }
            // No other record may come within the message (RFC 8446 5.1).
            _ if !self.begun.is_empty() => Alert::UnexpectedMessage,
            (APPLICATION_DATA, data) => return Ok(Opened::Data(data)),
            (ALERT, &[level, description]) => {
                let is_tls12 = self.received.is_tls12();
                return match description {
                    _ if description == Alert::CloseNotify as u8 => Ok(Opened::End),
                    USER_CANCELED => Ok(Opened::Nothing),
                    _ if level == WARNING && is_tls12 => Ok(Opened::Nothing),
                    _ => Err(Failure::Alerted(description)),
                };
            }
            (ALERT, _) => Alert::DecodeError,
            _ => Alert::UnexpectedMessage,
        };
        Err(Failure::Wrong(wrong))
    }

    /// Refuses the client's first request for another handshake, when it is whole. It may come in
    /// several records (RFC 5246 6.2.1).
    fn refuse_handshake<'a>(&mut self, output: &mut Output) -> Result<Opened<'a>, Failure> {
        let left = match self.begun[..] {
            [CLIENT_HELLO, a, b, c, ref hello @ ..] => {
                let len = u32::from_be_bytes([0, a, b, c]) as usize;
                let len = Some(len).filter(|&len| len <= HELLO_MAX);
                len.and_then(|len| len.checked_sub(hello.len()))
            }
            [CLIENT_HELLO, ..] => Some(HELLO_MAX),
            _ => None,
        };
        match (self.renegotiation, left) {
            (Renegotiation::NotAsked, Some(0)) => {
                self.renegotiation = Renegotiation::Refused;
                self.begun = Vec::new();
                self.send(Alert::NoRenegotiation, output);
                Ok(Opened::Nothing)
            }
            (Renegotiation::NotAsked, Some(_)) => Ok(Opened::Nothing),
            _ => Err(Failure::Wrong(Alert::UnexpectedMessage)),
        }
    }

    /// Takes a key update, which may come in several records (RFC 8446 5.1).
    fn take_update<'a>(&mut self) -> Result<Opened<'a>, Failure> {
        if !UPDATE_HEADER.starts_with(&self.begun) {
            let is_requested = self.begun == UPDATE_REQUESTED;
            let is_update = is_requested || self.begun == UPDATE_NOT_REQUESTED;
            if !is_update || !self.received.update() {
                return Err(Failure::Wrong(Alert::UnexpectedMessage));
            }
            self.owes_update |= is_requested;
            self.begun = Vec::new();
        }
        Ok(Opened::Nothing)
    }

    pub(super) fn encrypt(
        &mut self,
        slices: &[IoSlice<'_>],
        out: &mut [u8],
    ) -> io::Result<(usize, usize)> {
        let encrypt = |plain: &[u8], out: &mut [u8]| {
            let sealed = self.seal(plain, out);
            sealed.ok_or("nothing more can be encrypted")
        };
        let sealed = output::seal(encrypt, slices, out);
        if sealed.is_err() {
            // What the client has got is not all. `close_notify` would say that it is.
            self.alert = Some(Alert::InternalError);
        }
        sealed
    }

    /// Encrypts data, in as many records as it needs. `None` if `out` is too small, or if TLS 1.2
    /// has used up its key.
    fn seal(&mut self, plain: &[u8], out: &mut [u8]) -> Option<usize> {
        // The number of a record that is encrypted and not sent would be missed by the client.
        if self.sent.is_tls12() && !self.sent.lasts(plain.len().div_ceil(PLAIN_MAX)) {
            return None;
        }
        let mut len = 0;
        for part in plain.chunks(PLAIN_MAX) {
            if self.owes_update || !self.sent.lasts(1) {
                let update = self
                    .sent
                    .seal(HANDSHAKE, UPDATE_NOT_REQUESTED, &mut out[len..]);
                len += update?;
                self.sent.update().then_some(())?;
                self.owes_update = false;
            }
            len += self.sent.seal(APPLICATION_DATA, part, &mut out[len..])?;
        }
        Some(len)
    }

    pub(super) fn close(&mut self, output: &mut Output) {
        self.send(Alert::CloseNotify, output);
    }

    /// The session has failed. Adds the alert to the output, if there is one.
    pub(super) fn last_words(&mut self, output: &mut Output) {
        if let Some(alert) = self.alert.take() {
            self.send(alert, output);
        }
    }

    fn send(&mut self, alert: Alert, output: &mut Output) {
        let mut record = [0; ALERT_MAX];
        let message = [alert.level(), alert as u8];
        if let Some(len) = self.sent.seal(ALERT, &message, &mut record) {
            output.push(&record[..len]);
        }
    }
}

/// Whether a record of TLS begins so: with one of its types (RFC 8446 5.1, RFC 6520 3), and with a
/// version 3.x. rustls has the same rule.
fn is_of_tls(bytes: &[u8]) -> bool {
    matches!(bytes, [20..=24, 3, ..])
}

impl From<Failure> for io::Error {
    fn from(failure: Failure) -> Self {
        let why = match failure {
            Failure::Wrong(alert) => format!("a TLS record of the client is wrong: {alert:?}"),
            Failure::Alerted(alert) => format!("the client has sent the TLS alert {alert}"),
        };
        Self::new(io::ErrorKind::InvalidData, why)
    }
}
