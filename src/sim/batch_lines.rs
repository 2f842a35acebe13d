//! The line of a story about batches. Produces events; the pool decides what follows.

use alloc::string::String;

use super::args::{Options, number, span};
use super::story::StoryRunner;
use pool::{BatchDemand, Event, Time};

impl StoryRunner {
    /// `batches NAME 100 [evict] [by 2h] [deadline_evicts]`: the open requests of batches for a model; 0 without any.
    pub(super) fn batches(&mut self, rest: &[&str]) -> Result<Event, String> {
        let model = self.named(rest.first())?;
        let lines = number(rest.get(1))?;
        let options = Options::from_args(rest.get(2..).unwrap_or_default())?;
        let by = options.get("by").map(span).transpose()?;
        let demand = BatchDemand {
            model,
            lines,
            may_evict: options.has("evict"),
            // Times of a story count from its beginning.
            must_begin: by.map(|by| Time(by.0)),
            deadline_evicts: options.has("deadline_evicts"),
        };
        self.batches.insert(model, demand);
        let demands = self.batches.values().copied().collect();
        Ok(Event::BatchesSet { demands })
    }
}
