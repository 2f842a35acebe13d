//! Replays of engines that sleep and of evenings, small enough to calculate by hand.

use alloc::vec::Vec;

use super::tests::{asks, baseline, ours, scenario};
use super::*;
use pool::{Bytes, HostReading, NodeId, Parking, Priority, Span, Time};

const GIB: u64 = Bytes::GIB;

fn host(gibibytes: u64) -> HostReading {
    HostReading {
        capacity: Bytes(gibibytes * GIB),
        reserve: Bytes::ZERO,
        available: Bytes(100 * GIB),
        ..HostReading::default()
    }
}

/// A model of 8 GiB that is loaded in 30 s, sleeps in 5 GiB of host memory, and wakes in 2 s. It leaves after a minute.
fn sleepy(host_gib: u64, resident_gib: u64) -> Scenario {
    let mut scenario = scenario(1, &[(8, 30)]);
    scenario.hosts = vec![(NodeId(0), host(host_gib))];
    let model = &mut scenario.models[0];
    model.keep_hot = Span::from_secs(60);
    model.parking = Some(Parking {
        host: Bytes(5 * GIB),
        resident_per_device: Bytes(resident_gib * GIB),
        wakes_in: Span::from_secs(2),
    });
    scenario
}

/// Requests at second 0 and at second 600.
const TWICE: [(u64, u32); 2] = [(0, 0), (600, 0)];

fn evictions(report: &Report, reason: &str) -> u64 {
    report.all.evictions.get(reason).copied().unwrap_or(0)
}

#[test]
fn an_expired_model_falls_asleep_and_wakes_instead_of_loading() {
    let report = ours(&sleepy(10, 1), &asks(&TWICE));
    assert_eq!((report.all.loads, report.all.wakes), (2, 1));
    // It waits for a load of 30 s, then for waking.
    assert_eq!(report.all.waits.mean, Span::from_secs(16));
    assert_eq!(report.all.reload, Span::from_secs(32));
    assert_eq!(evictions(&report, "sleep"), 1);
    assert_eq!(evictions(&report, "keep_hot"), 0);
    // It falls asleep a minute after the end of its request at second 31.
    let slept = 600 - 91;
    assert_eq!(report.host_gib_seconds, 5 * slept);
    assert_eq!(report.device_seconds_asleep, slept);
    assert_eq!(report.device_seconds_empty, 0, "its context is still there");
    // 8 GiB until it sleeps and while it wakes, and 1 GiB in between.
    assert_eq!(report.all.held_gib_seconds, 8 * (91 + 2) + slept);
    assert_eq!(report.device_seconds_held, 91 + 2);
}

#[test]
fn a_sleeper_that_keeps_no_device_memory_leaves_the_device_empty() {
    let report = ours(&sleepy(10, 0), &asks(&TWICE));
    assert_eq!(report.device_seconds_empty, 600 - 91);
    assert_eq!(report.device_seconds_asleep, 0);
}

#[test]
fn without_host_memory_the_model_is_stopped_and_loaded_again() {
    let small = ours(&sleepy(4, 1), &asks(&TWICE));
    let mut without = sleepy(10, 1);
    without.hosts.clear();
    for report in [small, ours(&without, &asks(&TWICE))] {
        assert_eq!((report.all.loads, report.all.wakes), (2, 0));
        assert_eq!(report.all.waits.mean, Span::from_secs(30));
        assert_eq!(evictions(&report, "keep_hot"), 1);
        assert_eq!(report.host_gib_seconds, 0);
    }
}

#[test]
fn a_sleeper_that_wakes_or_is_evicted_releases_its_host_memory() {
    // Room for one sleeper, twenty times in succession.
    let mut scenario = sleepy(5, 1);
    scenario.hosts[0].1.available = Bytes(6 * GIB);
    let often: Vec<(u64, u32)> = (0..20).map(|nth| (nth * 600, 0)).collect();
    let report = ours(&scenario, &asks(&often));
    assert_eq!((report.all.wakes, evictions(&report, "sleep")), (19, 19));
    scenario.limits.keep_asleep = Span::from_secs(100);
    let report = ours(&scenario, &asks(&often));
    assert_eq!((report.all.wakes, evictions(&report, "sleep")), (0, 19));
}

