//! The time that a replica stays after requests with `keep_alive`, in addition to the model's keep-hot time (L2). Arithmetic only.

use crate::types::ids::{Span, Time};

/// The `keep_alive` of a request that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepAlive {
    /// The time the request ended.
    pub ended: Time,
    /// The time the last earlier request without `keep_alive` ended. The model's keep-hot time applies to it.
    pub ended_without: Option<Time>,
    pub span: Span,
    /// True if it may be longer than the model's keep-hot time.
    pub may_extend: bool,
}

/// The `keep_alive` of all requests of a replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeepAliveState {
    /// The time the last request with `keep_alive` ended.
    ended: Option<Time>,
    ended_without: Option<Time>,
    /// The latest time that a request named, within the model's keep-hot time.
    until: Time,
    /// The time named by the last request that may exceed the model's keep-hot time.
    extended: Option<Time>,
}

impl KeepAliveState {
    /// The state before any request with `keep_alive`; the last request ended at this time.
    pub fn since(last_end: Option<Time>) -> KeepAliveState {
        KeepAliveState {
            ended_without: last_end,
            ..KeepAliveState::default()
        }
    }

    /// `keep_hot` is the model's own time.
    pub fn note(&mut self, keep: KeepAlive, keep_hot: Span) {
        self.ended = self.ended.max(Some(keep.ended));
        self.ended_without = self.ended_without.max(keep.ended_without);
        self.until = self.until.max(keep.ended + keep.span.min(keep_hot));
        if keep.may_extend {
            self.extended = Some(keep.ended + keep.span);
        }
    }

    /// Returns true if the last request before this time had a `keep_alive`.
    pub fn names_time(&self, idle_since: Time) -> bool {
        self.ended.is_some_and(|ended| ended >= idle_since)
    }

    /// The time at which keep-hot ends for a replica that is idle since `idle_since`.
    pub fn ends(&self, idle_since: Time, keep_hot: Span) -> Time {
        let by_model = idle_since + keep_hot;
        let ends = if self.ended.is_some_and(|ended| ended >= idle_since) {
            // The last request had a `keep_alive`. Requests without one keep the model's time.

            let others = self.ended_without.map(|at| at + keep_hot);
            self.until.min(by_model).max(others.unwrap_or_default())
        } else {
            by_model
        };
        ends.max(self.extended.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEEP_HOT: Span = Span::from_secs(600);

    fn at(seconds: u64) -> Time {
        Time(seconds * 1000)
    }

    fn ended_with(ended: u64, seconds: u64, may_extend: bool) -> KeepAlive {
        KeepAlive {
            ended: at(ended),
            ended_without: None,
            span: Span::from_secs(seconds),
            may_extend,
        }
    }

    #[test]
    fn a_keep_alive_of_one_request_does_not_shorten_that_of_another() {
        let mut keep_alive = KeepAliveState::default();
        assert_eq!(
            keep_alive.ends(at(100), KEEP_HOT),
            at(700),
            "no request had a time"
        );
        assert_eq!(
            keep_alive.ends(at(0), KEEP_HOT),
            at(600),
            "at the beginning of time"
        );
        keep_alive.note(ended_with(100, 30, false), KEEP_HOT);
        assert_eq!(keep_alive.ends(at(100), KEEP_HOT), at(130));
        keep_alive.note(ended_with(110, 0, false), KEEP_HOT);
        assert_eq!(
            keep_alive.ends(at(110), KEEP_HOT),
            at(130),
            "the first one's"
        );
        let with_another = KeepAlive {
            ended_without: Some(at(115)),
            ..ended_with(120, 0, false)
        };
        keep_alive.note(with_another, KEEP_HOT);
        assert_eq!(
            keep_alive.ends(at(120), KEEP_HOT),
            at(715),
            "of one without"
        );
        assert_eq!(
            keep_alive.ends(at(125), KEEP_HOT),
            at(725),
            "of a later one"
        );
    }

    #[test]
    fn only_authorized_requests_extend_keep_hot_and_the_latest_one_wins() {
        let mut keep_alive = KeepAliveState::default();
        keep_alive.note(ended_with(100, 9_000, false), KEEP_HOT);
        assert_eq!(keep_alive.ends(at(100), KEEP_HOT), at(700));
        keep_alive.note(ended_with(400, 0, false), KEEP_HOT);
        assert_eq!(keep_alive.ends(at(400), KEEP_HOT), at(700));
        keep_alive.note(ended_with(410, 9_000, true), KEEP_HOT);
        assert_eq!(keep_alive.ends(at(410), KEEP_HOT), at(9_410));
        assert_eq!(
            keep_alive.ends(at(500), KEEP_HOT),
            at(9_410),
            "of a later one"
        );
        keep_alive.note(ended_with(1_500, 60, true), KEEP_HOT);
        assert_eq!(keep_alive.ends(at(1_500), KEEP_HOT), at(1_560));
        let forever = KeepAlive {
            span: Span(u64::MAX),
            ..ended_with(1_600, 0, true)
        };
        keep_alive.note(forever, KEEP_HOT);
        assert_eq!(keep_alive.ends(at(1_600), KEEP_HOT), Time(u64::MAX));
    }

    #[test]
    fn the_keep_hot_time_of_use_before_an_adoption_is_kept() {
        let mut keep_alive = KeepAliveState::since(Some(at(90)));
        keep_alive.note(ended_with(100, 0, false), KEEP_HOT);
        assert_eq!(keep_alive.ends(at(100), KEEP_HOT), at(690));
    }
}
