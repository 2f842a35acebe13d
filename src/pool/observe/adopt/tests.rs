//! Tests of `adopt.rs`.
//! One file because all cases adopt into the same small pool.

use super::*;
use crate::{
    Action, Command, Cordon, DeviceId, DeviceReading, Event, GateMode, GateReading, Limits,
    ModelSpec, Pool, check,
};
use alloc::string::ToString;

const MODEL: ModelId = ModelId(1);
const START: Time = Time(1_000_000);

fn pool(total_gib: u64) -> Pool {
    let mut pool = Pool::new(Limits::default(), false, ReplicaId(1));
    let reading = DeviceReading {
        name: "gpu0".to_owned(),
        total: Bytes(total_gib << 30),
        ..DeviceReading::default()
    };
    let device = DeviceId(0);
    pool.step(START, Event::DeviceRead { device, reading });
    let spec = ModelSpec {
        name: "a".to_owned(),
        ..ModelSpec::default()
    };
    pool.step(START, Event::ModelSet { model: MODEL, spec });
    pool
}

fn adopted(replica: u64, gib: u64, last_end: Option<Time>) -> Event {
    Event::ReplicaAdopted {
        replica: ReplicaId(replica),
        model: MODEL,
        placement: vec![Share {
            device: DeviceId(0),
            bytes: Bytes(gib << 30),
        }],
        ready_for: Span::from_secs(120),
        in_flight: 0,
        last_end,
    }
}

fn stops(actions: &[Action]) -> Vec<String> {
    let stop = |action: &Action| match action {
        Action::Stop { reason, .. } => Some(reason.to_string()),
        _ => None,
    };
    actions.iter().filter_map(stop).collect()
}

#[test]
fn an_adopted_replica_serves_immediately_and_its_memory_is_reserved() {
    let mut pool = pool(16);
    let response = pool.step(START, adopted(7, 10, None));
    let opens = Action::SetGate {
        replica: ReplicaId(7),
        gate: GateMode::Open,
    };
    assert!(response.actions.contains(&opens), "{:?}", response.actions);
    assert_eq!(pool.reserved(DeviceId(0)), Bytes(10 << 30));
    assert_eq!(check(&pool), []);
    // A second replica of the same size does not fit (M3). It holds the remaining memory until it is gone.
    let response = pool.step(START, adopted(8, 10, None));
    let stops = stops(&response.actions);
    assert!(stops[0].contains("6.0 GiB left (M3)"), "{stops:?}");
    assert_eq!(pool.reserved(DeviceId(0)), Bytes(16 << 30));
    assert_eq!(check(&pool), []);
    let exit = crate::Exit::Requested;
    let replica = ReplicaId(8);
    pool.step(START, Event::ReplicaExited { replica, exit });
    assert_eq!(pool.reserved(DeviceId(0)), Bytes(10 << 30));
    assert_eq!(check(&pool), []);
}

#[test]
fn keep_hot_continues_from_the_last_request() {
    let mut pool = pool(16);
    let last_end = Time(START.0 - 60_000);
    let response = pool.step(START, adopted(7, 1, Some(last_end)));
    assert_eq!(response.wake, Some(last_end + Span::from_secs(600)));
    let readings = vec![GateReading {
        replica: ReplicaId(7),
        in_flight: 0,
        entered: 0,
        last_end: None,
        idle_before: None,
    }];
    pool.step(START + Span(5), Event::GatesRead { readings });
    let due = last_end + Span::from_secs(600);
    assert!(
        pool.step(Time(due.0 - 1), Event::TimerFired)
            .actions
            .is_empty()
    );
    let closes = Action::CloseGate {
        replica: ReplicaId(7),
        if_idle_at: Some(0),
    };
    assert!(pool.step(due, Event::TimerFired).actions.contains(&closes));
}

