//! UTC dates for chat templates, and timestamps of responses.

use chrono::format::StrftimeItems;
use chrono::{DateTime, Utc};
use std::time::{SystemTime, UNIX_EPOCH};

/// Seconds since 1970, or 0 if the clock is before that.
pub(crate) fn unix_seconds() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |elapsed| elapsed.as_secs())
}

/// Formats `unix_seconds` by `pattern`, in UTC. Unknown directives are copied.
pub(crate) fn strftime(pattern: &str, unix_seconds: u64) -> String {
    let seconds = i64::try_from(unix_seconds).ok();
    let time: Option<DateTime<Utc>> =
        seconds.and_then(|seconds| DateTime::from_timestamp(seconds, 0));
    let items = StrftimeItems::new_lenient(pattern);
    time.unwrap_or_default()
        .format_with_items(items)
        .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strftime_formats_dates_correctly() {
        for (seconds, expected) in [
            (0, "Thursday 01 January 1970 00:00:00"),
            (951_782_400, "Tuesday 29 February 2000 00:00:00"),
            (1_704_067_199, "Sunday 31 December 2023 23:59:59"),
            (4_107_542_400, "Monday 01 March 2100 00:00:00"),
        ] {
            assert_eq!(strftime("%A %d %B %Y %T", seconds), expected);
        }
        assert_eq!(
            strftime("%-d.%-m. %-I %j %-j %-Q", 951_782_400),
            "29.2. 12 060 60 %-Q"
        );
        assert_eq!(
            strftime("%y %e %p %a %b %h %F %Z %-M %-S", 951_782_400),
            "00 29 AM Tue Feb Feb 2000-02-29 UTC 0 0"
        );
    }

    #[test]
    fn an_unknown_directive_is_copied() {
        assert_eq!(strftime("%d %b %Y %Q 100%% %", 0), "01 Jan 1970 %Q 100% %");
    }

    #[test]
    fn a_time_beyond_the_calendar_falls_back_to_1970() {
        assert_eq!(strftime("%Y", u64::MAX), "1970");
    }
}
