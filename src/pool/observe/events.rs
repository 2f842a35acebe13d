//! Turns events into facts. Makes no choices. The only immediate responses are ones no choice could change (an unknown model, a
//! full queue, a failed store).

use crate::commit::actions::Actions;
use crate::facts::models::Model;
use crate::facts::queues::Waiting;
use crate::facts::shadows::Shadows;
use crate::facts::state::Pool;
use crate::observe::adopt::Found;
use crate::observe::nodes::JoiningNode;
use crate::types::action::RecordKind;
use crate::types::event::Event;
use crate::types::ids::{DeviceId, KeyId, ModelId, ReplicaId, Ticket, Time};
use crate::types::model::{Limits, LoadWish, ModelSpec, Override, Tier};
use crate::types::reason::{Refusal, StopReason};
use crate::types::replica::{Phase, Replica};
use crate::types::tokens::ServiceClass;

impl Pool {
    pub(crate) fn observe(&mut self, event: Event, actions: &mut Actions) {
        match event {
            Event::RequestArrived { ticket, model, key } => {
                self.request_arrived(ticket, model, key, actions)
            }
            Event::RequestGivesUp { ticket, at } => self.request_gives_up(ticket, at),
            Event::RequestLeft { ticket } => {
                self.forget_ticket(ticket, false);
            }
            Event::GatesRead { readings } => {
                readings.iter().for_each(|reading| self.gate_read(*reading));
            }
            Event::KeysRead { gates } => self.keys_read(&gates),
            Event::RequestDescribed {
                ticket,
                class,
                expected,
            } => self.request_described(ticket, class, expected),
            Event::GroupsSet { groups } => self.groups_set(groups),
            Event::MemberSet { key, group } => self.member_set(key, group),
            Event::TokensMeasured { model, costs } => self.tokens_measured(model, costs),
            Event::GateClosed { replica, in_flight } => self.gate_closed(replica, in_flight),
            Event::GateBusy { reading } => {
                self.gate_read(reading);
                self.gate_busy(reading.replica);
            }
            Event::Drained { replica } => {
                if let Some(found) = self.replicas.get_mut(&replica)
                    && matches!(found.phase, Phase::Draining { .. })
                {
                    found.in_flight = 0;
                    self.touch_holders(replica);
                }
            }
            Event::BatchesSet { demands } => self.batches_set(&demands),
            Event::BatchWarned { model, message } => {
                let known = self.models.contains_key(&model).then_some(model);
                let record = self.record(RecordKind::BatchWarned, known, message);
                actions.record(record);
            }
            Event::KeptAlive { replica, keep } => self.kept_alive(replica, keep),
            Event::ReplicaReady { replica } => self.replica_ready(replica, actions),
            Event::ReplicaLost { replica } => self.replica_lost(replica),
            Event::ReplicaExited { replica, exit } => self.replica_exited(replica, exit, actions),
            Event::MemberExited {
                replica,
                node,
                exit,
            } => self.member_exited(replica, node, exit, actions),
            Event::ReplicaAsleep { replica } => self.replica_asleep(replica, actions),
            Event::SleepFailed { replica, message } => {
                self.sleep_failed(replica, &message, actions);
            }
            Event::WakeFailed { replica, message } => self.wake_failed(replica, message),
            Event::HostRead { node, reading } => self.host_read(node, &reading),
            Event::ReplicaAdopted {
                replica,
                model,
                placement,
                ready_for,
                in_flight,
                last_end,
            } => {
                let found = Found {
                    replica,
                    model,
                    placement,
                    ready_for,
                    in_flight,
                    last_end,
                };
                self.replica_adopted(found, actions);
            }
            Event::LoadNotBegun { replica } => self.load_not_begun(replica),
            Event::DeviceRead { device, reading } => self.device_read(device, &reading),
            Event::ModelSet { model, spec } => self.model_set(model, spec),
            Event::DevicesAllowed { model, of, allowed } => {
                self.devices_allowed(model, &of, &allowed);
            }
            Event::WallClockJumped { ahead } => self.service.set_wall_ahead(ahead),
            Event::LimitsSet { limits } => self.limits_set(limits),
            Event::LinksRead { links } => self.links_read(links),
            Event::DeviceFailed {
                device,
                trouble,
                lost,
            } => self.device_failed(device, trouble, lost, actions),
            Event::CordonRestored { device, cordon } => self.cordon_restored(device, cordon),
            Event::NodeJoined {
                node,
                name,
                running,
                demand,
                reach,
            } => {
                let joining = JoiningNode {
                    name,
                    demand,
                    reach,
                };
                self.node_joined(node, joining, running, actions);
            }
            Event::NodeExpected { node, name } => self.node_expected(node, name, actions),
            Event::NodeSilent { node } => self.node_silent(node, actions),
            Event::NodeGone { node, why } => self.node_gone(node, why, actions),
            Event::NodeEnds { node, at } => self.node_ends(node, at, false, actions),
            Event::NodeLeaves { node, at } => self.node_ends(node, at, true, actions),
            Event::NodeSized { node, shape, lease } => self.node_sized(node, shape, lease),
            Event::NodeDrainRestored { name, drain } => self.node_drain_restored(name, drain),
            Event::ShapesSet { shapes } => self.shapes_set(shapes),
            Event::NodesSpent { spent } => {
                self.node_demand.spend(spent);
                self.touch_everything();
            }
            Event::NodePending {
                demand,
                reason,
                outlook,
            } => self.node_pending(demand, reason, outlook),
            Event::ShapeRemembered { shape, numbers } => {
                self.node_demand.restore(shape, &numbers);
                self.touch_everything();
            }
            Event::ShapesClosed { shapes } => {
                if self.node_demand.close(shapes.into_iter().collect()) {
                    self.touch_everything();
                }
            }
            Event::NodeRefused { demand, why } => self.node_refused(demand, &why, actions),
            Event::WeightsOn { node, models } => self.weights_are_on(node, models),
            Event::ModelMeasured {
                model,
                devices,
                kind,
                bytes_per_device,
            } => self.model_measured(model, devices, kind, bytes_per_device),
            Event::Remembered { model, numbers } => self.remember(model, &numbers),
            Event::FetchProgressed { model, left } => self.fetch_progressed(model, left),
            Event::FetchEnded { model, end } => self.fetch_ended(model, end, actions),
            Event::LoadsFrom { replica, tier } => {
                let woken = |replica: &&mut Replica| replica.parked.is_none();
                if let Some(sleeper) = self.replicas.get_mut(&replica).filter(woken) {
                    sleeper.tier = Some(tier);
                    // Weights read from host memory leave the disk free for other loads.
                    if tier < Tier::Disk {
                        sleeper.reads_until = Some(self.now);
                        self.read_ends(replica);
                    }
                }
            }
            Event::ModelRemoved { model } => {
                if let Some(found) = self.models.get_mut(&model) {
                    found.removed = true;
                    self.refuse_loads_of(model, actions);
                    self.forget_wish(model, actions);
                    self.reindex(model);
                }
            }
            Event::WishesRestored { model, over, load } => self.wishes_restored(model, over, load),
            Event::OrderReceived { order, command } => {
                self.order_received(order, command, None, None, actions);
            }
            Event::GroupOrderReceived {
                order,
                command,
                priority_max,
            } => self.order_received(order, command, Some(priority_max), None, actions),
            Event::PlannedOrderReceived {
                order,
                command,
                priority_max,
                effect,
            } => self.order_received(order, command, priority_max, Some(effect), actions),
            Event::Saved { order } => self.order_saved(order, actions),
            Event::SaveFailed { order, message } => self.save_failed(order, message, actions),
            Event::TimerFired => {}
        }
    }

