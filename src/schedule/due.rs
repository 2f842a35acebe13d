//! Decides what is due now (E3). [`Due::due`] examines the occurrences since its last call. It may be called early, late, twice, or
//! after the machine slept: each occurrence counts exactly once. Pure; the caller carries out the decision.
//!
//! Of several occurrences in an interval only the newest matters, because each closes or opens the pool completely:
//!
//! | newest in the interval | what happens |
//! |---|---|
//! | a cleanup | it runs, however late: its window is still open |
//! | a reopening | it runs, and an earlier cleanup is skipped: its evening has ended |
//! | both simultaneously | the cleanup runs, then the reopening |
//!
//! At the start of the service three things may have to be made up for (E3), all of them only during the window:
//!
//! | before the start | what happens |
//! |---|---|
//! | a cleanup was begun and interrupted | the rest of it runs |
//! | this evening's cleanup was done | the pool stays closed |
//! | the service was down at the time of the cleanup | it runs now |
//! | a new data folder; or the service was up at that time, with another schedule | nothing: the pool is open |
//!
//! Without a reopening, no window limits a late cleanup; it runs if it is at most [`LATE_MAX`] late.

use chrono::{DateTime, SubsecRound, TimeDelta, Utc};

use super::evening::{Evening, EveningEvent};

/// The maximum delay after which a cleanup without a window still runs.
pub const LATE_MAX: TimeDelta = TimeDelta::hours(1);

/// A clock that goes back by less than this was corrected, and completed events are not repeated. A clock that goes back further
/// was wrong before, and occurrences are counted again from the new time.
pub const CORRECTION_MAX: TimeDelta = TimeDelta::minutes(5);

/// The events to carry out now, in order, and the events that were skipped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    pub run: Vec<Occurrence>,
    pub passed_over: Vec<(Occurrence, SkipReason)>,
    /// The clock went back by this much, and occurrences are counted again from now on.
    pub clock_went_back: Option<TimeDelta>,
}

/// An event at its scheduled time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Occurrence {
    pub at: DateTime<Utc>,
    pub event: EveningEvent,
}

/// The reason why an occurrence is not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SkipReason {
    /// A later occurrence reverted it before it could be carried out.
    Overtaken { by: Occurrence },
    /// The schedule has no window, and the occurrence is later than [`LATE_MAX`].
    TooLate { by: TimeDelta },
}

impl std::fmt::Display for SkipReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SkipReason::Overtaken { by } => {
                write!(
                    f,
                    "missed, and the {} of {} came since (E3)",
                    by.event.name(),
                    by.at
                )
            }
            SkipReason::TooLate { by } => {
                write!(
                    f,
                    "missed by {} min, and without evening.reopen there is no window for a late cleanup (E3)",
                    by.num_minutes()
                )
            }
        }
    }
}

/// The store's record of the service before this start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServiceHistory {
    /// The time the last cleanup was completed.
    pub done: Option<DateTime<Utc>>,
    /// The time the last cleanup began. If it has not completed since, it was interrupted.
    pub begun: Option<DateTime<Utc>>,
    /// The time the service was last seen running. `None` if the data folder is new.
    pub last_up: Option<DateTime<Utc>>,
}

impl ServiceHistory {
    /// Ignores times in the future: they come from a wrong clock.
    fn believable(self, now: DateTime<Utc>) -> ServiceHistory {
        let so = |at: Option<DateTime<Utc>>| at.filter(|at| *at <= now + CORRECTION_MAX);
        let (done, begun) = (so(self.done), so(self.begun));
        ServiceHistory {
            done,
            begun,
            last_up: so(self.last_up).max(done).max(begun),
        }
    }
}

/// The state of the schedule: everything up to `last_check` has been decided.
#[derive(Clone, Debug)]
pub struct Due {
    evening: Evening,
    past: ServiceHistory,
    last_check: Option<DateTime<Utc>>,
    /// The decision for the start, until it is carried out.
    first: Option<Decision>,
    /// True if this schedule has closed the pool.
    closed: bool,
}

