//! Replays of batches: scenes small enough to calculate by hand, and eight models of which each is loaded once.

use alloc::vec::Vec;

use super::tests::{asks, ours, scenario};
use super::*;
use pool::{ModelId, Span, Time};

const HOUR: Span = Span::from_secs(3_600);

/// Requests of one second.
fn batch(at: u64, model: u32, lines: u64, window: Span) -> BatchArrival {
    BatchArrival {
        at: Time(at * 1_000),
        model: ModelId(model),
        lines,
        service: Span::from_secs(1),
        window,
    }
}

fn batches(report: &Report) -> &BatchReport {
    report.batches.as_ref().expect("it has batches")
}

fn ends(report: &Report) -> Vec<Option<u64>> {
    let all = batches(report).batches.iter();
    all.map(|batch| batch.ended.map(|at| at.0 / 1_000))
        .collect()
}

#[test]
fn a_batch_takes_its_load_and_its_requests_in_all_seats() {
    let mut scene = scenario(1, &[(10, 20)]);
    scene.models[0].seats_per_replica = 4;
    scene.batches = vec![batch(5, 0, 400, HOUR)];
    let report = ours(&scene, &[]);
    assert_eq!(ends(&report), [Some(125)], "5 s, a load of 20 s, 100 s");
    assert_eq!((batches(&report).loads, batches(&report).forced), (1, 1));
}

#[test]
fn requests_take_seats_from_a_batch_and_never_wait_for_it() {
    let mut scene = scenario(1, &[(10, 20)]);
    scene.models[0].seats_per_replica = 2;
    scene.batches = vec![batch(0, 0, 200, HOUR)];
    let list: Vec<(u64, u32)> = (0..40).map(|nth| (30 + nth, 0)).collect();
    let report = ours(&scene, &asks(&list));
    assert_eq!(report.all.waits.longest, Span::ZERO);
    let end = ends(&report)[0].expect("it ends");
    // 100 s of two seats, and 40 seconds of one seat for others, with the requests that were cut.
    assert!((140..=170).contains(&end), "{end}");
}

#[test]
fn a_batch_that_cannot_end_in_its_window_expires_and_was_warned() {
    let mut scene = scenario(1, &[(10, 20)]);
    scene.models[0].seats_per_replica = 1;
    let long = HOUR.0 / 1_000 * 3;
    scene.batches = vec![batch(0, 0, 100, HOUR), batch(200, 0, long, HOUR)];
    let report = ours(&scene, &[]);
    assert_eq!(ends(&report), [Some(120), None]);
    let second = batches(&report).batches[1];
    assert_eq!(
        second.will_hold(),
        Some(false),
        "its speed is known by then"
    );
    assert!(second.warned.is_some_and(|at| at < second.deadline()));
    let first = batches(&report).batches[0];
    assert_eq!(first.will_hold(), None, "nothing has been measured");
}

#[test]
fn each_of_eight_models_is_loaded_once_for_its_batches() {
    let mut scene = scenario(1, &[(10, 20); 8]);
    scene.batches = (0..8)
        .map(|model| {
            batch(
                u64::from(model),
                model,
                100 * u64::from(model + 1),
                Span(HOUR.0 * 9),
            )
        })
        .collect();
    for times in [BatchTimes::Always, BatchTimes::Never] {
        scene.batch_times = times;
        let report = ours(&scene, &[]);
        assert!(ends(&report).iter().all(Option::is_some), "{report:?}");
        let all = batches(&report);
        assert_eq!((all.loads, all.forced, all.evicted), (8, 8, 0), "{times:?}");
    }
}

#[test]
fn a_replica_that_left_for_a_request_is_a_forced_load_again() {
    let mut scene = scenario(1, &[(10, 20), (10, 20)]);
    scene.models[1].keep_hot = Span::from_secs(60);
    scene.batches = vec![batch(0, 0, 10_000, HOUR)];
    let report = ours(&scene, &asks(&[(100, 1)]));
    let all = batches(&report);
    assert_eq!((all.loads, all.forced, all.evicted), (2, 2, 1));
    // No batch requests delay it: the stop is immediate, and the load takes 20 s.
    assert_eq!(report.all.waits.longest, Span::from_secs(20));
}

#[test]
fn the_night_before_the_first_day_ends_in_the_morning() {
    let mut scene = scenario(1, &[(10, 20), (10, 20)]);
    scene.models[1].keep_hot = HOUR;
    scene.batch_times = BatchTimes::Daily {
        from: Span(HOUR.0 * 21),
        length: Span(HOUR.0 * 10),
    };
    let seven = HOUR.0 / 1_000 * 7;
    scene.batches = vec![batch(seven - 20, 0, 10, Span(HOUR.0 * 3))];
    // The other model is idle at seven, but not yet for the time of P6.
    let report = ours(&scene, &asks(&[(seven - 60, 1)]));
    let end = ends(&report)[0].expect("it ends after keep-hot");
    assert!(end > seven + 3_500, "{end}");
}
