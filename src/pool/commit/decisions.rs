//! Turns decisions into facts and actions. Each arm records one decision and makes no choices.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;

use crate::commit::actions::Actions;
use crate::facts::state::Pool;
use crate::types::action::{Action, Outcome, RecordKind};
use crate::types::decision::Decision;
use crate::types::event::{Command, Remedy};
use crate::types::ids::{DeviceId, OrderId};
use crate::types::model::Override;
use crate::types::saves::SettingOrders;

impl Pool {
    pub(crate) fn commit(&mut self, decision: Decision, actions: &mut Actions) {
        match decision {
            Decision::Grant { ticket, replica } => {
                let waited = self
                    .forget_ticket(ticket, true)
                    .expect("granted while waiting");
                let now = self.now;
                self.shares.takes_seat(
                    waited.key,
                    waited.class,
                    replica,
                    waited.expected,
                    (self.charging(waited.model), now),
                );
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
                self.refuse_request(ticket, (waiting.model, waiting.key), refusal, actions);
            }
            Decision::EndLease { model } => {
                let leased = self.models.get_mut(&model).expect("leased");
                leased.over = Override::default();
                leased.set_by = SettingOrders::default();
                self.reindex(model);
                self.keep_override(model, actions);
                let text = "the lease ended; back to the catalogue's values (P1)".to_owned();
                actions.record(self.record(RecordKind::LeaseEnded, Some(model), text));
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
                actions.record(record);
                self.load_failed(model, message, Remedy::Change, actions);
                self.touch_model(model);
            }
            Decision::EndFetch { model, .. } => self.end_fetch(model, actions),
            Decision::Block { demands } => self.demand_index.block_all(demands),
            Decision::Defer { rank } => self.demand_index.defer(rank),
            Decision::Postpone { rank, until } => self.demand_index.postpone(rank, until),
            Decision::RequestNodes {
                shape,
                model,
                priority,
                nodes,
                span,
                for_batches,
            } => {
                let (counts, of) = ((nodes, span), (model, for_batches));
                let demands = self
                    .node_demand
                    .request(shape, counts, of, priority, self.now);
                self.nodes_requested(demands, shape, of, actions);
            }
            Decision::CancelNode { demand } => self.cancel_node(demand, actions),
            Decision::GiveUpNode { demand, why } => self.give_up_node(demand, &why, actions),
            Decision::MoveFrom { node } => self.move_from(node, actions),
            Decision::Consolidate { node } => self.consolidate(node, actions),
            Decision::KeepNode { node, why } => self.keep_node(node, &why, actions),
            Decision::LeaveNode { node, why } => self.leave_node(node, why),
            Decision::ReleaseNode { node } => self.release_node(node, actions),
            Decision::GiveUpSettling { device } => self.give_up_settling(device),
            Decision::GiveUpWish { model, refusal } => {
                self.forget_wish(model, actions);
                self.touch_model(model);
                actions.record(self.refusal_record(model, None, &refusal));
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
                self.service.finish();
                actions.push(Action::Finished);
            }
        }
    }

    fn settle(&mut self, id: OrderId, outcome: Outcome, actions: &mut Actions) {
        if let Outcome::Refused { refusal, plan } = outcome {
            self.refuse_order(id, refusal, plan, actions);
        } else {
            let order = self.orders.close(id).expect("settled once");
            if let Command::Load(load) = &order.command {
                if let Outcome::Loaded(result) = &outcome {
                    self.wish_for_what_fits(id, load.model, result, actions);
                }
                self.order_ended(load);
            }
            actions.push(Action::Settle { order: id, outcome });
        }
    }

    /// The memory was not returned in time, so plans use the last measurement (M4).
    pub(crate) fn give_up_settling(&mut self, id: DeviceId) {
        let (now, patience) = (self.now, self.limits.release_wait);
        let device = self.devices.get_mut(&id).expect("listed");
        device.give_up(now, patience);
        self.grows_on(id);
    }
}
