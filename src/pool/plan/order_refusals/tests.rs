//! Orders of group administrators: the models that they may concern, and unloads that cut no request.

use alloc::vec::Vec;

use crate::{
    Action, Bytes, Command, DeviceId, DeviceReading, Event, GateReading, Limits, LoadOrder,
    ModelId, ModelSpec, OrderId, Outcome, OverrideChange, Pool, Priority, Refusal, ReplicaId, Span,
    Time,
};

const MODEL: ModelId = ModelId(1);

/// A pool with a model of this priority.
fn pool(priority: u32) -> Pool {
    let mut pool = Pool::new(Limits::default(), false, ReplicaId(1));
    let reading = DeviceReading {
        name: "gpu0".into(),
        total: Bytes(1_000),
        ..DeviceReading::default()
    };
    let device = DeviceId(0);
    let spec = ModelSpec {
        name: "m".into(),
        bytes_per_device: Bytes(800),
        priority: Priority(priority),
        ..ModelSpec::default()
    };
    let events = [
        Event::DeviceRead { device, reading },
        Event::ModelSet { model: MODEL, spec },
    ];
    pool.step_all(Time(1), events);
    pool
}

fn load(priority: Option<u32>) -> Command {
    Command::Load(LoadOrder {
        model: MODEL,
        replicas: None,
        devices: None,
        priority: priority.map(Priority),
        keep_hot: None,
        lease: None,
        force: false,
        waits: true,
    })
}

fn unload(now: bool) -> Command {
    Command::Unload {
        model: MODEL,
        replica: None,
        now,
    }
}

/// Gives the order at this time with this limit, and has the store write it.
fn order(
    pool: &mut Pool,
    (at, id): (u64, u64),
    command: Command,
    most: Option<u32>,
) -> Vec<Action> {
    let order = OrderId(id);
    let event = match most {
        None => Event::OrderReceived { order, command },
        Some(most) => Event::GroupOrderReceived {
            order,
            command,
            priority_max: Priority(most),
        },
    };
    let mut actions = pool.step(Time(at), event).actions;
    actions.extend(pool.step(Time(at), Event::Saved { order }).actions);
    actions
}

fn refusal(actions: &[Action]) -> Option<&Refusal> {
    actions.iter().find_map(|action| match action {
        Action::Settle {
            outcome: Outcome::Refused { refusal, .. },
            ..
        } => Some(refusal),
        _ => None,
    })
}

/// Makes the replica ready with a request in flight.
fn serves(pool: &mut Pool, at: u64, actions: &[Action]) -> ReplicaId {
    let launched = actions.iter().find_map(|action| match action {
        Action::Launch { replica, .. } => Some(*replica),
        _ => None,
    });
    let replica = launched.expect("a launch");
    pool.step(Time(at), Event::ReplicaReady { replica });
    let readings = [GateReading {
        replica,
        in_flight: 1,
        entered: 1,
        last_end: None,
        idle_before: None,
    }];
    let readings = readings.to_vec();
    pool.step(Time(at), Event::GatesRead { readings });
    replica
}

fn stops(actions: &[Action], replica: ReplicaId) -> bool {
    actions
        .iter()
        .any(|action| matches!(action, Action::Stop { replica: of, .. } if *of == replica))
}

#[test]
fn a_group_order_for_a_model_of_a_higher_priority_is_refused_with_both_numbers() {
    for (own, most, is_refused) in [(0, 0, false), (2, 2, false), (2, 1, true), (9, 0, true)] {
        for command in [load(None), load(Some(0)), unload(false)] {
            let mut pool = pool(own);
            let unloads = matches!(command, Command::Unload { .. });
            let actions = order(&mut pool, (2, 1), command, Some(most));
            match refusal(&actions) {
                Some(Refusal::AboveGroup { priority, most: at }) => {
                    assert!(is_refused, "{own} {most}");
                    assert_eq!((*priority, *at), (Priority(own), Priority(most)));
                    assert_eq!(pool.priority(MODEL), Priority(own), "unchanged");
                }
                Some(Refusal::NotLoaded) => assert!(unloads && !is_refused, "{own} {most}"),
                other => assert!(other.is_none() && !is_refused, "{own} {most}: {other:?}"),
            }
        }
    }
}

#[test]
fn a_group_order_that_requests_a_higher_priority_than_the_group_may_set_is_refused() {
    for (requested, most) in [(0, 0), (1, 1), (2, 1), (1, 0), (9, 8)] {
        let change = OverrideChange {
            priority: Some(Some(Priority(requested))),
            ..OverrideChange::default()
        };
        let set = Command::Set {
            model: MODEL,
            change,
        };
        for command in [load(Some(requested)), set] {
            let mut pool = pool(0);
            let actions = order(&mut pool, (2, 1), command, Some(most));
            let expected = (requested > most).then_some(Refusal::RequestAboveGroup {
                requested: Priority(requested),
                most: Priority(most),
            });
            assert_eq!(refusal(&actions), expected.as_ref(), "{requested} {most}");
            let now = if requested > most { 0 } else { requested };
            assert_eq!(pool.priority(MODEL), Priority(now), "{requested} {most}");
        }
    }
}

#[test]
fn a_priority_that_is_raised_while_a_group_order_waits_for_the_store_counts() {
    let mut pool = pool(0);
    let set = Command::Set {
        model: MODEL,
        change: OverrideChange {
            priority: Some(Some(Priority(3))),
            ..OverrideChange::default()
        },
    };
    let (first, second) = (OrderId(1), OrderId(2));
    let received = Event::OrderReceived {
        order: first,
        command: set,
    };
    pool.step(Time(2), received);
    let received = Event::GroupOrderReceived {
        order: second,
        command: load(Some(1)),
        priority_max: Priority(1),
    };
    let actions = pool.step(Time(2), received).actions;
    assert_eq!(refusal(&actions), None, "not yet");
    let actions = pool.step(Time(3), Event::Saved { order: first }).actions;
    assert!(
        matches!(refusal(&actions), Some(Refusal::AboveGroup { .. })),
        "{actions:?}"
    );
    assert_eq!(pool.priority(MODEL), Priority(3));
}

#[test]
fn an_unload_by_a_group_cuts_no_request_and_a_later_one_by_an_administrator_may() {
    for now in [false, true] {
        let mut pool = pool(0);
        let actions = order(&mut pool, (2, 1), load(None), Some(0));
        let replica = serves(&mut pool, 3, &actions);
        let drain = Limits::default().unload_drain;
        let mut actions = order(&mut pool, (4, 2), unload(now), Some(0));
        let closed = Event::GateClosed {
            replica,
            in_flight: 1,
        };
        actions.extend(pool.step(Time(5), closed).actions);
        let long_after = Time(5) + drain + Span::from_secs(3_600);
        actions.extend(pool.step(long_after, Event::TimerFired).actions);
        assert!(!stops(&actions, replica), "{now}: {actions:?}");
        let by_the_pool = order(&mut pool, (long_after.0, 3), unload(true), None);
        assert!(stops(&by_the_pool, replica), "{now}: {by_the_pool:?}");
    }
}
