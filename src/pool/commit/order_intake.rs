//! Accepts, stores and closes orders.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use crate::commit::actions::Actions;
use crate::facts::state::Pool;
use crate::plan::cleanup::awaited;
use crate::plan::order_effect;
use crate::plan::order_refusals::{is_loaded, refusal_of};
use crate::types::action::{Action, Outcome, RecordKind, Wish};
use crate::types::decision::Plan;
use crate::types::event::Command;
use crate::types::ids::{ModelId, OrderId, Priority, ReplicaId, Span};
use crate::types::model::Override;
use crate::types::order::Order;
use crate::types::order_effect::OrderEffect;
use crate::types::reason::{Refusal, StopReason};
use crate::types::replica::Phase;

/// The drain time of an unload that cuts no request: longer than any request.
const UNCUT: Span = Span::from_secs(365 * 24 * 3_600);

impl Pool {
    /// Refuses an order that cannot be carried out before anything is stored. Any other order is stored first and carried out once
    /// the store has confirmed it (D1).
    pub(crate) fn order_received(
        &mut self,
        id: OrderId,
        command: Command,
        priority_max: Option<Priority>,
        planned: Option<OrderEffect>,
        actions: &mut Actions,
    ) {
        let order = Order {
            planned,
            ..Order::new(command, self.now, self.wall()).limited(priority_max)
        };
        let refusal = refusal_before_save(self, id, &order);
        self.orders.open(id, order);
        match refusal {
            Some((refusal, plan)) => self.refuse_order(id, refusal, plan, actions),
            None => self.order_accepted(id, actions),
        }
    }

    /// The order's wish is durable, so the order takes effect.
    pub(crate) fn order_begins(&mut self, id: OrderId, actions: &mut Actions) {
        if self.orders.get(&id).is_none_or(|order| order.saved) {
            return;
        }
        self.orders.begin(id);
        if let Some(refusal) = order_effect::changed(self, &self.orders[&id]) {
            self.take_back_unbegun(id, actions);
            self.refuse_order(id, refusal, None, actions);
            return;
        }
        match self.orders[&id].command.clone() {
            Command::Load(load) => self.load_begins(id, &load, actions),
            Command::Unload {
                model,
                replica,
                now,
            } => {
                let drain = match self.orders[&id].priority_max {
                    Some(_) => UNCUT,
                    None if now => Span::ZERO,
                    None => self.limits.unload_drain,
                };
                self.supersede_loads(Some(model), id, actions);
                self.batches.keep_away(model);
                if replica.is_none() {
                    self.load_counts(id, model);
                    self.fetch_is_to_end(model, StopReason::Unload { order: id });
                }
                let targets = self.models[&model].replicas.iter().copied();
                let targets: Vec<ReplicaId> = targets
                    .filter(|id| replica.is_none_or(|only| only == *id))
                    .collect();
                // Stopping these loads would only cause another load.
                for awaited in awaited(self, &targets) {
                    let replica = self.replicas.get_mut(&awaited).expect("a target");
                    replica.leave_when_served = Some((StopReason::Unload { order: id }, id));
                }
                self.set_targets(id, targets, drain);
                self.touch_model(model);
                self.agenda.promises_change();
            }
            Command::Cordon { device, now, .. } => self.cordon_begins(id, device, now, actions),
            Command::Uncordon { device } => {
                if self.failed_meanwhile(id, device) {
                    return;
                }
                let Some(ledger) = self.devices.get_mut(&device) else {
                    // Its node left while the store was writing.
                    self.devices.cordon_departed(device, None);
                    return;
                };
                ledger.cordon = None;
                ledger.lost = false;
                let text = format!("{} serves again (M7)", ledger.name);
                self.grows_on(device);
                let mut record = self.record(RecordKind::Uncordon, None, text);
                record.order = Some(id);
                actions.record(record);
            }
            Command::DrainNode { node, now, .. } => {
                if let Some(Wish::DrainNode {
                    name,
                    drain: Some(drain),
                }) = self.orders[&id].wish.clone()
                {
                    self.node_drain_begins(id, node, name, drain, now, actions);
                }
            }
            Command::UndrainNode { .. } => {
                if let Some(Wish::DrainNode { name, .. }) = self.orders[&id].wish.clone() {
                    self.node_drain_ends(id, &name, actions);
                }
            }
            Command::Set { model, .. } => {
                self.override_counts(id, model);
                let text = describe(&self.models[&model].over);
                self.reindex(model);
                let mut record = self.record(RecordKind::Set, Some(model), text);
                record.order = Some(id);
                actions.record(record);
            }
            Command::Cleanup {
                scope,
                drain,
                begun,
            } => self.cleanup_begins(id, scope, drain, begun, actions),
            Command::Reopen => {
                self.service.set_night(false);
                self.touch_everything();
                let away: Vec<ModelId> = self
                    .models
                    .iter()
                    .filter(|(_, model)| model.kept_away())
                    .map(|(&model, _)| model)
                    .collect();
                for model in away {
                    self.forget_wish(model, actions);
                }
                let mut record = self.record(
                    RecordKind::Reopen,
                    None,
                    "always-hot models are protected again (E2)".into(),
                );
                record.order = Some(id);
                actions.record(record);
            }
            Command::Reset => {
                self.node_demand.reset();
                self.touch_everything();
                self.supersede_loads(None, id, actions);
                self.forget_wishes(None);
                for model in self.models.fetching().clone() {
                    self.fetch_is_to_end(model, StopReason::Reset { order: id });
                }
                for model in self.models.iter_mut().map(|(_, model)| model) {
                    model.forget_failures();
                }
                self.set_targets(id, self.replicas.keys().copied().collect(), Span::ZERO);
            }
            Command::Shutdown { drain } => {
                self.service.close();
                self.touch_everything();
                self.supersede_loads(None, id, actions);
                self.set_targets(id, self.replicas.keys().copied().collect(), drain);
            }
        }
    }

