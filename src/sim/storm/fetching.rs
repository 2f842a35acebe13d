//! Weights in a storm. Nodes may have them. For missing weights most fetches succeed, some fail, some are ordered to end and take
//! their time; sometimes fetched weights are deleted.

use alloc::borrow::ToOwned;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::{Due, Fault, HOUR_MS, Play};
use pool::{Event, FetchEnd, ModelId, NodeId, Remedy, Span, Time};

impl Play {
    /// Some models have never been fetched, and the weights of others may be deleted.
    pub(super) fn weights_begin(&mut self, length: u64) {
        if !self.conditions.fetches {
            return;
        }
        for model in self.specs.keys().copied().collect::<Vec<_>>() {
            if self.random.chance(150) {
                let at = Time(self.random.below(length));
                self.push(at, Due::Vanishes(model));
            }
        }
    }

    /// In some worlds, some nodes report whose weights they have.
    pub(super) fn nodes_have_weights(&mut self) {
        if self.random.chance(500) {
            return;
        }
        let nodes: BTreeSet<NodeId> = self
            .hardware
            .values()
            .map(|hardware| hardware.constant.node)
            .collect();
        for node in nodes {
            if self.random.chance(500) {
                let models = self.specs.keys().copied().collect::<Vec<_>>();
                let models = models
                    .into_iter()
                    .filter(|_| self.random.chance(500))
                    .collect();
                self.feed(Time(0), Event::WeightsOn { node, models });
            }
        }
    }

    pub(super) fn fetches(&mut self, at: Time, model: ModelId) {
        self.report.fetches += 1;
        self.fetches_run.insert(model, at);
        let takes = Span(self.random.between(500, HOUR_MS / 4));
        let half = Span(takes.0 / 2);
        self.push(at + half, Due::FetchProgressed(model, at, half));
        let fails = self.random.chance(250);
        self.push(at + takes, Due::FetchEnds(model, at, fails));
    }

    /// The fetch was ordered to end, and may have ended in the meantime.
    pub(super) fn fetch_is_to_end(&mut self, at: Time, model: ModelId) {
        let Some(&began) = self.fetches_run.get(&model) else {
            return;
        };
        let slow = Span(self.random.below(3_000));
        self.push(at + slow, Due::FetchStopped(model, began));
    }

    pub(super) fn fetch_progressed(&mut self, at: Time, model: ModelId, began: Time, left: Span) {
        if self.fetches_run.get(&model) == Some(&began) {
            self.feed(at, Event::FetchProgressed { model, left });
        }
    }

    pub(super) fn fetch_stopped(&mut self, at: Time, model: ModelId, began: Time) {
        if self.fetches_run.get(&model) == Some(&began) {
            self.fetches_run.remove(&model);
            let end = FetchEnd::Cancelled;
            self.feed(at, Event::FetchEnded { model, end });
        }
    }

    pub(super) fn fetch_ends(&mut self, at: Time, model: ModelId, began: Time, fails: bool) {
        if self.fetches_run.get(&model) != Some(&began) {
            return;
        }
        self.fetches_run.remove(&model);
        let end = if fails {
            let remedy = match self.random.below(8) {
                0 => Remedy::Change,
                1 => Remedy::Retry,
                _ => Remedy::Time,
            };
            let message = "the hub answers 503".to_owned();
            FetchEnd::Failed { message, remedy }
        } else {
            self.set_absent(at, model, false);
            FetchEnd::Complete
        };
        self.feed(at, Event::FetchEnded { model, end });
    }

    pub(super) fn vanishes(&mut self, at: Time, model: ModelId) {
        if !self.fetches_run.contains_key(&model) {
            self.set_absent(at, model, true);
        }
    }

    fn set_absent(&mut self, at: Time, model: ModelId, absent: bool) {
        let spec = self.specs.get_mut(&model).expect("a model of ours");
        spec.absent = absent;
        let spec = spec.clone();
        let event = Event::ModelSet { model, spec };
        if absent && self.fault == Some(Fault::DeletionUnseen) {
            return self.referee.event(at, &event);
        }
        self.feed(at, event);
    }
}
