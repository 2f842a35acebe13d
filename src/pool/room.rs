//! Which models should have a replica and have none, or too few, and room for the first of them.
//! Part of `plan::next`; changes nothing.

use super::decision::{Decision, Prospect};
use super::ids::{ModelId, OrderId, Time};
use super::orders;
use super::place::{self, Ask};
use super::rank::{Class, DemandRank};
use super::reason::LoadReason;
use super::state::Pool;

/// One model that should have a replica and has none, or too few.
pub(super) struct Demand {
    pub rank: DemandRank,
    pub ask: Ask,
    pub why: LoadReason,
    pub order: Option<OrderId>,
}

pub(super) fn make_room(pool: &Pool) -> Option<Decision> {
    if pool.closing.is_some() {
        return None;
    }
    let mut demands = demands(pool);
    demands.sort_by_key(|demand| demand.rank);
    // Each answer changes the facts or blocks the demand, and the next one is first then.
    let demand = demands.into_iter().next()?;
    let plan = place::place(pool, &demand.ask);
    let (model, class) = (demand.rank.model, demand.rank.class);
    let Some(refusal) = plan.refusal.clone() else {
        return Some(Decision::Promise {
            plan: Box::new(plan),
            why: demand.why,
            order: demand.order,
        });
    };
    let waits = match class {
        Class::Order => plan.prospect <= Prospect::Soon,
        Class::Request | Class::Standing => plan.prospect <= Prospect::WhenOthersLeave,
    };
    if !waits {
        match class {
            Class::Order => {
                let order = demand.order.expect("an order's demand names it");
                return Some(Decision::Shorten { order, refusal });
            }
            Class::Request => {
                let ticket = pool.models[&model].queue.first().expect("somebody waits");
                return Some(Decision::Refuse { ticket, refusal });
            }
            Class::Standing if pool.models[&model].restoring => {
                return Some(Decision::GiveUpWish { model, refusal });
            }
            Class::Standing => {}
        }
    }
    Some(Decision::Block {
        model,
        class,
        retry: plan.retry,
    })
}

fn demands(pool: &Pool) -> Vec<Demand> {
    let mut demands = Vec::new();
    let mut push =
        |model: ModelId, class: Class, ask: Ask, why: LoadReason, order: Option<OrderId>| {
            let known = pool.blocked.get(&(model, class));
            let still = |retry: Option<Time>| retry.is_none_or(|at| at > pool.now);
            if known.is_some_and(|blocked| blocked.changes == pool.changes && still(blocked.retry))
            {
                return;
            }
            let rank = DemandRank {
                unforced: ask.forced_by.is_none(),
                priority: std::cmp::Reverse(ask.priority),
                class,
                since: ask.since,
                model,
            };
            demands.push(Demand {
                rank,
                ask,
                why,
                order,
            });
        };
    for (order, ask) in orders::loads_to_place(pool) {
        push(
            ask.model,
            Class::Order,
            ask,
            LoadReason::Order { order },
            Some(order),
        );
    }
    for &id in &pool.waited_for {
        let model = &pool.models[&id];
        if pool.live(model) == 0 && model.planned.is_empty() {
            let oldest = model.queue.oldest().expect("somebody waits for it");
            let ask = Ask::of(pool, id, pool.tickets[&oldest].since);
            let waiting = u32::try_from(model.queue.len()).unwrap_or(u32::MAX);
            push(
                id,
                Class::Request,
                ask,
                LoadReason::Requests { waiting },
                None,
            );
        }
    }
    let may_start = |id: &ModelId| {
        let model = &pool.models[id];
        let cooling = model.cooling_until.is_some_and(|until| until > pool.now);
        !model.removed
            && !cooling
            && model.failures < pool.limits.failures_max
            && model.planned.is_empty()
    };
    for &id in pool.restoring.iter().filter(|id| may_start(id)) {
        let model = &pool.models[&id];
        let wish = model
            .wish
            .as_ref()
            .expect("a model that is restored has a wish");
        if pool.live(model) < wish.replicas as usize {
            let ask = Ask::of(pool, id, wish.since).over_devices(wish.devices);
            push(id, Class::Standing, ask, LoadReason::Wish, None);
        }
    }
    for &id in pool
        .hot
        .iter()
        .filter(|id| pool.is_protected(**id) && may_start(id))
    {
        let model = &pool.models[&id];
        if pool.live(model) == 0 && !model.kept_away() && !model.restoring {
            let why = LoadReason::AlwaysHot {
                priority: model.priority(),
            };
            push(
                id,
                Class::Standing,
                Ask::of(pool, id, model.since),
                why,
                None,
            );
        }
    }
    demands
}
