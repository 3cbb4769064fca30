//! The values of options, each with its limits.

#[cfg(test)]
mod fuzz;

use std::{
    num::{IntErrorKind, NonZeroU16, ParseIntError},
    ops::RangeInclusive,
    path::{Path, PathBuf},
    str::FromStr,
    time::Duration,
};

use bytesize::ByteSize;
use clap::ValueEnum;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use jiff::{Span, SpanRelativeTo};
use prefork_server::{
    Address, AddressError, BoxError, CrashLimit, HANG_TIMEOUT_MIN, MAX_WORKERS, Role, role,
    usable_cpus,
};

use super::config::is_upgraded;
use crate::one_line::shown;

/// A longer duration is most likely a wrong unit; and a deadline must fit the clock.
const DURATION_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// The master remembers the time of each crash that counts.
const CRASHES_MAX: u32 = 10_000;

/// From the smallest buffer of hyper to more than any honest head has. Each connection that is
/// being read may hold this much.
const HEADER_SIZES: RangeInclusive<u64> = 8 << 10..=1 << 20;

/// From more than most paths need to the most that hyper accepts.
const TARGET_SIZES: RangeInclusive<u64> = 1 << 10..=64 << 10;

/// The variable of an option that has no value.
pub(super) fn switch(text: &str) -> Result<bool, &'static str> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "t" | "yes" | "y" | "on" | "1" => Ok(true),
        "false" | "f" | "no" | "n" | "off" | "0" => Ok(false),
        _ => Err("it is true or false; yes, on and 1, or no, off and 0 are the same"),
    }
}

/// How many workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Workers {
    /// One for each CPU that this process may use.
    Auto,
    /// This many.
    Exactly(NonZeroU16),
}

impl Workers {
    /// How many they are on this machine.
    pub(crate) fn count(self) -> usize {
        match self {
            Self::Auto => usable_cpus().usable,
            Self::Exactly(count) => count.get().into(),
        }
    }
}

/// For how long an event loop may stand still while work waits; `None` is any time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HangTimeout(pub(crate) Option<Duration>);

/// Whether workers are restricted. The variants have no docs: clap would print them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SandboxMode {
    On,
    Off,
}

/// Where log lines go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LogTarget {
    /// `-`
    Stdout,
    /// A file that lines are appended to.
    File(PathBuf),
}

/// One of these values, which `--help` and errors list.
pub(super) fn named<T>(names: &'static [&'static str]) -> impl TypedValueParser<Value = T>
where
    T: FromStr<Err: Into<BoxError>> + Clone + Send + Sync + 'static,
{
    PossibleValuesParser::new(names).try_map(|name| name.parse())
}

/// A file's mode (chmod(1)): three octal digits, or four of which the first is 0.
pub(super) fn mode(text: &str) -> Result<u32, String> {
    u32::from_str_radix(text, 8)
        .ok()
        .filter(|&mode| mode <= 0o777)
        .ok_or_else(|| "not a mode such as 660, in octal digits and at most 777".to_owned())
}

/// A word that can be the name of a cipher suite. Which ones there are is the library's to say.
#[cfg(feature = "tls")]
pub(super) fn cipher(text: &str) -> Result<String, String> {
    match text
        .bytes()
        .all(|it| it.is_ascii_alphanumeric() || it == b'_')
    {
        true => Ok(text.to_owned()),
        false => Err("a name has letters, digits and _; commas separate several names".into()),
    }
}

pub(crate) fn address(text: &str) -> Result<Address, String> {
    text.parse()
        .map_err(|error: AddressError| shown(error.reason()))
}

/// A number without a unit is seconds, as in most other servers and in unit files.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let written = "a duration is written like 250ms, 30s or 5m; a number alone is seconds";
    let duration = match text.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => spelled_duration(text).map_err(|_| written)?,
    };
    if duration > DURATION_MAX {
        return Err(format!("more than a day; {written}"));
    }
    Ok(duration)
}

fn spelled_duration(text: &str) -> Result<Duration, jiff::Error> {
    let span: Span = text.parse()?;
    span.to_duration(SpanRelativeTo::days_are_24_hours())?
        .try_into()
}

pub(crate) fn positive_duration(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err("it must be longer than zero, such as 250ms or 30s".into()),
        duration => Ok(duration),
    }
}

pub(super) fn hang_timeout(text: &str) -> Result<HangTimeout, String> {
    match duration(text)? {
        Duration::ZERO => Ok(HangTimeout(None)),
        short if short < HANG_TIMEOUT_MIN => {
            Err("it must be 1s or longer, or 0 for no limit".into())
        }
        timeout => Ok(HangTimeout(Some(timeout))),
    }
}

