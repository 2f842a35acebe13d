//! The referee's rule for idle replicas of higher priority that leave for a lower one (P6).

use super::{Referee, ReplicaRecord};
use pool::{IdleYields, ModelId, Span, Time};

const RELOADS: u64 = 3;

impl Referee {
    /// Returns true if it has been idle for long enough and no other rule keeps it.
    pub(super) fn yields(&self, now: Time, seen: &ReplicaRecord) -> bool {
        let Some(least) = self.yields_after(seen.model) else {
            return false;
        };
        let idle = seen.idle_since.map_or(Span::ZERO, |since| now.since(since));
        let over = self.overrides.get(&seen.model);
        let over = over.filter(|over| over.expires.is_none_or(|expires| expires > now));
        let kept = over.is_some_and(|over| over.keep_hot.is_some() || over.expires.is_some());
        idle >= least && !kept && !self.protected(seen.model, now) && !self.has_waiting(seen.model)
    }

    /// The pool's reload figure is a mean of the model's loads, or the specification's; it is at least the smallest of these.
    fn yields_after(&self, model: ModelId) -> Option<Span> {
        match self.limits.idle_yields {
            IdleYields::Never => None,
            IdleYields::After(idle) => Some(idle),
            IdleYields::Auto => {
                let reload = self.specs[&model].reload;
                // A guess counts no more than the median of all swaps.
                let shortest = if self.specs[&model].reload_is_guess {
                    self.shortest_loads.values().min()
                } else {
                    self.shortest_loads.get(&model)
                };
                let reload = shortest.map_or(Span::ZERO, |load| reload.min(*load));
                Some(Span(reload.0.saturating_mul(RELOADS)))
            }
        }
    }

    /// A load of the model has taken this long.
    pub(super) fn loaded_in(&mut self, model: ModelId, took: Span) {
        let shortest = self.shortest_loads.entry(model).or_insert(took);
        *shortest = took.min(*shortest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use pool::{Limits, ModelSpec};

    const MODEL: ModelId = ModelId(0);

    fn referee(idle_yields: IdleYields, reload_s: u64) -> Referee {
        let limits = Limits {
            idle_yields,
            ..Limits::default()
        };
        let spec = ModelSpec {
            name: "urgent".into(),
            reload: Span::from_secs(reload_s),
            ..ModelSpec::default()
        };
        Referee::new(
            limits,
            &BTreeMap::new(),
            false,
            BTreeMap::from([(MODEL, spec)]),
        )
    }

    #[test]
    fn a_replica_yields_no_earlier_than_after_three_reload_times() {
        let mut short = referee(IdleYields::Auto, 4);
        short.loaded_in(MODEL, Span(300));
        assert_eq!(short.yields_after(MODEL), Some(Span(900)));
        let mut long = referee(IdleYields::Auto, 60);
        long.loaded_in(MODEL, Span::from_secs(90));
        assert_eq!(long.yields_after(MODEL), Some(Span::from_secs(180)));
        long.loaded_in(MODEL, Span::from_secs(50));
        assert_eq!(long.yields_after(MODEL), Some(Span::from_secs(150)));
    }

    #[test]
    fn a_configured_yield_time_does_not_depend_on_the_reload_time() {
        let after = IdleYields::After(Span::from_secs(5));
        let mut fixed = referee(after, 60);
        fixed.loaded_in(MODEL, Span::from_secs(60));
        assert_eq!(fixed.yields_after(MODEL), Some(Span::from_secs(5)));
        assert_eq!(referee(IdleYields::Never, 60).yields_after(MODEL), None);
    }
}
