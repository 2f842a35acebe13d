//! The expected times of loads and fetches, and of the wait for a seat. Read-only.

use crate::facts::load_estimates::Source;
use crate::facts::models::Model;
use crate::facts::state::Pool;
use crate::types::ids::{Bytes, ModelId, ReplicaId, Span, Time};
use crate::types::replica::Phase;

/// Used until the duration of the fetch is known.
const EXPECTED_AT_FIRST: Span = Span::from_secs(60);

impl Pool {
    /// The time until the model is ready again: by waking if it has a sleeper, otherwise by loading.
    pub(crate) fn comes_back_in(&self, id: ModelId) -> Span {
        self.return_time(&self.models[&id])
    }

    pub(crate) fn return_time(&self, model: &Model) -> Span {
        if self.replicas.asleep().is_empty() {
            return model.reload();
        }
        let sleeps = |id: &ReplicaId| matches!(self.replicas[id].phase, Phase::Asleep { .. });
        if model.replicas.iter().any(sleeps) {
            model.wake().min(model.reload())
        } else {
            model.reload()
        }
    }

    /// The total time of a load that has begun.
    pub(crate) fn loads_in(&self, id: ReplicaId) -> Span {
        let replica = &self.replicas[&id];
        let model = &self.models[&replica.model];
        match replica.parked {
            Some(_) => model.wake(),
            None => model.reload(),
        }
    }

    /// The time until the model is ready once there is room, for rules that let requests wait in proportion to it. No request
    /// waits in proportion to a guess that is longer than the usual swap of this pool.
    pub(crate) fn ready_in(&self, model: &Model) -> Span {
        let expected = self.return_time(model);
        match self.load_estimates.median_swap {
            Some(median) if model.load_is_guessed() => expected.min(median),
            _ => expected,
        }
    }

    /// The expected time for the rest of a fetch; zero if nothing has to be fetched.
    pub(crate) fn fetched_in(&self, id: ModelId) -> Span {
        let model = &self.models[&id];
        match &model.fetch {
            _ if !model.spec.absent || model.spec.damage.is_some() => Span::ZERO,
            Some(fetch) => fetch.left.unwrap_or(EXPECTED_AT_FIRST),
            None => EXPECTED_AT_FIRST,
        }
    }

    /// The expected wait for a seat, for `Retry-After` and the comments sent to waiting clients.
    pub fn expected_wait(&self, id: ModelId) -> Span {
        let Some(model) = self.models.get(&id) else {
            return Span::ZERO;
        };
        if let Some(until) = model.cooling_until.filter(|until| *until > self.now) {
            return until.since(self.now);
        }
        let loading =
            model
                .replicas
                .iter()
                .filter_map(|replica| match self.replicas[replica].phase {
                    Phase::Launching { since, .. } => Some(Span(
                        self.loads_in(*replica)
                            .0
                            .saturating_sub(self.now.since(since).0)
                            .max(1000),
                    )),
                    Phase::Ready { .. } => Some(Span(1000)),
                    _ => None,
                });
        if let Some(left) = loading.min() {
            return left;
        }
        let leaving = model
            .planned
            .iter()
            .filter_map(|load| self.room_expected(*load));
        let retry = self
            .demand_index
            .retry_of(id)
            .into_iter()
            .chain(leaving.min())
            .min();
        let before = retry.map_or(Span::ZERO, |at| at.since(self.now));
        let comes = self
            .comes_back_in(id)
            .0
            .saturating_add(self.fetched_in(id).0);
        Span(before.0.saturating_add(comes).max(1000))
    }

    /// The time at which the last victim of a planned load is expected to be gone: at the end of its drain, plus one second for the
    /// process to end.
    fn room_expected(&self, load: ReplicaId) -> Option<Time> {
        let gone = |victim: &ReplicaId| match &self.replicas.get(victim)?.phase {
            Phase::Draining {
                deadline: Some(at), ..
            } => Some(*at + Span(1000)),
            _ => Some(self.now + Span(1000)),
        };
        self.planned[&load].victims.iter().filter_map(gone).max()
    }
}

impl Model {
    /// The time to wake: as measured, or as the catalogue estimates.
    pub(crate) fn wake(&self) -> Span {
        let guessed = self.spec.parking.as_ref().map(|parking| parking.wakes_in);
        self.load_times
            .get(crate::types::model::Tier::Asleep)
            .or(guessed)
            .unwrap_or_else(|| self.reload())
    }

    /// Its load was never measured, and its expected time follows from its size.
    pub(crate) fn load_is_guessed(&self) -> bool {
        self.spec.reload_is_guess && self.load_times.expected().is_none()
    }

    pub(crate) fn source(&self) -> Source {
        let loader = self.spec.loader.map(|loader| loader.loader);
        (self.spec.engine, loader)
    }

    pub(crate) fn total_bytes(&self) -> Bytes {
        let devices = u64::from(self.spec.devices_per_replica.max(1));
        Bytes(self.spec.bytes_per_device.0.saturating_mul(devices))
    }
}

impl Pool {
    pub(crate) fn next_scaling(&self) -> Option<Time> {
        self.scalers.values().map(|scaler| scaler.due).min()
    }
}
