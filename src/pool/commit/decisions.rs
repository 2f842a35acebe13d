//! Turns decisions into facts and actions. Each arm records one decision and makes no choices.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::facts::state::Pool;
use crate::types::action::{Action, GateMode, Outcome, Record, RecordKind};
use crate::types::decision::{Decision, Drain};
use crate::types::event::{Command, Remedy};
use crate::types::ids::{OrderId, ReplicaId, Span};
use crate::types::model::Override;
use crate::types::reason::StopReason;
use crate::types::replica::Phase;
use crate::types::saves::SettingOrders;

impl Pool {
    pub(crate) fn commit(&mut self, decision: Decision, actions: &mut Vec<Action>) {
        match decision {
            Decision::Grant { ticket, replica } => {
                let waited = self
                    .forget_ticket(ticket, true)
                    .expect("granted while waiting");
                let now = self.now;
                let granting = self
                    .replicas
                    .get_mut(&replica)
                    .expect("granted on a live replica");
                granting.seats.taken(granting.in_flight, self.now);
                granting.in_flight += 1;
                granting.entered += 1;
                granting.entered_at = now;
                let served_first = granting.entered == granting.entered_when_launched + 1;
                let model = self
                    .models
                    .get_mut(&granting.model)
                    .expect("a replica's model stays");
                // The request that has waited longest ended the gap.
                let gap = model.last_used.map(|last| waited.since.since(last));
                let first = model.last_used.is_none_or(|last| last < waited.since);
                if first {
                    let reload = model.reload();
                    model.demand.wanted(waited.since, gap, reload);
                }
                model.seated += 1;
                model.waits += 1;
                model.waits_took = model.waits_took + now.since(waited.since);
                model.last_used = Some(now);
                if first {
                    self.shadows_serve(waited.model);
                }
                if let Some(gap) = gap.filter(|_| first) {
                    self.gap_ended(waited.model, gap);
                }
                self.touch(replica);
                if first && self.models[&waited.model].replicas.len() > 1 {
                    self.grows_at_model(waited.model);
                } else if served_first {
                    self.grows_at(replica);
                }
                actions.push(Action::Grant { ticket, replica });
            }
            Decision::Refuse { ticket, refusal } => {
                let waiting = self
                    .forget_ticket(ticket, false)
                    .expect("refused while waiting");
                self.record_refused_request(waiting.model, waiting.key, &refusal, actions);
                actions.push(Action::Refuse { ticket, refusal });
            }
            Decision::EndLease { model } => {
                let leased = self.models.get_mut(&model).expect("leased");
                leased.over = Override::default();
                leased.set_by = SettingOrders::default();
                self.reindex(model);
                self.keep_override(model, actions);
                let text = "the lease ended; back to the catalogue's values (P1)".to_owned();
                actions.push(Action::Record(self.record(
                    RecordKind::LeaseEnded,
                    Some(model),
                    text,
                )));
            }
            Decision::SetGate { replica, gate } => {
                self.replicas.get_mut(&replica).expect("ready").gate = Some(gate);
                actions.push(Action::SetGate { replica, gate });
            }
            Decision::Drain(drain) => self.drain(drain, actions),
            Decision::Reopen { replica } => self.reopen(replica, actions),
            Decision::Stay { replica } => self.stays(replica, actions),
            Decision::Stop { replica, reason } => self.stop(replica, reason, actions),
            Decision::Promise {
                plan,
                why,
                order,
                explanation,
            } => {
                let explanation = explanation.map(|explanation| *explanation);
                self.promise(*plan, why, order, explanation, actions);
            }
            Decision::Launch { load } if self.planned[&load].wakes => self.wake_up(load, actions),
            Decision::Launch { load } => self.launch(load, actions),
            Decision::Park { replica, drops } => self.fall_asleep(replica, drops, actions),
            Decision::Abandon { load } => self.abandon(load),
            Decision::Fetch { model, why } => self.fetch(model, &why, actions),
            Decision::FailLoad { model, message } => {
                let record = self.record(RecordKind::LoadFailed, Some(model), message.clone());
                actions.push(Action::Record(record));
                self.load_failed(model, message, Remedy::Change, actions);
                self.touch_model(model);
            }
            Decision::EndFetch { model, .. } => self.end_fetch(model, actions),
            Decision::Block { demands } => self.demand_index.block_all(demands),
            Decision::Defer { rank } => self.demand_index.defer(rank),
            Decision::Postpone { rank, until } => self.demand_index.postpone(rank, until),
            Decision::RequestNode {
                shape,
                model,
                priority,
            } => self.request_node(shape, model, priority, actions),
            Decision::CancelNode => self.cancel_node(actions),
            Decision::MoveFrom { node } => self.move_from(node, actions),
            Decision::ReleaseNode { node } => self.release_node(node, actions),
            Decision::GiveUpSettling { device } => self.give_up_settling(device),
            Decision::GiveUpWish { model, refusal } => {
                self.forget_wish(model, actions);
                self.touch_model(model);
                self.record_refusal(model, None, &refusal, actions);
            }
            Decision::Shorten { order, refusal } => {
                let plan = self.orders[&order].load().map(|load| {
                    let requirements = crate::plan::orders::requirements_of(
                        self,
                        load,
                        self.orders[&order].since,
                        order,
                    );
                    Box::new(crate::plan::place::explain(self, &requirements))
                });
                let settled = self.orders.get_mut(&order).expect("active");
                settled.shortfall = Some(refusal);
                settled.plan = plan;
                if let Some(model) = settled.load().map(|load| load.model) {
                    self.touch_model(model);
                }
            }
            Decision::Settle { order, outcome } => self.settle(order, outcome, actions),
            Decision::Finish => {
                self.finished = true;
                actions.push(Action::Finished);
            }
        }
    }