pub(super) fn workers(text: &str) -> Result<Workers, String> {
    if text == "auto" {
        return Ok(Workers::Auto);
    }
    let number = text
        .parse::<NonZeroU16>()
        .ok()
        .filter(|number| usize::from(number.get()) <= MAX_WORKERS);
    number
        .map(Workers::Exactly)
        .ok_or_else(|| format!("it must be a number from 1 to {MAX_WORKERS}, such as 4, or auto"))
}

pub(super) fn crash_limit(text: &str) -> Result<CrashLimit, String> {
    let (max, per) = text.split_once('/').ok_or("it is written like 10/60s")?;
    let max = max
        .parse()
        .ok()
        .filter(|max| *max <= CRASHES_MAX)
        .ok_or_else(|| {
            format!("before the slash must be a number up to {CRASHES_MAX}, as in 10/60s")
        })?;
    let per = positive_duration(per).map_err(|error| format!("after the slash: {error}"))?;
    Ok(CrashLimit::new(max, per))
}

pub(super) fn target_size(text: &str) -> Result<usize, String> {
    let bytes = size(text)?;
    if !TARGET_SIZES.contains(&bytes) {
        return Err("it must be from 1KiB to 64KiB, such as 8KiB".into());
    }
    Ok(usize::try_from(bytes).expect("64 kibibytes can be addressed"))
}

pub(super) fn header_size(text: &str) -> Result<usize, String> {
    let bytes = size(text)?;
    if !HEADER_SIZES.contains(&bytes) {
        return Err("it must be from 8KiB to 1MiB, such as 16KiB".into());
    }
    Ok(usize::try_from(bytes).expect("a mebibyte can be addressed"))
}

/// Zero is allowed: then a request cannot have a body.
pub(super) fn body_size(text: &str) -> Result<u64, String> {
    size(text)
}

/// Zero is allowed: then nothing is kept.
pub(super) fn cache_size(text: &str) -> Result<usize, String> {
    usize::try_from(size(text)?).map_err(|error| error.to_string())
}

pub(super) fn count<N: FromStr<Err = ParseIntError>>(text: &str) -> Result<N, String> {
    number(text, "it must be a number from 1 up, such as 10000")
}

/// Zero is allowed: then every connection gives up its buffers.
pub(super) fn warm(text: &str) -> Result<usize, String> {
    number(text, "it must be a number from 0 up, such as 1024")
}

fn number<N: FromStr<Err = ParseIntError>>(text: &str, written: &str) -> Result<N, String> {
    text.parse()
        .map_err(|error: ParseIntError| match error.kind() {
            IntErrorKind::PosOverflow => "it is too large".to_owned(),
            _ => written.to_owned(),
        })
}

pub(super) fn log_target(text: &str) -> Result<LogTarget, String> {
    match text {
        "" => Err("it must be a path such as access.log, or - for standard output".into()),
        "-" => Ok(LogTarget::Stdout),
        path => Ok(LogTarget::File(path.into())),
    }
}

/// The path of a request, as it stands in the request line.
pub(super) fn path(text: &str) -> Result<String, String> {
    let is_path = text
        .parse::<http::Uri>()
        .is_ok_and(|uri| uri.path() == text);
    match is_path && text.starts_with('/') {
        true => Ok(text.to_owned()),
        false => Err("it must be a path such as /healthz".into()),
    }
}

/// Refuses a descriptor that is not open, before the first notice is lost. In a worker, which has
/// the same command line, it is never open; so the canary of an upgrade does not find it out, and
/// the master that has become the new binary serves without notices.
pub(super) fn open_fd(text: &str) -> Result<i32, String> {
    let fd = text.parse::<i32>().ok().filter(|fd| *fd > 0);
    let fd = fd.ok_or("it must be the number of a descriptor, such as 3 with 3>notices.json")?;
    let may_refuse = role() == Role::Master && !is_upgraded();
    if may_refuse && !Path::new(&format!("/proc/self/fd/{fd}")).exists() {
        return Err(format!(
            "it is not open; the shell opens it with {fd}>notices.json"
        ));
    }
    Ok(fd)
}

fn size(text: &str) -> Result<u64, String> {
    let size: Option<ByteSize> = text.parse().ok();
    // bytesize turns a number that does not fit into the largest one.
    size.map(|size| size.0)
        .filter(|size| *size < u64::MAX)
        .ok_or_else(|| "a size is written like 16KiB or 4MiB".into())
}
