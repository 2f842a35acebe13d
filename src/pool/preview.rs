//! Plans a load for the administrator's `plan`: a copy of the pool carries the load out, up to the first decision about it. The
//! plan is therefore that of the load, whatever else the order changes.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::facts::state::Pool;
use crate::plan::{node_demand, order_effect, order_refusals, orders, place};
use crate::types::action::{Action, Outcome};
use crate::types::decision::{Decision, Plan, Prospect};
use crate::types::event::{Command, Event, LoadOrder};
use crate::types::ids::{OrderId, Priority, ShapeId, Span, Time};
use crate::types::order::Order;
use crate::types::order_effect::{FirstPlacement, LoadEffect, OrderEffect};
use crate::types::reason::Refusal;
use crate::types::requirements::Requirements;

/// The load's order in the copy.
const ORDER: OrderId = OrderId(u64::MAX);

/// The plan of a load, and the effect that the pool compares if the load is ordered as planned.
#[derive(Clone, Debug)]
pub struct LoadPreview {
    pub plan: Plan,
    /// `None` if the load is refused or waits for a node.
    pub effect: Option<OrderEffect>,
}

impl LoadPreview {
    fn new(plan: Plan, effect: impl FnOnce(&Plan) -> LoadEffect) -> LoadPreview {
        let begins = plan.refusal.is_none() && plan.node.is_none();
        let effect = begins.then(|| OrderEffect::Load(effect(&plan)));
        LoadPreview { plan, effect }
    }

    fn places(plan: Plan) -> LoadPreview {
        let places = |plan: &Plan| LoadEffect::Places(FirstPlacement::from_plan(plan));
        LoadPreview::new(plan, places)
    }
}

impl Pool {
    /// The plan of a load, made in a copy of the pool. Orders that the store is still writing take effect first.
    pub fn preview(self, now: Time, load: &LoadOrder) -> Option<Plan> {
        Some(self.preview_with_effect(now, load)?.plan)
    }

    /// Like [`Pool::preview`], with the effect that an order as planned is compared with.
    pub fn preview_with_effect(mut self, now: Time, load: &LoadOrder) -> Option<LoadPreview> {
        self.carry_out(now, load)
    }

    /// Like [`Pool::preview_with_effect`], with the expected time until the load has ended. `None` if that is unknown: the load is refused, or
    /// waits for a node.
    pub fn preview_with_forecast(
        mut self,
        now: Time,
        load: &LoadOrder,
    ) -> Option<(LoadPreview, Option<Span>)> {
        let preview = self.carry_out(now, load)?;
        let is_known = preview.effect.is_some();
        let expected = is_known.then(|| self.settles_in(ORDER)).flatten();
        Some((preview, expected))
    }

    /// The effect of an order other than a load, if it began now; `None` for kinds of orders that have no plan.
    ///
    /// # Errors
    /// The refusal that the order would get.
    pub fn preview_effect(
        &self,
        command: Command,
        priority_max: Option<Priority>,
    ) -> Result<Option<OrderEffect>, Refusal> {
        let order = Order::new(command, self.now, self.wall()).limited(priority_max);
        match order_refusals::refusal_of(self, ORDER, &order) {
            Some((refusal, _)) => Err(refusal),
            None => Ok(order_effect::effect_of(self, &order.command)),
        }
    }

    /// Carries the load out up to the first decision about it, and returns its plan.
    fn carry_out(&mut self, now: Time, load: &LoadOrder) -> Option<LoadPreview> {
        let model = self.models.get(&load.model);
        model.filter(|model| !model.removed)?;
        let mut next = Some(Event::OrderReceived {
            order: ORDER,
            command: Command::Load(load.clone()),
        });
        let mut requested = Vec::new();
        while let Some(event) = next {
            let (response, decision) = self.step_until(now, [event], Pool::decides);
            let requirements = || orders::requirements_of(self, load, self.now, ORDER);
            if let Some(decision) = decision {
                return Some(self.plan_by(load, &requirements(), decision));
            }
            requested.extend(response.actions.iter().filter_map(requested_shape));
            let mut settled = response.actions.into_iter().filter_map(refusal_of_load);
            if let Some((refusal, plan)) = settled.next() {
                let explained = || place::explain(self, &requirements());
                let plan = refused(plan.map_or_else(explained, |plan| *plan), refusal);
                return Some(LoadPreview { plan, effect: None });
            }
            next = self.orders.saving().map(|order| Event::Saved { order });
        }
        let requirements = orders::requirements_of(self, load, self.now, ORDER);
        let mut preview = self.plan_without_decision(load, &requirements);
        if let Some(node) = &mut preview.plan.node {
            let shapes = self.node_demand.shapes();
            let mut new = requested.iter().filter_map(|shape| shapes.get(shape));
            node.is_open &= !new.any(|shape| shape.name == node.shape);
        }
        Some(preview)
    }

