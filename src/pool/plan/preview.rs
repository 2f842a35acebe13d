//! Plans a load without carrying it out, for the administrator's `plan`.

use crate::facts::state::Pool;
use crate::plan::{node_demand, order_refusals};
use crate::types::decision::Prospect;
use crate::types::ids::{OrderId, Time};

impl Pool {
    /// The plan of a load that is not carried out, for the administrator's `plan`.
    pub fn preview(
        &self,
        now: Time,
        load: &crate::types::event::LoadOrder,
    ) -> Option<crate::types::decision::Plan> {
        let model = self
            .models
            .get(&load.model)
            .filter(|model| !model.removed)?;
        let mut at_now = alloc::borrow::Cow::Borrowed(self);
        if now > self.now {
            at_now.to_mut().now = now;
        }
        let order = OrderId(u64::MAX);
        let requirements = crate::plan::orders::requirements_of(&at_now, load, now, order);
        let mut plan = crate::plan::place::explain(&at_now, &requirements);
        // An order may be refused for what it requests, whether the model has replicas or not.
        let refused = order_refusals::load_refusal(&at_now, model, load);
        let refused = refused.or_else(|| order_refusals::no_program(&at_now, load.model));
        let refused = refused.or_else(|| order_refusals::damaged(&at_now, load.model));
        let refused = refused
            .or_else(|| order_refusals::refused_for_room(&at_now, load, &requirements, &plan));
        if let Some(refusal) = refused {
            if plan.refusal.as_ref() != Some(&refusal) {
                plan.refusal = Some(refusal);
                plan.prospect = Prospect::Never;
                plan.wakes = None;
                plan.placement.clear();
                plan.candidates.clear();
                plan.victims.clear();
                plan.cost = Default::default();
            }
            return Some(plan);
        }
        if order_refusals::coming(&at_now, load.model) >= at_now.replicas_wanted(load) as usize {
            plan.refusal = None;
            let planned = model
                .planned
                .iter()
                .map(|load| &at_now.planned[load].shares);
            plan.placement = model
                .replicas
                .iter()
                .filter(|id| at_now.replicas[id].is_live())
                .map(|id| &at_now.replicas[id].shares)
                .chain(planned)
                .flatten()
                .copied()
                .collect();
            plan.victims.clear();
            plan.candidates.clear();
            plan.cost = Default::default();
            plan.prospect = Prospect::Now;
            return Some(plan);
        }
        // A load that is placed in some other way requests no node.
        plan.node = node_demand::would_request(&at_now, &requirements, &plan);
        if plan.node.is_some() {
            plan.refusal = None;
            plan.wakes = None;
            plan.placement.clear();
            plan.victims.clear();
            plan.cost = Default::default();
            plan.prospect = Prospect::Soon;
        }
        // The load gets the same refusal for the replicas that it lacks.
        plan.refusal = plan
            .refusal
            .map(|refusal| node_demand::explained(&at_now, &requirements, refusal));
        Some(plan)
    }
}
