//! Tests of histories of one or two models, replayed.

use super::*;
use store::ModelPast;

fn stay(began: Time, ready: Option<Time>, left: Option<Time>) -> PastStay {
    PastStay {
        began,
        ready,
        left,
        is_adopted: false,
    }
}

/// A model that started loading at second 40 and was ready at second 50; its mean load takes a second. `rows` are the minutes in
/// which requests waited, one request for ten seconds each.
fn loaded_once(stay: PastStay, rows: &[u64]) -> History {
    let row = |minute: &u64| Minute {
        at: minute * MINUTE_MS,
        model: 0,
        requests: 1,
        busy_ms: 100,
        waited: 1,
        waited_ms: 10_000,
        seconds: None,
    };
    let mut past = PoolHistory::default();
    past.models.insert(
        "a".to_owned(),
        ModelPast {
            loads: 1,
            loading: Span(1_000),
            stays: vec![stay],
            ..ModelPast::default()
        },
    );
    let minutes = rows.iter().map(row).collect();
    History::new(vec!["a".to_owned()], minutes, 0, past)
}

fn times(history: &History) -> Vec<u64> {
    history.requests(3).map(|(at, ..)| at).collect()
}

/// Model `a` was loaded at second 10 and left at second 20, and again from 40 to 50.
fn history() -> History {
    with_waits(0, 0)
}

fn with_waits(waited: u64, waited_ms: u64) -> History {
    let minute = |model| Minute {
        at: 0,
        model,
        requests: 40,
        busy_ms: 4_000,
        waited: if model == 0 { waited } else { 0 },
        waited_ms: if model == 0 { waited_ms } else { 0 },
        seconds: None,
    };
    let at = |second: u64| Time(100 * MINUTE_MS + second * 1_000);
    let mut past = PoolHistory::default();
    past.models.insert(
        "a".to_owned(),
        ModelPast {
            loads: 2,
            loading: Span(600),
            stays: vec![
                stay(at(10), None, Some(at(20))),
                stay(at(40), None, Some(at(50))),
            ],
            ..ModelPast::default()
        },
    );
    let names = vec!["a".to_owned(), "b".to_owned()];
    let minutes = vec![minute(0), minute(1)];
    History::new(names, minutes, 100 * MINUTE_MS, past)
}

#[test]
fn requests_arrive_while_their_model_is_loaded_or_at_its_load() {
    let history = history();
    let times = |model: u32| -> Vec<u64> {
        let all = history.requests(3).filter(|(_, of, _)| *of == model);
        all.map(|(at, ..)| at).collect()
    };
    let a = times(0);
    assert_eq!(a.len(), 40);
    assert!(a.contains(&10_000) && a.contains(&40_000), "{a:?}");
    let there = |at: &u64| (10_000..20_000).contains(at) || (40_000..50_000).contains(at);
    assert!(a.iter().all(there), "{a:?}");
    // Only the minute is known of the other model's requests.
    let b = times(1);
    assert!(
        b.iter().any(|at| !there(at)) && b.iter().all(|at| *at < MINUTE_MS),
        "{b:?}"
    );
}

#[test]
fn waiting_requests_arrive_the_recorded_wait_before_the_model_is_ready() {
    // Its loads took 300 ms. Two requests waited for each, six seconds on average: the first one eight.
    let history = with_waits(4, 24_000);
    let all: Vec<Request> = history.requests(3).collect();
    assert!(all.is_sorted(), "{all:?}");
    let a: Vec<u64> = all
        .iter()
        .filter(|(_, model, _)| *model == 0)
        .map(|(at, ..)| *at)
        .collect();
    assert_eq!(a.len(), 40);
    assert!(a.contains(&2_300) && a.contains(&32_300), "{a:?}");
    let ready = |at: &&u64| (10_300..20_000).contains(*at) || (40_300..50_000).contains(*at);
    let waited = |at: &&u64| (2_300..=10_300).contains(*at) || (32_300..=40_300).contains(*at);
    assert!(a.iter().all(|at| ready(&at) || waited(&at)), "{a:?}");
    assert!(a.iter().filter(waited).count() >= 4, "{a:?}");
    assert!(a.iter().filter(ready).count() >= 36, "{a:?}");
}

#[test]
fn a_request_counted_in_the_next_minute_waited_for_a_load_of_the_previous_one() {
    let load = stay(Time(40_000), Some(Time(50_000)), None);
    assert_eq!(times(&loaded_once(load, &[1])), [40_000]);
    // Requests of an earlier minute do not count for another one as well.
    let both = times(&loaded_once(load, &[0, 1]));
    assert_eq!(both[0], 40_000);
    assert!(both[1] >= MINUTE_MS, "{both:?}");
}

#[test]
fn a_replica_is_ready_at_its_recorded_time_and_otherwise_after_a_mean_load() {
    let load = stay(Time(40_000), Some(Time(50_000)), None);
    assert_eq!(times(&loaded_once(load, &[0])), [40_000]);
    let unknown = stay(Time(40_000), None, None);
    assert_eq!(times(&loaded_once(unknown, &[0])), [31_000]);
}

#[test]
fn no_request_waited_for_a_replica_found_ready() {
    let found = PastStay {
        is_adopted: true,
        ..stay(Time(50_000), Some(Time(50_000)), None)
    };
    let came = times(&loaded_once(found, &[0]));
    assert!((50_000..MINUTE_MS).contains(&came[0]), "{came:?}");
}

#[test]
fn the_mean_load_time_is_known_after_one_measurement() {
    assert_eq!(history().past.models["a"].load(), Some(Span(300)));
    assert_eq!(ModelPast::default().load(), None);
}