    /// Sleepers may have to leave earlier or later than their timers say, and quarantines may begin or end.
    fn limits_set(&mut self, limits: Limits) {
        if self.limits != limits {
            // The shadows did not follow the uses while least recent use was configured.
            if self.limits.policy != limits.policy {
                self.shadows = Shadows::default();
            }
            self.limits = limits;
            self.schedule_all_moves();
            self.touch_everything();
        }
    }

    fn request_arrived(&mut self, ticket: Ticket, id: ModelId, key: KeyId, actions: &mut Actions) {
        let is_guess = self.models.get(&id).is_some_and(Model::load_is_guessed);
        if is_guess && self.load_estimates.is_stale {
            self.learn_load_times();
        }
        let known = self.models.get(&id).filter(|model| !model.removed);
        let refusal = match known {
            None => Some(Refusal::UnknownModel),
            Some(_) if self.service.is_closing() => Some(Refusal::ShuttingDown),
            Some(model) if model.queue.len() >= model.spec.queue_limit as usize => {
                let full = Refusal::QueueFull {
                    limit: model.spec.queue_limit,
                    retry: self.expected_wait(id),
                };
                match self.displaced_by(id, key) {
                    None => Some(full),
                    Some(displaced) => {
                        self.displace(displaced, full, actions);
                        None
                    }
                }
            }
            Some(_) => None,
        };
        if let Some(refusal) = refusal {
            self.refuse_request(ticket, (id, key), refusal, actions);
            return;
        }
        let now = self.now;
        let model = self.models.get_mut(&id).expect("known");
        let deadline = now + model.spec.queue_timeout;
        let was_empty = model.queue.is_empty();
        model.queue.push(ticket, key, ServiceClass::Default);
        if was_empty && !self.demand_index.is_empty() {
            // A replica that requests wait for keeps its place for a shorter time (P9).
            self.grows_at_model(id);
        }
        self.touch_model(id);
        let waiting = Waiting {
            model: id,
            key,
            class: ServiceClass::Default,
            expected: None,
            since: now,
            deadline,
            gives_up: deadline,
        };
        self.request_queued(&waiting);
        self.queues.join(ticket, waiting);
    }

