//! Decisions become facts and actions. Each arm records one decision and nothing else; whoever reads
//! it should find no `if` that chooses.

use super::action::{Action, Evicted, GateMode, MemoryChange, Outcome, RecordKind, Share, Wish};
use super::decision::{Decision, Drain, Plan};
use super::event::Command;
use super::ids::{Bytes, ModelId, OrderId, ReplicaId, Span};
use super::model::{LoadWish, Override};
use super::reason::{LoadReason, StopReason};
use super::replica::{Phase, Planned, Replica};
use super::state::Pool;

impl Pool {
    pub(super) fn commit(&mut self, decision: Decision, actions: &mut Vec<Action>) {
        match decision {
            Decision::Grant { ticket, replica } => {
                let waited = self
                    .forget_ticket(ticket, true)
                    .expect("granted while waiting");
                let now = self.now;
                let it = self
                    .replicas
                    .get_mut(&replica)
                    .expect("granted on a live replica");
                it.in_flight += 1;
                it.entered += 1;
                let served_first = it.entered == 1;
                let model = self
                    .models
                    .get_mut(&it.model)
                    .expect("a replica's model stays");
                // Whoever waited longest wanted it before the others came.
                let gap = model.last_used.map(|last| waited.since.since(last));
                let first = model.last_used.is_none_or(|last| last < waited.since);
                if first {
                    model.demand.wanted(waited.since, gap);
                }
                model.seated += 1;
                model.last_used = Some(now);
                if let Some(gap) = gap.filter(|_| first) {
                    self.gap_ended(waited.model, gap);
                }
                self.touch(replica);
                if served_first {
                    self.grows_at(replica);
                }
                actions.push(Action::Grant { ticket, replica });
            }
            Decision::Refuse { ticket, refusal } => {
                let waiting = self
                    .forget_ticket(ticket, false)
                    .expect("refused while waiting");
                self.record_refusal(waiting.model, None, &refusal, actions);
                actions.push(Action::Refuse { ticket, refusal });
            }
            Decision::EndLease { model } => {
                self.models.get_mut(&model).expect("leased").over = Override::default();
                self.reindex(model);
                actions.push(Action::Keep {
                    wish: Wish::Override {
                        model,
                        over: Override::default(),
                    },
                });
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
            Decision::Stop { replica, reason } => self.stop(replica, reason, actions),
            Decision::Promise { plan, why, order } => self.promise(*plan, why, order, actions),
            Decision::Launch { load } => self.launch(load, actions),
            Decision::Abandon { load } => self.abandon(load),
            Decision::Block { rank, retry } => self.wants.block(rank, retry),
            Decision::Defer { rank } => self.wants.defer(rank),
            Decision::GiveUpSettling { device } => self.give_up_settling(device),
            Decision::GiveUpWish { model, refusal } => {
                let it = self.models.get_mut(&model).expect("wished");
                it.restoring = false;
                it.wish = None;
                self.restoring.remove(&model);
                self.touch_model(model);
                self.record_refusal(model, None, &refusal, actions);
                actions.push(Action::Keep {
                    wish: Wish::Load { model, wish: None },
                });
            }
            Decision::Shorten { order, refusal } => {
                let plan = self.orders[&order].load().map(|load| {
                    let ask = super::orders::ask_of(self, load, self.orders[&order].since, order);
                    Box::new(super::place::explain(self, &ask))
                });
                let it = self.orders.get_mut(&order).expect("active");
                it.shortfall = Some(refusal);
                it.plan = plan;
                if let Some(model) = it.load().map(|load| load.model) {
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
                self.order_ended(load.model);
            }
            actions.push(Action::Settle { order: id, outcome });
        }
    }

    fn drain(&mut self, drain: Drain, actions: &mut Vec<Action>) {
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
            // It drains already: somebody else wants it gone too, and sooner.
            (*old, *why, *load) = (deadline, reason, for_load);
            self.touch(id);
            return;
        }
        let since = replica.ready_since().expect("only a ready replica drains");
        replica.gate = None;
        replica.phase = Phase::Draining {
            ready_since: since,
            since: now,
            deadline,
            reason: reason.clone(),
            for_load,
            closed: false,
        };
        let (shares, busy, entered) = (replica.shares.clone(), replica.in_flight, replica.entered);
        for share in &shares {
            self.devices
                .get_mut(&share.device)
                .expect("held")
                .starts_leaving(share.bytes);
        }
        self.touch_model(model);
        self.grows_at(id);
        actions.push(Action::CloseGate {
            replica: id,
            if_idle_at: only_if_idle.then_some(entered),
        });
        let kind = match reason {
            StopReason::Preempted { .. }
            | StopReason::TurnEnded { .. }
            | StopReason::Forced { .. } => RecordKind::Evict,
            StopReason::Unload { .. } => RecordKind::Unload,
            _ => RecordKind::Drain,
        };
        let mut record = self.record(kind, Some(model), format!("{reason}; {busy} in flight"));
        record.replica = Some(id);
        record.order = reason.order();
        record.placement = shares;
        record.took = Some(now.since(since));
        actions.push(Action::Record(record));
    }

    fn reopen(&mut self, id: ReplicaId, actions: &mut Vec<Action>) {
        let replica = self.replicas.get_mut(&id).expect("draining");
        let Phase::Draining { ready_since, .. } = replica.phase else {
            return;
        };
        replica.phase = Phase::Ready { since: ready_since };
        let model = replica.model;
        let queued = self.waited_for.contains(&replica.model);
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

    fn stop(&mut self, id: ReplicaId, reason: StopReason, actions: &mut Vec<Action>) {
        let now = self.now;
        let replica = self.replicas.get_mut(&id).expect("stopped while alive");
        let was_leaving = replica.is_leaving();
        let was_launching = matches!(replica.phase, Phase::Launching { .. });
        replica.phase = Phase::Stopping {
            since: now,
            reason: reason.clone(),
            was_launching,
        };
        let (shares, model) = (replica.shares.clone(), replica.model);
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
        // A load has nothing to finish: it is ended at once.
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

    /// The plan is kept: room is promised, victims start to leave.
    fn promise(
        &mut self,
        plan: Plan,
        why: LoadReason,
        order: Option<OrderId>,
        actions: &mut Vec<Action>,
    ) {
        let load = ReplicaId(self.replica_next);
        self.replica_next += 1;
        let mut record = self.record(RecordKind::Load, Some(plan.model), why.to_string());
        record.replica = Some(load);
        record.order = order;
        record.placement = plan.placement.clone();
        record.candidates = self.candidates(&plan);
        let spoken_for = |share: &Share| self.devices[&share.device].spoken_for();
        let before: Vec<Bytes> = plan.placement.iter().map(spoken_for).collect();
        let forced = order.and_then(|id| {
            self.orders[&id]
                .load()
                .filter(|load| load.force)
                .map(|_| id)
        });
        let deadline = Some(self.now + self.limits.preempt_drain);
        for victim in &plan.victims {
            if victim.planned {
                self.abandon(victim.replica);
                continue;
            }
            let by = plan.name.clone();
            let equal = victim.priority == plan.priority && forced.is_none();
            let (reason, deadline) = match forced {
                Some(order) => (StopReason::Forced { by, order }, deadline),
                None if equal => {
                    let ready = self.replicas[&victim.replica]
                        .ready_since()
                        .expect("a victim is ready");
                    (
                        StopReason::TurnEnded {
                            by,
                            ready_for: self.now.since(ready),
                        },
                        None,
                    )
                }
                None => (
                    StopReason::Preempted {
                        by,
                        priority: plan.priority,
                        own: victim.priority,
                    },
                    deadline,
                ),
            };
            let evicted = Evicted {
                replica: victim.replica,
                model: victim.name.clone(),
                priority: victim.priority,
                bytes: victim.bytes,
                reason: reason.clone(),
            };
            if let Some(order) = order.and_then(|id| self.orders.get_mut(&id)) {
                order.evicted.push(evicted);
            }
            if forced.is_some() && self.hot.contains(&victim.model) {
                self.keep_away(victim.model, actions);
            }
            let only_if_idle = equal && !victim.busy;
            self.drain(
                Drain {
                    replica: victim.replica,
                    deadline,
                    reason,
                    only_if_idle,
                    for_load: Some(load),
                },
                actions,
            );
        }
        for (share, before) in plan.placement.iter().zip(before) {
            let device = self
                .devices
                .get_mut(&share.device)
                .expect("planned on a known device");
            device.promise(load, share.bytes);
            record.memory.push(MemoryChange {
                device: share.device,
                before,
                after: device.spoken_for(),
            });
        }
        let victims = plan
            .victims
            .iter()
            .filter(|it| !it.planned)
            .map(|it| it.replica)
            .collect();
        self.models
            .get_mut(&plan.model)
            .expect("planned for a model")
            .planned
            .insert(load);
        let planned = Planned {
            model: plan.model,
            shares: plan.placement,
            victims,
            why,
            since: self.now,
            order,
        };
        self.planned.insert(load, planned);
        self.touch_model(plan.model);
        self.promises_changed = true;
        actions.push(Action::Record(record));
    }

    /// An administrator forced it out: it does not come back by itself and evict what was forced in.
    fn keep_away(&mut self, model: ModelId, actions: &mut Vec<Action>) {
        let wish = Some(LoadWish {
            replicas: 0,
            devices: None,
            since: self.now,
        });
        let it = self.models.get_mut(&model).expect("a victim's model stays");
        it.restoring = false;
        it.wish = wish.clone();
        self.restoring.remove(&model);
        actions.push(Action::Keep {
            wish: Wish::Load { model, wish },
        });
    }

    fn launch(&mut self, load: ReplicaId, actions: &mut Vec<Action>) {
        let planned = self.unpromise(load);
        for share in &planned.shares {
            self.devices
                .get_mut(&share.device)
                .expect("planned")
                .reserve(load, share.bytes);
        }
        let now = self.now;
        let model = self
            .models
            .get_mut(&planned.model)
            .expect("planned for a model");
        let deadline = model.spec.load_deadline;
        let loader = model.spec.loader;
        model.replicas.insert(load);
        let enough = model
            .wish
            .as_ref()
            .is_none_or(|wish| model.replicas.len() >= wish.replicas as usize);
        model.restoring &= !enough;
        if !model.restoring {
            self.restoring.remove(&planned.model);
        }
        let replica = Replica {
            model: planned.model,
            shares: planned.shares.clone(),
            phase: Phase::Launching {
                since: now,
                deadline: now + deadline,
            },
            why: planned.why,
            launched: now,
            in_flight: 0,
            entered: 0,
            last_end: None,
            gate: None,
            tier: None,
            reads_until: loader.map(|loader| now + loader.takes),
            leave_when_served: None,
        };
        self.replicas.insert(load, replica);
        if let Some(loader) = loader {
            let node = self.devices[&planned.shares[0].device].node;
            self.reading.insert((node, loader.loader, load));
        }
        self.agenda.replicas.extend(&planned.victims);
        self.touch_model(planned.model);
        actions.push(Action::Launch {
            replica: load,
            model: planned.model,
            placement: planned.shares,
            deadline,
        });
    }

    fn abandon(&mut self, load: ReplicaId) {
        let planned = self.unpromise(load);
        self.agenda.replicas.extend(&planned.victims);
        self.touch_model(planned.model);
        for share in &planned.shares {
            self.grows_on(share.device);
        }
    }

    /// What was planned for it alone is displaced or dropped from now on.
    pub(super) fn order_ended(&mut self, model: ModelId) {
        self.touch_model(model);
        self.grows_at_model(model);
    }

    fn unpromise(&mut self, load: ReplicaId) -> Planned {
        let planned = self.planned.remove(&load).expect("a planned load");
        for share in &planned.shares {
            self.devices
                .get_mut(&share.device)
                .expect("planned")
                .unpromise(load, share.bytes);
        }
        self.models
            .get_mut(&planned.model)
            .expect("planned for a model")
            .planned
            .remove(&load);
        planned
    }
}

impl StopReason {
    pub(super) fn order(&self) -> Option<OrderId> {
        match self {
            StopReason::Unload { order }
            | StopReason::Cleanup { order }
            | StopReason::Reset { order }
            | StopReason::Cordoned { order, .. }
            | StopReason::Forced { order, .. } => Some(*order),
            _ => None,
        }
    }
}