#[test]
fn seats_from_the_earlier_controller_keep_the_replica_and_keep_hot_starts_at_their_end() {
    let mut pool = pool(16);
    let old = Time(START.0 - 900_000);
    let event = match adopted(7, 1, Some(old)) {
        Event::ReplicaAdopted {
            replica,
            model,
            placement,
            ready_for,
            last_end,
            ..
        } => Event::ReplicaAdopted {
            replica,
            model,
            placement,
            ready_for,
            in_flight: 2,
            last_end,
        },
        other => other,
    };
    pool.step(START, event);
    assert_eq!(check(&pool), []);
    let later = START + Span::from_secs(3_600);
    assert!(
        pool.step(later, Event::TimerFired).actions.is_empty(),
        "busy"
    );
    let readings = vec![GateReading {
        replica: ReplicaId(7),
        in_flight: 0,
        entered: 0,
        last_end: Some(later),
        idle_before: None,
    }];
    let response = pool.step(later, Event::GatesRead { readings });
    assert_eq!(response.wake, Some(later + Span::from_secs(600)));
}

#[test]
fn a_new_replica_gets_a_new_id_and_a_shutdown_stops_the_adopted_one_too() {
    let mut pool = pool(16);
    pool.step(START, adopted(7, 1, None));
    let order = crate::OrderId(1);
    let command = Command::Shutdown { drain: Span::ZERO };
    pool.step(START, Event::OrderReceived { order, command });
    let drained = Event::GateClosed {
        replica: ReplicaId(7),
        in_flight: 0,
    };
    let response = pool.step(START, drained);
    assert_eq!(stops(&response.actions).len(), 1);
    assert_eq!(pool.replicas.new_id(), ReplicaId(8));
}

#[test]
fn a_replica_on_an_unknown_device_is_stopped_and_holds_no_memory() {
    let mut pool = pool(16);
    let event = Event::ReplicaAdopted {
        replica: ReplicaId(7),
        model: MODEL,
        placement: vec![Share {
            device: DeviceId(5),
            bytes: Bytes::ZERO,
        }],
        ready_for: Span::ZERO,
        in_flight: 0,
        last_end: None,
    };
    let response = pool.step(START, event);
    assert!(stops(&response.actions)[0].contains("is not there"));
    assert_eq!(check(&pool), []);
    let mut pool = self::pool(16);
    let event = match adopted(7, 1, None) {
        Event::ReplicaAdopted {
            replica,
            placement,
            ready_for,
            in_flight,
            last_end,
            ..
        } => Event::ReplicaAdopted {
            replica,
            model: ModelId(9),
            placement,
            ready_for,
            in_flight,
            last_end,
        },
        other => other,
    };
    let response = pool.step(START, event);
    assert!(stops(&response.actions)[0].contains("no longer in the catalogue"));
    assert_eq!(check(&pool), []);
}

fn launched(actions: &[Action]) -> Vec<ReplicaId> {
    let launch = |action: &Action| match action {
        Action::Launch { replica, .. } => Some(*replica),
        _ => None,
    };
    actions.iter().filter_map(launch).collect()
}

fn arrives(ticket: u64) -> Event {
    Event::RequestArrived {
        ticket: crate::Ticket(ticket),
        model: MODEL,
        key: crate::KeyId(0),
    }
}

fn not_begun(replica: u64) -> Event {
    Event::LoadNotBegun {
        replica: ReplicaId(replica),
    }
}

#[test]
fn an_unstarted_load_is_cancelled_by_an_adopted_replica_that_takes_its_requests() {
    let mut pool = pool(16);
    let response = pool.step(START, arrives(1));
    assert_eq!(launched(&response.actions), [ReplicaId(1)]);
    let response = pool.step_all(START, vec![adopted(7, 1, None), not_begun(1)]);
    let grants = Action::Grant {
        ticket: crate::Ticket(1),
        replica: ReplicaId(7),
    };
    assert!(response.actions.contains(&grants), "{:?}", response.actions);
    assert_eq!(stops(&response.actions), ["more replicas than needed"]);
    assert_eq!(check(&pool), []);
    // This is how the shell reports the end of a load.
    let exit = crate::Exit::Failed {
        message: String::new(),
        remedy: crate::Remedy::Time,
    };
    let replica = ReplicaId(1);
    pool.step(START, Event::ReplicaExited { replica, exit });
    assert_eq!(pool.models[&MODEL].failures, 0, "it has not failed");
    assert!(pool.models[&MODEL].cooling_until.is_none());
    assert_eq!(check(&pool), []);
}