impl Due {
    pub fn new(evening: Evening, past: ServiceHistory) -> Due {
        Due {
            evening,
            past,
            last_check: None,
            first: None,
            closed: false,
        }
    }

    pub(super) fn evening(&self) -> &Evening {
        &self.evening
    }

    /// Decides what the start of the service has to make up for; [`Due::due`] returns it. Returns the time since which the pool is
    /// closed, if it starts closed.
    pub fn begin(&mut self, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let decision = self.due(now);
        let closes = decision.run.first().map(|occurrence| occurrence.at);
        self.first = Some(decision);
        closes.filter(|_| self.closed)
    }

    /// Replaces the schedule. Its times count from now on, and none is caught up. If the old schedule has closed the pool and the
    /// new one has it open now, the pool opens. [`Due::due`] returns the events that the change requires.
    pub fn change(&mut self, evening: Evening, now: DateTime<Utc>) {
        let mut decision = self.due(now);
        self.evening = evening;
        if self.closed && !self.evening.state_at(now).closed {
            self.closed = false;
            decision.run.push(Occurrence {
                at: now.trunc_subsecs(0),
                event: EveningEvent::Reopen,
            });
        }
        self.first = Some(decision);
    }

    /// Returns the events that became due since the last call. The first call is the start of the service (E3).
    pub fn due(&mut self, now: DateTime<Utc>) -> Decision {
        if let Some(first) = self.first.take() {
            return first;
        }
        let now = now.trunc_subsecs(0);
        let decision = match self.last_check {
            None => self.at_start(now),
            Some(last_check) if now <= last_check => {
                let back = last_check - now;
                if back <= CORRECTION_MAX {
                    return Decision::default();
                }
                Decision {
                    clock_went_back: Some(back),
                    ..Decision::default()
                }
            }
            Some(last_check) => self.between(last_check, now),
        };
        self.last_check = Some(now);
        if let Some(last) = decision.run.last() {
            self.closed = last.event != EveningEvent::Reopen;
        }
        decision
    }

    fn at_start(&self, now: DateTime<Utc>) -> Decision {
        let state = self.evening.state_at(now);
        let past = self.past.believable(now);
        let broken_off = past
            .begun
            .filter(|begun| past.done.is_none_or(|done| done < *begun));
        let Some(at) = state.last_cleanup.filter(|_| state.closed) else {
            return self.without_window(now, broken_off, state.last_reopen);
        };
        let of_this_evening = |moment: DateTime<Utc>| moment >= at;
        let event = if broken_off.is_some_and(of_this_evening) {
            EveningEvent::Resume
        } else if past.done.is_some_and(of_this_evening) {
            EveningEvent::StillClosed
        } else if past.last_up.is_some_and(|last_up| last_up < at) {
            EveningEvent::Cleanup
        } else {
            return Decision::default();
        };
        Decision {
            run: vec![Occurrence { at, event }],
            ..Decision::default()
        }
    }

    /// At the start, with an open pool: finishes an interrupted cleanup only if it is not late and no window exists.
    fn without_window(
        &self,
        now: DateTime<Utc>,
        broken_off: Option<DateTime<Utc>>,
        last_reopen: Option<DateTime<Utc>>,
    ) -> Decision {
        let mut decision = Decision::default();
        let Some(at) = broken_off.filter(|_| self.evening.cleanup.is_some()) else {
            return decision;
        };
        let cleanup = |event| Occurrence { at, event };
        let late = now - at;
        let reopened = last_reopen.filter(|_| self.evening.has_window());
        if let Some(at) = reopened {
            let event = EveningEvent::Reopen;
            let by = Occurrence { at, event };
            let why = SkipReason::Overtaken { by };
            decision
                .passed_over
                .push((cleanup(EveningEvent::Resume), why));
        } else if late > LATE_MAX {
            let why = SkipReason::TooLate { by: late };
            decision
                .passed_over
                .push((cleanup(EveningEvent::Resume), why));
        } else {
            decision.run = [EveningEvent::Resume, EveningEvent::Reopen]
                .map(cleanup)
                .to_vec();
        }
        decision
    }

