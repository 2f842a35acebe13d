//! Determines which busy replicas should close their gates for waiting requests (P3), from the queues and the gates' counts.

use alloc::collections::{BTreeMap, BTreeSet};

use crate::facts::closings::Closing;
use crate::facts::models::Model;
use crate::facts::state::Pool;
use crate::plan::victims::REQUESTS_PER_TURN;
use crate::types::ids::{Priority, ReplicaId, Time};
use crate::types::pressure::{Busy, Pressure, serving};
use crate::types::rank::Class;
use crate::types::replica::Replica;

/// The maximum number of waiting models that are counted, in demand order. If more wait, gates close for these alone.
const DEMANDS_MAX: usize = 16;

impl Pool {
    pub(crate) fn under_pressure(&self) -> BTreeSet<ReplicaId> {
        let devices = self.devices.len() as u64;
        let mut pressures = self.pressures();
        // On many devices a few requests never close a gate.
        pressures.retain(|_, pressure| pressure.may_close(devices));
        if pressures.is_empty() {
            return BTreeSet::new();
        }
        let closes = |replica: &Replica| {
            // Visits every replica while anything waits, so the cheapest condition comes first.
            if replica.in_flight == 0 {
                return false;
            }
            let model = &self.models[&replica.model];
            let pressure = pressures.get(&model.priority());
            let busy = pressure.and_then(|_| self.busy(replica, model));
            pressure
                .zip(busy)
                .is_some_and(|(pressure, busy)| pressure.closes(busy, devices))
        };
        let closing = self.replicas.iter().filter(|(_, replica)| closes(replica));
        closing.map(|(&id, _)| id).collect()
    }

    /// `None` if the replica is not in use, its turn has a configured length, or its request times are unknown.
    fn busy(&self, replica: &Replica, model: &Model) -> Option<Busy> {
        let in_use = replica.in_flight > 0 && replica.ready_since().is_some();
        let may_end = in_use && model.spec.max_turn.is_none();
        let request = model.request_times.mean().filter(|_| may_end)?;
        Some(Busy {
            in_flight: u64::from(replica.in_flight),
            request,
            swap: self.return_time(model) + model.stop_takes,
        })
    }

    /// The waiting requests, by priority.
    pub(crate) fn pressures(&self) -> BTreeMap<Priority, Pressure> {
        let mut pressures: BTreeMap<Priority, Pressure> = BTreeMap::new();
        let demands = self.demand_index.all().keys();
        let requests = demands.filter(|rank| rank.class == Class::Request);
        for rank in requests.take(DEMANDS_MAX) {
            let model = &self.models[&rank.model];
            let waiting = model.queue.len() as u64;
            let seats = u64::from(model.spec.seats_per_replica);
            let mean = model.requests_take(1);
            let swap = self.comes_back_in(rank.model) + model.stop_takes;
            let of = pressures.entry(rank.priority.0).or_default();
            of.add(waiting, swap, serving(waiting, seats, mean));
        }
        pressures
    }

    pub(crate) fn closing(
        &self,
        id: ReplicaId,
        pressures: &BTreeMap<Priority, Pressure>,
    ) -> Option<Closing> {
        let replica = self.replicas.get(&id)?;
        let model = &self.models[&replica.model];
        let busy = self.busy(replica, model)?;
        let pressure = pressures.get(&model.priority())?;
        let devices = self.devices.len() as u64;
        Some(Closing {
            replica: id,
            model: replica.model,
            request: busy.request,
            waiting: pressure.on_each(devices),
            drains_in: busy.drain(),
            turn_left: model.requests_take(REQUESTS_PER_TURN),
            entered: replica.entered,
            wait: pressure.wait(busy, devices),
            unit: busy.swap + busy.request,
        })
    }

    /// The time since which turns do not end early, because that would have cost more here (P3).
    pub(crate) fn gates_open_since(&self) -> Option<Time> {
        self.closings.open_since()
    }
}
