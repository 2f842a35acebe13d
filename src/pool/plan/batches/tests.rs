//! Tests of loads for batches (B4).

use alloc::vec::Vec;

use self::run::{Run, load, spec, unload};
use crate::{
    Bytes, Command, Event, ModelId, ModelSpec, NodeShape, OverrideChange, Parking, Priority,
    Protection, ReplicaId, ShapeId, Span,
};

mod deadlines;
mod groups;
mod leaving;
mod nodes;
mod random;
mod random_nodes;
mod run;

const HOUR: Span = Span::from_secs(3_600);
/// Shorter than three swaps.
const SHORT: Span = Span::from_secs(5);

/// Model 0 may be in the way of model 1, which batches need.
fn two(priority: u32) -> Run {
    Run::new(1, &[spec(8, priority), spec(8, 0)])
}

fn set(run: &mut Run, priority: Option<u32>, keep_hot: Option<Span>, lease: Option<Span>) {
    let change = OverrideChange {
        priority: priority.map(|priority| Some(Priority(priority))),
        keep_hot: keep_hot.map(Some),
        expires: lease.map(|lease| Some(run.now + lease)),
    };
    let model = ModelId(0);
    run.orders(Command::Set { model, change });
}

#[test]
fn b4_a_load_for_batches_begins_in_free_memory_without_any_victim() {
    let mut run = two(0);
    run.batches(&[(1, 7, false)]);
    assert_eq!(run.launched, [ModelId(1)], "the device is empty");

    for idle in [SHORT, HOUR] {
        let mut run = two(0);
        run.serves(0, false);
        run.batches(&[(1, 7, false)]);
        run.after(idle);
        run.settle();
        assert!(run.is_loaded(0) && !run.is_loaded(1), "{idle}");
        assert_eq!(run.pool.refusals.wake(), None, "nothing is refused");
    }
}

#[test]
fn b4_with_permission_batches_evict_only_a_long_idle_model_of_priority_0() {
    type Prepare = fn(&mut Run);
    let cases: [(&str, u32, Prepare, Span, bool); 11] = [
        ("idle for long", 0, |run| run.serves(0, false), HOUR, true),
        (
            "idle for short",
            0,
            |run| run.serves(0, false),
            SHORT,
            false,
        ),
        ("busy", 0, |run| run.serves(0, true), HOUR, false),
        ("of priority 1", 1, |run| run.serves(0, false), HOUR, false),
        ("always-hot", 2, Run::settle, HOUR, false),
        (
            "leased",
            0,
            |run| {
                run.serves(0, false);
                set(run, None, None, Some(Span(HOUR.0 * 2)));
            },
            HOUR,
            false,
        ),
        (
            "leased until earlier",
            0,
            |run| {
                run.serves(0, false);
                set(run, None, None, Some(SHORT));
            },
            HOUR,
            true,
        ),
        (
            "kept hot by an administrator",
            0,
            |run| {
                run.serves(0, false);
                set(run, None, Some(Span(HOUR.0 * 9)), None);
            },
            HOUR,
            false,
        ),
        (
            "raised by an administrator",
            0,
            |run| {
                run.serves(0, false);
                set(run, Some(1), None, None);
            },
            HOUR,
            false,
        ),
        (
            "loaded by an administrator",
            0,
            |run| {
                run.orders(load(0));
                run.settle();
            },
            HOUR,
            false,
        ),
        (
            "with batches itself",
            0,
            |run| {
                run.serves(0, false);
                run.batches(&[(0, 1, true), (1, 7, true)]);
            },
            HOUR,
            false,
        ),
    ];
    for (case, priority, prepare, idle, evicts) in cases {
        let mut run = two(priority);
        prepare(&mut run);
        let own = run.pool.batches.has(ModelId(0));
        let others: &[_] = if own { &[(0, 1, true)] } else { &[] };
        run.batches(&[others, &[(1, 7, true)]].concat());
        run.after(idle);
        run.settle();
        assert_eq!(run.is_loaded(1), evicts, "{case}");
        assert_eq!(run.is_loaded(0), !evicts, "{case}");
    }
}

#[test]
fn b4_a_model_is_evicted_for_batches_as_soon_as_it_has_been_idle_for_three_swaps() {
    let mut run = two(0);
    run.serves(0, false);
    run.batches(&[(1, 7, true)]);
    let response = run.pool.step(run.now, Event::TimerFired);
    let at = response.wake.expect("the core looks again at that time");
    run.after(Span(at.since(run.now).0 - 1));
    assert!(run.is_loaded(0));
    run.after(Span(1));
    run.settle();
    assert!(run.is_loaded(1));
}

#[test]
fn b4_the_longest_list_is_loaded_first() {
    for (first, second, expected) in [(5, 9, 1), (9, 5, 0), (5, 5, 0)] {
        let mut run = Run::new(1, &[spec(8, 0), spec(8, 1)]);
        run.batches(&[(0, first, true), (1, second, true)]);
        assert_eq!(run.launched, [ModelId(expected)], "{first} {second}");
    }
}

#[test]
fn b4_every_request_goes_before_batches_whatever_their_priority() {
    let mut run = Run::new(1, &[spec(8, 0), spec(8, 1)]);
    let lines = crate::BatchDemand {
        model: ModelId(1),
        lines: u64::MAX,
        may_evict: true,
        must_begin: None,
        deadline_evicts: false,
    };
    let demands = [lines].to_vec();
    let arrival = run.arrival(0);
    run.step([Event::BatchesSet { demands }, arrival]);
    assert_eq!(run.launched, [ModelId(0)]);
}

