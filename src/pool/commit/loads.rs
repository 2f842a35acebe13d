//! Turns loads into facts: promised with their victims, launched or woken, abandoned. Like the rest of `commit`, it makes no
//! choices.

use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::commit::actions::Actions;
use crate::facts::state::Pool;
use crate::types::action::{Action, Evicted, MemoryChange, RecordKind};
use crate::types::decision::{Drain, Plan, Victim};
use crate::types::event::LoadOrder;
use crate::types::explanation::Explanation;
use crate::types::ids::{Bytes, KeyId, ModelId, NodeId, OrderId, ReplicaId};
use crate::types::keep_alive::KeepAliveState;
use crate::types::model::LoadWish;
use crate::types::occupancy::Seats;
use crate::types::reason::{LoadReason, StopReason};
use crate::types::replica::{LeavesWith, Phase, Planned, Replica};
use crate::types::share::Share;

impl Pool {
    /// Records a plan: promises the memory and lets the victims leave.
    pub(crate) fn promise(
        &mut self,
        plan: Plan,
        why: LoadReason,
        order: Option<OrderId>,
        explanation: Option<Explanation>,
        actions: &mut Actions,
    ) {
        let first_action = actions.len();
        let load = plan.wakes.unwrap_or_else(|| self.new_id(&plan.placement));
        let shares = match plan.wakes {
            Some(sleeper) => self.replicas[&sleeper].to_wake(),
            None => plan.placement.clone(),
        };
        let mut record = self.record(RecordKind::Load, Some(plan.model), why.to_string());
        record.replica = Some(load);
        record.order = order;
        record.placement = plan.placement.clone();
        record.candidates = self.candidates(&plan);
        record.cause = Some(why.name());
        record.asked_by = self.first_requester(plan.model, &why);
        let committed = |share: &Share| self.devices[&share.device].committed();
        let before: Vec<Bytes> = shares.iter().map(committed).collect();
        if let Some(order) = order.and_then(|id| self.orders.get_mut(&id)) {
            order.is_placed = true;
        }
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
            if self.replicas.is_asleep(victim.replica) {
                self.drop_sleeper(victim, by, order, actions);
                continue;
            }
            let (own, priority, lease) = (victim.priority, plan.priority, victim.lease);
            let is_below = own < priority && !victim.only_batches;
            let yields = forced.is_none() && !is_below && !victim.busy;
            let ready = self.replicas[&victim.replica].ready_since();
            let (reason, deadline) = match forced {
                Some(order) => (StopReason::Forced { by, order, lease }, deadline),
                None if yields && victim.only_batches => (StopReason::BatchYielded { by }, None),
                None if yields => {
                    let reason = StopReason::Yielded {
                        by,
                        idle: victim.idle,
                        own,
                        priority,
                    };
                    (reason, None)
                }
                None if own >= priority => {
                    let ready_for = self.now.since(ready.expect("a victim is ready"));
                    (StopReason::TurnEnded { by, ready_for }, None)
                }
                None => {
                    let reason = StopReason::Preempted {
                        by,
                        priority,
                        own,
                        lease,
                    };
                    (reason, deadline)
                }
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
            if forced.is_some() && self.models.hot().contains(&victim.model) {
                self.keep_away(victim.model, actions);
            }
            if matches!(
                self.replicas[&victim.replica].phase,
                Phase::Launching { .. }
            ) {
                let record = self.exit_record(victim.replica, &reason);
                self.stop(victim.replica, reason, actions);
                actions.record(record);
                continue;
            }
            if victim.serves_on {
                let drain = deadline.map(|deadline| deadline.since(self.now));
                let record = self.exit_record(victim.replica, &reason);
                actions.record(record);
                let with = LeavesWith {
                    load,
                    reason,
                    drain,
                };
                self.leaves_later(victim.replica, with);
                continue;
            }
            self.drain(
                Drain {
                    replica: victim.replica,
                    deadline,
                    reason,
                    only_if_idle: yields,
                    for_load: Some(load),
                },
                actions,
            );
        }
        for (share, before) in shares.iter().zip(before) {
            let device = self
                .devices
                .get_mut(&share.device)
                .expect("planned on a known device");
            device.promise(load, share.bytes);
            record.memory.push(MemoryChange {
                device: share.device,
                before,
                after: device.committed(),
            });
        }
        let victims = plan
            .victims
            .iter()
            .filter(|victim| !victim.planned)
            .map(|victim| victim.replica)
            .collect();
        self.models
            .get_mut(&plan.model)
            .expect("planned for a model")
            .planned
            .insert(load);
        let planned = Planned {
            model: plan.model,
            shares,
            victims,
            why,
            since: self.now,
            order,
            started_with: self.models[&plan.model].spec.started_with,
            wakes: plan.wakes.is_some(),
        };
        self.planned.insert(load, planned);
        self.touch_model(plan.model);
        self.agenda.promises_change();
        if let Some(mut explanation) = explanation {
            explanation.memory.clone_from(&record.memory);
            let shared = Arc::new(explanation);
            for evicted in actions.records_since(first_action) {
                if evicted.kind == RecordKind::Evict {
                    evicted.order = record.order;
                    evicted.asked_by = record.asked_by;
                    evicted.explanation = Some(Arc::clone(&shared));
                }
            }
            record.explanation = Some(shared);
        }
        actions.record(record);
    }