    fn settle(&mut self, id: OrderId, outcome: Outcome, actions: &mut Vec<Action>) {
        if let Outcome::Refused { refusal, plan } = outcome {
            self.refuse_order(id, refusal, plan, actions);
        } else {
            let order = self.orders.remove(&id).expect("settled once");
            if let Command::Load(load) = &order.command {
                if let Outcome::Loaded(result) = &outcome {
                    self.wish_for_what_fits(id, load.model, result, actions);
                }
                self.order_ended(load.model);
            }
            actions.push(Action::Settle { order: id, outcome });
        }
    }

    pub(crate) fn drain(&mut self, drain: Drain, actions: &mut Vec<Action>) {
        let now = self.now;
        let Drain {
            replica: id,
            deadline,
            reason,
            only_if_idle,
            for_load,
        } = drain;
        let replica = self.replicas.get_mut(&id).expect("drained while alive");
        let model = replica.model;
        if let Phase::Draining {
            deadline: old,
            reason: why,
            for_load: load,
            ..
        } = &mut replica.phase
        {
            // Already draining: the new reason replaces the old one, with an earlier deadline.
            (*old, *why, *load) = (deadline, reason, for_load);
            self.touch(id);
            return;
        }
        let by_itself = matches!(
            reason,
            StopReason::KeepHot { .. } | StopReason::Unload { .. } | StopReason::Cleanup { .. }
        );
        let since = replica.ready_since().expect("only a ready replica drains");
        let announced = replica.leaves_with.take();
        let is_recorded = announced.as_ref().is_some_and(|with| with.reason == reason);
        let record = (!is_recorded).then(|| self.exit_record(id, &reason));
        self.leaving_later.remove(&id);
        let replica = self.replicas.get_mut(&id).expect("drained while alive");
        replica.gate = None;
        replica.phase = Phase::Draining {
            ready_since: since,
            since: now,
            deadline,
            reason: reason.clone(),
            for_load,
            closed: false,
        };
        let (shares, entered) = (replica.shares.clone(), replica.entered);
        if announced.is_none() {
            for share in &shares {
                let device = self.devices.get_mut(&share.device).expect("held");
                device.starts_leaving(share.bytes);
            }
        }
        if by_itself {
            self.scaled_down(model);
        }
        if matches!(reason, StopReason::KeepHot { .. }) {
            // A load restored after a restart that did not finish within the keep-hot time is not restarted.
            self.models
                .get_mut(&model)
                .expect("it has a replica")
                .restoring = false;
            self.restoring.remove(&model);
        }
        self.touch_model(model);
        self.grows_at(id);
        actions.push(Action::CloseGate {
            replica: id,
            if_idle_at: only_if_idle.then_some(entered),
        });
        actions.extend(record.map(Action::Record));
    }

