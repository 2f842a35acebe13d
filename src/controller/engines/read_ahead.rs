//! Reads the weights of the model that the pool chooses into the page cache, one model at a time, and stops as soon as a load
//! starts. `src/pool/plan/prefetch.rs` chooses.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::control::Control;
use crate::messages::Message;
use crate::view::ModelFacts;
use config::ParkingSection;
use engine::{ReadAhead, ReadEnd};
use pool::{Bytes, ModelId, NodeId, PrefetchCandidate, read_ahead_budget};

impl Control {
    /// Starts to read the weights that the pool chooses, if none are being read.
    pub(crate) fn read_ahead(&mut self) {
        if !self.config.parking.read_ahead || self.reader.now.is_some() {
            return;
        }
        let (facts, now) = (&self.models.facts, self.clock.now());
        let has_weights = |model| weights_of(facts, model).is_some();
        let next = self.reader.history.choose(&self.pool, now, has_weights);
        self.read_weights(next);
    }

    /// Reads the weights of a load while its victims finish their last requests. Takes precedence over read-ahead for a model that
    /// is merely likely.
    pub(crate) fn read_ahead_of_load(&mut self) {
        if !self.config.parking.read_ahead {
            return;
        }
        let (facts, now) = (&self.models.facts, self.clock.now());
        let has_weights = |model| weights_of(facts, model).is_some();
        let reading = self.reader.now.as_ref().map(|(model, _)| *model);
        let history = &mut self.reader.history;
        let next = history.choose_awaiting_room(&self.pool, now, reading, has_weights);
        self.read_weights(next);
    }

    fn read_weights(&mut self, next: Option<PrefetchCandidate>) {
        let facts = &self.models.facts;
        let Some((likely, path)) =
            next.and_then(|candidate| Some((candidate, weights_of(facts, candidate.model)?)))
        else {
            return;
        };
        let model = likely.model;
        let (inbox, parking) = (self.inbox.clone(), self.config.parking.clone());
        let ended = move |end| {
            let _ = inbox.send(Message::ReadAheadEnded { model, end });
        };
        let mapped = self.mapped_parts(NodeId(0));
        match ReadAhead::start(path, move || room(&parking, mapped), ended) {
            Ok(reading) => {
                tracing::debug!(
                    model = self.models.name(model),
                    chance_per_mille = likely.chance_per_mille,
                    saves = %likely.saves,
                    "weights are read ahead"
                );
                self.reader.now = Some((model, reading));
            }
            Err(error) => tracing::warn!(%error, "weights cannot be read ahead"),
        }
    }

    pub(crate) fn read_ahead_ended(&mut self, model: ModelId, end: ReadEnd) {
        let name = self.models.name(model);
        if self.reader.now.as_ref().is_some_and(|(of, _)| *of == model) {
            self.reader.now = None;
        }
        match end {
            ReadEnd::Done(bytes) => tracing::info!(model = name, %bytes, "weights were read ahead"),
            ReadEnd::TooLarge { size, room } => {
                tracing::debug!(model = name, %size, %room, "weights are not read ahead: no room");
            }
            ReadEnd::Failed(message) => {
                tracing::warn!(model = name, message, "weights could not be read ahead");
            }
            ReadEnd::There | ReadEnd::Stopped => {}
        }
    }
}

/// The path of a model's weights, if they lie on this machine.
fn weights_of(facts: &BTreeMap<ModelId, ModelFacts>, model: ModelId) -> Option<PathBuf> {
    facts.get(&model)?.entry.weights_path()
}

/// The bytes that may be read, of which engines on this machine need `mapped`.
fn room(parking: &ParkingSection, mapped: Bytes) -> Bytes {
    inventory::machine_memory().map_or(Bytes::ZERO, |machine| {
        let available = machine.available.saturating_sub(mapped);
        read_ahead_budget(available, parking.reserve.resolve(machine.total))
    })
}
