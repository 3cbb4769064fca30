//! UTC as log lines write it.

use std::{fmt, time::SystemTime};

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

const SECONDS_PER_DAY: u64 = 24 * 60 * 60;
const DAYS_PER_4_YEARS: u64 = 4 * 365 + 1;
const DAYS_PER_100_YEARS: u64 = 25 * DAYS_PER_4_YEARS - 1;
const DAYS_PER_400_YEARS: u64 = 4 * DAYS_PER_100_YEARS + 1;
const DAYS_FROM_1600_MARCH_TO_1970: u64 = 135_080;

/// The last is February, as long as it ever gets.
const MONTH_LENGTHS_FROM_MARCH: [u64; 12] = [31, 30, 31, 30, 31, 31, 30, 31, 30, 31, 31, 29];

/// A moment since 1970 in UTC, taken apart.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timestamp {
    year: u64,
    /// From 0.
    month: usize,
    day: u64,
    second_of_day: u64,
    millisecond: u32,
}

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        // A clock before 1970 has not been set yet.
        let since = time
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        let (year, month, day) = date(since.as_secs() / SECONDS_PER_DAY);
        let second_of_day = since.as_secs() % SECONDS_PER_DAY;
        Self {
            year,
            month,
            day,
            second_of_day,
            millisecond: since.subsec_millis(),
        }
    }
}

impl Timestamp {
    /// `2000-02-29T23:59:59.123Z` (RFC 3339).
    pub(super) fn rfc3339(self) -> impl fmt::Display {
        let Self {
            year,
            day,
            millisecond,
            ..
        } = self;
        let (month, (hour, minute, second)) = (self.month + 1, self.clock());
        fmt::from_fn(move |f| {
            write!(f, "{year:04}-{month:02}-{day:02}T")?;
            write!(f, "{hour:02}:{minute:02}:{second:02}.{millisecond:03}Z")
        })
    }

    /// `29/Feb/2000:23:59:59 +0000`, the common log format of httpd.
    pub(super) fn common(self) -> impl fmt::Display {
        let Self { year, day, .. } = self;
        let (month, (hour, minute, second)) = (MONTHS[self.month], self.clock());
        fmt::from_fn(move |f| {
            write!(
                f,
                "{day:02}/{month}/{year:04}:{hour:02}:{minute:02}:{second:02} +0000"
            )
        })
    }

    fn clock(self) -> (u64, u64, u64) {
        (
            self.second_of_day / 3600,
            self.second_of_day / 60 % 60,
            self.second_of_day % 60,
        )
    }
}

/// Year, month from 0 and day of the month. Counted from the first of March 1600, a leap day is the
/// last of its year, its four years and its four centuries, and falls out of the divisions.
fn date(days_since_1970: u64) -> (u64, usize, u64) {
    let day = days_since_1970 + DAYS_FROM_1600_MARCH_TO_1970;
    let (eras, day) = (day / DAYS_PER_400_YEARS, day % DAYS_PER_400_YEARS);
    let centuries = (day / DAYS_PER_100_YEARS).min(3);
    let day = day - centuries * DAYS_PER_100_YEARS;
    let (leap_years, day) = (day / DAYS_PER_4_YEARS, day % DAYS_PER_4_YEARS);
    let years = (day / 365).min(3);
    let mut day = day - years * 365;
    let mut since_march = 0;
    while day >= MONTH_LENGTHS_FROM_MARCH[since_march] {
        day -= MONTH_LENGTHS_FROM_MARCH[since_march];
        since_march += 1;
    }
    let new_year = u64::from(since_march >= 10);
    let year = 1600 + eras * 400 + centuries * 100 + leap_years * 4 + years + new_year;
    (year, (since_march + 2) % 12, day + 1)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(milliseconds: u64) -> Timestamp {
        Timestamp::from(SystemTime::UNIX_EPOCH + Duration::from_millis(milliseconds))
    }

    #[test]
    fn moments_are_written_as_date_1_writes_them() {
        for (seconds, rfc3339, common) in [
            (0, "1970-01-01T00:00:00.000Z", "01/Jan/1970:00:00:00 +0000"),
            (
                951_868_799,
                "2000-02-29T23:59:59.000Z",
                "29/Feb/2000:23:59:59 +0000",
            ),
            (
                951_868_800,
                "2000-03-01T00:00:00.000Z",
                "01/Mar/2000:00:00:00 +0000",
            ),
            (
                1_735_689_599,
                "2024-12-31T23:59:59.000Z",
                "31/Dec/2024:23:59:59 +0000",
            ),
            (
                1_763_735_645,
                "2025-11-21T14:34:05.000Z",
                "21/Nov/2025:14:34:05 +0000",
            ),
            (
                4_107_542_400,
                "2100-03-01T00:00:00.000Z",
                "01/Mar/2100:00:00:00 +0000",
            ),
        ] {
            assert_eq!(at(seconds * 1000).rfc3339().to_string(), rfc3339);
            assert_eq!(at(seconds * 1000).common().to_string(), common);
        }
        assert_eq!(at(1_007).rfc3339().to_string(), "1970-01-01T00:00:01.007Z");
    }

    #[test]
    fn each_day_of_five_centuries_follows_the_day_before() {
        let mut expected = (1970, 0, 1);
        for day in 0..500 * 365 {
            assert_eq!(date(day), expected);
            expected = day_after(expected);
        }
    }

    fn day_after((year, month, day): (u64, usize, u64)) -> (u64, usize, u64) {
        let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let february = if leap { 29 } else { 28 };
        let length = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31][month];
        match (day < length, month < 11) {
            (true, _) => (year, month, day + 1),
            (false, true) => (year, month + 1, 1),
            (false, false) => (year + 1, 0, 1),
        }
    }
}