    fn between(&self, last_check: DateTime<Utc>, now: DateTime<Utc>) -> Decision {
        let state = self.evening.state_at(now);
        let new = |at: Option<DateTime<Utc>>, event| {
            at.filter(|at| *at > last_check)
                .map(|at| Occurrence { at, event })
        };
        let cleanup = new(state.last_cleanup, EveningEvent::Cleanup);
        let reopen = new(state.last_reopen, EveningEvent::Reopen);
        let mut decision = Decision::default();
        match (cleanup, reopen) {
            (None, None) => {}
            (None, Some(reopen)) => decision.run.push(reopen),
            (Some(cleanup), None) if self.evening.has_window() => decision.run.push(cleanup),
            (Some(cleanup), None) => {
                let late = now - cleanup.at;
                if late <= LATE_MAX {
                    decision.run = vec![
                        cleanup,
                        Occurrence {
                            event: EveningEvent::Reopen,
                            ..cleanup
                        },
                    ];
                } else {
                    decision
                        .passed_over
                        .push((cleanup, SkipReason::TooLate { by: late }));
                }
            }
            (Some(cleanup), Some(reopen)) if cleanup.at == reopen.at => {
                decision.run = vec![cleanup, reopen]
            }
            (Some(cleanup), Some(reopen)) => {
                let (first, last) = if cleanup.at < reopen.at {
                    (cleanup, reopen)
                } else {
                    (reopen, cleanup)
                };
                decision.run.push(last);
                decision
                    .passed_over
                    .push((first, SkipReason::Overtaken { by: last }));
            }
        }
        decision
    }
}

#[cfg(test)]
mod tests {
    use chrono_tz::UTC;

    use super::EveningEvent::{Cleanup, Reopen, Resume, StillClosed};
    use super::*;

    const NINE_PM: &str = "0 0 21 * * *";

    fn at(text: &str) -> DateTime<Utc> {
        text.parse().unwrap()
    }

    fn usual() -> Evening {
        Evening::new(Some(NINE_PM), Some("0 0 7 * * *"), UTC).unwrap()
    }

    #[test]
    fn an_interrupted_cleanup_is_finished_while_its_window_is_open() {
        let start = |evening: Evening, begun: &str, done: Option<&str>, now| {
            let past = ServiceHistory {
                done: done.map(at),
                begun: Some(at(begun)),
                last_up: None,
            };
            let decision = Due::new(evening, past).due(at(now));
            let events: Vec<EveningEvent> = decision
                .run
                .iter()
                .map(|occurrence| occurrence.event)
                .collect();
            (events, decision.passed_over.len())
        };
        let begun = "2026-06-10T21:00:00.250Z";
        let night = "2026-06-10T21:04:00Z";
        let yesterday = Some("2026-06-09T21:08:00Z");
        for done in [None, yesterday] {
            assert_eq!(
                start(usual(), begun, done, night),
                (vec![Resume], 0),
                "broken off"
            );
        }
        assert_eq!(
            start(usual(), begun, Some("2026-06-10T21:03:00Z"), night),
            (vec![StillClosed], 0),
            "it was done"
        );
        assert_eq!(
            start(usual(), begun, yesterday, "2026-06-11T07:00:01Z"),
            (vec![], 1),
            "its window is over"
        );
        assert_eq!(
            start(usual(), begun, yesterday, "2026-06-11T23:00:00Z"),
            (vec![Cleanup], 0),
            "the next evening was missed completely"
        );
        let alone = || Evening::new(Some(NINE_PM), None, UTC).unwrap();
        assert_eq!(
            start(alone(), begun, yesterday, night),
            (vec![Resume, Reopen], 0),
            "without a window, soon"
        );
        assert_eq!(
            start(alone(), begun, yesterday, "2026-06-10T22:30:00Z"),
            (vec![], 1),
            "without a window, late"
        );
        assert_eq!(
            start(alone(), begun, Some("2026-06-10T21:03:00Z"), night),
            (vec![], 0)
        );
    }
}
