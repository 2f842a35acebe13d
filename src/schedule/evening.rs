//! Calculates the evening window (E1–E3): when the cleanup and the reopening fall, and whether the pool is closed at a given time.
//! Pure arithmetic.
//!
//! ```text
//!           cleanup                       reopen                     cleanup
//!   ──open────┃──────────── closed ─────────┃───────── open ───────────┃── closed ──▶
//! ```
//!
//! The pool is closed if the last cleanup is later than the last reopening. If both fall on the same time, the pool is emptied and
//! opens again immediately.
//!
//! - **Only a cleanup**: no window. The pool is emptied and opens again immediately.
//! - **Only a reopening**: the pool is never closed; each reopening brings always-hot models back.
//! - **Neither**: nothing ever happens.
//!
//! Times are local to the configured zone. A time skipped in spring falls on the end of the gap; a time repeated in autumn counts
//! only the first time. (Expressions with a `*` in hours, minutes or seconds are intervals and follow elapsed time.)

use chrono::{DateTime, SubsecRound, TimeZone, Timelike, Utc};
use chrono_tz::Tz;
use croner::Cron;
use croner::errors::CronError;
use croner::parser::{CronParser, Seconds};

/// The events of the evening schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EveningEvent {
    /// Empties the pool and lifts the protection of always-hot models (E1, E2).
    Cleanup,
    /// After a start only: finishes an interrupted cleanup. Models loaded since it began are not affected.
    Resume,
    /// After a start inside a window whose cleanup was completed before: lifts the protection of always-hot models (E2) without
    /// emptying the pool again.
    StillClosed,
    /// Restores the protection and the always-hot models (E2).
    Reopen,
}

impl EveningEvent {
    pub fn name(self) -> &'static str {
        match self {
            EveningEvent::Cleanup => "cleanup",
            EveningEvent::Resume => "resume_cleanup",
            EveningEvent::StillClosed => "still_closed",
            EveningEvent::Reopen => "reopen",
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ScheduleError {
    #[error(
        "evening.{field}: {expression:?} is not a cron expression: {source}; write second, minute, hour, day, month, weekday, for example \"0 0 21 * * *\""
    )]
    Cron {
        field: &'static str,
        expression: String,
        source: CronError,
    },

    #[error("evening.{field}: {expression:?} never occurs; write for example \"0 0 21 * * *\"")]
    Never {
        field: &'static str,
        expression: String,
    },

    #[error(
        "evening.timezone: {name:?} is not a time zone; write a name like \"America/Chicago\", \"Europe/Berlin\" or \"UTC\""
    )]
    Timezone { name: String },

    #[error("evening.{field}: the scheduler does not take {expression:?}: {source}")]
    Job {
        field: &'static str,
        expression: String,
        source: tokio_cron_scheduler::JobSchedulerError,
    },

    #[error("cannot start the scheduler of the evening cleanup: {source}")]
    Start {
        source: tokio_cron_scheduler::JobSchedulerError,
    },
}

/// The times at which the pool is emptied and opens again.
#[derive(Clone, Debug)]
pub struct Evening {
    pub(super) cleanup: Option<Rule>,
    pub(super) reopen: Option<Rule>,
    zone: Tz,
}

/// The evening's state at a given time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EveningState {
    /// Inside the window: always-hot models are not protected (E2).
    pub closed: bool,
    /// The last occurrence at or before the given time, whether or not it was carried out.
    pub last_cleanup: Option<DateTime<Utc>>,
    pub last_reopen: Option<DateTime<Utc>>,
    /// The first occurrence after the given time.
    pub next_cleanup: Option<DateTime<Utc>>,
    pub next_reopen: Option<DateTime<Utc>>,
}

impl Evening {
    /// Parses the settings. Expressions have six fields with seconds, or five without; `@daily` and similar forms work too.
    ///
    /// # Errors
    /// [`ScheduleError`] with the name of the field when an expression cannot be parsed or never occurs, such
    /// as the 30th of February.
    pub fn new(
        cleanup: Option<&str>,
        reopen: Option<&str>,
        zone: Tz,
    ) -> Result<Evening, ScheduleError> {
        let rule =
            |field, text: Option<&str>| text.map(|text| Rule::new(field, text, zone)).transpose();
        Ok(Evening {
            cleanup: rule("cleanup", cleanup)?,
            reopen: rule("reopen", reopen)?,
            zone,
        })
    }