#[test]
fn a_load_that_has_begun_continues_next_to_an_adopted_replica() {
    let mut pool = pool(16);
    pool.step(START, arrives(1));
    let response = pool.step(START, adopted(7, 1, None));
    assert_eq!(stops(&response.actions), [""; 0]);
}

#[test]
fn adopting_a_replica_of_a_scaled_model_cancels_the_load_and_not_the_serving_replica() {
    let mut pool = pool(16);
    let spec = ModelSpec {
        name: "a".to_owned(),
        scaling: Some(alloc::boxed::Box::new(crate::Scaling {
            most: 2,
            ..crate::Scaling::default()
        })),
        ..ModelSpec::default()
    };
    pool.step(START, Event::ModelSet { model: MODEL, spec });
    pool.step(START, arrives(1));
    // Its id is lower than the load's, like that of an engine from an earlier run.
    let response = pool.step_all(START, vec![adopted(0, 1, None), not_begun(1)]);
    assert_eq!(stops(&response.actions), ["more replicas than needed"]);
    let closes = |action: &Action| matches!(action, Action::CloseGate { .. });
    assert!(
        !response.actions.iter().any(closes),
        "{:?}",
        response.actions
    );
    assert_eq!(check(&pool), []);
}

#[test]
fn unstarted_loads_continue_up_to_the_number_requested_by_an_administrator() {
    let mut pool = pool(16);
    let load = Some(crate::LoadWish {
        replicas: 2,
        devices: None,
        since: START,
    });
    let (model, over) = (MODEL, crate::Override::default());
    let wish = Event::WishesRestored { model, over, load };
    let mut begun = launched(&pool.step(START, wish).actions);
    begun.extend(launched(&pool.step(START, Event::TimerFired).actions));
    assert_eq!(begun, [ReplicaId(1), ReplicaId(2)]);
    let events = vec![adopted(7, 1, None), not_begun(1), not_begun(2)];
    let response = pool.step_all(START, events);
    assert_eq!(stops(&response.actions).len(), 1, "{:?}", response.actions);
    assert_eq!(pool.live(&pool.models[&MODEL]), 2);
    assert_eq!(check(&pool), []);
}

#[test]
fn a_used_replica_id_is_not_reused_after_its_replica_ended() {
    let mut pool = pool(16);
    assert!(!pool.has_given(ReplicaId(1)));
    pool.step(START, arrives(1));
    let (replica, exit) = (ReplicaId(1), crate::Exit::Requested);
    pool.step(START, Event::ReplicaExited { replica, exit });
    assert!(pool.has_given(ReplicaId(1)));
    assert!(!pool.has_given(ReplicaId(2)));
    assert!(!pool.has_given(ReplicaId(0)), "of an earlier run");
}

#[test]
fn failures_are_reset_when_an_earlier_replica_of_the_model_is_adopted_and_serves() {
    let mut pool = pool(16);
    let at = |minutes: u64| START + Span::from_secs(60 * minutes);
    // Loads that wait for an unresponsive Ray time out one after another.
    for nth in 0..5 {
        let response = pool.step(at(60 * nth), arrives(nth));
        let load = launched(&response.actions)[0];
        let response = pool.step(at(60 * nth + 30), Event::TimerFired);
        assert_eq!(stops(&response.actions).len(), 1, "{:?}", response.actions);
        let (replica, exit) = (load, crate::Exit::Requested);
        pool.step(at(60 * nth + 31), Event::ReplicaExited { replica, exit });
    }
    assert!(pool.is_quarantined(&pool.models[&MODEL]));

    let now = at(300);
    pool.step(now, adopted(0, 1, None));
    assert_eq!(pool.models[&MODEL].failures, 0);
    assert!(pool.models[&MODEL].last_failure.is_none());
    assert!(!pool.is_quarantined(&pool.models[&MODEL]));
    let response = pool.step(now, arrives(6));
    let grants = Action::Grant {
        ticket: crate::Ticket(6),
        replica: ReplicaId(0),
    };
    assert!(response.actions.contains(&grants), "{:?}", response.actions);
    assert_eq!(check(&pool), []);
}

