//! Events become facts. Nothing is chosen here; the only answers given at once are those that no
//! choice could change (an unknown model, a full queue, a store that failed).

use super::action::{Action, RecordKind};
use super::decision::Prospect;
use super::device::Device;
use super::event::{DeviceReading, Event, Exit, GateReading};
use super::ids::{DeviceId, KeyId, ModelId, ReplicaId, Ticket, Time};
use super::model::{LoadWish, ModelSpec, Override};
use super::reason::{Refusal, StopReason};
use super::replica::Phase;
use super::state::{Model, Pool, Waiting};

impl Pool {
    pub(super) fn observe(&mut self, event: Event, actions: &mut Vec<Action>) {
        match event {
            Event::RequestArrived { ticket, model, key } => {
                self.request_arrived(ticket, model, key, actions)
            }
            Event::RequestLeft { ticket } => {
                if self.forget_ticket(ticket, false).is_some() {
                    self.change();
                }
            }
            Event::GatesRead { readings } => {
                readings.iter().for_each(|reading| self.gate_read(*reading));
            }
            Event::GateClosed { replica, in_flight } => self.gate_closed(replica, in_flight),
            Event::GateBusy { reading } => {
                self.gate_read(reading);
                self.gate_busy(reading.replica);
            }
            Event::Drained { replica } => {
                if let Some(it) = self.replicas.get_mut(&replica)
                    && matches!(it.phase, Phase::Draining { .. })
                {
                    it.in_flight = 0;
                }
            }
            Event::ReplicaReady { replica } => self.replica_ready(replica, actions),
            Event::ReplicaExited { replica, exit } => self.replica_exited(replica, exit, actions),
            Event::DeviceRead { device, reading } => self.device_read(device, &reading),
            Event::ModelSet { model, spec } => self.model_set(model, spec),
            Event::ModelMeasured {
                model,
                bytes_per_device,
            } => {
                if let Some(it) = self.models.get_mut(&model) {
                    it.spec.bytes_per_device = bytes_per_device;
                    self.change();
                }
            }
            Event::ModelRemoved { model } => {
                if let Some(it) = self.models.get_mut(&model) {
                    it.removed = true;
                    it.wish = None;
                    it.restoring = false;
                    self.restoring.remove(&model);
                    self.reindex(model);
                }
            }
            Event::WishesRestored { model, over, load } => self.wishes_restored(model, over, load),
            Event::OrderAsked { order, command } => self.order_asked(order, command, actions),
            Event::Saved { order } => self.order_saved(order, actions),
            Event::SaveFailed { order, message } => {
                if self.orders.contains_key(&order) {
                    self.refuse_order(order, Refusal::NotSaved { message }, None, actions);
                }
            }
            Event::Woke => {}
        }
    }

    fn request_arrived(
        &mut self,
        ticket: Ticket,
        id: ModelId,
        key: KeyId,
        actions: &mut Vec<Action>,
    ) {
        let known = self.models.get(&id).filter(|model| !model.removed);
        let refusal = match known {
            None => Some(Refusal::UnknownModel),
            Some(_) if self.closing.is_some() => Some(Refusal::ShuttingDown),
            Some(model) if model.queue.len() >= model.spec.queue_limit as usize => {
                Some(Refusal::QueueFull {
                    limit: model.spec.queue_limit,
                    retry: self.expected_wait(id),
                })
            }
            Some(_) => None,
        };
        if let Some(refusal) = refusal {
            self.record_refusal(id, None, &refusal, actions);
            actions.push(Action::Refuse { ticket, refusal });
            return;
        }
        let now = self.now;
        let model = self.models.get_mut(&id).expect("known");
        let deadline = now + model.spec.queue_timeout;
        model.queue.push(ticket, key);
        self.waited_for.insert(id);
        self.deadlines.insert((deadline, ticket));
        self.tickets.insert(
            ticket,
            Waiting {
                model: id,
                key,
                since: now,
                deadline,
            },
        );
    }

    fn gate_read(&mut self, reading: GateReading) {
        let now = self.now;
        let GateReading {
            replica: id,
            in_flight,
            entered,
            last_end,
        } = reading;
        let Some(replica) = self.replicas.get_mut(&id) else {
            return;
        };
        let flips = (replica.in_flight == 0) != (in_flight == 0)
            || (replica.entered == 0) != (entered == 0);
        let new = entered.saturating_sub(replica.entered);
        replica.in_flight = in_flight;
        replica.entered = replica.entered.max(entered);
        replica.last_end = replica.last_end.max(last_end);
        let model = self
            .models
            .get_mut(&replica.model)
            .expect("a replica's model stays");
        if new > 0 {
            model.demand.add(now, new);
            model.seated += new;
        }
        if new > 0 || in_flight > 0 {
            model.last_used = Some(now);
        }
        model.last_used = model.last_used.max(last_end);
        if flips {
            self.change();
        }
    }