#[test]
fn the_time_to_fall_asleep_delays_the_freed_memory() {
    // Model 1 needs the memory of model 0 immediately.
    let wait = |park: u64| {
        let mut scenario = scenario(1, &[(8, 30), (8, 10)]);
        let sleeper = sleepy(10, 0);
        scenario.hosts = sleeper.hosts;
        scenario.models[0].parking = sleeper.models[0].parking.clone();
        let park = Span::from_secs(park);
        scenario.park_times.insert(pool::ModelId(0), park);
        let report = ours(&scenario, &asks(&[(0, 0), (1_000, 1)]));
        assert_eq!(evictions(&report, "sleep"), 1);
        report.by_model[&pool::ModelId(1)].waits.longest
    };
    assert_eq!(wait(1), Span::from_secs(11));
    assert_eq!(wait(6), Span::from_secs(16));
}

#[test]
fn a_sleeper_without_demand_is_evicted_after_the_configured_time() {
    let mut scenario = sleepy(10, 1);
    scenario.limits.keep_asleep = Span::from_secs(100);
    let report = ours(&scenario, &asks(&TWICE));
    assert_eq!((report.all.loads, report.all.wakes), (2, 0));
    let slept = report.device_seconds_asleep;
    assert!((100..=110).contains(&slept), "{slept}");
}

/// Model 0 is always hot, and model 1 is used once. The evening comes at second 1,000.
fn evening() -> Scenario {
    let mut scenario = scenario(1, &[(4, 10), (4, 10)]);
    scenario.models[0].priority = Priority(2);
    scenario.stop_takes = Span::from_secs(1);
    scenario.evenings = vec![Time(1_000_000)];
    scenario.mornings = vec![Time(5_000_000)];
    scenario
}

/// The last request comes after the morning.
const DAY: [(u64, u32); 2] = [(100, 1), (9_000, 1)];

#[test]
fn the_evening_empties_the_pool_until_the_morning_reloads_the_always_hot_models() {
    let report = ours(&evening(), &asks(&DAY));
    assert_eq!(evictions(&report, "cleanup"), 2);
    assert_eq!(report.all.loads, 4);
    assert_eq!(report.by_model[&pool::ModelId(0)].loads, 2);
    // From the end of the stop to the morning.
    assert_eq!(report.device_seconds_empty, 5_000 - 1_001);
}

#[test]
fn without_a_reopening_time_the_pool_reopens_as_soon_as_it_is_empty() {
    let mut scenario = evening();
    scenario.mornings.clear();
    let report = ours(&scenario, &asks(&DAY));
    assert_eq!(evictions(&report, "cleanup"), 2);
    assert_eq!(report.by_model[&pool::ModelId(0)].loads, 2);
    assert!(report.device_seconds_empty <= 1, "{report:?}");
}

#[test]
fn a_replay_starting_at_night_loads_always_hot_models_only_in_the_morning() {
    let mut scenario = evening();
    scenario.evenings.clear();
    scenario.starts_at_night = true;
    let report = ours(&scenario, &asks(&[(100, 1), (9_000, 1)]));
    let hot = &report.by_model[&pool::ModelId(0)];
    assert_eq!(hot.loads, 1);
    // From the morning to the last request.
    assert_eq!(hot.held_gib_seconds, 4 * (9_000 - 5_000));
}

#[test]
fn a_cleanup_that_spares_busy_models_keeps_them_loaded() {
    let mut scenario = evening();
    scenario.cleanups_spare_busy = true;
    let mut arrivals = asks(&[(990, 1), (9_000, 1)]);
    arrivals[0].service = Span::from_secs(100);
    let spared = ours(&scenario, &arrivals);
    assert_eq!(evictions(&spared, "cleanup"), 1);
    scenario.cleanups_spare_busy = false;
    assert_eq!(evictions(&ours(&scenario, &arrivals), "cleanup"), 2);
}

#[test]
fn baselines_observe_the_evening_and_peers_do_not() {
    let scenario = evening();
    let loads = |report: &Report| report.by_model[&pool::ModelId(1)].loads;
    assert_eq!(loads(&baseline(&scenario, Lru, &asks(&DAY))), 2);
    assert_eq!(loads(&baseline(&scenario, Ncsa, &asks(&DAY))), 2);
    assert_eq!(loads(&baseline(&scenario, LlamaCppRouter, &asks(&DAY))), 1);
    let swap = baseline(&scenario, LlamaSwap, &asks(&DAY));
    assert_eq!((loads(&swap), evictions(&swap, "cleanup")), (1, 0));
}

#[test]
fn an_unserved_request_counts_with_its_full_timeout() {
    let mut scenario = scenario(1, &[(4, 400)]);
    scenario.models[0].queue_timeout = Span::from_secs(300);
    let report = ours(&scenario, &asks(&[(0, 0), (500, 0)]));
    let waits = &report.waits_of_all;
    assert_eq!((report.all.served, report.all.timed_out), (1, 1));
    assert_eq!(
        (waits.mean, waits.longest),
        (Span::from_secs(150), Span::from_secs(300))
    );
}
