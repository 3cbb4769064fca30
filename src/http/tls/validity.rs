//! When a certificate ends (RFC 5280 4.1.2.5), and when an OCSP response does (RFC 6960 4.2.1).
//! rustls checks that only where it is a client.

use ring::io::der::{Tag, expect_tag_and_get_value, read_tag_and_get_value};
use untrusted::{Input, Reader};

/// In seconds after 1970; `None` if the certificate cannot be read.
pub(crate) fn end(certificate: &[u8]) -> Option<u64> {
    let certificate = sequence(&mut Reader::new(Input::from(certificate)))?;
    let signed = sequence(&mut Reader::new(certificate))?;
    let mut fields = Reader::new(signed);
    if fields.peek(Tag::ContextSpecificConstructed0.into()) {
        // The version.
        read_tag_and_get_value(&mut fields).ok()?;
    }
    expect_tag_and_get_value(&mut fields, Tag::Integer).ok()?;
    let _algorithm = sequence(&mut fields)?;
    let _issuer = sequence(&mut fields)?;
    let mut validity = Reader::new(sequence(&mut fields)?);
    read_tag_and_get_value(&mut validity).ok()?;
    time(&mut validity)
}

/// When there is a newer OCSP response than this one (`nextUpdate`), in seconds after 1970; `None`
/// if it does not say or cannot be read.
pub(crate) fn next_update(response: &[u8]) -> Option<u64> {
    let mut response = Reader::new(sequence(&mut Reader::new(Input::from(response)))?);
    let _status = read_tag_and_get_value(&mut response).ok()?;
    let bytes = within(&mut response, Tag::ContextSpecificConstructed0)?;
    let mut bytes = Reader::new(sequence(&mut Reader::new(bytes))?);
    let _type = within(&mut bytes, Tag::OID)?;
    let basic = within(&mut bytes, Tag::OctetString)?;
    let basic = sequence(&mut Reader::new(basic))?;
    let mut data = Reader::new(sequence(&mut Reader::new(basic))?);
    if data.peek(Tag::ContextSpecificConstructed0.into()) {
        // The version.
        read_tag_and_get_value(&mut data).ok()?;
    }
    let _responder = read_tag_and_get_value(&mut data).ok()?;
    let _produced_at = read_tag_and_get_value(&mut data).ok()?;
    let responses = sequence(&mut data)?;
    let mut first = Reader::new(sequence(&mut Reader::new(responses))?);
    let _certificate = sequence(&mut first)?;
    let _status = read_tag_and_get_value(&mut first).ok()?;
    let _this_update = read_tag_and_get_value(&mut first).ok()?;
    let next = within(&mut first, Tag::ContextSpecificConstructed0)?;
    time(&mut Reader::new(next))
}

fn sequence<'a>(reader: &mut Reader<'a>) -> Option<Input<'a>> {
    within(reader, Tag::Sequence)
}

fn within<'a>(reader: &mut Reader<'a>, tag: Tag) -> Option<Input<'a>> {
    expect_tag_and_get_value(reader, tag).ok()
}

fn time(reader: &mut Reader<'_>) -> Option<u64> {
    let (tag, time) = read_tag_and_get_value(reader).ok()?;
    seconds(tag, std::str::from_utf8(time.as_slice_less_safe()).ok()?)
}

/// `YYMMDDHHMMSSZ`, or the same with a year of four digits.
fn seconds(tag: u8, time: &str) -> Option<u64> {
    let is_short = tag == u8::from(Tag::UTCTime);
    let (year, rest) = time
        .strip_suffix('Z')?
        .split_at_checked(if is_short { 2 } else { 4 })?;
    let part = |at: usize| rest.get(at..at + 2)?.parse::<u64>().ok();
    let year = match year.parse::<u64>().ok()? {
        short @ 50..100 if is_short => 1900 + short,
        short if is_short => 2000 + short,
        year => year,
    };
    let (month, day) = (part(0)?, part(2)?);
    let date_is_valid = (1970..10_000).contains(&year) && (1..=12).contains(&month) && day >= 1;
    let days = date_is_valid.then(|| days(year, month, day))?;
    Some(days * 86_400 + part(4)? * 3_600 + part(6)? * 60 + part(8)?)
}

/// Days from the first day of 1970 to this one, in the Gregorian calendar.
fn days(year: u64, month: u64, day: u64) -> u64 {
    // Years that begin in March, so that a leap day is the last day of its year.
    let (year, month) = match month {
        3.. => (year, month - 3),
        _ => (year - 1, month + 9),
    };
    let before = year * 365 + year / 4 - year / 100 + year / 400;
    before + (month * 153 + 2) / 5 + day - 1 - 719_468
}

#[cfg(test)]
pub(super) mod tests {
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    fn der(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
        let content = parts.concat();
        let len = u8::try_from(content.len()).expect("short");
        let head: &[u8] = if len < 0x80 { &[tag] } else { &[tag, 0x81] };
        [head, &[len], &content].concat()
    }

    /// An OCSP response without a signature. The certificate is good.
    pub(in crate::http::tls) fn ocsp_response(
        version: &[u8],
        next_update: Option<&str>,
    ) -> Vec<u8> {
        let time = der(0x18, &[b"20200101000000Z"]);
        let next = next_update.map_or(Vec::new(), |it| der(0xa0, &[&der(0x18, &[it.as_bytes()])]));
        let single = der(0x30, &[&der(0x30, &[]), &[0x80, 0], &time, &next]);
        let data = [
            version,
            &der(0xa2, &[&[4, 0]]),
            &time,
            &der(0x30, &[&single]),
        ];
        let basic = der(0x30, &[&der(0x30, &data)]);
        let bytes = der(0x30, &[&der(6, &[&[43]]), &der(4, &[&basic])]);
        der(0x30, &[&[0x0a, 1, 0], &der(0xa0, &[&bytes])])
    }

    #[test]
    fn the_end_of_an_ocsp_response_is_read() {
        for version in [&[][..], &[0xa0, 3, 2, 1, 0]] {
            let response = ocsp_response(version, Some("20270101000000Z"));
            assert_eq!(next_update(&response), Some(1_798_761_600));
            for cut in 0..response.len() {
                assert_eq!(next_update(&response[..cut]), None);
            }
            assert_eq!(next_update(&ocsp_response(version, None)), None);
        }
    }

    #[test]
    fn the_end_of_a_certificate_is_read() {
        for (year, month, day, expected) in [
            (2027, 1, 1, 1_798_761_600),
            (2028, 2, 29, 1_835_395_200),
            (2049, 12, 31, 2_524_521_600),
            (2100, 3, 1, 4_107_542_400),
            (4096, 1, 1, 67_090_118_400),
        ] {
            let mut params = CertificateParams::new(["example.org".to_owned()]).expect("a name");
            params.not_after = date_time_ymd(year, month, day);
            let key = KeyPair::generate().expect("a key");
            let certificate = params.self_signed(&key).expect("a certificate");
            assert_eq!(end(certificate.der()), Some(expected), "{year}");
            for cut in 0..certificate.der().len() {
                let _ = end(&certificate.der()[..cut]);
            }
        }
    }

    #[test]
    fn what_is_no_time_is_refused() {
        let utc = u8::from(Tag::UTCTime);
        assert_eq!(seconds(utc, "700101000000Z"), Some(0));
        for bad in [
            "",
            "Z",
            "70010100000Z",
            "701301000000Z",
            "700100000000Z",
            "7\u{e4}Z",
            "490101Z",
        ] {
            assert_eq!(seconds(utc, bad), None, "{bad}");
        }
    }
}