#[test]
fn b4_no_load_for_batches_begins_while_a_request_waits_for_memory() {
    let mut run = Run::new(1, &[spec(8, 0), spec(2, 0), spec(8, 0)]);
    run.serves(2, true);
    run.arrives(0);
    run.batches(&[(1, 7, false)]);
    assert!(!run.is_loaded(1), "its load would delay the request");
    let busy = run.replica(2).expect("busy");
    run.request_ends(busy);
    run.settle();
    assert!(run.is_loaded(0));
    let serving = run.replica(0).expect("it serves");
    run.request_ends(serving);
    run.settle();
    assert!(run.is_loaded(1), "no request waits now");
}

#[test]
fn b4_batches_drop_no_sleeper() {
    for may_evict in [false, true] {
        let sleepy = ModelSpec {
            keep_hot: SHORT,
            parking: Some(Parking {
                host: Bytes(8),
                resident_per_device: Bytes(3),
                wakes_in: SHORT,
            }),
            ..spec(8, 0)
        };
        let mut run = Run::new(1, &[sleepy, spec(8, 0)]);
        run.serves(0, false);
        run.after(HOUR);
        assert_eq!(run.pool.replicas.asleep().len(), 1);
        run.batches(&[(1, 7, may_evict)]);
        run.after(HOUR);
        assert!(!run.is_loaded(1));
        run.arrives(1);
        run.settle();
        assert!(run.is_loaded(1), "a request drops it");
    }
}

#[test]
fn b4_batches_request_no_node() {
    for (requests, expected) in [(false, 0), (true, 1)] {
        let mut run = two(0);
        let shapes = [NodeShape {
            shape: ShapeId(0),
            name: "large".into(),
            devices: 1,
            bytes_per_device: run::DEVICE,
            kind: crate::KindId(0),
            cost_per_hour_cents: Some(100),
            nodes_max: Some(1),
        }];
        let shapes = shapes.to_vec();
        run.step([Event::ShapesSet { shapes }]);
        run.serves(0, true);
        run.batches(&[(1, 7, true)]);
        run.after(HOUR);
        if requests {
            run.arrives(1);
        }
        assert_eq!(run.nodes_requested, expected);
    }
}

#[test]
fn b4_a_model_that_fails_or_is_removed_is_not_loaded_for_batches() {
    let mut run = two(0);
    run.batches(&[(1, 7, true)]);
    let exit = crate::Exit::Failed {
        message: "broken".into(),
        remedy: crate::Remedy::Change,
    };
    let replica = run.launching.pop().expect("launched");
    run.step([Event::ReplicaExited { replica, exit }]);
    run.after(HOUR);
    assert_eq!(run.launched.len(), 1, "it is quarantined");
    let model = ModelId(1);
    run.step([Event::ModelRemoved { model }]);
    run.after(HOUR);
    assert_eq!(run.launched.len(), 1);
    let spec = spec(8, 0);
    run.step([Event::ModelSet { model, spec }]);
    assert_eq!(run.launched.len(), 2, "its entry has waited for it");
}

#[test]
fn b4_an_unloaded_model_stays_away_until_it_is_loaded_again_or_its_batches_begin_again() {
    let mut run = two(0);
    run.batches(&[(1, 7, false)]);
    run.settle();
    run.orders(unload(1));
    run.settle();
    run.batches(&[(1, 6, true)]);
    run.after(HOUR);
    assert!(!run.is_loaded(1), "an administrator unloaded it");
    run.batches(&[]);
    run.batches(&[(1, 6, true)]);
    run.settle();
    assert!(run.is_loaded(1), "these are other batches");

    run.orders(unload(1));
    run.settle();
    run.serves(1, false);
    run.orders(load(0));
    run.settle();
    run.orders(unload(0));
    run.settle();
    assert!(run.is_loaded(1), "a request has loaded it in the meantime");
}

#[test]
fn b4_the_evening_cleanup_ends_before_batches_are_loaded_again() {
    let mut run = Run::new(2, &[spec(8, 0), spec(8, 0)]);
    run.serves(0, true);
    run.batches(&[(1, 7, false)]);
    run.settle();
    assert!(run.is_loaded(1));
    run.orders(Command::Cleanup {
        scope: crate::CleanupScope::All,
        drain: HOUR,
        begun: None,
    });
    run.settle();
    assert!(!run.is_loaded(1), "a request is still in flight");
    let draining: Vec<ReplicaId> = run.pool.replicas.keys().copied().collect();
    run.request_ends(draining[0]);
    run.settle();
    assert!(run.is_loaded(1));
}

#[test]
fn the_texts_name_the_rule() {
    let texts = [
        alloc::format!(
            "{}",
            crate::LoadReason::Batch {
                lines: 7,
                for_deadline: false
            }
        ),
        alloc::format!("{}", Protection::Batch { left: None }),
        alloc::format!("{}", Protection::Batch { left: Some(SHORT) }),
    ];
    assert_eq!(texts[0], "batch requests wait for it (7 lines)");
    assert!(
        texts[1..].iter().all(|text| text.contains("(B4)")),
        "{texts:?}"
    );
}
