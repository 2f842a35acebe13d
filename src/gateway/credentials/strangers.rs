//! Limits how many attempts at admin routes by non-administrators are recorded in the audit log.

use std::sync::{Mutex, PoisonError};

use pool::Time;

/// Attempts recorded per minute, because anyone can make them.
pub const STRANGERS_A_MINUTE: u32 = 120;
/// Attempts recorded per day. In the 90 days that are kept, they use less than half of the million rows and cannot displace the
/// actions of administrators.
const STRANGERS_A_DAY: u32 = 5_000;

/// Attempts recorded in the current minute and day.
#[derive(Debug, Default)]
pub struct Strangers(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    minute: u64,
    in_minute: u32,
    day: u64,
    in_day: u32,
}

impl Strangers {
    pub fn has_room(&self, now: Time) -> bool {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (minute, day) = (now.0 / 60_000, now.0 / 86_400_000);
        if kept.minute != minute {
            (kept.minute, kept.in_minute) = (minute, 0);
        }
        if kept.day != day {
            (kept.day, kept.in_day) = (day, 0);
        }
        kept.in_minute = kept.in_minute.saturating_add(1);
        let most = match () {
            () if kept.in_minute > STRANGERS_A_MINUTE => (STRANGERS_A_MINUTE, "minute"),
            () if kept.in_day >= STRANGERS_A_DAY => (STRANGERS_A_DAY, "day"),
            () => {
                kept.in_day += 1;
                return true;
            }
        };
        if kept.in_minute == STRANGERS_A_MINUTE + 1 || (most.1 == "day" && kept.in_minute == 1) {
            tracing::warn!(
                "more than {} attempts at admin routes in a {} by non-administrators; further ones are not recorded",
                most.0,
                most.1
            );
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn audited_anonymous_requests_are_limited_per_minute() {
        let strangers = Strangers::default();
        let kept = (0..1000)
            .filter(|_| strangers.has_room(Time(60_000)))
            .count();
        assert_eq!(kept, 120);
        assert!(strangers.has_room(Time(120_000)));
    }

    #[test]
    fn audited_anonymous_requests_are_limited_per_day_to_leave_room_for_administrators() {
        let strangers = Strangers::default();
        let minutes = |day: u64| (0..1440).map(move |minute| Time((day * 1440 + minute) * 60_000));
        for day in [3, 4] {
            let tries = minutes(day).flat_map(|at| std::iter::repeat_n(at, 200));
            let kept = tries.filter(|at| strangers.has_room(*at)).count();
            assert_eq!(kept, 5_000);
        }
        let days = config::Config::default().state.history.keep.0.0 / 86_400_000;
        let most = config::Config::default().state.history.rows_max;
        assert!(days * 5_000 < most / 2);
    }
}
