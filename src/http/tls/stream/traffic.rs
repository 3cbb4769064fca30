//! One direction of a TLS session: its key, and the number of the next record (RFC 8446 5 and 7;
//! RFC 5246 6.2.3.3, RFC 5288 3 and RFC 7905 2).

use bytes::Bytes;
use rustls::crypto::tls13::OkmBlock;
use rustls::{SupportedCipherSuite, Tls13CipherSuite};
use zeroize::Zeroizing;

use crate::codec::record;
use crate::http::tls::crypto::aead::{Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use crate::http::tls::crypto::cipher;
use crate::http::tls::stream::input::HEADER;
use crate::secret::Secret;

/// The most plaintext in a record (RFC 8446 5.1).
pub(super) const PLAIN_MAX: usize = 16 * 1024;

/// The tag of each cipher.
const TAG: usize = 16;

/// The longest record of an alert: TLS 1.2 has a part of the nonce in it.
pub(super) const ALERT_MAX: usize = HEADER + 8 + 2 + TAG;

/// The number, type, version and length of a record in TLS 1.2 (RFC 5246 6.2.3.3).
const AUTHENTICATED_MAX: usize = 8 + 3 + 2;

/// The longest secret: SHA-384.
const HASH_MAX: usize = 48;

/// The longest key: AES-256 and ChaCha20.
const KEY_MAX: usize = 32;

/// The key of a session after more key updates than this is not looked for.
const KEY_UPDATES_MAX: usize = 1024;

/// The types of records, and of what is in them (RFC 8446 B.1).
pub(super) const ALERT: u8 = 21;
pub(super) const HANDSHAKE: u8 = 22;
pub(super) const APPLICATION_DATA: u8 = 23;

/// Alerts (RFC 8446 B.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Alert {
    CloseNotify = 0,
    UnexpectedMessage = 10,
    BadRecordMac = 20,
    RecordOverflow = 22,
    DecodeError = 50,
    InternalError = 80,
    NoRenegotiation = 100,
}

impl Alert {
    /// Its level: warning or fatal.
    pub(super) fn level(self) -> u8 {
        match self {
            Self::CloseNotify | Self::NoRenegotiation => 1,
            _ => 2,
        }
    }
}

/// What a direction is made of.
pub(super) struct TrafficRecord {
    /// What the key is made of in TLS 1.3, and the key itself in TLS 1.2.
    pub(super) secret: Secret,
    /// Only in TLS 1.2.
    pub(super) iv: Bytes,
    /// The number of the next record under this key.
    pub(super) next: u64,
}

record!(TrafficRecord { secret, iv, next });

impl TrafficRecord {
    /// From the first secret of a session in TLS 1.3, after as many key updates as make this key of
    /// it.
    pub(super) fn with_key(
        suite: &'static Tls13CipherSuite,
        first: Secret,
        key: &[u8],
        next: u64,
    ) -> Option<Self> {
        let mut secret = first;
        for _ in 0..KEY_UPDATES_MAX {
            let mut made = Zeroizing::new([0; KEY_MAX]);
            let made = made.get_mut(..key.len())?;
            expand(suite, &secret, b"key", made);
            if made == key {
                return Some(Self {
                    secret,
                    iv: Bytes::new(),
                    next,
                });
            }
            secret = next_secret(suite, &secret);
        }
        None
    }
}

pub(super) struct Traffic {
    suite: SupportedCipherSuite,
    record: TrafficRecord,
    key: LessSafeKey,
    iv: [u8; NONCE_LEN],
}