    pub(crate) fn refuse_order(
        &mut self,
        id: OrderId,
        refusal: Refusal,
        plan: Option<Box<Plan>>,
        actions: &mut Actions,
    ) {
        let Some(order) = self.orders.close(id) else {
            return;
        };
        if let Command::Load(load) = &order.command
            && self.models.contains_key(&load.model)
        {
            let model = load.model;
            actions.record(self.refusal_record(model, Some((id, plan.as_deref())), &refusal));
            if order.saved {
                // An order that differs from its plan leaves what an earlier load has made.
                let restores_load = refusal == Refusal::PlanChanged && is_loaded(self, model);
                self.take_back_wishes(id, model, order.previous, restores_load, actions);
            }
            // An order that was never stored has held keep-hot back too.
            self.order_ended(load);
        }
        actions.push(Action::Settle {
            order: id,
            outcome: Outcome::Refused { refusal, plan },
        });
    }

    /// Refuses open loads of a model that has been removed.
    pub(crate) fn refuse_loads_of(&mut self, model: ModelId, actions: &mut Actions) {
        let is_of_it = |order: &Order| order.load().is_some_and(|load| load.model == model);
        let all = self.orders.iter().filter(|(_, order)| is_of_it(order));
        let all: Vec<OrderId> = all.map(|(&id, _)| id).collect();
        for id in all {
            self.refuse_order(id, Refusal::UnknownModel, None, actions);
        }
    }

    /// Ends the wish of a load order when the model's last replica leaves, unless the service is shutting down: then the next start
    /// loads the model again.
    pub(crate) fn forget_wish_if_gone(
        &mut self,
        id: ModelId,
        phase: &Phase,
        actions: &mut Actions,
    ) {
        let shutdown = matches!(
            phase,
            Phase::Stopping {
                reason: StopReason::Shutdown,
                ..
            }
        );
        let awake = |id: &ReplicaId| !self.replicas.is_asleep(*id);
        let none_awake = !self.models[&id].replicas.iter().any(awake);
        let in_order = self
            .orders
            .values()
            .any(|order| order.load().is_some_and(|load| load.model == id));
        let model = &self.models[&id];
        let wished = model.wish.as_ref().is_some_and(|wish| wish.replicas > 0);
        let displaced = matches!(
            phase,
            Phase::Stopping {
                reason: StopReason::Cordoned { .. }
                    | StopReason::DeviceFailed { .. }
                    | StopReason::NodeDrained { .. }
                    | StopReason::NodeLost { .. }
                    | StopReason::NotAdopted { .. }
                    | StopReason::Changed,
                ..
            }
        );
        // An open order loads missing replicas on its own.
        if wished && displaced && !in_order {
            // Its device is no longer available, or its engine must be started with other settings. The wish still stands (D1, M7).
            self.models.set_restoring(id, true);
            self.touch_model(id);
            return;
        }
        if wished && !shutdown && !self.service.is_closing() && !in_order && none_awake {
            self.forget_wish(id, actions);
        }
    }
}

/// The refusal of an order that is not stored yet: it cannot be carried out, or its effect is no longer the planned one.
pub(crate) fn refusal_before_save(
    pool: &Pool,
    id: OrderId,
    order: &Order,
) -> Option<(Refusal, Option<Box<Plan>>)> {
    let changed = || Some((order_effect::changed(pool, order)?, None));
    refusal_of(pool, id, order).or_else(changed)
}

fn describe(over: &Override) -> String {
    let mut parts = Vec::new();
    if let Some(priority) = over.priority {
        parts.push(format!("priority {priority}"));
    }
    if let Some(keep_hot) = over.keep_hot {
        parts.push(format!("keep-hot {keep_hot}"));
    }
    match (parts.is_empty(), over.expires.is_some()) {
        (true, true) => "a lease alone, without a priority or a keep-hot time".to_owned(),
        (true, false) => "back to the catalogue's values".to_owned(),
        (false, true) => format!("{}, for a time (lease)", parts.join(", ")),
        (false, false) => parts.join(", "),
    }
}
