//! What a client would like best (RFC 9110 12.4.2, 12.5.1).

use http::HeaderMap;
use http::header::ACCEPT;

/// A weight in thousandths.
pub(super) type Weight = u16;

/// The weight of a type that `Accept` names. Zero if it does not name it.
pub(super) fn quality(headers: &HeaderMap, wanted: &str) -> Weight {
    let lines = headers.get_all(ACCEPT).into_iter();
    let mut types = lines.flat_map(|line| line.as_bytes().split(|&byte| byte == b','));
    let weight = types.find_map(|element| {
        let mut parts = element.split(|&byte| byte == b';').map(<[u8]>::trim_ascii);
        let name = parts.next().unwrap_or_default();
        let is_wanted = name.eq_ignore_ascii_case(wanted.as_bytes());
        is_wanted.then(|| parts.find_map(weight).unwrap_or(1000))
    });
    weight.unwrap_or(0)
}

/// `None`: the parameter is not a weight. A malformed weight is zero.
fn weight(parameter: &[u8]) -> Option<Weight> {
    let (name, number) = parameter.split_at_checked(2)?;
    name.eq_ignore_ascii_case(b"q=")
        .then(|| thousandths(number).unwrap_or(0))
}

/// `0`, `0.` and at most three digits, or `1` (with zeros behind the point).
pub(super) fn thousandths(number: &[u8]) -> Option<Weight> {
    let (whole, rest) = number.split_first()?;
    let digits = match rest {
        [] => rest,
        [b'.', digits @ ..] if digits.len() <= 3 => digits,
        _ => return None,
    };
    let mut weight = match whole {
        b'0' => 0,
        b'1' => 1000,
        _ => return None,
    };
    for (digit, value) in digits.iter().zip([100, 10, 1]) {
        let digit = digit.checked_sub(b'0').filter(|digit| *digit <= 9)?;
        weight += Weight::from(digit) * value;
    }
    (weight <= 1000).then_some(weight)
}
