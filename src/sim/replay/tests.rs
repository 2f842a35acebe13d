//! Replays of scenes small enough to calculate by hand, and of seeded ones whose guarantees can be counted.
//! One file because all replays share the scenes and the clients at its beginning.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;

use super::*;
use crate::Random;
use pool::{Bytes, DeviceId, DeviceReading, KeyId, ModelId, ModelSpec, Priority, Span, Time};

const GIB: u64 = Bytes::GIB;

fn spec(nth: usize, gibibytes: u64, reload_s: u64) -> ModelSpec {
    ModelSpec {
        name: format!("model-{nth}"),
        bytes_per_device: Bytes(gibibytes * GIB),
        reload: Span::from_secs(reload_s),
        keep_hot: Span::from_secs(86_400),
        ..ModelSpec::default()
    }
}

/// Devices of 10 GiB, and models of (GiB, seconds of load).
pub(super) fn scenario(devices: u32, models: &[(u64, u64)]) -> Scenario {
    let device = |nth: u32| {
        let reading = DeviceReading {
            name: format!("gpu{nth}"),
            total: Bytes(10 * GIB),
            ..DeviceReading::default()
        };
        (DeviceId(nth), reading)
    };
    let model = |(nth, &(gibibytes, reload)): (usize, &(u64, u64))| spec(nth, gibibytes, reload);
    Scenario {
        devices: (0..devices).map(device).collect(),
        models: models.iter().enumerate().map(model).collect(),
        stop_takes: Span::ZERO,
        ..Scenario::default()
    }
}

/// Requests of one second as (second, model).
pub(super) fn asks(list: &[(u64, u32)]) -> Vec<Arrival> {
    let ask = |&(at, model): &(u64, u32)| Arrival {
        at: Time(at * 1000),
        model: ModelId(model),
        key: KeyId(0),
        service: Span::from_secs(1),
    };
    list.iter().map(ask).collect()
}

fn checked() -> Options {
    Options {
        check_every: 1,
        ..Options::default()
    }
}

pub(super) fn ours(scenario: &Scenario, arrivals: &[Arrival]) -> Report {
    let report = run(
        scenario,
        arrivals.iter().copied(),
        &checked(),
        &mut |_, _| {},
    );
    assert_eq!(report.broken, Vec::<String>::new());
    report
}

pub(super) fn baseline(scenario: &Scenario, rule: impl Rule, arrivals: &[Arrival]) -> Report {
    let arrivals = arrivals.iter().copied();
    run_baseline(
        scenario,
        rule,
        arrivals,
        &Options::default(),
        &mut |_, _| {},
    )
}

fn loads(report: &Report, model: u32) -> u64 {
    report
        .by_model
        .get(&ModelId(model))
        .map_or(0, |tally| tally.loads)
}

/// Models 0, 1 and 0 again are used, then 2 needs the memory of either, and then both are requested: 1 is the least recently used,
/// 0 was loaded first.
const TWO_AND_A_THIRD: [(u64, u32); 4] = [(0, 0), (100, 1), (200, 0), (300, 2)];

#[test]
fn lru_evicts_the_least_recently_used_and_fifo_the_first_loaded() {
    let scenario = scenario(1, &[(5, 10), (5, 10), (5, 10)]);
    let mut list = TWO_AND_A_THIRD.to_vec();
    list.push((400, 0));
    let arrivals = asks(&list);
    let lru = baseline(&scenario, Lru, &arrivals);
    let fifo = baseline(&scenario, Fifo, &arrivals);
    assert_eq!((loads(&lru, 0), lru.all.loads), (1, 3));
    assert_eq!((loads(&fifo, 0), fifo.all.loads), (2, 4));
    // Three first requests wait for their loads of 10 s; the two later requests of model 0 do not wait.
    assert_eq!(lru.all.waits.mean, Span::from_secs(6));
    assert_eq!(lru.all.reload, Span::from_secs(30));
}

