//! Reads weights ahead for whom the pool says is likely to be wanted, one model at a time, and stops as
//! soon as anything is loaded. It keeps what was read when, so that nothing is read over and over.

use super::control::Control;
use super::message::Message;
use config::ParkingSection;
use engine::{ReadAhead, ReadEnd};
use pool::{Bytes, ModelId, Span, Time};

/// How far ahead it is looked.
const WITHIN: Span = Span::from_secs(600);
/// The same weights are not read again sooner: if they did not stay, there is no room for them.
const AGAIN_AFTER: Span = Span::from_secs(600);

impl Control {
    /// Looks for something to read, if nothing is being read.
    pub(super) fn read_ahead(&mut self) {
        let now = self.clock.now();
        if !self.config.parking.read_ahead || self.reader.now.is_some() {
            return;
        }
        let fresh = |read: &Time| now.since(*read) < AGAIN_AFTER;
        self.reader.read.retain(|_, read| fresh(read));
        let likely = self.pool.likely(now, WITHIN);
        let next = likely.into_iter().find_map(|it| {
            let is_new = !self.reader.read.contains_key(&it.model);
            let path = self.models.facts.get(&it.model).filter(|_| is_new)?;
            Some((it, path.entry.weights_path()?))
        });
        let Some((likely, path)) = next else {
            return;
        };
        let model = likely.model;
        self.reader.read.insert(model, now);
        let (inbox, parking) = (self.inbox.clone(), self.config.parking.clone());
        let ended = move |end| {
            let _ = inbox.send(Message::ReadAheadEnded { model, end });
        };
        match ReadAhead::start(path, move || room(&parking), ended) {
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

    /// The disk is for loads.
    pub(super) fn stop_reading_ahead(&mut self) {
        self.reader.now = None;
    }

    pub(super) fn read_ahead_ended(&mut self, model: ModelId, end: ReadEnd) {
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

/// Half of what is available beyond the reserve: reading drives other files out of the page cache.
fn room(parking: &ParkingSection) -> Bytes {
    inventory::machine_memory().map_or(Bytes::ZERO, |machine| {
        let reserve = parking.reserve.of(machine.total);
        Bytes(machine.available.saturating_sub(reserve).0 / 2)
    })
}