fn allows(allowed: Vec<DeviceId>) -> Event {
    let (model, of) = (MODEL, vec![DeviceId(0)]);
    Event::DevicesAllowed { model, of, allowed }
}

#[test]
fn d1_a_load_from_before_a_restart_waits_for_the_memory_of_an_engine_that_is_not_adopted() {
    let mut pool = pool(16);
    let limits = Limits {
        nodes_may_join: true,
        ..Limits::default()
    };
    pool.step(START, Event::LimitsSet { limits });
    let spec = ModelSpec {
        name: "a".to_owned(),
        bytes_per_device: Bytes(10 << 30),
        allowed: Some(BTreeSet::new()),
        ..ModelSpec::default()
    };
    pool.step(START, Event::ModelSet { model: MODEL, spec });
    let load = Some(crate::LoadWish {
        replicas: 1,
        devices: None,
        since: START,
    });
    let (model, over) = (MODEL, crate::Override::default());
    let wish = Event::WishesRestored { model, over, load };
    let response = pool.step_all(START, vec![wish, adopted(0, 10, None)]);
    assert!(stops(&response.actions)[0].contains("may no longer use"));
    pool.step(START, allows(vec![DeviceId(0)]));
    let (replica, exit) = (ReplicaId(0), crate::Exit::Requested);
    let response = pool.step(START, Event::ReplicaExited { replica, exit });
    assert_eq!(
        launched(&response.actions).len(),
        1,
        "{:?}",
        response.actions
    );
    assert_eq!(check(&pool), []);
}

#[test]
fn n8_the_devices_of_a_node_that_joins_are_allowed_before_its_engines_are_adopted() {
    let mut pool = pool(16);
    let spec = ModelSpec {
        name: "a".to_owned(),
        allowed: Some(BTreeSet::new()),
        ..ModelSpec::default()
    };
    let model = MODEL;
    pool.step(START, Event::ModelSet { model, spec });
    let events = vec![allows(vec![DeviceId(0)]), adopted(7, 10, None)];
    let response = pool.step_all(START, events);
    assert_eq!(stops(&response.actions), [""; 0]);
    // The node returns with another layout, and the file no longer allows its device.
    pool.step(START, allows(Vec::new()));
    let response = pool.step(START, adopted(8, 1, None));
    assert!(stops(&response.actions)[0].contains("may no longer use"));
}

#[test]
fn an_engine_on_a_cordoned_device_holds_its_memory_until_it_has_ended() {
    let mut pool = pool(16);
    let device = DeviceId(0);
    let cordon = Cordon {
        reason: "repairs".to_owned(),
        since: START,
        until: None,
        failed: false,
    };
    pool.step(START, Event::CordonRestored { device, cordon });
    let response = pool.step(START, adopted(7, 10, None));
    let stops = stops(&response.actions);
    assert!(stops[0].contains("gpu0 is cordoned"), "{stops:?}");
    assert_eq!(pool.reserved(device), Bytes(10 << 30));
    assert_eq!(check(&pool), []);
    let exit = crate::Exit::Requested;
    let replica = ReplicaId(7);
    pool.step(START, Event::ReplicaExited { replica, exit });
    assert_eq!(pool.reserved(device), Bytes::ZERO);
    assert_eq!(check(&pool), []);
}