#[test]
fn ollama_evicts_by_name_and_not_by_use() {
    let mut scenario = scenario(1, &[(5, 10), (5, 10), (5, 10)]);
    scenario.models[1].name = "zebra".to_owned();
    let mut arrivals = TWO_AND_A_THIRD.to_vec();
    arrivals.push((400, 0));
    let close = |(at, model): &(u64, u32)| (at / 2, *model);
    let arrivals: Vec<(u64, u32)> = arrivals.iter().map(close).collect();
    let report = baseline(&scenario, Ollama, &asks(&arrivals));
    assert_eq!(loads(&report, 0), 2, "model-0 comes before zebra");
}

#[test]
fn llama_swap_also_stops_models_that_would_have_fit() {
    let scenario = scenario(1, &[(2, 10), (2, 10)]);
    let arrivals = asks(&[(0, 0), (100, 1), (200, 0), (300, 1)]);
    assert_eq!(baseline(&scenario, LlamaSwap, &arrivals).all.loads, 4);
    assert_eq!(ours(&scenario, &arrivals).all.loads, 2);
}

#[test]
fn modelmesh_refuses_a_load_while_every_model_is_younger_than_ten_minutes() {
    let scenario = scenario(1, &[(6, 10), (6, 10)]);
    let report = baseline(&scenario, ModelMesh, &asks(&[(0, 0), (100, 1), (900, 1)]));
    assert_eq!(report.all.refused.get("churn"), Some(&1));
    assert_eq!(loads(&report, 1), 1, "after ten minutes it may");
}

#[test]
fn the_ncsa_baseline_evicts_one_model_of_a_device_and_cuts_its_requests() {
    let scenario = scenario(1, &[(2, 10), (2, 10)]);
    let mut arrivals = asks(&[(0, 0), (15, 1)]);
    arrivals[0].service = Span::from_secs(60);
    let report = baseline(&scenario, Ncsa, &arrivals);
    assert_eq!((report.cut, report.all.loads), (1, 2));
    assert_eq!(ours(&scenario, &arrivals).cut, 0);
}

#[test]
fn offline_keeps_the_model_needed_next_even_if_it_was_used_least_recently() {
    let scenario = scenario(1, &[(5, 10), (5, 10), (5, 10)]);
    let mut list = TWO_AND_A_THIRD.to_vec();
    list.extend([(400, 1), (10_000, 0)]);
    let arrivals = asks(&list);
    let uses = || arrivals.iter().map(|arrival| (arrival.at, arrival.model));
    let report = baseline(&scenario, Offline::new(3, uses()), &arrivals);
    assert_eq!(loads(&report, 1), 1);
    assert_eq!(
        baseline(&scenario, Lru, &arrivals).by_model[&ModelId(1)].loads,
        2
    );
}

#[test]
fn a_baseline_evicts_nothing_for_a_load_that_is_not_first_in_line() {
    // Four models queue while another loads for a long time; models that fill the device stay.
    let scenario = scenario(1, &[(5, 10), (5, 10), (2, 100), (2, 10), (2, 10), (2, 10)]);
    let arrivals = asks(&[(0, 0), (20, 1), (50, 2), (51, 3), (52, 4), (53, 5), (60, 1)]);
    let report = baseline(&scenario, Lru, &arrivals);
    assert_eq!(report.all.served, 7);
    assert_eq!(loads(&report, 1), 1, "its place is not needed yet");
}

