//! Tests of the replicas that batches use: when they leave for others (B5), and how long they are kept (B6).

use alloc::vec::Vec;

use super::run::{Run, load, spec};
use super::{HOUR, set};
use crate::{
    Action, DeviceId, Event, Loader, LoaderId, ModelId, ModelSpec, ReplicaId, Share, Span, Time,
};

#[test]
fn b5_a_replica_for_batches_leaves_immediately_for_any_other_demand() {
    type Demand = fn(&mut Run);
    let demands: [(&str, Demand); 3] = [
        ("a request", |run| run.arrives(0)),
        ("an order", |run| run.orders(load(0))),
        ("an always-hot model", |run| {
            set(run, Some(2), None, None);
        }),
    ];
    for (name, demand) in demands {
        for priority in [0, 1] {
            for min_resident in [None, Some(HOUR)] {
                let batch = ModelSpec {
                    min_resident,
                    max_turn: min_resident,
                    ..spec(8, priority)
                };
                let mut run = Run::new(1, &[spec(8, 0), batch]);
                run.batches(&[(1, 7, false)]);
                run.settle();
                let replica = run.replica(1).expect("loaded");
                demand(&mut run);
                assert_eq!(run.stopping, [replica], "{name} {priority}");
                run.settle();
                assert!(run.is_loaded(0), "{name} {priority}");
            }
        }
    }
}

#[test]
fn b5_a_load_for_batches_that_has_begun_ends_for_any_other_demand() {
    type Demand = fn(&mut Run);
    let demands: [(&str, Demand); 3] = [
        ("a request", |run| run.arrives(0)),
        ("an order", |run| run.orders(load(0))),
        ("an always-hot model", |run| {
            set(run, Some(2), None, None);
        }),
    ];
    for (name, demand) in demands {
        for priority in [0, 1] {
            let mut run = Run::new(1, &[spec(8, 0), spec(8, priority)]);
            run.batches(&[(1, 7, false)]);
            let loading = run.launching.clone();
            demand(&mut run);
            assert_eq!(run.stopping, loading, "{name} {priority}");
            run.settle();
            assert!(run.is_loaded(0), "{name} {priority}");
            let failures = run.pool.models[&ModelId(1)].failures;
            assert_eq!(failures, 0, "{name} {priority}");
        }
    }
}

#[test]
fn b5_a_load_for_batches_goes_on_once_a_request_waits_for_it() {
    let mut run = Run::new(1, &[spec(8, 0), spec(8, 0)]);
    run.batches(&[(1, 7, false)]);
    run.arrives(1);
    run.arrives(0);
    assert!(run.stopping.is_empty(), "the first request waits for it");
}

#[test]
fn b5_a_replica_for_batches_leaves_before_any_other_idle_one() {
    let mut run = Run::new(2, &[spec(8, 0), spec(8, 0), spec(8, 1)]);
    run.serves(0, false);
    run.batches(&[(2, 7, false)]);
    run.settle();
    run.after(HOUR);
    run.arrives(1);
    run.settle();
    assert!(run.is_loaded(0) && run.is_loaded(1) && !run.is_loaded(2));
}

#[test]
fn b5_a_replica_that_requests_use_is_protected_like_any_other() {
    let mut run = Run::new(1, &[spec(8, 0), spec(8, 1)]);
    run.batches(&[(1, 7, false)]);
    run.settle();
    let replica = run.replica(1).expect("loaded");
    run.enters(replica);
    run.arrives(0);
    assert!(run.stopping.is_empty(), "busy, and of higher priority");
    run.request_ends(replica);
    assert!(run.stopping.is_empty(), "P6 protects it for three swaps");
}

#[test]
fn b5_a_planned_load_for_batches_gives_its_promise_up_for_a_request() {
    let loader = Some(Loader {
        loader: LoaderId(0),
        takes: HOUR,
    });
    let with_loader = |bytes, priority| ModelSpec {
        loader,
        load_deadline: HOUR,
        ..spec(bytes, priority)
    };
    let models = [with_loader(2, 0), with_loader(8, 1), with_loader(7, 0)];
    let mut run = Run::new(1, &models);
    run.arrives(0);
    run.batches(&[(1, 7, false)]);
    assert_eq!(run.pool.planned.len(), 1, "it waits for the disk");
    run.arrives(2);
    let planned: Vec<ModelId> = run.pool.planned.values().map(|load| load.model).collect();
    assert_eq!(planned, [ModelId(2)]);
    run.settle();
    assert!(run.is_loaded(2) && !run.is_loaded(1));
}

