//! Tests of `plan.rs`.

use super::*;
use crate::dto::snapshots::{GIB, Rig, of_pool, order, pool};

#[test]
fn a_plan_names_devices_and_the_rule_that_allows_each_eviction() {
    let mut pool = pool(&[("low", 0, 10), ("equal", 1, 10), ("top", 1, 20)]);
    pool.load("low");
    pool.load("equal");
    let (plan, expected) = pool.plan(&order(pool.id("top")));
    let view = PlanView::from_plan(&plan, expected, false, pool.now, &of_pool(&pool));
    assert!(view.feasible && !view.already_loaded);
    assert_eq!(view.reason, "fits after evicting 2 replicas");
    assert_eq!(
        view.placement,
        [Share {
            device: "gpu0".to_owned(),
            bytes: 20 * GIB
        }]
    );
    let reasons: Vec<&str> = view
        .victims
        .iter()
        .map(|victim| victim.reason.as_str())
        .collect();
    assert!(
        reasons.contains(&"preempted by top: priority 1 over 0 (P2)"),
        "{reasons:?}"
    );
    assert!(
        reasons
            .iter()
            .any(|reason| reason.starts_with("yields after ")),
        "{reasons:?}"
    );
    assert_eq!(view.cost.highest_victim_priority, Some(1));
    assert_eq!(view.cost.evicted_bytes, 20 * GIB);
    assert_eq!(view.candidates[0].place, "gpu0");
    assert!(
        view.candidates[0].verdict.starts_with("chosen: evicts "),
        "{:?}",
        view.candidates
    );
}

#[test]
fn a_refused_plan_reports_the_obstacle_on_each_device() {
    let mut pool = pool(&[("hot", 2, 20), ("top", 3, 10)]);
    pool.load("hot");
    let (plan, expected) = pool.plan(&order(pool.id("top")));
    let view = PlanView::from_plan(&plan, expected, false, pool.now, &of_pool(&pool));
    assert!(!view.feasible && !view.already_loaded);
    assert!(
        view.reason.contains("gpu0: 20.0 GiB held by hot"),
        "{}",
        view.reason
    );
    assert!(view.reason.contains("always-hot (P4)"), "{}", view.reason);
    assert_eq!(view.expected_seconds, None);
    assert_eq!(
        view.candidates[0].verdict,
        "no room can be made: 20.0 GiB held by hot (r1, priority 2): always-hot (P4)"
    );
}

#[test]
fn a_plan_for_an_already_loaded_model_is_empty() {
    let mut pool = pool(&[("low", 0, 10)]);
    pool.load("low");
    let (plan, expected) = pool.plan(&order(pool.id("low")));
    let view = PlanView::from_plan(&plan, expected, false, pool.now, &of_pool(&pool));
    assert!(view.already_loaded && view.feasible && view.loading.is_none());
    assert_eq!(
        (view.victims, view.waits_for, view.expected_seconds),
        (vec![], vec![], Some(0.0))
    );
}

#[test]
fn a_model_that_is_being_loaded_is_not_called_loaded() {
    let mut pool = pool(&[("low", 0, 10)]);
    pool.begin("low");
    pool.wait(Span::from_secs(2));
    let load = order(pool.id("low"));
    let (plan, expected) = pool.plan(&load);
    let view = PlanView::from_plan(&plan, expected, false, pool.now, &of_pool(&pool));
    assert!(view.feasible && !view.already_loaded);
    let loading = view.loading.expect("a load has begun");
    assert_eq!((loading.replicas, loading.for_ms), (1, 2_000));
    assert!(loading.why.contains("order o1"), "{loading:?}");
    assert_eq!(view.expected_seconds, Some(4.0), "of 6 seconds");
    assert_eq!(view.placement.len(), 1);
}

#[test]
fn a_plan_for_too_many_devices_is_refused_like_the_load() {
    let mut pool = pool(&[("low", 0, 10)]);
    let load = pool::LoadOrder {
        devices: Some(3),
        ..order(pool.id("low"))
    };
    let planned = |pool: &Rig| {
        let (plan, expected) = pool.plan(&load);
        PlanView::from_plan(&plan, expected, false, pool.now, &of_pool(pool))
    };
    let cold = planned(&pool);
    pool.load("low");
    let loaded = planned(&pool);
    for view in [cold, loaded] {
        assert!(!view.feasible && !view.already_loaded);
        assert_eq!(
            view.reason,
            "3 devices per replica were requested, and the largest node has 1"
        );
        assert!(
            view.candidates
                .iter()
                .all(|candidate| !candidate.verdict.ends_with(": "))
        );
    }
}