impl Traffic {
    /// `None` if the record is not for such a suite.
    pub(super) fn new(suite: SupportedCipherSuite, record: TrafficRecord) -> Option<Self> {
        let TrafficRecord { secret, iv, .. } = &record;
        let algorithm = cipher(suite)?;
        let mut key = Zeroizing::new([0; KEY_MAX]);
        let key = &mut key[..algorithm.key_len()];
        let iv = match suite {
            SupportedCipherSuite::Tls13(suite) => {
                if secret.len() != suite.common.hash_provider.output_len() {
                    return None;
                }
                expand(suite, secret, b"key", key);
                let mut iv = [0; NONCE_LEN];
                expand(suite, secret, b"iv", &mut iv);
                iv
            }
            SupportedCipherSuite::Tls12(_) => {
                if secret.len() != key.len() {
                    return None;
                }
                key.copy_from_slice(secret);
                iv[..].try_into().ok()?
            }
        };
        Some(Self {
            suite,
            key: LessSafeKey::new(UnboundKey::new(algorithm, key).ok()?),
            iv,
            record,
        })
    }

    pub(super) fn suite(&self) -> SupportedCipherSuite {
        self.suite
    }

    pub(super) fn is_tls12(&self) -> bool {
        matches!(self.suite, SupportedCipherSuite::Tls12(_))
    }

    pub(super) fn into_record(self) -> TrafficRecord {
        self.record
    }

    /// The next key of TLS 1.3 (RFC 8446 7.2). `false` in TLS 1.2, which has none.
    pub(super) fn update(&mut self) -> bool {
        let SupportedCipherSuite::Tls13(suite) = self.suite else {
            return false;
        };
        let record = TrafficRecord {
            secret: next_secret(suite, &self.record.secret),
            iv: Bytes::new(),
            next: 0,
        };
        *self = Self::new(self.suite, record).expect("the suite has made the secret");
        true
    }

    /// Whether so many more records may be encrypted under this key (RFC 8446 5.5).
    pub(super) fn lasts(&self, records: usize) -> bool {
        let common = match self.suite {
            SupportedCipherSuite::Tls13(suite) => &suite.common,
            SupportedCipherSuite::Tls12(suite) => &suite.common,
        };
        let end = self.record.next.checked_add(records as u64);
        end.is_some_and(|end| end <= common.confidentiality_limit)
    }

    /// Encrypts one record into `out`. Returns its length. `plain` is at most [`PLAIN_MAX`] bytes.
    /// `None` if `out` has no space for it, or if the numbers are used up (RFC 8446 5.3).
    pub(super) fn seal(&mut self, kind: u8, plain: &[u8], out: &mut [u8]) -> Option<usize> {
        let next = self.record.next.checked_add(1)?;
        let inside = [kind];
        let (outside, inside) = match self.suite {
            SupportedCipherSuite::Tls13(_) => (APPLICATION_DATA, &inside[..]),
            SupportedCipherSuite::Tls12(_) => (kind, &[][..]),
        };
        let explicit = self.explicit_nonce();
        let inner = plain.len() + inside.len();
        let len = HEADER + explicit + inner + TAG;
        let (header, rest) = out.get_mut(..len)?.split_at_mut(HEADER);
        let [high, low] = u16::try_from(rest.len()).ok()?.to_be_bytes();
        header.copy_from_slice(&[outside, 3, 3, high, low]);
        let (nonce, rest) = rest.split_at_mut(explicit);
        nonce.copy_from_slice(&self.nonce()[NONCE_LEN - explicit..]);
        let (sealed, tag) = rest.split_at_mut(inner);
        sealed[..plain.len()].copy_from_slice(plain);
        sealed[plain.len()..].copy_from_slice(inside);
        let aad = self.aad(header, plain.len());
        let nonce = Nonce::assume_unique_for_key(self.nonce());
        let made = self.key.seal_in_place_separate_tag(nonce, aad, sealed);
        tag.copy_from_slice(made.ok()?.as_ref());
        self.record.next = next;
        Some(len)
    }

