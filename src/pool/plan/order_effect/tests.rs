//! Orders that are carried out exactly as planned, or refused because the pool has changed.

use alloc::string::String;
use alloc::vec::Vec;

use crate::{
    Action, Bytes, CleanupScope, Command, DeviceId, DeviceReading, Event, Exit, Limits, LoadEffect,
    LoadOrder, ModelId, ModelSpec, OrderEffect, OrderId, Outcome, OverrideChange, Pool, Priority,
    Refusal, Remedy, ReplicaId, Span, Time, Wish,
};

const LOW: ModelId = ModelId(1);
const HIGH: ModelId = ModelId(2);
const NOW: Time = Time(1_000);

/// A pool with one device, on which either of two models fits.
fn pool() -> Pool {
    let mut pool = Pool::new(Limits::default(), false, ReplicaId(1));
    let reading = DeviceReading {
        name: "gpu0".into(),
        total: Bytes(1_000),
        ..DeviceReading::default()
    };
    let spec = |name: &str, priority: u32| ModelSpec {
        name: String::from(name),
        bytes_per_device: Bytes(800),
        priority: Priority(priority),
        ..ModelSpec::default()
    };
    let device = DeviceId(0);
    let events = [
        Event::DeviceRead { device, reading },
        Event::ModelSet {
            model: LOW,
            spec: spec("low", 0),
        },
        Event::ModelSet {
            model: HIGH,
            spec: spec("high", 1),
        },
    ];
    pool.step_all(Time(1), events);
    pool
}

fn load_order(model: ModelId) -> LoadOrder {
    LoadOrder {
        model,
        replicas: None,
        devices: None,
        priority: None,
        keep_hot: None,
        lease: None,
        force: false,
        waits: false,
    }
}

fn unload(model: ModelId) -> Command {
    Command::Unload {
        model,
        replica: None,
        now: false,
    }
}

fn saved(pool: &mut Pool, order: OrderId) -> Vec<Action> {
    pool.step(NOW, Event::Saved { order }).actions
}

/// Loads the model until it is ready.
fn loaded(pool: &mut Pool, model: ModelId, id: u64) -> ReplicaId {
    let order = OrderId(id);
    let command = Command::Load(load_order(model));
    pool.step(NOW, Event::OrderReceived { order, command });
    let launched = saved(pool, order)
        .into_iter()
        .find_map(|action| match action {
            Action::Launch { replica, .. } => Some(replica),
            _ => None,
        });
    let replica = launched.expect("a launch");
    pool.step(NOW, Event::ReplicaReady { replica });
    replica
}

/// The actions until the order has been given and, if it was accepted, written.
fn planned(pool: &mut Pool, id: u64, command: Command, effect: &OrderEffect) -> Vec<Action> {
    let mut actions = received(pool, id, command, effect);
    actions.extend(saved(pool, OrderId(id)));
    actions
}

fn received(pool: &mut Pool, id: u64, command: Command, effect: &OrderEffect) -> Vec<Action> {
    let order = OrderId(id);
    let event = Event::PlannedOrderReceived {
        order,
        command,
        priority_max: None,
        effect: effect.clone(),
    };
    pool.step(NOW, event).actions
}

fn load_effect(pool: &Pool, load: &LoadOrder) -> OrderEffect {
    let preview = pool.clone().preview_with_effect(NOW, load);
    let effect = preview.expect("a known model").effect;
    effect.expect("a load that can begin now")
}

fn effect(pool: &Pool, command: &Command) -> OrderEffect {
    let effect = pool.preview_effect(command.clone(), None);
    effect.expect("a possible order").expect("a planned kind")
}

fn is_changed(actions: &[Action]) -> bool {
    actions.iter().any(|action| {
        matches!(
            action,
            Action::Settle {
                outcome: Outcome::Refused {
                    refusal: Refusal::PlanChanged,
                    ..
                },
                ..
            }
        )
    })
}

fn is_saved(actions: &[Action]) -> bool {
    let is_save = |action: &Action| matches!(action, Action::Save { .. });
    actions.iter().any(is_save)
}

/// Returns true if the replica begins to leave for the order.
fn leaves(actions: &[Action], replica: ReplicaId) -> bool {
    actions.iter().any(|action| match action {
        Action::Record(record) => {
            record.replica == Some(replica) && matches!(record.cause, Some("preempted" | "unload"))
        }
        _ => false,
    })
}

#[test]
fn a_planned_load_evicts_what_its_plan_shows() {
    let mut pool = pool();
    let victim = loaded(&mut pool, LOW, 1);
    let load = load_order(HIGH);
    let effect = load_effect(&pool, &load);
    match &effect {
        OrderEffect::Load(LoadEffect::Places(first)) => assert_eq!(first.victims, [victim]),
        other => panic!("{other:?}"),
    }
    let actions = planned(&mut pool, 2, Command::Load(load), &effect);
    assert!(!is_changed(&actions), "{actions:?}");
    assert!(leaves(&actions, victim), "{actions:?}");
}