#[test]
fn b6_keep_hot_counts_from_the_end_of_the_batches() {
    let short = ModelSpec {
        keep_hot: Span::from_secs(60),
        ..spec(8, 0)
    };
    for by_request in [false, true] {
        let mut run = Run::new(1, core::slice::from_ref(&short));
        if by_request {
            run.serves(0, false);
        }
        run.batches(&[(0, 7, false)]);
        run.settle();
        run.after(HOUR);
        run.batches(&[(0, 1, false)]);
        run.after(HOUR);
        assert!(run.is_loaded(0), "{by_request}");
        run.batches(&[]);
        run.after(Span::from_secs(59));
        assert!(run.is_loaded(0), "{by_request}");
        run.after(Span::from_secs(1));
        assert!(!run.is_loaded(0), "{by_request}");
    }
}

#[test]
fn b6_a_request_after_the_batches_keeps_the_model_for_its_own_time() {
    let short = ModelSpec {
        keep_hot: Span::from_secs(60),
        ..spec(8, 0)
    };
    let mut run = Run::new(1, &[short]);
    run.batches(&[(0, 7, false)]);
    run.settle();
    run.batches(&[]);
    run.after(Span::from_secs(30));
    run.serves(0, false);
    run.after(Span::from_secs(59));
    assert!(run.is_loaded(0));
    run.after(Span::from_secs(2));
    assert!(!run.is_loaded(0));
}

/// The next controller of a pool whose model 1 was loaded for batches, and perhaps used by a request since.
fn restarted(is_used: bool, last_end: Option<Time>) -> Run {
    let mut run = Run::new(1, &[spec(8, 0), spec(8, 1)]);
    run.batches(&[(1, 7, false)]);
    run.settle();
    if is_used {
        let replica = run.replica(1).expect("loaded");
        run.enters(replica);
        run.request_ends(replica);
    }
    let numbers = run.pool.remembered(ModelId(1)).expect("it was loaded");
    let mut next = Run::new(1, &[spec(8, 0), spec(8, 1)]);
    let model = ModelId(1);
    let bytes = crate::Bytes(8);
    let device = DeviceId(0);
    next.step([
        Event::Remembered { model, numbers },
        Event::ReplicaAdopted {
            replica: ReplicaId(1),
            model,
            placement: [Share { device, bytes }].to_vec(),
            ready_for: Span::ZERO,
            in_flight: 0,
            last_end,
        },
    ]);
    next
}

#[test]
fn b5_a_replica_for_batches_leaves_immediately_after_a_restart_too() {
    let mut run = restarted(false, None);
    run.arrives(0);
    assert_eq!(run.stopping, [ReplicaId(1)]);
    let used = restarted(false, Some(Time(1_000_000)));
    for (name, mut run) in [("before", restarted(true, None)), ("last", used)] {
        run.arrives(0);
        let stops = &run.stopping;
        assert!(stops.is_empty(), "a request has used it {name}: {stops:?}");
    }
}

#[test]
fn b5_the_history_names_the_rule_of_the_eviction() {
    for priority in [0, 1] {
        let mut run = Run::new(1, &[spec(8, priority), spec(8, 0)]);
        run.batches(&[(1, 7, false)]);
        run.settle();
        run.arrives(0);
        let causes: Vec<&str> = run.causes().collect();
        assert!(causes.contains(&"batch_yielded"), "{priority}: {causes:?}");
        let reasons = run.actions.iter().filter_map(|action| match action {
            Action::Stop { reason, .. } => Some(alloc::format!("{reason}")),
            _ => None,
        });
        let reasons: Vec<_> = reasons.collect();
        let expected = "serves only batches, and 8 bytes needs its memory (B5)";
        assert_eq!(reasons, [expected], "{priority}");
    }
}
