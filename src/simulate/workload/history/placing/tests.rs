//! Tests of single minutes whose seconds the store knows.

use rand::SeedableRng;

use super::*;
use pool::Time;

/// The second minute of the workload.
const AT: u64 = MINUTE_MS;
const ALL_OF_IT: [Part; 1] = [(AT, AT + MINUTE_MS)];

fn seconds(of_minute: &[u64]) -> Seconds {
    let marks = of_minute
        .iter()
        .map(|nth| Seconds::from_time(Time(nth * SECOND_MS)));
    marks.fold(Seconds::default(), |all, one| all | one)
}

fn minute(requests: u64, (waited, waited_ms): (u64, u64), seconds: Seconds) -> Minute {
    Minute {
        at: AT,
        model: 0,
        requests,
        busy_ms: 0,
        waited,
        waited_ms,
        seconds: Some(seconds),
    }
}

/// Milliseconds of the minute at which the load ended and the model had left before; the load took 300 ms.
fn load(at: u64, left: u64) -> Load {
    Load {
        at: AT + at,
        took: 300,
        left: AT + left,
    }
}

/// The times of the requests in milliseconds of the minute, for many seeds. Requests before the minute are negative.
fn drawn_often(minute: &Minute, parts: &[Part], loads: &[Load]) -> Vec<Vec<i64>> {
    let came = |seed| {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let all = moments(minute, parts, loads, &mut random);
        all.into_iter().map(|at| at as i64 - AT as i64).collect()
    };
    (0..50).map(came).collect()
}

#[test]
fn exactly_the_known_seconds_have_requests() {
    let known = [3, 17, 59];
    for came in drawn_often(&minute(10, (0, 0), seconds(&known)), &ALL_OF_IT, &[]) {
        assert_eq!(came.len(), 10);
        let second = |at: &i64| at.div_euclid(1_000) as u64;
        let mut found: Vec<u64> = came.iter().map(second).collect();
        found.sort_unstable();
        found.dedup();
        assert_eq!(found, known);
    }
}

#[test]
fn a_request_that_did_not_wait_arrives_while_the_model_is_loaded() {
    let there = [(AT + 3_400, AT + 5_200)];
    for came in drawn_often(&minute(6, (0, 0), seconds(&[3, 5])), &there, &[]) {
        let is_there = |at: &i64| (3_400..4_000).contains(at) || (5_000..5_200).contains(at);
        assert!(came.iter().all(is_there), "{came:?}");
    }
    // A recorded second gets a request even if the model was not known to be loaded then.
    for came in drawn_often(&minute(6, (0, 0), seconds(&[3, 9])), &there, &[]) {
        let late = came.iter().filter(|at| (9_000..10_000).contains(*at));
        assert_eq!(late.count(), 1, "{came:?}");
    }
}

#[test]
fn a_request_that_waited_arrives_in_a_known_second_before_its_load() {
    // Their mean wait was three seconds; in reality one waited 300 ms and the other about five seconds.
    let loads = [load(10_300, 6_000), load(40_000, 30_000)];
    let both = minute(2, (2, 6_000), seconds(&[10, 35]));
    for came in drawn_often(&both, &[], &loads) {
        assert_eq!(came[0], 10_000);
        assert!((35_000..36_000).contains(&came[1]), "{came:?}");
    }
    // Within a known second, the mean wait determines the time.
    let one = minute(1, (1, 700), seconds(&[19]));
    for came in drawn_often(&one, &[], &[load(20_500, 0)]) {
        assert_eq!(came, [19_800]);
    }
}

#[test]
fn every_known_second_has_one_of_the_requests_that_waited_for_a_load() {
    let waited = minute(3, (3, 12_000), seconds(&[14, 18]));
    for came in drawn_often(&waited, &[], &[load(20_000, 0)]) {
        assert_eq!(came[0], 14_000);
        let in_second = |second: i64| came.iter().any(|at| at.div_euclid(1_000) == second);
        assert!(in_second(14) && in_second(18), "{came:?}");
        let is_known = |at: &i64| [14, 18].contains(&at.div_euclid(1_000));
        assert!(came.iter().all(is_known), "{came:?}");
    }
}

#[test]
fn a_request_precedes_its_minute_only_if_the_store_recorded_it() {
    let loads = [load(5_000, 0)];
    let earlier = seconds(&[30]) | Seconds::EARLIER;
    for came in drawn_often(&minute(2, (1, 10_000), earlier), &ALL_OF_IT, &loads) {
        assert_eq!(came[0], -5_000);
        assert!((30_000..31_000).contains(&came[1]), "{came:?}");
    }
    // The mean wait contradicts this, and no second fits.
    for came in drawn_often(&minute(2, (1, 2_000), earlier), &ALL_OF_IT, &loads) {
        assert_eq!(came[0], -1);
    }
    for came in drawn_often(&minute(1, (1, 10_000), seconds(&[2])), &ALL_OF_IT, &loads) {
        assert!((2_000..3_000).contains(&came[0]), "{came:?}");
    }
}

#[test]
fn more_seconds_than_requests_add_no_requests() {
    // A request at the end of a minute may be counted in the next minute.
    for came in drawn_often(&minute(1, (0, 0), seconds(&[1, 2, 3])), &ALL_OF_IT, &[]) {
        assert_eq!(came.len(), 1);
        assert!((1_000..4_000).contains(&came[0]), "{came:?}");
    }
}