    fn gate_closed(&mut self, id: ReplicaId, in_flight: u32) {
        if let Some(replica) = self.replicas.get_mut(&id) {
            replica.in_flight = in_flight;
            if let Phase::Draining { closed, .. } = &mut replica.phase {
                *closed = true;
            }
        }
    }

    /// It was not idle after all: it stays, and whoever counted on it is decided anew.
    fn gate_busy(&mut self, id: ReplicaId) {
        let Some(replica) = self.replicas.get_mut(&id) else {
            return;
        };
        let Phase::Draining {
            ready_since,
            for_load,
            ..
        } = replica.phase.clone()
        else {
            return;
        };
        replica.phase = Phase::Ready { since: ready_since };
        for share in replica.shares.clone() {
            self.devices
                .get_mut(&share.device)
                .expect("held")
                .stays(share.bytes);
        }
        if let Some(planned) = for_load.and_then(|load| self.planned.get_mut(&load)) {
            planned.victims.remove(&id);
        }
        for order in self.orders.values_mut() {
            if order.targets.remove(&id) {
                order.affected.retain(|it| *it != id);
            }
        }
        self.change();
    }

    fn replica_ready(&mut self, id: ReplicaId, actions: &mut Vec<Action>) {
        let now = self.now;
        let Some(replica) = self.replicas.get_mut(&id) else {
            return;
        };
        let Phase::Launching { since, .. } = replica.phase else {
            return;
        };
        replica.phase = Phase::Ready { since: now };
        let (model, took) = (replica.model, now.since(since));
        let it = self
            .models
            .get_mut(&model)
            .expect("a replica's model stays");
        // Half the old, half the new: one slow disk does not spoil the estimate.
        it.spec.reload = super::ids::Span((it.spec.reload.0 + took.0) / 2);
        it.last_failure = None;
        it.cooling_until = None;
        self.change();
        let mut record = self.record(
            RecordKind::Ready,
            Some(model),
            format!("ready after {took}"),
        );
        record.replica = Some(id);
        record.took = Some(took);
        actions.push(Action::Record(record));
    }

    fn replica_exited(&mut self, id: ReplicaId, exit: Exit, actions: &mut Vec<Action>) {
        let now = self.now;
        let Some(replica) = self.replicas.remove(&id) else {
            return;
        };
        let mut memory = Vec::new();
        for share in &replica.shares {
            let device = self.devices.get_mut(&share.device).expect("held");
            let before = device.reserved;
            device.release(id, share.bytes, replica.is_leaving());
            memory.push(super::action::MemoryChange {
                device: share.device,
                before,
                after: device.reserved,
            });
        }
        self.models
            .get_mut(&replica.model)
            .expect("a replica's model stays")
            .replicas
            .remove(&id);
        for planned in self.planned.values_mut() {
            planned.victims.remove(&id);
        }
        for order in self.orders.values_mut() {
            order.targets.remove(&id);
        }
        let message = match &exit {
            Exit::Asked => String::new(),
            Exit::Failed { message } => message.clone(),
        };
        let (kind, reason) = match (&replica.phase, &exit) {
            (
                Phase::Stopping {
                    reason: reason @ StopReason::LoadTimedOut { .. },
                    ..
                },
                _,
            ) => (
                RecordKind::LoadFailed,
                format!(
                    "{reason}{}{message}",
                    if message.is_empty() { "" } else { ": " }
                ),
            ),
            (Phase::Stopping { reason, .. }, _) => (RecordKind::Gone, reason.to_string()),
            (Phase::Launching { .. }, _) => (RecordKind::LoadFailed, message.clone()),
            (Phase::Draining { .. }, _) => (
                RecordKind::Crash,
                format!("ended while draining: {message}"),
            ),
            (Phase::Ready { .. }, _) => (RecordKind::Crash, message.clone()),
        };
        let mut record = self.record(kind, Some(replica.model), reason.clone());
        record.replica = Some(id);
        record.memory = memory;
        record.took = Some(match &replica.phase {
            Phase::Stopping { since, .. } => now.since(*since),
            _ => now.since(replica.launched),
        });
        actions.push(Action::Record(record));
        let ready_for = match replica.phase {
            Phase::Ready { since } => now.since(since),
            Phase::Draining { ready_since, .. } => now.since(ready_since),
            _ => super::ids::Span::ZERO,
        };
        match kind {
            RecordKind::LoadFailed => self.load_failed(replica.model, reason, actions),
            // A crash soon after the start is a load that did not really succeed.
            RecordKind::Crash if ready_for < self.limits.healthy_after => {
                self.count_failure(replica.model, reason);
            }
            RecordKind::Crash => self
                .models
                .get_mut(&replica.model)
                .expect("stays")
                .forget_failures(),
            _ => {}
        }
        self.forget_wish_if_gone(replica.model, &replica.phase, actions);
        self.change();
    }

