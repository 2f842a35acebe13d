//! Looks models up on the hub: remembers recent misses, and limits the lookups and registrations that users can cause.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use thiserror::Error;

use super::caller_share::{LookupCaller, share_of_one};
use crate::messages::ChangeError;
use config::LiveConfig;
use pool::{Span, Time};
use source::Sources;

/// Lifetime and maximum number of remembered misses. The hub is not queried again for a missing name in this time.
const MISSED_FOR: Span = Span::from_secs(60);
const MISSED_MAX: usize = 256;
/// Maximum hub lookups per minute on behalf of users. Each user has a share. Invented names must not make the hub
/// rate-limit the entire lab.
pub const HUB_LOOKUPS_MAX: u32 = 60;
const LOOKS_WITHIN: Span = Span::from_secs(60);
const HOUR: Span = Span::from_secs(3600);

#[derive(Debug, Error)]
pub enum HubRegistrationError {
    #[error("{name} is not a name on the hub; use organisation/name")]
    NoName { name: String },
    /// The model does not exist, or has no files that can be run.
    #[error("{message}")]
    NotThere { message: String },
    /// The lookup failed and may succeed later.
    #[error("{message}")]
    NotNow { message: String },
    #[error(
        "all users together may {what} {most} models of the hub within {within}, and this caller's share is used up; retry in {retry}, or let an administrator load it"
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

/// Dependencies and state of hub lookups.
#[derive(Debug)]
pub(crate) struct HubLookups {
    pub sources: Arc<Sources>,
    pub config: LiveConfig,
    missed: Mutex<VecDeque<(String, Time, String)>>,
    pub looks: Rate,
    pub registered: Rate,
}

/// A limit on how often an action may happen within `within`. Holds the time and the caller of each recent action.
#[derive(Debug)]
pub(crate) struct Rate {
    what: &'static str,
    within: Span,
    done: Mutex<VecDeque<(Time, LookupCaller)>>,
}

impl Rate {
    fn new(what: &'static str, within: Span) -> Rate {
        Rate {
            what,
            within,
            done: Mutex::default(),
        }
    }

    /// Counts one action of this caller, if its share of `most` has room.
    pub fn take(
        &self,
        caller: &LookupCaller,
        now: Time,
        most: u32,
    ) -> Result<(), HubRegistrationError> {
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        done.retain(|(at, _)| *at + self.within > now);
        let is_own = |(_, of): &&(Time, LookupCaller)| of == caller;
        let own = done.iter().filter(is_own).count();
        let others = u32::try_from(done.len() - own).unwrap_or(u32::MAX);
        if own < share_of_one(most, others) as usize {
            done.push_back((now, caller.clone()));
            return Ok(());
        }
        // If others hold the entire limit, the oldest of their entries makes room.
        let first = done.iter().find(is_own).or(done.front());
        let retry = first.map_or(self.within, |(at, _)| (*at + self.within).since(now));
        Err(HubRegistrationError::TooMany {
            what: self.what,
            most,
            within: self.within,
            retry,
        })
    }

    /// Takes back a count whose action did not happen.
    pub fn give_back(&self, caller: &LookupCaller, taken: Time) {
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        let nth = done
            .iter()
            .position(|(at, of)| *at == taken && of == caller);
        nth.and_then(|nth| done.remove(nth));
    }
}

impl HubLookups {
    pub fn new(sources: Arc<Sources>, config: LiveConfig) -> HubLookups {
        HubLookups {
            looks: Rate::new("look up", LOOKS_WITHIN),
            registered: Rate::new("bring in", HOUR),
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
    fn additions_are_limited_per_hour_and_the_refusal_gives_the_waiting_time() {
        let rate = Rate::new("bring in", HOUR);
        let caller = |name: &str| LookupCaller(name.to_owned());
        let (ann, ben) = (caller("ann"), caller("ben"));
        for minute in 0..3 {
            rate.take(&ann, Time(minute * 60_000), 4).expect("room");
        }
        let full = rate.take(&ann, Time(180_000), 4).expect_err("full");
        let full = full.to_string();
        assert!(
            full.contains("4 models") && full.contains("57 min"),
            "{full}"
        );
        rate.take(&ben, Time(180_000), 4).expect("of another user");
        assert!(rate.take(&ben, Time(180_000), 4).is_err());
        rate.give_back(&ann, Time(60_000));
        rate.take(&ann, Time(180_000), 4)
            .expect("what came to nothing is free");
        assert!(rate.take(&ann, Time(3_599_999), 4).is_err());
        rate.take(&ann, Time(3_600_000), 4)
            .expect("the first is an hour old");
        assert!(rate.take(&ann, Time(3_600_001), 2).is_err(), "fewer may be");
        assert_eq!(rate.done.lock().unwrap().len(), 4, "no more are remembered");
    }
}
