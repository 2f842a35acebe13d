//! The order in which background responses begin: holders take turns, and each begins its oldest first, within limits of what runs
//! at the same time.

use std::collections::BTreeMap;
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
    /// By holder and in their order.
    ready: BTreeMap<String, BTreeMap<u64, (String, u32)>>,
    paused: BTreeMap<(Time, String), (String, u32)>,
    /// The place of each response that waits.
    places: BTreeMap<String, Place>,
    last_place: u64,
    running: BTreeMap<String, u32>,
    running_total: u32,
    /// The holder that had the last turn.
    last: String,
}

#[derive(Debug)]
enum Place {
    Ready(u64),
    Paused(Time),
}

impl Turns {
    /// Adds a response that may begin.
    pub fn push(&mut self, holder: &str, id: &str, units: u32) {
        self.last_place += 1;
        let ready = self.ready.entry(holder.to_owned()).or_default();
        ready.insert(self.last_place, (id.to_owned(), units));
        let place = Place::Ready(self.last_place);
        self.places.insert(id.to_owned(), place);
    }

    /// Adds a response that may begin at `until`.
    pub fn pause(&mut self, holder: &str, id: &str, units: u32, until: Time) {
        let paused = (holder.to_owned(), units);
        self.paused.insert((until, id.to_owned()), paused);
        self.places.insert(id.to_owned(), Place::Paused(until));
    }

    /// Removes a response that waits.
    pub fn remove(&mut self, holder: &str, id: &str) {
        match self.places.remove(id) {
            None => {}
            Some(Place::Paused(until)) => {
                self.paused.remove(&(until, id.to_owned()));
            }
            Some(Place::Ready(place)) => self.leave(holder, place),
        }
    }

    fn leave(&mut self, holder: &str, place: u64) {
        if let Some(ready) = self.ready.get_mut(holder) {
            ready.remove(&place);
            if ready.is_empty() {
                self.ready.remove(holder);
            }
        }
    }

    /// The response that begins next, whose units now run.
    pub fn next(&mut self, now: Time) -> Option<String> {
        while let Some(first) = self.paused.first_entry() {
            if first.key().0 > now {
                break;
            }
            let ((_, id), (holder, units)) = first.remove_entry();
            self.push(&holder, &id, units);
        }
        let after = (Bound::Excluded(self.last.clone()), Bound::Unbounded);
        let until = (Bound::Unbounded, Bound::Included(self.last.clone()));
        let mut holders = self.ready.range(after).chain(self.ready.range(until));
        let holder = holders.find(|(holder, ready)| {
            let own = self.running.get(*holder).copied().unwrap_or_default();
            ready.values().next().is_some_and(|(_, units)| {
                own + units <= RUNNING_PER_HOLDER && self.running_total + units <= RUNNING_MAX
            })
        });
        let holder = holder?.0.clone();
        let first = self.ready.get(&holder)?.first_key_value();
        let (place, (id, units)) = first.map(|(place, waits)| (*place, waits.clone()))?;
        self.leave(&holder, place);
        self.places.remove(&id);
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
        assert!(turns.places.is_empty() && turns.ready.is_empty() && turns.paused.is_empty());
    }

    #[test]
    fn the_turns_of_a_holder_with_many_responses_are_removed_one_by_one_and_in_any_order() {
        let mut turns = Turns::default();
        let id = |nth: u64| format!("r{nth}");
        for nth in 0..20_000 {
            match nth % 2 {
                0 => turns.push("key:1", &id(nth), 1),
                _ => turns.pause("key:1", &id(nth), 1, Time(nth)),
            }
        }
        // Each removal finds its place in an index: with a search, these would take minutes.
        for nth in (0..20_000).rev().filter(|nth| *nth != 6) {
            turns.remove("key:1", &id(nth));
        }
        assert_eq!((turns.places.len(), turns.paused.len()), (1, 0));
        assert_eq!(turns.next(Time(99_999)), Some(id(6)));
        turns.remove("key:1", "unknown");
        assert_eq!(turns.next(Time(99_999)), None);
    }
}