    /// The time zone with this IANA name.
    pub fn zone_named(name: &str) -> Result<Tz, ScheduleError> {
        name.parse()
            .map_err(|_| ScheduleError::Timezone { name: name.into() })
    }

    pub fn zone(&self) -> Tz {
        self.zone
    }

    /// The state at the given time, by the schedule alone.
    pub fn state_at(&self, now: DateTime<Utc>) -> EveningState {
        let last = |rule: &Option<Rule>| rule.as_ref().and_then(|rule| rule.last(now, self.zone));
        let next = |rule: &Option<Rule>| rule.as_ref().and_then(|rule| rule.next(now, self.zone));
        let (last_cleanup, last_reopen) = (last(&self.cleanup), last(&self.reopen));
        EveningState {
            closed: self.has_window() && last_cleanup > last_reopen,
            last_cleanup,
            last_reopen,
            next_cleanup: next(&self.cleanup),
            next_reopen: next(&self.reopen),
        }
    }

    /// A description of the next cleanup and the next reopening, in local time.
    pub fn outlook(&self, now: DateTime<Utc>) -> String {
        let state = self.state_at(now);
        let shown = |at: DateTime<Utc>| {
            let at = at.with_timezone(&self.zone);
            match at.second() {
                0 => at.format("%a %Y-%m-%d %H:%M %Z").to_string(),
                _ => at.format("%a %Y-%m-%d %H:%M:%S %Z").to_string(),
            }
        };
        let zone = self.zone.name();
        match (state.next_cleanup, state.next_reopen) {
            (Some(cleanup), Some(reopen)) => format!(
                "the next cleanup is on {}, the next reopening on {} ({zone})",
                shown(cleanup),
                shown(reopen)
            ),
            (Some(cleanup), None) => format!(
                "the next cleanup is on {}, and the pool opens again immediately ({zone})",
                shown(cleanup)
            ),
            (None, Some(reopen)) => format!(
                "there is no cleanup; always-hot models come back on {} ({zone})",
                shown(reopen)
            ),
            (None, None) => "there is no cleanup".to_owned(),
        }
    }

    /// Returns true if the pool is ever closed.
    pub(super) fn has_window(&self) -> bool {
        self.cleanup.is_some() && self.reopen.is_some()
    }
}

/// A cron expression.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    pub(super) field: &'static str,
    /// With seconds, as the scheduler requires.
    pub(super) expression: String,
    cron: Cron,
}

impl Rule {
    fn new(field: &'static str, text: &str, zone: Tz) -> Result<Rule, ScheduleError> {
        let expression = if text.split_whitespace().count() == 5 {
            format!("0 {text}")
        } else {
            text.trim().to_string()
        };
        let cron = CronParser::builder()
            .seconds(Seconds::Required)
            .build()
            .parse(&expression)
            .map_err(|source| ScheduleError::Cron {
                field,
                expression: text.into(),
                source,
            })?;
        let rule = Rule {
            field,
            expression,
            cron,
        };
        // Any present-day time will do to test whether there is an occurrence at all.
        let moment = DateTime::UNIX_EPOCH + chrono::TimeDelta::days(365 * 56);
        match rule.next(moment, zone).or_else(|| rule.last(moment, zone)) {
            Some(_) => Ok(rule),
            None => Err(ScheduleError::Never {
                field,
                expression: text.into(),
            }),
        }
    }

    /// The last occurrence at or before the given time.
    pub(super) fn last(&self, now: DateTime<Utc>, zone: Tz) -> Option<DateTime<Utc>> {
        // Occurrences are full seconds, so fractions of a second do not matter.
        let now = zone.from_utc_datetime(&now.trunc_subsecs(0).naive_utc());
        self.cron
            .find_previous_occurrence(&now, true)
            .ok()
            .map(|at| at.to_utc())
    }

    /// The first occurrence after the given time.
    pub(super) fn next(&self, now: DateTime<Utc>, zone: Tz) -> Option<DateTime<Utc>> {
        let now = zone.from_utc_datetime(&now.trunc_subsecs(0).naive_utc());
        self.cron
            .find_next_occurrence(&now, false)
            .ok()
            .map(|at| at.to_utc())
    }
}
