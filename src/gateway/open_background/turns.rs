//! The order in which background responses begin: holders take turns, and each begins its oldest first, within limits of what runs
//! at the same time.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;

use pool::Time;

/// Units that run at the same time, of all holders and of one.
const RUNNING_MAX: u32 = 512;
const RUNNING_PER_HOLDER: u32 = 64;
/// Units of a response whose events are kept in memory.
const STREAMED_UNITS: u32 = 8;

/// The units that a response takes while it runs.
pub(super) fn units(is_streamed: bool) -> u32 {
    if is_streamed { STREAMED_UNITS } else { 1 }
}

/// The responses that wait, and the units that run.
#[derive(Debug, Default)]
pub(super) struct Turns {
    ready: BTreeMap<String, VecDeque<(String, u32)>>,
    paused: BTreeSet<(Time, String, String, u32)>,
    running: BTreeMap<String, u32>,
    running_total: u32,
    /// The holder that had the last turn.
    last: String,
}

impl Turns {
    /// Adds a response that may begin.
    pub fn push(&mut self, holder: &str, id: &str, units: u32) {
        let ready = self.ready.entry(holder.to_owned()).or_default();
        ready.push_back((id.to_owned(), units));
    }

    /// Adds a response that may begin at `until`.
    pub fn pause(&mut self, holder: &str, id: &str, units: u32, until: Time) {
        let paused = (until, holder.to_owned(), id.to_owned(), units);
        self.paused.insert(paused);
    }

    /// Removes a response that waits.
    pub fn remove(&mut self, holder: &str, id: &str) {
        if let Some(ready) = self.ready.get_mut(holder) {
            ready.retain(|(waiting, _)| waiting != id);
            if ready.is_empty() {
                self.ready.remove(holder);
            }
        }
        self.paused.retain(|(_, _, paused, _)| paused != id);
    }

    /// The response that begins next, whose units now run.
    pub fn next(&mut self, now: Time) -> Option<String> {
        while let Some(first) = self.paused.pop_first() {
            if first.0 > now {
                self.paused.insert(first);
                break;
            }
            let (_, holder, id, units) = first;
            self.push(&holder, &id, units);
        }
        let after = (Bound::Excluded(self.last.clone()), Bound::Unbounded);
        let until = (Bound::Unbounded, Bound::Included(self.last.clone()));
        let mut holders = self.ready.range(after).chain(self.ready.range(until));
        let holder = holders.find(|(holder, ready)| {
            let own = self.running.get(*holder).copied().unwrap_or_default();
            ready.front().is_some_and(|(_, units)| {
                own + units <= RUNNING_PER_HOLDER && self.running_total + units <= RUNNING_MAX
            })
        });
        let holder = holder?.0.clone();
        let ready = self.ready.get_mut(&holder)?;
        let (id, units) = ready.pop_front()?;
        if ready.is_empty() {
            self.ready.remove(&holder);
        }
        *self.running.entry(holder.clone()).or_default() += units;
        self.running_total += units;
        self.last = holder;
        Some(id)
    }

    /// Releases the units of a run that has ended.
    pub fn release(&mut self, holder: &str, units: u32) {
        self.running_total = self.running_total.saturating_sub(units);
        if let Some(own) = self.running.get_mut(holder) {
            *own = own.saturating_sub(units);
            if *own == 0 {
                self.running.remove(holder);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b1_holders_take_turns_however_many_responses_one_of_them_has() {
        let mut turns = Turns::default();
        for nth in 0..500 {
            turns.push("key:1", &format!("a{nth}"), 1);
        }
        assert_eq!(turns.next(Time(0)).as_deref(), Some("a0"));
        turns.push("key:2", "b0", 1);
        turns.push("key:0", "z0", 1);
        assert_eq!(turns.next(Time(0)).as_deref(), Some("b0"));
        assert_eq!(turns.next(Time(0)).as_deref(), Some("z0"));
        let mut own = 1;
        while turns.next(Time(0)).is_some() {
            own += 1;
        }
        assert_eq!(own, RUNNING_PER_HOLDER);
        turns.push("key:2", "b1", 1);
        assert_eq!(turns.next(Time(0)).as_deref(), Some("b1"));
        turns.release("key:1", 1);
        assert_eq!(turns.next(Time(0)).as_deref(), Some("a64"));
    }

    #[test]
    fn all_holders_together_run_a_bounded_number_of_units() {
        let mut turns = Turns::default();
        for holder in 0..20 {
            for nth in 0..9 {
                turns.push(
                    &format!("key:{holder}"),
                    &format!("{holder}-{nth}"),
                    units(true),
                );
            }
        }
        let mut begun = 0;
        while turns.next(Time(0)).is_some() {
            begun += 1;
        }
        assert_eq!(begun, RUNNING_MAX / STREAMED_UNITS);
    }

    #[test]
    fn a_paused_response_begins_at_its_time_and_a_removed_one_never() {
        let mut turns = Turns::default();
        turns.pause("key:1", "a", 1, Time(10));
        turns.pause("key:1", "b", 1, Time(10));
        turns.push("key:1", "c", 1);
        turns.remove("key:1", "b");
        turns.remove("key:1", "c");
        assert_eq!(turns.next(Time(9)), None);
        assert_eq!(turns.next(Time(10)).as_deref(), Some("a"));
        assert_eq!(turns.next(Time(99)), None);
    }
}