    /// The history's record of a ready replica that leaves.
    pub(crate) fn exit_record(&self, id: ReplicaId, reason: &StopReason) -> Record {
        let replica = &self.replicas[&id];
        let kind = match reason {
            StopReason::Preempted { .. }
            | StopReason::TurnEnded { .. }
            | StopReason::Yielded { .. }
            | StopReason::Forced { .. } => RecordKind::Evict,
            StopReason::Unload { .. } => RecordKind::Unload,
            _ => RecordKind::Drain,
        };
        let text = format!("{reason}; {} in flight", replica.in_flight);
        let mut record = self.record(kind, Some(replica.model), text);
        record.cause = Some(reason.name());
        record.replica = Some(id);
        record.order = reason.order();
        record.placement = replica.shares.clone();
        record.took = replica.ready_since().map(|since| self.now.since(since));
        record
    }

    fn reopen(&mut self, id: ReplicaId, actions: &mut Vec<Action>) {
        let replica = self.replicas.get_mut(&id).expect("draining");
        let Phase::Draining { ready_since, .. } = replica.phase else {
            return;
        };
        replica.phase = Phase::Ready { since: ready_since };
        self.closings.forget(id);
        let model = replica.model;
        let queued = self.waited_for.contains(&replica.model);
        // A replica on a silent node does not reopen.
        let gate = if queued {
            GateMode::Queued
        } else {
            GateMode::Open
        };
        replica.gate = Some(gate);
        actions.push(Action::SetGate { replica: id, gate });
        for share in replica.shares.clone() {
            self.devices
                .get_mut(&share.device)
                .expect("held")
                .stays(share.bytes);
        }
        self.touch_model(model);
        self.promises_changed = true;
    }

    pub(crate) fn stop(&mut self, id: ReplicaId, reason: StopReason, actions: &mut Vec<Action>) {
        let now = self.now;
        if self.asleep.remove(&id) && self.planned.contains_key(&id) {
            self.abandon(id);
        }
        let replica = self.replicas.get_mut(&id).expect("stopped while alive");
        let was_leaving = replica.is_leaving();
        replica.leaves_with = None;
        self.leaving_later.remove(&id);
        for share in replica.keeps() {
            let device = self.devices.get_mut(&share.device).expect("held");
            device.starts_leaving(share.bytes);
        }
        let was_launching = matches!(replica.phase, Phase::Launching { .. });
        let drained = match replica.phase {
            Phase::Draining { since, .. } => now.since(since),
            _ => Span::ZERO,
        };
        replica.phase = Phase::Stopping {
            since: now,
            reason: reason.clone(),
            was_launching,
        };
        let (shares, model) = (replica.shares.clone(), replica.model);
        self.no_longer_in_use(id);
        let replica = &self.replicas[&id];
        let host = replica.parked.as_ref().map(|parked| parked.host);
        if drained > Span::ZERO {
            let known = &mut self.models.get_mut(&model).expect("stays").drain_takes;
            *known = Span(known.0.midpoint(drained.0));
        }
        let node = self.devices[&shares[0].device].node;
        if let Some(ledger) = self.hosts.get_mut(&node) {
            ledger.starts_returning(host.unwrap_or_default());
        }
        if !was_leaving {
            for share in shares {
                self.devices
                    .get_mut(&share.device)
                    .expect("held")
                    .starts_leaving(share.bytes);
            }
        }
        self.touch_model(model);
        self.grows_at(id);
        // A load has nothing to finish, so it ends immediately.
        let grace = if was_launching {
            Span::ZERO
        } else {
            self.models[&model].spec.stop_grace
        };
        actions.push(Action::Stop {
            replica: id,
            grace,
            reason,
        });
    }
}

impl StopReason {
    pub(crate) fn order(&self) -> Option<OrderId> {
        match self {
            StopReason::Unload { order }
            | StopReason::Cleanup { order }
            | StopReason::Reset { order }
            | StopReason::Cordoned { order, .. }
            | StopReason::NodeDrained { order, .. }
            | StopReason::Forced { order, .. } => Some(*order),
            _ => None,
        }
    }
}