/// Bursts of a few models at a time, of three priorities, on two devices.
fn seeded(seed: u64, priorities: u64) -> (Scenario, Vec<Arrival>) {
    let mut random = Random::new(seed);
    let models: Vec<(u64, u64)> = (0..12)
        .map(|_| (random.between(1, 8), random.between(2, 30)))
        .collect();
    let mut scenario = scenario(2, &models);
    for spec in &mut scenario.models {
        spec.priority = Priority(random.below(priorities) as u32);
        spec.seats_per_replica = 2;
    }
    let mut at = 0;
    let arrivals = (0..600)
        .map(|_| {
            at += random.below(9) * random.below(3_000);
            Arrival {
                at: Time(at),
                model: ModelId((random.below(12) * random.below(12) / 12) as u32),
                key: KeyId(random.below(3)),
                service: Span(random.between(100, 20_000)),
            }
        })
        .collect();
    (scenario, arrivals)
}

#[test]
fn the_core_never_evicts_a_higher_priority_for_a_lower_one_and_breaks_no_rule() {
    for seed in 0..12 {
        let (scenario, arrivals) = seeded(seed, 3);
        let report = ours(&scenario, &arrivals);
        assert_eq!(report.inversions, 0, "seed {seed}");
        let all = &report.all;
        let refused: u64 = all.refused.values().sum();
        assert_eq!(all.requests, all.served + all.timed_out + refused);
    }
}

#[test]
fn the_same_requests_give_the_same_report_for_every_policy() {
    let (scenario, arrivals) = seeded(7, 2);
    assert_eq!(ours(&scenario, &arrivals), ours(&scenario, &arrivals));
    let again = || baseline(&scenario, Ncsa, &arrivals);
    assert_eq!(again(), again());
    let bounds = || bound(&scenario, arrivals.iter().copied());
    assert_eq!(bounds(), bounds());
}

#[test]
fn the_bound_for_models_that_fit_is_their_first_loads() {
    let scenario = scenario(1, &[(5, 10), (5, 20)]);
    let found = bound(&scenario, asks(&[(0, 0), (50, 1), (100, 0), (150, 1)]));
    assert_eq!(found.reload, Span::from_secs(30));
    assert_eq!(found.without_keeping, Span::from_secs(60));
}

#[test]
fn the_bound_for_two_exclusive_models_is_half_of_the_reloads_that_keeping_could_save() {
    // Of two overlapping intervals only one can be kept at any time: about half of 2 × 199 loads.
    let scenario = scenario(1, &[(10, 10), (10, 10)]);
    let list: Vec<(u64, u32)> = (0..400).map(|nth| (nth * 100, (nth % 2) as u32)).collect();
    let found = bound(&scenario, asks(&list));
    let seconds = found.reload.0 / 1000;
    assert!((1_900..=2_010).contains(&seconds), "{seconds}");
}

#[test]
fn a_clairvoyant_policy_stays_above_the_bound() {
    // No request waits long here, so the bound's optimism does not matter.
    for seed in 0..6 {
        let (scenario, mut arrivals) = seeded(seed, 1);
        for arrival in &mut arrivals {
            arrival.at = Time(arrival.at.0 * 20);
        }
        let found = bound(&scenario, arrivals.iter().copied());
        let uses = arrivals.iter().map(|arrival| (arrival.at, arrival.model));
        let offline = baseline(&scenario, Offline::new(12, uses), &arrivals);
        let reload = offline.all.reload;
        assert!(found.reload <= reload, "{} {reload}", found.reload);
        assert!(found.reload.0 * 3 > reload.0, "{} {reload}", found.reload);
    }
}

fn clients(model: u32, count: u32, think_ms: u64) -> Clients {
    Clients {
        key: KeyId(u64::from(model)),
        count,
        from: Time(0),
        requests: vec![(ModelId(model), Span::from_secs(1))],
        think: Span(think_ms),
        late: (0, Span::ZERO),
    }
}

/// Two clients, each requesting its own model as soon as it has its response, on a device with room for a single model.
fn alternating(load: Span, service: Span, late: (u64, Span), until: Time) -> Report {
    let mut scenario = scenario(1, &[(8, 4), (8, 4)]);
    for spec in &mut scenario.models {
        spec.reload = load;
        spec.queue_timeout = Span::from_secs(3_600);
    }
    let both = [0, 1].map(|model| Clients {
        requests: vec![(ModelId(model), service)],
        late,
        ..clients(model, 1, 0)
    });
    let report = run_clients(&scenario, &both, until, &checked(), &mut |_| {});
    assert_eq!(report.broken, Vec::<String>::new());
    report
}

