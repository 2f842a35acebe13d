//! Owns dates for chat templates: `strftime` in UTC, without a time-zone database. Never measures durations.

use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

const SECONDS_PER_DAY: u64 = 86_400;
const DAYS: [&str; 7] = [
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
    "Sunday",
];
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// Seconds since 1970; 0 on a machine whose clock is before that.
pub(crate) fn unix_seconds() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |elapsed| elapsed.as_secs())
}

/// Writes `unix_seconds` as `pattern` says, in UTC; a directive that is not known is copied.
pub(crate) fn strftime(pattern: &str, unix_seconds: u64) -> String {
    let days = unix_seconds / SECONDS_PER_DAY;
    let second_of_day = unix_seconds % SECONDS_PER_DAY;
    let (year, month, day) = civil_date(days);
    // The first of January 1970 was a Thursday.
    let weekday = DAYS[((days + 3) % 7) as usize];
    let month_name = MONTHS[month as usize - 1];
    let first_of_year: u64 = (1970..year)
        .map(|year| if is_leap(year) { 366 } else { 365 })
        .sum();
    let day_of_year = days - first_of_year + 1;
    let (hour, minute, second) = (
        second_of_day / 3600,
        second_of_day / 60 % 60,
        second_of_day % 60,
    );
    let mut text = String::new();
    let mut letters = pattern.chars();
    while let Some(letter) = letters.next() {
        if letter != '%' {
            text.push(letter);
            continue;
        }
        // Writing into a String cannot fail.
        let _ = match letters.next() {
            // The C library's way to leave the leading zero out.
            Some('-') => match letters.next() {
                Some('d') => write!(text, "{day}"),
                Some('m') => write!(text, "{month}"),
                Some('H') => write!(text, "{hour}"),
                Some('I') => write!(text, "{}", (hour + 11) % 12 + 1),
                Some('M') => write!(text, "{minute}"),
                Some('S') => write!(text, "{second}"),
                Some('j') => write!(text, "{day_of_year}"),
                Some(other) => write!(text, "%-{other}"),
                None => write!(text, "%-"),
            },
            Some('j') => write!(text, "{day_of_year:03}"),
            Some('Y') => write!(text, "{year}"),
            Some('y') => write!(text, "{:02}", year % 100),
            Some('m') => write!(text, "{month:02}"),
            Some('d') => write!(text, "{day:02}"),
            Some('e') => write!(text, "{day:2}"),
            Some('H') => write!(text, "{hour:02}"),
            Some('I') => write!(text, "{:02}", (hour + 11) % 12 + 1),
            Some('p') => write!(text, "{}", if hour < 12 { "AM" } else { "PM" }),
            Some('M') => write!(text, "{minute:02}"),
            Some('S') => write!(text, "{second:02}"),
            Some('A') => write!(text, "{weekday}"),
            Some('a') => write!(text, "{}", &weekday[..3]),
            Some('B') => write!(text, "{month_name}"),
            Some('b' | 'h') => write!(text, "{}", &month_name[..3]),
            Some('F') => write!(text, "{year}-{month:02}-{day:02}"),
            Some('T') => write!(text, "{hour:02}:{minute:02}:{second:02}"),
            Some('Z') => write!(text, "UTC"),
            Some('%') => write!(text, "%"),
            Some(other) => write!(text, "%{other}"),
            None => write!(text, "%"),
        };
    }
    text
}

/// Year, month (1 to 12) and day (1 to 31) of a count of days since 1970, in the Gregorian calendar.
fn civil_date(mut days: u64) -> (u64, u64, u64) {
    let mut year = 1970;
    loop {
        let length = if is_leap(year) { 366 } else { 365 };
        if days < length {
            break;
        }
        days -= length;
        year += 1;
    }
    let february = if is_leap(year) { 29 } else { 28 };
    for (month, length) in (1..).zip([31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]) {
        if days < length {
            return (year, month, days + 1);
        }
        days -= length;
    }
    (year, 12, 31)
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, expected) in [
            (0, "Thursday 01 January 1970 00:00:00"),
            (951_782_400, "Tuesday 29 February 2000 00:00:00"),
            (1_704_067_199, "Sunday 31 December 2023 23:59:59"),
            (4_107_542_400, "Monday 01 March 2100 00:00:00"),
        ] {
            assert_eq!(strftime("%A %d %B %Y %T", seconds), expected);
        }
        assert_eq!(
            strftime("%-d.%-m. %-I %j %-j %-x", 951_782_400),
            "29.2. 12 060 60 %-x"
        );
    }

    #[test]
    fn a_directive_that_is_not_known_is_copied() {
        assert_eq!(strftime("%d %b %Y %Q 100%% %", 0), "01 Jan 1970 %Q 100% %");
    }
}
