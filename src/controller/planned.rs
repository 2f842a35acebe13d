//! Plans of orders: the effect, and the pool that it was found in. Both come from one copy of the pool, so what a caller sees is what
//! the order would do.

use std::sync::Arc;

use crate::handle::{ControllerBusy, Handle};
use crate::view::Snapshot;
use crate::what_if::{Assumptions, WhatIf, what_if};
use pool::{
    Command, LoadOrder, LoadPreview, OrderEffect, Pool, PoolView, Priority, Refusal, Span, Time,
};

/// A planned load.
#[derive(Debug)]
pub struct PlannedLoad {
    /// The refusal that a caller with these rights gets, whatever the plan is.
    pub refusal: Option<Refusal>,
    /// The decision and its effect, with the expected time until the load has ended. `None` for a model that is not served.
    pub preview: Option<(LoadPreview, Option<Span>)>,
    /// The pool before the load.
    pub before: Arc<Snapshot>,
}

/// A planned order other than a load.
#[derive(Debug)]
pub struct PlannedOrder {
    /// The effect; `None` for kinds of orders that have no plan.
    pub effect: Result<Option<OrderEffect>, Refusal>,
    /// The decisions under the assumptions, if there are some.
    pub what_if: Option<WhatIf>,
    /// The pool before the order.
    pub before: Arc<Snapshot>,
}

impl Handle {
    /// Plans a load for a caller who may set priorities up to `priority_max`.
    pub async fn planned_load(
        &self,
        load: LoadOrder,
        priority_max: Option<Priority>,
    ) -> Result<PlannedLoad, ControllerBusy> {
        let clock = self.clock();
        let (refusal, preview, view) = self
            .in_copy(move |pool| load_in(pool, clock.now(), &load, priority_max))
            .await?;
        Ok(PlannedLoad {
            refusal,
            preview,
            before: before(self.snapshot(), view),
        })
    }

    /// Plans an order other than a load, for a caller who may order up to `priority_max`.
    pub async fn planned_order(
        &self,
        command: Command,
        priority_max: Option<Priority>,
        assumptions: Option<Assumptions>,
    ) -> Result<PlannedOrder, ControllerBusy> {
        let clock = self.clock();
        let (effect, what_if, view) = self
            .in_copy(move |pool| {
                let (now, order) = (clock.now(), (command, priority_max));
                order_in(pool, now, order, assumptions.as_ref())
            })
            .await?;
        Ok(PlannedOrder {
            effect,
            what_if,
            before: before(self.snapshot(), view),
        })
    }
}

type LoadInCopy = (
    Option<Refusal>,
    Option<(LoadPreview, Option<Span>)>,
    PoolView,
);

fn load_in(pool: Pool, now: Time, load: &LoadOrder, priority_max: Option<Priority>) -> LoadInCopy {
    let refusal = priority_max.and_then(|most| {
        let command = Command::Load(load.clone());
        pool.preview_effect(command, Some(most)).err()
    });
    let view = pool.view(now);
    (refusal, pool.preview_with_forecast(now, load), view)
}

type OrderInCopy = (
    Result<Option<OrderEffect>, Refusal>,
    Option<WhatIf>,
    PoolView,
);

fn order_in(
    pool: Pool,
    now: Time,
    (command, priority_max): (Command, Option<Priority>),
    assumptions: Option<&Assumptions>,
) -> OrderInCopy {
    let effect = pool.preview_effect(command, priority_max);
    let view = pool.view(now);
    let what_if = assumptions.map(|assumptions| what_if(pool, now, assumptions));
    (effect, what_if, view)
}

/// The snapshot with the pool of the copy. The rest has the names of models and devices.
fn before(snapshot: Arc<Snapshot>, pool: PoolView) -> Arc<Snapshot> {
    Arc::new(Snapshot {
        pool,
        ..Arc::unwrap_or_clone(snapshot)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use pool::{
        Bytes, DeviceId, DeviceReading, Event, KeyId, Limits, ModelId, ModelSpec, ReplicaId, Ticket,
    };

    /// A device with room for either of two models. The first is loading.
    fn pool() -> Pool {
        let mut pool = Pool::new(Limits::default(), false, ReplicaId(1));
        let reading = DeviceReading {
            name: "gpu0".to_owned(),
            total: Bytes(10 * Bytes::GIB),
            ..DeviceReading::default()
        };
        let device = DeviceId(0);
        let set = |nth: u32| Event::ModelSet {
            model: ModelId(nth),
            spec: ModelSpec {
                name: format!("model-{nth}"),
                bytes_per_device: Bytes(8 * Bytes::GIB),
                ..ModelSpec::default()
            },
        };
        let arrival = Event::RequestArrived {
            ticket: Ticket(0),
            model: ModelId(0),
            key: KeyId(0),
        };
        let events = [
            Event::DeviceRead { device, reading },
            set(0),
            set(1),
            arrival,
        ];
        drop(pool.step_all(Time(0), events));
        pool
    }

    #[test]
    fn the_replicas_of_an_effect_are_in_the_pool_that_is_shown_with_it() {
        let command = Command::Unload {
            model: ModelId(0),
            replica: None,
            now: false,
        };
        let (effect, what_if, view) = order_in(pool(), Time(1), (command, None), None);
        let Ok(Some(OrderEffect::Leaving(leaving))) = effect else {
            panic!("{effect:?}");
        };
        let shown: Vec<ReplicaId> = view.models[0]
            .replicas
            .iter()
            .map(|replica| replica.replica)
            .collect();
        assert_eq!(leaving, shown);
        assert!(what_if.is_none());
        assert!(!view.models[0].replicas.is_empty());
    }

    #[test]
    fn a_plan_and_the_check_of_rights_come_from_the_same_copy() {
        let load = LoadOrder {
            model: ModelId(0),
            replicas: None,
            devices: None,
            priority: Some(Priority(3)),
            keep_hot: None,
            lease: None,
            force: false,
            waits: false,
        };
        let (refusal, plan, view) = load_in(pool(), Time(1), &load, Some(Priority(1)));
        assert!(refusal.is_some(), "the priority is above that of the group");
        assert!(plan.is_some());
        assert_eq!(view.models.len(), 2);
        let (refusal, ..) = load_in(pool(), Time(1), &load, None);
        assert_eq!(refusal, None);
    }
}
