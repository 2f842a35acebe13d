//! Divides a limit of the controller among callers, none of which ever takes all of it (B1).

use std::collections::BTreeMap;

/// The party a lookup counts against: a key, a person, an address, or an administrator's order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LookupCaller(pub String);

impl LookupCaller {
    /// The caller of administrators' orders, which no user limit counts.
    pub fn administrator() -> LookupCaller {
        LookupCaller("administrator".to_owned())
    }
}

/// The part of a limit that one caller may have while the others hold `others`: three quarters of the rest. Each new caller finds
/// room, and a few callers can use almost all of it.
pub(super) fn share_of_one(limit: u32, others: u32) -> u32 {
    let left = limit.saturating_sub(others);
    left - left / 4
}

/// Counts by caller.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    by_caller: BTreeMap<LookupCaller, u32>,
    sum: u32,
}

impl Counts {
    /// Counts one more for this caller, if its share of the limit has room.
    pub fn take(&mut self, caller: &LookupCaller, limit: u32) -> bool {
        let own = self.by_caller.get(caller).copied().unwrap_or_default();
        let has_room = own < share_of_one(limit, self.sum - own);
        if has_room {
            self.by_caller.insert(caller.clone(), own + 1);
            self.sum += 1;
        }
        has_room
    }

    pub fn give_back(&mut self, caller: &LookupCaller) {
        let Some(own) = self.by_caller.get_mut(caller) else {
            return;
        };
        *own -= 1;
        self.sum -= 1;
        if *own == 0 {
            self.by_caller.remove(caller);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(name: &str) -> LookupCaller {
        LookupCaller(name.to_owned())
    }

    #[test]
    fn b1_one_caller_leaves_room_and_several_may_use_all_lookups() {
        let mut counts = Counts::default();
        let fill = |counts: &mut Counts, name: &str| {
            (0..1000).filter(|_| counts.take(&caller(name), 60)).count()
        };
        assert_eq!(fill(&mut counts, "one"), 45);
        assert_eq!(fill(&mut counts, "other"), 12);
        assert_eq!(fill(&mut counts, "third"), 3);
        assert_eq!(fill(&mut counts, "fourth"), 0);
        counts.give_back(&caller("one"));
        assert!(counts.take(&caller("fourth"), 60));
        counts.give_back(&caller("nobody"));
        assert_eq!(counts.sum, 60);
    }

    #[test]
    fn a_limit_of_one_goes_to_the_first_caller() {
        let mut counts = Counts::default();
        assert!(counts.take(&caller("one"), 1));
        assert!(!counts.take(&caller("other"), 1));
        assert!(!Counts::default().take(&caller("one"), 0));
    }
}