#[test]
fn two_exclusive_models_serve_two_thirds_of_the_time_and_share_it_fairly() {
    // A turn is three swaps or sixteen requests, and nine swaps between requests. A turn of three swaps leaves three quarters for serving; a drain, and the first
    // loads before the pool knows how soon a client returns, take a little of that. A turn ends once a request has waited for five
    // minutes: with loads of three minutes that leaves two minutes for serving, two fifths of the time. A client on a busy machine
    // is late now and then, which does not end a turn. Each case: milliseconds of a load and of a request, how late every seventh
    // request is, seconds, and the minimum serving time in thousandths.
    let cases = [
        (30, 10, 0, 120, 667),
        (1_500, 50, 0, 600, 667),
        (1_500, 50, 20, 600, 667),
        (4_000, 200, 0, 3_600, 667),
        (4_000, 200, 60, 3_600, 667),
        (60_000, 2_000, 0, 43_200, 667),
        (180_000, 5_000, 0, 86_400, 390),
    ];
    for (load, service, late, seconds, least) in cases {
        let late = (7, Span(late));
        let report = alternating(Span(load), Span(service), late, Time(seconds * 1000));
        // A client needs a millisecond between a response and its next request.
        let serving = |model: u32| report.by_model[&ModelId(model)].served * (service + 1);
        let (a, b) = (serving(0), serving(1));
        let share = (a + b) / seconds;
        assert!(share >= least, "{load} {late:?}: {share} thousandths");
        assert!(a * 2 <= b * 3 && b * 2 <= a * 3, "{load}: {a} and {b} ms");
        // The other's load, its turn and its drain, and its own load.
        let longest = report.all.waits.longest;
        let most = Span(6 * (load + service) + 16 * service);
        assert!(longest <= most, "{load}: {longest}, and {most} at most");
    }
}

#[test]
fn equal_models_with_four_clients_each_share_within_a_factor_of_one_and_a_half() {
    let scenario = scenario(1, &[(8, 4), (8, 4)]);
    let four = [clients(0, 4, 50), clients(1, 4, 50)];
    let report = run_clients(&scenario, &four, Time(3_600_000), &checked(), &mut |_| {});
    let (a, b) = (
        report.by_model[&ModelId(0)].served,
        report.by_model[&ModelId(1)].served,
    );
    assert!(a * 2 <= b * 3 && b * 2 <= a * 3, "{a} and {b}");
}

/// Model 0 is continuously busy from 0 s. A request for model 1 arrives 3 s after it is ready.
fn asks_into_a_busy_model(priority: u32) -> Span {
    let mut scenario = scenario(1, &[(8, 4), (8, 4)]);
    scenario.models[1].priority = Priority(priority);
    let mut list: Vec<(u64, u32)> = (0..300).map(|at| (at, 0)).collect();
    list.insert(8, (7, 1));
    let mut arrivals = asks(&list);
    for arrival in &mut arrivals {
        arrival.service = Span::from_secs(5);
    }
    let report = ours(&scenario, &arrivals);
    assert_eq!(report.cut, 0);
    report.by_model[&ModelId(1)].waits.longest
}

#[test]
fn a_model_of_equal_priority_waits_only_for_the_turn_and_the_swap() {
    // A turn of sixteen requests of 5 s, but of at most 60 s; the requests inside 5 s, the load 4 s.
    let waited = asks_into_a_busy_model(0);
    assert!(waited >= Span::from_secs(9), "{waited}");
    assert!(waited <= Span::from_secs(60 + 5 + 4 + 1), "{waited}");
}

