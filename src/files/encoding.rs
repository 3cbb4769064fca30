//! Which compressed siblings of a file a client accepts (RFC 9110 12.5.3).

use http::header::ACCEPT_ENCODING;
use http::{HeaderMap, HeaderValue};

use super::accept::{Weight, thousandths};

/// In the order of preference, the best last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Encoding {
    Gzip,
    Brotli,
    Zstd,
}

/// The best first.
const ALL: [Encoding; 3] = [Encoding::Zstd, Encoding::Brotli, Encoding::Gzip];

impl Encoding {
    /// The encodings that the client accepts, the best first, without those to which it prefers the
    /// plain file.
    pub(super) fn accepted(headers: &HeaderMap) -> impl Iterator<Item = Self> {
        let mut weights = [None; ALL.len()];
        let (mut others, mut plain) = (None, None);
        let lines = headers.get_all(ACCEPT_ENCODING).iter();
        let elements = lines.flat_map(|line| line.as_bytes().split(|&byte| byte == b','));
        for (name, weight) in elements.filter_map(weighted) {
            let place = match name {
                _ if is(name, "zstd") => &mut weights[0],
                _ if is(name, "br") => &mut weights[1],
                _ if is(name, "gzip") || is(name, "x-gzip") => &mut weights[2],
                _ if is(name, "identity") => &mut plain,
                b"*" => &mut others,
                _ => continue,
            };
            *place = Some(weight);
        }
        let mut accepted = [None; ALL.len()];
        for (place, (encoding, weight)) in accepted.iter_mut().zip(ALL.iter().zip(weights)) {
            let weight = weight.or(others).unwrap_or(0);
            if weight > 0 && weight >= plain.unwrap_or(0) {
                *place = Some((weight, *encoding));
            }
        }
        accepted.sort_unstable_by(|one, other| other.cmp(one));
        accepted.into_iter().flatten().map(|(_, encoding)| encoding)
    }

    /// That of a file with this name.
    pub(super) fn of_name(name: &[u8]) -> Option<Self> {
        let has_suffix = |encoding: &Self| name.ends_with(encoding.suffix().as_bytes());
        Self::of_picture(name).or_else(|| ALL.into_iter().find(has_suffix))
    }

    /// That of a picture which is always compressed. Its type is that of the plain picture, so each
    /// client has to be told.
    pub(super) fn of_picture(name: &[u8]) -> Option<Self> {
        name.ends_with(b".svgz").then_some(Self::Gzip)
    }

    /// The suffix of the name of the sibling.
    pub(super) fn suffix(self) -> &'static str {
        match self {
            Self::Gzip => ".gz",
            Self::Brotli => ".br",
            Self::Zstd => ".zst",
        }
    }

    pub(super) fn name(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Self::Gzip => "gzip",
            Self::Brotli => "br",
            Self::Zstd => "zstd",
        })
    }
}

fn is(name: &[u8], known: &str) -> bool {
    name.eq_ignore_ascii_case(known.as_bytes())
}

/// The name and the weight of one element; `None` if the weight is malformed (RFC 9110 12.4.2).
fn weighted(element: &[u8]) -> Option<(&[u8], Weight)> {
    let mut parts = element.splitn(2, |&byte| byte == b';');
    let name = parts.next()?.trim_ascii();
    let Some(parameter) = parts.next() else {
        return Some((name, 1000));
    };
    let (letter, number) = parameter.trim_ascii().split_at_checked(2)?;
    let weight = letter
        .eq_ignore_ascii_case(b"q=")
        .then(|| thousandths(number))?;
    Some((name, weight?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_client_chooses_by_weight_and_the_server_among_equals() {
        use Encoding::{Brotli, Gzip, Zstd};
        for (accept, expected) in [
            ("", &[][..]),
            ("gzip", &[Gzip]),
            ("X-GZIP", &[Gzip]),
            ("gzip, deflate, br, zstd", &[Zstd, Brotli, Gzip]),
            ("gzip;q=1, br;q=0.9", &[Gzip, Brotli]),
            ("gzip; q=0.5,br;Q=0.501", &[Brotli, Gzip]),
            ("br;q=0, *;q=0.1", &[Zstd, Gzip]),
            ("*", &[Zstd, Brotli, Gzip]),
            ("*;q=0", &[]),
            ("gzip;q=0.5, identity", &[]),
            ("gzip;q=0.5, identity;q=0.5", &[Gzip]),
            ("gzip, identity;q=0", &[Gzip]),
            ("gzip;q=1.1, br;q=2, zstd;q=a", &[]),
            ("gzip;q=0.0001", &[]),
            ("gzip;q=.5, br;q", &[]),
            ("gzip;level=9", &[]),
            ("gzip;q=0.", &[]),
            ("gzip;q=1.000", &[Gzip]),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT_ENCODING, accept.parse().expect("a value"));
            let accepted: Vec<_> = Encoding::accepted(&headers).collect();
            assert_eq!(accepted, expected, "{accept}");
        }
        assert_eq!(Encoding::accepted(&HeaderMap::new()).count(), 0);
    }
}
