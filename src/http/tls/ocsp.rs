//! Checks an OCSP response before the server sends it to clients (RFC 6960 4.2.1). Clients end the
//! handshake if they get other bytes.

/// The tag of a sequence in DER (X.690).
const SEQUENCE: u8 = 0x30;

/// The status `successful`: an enumerated value of one byte.
const SUCCESSFUL: [u8; 3] = [0x0a, 0x01, 0x00];

/// Fails unless `bytes` are the DER of one successful OCSP response. The error says what is wrong.
/// The signature is left to the clients.
pub(crate) fn check(bytes: &[u8]) -> Result<(), &'static str> {
    if bytes.starts_with(b"-----BEGIN") {
        return Err("is PEM and not DER");
    }
    let content = sequence(bytes).ok_or("is no OCSP response in DER")?;
    match content.starts_with(&SUCCESSFUL) {
        true => Ok(()),
        false => Err("is the OCSP response to a request that failed"),
    }
}

/// The content of a sequence that has all these bytes.
fn sequence(bytes: &[u8]) -> Option<&[u8]> {
    let (&[tag, first], rest) = bytes.split_first_chunk()?;
    let (len, content) = match first {
        0x81..=0x83 => {
            let (len, content) = rest.split_at_checked(usize::from(first & 0x7f))?;
            let add = |len, byte: &u8| len << 8 | usize::from(*byte);
            (len.iter().fold(0, add), content)
        }
        ..=0x7f => (usize::from(first), rest),
        _ => return None,
    };
    (tag == SEQUENCE && content.len() == len).then_some(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(len: usize) -> Vec<u8> {
        let mut content = SUCCESSFUL.to_vec();
        content.resize(len, 7);
        let bytes = u32::try_from(len).expect("short").to_be_bytes();
        let head = match len {
            ..0x80 => vec![SEQUENCE, bytes[3]],
            0x80..0x100 => vec![SEQUENCE, 0x81, bytes[3]],
            _ => [&[SEQUENCE, 0x82], &bytes[2..]].concat(),
        };
        [head, content].concat()
    }

    #[test]
    fn a_response_of_any_length_is_accepted_and_no_part_of_it() {
        for len in [3, 4, 0x7f, 0x80, 0xff, 0x100, 0x1234] {
            let whole = response(len);
            assert_eq!(check(&whole), Ok(()), "{len}");
            for cut in 0..whole.len() {
                check(&whole[..cut]).expect_err("a part");
            }
            check(&[&whole[..], b"x"].concat()).expect_err("more than one response");
        }
    }

    #[test]
    fn what_is_no_response_is_refused_with_the_reason() {
        let failed = [SEQUENCE, 3, 0x0a, 1, 6];
        for (bytes, why) in [
            (&b"-----BEGIN OCSP RESPONSE-----"[..], "PEM"),
            (&failed, "failed"),
            (b"", "no OCSP response"),
            (b"\x30\x84\0\0\0\0", "no OCSP response"),
        ] {
            let refused = check(bytes).expect_err("it is no response");
            assert!(refused.contains(why), "{refused}");
        }
    }
}