    /// The key of the request that has waited longest, if requests called for the load.
    fn first_requester(&self, model: ModelId, why: &LoadReason) -> Option<KeyId> {
        let LoadReason::Requests { .. } = why else {
            return None;
        };
        let ticket = self.models[&model].queue.oldest()?;
        Some(self.queues.get(ticket)?.key)
    }

    /// Keeps a model that an administrator's load forced out from returning on its own and evicting that load.
    fn keep_away(&mut self, model: ModelId, actions: &mut Actions) {
        let wish = Some(LoadWish {
            replicas: 0,
            devices: None,
            since: self.now,
        });
        let victim = self.models.get_mut(&model).expect("a victim's model stays");
        victim.wish = wish;
        victim.wished_by = None;
        self.models.set_restoring(model, false);
        self.keep_load(model, actions);
    }

    pub(crate) fn launch(&mut self, load: ReplicaId, actions: &mut Actions) {
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
        let replica = Replica {
            model: planned.model,
            shares: planned.shares.clone(),
            phase: Phase::Launching {
                since: now,
                deadline: now + deadline,
            },
            why: planned.why,
            started_with: model.spec.started_with,
            launched: now,
            in_flight: 0,
            entered: 0,
            entered_when_launched: 0,
            seats: Seats::default(),
            last_end: None,
            keep_alive: KeepAliveState::default(),
            gate: None,
            tier: None,
            reads_until: loader.map(|loader| now + loader.takes),
            leave_when_served: None,
            may_be_spared: false,
            parked: None,
            leaves_with: None,
            gang: self.gang_of(&planned.shares),
            entered_at: now,
        };
        let nodes: Vec<NodeId> = self.nodes_of(&replica).collect();
        self.replicas.insert(load, replica);
        self.schedule_moves_of(load);
        self.launched_enough(planned.model);
        self.batches.may_return(planned.model);
        if let Some(loader) = loader {
            for node in nodes {
                self.disks.begins(node, loader.loader, load);
            }
        }
        self.agenda.touch_replicas(&planned.victims);
        self.touch_model(planned.model);
        actions.push(Action::Launch {
            replica: load,
            model: planned.model,
            placement: planned.shares,
            deadline,
        });
    }

    /// Completes a wish from before a restart once as many replicas as it names have been launched.
    pub(crate) fn launched_enough(&mut self, id: ModelId) {
        let live = self.live(&self.models[&id]);
        let model = &self.models[&id];
        let enough = model
            .wish
            .as_ref()
            .is_none_or(|wish| live >= wish.replicas as usize);
        if enough {
            self.models.set_restoring(id, false);
        }
    }

    /// Stops a sleeper because the memory that it keeps on a device is needed. It has nothing to finish.
    fn drop_sleeper(
        &mut self,
        victim: &Victim,
        by: String,
        order: Option<OrderId>,
        actions: &mut Actions,
    ) {
        let reason = StopReason::SleeperDropped { by };
        if let Some(order) = order.and_then(|id| self.orders.get_mut(&id)) {
            order.evicted.push(Evicted {
                replica: victim.replica,
                model: victim.name.clone(),
                priority: victim.priority,
                bytes: victim.bytes,
                reason: reason.clone(),
            });
        }
        self.stop(victim.replica, reason, actions);
    }

    pub(crate) fn abandon(&mut self, load: ReplicaId) {
        let planned = self.unpromise(load);
        self.agenda.touch_replicas(&planned.victims);
        self.touch_model(planned.model);
        for share in &planned.shares {
            self.grows_on(share.device);
        }
    }

    /// Reconsiders what was planned for this order alone: it can now be displaced or dropped. Models that grow have waited for the
    /// end of a forced load (S1).
    pub(crate) fn order_ended(&mut self, load: &LoadOrder) {
        self.touch_model(load.model);
        self.grows_at_model(load.model);
        if load.force {
            self.grows_everywhere();
        }
    }

    pub(crate) fn unpromise(&mut self, load: ReplicaId) -> Planned {
        let planned = self.planned.remove(&load).expect("a planned load");
        for share in &planned.shares {
            self.devices
                .get_mut(&share.device)
                .expect("planned")
                .unpromise(load, share.bytes, planned.wakes);
        }
        self.models
            .get_mut(&planned.model)
            .expect("planned for a model")
            .planned
            .remove(&load);
        planned
    }
}
