//! Any text as a value of every kind.

use std::num::{NonZeroU16, NonZeroU64};

use jiff::SignedDuration;

use super::*;
use crate::fuzz;

#[test]
fn values() {
    fuzz::check("cli-value-values", |bytes| {
        let text = &*String::from_utf8_lossy(bytes);
        check_durations(text);
        check_sizes(text);
        if let Ok(limit) = crash_limit(text) {
            let written = format!("{}/{}", limit.max, spelled(limit.per));
            assert_eq!(crash_limit(&written), Ok(limit), "{written}");
            assert!(limit.max <= CRASHES_MAX && !limit.per.is_zero());
        }
        if let Ok(Workers::Exactly(number)) = workers(text) {
            assert!(usize::from(number.get()) <= MAX_WORKERS);
            assert_eq!(workers(&number.to_string()), Ok(Workers::Exactly(number)));
        }
        if let Ok(number) = count::<NonZeroU16>(text) {
            assert_eq!(count::<NonZeroU64>(text), Ok(number.into()));
        }
        assert_eq!(log_target(text).is_err(), text.is_empty());
        for error in errors(text) {
            assert!(!error.is_empty() && !error.contains('\n'), "{error}");
        }
    });
}

fn spelled(duration: Duration) -> String {
    let duration = SignedDuration::try_from(duration).expect("at most a day");
    format!("{duration:#}")
}

fn check_durations(text: &str) {
    let Ok(known) = duration(text) else {
        return;
    };
    let written = spelled(known);
    assert!(known <= DURATION_MAX);
    assert_eq!(duration(&written), Ok(known), "{written}");
    assert_eq!(positive_duration(text).is_ok(), !known.is_zero());
    let expected = match known {
        Duration::ZERO => Some(HangTimeout(None)),
        known if known < HANG_TIMEOUT_MIN => None,
        known => Some(HangTimeout(Some(known))),
    };
    assert_eq!(hang_timeout(text).ok(), expected);
}

fn check_sizes(text: &str) {
    let Ok(known) = body_size(text) else {
        let fits = text.parse::<u64>().is_ok_and(|bytes| bytes < u64::MAX);
        assert!(!fits, "{text} is a number of bytes");
        return;
    };
    assert!(known < u64::MAX, "more than there is");
    assert_eq!(body_size(&known.to_string()), Ok(known));
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        assert_eq!(text.parse(), Ok(known), "a number is that many bytes");
    }
    assert_eq!(header_size(text).is_ok(), HEADER_SIZES.contains(&known));
    assert_eq!(target_size(text).is_ok(), TARGET_SIZES.contains(&known));
}

fn errors(text: &str) -> impl Iterator<Item = String> {
    let errors = [
        duration(text).err(),
        positive_duration(text).err(),
        hang_timeout(text).err(),
        workers(text).err(),
        crash_limit(text).err(),
        body_size(text).err(),
        header_size(text).err(),
        target_size(text).err(),
        count::<NonZeroU16>(text).err(),
        log_target(text).err(),
        open_fd(text).err(),
    ];
    errors.into_iter().flatten()
}
