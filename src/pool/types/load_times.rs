//! The durations of a model's loads, by the source of its weights. Recent loads count most; a source without a measurement is
//! unknown.

use crate::types::ids::Span;
use crate::types::model::Tier;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadTimes {
    by_tier: [Option<Span>; Tier::ALL.len()],
    last: Option<Tier>,
}

impl LoadTimes {
    /// Weights old and new measurements equally, so a single slow load does not spoil the figure.
    pub(crate) fn add(&mut self, tier: Tier, took: Span) {
        let known = &mut self.by_tier[tier as usize];
        *known = Some(known.map_or(took, |old| Span(old.0.midpoint(took.0))));
        // Waking is not a load and does not predict the next one.
        if tier != Tier::Asleep {
            self.last = Some(tier);
        }
    }

    /// The expected time of the next load. Recently read weights stay in host memory for a while, so it is the fastest measured
    /// time from there up to the last tier.
    pub(crate) fn expected(&self) -> Option<Span> {
        self.get(self.last?)
    }

    pub fn get(&self, tier: Tier) -> Option<Span> {
        self.by_tier[tier as usize]
    }

    /// Plain numbers for the store: the last tier plus one, then milliseconds plus one per tier; 0 if unknown.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u64> + '_ {
        let last = self.last.map_or(0, |tier| tier as u64 + 1);
        let times = self
            .by_tier
            .iter()
            .map(|took| took.map_or(0, |took| took.0.saturating_add(1)));
        core::iter::once(last).chain(times)
    }

    pub(crate) fn from_numbers(numbers: &[u64]) -> LoadTimes {
        let known = |number: &u64| number.checked_sub(1);
        let last = numbers
            .first()
            .and_then(known)
            .and_then(|nth| Tier::ALL.get(usize::try_from(nth).ok()?).copied());
        let mut times = LoadTimes {
            last,
            ..LoadTimes::default()
        };
        for (slot, number) in times.by_tier.iter_mut().zip(numbers.iter().skip(1)) {
            *slot = known(number).map(Span);
        }
        times
    }
}