    /// Returns true if the decision is the first about the load, once it has begun.
    fn decides(&self, decision: &Decision) -> bool {
        let has_begun = self.orders.get(&ORDER).is_some_and(|order| order.saved);
        has_begun
            && match decision {
                Decision::Promise { order, .. } => *order == Some(ORDER),
                Decision::Shorten { order, .. } | Decision::Settle { order, .. } => *order == ORDER,
                _ => false,
            }
    }

    fn plan_by(
        &self,
        load: &LoadOrder,
        requirements: &Requirements,
        decision: Decision,
    ) -> LoadPreview {
        let explained = place::explain(self, requirements);
        let plan = match decision {
            Decision::Promise { plan, .. } => Plan {
                candidates: explained.candidates,
                chosen: explained.chosen,
                ..*plan
            },
            Decision::Shorten { refusal, .. } => Plan {
                refusal: Some(refusal),
                ..explained
            },
            Decision::Settle {
                outcome: Outcome::Refused { refusal, .. },
                ..
            } => refused(explained, refusal),
            _ => return self.plan_without_decision(load, requirements),
        };
        LoadPreview::places(plan)
    }

    /// The plan of a load that has enough replicas, or waits.
    fn plan_without_decision(&self, load: &LoadOrder, requirements: &Requirements) -> LoadPreview {
        let mut plan = place::explain(self, requirements);
        if let Some(refusal) = order_refusals::damaged(self, load.model) {
            return LoadPreview::places(refused(plan, refusal));
        }
        let wanted = self.orders.get(&ORDER).map(|order| order.replicas);
        if wanted.is_some_and(|wanted| self.coming(load) >= wanted as usize) {
            let model = &self.models[&load.model];
            let planned = model.planned.iter().map(|id| &self.planned[id].shares);
            let live = model.replicas.iter().map(|id| &self.replicas[id]);
            let live = live.filter(|replica| replica.is_live());
            plan = without_place(plan);
            plan.placement = live
                .map(|replica| &replica.shares)
                .chain(planned)
                .flatten()
                .copied()
                .collect();
            plan.refusal = None;
            plan.prospect = Prospect::Now;
            return LoadPreview::new(plan, |_| LoadEffect::HasReplicas);
        }
        // A load that is placed in some other way requests no node.
        plan.node = node_demand::would_request(self, requirements, &plan);
        if plan.node.is_some() {
            let candidates = core::mem::take(&mut plan.candidates);
            plan = Plan {
                refusal: None,
                prospect: Prospect::Soon,
                candidates,
                ..without_place(plan)
            };
        }
        // The load gets the same refusal for the replicas that it lacks.
        let explained = |refusal| node_demand::explained(self, requirements, refusal);
        plan.refusal = plan.refusal.map(explained);
        LoadPreview::places(plan)
    }

    fn coming(&self, load: &LoadOrder) -> usize {
        order_refusals::coming(self, load.model)
    }
}

fn requested_shape(action: &Action) -> Option<ShapeId> {
    match action {
        Action::RequestNodes { shape, .. } => Some(*shape),
        _ => None,
    }
}

fn refusal_of_load(action: Action) -> Option<(Refusal, Option<Box<Plan>>)> {
    match action {
        Action::Settle {
            order: ORDER,
            outcome: Outcome::Refused { refusal, plan },
        } => Some((refusal, plan)),
        _ => None,
    }
}

/// The plan of a load that is refused. A plan that found no place keeps what it found.
fn refused(plan: Plan, refusal: Refusal) -> Plan {
    if plan.refusal.as_ref() == Some(&refusal) {
        return plan;
    }
    Plan {
        refusal: Some(refusal),
        prospect: Prospect::Never,
        ..without_place(plan)
    }
}

fn without_place(plan: Plan) -> Plan {
    Plan {
        wakes: None,
        placement: Vec::new(),
        candidates: Vec::new(),
        victims: Vec::new(),
        cost: Default::default(),
        ..plan
    }
}
