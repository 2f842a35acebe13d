//! Begins each kind of order once it is stored: what it sets and which replicas it concerns. Also adjusts a load's wish when the
//! load ends with fewer replicas.

use alloc::borrow::ToOwned;
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;

use crate::commit::actions::Actions;
use crate::facts::state::Pool;
use crate::plan::cleanup::{leaving, rest_of_drain};
use crate::types::action::{Action, LoadResult, Outcome, RecordKind, Wish};
use crate::types::event::{CleanupScope, Command, LoadOrder};
use crate::types::ids::{DeviceId, ModelId, OrderId, ReplicaId, Span, Time};
use crate::types::model::LoadWish;
use crate::types::reason::{Refusal, StopReason};

impl Pool {
    pub(crate) fn load_begins(&mut self, id: OrderId, load: &LoadOrder, actions: &mut Actions) {
        self.supersede_loads(Some(load.model), id, actions);
        self.supersede_awaited_unloads(load.model, actions);
        // The scaler may have added a replica while the store was writing.
        let wanted = self.replicas_wanted(load);
        self.orders.get_mut(&id).expect("accepted").replicas = wanted;
        self.load_counts(id, load.model);
        self.override_counts(id, load.model);
        let model = self.models.get_mut(&load.model).expect("accepted");
        // An administrator who loads the model again knows about the failure.
        model.forget_failures();
        let refusal = if model.removed {
            Some(Refusal::UnknownModel)
        } else {
            self.service.is_closing().then_some(Refusal::ShuttingDown)
        };
        self.reindex(load.model);
        // The model was removed, or the service is shutting down, while the store was writing.
        if let Some(refusal) = refusal {
            self.refuse_order(id, refusal, None, actions);
        }
    }

    pub(crate) fn cleanup_begins(
        &mut self,
        id: OrderId,
        scope: CleanupScope,
        drain: Span,
        begun: Option<Time>,
        actions: &mut Actions,
    ) {
        self.service.set_night(true);
        self.touch_everything();
        let drain = begun.map_or(drain, |begun| rest_of_drain(drain, self.now.since(begun)));
        if scope == CleanupScope::All {
            // Orders are newer than a cleanup that was interrupted.
            if begun.is_none() {
                self.supersede_loads(None, id, actions);
            }
            self.forget_wishes(begun);
        }
        let leaving = leaving(self, scope, begun);
        for replica in &leaving.when_served {
            let target = self.replicas.get_mut(replica).expect("chosen of these");
            target.leave_when_served = Some((StopReason::Cleanup { order: id }, id));
        }
        let targets = leaving.replicas;
        let count = targets.len();
        self.set_targets(id, targets, drain);
        let again = begun.map_or(
            "",
            |_| " of a cleanup that was interrupted; models loaded since then stay",
        );
        let text = format!(
            "{}{again}; always-hot models are not protected until the morning (E1, E2)",
            leave(count)
        );
        let mut record = self.record(RecordKind::Cleanup, None, text);
        record.order = Some(id);
        actions.record(record);
    }

    pub(crate) fn cordon_begins(
        &mut self,
        id: OrderId,
        device: DeviceId,
        now: bool,
        actions: &mut Actions,
    ) {
        let Some(Wish::Cordon { cordon, .. }) = self.orders[&id].wish.clone() else {
            return;
        };
        let failed = self.failed_meanwhile(id, device);
        let Some(ledger) = self.devices.get_mut(&device) else {
            // Its node left while the store was writing; the cordon waits for it.
            self.devices.cordon_departed(device, cordon);
            return;
        };
        if !failed {
            ledger.cordon = cordon;
        }
        let (name, holders) = (ledger.name.clone(), ledger.holders.clone());
        let targets: Vec<ReplicaId> = holders
            .into_iter()
            .filter(|holder| self.replicas.contains_key(holder))
            .collect();
        let drain = if now {
            Span::ZERO
        } else {
            self.limits.unload_drain
        };
        let count = targets.len();
        self.agenda.touch_replicas(&targets);
        self.set_targets(id, targets, drain);
        self.agenda.promises_change();
        let reason = self.devices[&device]
            .cordon
            .as_ref()
            .map_or("", |cordon| cordon.reason.as_str());
        let text = format!("{name} takes nothing new: {reason}; {} (M7)", leave(count));
        let mut record = self.record(RecordKind::Cordon, None, text);
        record.order = Some(id);
        actions.record(record);
    }

    pub(crate) fn set_targets(&mut self, id: OrderId, targets: Vec<ReplicaId>, drain: Span) {
        let until = self.now + drain;
        let order = self.orders.get_mut(&id).expect("accepted");
        order.targets = targets.iter().copied().collect();
        order.affected = targets;
        order.drain_until = Some(until);
    }

    /// Reduces a wish for more replicas than the devices could ever hold, unless more devices may come.
    pub(crate) fn wish_for_what_fits(
        &mut self,
        id: OrderId,
        model: ModelId,
        result: &LoadResult,
        actions: &mut Actions,
    ) {
        let is_away = self.devices.values().any(|device| device.takes_nothing());
        if is_away || self.devices.any_departed() || self.nodes_may_join() {
            return;
        }
        let Some(fits) = result.fits_when_empty else {
            return;
        };
        let most = fits.max(result.ready.len() as u32);
        let loaded = self.models.get_mut(&model).expect("loaded");
        let is_own = loaded.wished_by == Some(id);
        let wish = loaded.wish.as_mut();
        if let Some(wish) = wish.filter(|wish| is_own && wish.replicas > most) {
            wish.replicas = most;
            self.keep_load(model, actions);
        }
    }

    /// Forgets all wishes, or only the wishes that existed at a given time.
    pub(crate) fn forget_wishes(&mut self, before: Option<Time>) {
        let outlives = |wish: &LoadWish| before.is_some_and(|before| wish.outlives(before));
        self.models.forget_wishes(outlives);
        self.orders.forget_unmet_loads(outlives);
    }

    /// Keeps replicas that were to leave after their waiting requests were served, because a load order is newer.
    fn supersede_awaited_unloads(&mut self, model: ModelId, actions: &mut Actions) {
        let mut superseded = BTreeSet::new();
        for id in &self.models[&model].replicas {
            let replica = self.replicas.get_mut(id).expect("the model's");
            if let Some((StopReason::Unload { order }, _)) = replica.leave_when_served {
                replica.leave_when_served = None;
                superseded.insert(order);
            }
        }
        for order in superseded {
            if self.orders.close(order).is_some() {
                let outcome = Outcome::Refused {
                    refusal: Refusal::Superseded,
                    plan: None,
                };
                actions.push(Action::Settle { order, outcome });
            }
        }
    }

    pub(crate) fn supersede_loads(
        &mut self,
        model: Option<ModelId>,
        by: OrderId,
        actions: &mut Actions,
    ) {
        let superseded: Vec<OrderId> = self
            .orders
            .iter()
            .filter(|(id, order)| {
                **id != by
                    && order
                        .load()
                        .is_some_and(|load| model.is_none_or(|model| model == load.model))
            })
            .map(|(&id, _)| id)
            .collect();
        for id in superseded {
            let order = self.orders.close(id);
            if let Some(Command::Load(load)) = order.map(|order| order.command) {
                self.order_ended(&load);
            }
            let outcome = Outcome::Refused {
                refusal: Refusal::Superseded,
                plan: None,
            };
            actions.push(Action::Settle { order: id, outcome });
        }
    }
}

pub(crate) fn leave(count: usize) -> String {
    match count {
        1 => "1 replica leaves".to_owned(),
        _ => format!("{count} replicas leave"),
    }
}
