//! The facts that survive a restart in addition to wishes: how often models were used and how long their loads took. They are plain
//! numbers that only this file interprets. The shell stores them and returns them.

use alloc::vec::Vec;

use crate::facts::state::Pool;
use crate::types::demand::Demand;
use crate::types::ids::ModelId;
use crate::types::load_times::LoadTimes;

/// The first number of the data. Data of another version has another layout and is ignored.
const VERSION: u64 = 1;

impl Pool {
    /// The known use of a model, for `Event::Remembered`; `None` if it was never used.
    pub fn remembered(&self, id: ModelId) -> Option<Vec<u64>> {
        let model = self.models.get(&id)?;
        let untouched = model.last_used.is_none() && model.load_times == LoadTimes::default();
        if untouched && model.demand == Demand::default() {
            return None;
        }
        let mut numbers = vec![VERSION];
        let mut section = |of: Vec<u64>| {
            numbers.push(of.len() as u64);
            numbers.extend(of);
        };
        section(model.demand.numbers().collect());
        section(model.load_times.numbers().collect());
        section(model.last_used.map(|at| at.0).into_iter().collect());
        Some(numbers)
    }

    pub(crate) fn remember(&mut self, id: ModelId, numbers: &[u64]) {
        let Some((&VERSION, rest)) = numbers.split_first() else {
            return;
        };
        let mut sections = Sections(rest);
        let (demand, times, used) = (sections.next(), sections.next(), sections.next());
        let Some(model) = self.models.get_mut(&id) else {
            return;
        };
        if let Some(known) = demand.and_then(Demand::from_numbers) {
            model.demand = known;
        }
        if let Some(known) = times {
            model.load_times = LoadTimes::from_numbers(known);
            self.load_estimates.is_stale = true;
        }
        if let Some(&at) = used.and_then(<[u64]>::first) {
            model.last_used = model.last_used.max(Some(crate::types::ids::Time(at)));
        }
    }
}

/// Lists of numbers, each preceded by its length.
struct Sections<'a>(&'a [u64]);

impl<'a> Iterator for Sections<'a> {
    type Item = &'a [u64];

    fn next(&mut self) -> Option<&'a [u64]> {
        let (&length, rest) = self.0.split_first()?;
        let (section, rest) = rest.split_at_checked(usize::try_from(length).ok()?)?;
        self.0 = rest;
        Some(section)
    }
}
