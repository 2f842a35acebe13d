//! Replays with targets for the time to the first token (`pool.targets`).

use alloc::vec::Vec;

use super::tests::{asks, ours, scenario};
use super::*;
use pool::{ModelId, Priority, Span};

/// Model 0 is continuously in use by requests of 5 s. Model 1 has a request every 5 minutes; its load takes 4 s.
fn requests_beside_a_busy_model(target: Option<Span>) -> Report {
    let mut scenario = scenario(1, &[(8, 4), (8, 4)]);
    scenario.limits.targets = target
        .map(|target| (Priority(0), target))
        .into_iter()
        .collect();
    let mut list: Vec<(u64, u32)> = (0..3_000).map(|at| (at, 0)).collect();
    list.extend((1..10).map(|nth| (nth * 300, 1)));
    list.sort_unstable();
    let mut arrivals = asks(&list);
    for arrival in &mut arrivals {
        arrival.service = Span::from_secs(5);
    }
    ours(&scenario, &arrivals)
}

#[test]
fn p3_a_turn_ends_in_time_for_a_target() {
    let without = requests_beside_a_busy_model(None);
    let target = Span::from_secs(30);
    let with = requests_beside_a_busy_model(Some(target));
    let longest = |report: &Report| report.by_model[&ModelId(1)].waits.longest;
    assert!(longest(&without) > Span::from_secs(60), "{without:?}");
    // The duration of a drain is known after the first drain.
    assert!(longest(&with) <= target + Span::from_secs(5), "{with:?}");
    let waits = &with.by_model[&ModelId(1)].waits;
    assert!(waits.p50 <= target, "{waits:?}");
    assert!(without.targets.is_empty());
    let attainment = with.targets[&Priority(0)];
    assert_eq!(attainment.met + attainment.missed, with.all.requests);
    assert!(
        attainment.met * 100 >= attainment.missed * 99,
        "{attainment:?}"
    );
}

#[test]
fn p3_a_target_that_leaves_no_time_for_serving_changes_no_turn() {
    let without = requests_beside_a_busy_model(None);
    let with = requests_beside_a_busy_model(Some(Span::from_secs(7)));
    assert_eq!(with.all, without.all);
}

#[test]
fn p3_a_long_load_begins_in_time_for_its_target() {
    // A load of 60 s may be passed by short ones for three minutes, and must begin after 40 s for a target of 100 s.
    let mut scenario = scenario(1, &[(8, 60), (8, 2), (8, 2), (8, 2)]);
    let short = (0..300).map(|nth| (nth * 3, 1 + (nth % 3) as u32));
    let mut list: Vec<(u64, u32)> = short.chain([(0, 0), (300, 0)]).collect();
    list.sort_unstable();
    let arrivals = asks(&list);
    let longest = |report: &Report| report.by_model[&ModelId(0)].waits.longest;
    let without = longest(&ours(&scenario, &arrivals));
    let target = Span::from_secs(100);
    scenario.limits.targets = [(Priority(0), target)].into();
    let with = longest(&ours(&scenario, &arrivals));
    assert!(without > target, "{without}");
    assert!(with <= target, "{with}");
}

#[test]
fn unserved_requests_miss_their_target() {
    let mut scenario = scenario(1, &[(8, 4), (8, 400)]);
    scenario.models[1].queue_timeout = Span::from_secs(10);
    scenario.models[1].priority = Priority(1);
    scenario.limits.targets = [(Priority(1), Span::from_secs(60))].into();
    let report = ours(&scenario, &asks(&[(0, 0), (100, 1)]));
    let attainment = report.targets[&Priority(1)];
    assert_eq!((attainment.met, attainment.missed), (0, 1));
}
