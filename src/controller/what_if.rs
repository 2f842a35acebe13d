//! Computes the pool's decisions under assumptions: cordoned devices, other priorities. A copy of the pool receives an
//! administrator's orders and decides; nothing is carried out, and the pool itself is unchanged.

use std::collections::{BTreeMap, BTreeSet};

use pool::{
    Action, Command, DeviceId, Event, LoadOrder, ModelId, ModelView, OrderId, OverrideChange, Plan,
    Pool, PoolView, Priority, ReplicaId, ReplicaState, Share, Span, Time,
};

/// Larger than any number of a real order.
const FIRST_ORDER: u64 = 1 << 62;
/// Limit of events fed back to the copy per assumption. There are few: each closes a gate or stores a wish.
const RESPONSES_MAX: usize = 10_000;

/// Assumptions of a what-if question.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assumptions {
    pub cordoned: Vec<DeviceId>,
    /// `None` restores the catalogue's priority.
    pub priorities: Vec<(ModelId, Option<Priority>)>,
}

/// The pool's immediate decisions.
#[derive(Clone, Debug, Default)]
pub struct WhatIf {
    /// Replicas that would leave.
    pub leaving: Vec<WhatIfReplica>,
    /// Loads that would start for waiting requests, and for models that are always hot or ordered.
    pub loads: Vec<WhatIfReplica>,
    /// For each affected model without a replica: the decision for its next request, taken separately, and the expected time until
    /// the model is ready.
    pub next: Vec<(Plan, Option<Span>)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WhatIfReplica {
    pub replica: ReplicaId,
    pub model: String,
    pub priority: Priority,
    pub shares: Vec<Share>,
    pub in_flight: u32,
    /// The reason it leaves or is loaded.
    pub reason: String,
}

pub fn what_if(mut pool: Pool, now: Time, assumptions: &Assumptions) -> WhatIf {
    let before = pool.view(now);
    let in_flight = in_flight_of(&before);
    let set = assumptions.priorities.iter().map(|(model, priority)| {
        let change = OverrideChange {
            priority: Some(*priority),
            ..OverrideChange::default()
        };
        Command::Set {
            model: *model,
            change,
        }
    });
    let cordon = assumptions.cordoned.iter().map(|device| Command::Cordon {
        device: *device,
        reason: "what if".to_owned(),
        until: None,
        now: false,
    });
    // Cordons come first: no load may begin on a device that is assumed to be out of service.
    let commands = cordon.chain(set).enumerate();
    let mut orders = Vec::new();
    for (nth, command) in commands {
        let order = OrderId(FIRST_ORDER + nth as u64);
        give(&mut pool, now, order, command, &in_flight);
        orders.push(format!(", order {order}"));
    }
    let plain = |reason: &str| {
        let all = orders.iter();
        all.fold(reason.to_owned(), |reason, order| reason.replace(order, ""))
    };
    let after = pool.view(now);
    let concerned = assumptions.priorities.iter().map(|(model, _)| *model);
    let mut concerned: BTreeSet<ModelId> = concerned.collect();
    let mut response = WhatIf::default();
    let stays: BTreeSet<ReplicaId> = replicas(&after)
        .filter(|(_, replica)| !is_leaving(replica.state))
        .map(|(_, replica)| replica.replica)
        .collect();
    let reasons: BTreeMap<ReplicaId, &str> = replicas(&after)
        .map(|(_, replica)| (replica.replica, replica.reason.as_str()))
        .collect();
    for (model, replica) in replicas(&before) {
        if is_leaving(replica.state) || stays.contains(&replica.replica) {
            continue;
        }
        concerned.insert(model.model);
        let reason = reasons.get(&replica.replica).copied();
        response.leaving.push(WhatIfReplica {
            reason: plain(reason.unwrap_or("its load would be given up")),
            ..described(model, replica)
        });
    }
    let known: BTreeSet<ReplicaId> = replicas(&before)
        .map(|(_, replica)| replica.replica)
        .collect();
    let new = replicas(&after)
        .filter(|(_, replica)| !known.contains(&replica.replica) && !is_leaving(replica.state));
    response.loads = new
        .map(|(model, replica)| described(model, replica))
        .collect();
    for model in &after.models {
        let has_replica = model
            .replicas
            .iter()
            .any(|replica| !is_leaving(replica.state));
        if !concerned.contains(&model.model) || has_replica {
            continue;
        }
        let load = LoadOrder {
            model: model.model,
            replicas: Some(1),
            devices: None,
            priority: None,
            keep_hot: None,
            lease: None,
            force: false,
            waits: true,
        };
        let plan = pool.clone().preview_with_forecast(now, &load);
        response
            .next
            .extend(plan.map(|(preview, expected)| (preview.plan, expected)));
    }
    response
}

/// Has the copy take an order, as the shell would: wishes are kept, and gates close with the requests that are inside.
fn give(
    pool: &mut Pool,
    now: Time,
    order: OrderId,
    command: Command,
    in_flight: &BTreeMap<ReplicaId, u32>,
) {
    let mut events = vec![Event::OrderReceived { order, command }];
    for _ in 0..RESPONSES_MAX {
        let Some(event) = events.pop() else { return };
        let response = pool.step(now, event);
        events.extend(
            response
                .actions
                .into_iter()
                .filter_map(|action| match action {
                    Action::Save { order, .. } => Some(Event::Saved { order }),
                    Action::CloseGate { replica, .. } => Some(Event::GateClosed {
                        replica,
                        in_flight: in_flight.get(&replica).copied().unwrap_or(0),
                    }),
                    _ => None,
                }),
        );
    }
}

fn in_flight_of(view: &PoolView) -> BTreeMap<ReplicaId, u32> {
    replicas(view)
        .map(|(_, replica)| (replica.replica, replica.in_flight))
        .collect()
}

fn replicas(view: &PoolView) -> impl Iterator<Item = (&ModelView, &pool::ReplicaView)> {
    let of = |model| move |replica| (model, replica);
    view.models
        .iter()
        .flat_map(move |model| model.replicas.iter().map(of(model)))
}

fn is_leaving(state: ReplicaState) -> bool {
    matches!(state, ReplicaState::Draining | ReplicaState::Stopping)
}

fn described(model: &ModelView, replica: &pool::ReplicaView) -> WhatIfReplica {
    WhatIfReplica {
        replica: replica.replica,
        model: model.name.clone(),
        priority: model.priority,
        shares: replica.shares.clone(),
        in_flight: replica.in_flight,
        reason: replica.reason.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pool::{Bytes, DeviceReading, IdleYields, Limits, ModelSpec, NodeId, Span};

    const GIB: u64 = Bytes::GIB;

    fn pool(models: &[(&str, u32, u64)]) -> Pool {
        // The engines here load in no time, and would yield to lower priorities immediately.
        let limits = Limits {
            idle_yields: IdleYields::After(Span::from_secs(30)),
            ..Limits::default()
        };
        let mut pool = Pool::new(limits, false, ReplicaId(1));
        for nth in 0..2 {
            let reading = DeviceReading {
                name: format!("gpu{nth}"),
                node: NodeId(0),
                total: Bytes(16 * GIB),
                ..DeviceReading::default()
            };
            let device = DeviceId(nth);
            pool.step(Time(1), Event::DeviceRead { device, reading });
        }
        for (nth, (name, priority, gib)) in models.iter().enumerate() {
            let spec = ModelSpec {
                name: (*name).to_owned(),
                priority: Priority(*priority),
                devices_per_replica: 1,
                bytes_per_device: Bytes(gib * GIB),
                keep_hot: Span::from_secs(600),
                queue_limit: 10,
                queue_timeout: Span::from_secs(300),
                seats_per_replica: 4,
                load_deadline: Span::from_secs(300),
                ..ModelSpec::default()
            };
            let model = ModelId(nth as u32);
            run(&mut pool, Event::ModelSet { model, spec });
        }
        pool
    }

    /// The event, and ready engines for what it launches.
    fn run(pool: &mut Pool, event: Event) {
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            let response = pool.step(Time(1_000), event);
            events.extend(
                response
                    .actions
                    .into_iter()
                    .filter_map(|action| match action {
                        Action::Launch { replica, .. } => Some(Event::ReplicaReady { replica }),
                        Action::Save { order, .. } => Some(Event::Saved { order }),
                        _ => None,
                    }),
            );
        }
    }

    fn load(pool: &mut Pool, model: u32) {
        let load = LoadOrder {
            model: ModelId(model),
            replicas: Some(1),
            devices: None,
            priority: None,
            keep_hot: None,
            lease: None,
            force: false,
            waits: true,
        };
        let order = OrderId(u64::from(model) + 1);
        let command = Command::Load(load);
        run(pool, Event::OrderReceived { order, command });
    }

    fn device_of(pool: &Pool, name: &str) -> DeviceId {
        let view = pool.view(Time(1_000));
        let model = view.models.iter().find(|model| model.name == name).unwrap();
        model.replicas[0].shares[0].device
    }

    fn names(replicas: &[WhatIfReplica]) -> Vec<&str> {
        replicas
            .iter()
            .map(|replica| replica.model.as_str())
            .collect()
    }

    #[test]
    fn an_always_hot_model_would_move_and_the_real_pool_is_unchanged() {
        let pool = pool(&[("hot", 2, 10)]);
        let device = device_of(&pool, "hot");
        let before = format!("{:?}", pool.view(Time(1_000)));
        let assumed = Assumptions {
            cordoned: vec![device],
            ..Assumptions::default()
        };
        let response = what_if(pool.clone(), Time(1_000), &assumed);
        assert_eq!(names(&response.leaving), ["hot"]);
        let reason = &response.leaving[0].reason;
        assert!(
            reason.contains("cordoned") && !reason.contains("order"),
            "{reason}"
        );
        assert_eq!(names(&response.loads), ["hot"]);
        assert_ne!(response.loads[0].shares[0].device, device);
        assert!(response.next.is_empty());
        assert_eq!(format!("{:?}", pool.view(Time(1_000))), before);
    }

    #[test]
    fn a_load_is_listed_once_even_if_its_first_device_is_cordoned() {
        let pool = pool(&[("low", 0, 10)]);
        let hot = |cordoned: Vec<DeviceId>| {
            let priorities = vec![(ModelId(0), Some(Priority(2)))];
            let assumed = Assumptions {
                cordoned,
                priorities,
            };
            what_if(pool.clone(), Time(2_000), &assumed)
        };
        let alone = hot(Vec::new());
        assert_eq!(names(&alone.loads), ["low"]);
        let first = alone.loads[0].shares[0].device;
        let other = hot(vec![first]);
        assert_eq!(names(&other.loads), ["low"], "{:?}", other.loads);
        assert_ne!(other.loads[0].shares[0].device, first);
        assert!(other.leaving.is_empty(), "{:?}", other.leaving);
        assert!(other.next.is_empty(), "{:?}", other.next);
        // Neither number of an assumed order is in what the administrator reads.
        let reason = &other.loads[0].reason;
        assert!(!reason.contains("order"), "{reason}");
        // With both devices out of service it is not shown as a load at all.
        let none = hot(vec![DeviceId(0), DeviceId(1)]);
        assert!(none.loads.is_empty(), "{:?}", none.loads);
    }

    #[test]
    fn a_cleared_priority_restores_the_priority_of_the_catalogue() {
        let mut pool = pool(&[("hot", 2, 10)]);
        let change = OverrideChange {
            priority: Some(Some(Priority(0))),
            ..OverrideChange::default()
        };
        let (order, model) = (OrderId(1), ModelId(0));
        let command = Command::Set { model, change };
        run(&mut pool, Event::OrderReceived { order, command });
        let cordoned = vec![device_of(&pool, "hot")];
        let with = |priorities| {
            let cordoned = cordoned.clone();
            let assumed = Assumptions {
                cordoned,
                priorities,
            };
            what_if(pool.clone(), Time(2_000), &assumed)
        };
        let low = with(Vec::new());
        assert!(low.loads.is_empty(), "{:?}", low.loads);
        let restored = with(vec![(model, None)]);
        assert_eq!(names(&restored.loads), ["hot"]);
    }

    #[test]
    fn a_load_that_would_not_fit_gives_the_reason() {
        // Each model has its own device, and both are protected.
        let pool = pool(&[("hot", 2, 10), ("warm", 2, 12)]);
        let assumed = Assumptions {
            cordoned: vec![device_of(&pool, "hot")],
            ..Assumptions::default()
        };
        let response = what_if(pool, Time(1_000), &assumed);
        assert_eq!(names(&response.leaving), ["hot"]);
        assert!(response.loads.is_empty(), "{:?}", response.loads);
        let (plan, _) = &response.next[0];
        let refusal = plan.refusal.as_ref().unwrap().to_string();
        assert!(refusal.contains("warm"), "{refusal}");
    }

    #[test]
    fn a_higher_priority_lets_a_model_displace_others() {
        let mut pool = pool(&[("one", 1, 12), ("two", 1, 12), ("low", 0, 12)]);
        load(&mut pool, 0);
        load(&mut pool, 1);
        let with = |priority: Priority| {
            let priorities = vec![(ModelId(2), Some(priority))];
            let assumed = Assumptions {
                priorities,
                ..Assumptions::default()
            };
            what_if(pool.clone(), Time(2_000), &assumed)
        };
        let same = with(Priority(0));
        assert!(same.next[0].0.refusal.is_some(), "{:?}", same.next);
        assert!(same.leaving.is_empty() && same.loads.is_empty());
        // An always-hot model would be loaded immediately, and another model would leave for it.
        let hot = with(Priority(2));
        assert_eq!(names(&hot.loads), ["low"]);
        assert_eq!(hot.leaving.len(), 1, "{:?}", hot.leaving);
    }
}
