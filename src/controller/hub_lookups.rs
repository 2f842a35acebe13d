//! Looking models up on the hub: which names it did not have lately, and how often users may make the pool
//! look and register.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use thiserror::Error;

use super::catalog_change::ChangeError;
use config::LiveConfig;
use pool::{Span, Time};
use source::Sources;

/// So long the hub is not asked again for a name that it does not have, and for so many names.
const MISSED_FOR: Span = Span::from_secs(60);
const MISSED_MAX: usize = 256;
/// Names that the hub is asked for in a minute because of users: invented names must not make the
/// hub turn all of the lab away.
pub(super) const LOOKS: u32 = 60;
const LOOKS_WITHIN: Span = Span::from_secs(60);
const HOUR: Span = Span::from_secs(3600);

#[derive(Debug, Error)]
pub enum HubRegistrationError {
    #[error("{name} is no name on the hub: organisation/name")]
    NoName { name: String },
    /// It is not there, or nothing of it can be run.
    #[error("{message}")]
    NotThere { message: String },
    /// It could not be looked up; later it may.
    #[error("{message}")]
    NotNow { message: String },
    #[error(
        "users {what} {most} models of the hub within {within}, and no more may be; ask again in {retry}, or ask an administrator to load it"
    )]
    TooMany {
        what: &'static str,
        most: u32,
        within: Span,
        retry: Span,
    },
    #[error(transparent)]
    Change(#[from] ChangeError),
}

/// What looking up takes.
#[derive(Debug)]
pub(super) struct HubLookups {
    pub sources: Arc<Sources>,
    pub config: LiveConfig,
    missed: Mutex<VecDeque<(String, Time, String)>>,
    pub looks: Rate,
    pub registered: Rate,
}

/// When something was last done, of what may be done only so many times within a time.
#[derive(Debug)]
pub(super) struct Rate {
    what: &'static str,
    within: Span,
    done: Mutex<VecDeque<Time>>,
}

impl Rate {
    fn new(what: &'static str, within: Span) -> Rate {
        Rate {
            what,
            within,
            done: Mutex::default(),
        }
    }

    /// Once more, if that is not more than `most` times.
    pub fn take(&self, now: Time, most: u32) -> Result<(), HubRegistrationError> {
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        done.retain(|at| *at + self.within > now);
        match done.front() {
            Some(first) if done.len() >= most as usize => Err(HubRegistrationError::TooMany {
                what: self.what,
                most,
                within: self.within,
                retry: (*first + self.within).since(now),
            }),
            _ => {
                done.push_back(now);
                Ok(())
            }
        }
    }

    /// What was taken at that moment came to nothing.
    pub fn give_back(&self, taken: Time) {
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(nth) = done.iter().position(|at| *at == taken) {
            done.remove(nth);
        }
    }
}

impl HubLookups {
    pub fn new(sources: Arc<Sources>, config: LiveConfig) -> HubLookups {
        HubLookups {
            looks: Rate::new("asked for", LOOKS_WITHIN),
            registered: Rate::new("brought in", HOUR),
            missed: Mutex::default(),
            sources,
            config,
        }
    }

    pub fn missed(&self, name: &str, now: Time) -> Option<String> {
        let mut missed = self.missed.lock().unwrap_or_else(PoisonError::into_inner);
        missed.retain(|(_, at, _)| *at + MISSED_FOR > now);
        let found = missed.iter().find(|(known, ..)| known == name);
        found.map(|(.., message)| message.clone())
    }

    pub fn miss(&self, name: &str, now: Time, message: &str) {
        let mut missed = self.missed.lock().unwrap_or_else(PoisonError::into_inner);
        missed.truncate(MISSED_MAX - 1);
        missed.push_front((name.to_owned(), now, message.to_owned()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_within_a_time_and_the_refusal_says_when_there_is_room_again() {
        let rate = Rate::new("brought in", HOUR);
        for minute in 0..3 {
            rate.take(Time(minute * 60_000), 3).expect("room");
        }
        let full = rate.take(Time(180_000), 3).expect_err("full").to_string();
        assert!(
            full.contains("3 models") && full.contains("57 min"),
            "{full}"
        );
        rate.give_back(Time(60_000));
        rate.take(Time(180_000), 3)
            .expect("what came to nothing is free");
        assert!(rate.take(Time(3_599_999), 3).is_err());
        rate.take(Time(3_600_000), 3)
            .expect("the first is an hour old");
        assert_eq!(rate.done.lock().unwrap().len(), 3, "no more are remembered");
        rate.take(Time(3_600_000), 4).expect("more may be");
        assert!(rate.take(Time(3_600_001), 2).is_err(), "fewer may be");
    }
}