    /// Decrypts one record in place. Returns the type of its content, and the content.
    pub(super) fn open<'a>(&mut self, record: &'a mut [u8]) -> Result<(u8, &'a [u8]), Alert> {
        let next = self
            .record
            .next
            .checked_add(1)
            .ok_or(Alert::UnexpectedMessage)?;
        let (header, rest) = record.split_at_mut(HEADER);
        let explicit = self.explicit_nonce();
        let plain = rest.len().checked_sub(explicit + TAG);
        let plain = plain.ok_or(Alert::BadRecordMac)?;
        let (chosen, sealed) = rest.split_at_mut(explicit);
        let mut nonce = self.nonce();
        nonce[NONCE_LEN - explicit..].copy_from_slice(chosen);
        let nonce = Nonce::assume_unique_for_key(nonce);
        let opened = self
            .key
            .open_in_place(nonce, self.aad(header, plain), sealed);
        let content = &*opened.map_err(|_| Alert::BadRecordMac)?;
        self.record.next = next;
        let (kind, content) = match self.suite {
            SupportedCipherSuite::Tls12(_) => (header[0], content),
            SupportedCipherSuite::Tls13(_) => {
                // Zeroes follow the type.
                let last = content.iter().rposition(|&byte| byte != 0);
                let last = last.ok_or(Alert::UnexpectedMessage)?;
                (content[last], &content[..last])
            }
        };
        match content.len() {
            ..=PLAIN_MAX => Ok((kind, content)),
            _ => Err(Alert::RecordOverflow),
        }
    }

    /// So many bytes of the nonce are in each record, between header and ciphertext.
    fn explicit_nonce(&self) -> usize {
        match self.suite {
            SupportedCipherSuite::Tls13(_) => 0,
            SupportedCipherSuite::Tls12(suite) => {
                suite.aead_alg.key_block_shape().explicit_nonce_len
            }
        }
    }

    fn nonce(&self) -> [u8; NONCE_LEN] {
        let mut nonce = self.iv;
        let number = self.record.next.to_be_bytes();
        let (_, end) = nonce.split_at_mut(NONCE_LEN - number.len());
        end.iter_mut()
            .zip(number)
            .for_each(|(to, from)| *to ^= from);
        nonce
    }

    /// What is authenticated together with so many bytes of plaintext.
    fn aad(&self, header: &[u8], plain: usize) -> Aad<Authenticated> {
        let mut bytes = [0; AUTHENTICATED_MAX];
        let len = match self.suite {
            SupportedCipherSuite::Tls13(_) => {
                bytes[..HEADER].copy_from_slice(header);
                HEADER
            }
            SupportedCipherSuite::Tls12(_) => {
                bytes[..8].copy_from_slice(&self.record.next.to_be_bytes());
                bytes[8..11].copy_from_slice(&header[..3]);
                let [.., high, low] = plain.to_be_bytes();
                bytes[11..].copy_from_slice(&[high, low]);
                AUTHENTICATED_MAX
            }
        };
        Aad::from(Authenticated { bytes, len })
    }
}

/// What is authenticated with a record and not in it.
struct Authenticated {
    bytes: [u8; AUTHENTICATED_MAX],
    len: usize,
}

impl AsRef<[u8]> for Authenticated {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

fn next_secret(suite: &Tls13CipherSuite, secret: &Secret) -> Secret {
    let mut next = Zeroizing::new([0; HASH_MAX]);
    let next = &mut next[..secret.len()];
    expand(suite, secret, b"traffic upd", next);
    Secret::new(next)
}

/// HKDF-Expand-Label (RFC 8446 7.1), without a context.
fn expand(suite: &Tls13CipherSuite, secret: &[u8], label: &[u8], out: &mut [u8]) {
    const PREFIX: &[u8] = b"tls13 ";
    let byte = |length: usize| [u8::try_from(length).expect("all lengths here are short")];
    let info: [&[u8]; 6] = [
        &[0],
        &byte(out.len()),
        &byte(PREFIX.len() + label.len()),
        PREFIX,
        label,
        &[0],
    ];
    let expander = suite.hkdf_provider.expander_for_okm(&OkmBlock::new(secret));
    let expanded = expander.expand_slice(&info, out);
    expanded.expect("a key is shorter than 255 hashes");
}
