//! Reads the weights of the model that the pool chooses into the page cache, one model at a time, and stops as soon as a load
//! starts. `src/pool/plan/prefetch.rs` chooses.

use std::path::PathBuf;

use super::background::Background;
use super::engines::Engines;
use super::models::Models;
use crate::messages::Message;
use config::ParkingSection;
use engine::{ReadAhead, ReadEnd};
use pool::{
    Bytes, ModelId, NodeId, Pool, PrefetchCandidate, ReadAheadHistory, Time, read_ahead_budget,
};

/// The model whose weights are being read, and those read recently.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    now: Option<(ModelId, ReadAhead)>,
    history: ReadAheadHistory,
}

impl Reader {
    /// Stops reading.
    pub fn stop(&mut self) {
        self.now = None;
    }

    /// Returns the model that is likely to be loaded next, unless weights are being read.
    pub fn choose(&mut self, pool: &Pool, models: &Models, now: Time) -> Option<PrefetchCandidate> {
        if self.now.is_some() {
            return None;
        }
        let has_weights = |model| weights_of(models, model).is_some();
        self.history.choose(pool, now, has_weights)
    }

    /// Returns the model of a load whose victims finish their last requests. Takes precedence over a model that is merely likely.
    pub fn choose_for_load(
        &mut self,
        pool: &Pool,
        models: &Models,
        now: Time,
    ) -> Option<PrefetchCandidate> {
        let has_weights = |model| weights_of(models, model).is_some();
        let reading = self.now.as_ref().map(|(model, _)| *model);
        self.history
            .choose_awaiting_room(pool, now, reading, has_weights)
    }

    /// Starts to read the weights of a chosen model.
    pub fn read(
        &mut self,
        candidate: &PrefetchCandidate,
        models: &Models,
        engines: &Engines,
        parking: &ParkingSection,
        background: &Background,
    ) {
        let model = candidate.model;
        let Some(path) = weights_of(models, model) else {
            return;
        };
        let (inbox, parking) = (background.inbox(), parking.clone());
        let ended = move |end| {
            let _ = inbox.send(Message::ReadAheadEnded { model, end });
        };
        let mapped = engines.mapped_parts(models, NodeId(0));
        match ReadAhead::start(path, move || room(&parking, mapped), ended) {
            Ok(reading) => {
                tracing::debug!(
                    model = models.name(model),
                    chance_per_mille = candidate.chance_per_mille,
                    saves = %candidate.saves,
                    "weights are read ahead"
                );
                self.now = Some((model, reading));
            }
            Err(error) => tracing::warn!(%error, "weights cannot be read ahead"),
        }
    }

    /// Takes the end of a reading.
    pub fn ended(&mut self, model: ModelId, name: &str, end: ReadEnd) {
        if self.now.as_ref().is_some_and(|(of, _)| *of == model) {
            self.now = None;
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
fn weights_of(models: &Models, model: ModelId) -> Option<PathBuf> {
    models.get(model)?.entry.weights_path()
}

/// The bytes that may be read, of which engines on this machine need `mapped`.
fn room(parking: &ParkingSection, mapped: Bytes) -> Bytes {
    inventory::machine_memory().map_or(Bytes::ZERO, |machine| {
        let available = machine.available.saturating_sub(mapped);
        read_ahead_budget(available, parking.reserve.resolve(machine.total))
    })
}