    /// Refuses a waiting request to give its place to another caller.
    fn displace(&mut self, ticket: Ticket, refusal: Refusal, actions: &mut Actions) {
        if let Some(waiting) = self.forget_ticket(ticket, false) {
            self.refuse_request(ticket, (waiting.model, waiting.key), refusal, actions);
        }
    }

    fn request_gives_up(&mut self, ticket: Ticket, at: Time) {
        // A request that was refused immediately does not wait.
        if let Some(model) = self.queues.gives_up(ticket, at) {
            self.touch_model(model);
        }
    }

    fn replica_ready(&mut self, id: ReplicaId, actions: &mut Actions) {
        let now = self.now;
        let Some(replica) = self.replicas.get_mut(&id) else {
            return;
        };
        let Phase::Launching { since, .. } = replica.phase else {
            return;
        };
        replica.phase = Phase::Ready { since: now };
        replica.may_be_spared = false;
        let (model, took) = (replica.model, now.since(since));
        let parked = replica.parked.take();
        self.begin_scaling(model);
        let replica = &self.replicas[&id];
        let tier = replica.tier.unwrap_or(Tier::Disk);
        let loaded = self
            .models
            .get_mut(&model)
            .expect("a replica's model stays");
        loaded.load_times.add(tier, took);
        loaded.retried_after_oom = false;
        loaded.ready_at = Some(now);
        loaded.last_failure = None;
        loaded.cooling_until = None;
        self.read_ends(id);
        self.touch_model(model);
        self.schedule_moves_of(id);
        if parked.is_none() {
            self.learn_load_times();
        }
        // The model's load time is known more precisely. The turns and the yielding of its other replicas depend on it.
        self.grows_at_model(model);
        let how = match &parked {
            Some(parked) => {
                let node = self.node_of(&self.replicas[&id]);
                self.leaves_host(node, parked, false);
                "awake"
            }
            None => "ready",
        };
        let text = format!("{how} after {took}");
        let mut record = self.record(RecordKind::Ready, Some(model), text);
        record.replica = Some(id);
        record.took = Some(took);
        actions.record(record);
    }

    fn model_set(&mut self, id: ModelId, spec: ModelSpec) {
        let now = self.now;
        match self.models.get_mut(&id) {
            Some(model) => {
                let changed = model.spec.started_with != spec.started_with;
                if let Some(fetch) = model.fetch.as_mut().filter(|_| changed) {
                    fetch.ends.get_or_insert(StopReason::Changed);
                }
                // An identical entry does not show that the cause of a failure has been fixed.
                if model.removed || model.spec != spec {
                    model.forget_failures();
                }
                model.spec = spec;
                model.learned.clear();
                model.removed = false;
                // Some of the replicas may have been started with other settings.
                self.agenda.touch_replicas(&model.replicas);
            }
            None => {
                let mut model = Model::new(spec, now);
                model.learned_load = self.load_estimates.guess(&model);
                self.models.insert(id, model);
                if let Some((over, load)) = self.orders.take_unmet(id) {
                    self.wishes_restored(id, over, load);
                }
            }
        }
        self.reindex(id);
    }

    /// Devices have come for a model that only some devices may serve.
    fn devices_allowed(&mut self, id: ModelId, of: &[DeviceId], allowed: &[DeviceId]) {
        let Some(model) = self.models.get_mut(&id) else {
            return;
        };
        let Some(known) = &mut model.spec.allowed else {
            return;
        };
        let before = known.clone();
        known.retain(|device| !of.contains(device));
        known.extend(allowed);
        if *known != before {
            // The model may not have found a device that can serve it.
            model.forget_failures();
            self.reindex(id);
        }
    }

    fn wishes_restored(&mut self, id: ModelId, over: Override, load: Option<LoadWish>) {
        let Some(model) = self.models.get_mut(&id) else {
            self.orders.keep_unmet(id, over, load);
            return;
        };
        model.over = over;
        let restoring = load.as_ref().is_some_and(|wish| wish.replicas > 0);
        model.wish = load;
        self.models.set_restoring(id, restoring);
        self.reindex(id);
    }
}
