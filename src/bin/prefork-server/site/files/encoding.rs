//! Which compressed siblings of a file a client accepts (RFC 9110 12.5.3).

use http::{HeaderMap, HeaderValue, header::ACCEPT_ENCODING};

/// In the order of preference, the best last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Encoding {
    Gzip,
    Brotli,
    Zstd,
}

impl Encoding {
    /// The encodings that the client accepts, the best first, without those to which it prefers the
    /// plain file.
    pub(super) fn accepted(headers: &HeaderMap) -> Vec<Self> {
        let lines = headers.get_all(ACCEPT_ENCODING).iter();
        let elements = lines.filter_map(|line| line.to_str().ok());
        let elements = elements.flat_map(|line| line.split(','));
        let (mut found, mut identity) = (Vec::new(), 0.0);
        for (name, weight) in elements.filter_map(weighted) {
            match name.to_ascii_lowercase().as_str() {
                "gzip" | "x-gzip" => found.push((weight, Self::Gzip)),
                "br" => found.push((weight, Self::Brotli)),
                "zstd" => found.push((weight, Self::Zstd)),
                "identity" => identity = weight,
                _ => {}
            }
        }
        found.retain(|&(weight, _)| weight > 0.0 && weight >= identity);
        found.sort_by(|(one, a), (other, b)| other.total_cmp(one).then(b.cmp(a)));
        found.into_iter().map(|(_, encoding)| encoding).collect()
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

/// The name and the weight of one element; `None` if the weight is malformed (RFC 9110 12.4.2).
fn weighted(element: &str) -> Option<(&str, f32)> {
    let Some((name, weight)) = element.split_once(';') else {
        return Some((element.trim(), 1.0));
    };
    let (letter, number) = weight.split_once('=')?;
    let number: f32 = number.trim().parse().ok()?;
    let is_weight = letter.trim().eq_ignore_ascii_case("q") && (0.0..=1.0).contains(&number);
    is_weight.then_some((name.trim(), number))
}
