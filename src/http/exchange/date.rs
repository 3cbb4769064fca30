//! The `Date` field (RFC 9110 6.6.1, 5.6.7), written once a second.

use std::cell::Cell;
use std::io::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use httpdate::HttpDate;
use nix::time::ClockId;

/// The field as it is sent, with the end of the head: `Date` is the last field.
pub(crate) type Line = [u8; LINE.len()];

const LINE: &[u8] = b"date: Sun, 06 Nov 1994 08:49:37 GMT\r\n\r\n";

/// The line as of the last [`Date::renew`].
#[derive(Debug)]
pub(crate) struct Date {
    line: Cell<Line>,
    /// Seconds since 1970.
    second: Cell<u64>,
}

impl Date {
    pub(crate) fn new() -> Self {
        let date = Self {
            line: Cell::new([b' '; LINE.len()]),
            second: Cell::new(u64::MAX),
        };
        date.renew();
        date
    }

    /// Reads the clock, and writes the line anew if the second has changed. The caller calls this
    /// in each poll of a connection, because no timer of the server runs while a handler computes.
    #[inline]
    pub(crate) fn renew(&self) {
        // The time of the kernel's last tick, some milliseconds ago. Reading it costs less than the
        // exact time.
        let second = match ClockId::CLOCK_REALTIME_COARSE.now() {
            Ok(now) => now.tv_sec().try_into().unwrap_or(0),
            Err(_) => in_64_bits(),
        };
        if self.second.replace(second) != second {
            self.write(second);
        }
    }

    #[cold]
    fn write(&self, second: u64) {
        let date = HttpDate::from(UNIX_EPOCH + Duration::from_secs(second));
        let mut line = [b' '; LINE.len()];
        write!(&mut line[..], "date: {date}\r\n\r\n").expect("dates have one length");
        self.line.set(line);
    }

    #[inline]
    pub(crate) fn line(&self) -> Line {
        self.line.get()
    }
}

/// The time in a program of 32 bits, whose coarse clock ends in 2038.
#[cold]
fn in_64_bits() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| now.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_has_the_current_time() {
        // The coarse clock may be one tick late.
        let before = SystemTime::now() - Duration::from_millis(100);
        let line = Date::new().line();
        let date = std::str::from_utf8(&line).expect("ASCII");
        let date = date.strip_prefix("date: ").expect("the name");
        let date = date.strip_suffix("\r\n\r\n").expect("the end");
        let date = httpdate::parse_http_date(date).expect("a date");
        let second = |time: SystemTime| {
            let since = time.duration_since(UNIX_EPOCH);
            since.expect("it is after 1970").as_secs()
        };
        assert!((second(before)..=second(SystemTime::now())).contains(&second(date)));
    }
}