#[test]
fn a_load_whose_victim_was_not_in_its_plan_is_refused_and_evicts_nothing() {
    let mut pool = pool();
    let load = load_order(HIGH);
    let effect = load_effect(&pool, &load);
    // The device was empty when the load was planned.
    let other = loaded(&mut pool, LOW, 1);
    let before = pool.models[&HIGH].wish.clone();
    let actions = planned(&mut pool, 2, Command::Load(load), &effect);
    assert!(is_changed(&actions), "{actions:?}");
    assert!(!leaves(&actions, other), "{actions:?}");
    assert_eq!(pool.models[&HIGH].wish, before);
    // The store gets the former state back.
    let takes_back = |action: &Action| matches!(action, Action::Keep { wish: Wish::Load { model, wish: None } } if *model == HIGH);
    assert!(actions.iter().any(takes_back), "{actions:?}");
}

#[test]
fn a_change_while_the_store_writes_a_planned_load_refuses_it() {
    let mut pool = pool();
    let load = load_order(HIGH);
    let effect = load_effect(&pool, &load);
    let actions = received(&mut pool, 2, Command::Load(load), &effect);
    assert!(is_saved(&actions), "{actions:?}");
    // A request loads the other model in the meantime.
    let arrived = Event::RequestArrived {
        ticket: crate::Ticket(1),
        model: LOW,
        key: crate::KeyId(1),
    };
    pool.step(NOW, arrived);
    let actions = saved(&mut pool, OrderId(2));
    assert!(is_changed(&actions), "{actions:?}");
}

#[test]
fn a_load_that_was_planned_with_a_placement_is_refused_once_the_model_is_loaded() {
    let mut pool = pool();
    let load = load_order(HIGH);
    let effect = load_effect(&pool, &load);
    loaded(&mut pool, HIGH, 1);
    let before = pool.models[&HIGH].wish.clone();
    let actions = planned(&mut pool, 2, Command::Load(load), &effect);
    assert!(is_changed(&actions), "{actions:?}");
    assert_eq!(pool.models[&HIGH].wish, before);
}

#[test]
fn a_load_that_was_planned_while_the_model_was_loaded_places_no_replica_after_it_has_left() {
    let mut pool = pool();
    let replica = loaded(&mut pool, HIGH, 1);
    let load = load_order(HIGH);
    let effect = load_effect(&pool, &load);
    assert_eq!(effect, OrderEffect::Load(LoadEffect::HasReplicas));
    let exit = Exit::Failed {
        message: String::from("crashed"),
        remedy: Remedy::Retry,
    };
    pool.step(NOW, Event::ReplicaExited { replica, exit });
    let actions = planned(&mut pool, 2, Command::Load(load), &effect);
    assert!(is_changed(&actions), "{actions:?}");
    assert!(pool.planned.is_empty(), "{actions:?}");
}

#[test]
fn a_planned_unload_ends_the_replicas_of_its_plan_and_no_others() {
    let mut pool = pool();
    let first = loaded(&mut pool, LOW, 1);
    let effect = effect(&pool, &unload(LOW));
    assert_eq!(effect, OrderEffect::Leaving([first].to_vec()));
    let mut changed = pool.clone();
    let actions = planned(&mut pool, 2, unload(LOW), &effect);
    assert!(
        !is_changed(&actions) && leaves(&actions, first),
        "{actions:?}"
    );
    // The replica has ended, and the model was loaded again.
    let exit = Exit::Failed {
        message: String::from("crashed"),
        remedy: Remedy::Retry,
    };
    let replica = first;
    changed.step(NOW, Event::ReplicaExited { replica, exit });
    let second = loaded(&mut changed, LOW, 3);
    let actions = received(&mut changed, 4, unload(LOW), &effect);
    assert!(is_changed(&actions) && !is_saved(&actions), "{actions:?}");
    assert!(changed.replicas.contains_key(&second));
}

#[test]
fn a_cleanup_is_refused_if_a_replica_has_come_since_its_plan() {
    let cleanup = Command::Cleanup {
        scope: CleanupScope::All,
        drain: Span::from_secs(1),
        begun: None,
    };
    let mut pool = pool();
    let effect = effect(&pool, &cleanup);
    assert_eq!(effect, OrderEffect::Leaving(Vec::new()));
    let replica = loaded(&mut pool, LOW, 1);
    let actions = received(&mut pool, 2, cleanup, &effect);
    assert!(is_changed(&actions) && !is_saved(&actions), "{actions:?}");
    assert!(pool.replicas.contains_key(&replica));
}

#[test]
fn a_change_of_an_override_is_refused_if_another_came_first_even_while_the_store_writes() {
    let set = |priority: u32| Command::Set {
        model: LOW,
        change: OverrideChange {
            priority: Some(Some(Priority(priority))),
            ..OverrideChange::default()
        },
    };
    let mut pool = pool();
    let effect = effect(&pool, &set(1));
    let other = OrderId(1);
    let command = set(3);
    pool.step(
        NOW,
        Event::OrderReceived {
            order: other,
            command,
        },
    );
    // The first change is still being written when the planned one arrives.
    let waits = received(&mut pool, 2, set(1), &effect);
    assert!(!is_changed(&waits), "{waits:?}");
    let actions = saved(&mut pool, other);
    assert!(is_changed(&actions), "{actions:?}");
    assert_eq!(pool.models[&LOW].over.priority, Some(Priority(3)));
}