    fn count_failure(&mut self, id: ModelId, message: String) {
        let (first, max) = (self.limits.cooldown_first, self.limits.cooldown_max);
        let now = self.now;
        let model = self.models.get_mut(&id).expect("a replica's model stays");
        model.failures = model.failures.saturating_add(1);
        let doubled = first.0.saturating_mul(1 << (model.failures - 1).min(20));
        model.cooling_until = Some(now + super::ids::Span(doubled.min(max.0)));
        model.last_failure = Some(message);
    }

    /// A failed load answers every waiter with the engine's own last words (L3).
    fn load_failed(&mut self, id: ModelId, message: String, actions: &mut Vec<Action>) {
        self.count_failure(id, message.clone());
        let retry = self.expected_wait(id);
        let refusal = Refusal::LoadFailed { message, retry };
        for order in self.orders.values_mut() {
            if order.load().is_some_and(|load| load.model == id) {
                order.shortfall = Some(refusal.clone());
            }
        }
        if self.live(&self.models[&id]) > 0 {
            return;
        }
        let waiting: Vec<Ticket> = self.models[&id].queue.iter().collect();
        for ticket in waiting {
            self.forget_ticket(ticket, false);
            self.record_refusal(id, None, &refusal, actions);
            actions.push(Action::Refuse {
                ticket,
                refusal: refusal.clone(),
            });
        }
    }

    fn device_read(&mut self, id: DeviceId, reading: &DeviceReading) {
        let device = self
            .devices
            .entry(id)
            .or_insert_with(|| Device::new(reading));
        let known = (device.total, device.headroom, device.foreign);
        if known != (reading.total, reading.headroom, reading.foreign) || self.nodes.is_empty() {
            device.total = reading.total;
            device.headroom = reading.headroom;
            device.foreign = reading.foreign;
            self.change();
        }
        if self.nodes.entry(reading.node).or_default().insert(id) {
            self.change();
        }
    }

    fn model_set(&mut self, id: ModelId, spec: ModelSpec) {
        let now = self.now;
        match self.models.get_mut(&id) {
            Some(model) => {
                let reload = model.spec.reload;
                model.spec = spec;
                model.spec.reload = reload;
                model.removed = false;
                model.forget_failures();
            }
            None => {
                self.models.insert(id, Model::new(spec, now));
            }
        }
        self.reindex(id);
    }

    fn wishes_restored(&mut self, id: ModelId, over: Override, load: Option<LoadWish>) {
        let Some(model) = self.models.get_mut(&id) else {
            return;
        };
        model.over = over;
        model.restoring = load.as_ref().is_some_and(|wish| wish.replicas > 0);
        model.wish = load;
        if model.restoring {
            self.restoring.insert(id);
        }
        self.reindex(id);
    }

    /// What a load would bring about, without carrying it out: the administrator's `plan`.
    pub fn preview(
        &self,
        now: Time,
        load: &super::event::LoadOrder,
    ) -> Option<super::decision::Plan> {
        let model = self
            .models
            .get(&load.model)
            .filter(|model| !model.removed)?;
        let mut at_now = std::borrow::Cow::Borrowed(self);
        if now > self.now {
            at_now.to_mut().now = now;
        }
        let ask = super::orders::ask_of(&at_now, load, now, super::ids::OrderId(u64::MAX));
        let mut plan = super::place::place(&at_now, &ask);
        if at_now.live(model) >= load.replicas as usize {
            plan.refusal = None;
            plan.placement = model
                .replicas
                .iter()
                .filter(|id| !at_now.replicas[id].is_leaving())
                .flat_map(|id| at_now.replicas[id].shares.clone())
                .collect();
            plan.victims.clear();
            plan.candidates.clear();
            plan.cost = Default::default();
            plan.prospect = Prospect::Now;
        }
        Some(plan)
    }
}
