//! Engines that outlive their controller, in a storm over nodes. The next controller adopts them when their nodes report, and may
//! have begun other loads of their models before that. Checks that a load that has not begun ends if it is no longer needed, that
//! it is not the last replica of its model, and that no other load ends this way (D2).

use alloc::collections::BTreeSet;

use super::{NodeFault, Play};
use pool::{Event, ModelId, ReplicaId, Time};

impl Play {
    /// A node reports an engine again; an engine of an earlier controller is adopted or ended. Returns the model of an adopted
    /// engine.
    pub(super) fn states_what_it_has(&mut self, at: Time, replica: ReplicaId) -> Option<ModelId> {
        let process = self.truth.processes.get(&replica).cloned()?;
        if self.is_of_this_run(replica) {
            if process.ready.is_some() {
                self.feed(at, Event::ReplicaReady { replica });
            }
            return None;
        }
        let Some(ready) = process.ready.filter(|_| !process.is_ordered_to_end) else {
            self.ends_soon(at, replica);
            return None;
        };
        self.report.adopted += 1;
        self.feed(
            at,
            Event::ReplicaAdopted {
                replica,
                model: process.model,
                placement: process.shares,
                ready_for: at.since(ready),
                in_flight: 0,
                last_end: None,
            },
        );
        Some(process.model)
    }

    fn is_of_this_run(&self, replica: ReplicaId) -> bool {
        replica.0 >= self.first
    }

    /// The controller finds that the loads of these models have not begun. It may report this for a replica that has become ready
    /// since.
    pub(super) fn have_not_begun(&mut self, at: Time, models: &BTreeSet<ModelId>) {
        for &model in models {
            for replica in self.truth.replicas_of(model) {
                if !self.reaches(replica) || self.random.chance(100) {
                    continue;
                }
                let must_end = self.is_not_needed(replica);
                if self.is_loading(replica) && self.fault != Some(NodeFault::BegunUnseen) {
                    self.not_begun.insert(replica);
                }
                self.feed(at, Event::LoadNotBegun { replica });
                if must_end && self.is_loading(replica) {
                    let text = format!("D2: {replica} of {model} loads on, which is not needed");
                    self.report.broken.push(text);
                }
            }
        }
    }

    fn is_loading(&self, replica: ReplicaId) -> bool {
        let process = self.truth.processes.get(&replica);
        process.is_some_and(|process| process.ready.is_none() && !process.is_ordered_to_end)
    }

    /// Returns true if the load is certainly unnecessary: its model is not scaled, no administrator wishes for it, and another
    /// replica takes requests. Neither node is known to end.
    fn is_not_needed(&self, load: ReplicaId) -> bool {
        let lasts = |replica: ReplicaId| {
            let node = self.node_of.get(&replica);
            node.is_some_and(|node| !self.limits.are_known_of(*node)) && self.reaches(replica)
        };
        let serves = |replica: ReplicaId| {
            let gate = self.world.gates.get(&replica);
            let is_open = gate.is_some_and(|gate| gate.mode.is_some() && !gate.closed);
            let process = &self.truth.processes[&replica];
            is_open && process.ready.is_some() && !process.is_ordered_to_end
        };
        if !self.is_of_this_run(load) || !self.is_loading(load) || !lasts(load) {
            return false;
        }
        let model = self.truth.processes[&load].model;
        let mut others = self.truth.replicas_of(model).into_iter();
        others.any(|other| other != load && serves(other) && lasts(other))
    }

    /// A replica is stopped as surplus. These storms scale no models and have no wishes.
    pub(super) fn check_surplus(&mut self, at: Time, replica: ReplicaId) {
        // A machine that fails ends its engines before the pool is informed.
        let process = self.truth.processes.get(&replica);
        if process.is_none_or(|process| process.ready.is_some()) {
            // It has drained since it was found to be surplus; another one may have ended in that time.
            self.report.surplus += 1;
            return;
        }
        self.report.spared += 1;
        if !self.not_begun.contains(&replica) {
            let text = format!("D2: {replica} ends as one too many, and had begun");
            self.report.broken.push(text);
        }
        let view = self.world.pool.view(self.world.now);
        let mut models = view.models.iter();
        let of = models.find(|model| model.replicas.iter().any(|found| found.replica == replica));
        let Some(of) = of else {
            return;
        };
        let is_other = |other: &pool::ReplicaView| {
            other.replica != replica && other.state != pool::ReplicaState::Planned
        };
        if !of.replicas.iter().any(is_other) {
            let text = format!("D2: {replica} ends as one too many, and is the only one");
            self.report.broken.push(text);
        }
        // The next load of the model has to start from the beginning.
        let model = of.model;
        self.limits.fails(model, at);
    }
}