#[test]
fn a_higher_priority_waits_only_for_running_requests_and_the_load() {
    let waited = asks_into_a_busy_model(1);
    assert!(waited <= Span::from_secs(5 + 4 + 1), "{waited}");
}

/// P3: the clients follow each other without a pause: each model is idle only between two requests.
#[test]
fn p3_a_request_waits_for_ten_swaps_and_a_request_of_a_model_that_is_idle_between_requests() {
    let (load, service) = (Span(300), Span(400));
    let hour = Time(3_600_000);
    let report = alternating(load, service, (0, Span::ZERO), hour);
    let longest = report.all.waits.longest;
    assert!(longest <= Span(10 * load.0 + 2 * service.0), "{longest}");
    let served = report.all.served * (service.0 + 1);
    assert!(served * 10 >= hour.0 * 9, "{served} ms of serving");
}

/// P3: the time for which requests wait counts across abandoned requests, or clients with less patience than a turn would never be
/// served.
#[test]
fn p3_clients_that_give_up_before_a_turn_ends_are_served_in_the_next() {
    let mut scenario = scenario(1, &[(8, 20), (8, 20)]);
    scenario.models[1].queue_timeout = Span::from_secs(30);
    let always = [clients(0, 3, 0), clients(1, 1, 1_000)];
    let report = run_clients(&scenario, &always, Time(3_600_000), &checked(), &mut |_| {});
    assert_eq!(report.broken, Vec::<String>::new());
    let impatient = &report.by_model[&ModelId(1)];
    assert!(impatient.timed_out > 0, "no client gave up: {impatient:?}");
    // At least once in a turn of three swaps, two loads and a request.
    let least = 3_600 / (3 * 20 + 2 * 20 + 2);
    assert!(impatient.served >= least, "{} served", impatient.served);
}

#[test]
fn p3_a_long_load_is_passed_over_for_no_more_than_a_round() {
    let mut scenario = scenario(1, &[(8, 60), (8, 2), (8, 2), (8, 2)]);
    for spec in &mut scenario.models {
        spec.queue_timeout = Span::from_secs(3_600);
    }
    // The long one first, for which one request waits, then the short ones in turn, each as soon as it has left.
    let short = (0..300).map(|nth| (nth * 3, 1 + (nth % 3) as u32));
    let mut list: Vec<(u64, u32)> = short.chain([(0, 0), (61, 0)]).collect();
    list.sort_unstable();
    let report = ours(&scenario, &asks(&list));
    let long = &report.by_model[&ModelId(0)];
    assert_eq!(long.served, 2);
    let (round, load, longest) = (
        Span::from_secs(180),
        Span::from_secs(60),
        long.waits.longest,
    );
    assert!(longest > load + Span(5_000), "nothing passed it: {longest}");
    // A swap and a request may be in progress when it is due.
    assert!(longest <= round + load + Span(10_000), "{longest}");
}

#[test]
fn forecasts_equal_the_waits_where_nothing_is_unknown() {
    // Twelve simultaneous requests for six models, of which two fit. Requests and stops take their expected times.
    let scenario = Scenario {
        stop_takes: Span::from_secs(2),
        ..scenario(1, &[(5, 4), (5, 6), (5, 8), (5, 3), (5, 12), (5, 30)])
    };
    let arrivals = (0..12).map(|nth| Arrival {
        at: Time(1_000),
        model: ModelId(nth % 6),
        key: KeyId(0),
        service: Span::from_secs(2),
    });
    // The first request finds an empty device, and the last one knows all others.
    let options = Options {
        forecast_every: 11,
        ..checked()
    };
    let report = run(&scenario, arrivals, &options, &mut |_, _| {});
    assert_eq!(report.broken, Vec::<String>::new());
    let found = report.forecasts.expect("they were requested");
    assert_eq!((found.waits, found.precise), (2, 2), "{found:?}");
    assert_eq!((found.ratio_p10, found.ratio_p90), (1_000, 1_000));
}
