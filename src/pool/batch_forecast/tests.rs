//! Tests of the forecasts of batches, on a pool of one or two devices whose hours are known.

use super::course::MODELS_MAX;
use super::*;
use crate::facts::room_hours::HOUR;
use crate::{
    BatchDemand, DeviceReading, Event, GateReading, HostReading, KeyId, Limits, MissWatch,
    ModelSpec, NodeId, Priority, ReplicaId, Ticket,
};

const MINUTE: Span = Span::from_secs(60);
/// A day after 1970, at midnight.
const START: Time = Time(86_400_000);
const ALWAYS: [BatchHour; 1] = [BatchHour {
    from: Time(0),
    may_evict: true,
}];

fn spec(nth: u32, priority: u32) -> ModelSpec {
    ModelSpec {
        name: format!("model-{nth}"),
        bytes_per_device: Bytes(8),
        priority: Priority(priority),
        reload: Span::from_secs(20),
        seats_per_replica: 4,
        ..ModelSpec::default()
    }
}

/// Devices for one model each.
fn pool(devices: u32, priorities: &[u32]) -> Pool {
    pool_of(devices, Bytes(10), priorities)
}

fn pool_of(devices: u32, total: Bytes, priorities: &[u32]) -> Pool {
    let mut pool = Pool::new(Limits::default(), false, ReplicaId(1));
    let reading = HostReading {
        capacity: Bytes(100),
        available: Bytes(100),
        total: Bytes(100),
        ..HostReading::default()
    };
    let node = NodeId(0);
    let mut events = vec![Event::HostRead { node, reading }];
    for nth in 0..devices {
        let reading = DeviceReading {
            name: format!("gpu{nth}"),
            total,
            ..DeviceReading::default()
        };
        let device = DeviceId(nth);
        events.push(Event::DeviceRead { device, reading });
    }
    for (nth, priority) in (0..).zip(priorities) {
        let (model, spec) = (ModelId(nth), spec(nth, *priority));
        events.push(Event::ModelSet { model, spec });
    }
    pool.step_all(START, events);
    pool
}

/// Lets the pool see a day in which nothing happens.
fn after_a_quiet_day(mut pool: Pool) -> Pool {
    for minute in 1..=24 * 60 {
        pool.step(START + Span(MINUTE.0 * minute), Event::TimerFired);
    }
    pool
}

fn work(batch: u64, model: u32, takes: Span, within: Span, pool: &Pool) -> BatchWork {
    BatchWork {
        batch,
        model: ModelId(model),
        lines: 1_000,
        thousand_takes: Some(takes),
        deadline: pool.now + within,
    }
}

fn ends(pool: &Pool, works: &[BatchWork]) -> BTreeMap<u64, BatchEnd> {
    pool.batch_outlook(pool.now, works, &ALWAYS, false).ends
}

/// The expected time until the end.
fn expected(pool: &Pool, end: BatchEnd) -> Span {
    match end {
        BatchEnd::At { expected, .. } => expected.since(pool.now),
        other => panic!("{other:?}"),
    }
}

const HOURS_2: Span = Span::from_secs(7_200);

#[test]
fn a_batch_on_a_quiet_pool_takes_its_load_and_its_requests() {
    let pool = after_a_quiet_day(pool(1, &[0]));
    let works = [work(7, 0, HOUR, HOURS_2, &pool)];
    let end = ends(&pool, &works)[&7];
    let takes = expected(&pool, end);
    assert!(takes > HOUR && takes < HOUR + MINUTE + MINUTE, "{takes}");
    assert_eq!(end.will_hold(works[0].deadline), Some(true), "{end:?}");
    let soon = pool.now + HOUR;
    assert_eq!(end.will_hold(soon), Some(false), "the load takes time, too");
    assert!(end.is_likely_missed(soon));
}

#[test]
fn a_narrow_miss_is_certain_after_an_eighth_of_the_window_and_a_wide_one_immediately() {
    let window = (Time(0), Time(0) + HOUR);
    let at = |minutes: u64| Time(0) + Span(minutes * MINUTE.0);
    let ends_at = |minutes: u64| BatchEnd::At {
        expected: at(minutes),
        latest: at(2 * minutes),
    };
    let mut watch = MissWatch::default();
    assert!(!watch.is_due(ends_at(61), at(1), window));
    assert!(!watch.is_due(ends_at(61), at(8), window));
    // A forecast that holds starts the count again.
    assert!(!watch.is_due(ends_at(59), at(9), window));
    assert!(!watch.is_due(ends_at(61), at(10), window));
    assert!(!watch.is_due(ends_at(61), at(17), window));
    assert!(watch.is_due(ends_at(61), at(18), window));
    let mut watch = MissWatch::default();
    assert!(watch.is_due(ends_at(600), at(1), window));
    let mut watch = MissWatch::default();
    assert!(!watch.is_due(BatchEnd::Never, at(1), window));
    assert!(watch.is_due(BatchEnd::Never, at(9), window));
    assert!(!watch.is_due(BatchEnd::Unknown, at(59), window));
}

#[test]
fn lists_that_need_the_same_memory_follow_one_another_and_others_run_together() {
    for (devices, late) in [(1, true), (2, false)] {
        let pool = after_a_quiet_day(pool(devices, &[0, 0]));
        let mut works = [
            work(1, 0, HOUR, HOURS_2, &pool),
            work(2, 1, HOUR, HOURS_2, &pool),
        ];
        works[1].lines = 900;
        let ends = ends(&pool, &works);
        assert!(expected(&pool, ends[&1]) < HOURS_2);
        let second = expected(&pool, ends[&2]);
        assert_eq!(second > Span(HOUR.0 * 3 / 2), late, "{second}");
    }
}

#[test]
fn batches_of_one_model_run_in_their_order_without_another_load() {
    let pool = after_a_quiet_day(pool(1, &[0]));
    let works = [
        work(1, 0, HOUR, HOURS_2, &pool),
        work(2, 0, HOUR, HOURS_2, &pool),
    ];
    let ends = ends(&pool, &works);
    let (first, second) = (expected(&pool, ends[&1]), expected(&pool, ends[&2]));
    assert!(second.0.abs_diff(first.0 + HOUR.0) <= 2_000, "{second}");
}

#[test]
fn a_speed_is_unknown_until_a_request_was_measured_and_so_are_lists_behind_it() {
    let mut pool = after_a_quiet_day(pool(1, &[0, 0]));
    let unmeasured = |pool: &Pool| BatchWork {
        thousand_takes: None,
        ..work(1, 0, HOUR, HOURS_2, pool)
    };
    let mut works = [unmeasured(&pool), work(2, 1, HOUR, HOURS_2, &pool)];
    works[1].lines = 10;
    let unknown = ends(&pool, &works);
    let both = [BatchEnd::Unknown, BatchEnd::Unknown];
    assert_eq!([unknown[&1], unknown[&2]], both);
    assert_eq!(unknown[&1].will_hold(Time(u64::MAX)), None);

    // Two interactive requests of 4 s.
    let ticket = Ticket(1);
    let (model, key) = (ModelId(0), KeyId(0));
    let arrival = Event::RequestArrived { ticket, model, key };
    pool.step(pool.now, arrival);
    let replica = *pool.replicas.keys().next().expect("it is loaded");
    pool.step(pool.now, Event::ReplicaReady { replica });
    let now = pool.now + Span(4_000);
    let reading = GateReading {
        replica,
        in_flight: 0,
        entered: 1,
        last_end: Some(now),
        idle_before: None,
    };
    let readings = vec![reading];
    pool.step(now, Event::GatesRead { readings });
    let known = ends(&pool, &works);
    let takes = expected(&pool, known[&1]);
    // 4 s, twice as long in a full replica, by four seats.
    assert!(takes.0.abs_diff(2_000_000) < 60_000, "{takes}");
}

#[test]
fn a_device_that_others_need_at_the_same_hour_leaves_less_time() {
    let pool = after_a_busy_morning(pool(1, &[0, 1]));
    // It is midnight: the device is in use until noon.
    let works = [work(1, 0, HOUR, HOURS_2, &pool)];
    let takes = expected(&pool, ends(&pool, &works)[&1]);
    assert!(takes > Span(12 * HOUR.0), "{takes}");
}

/// A request for model 1 runs on the first device until noon.
fn after_a_busy_morning(mut pool: Pool) -> Pool {
    let (model, key) = (ModelId(1), KeyId(0));
    let ticket = Ticket(1);
    pool.step(pool.now, Event::RequestArrived { ticket, model, key });
    let replica = *pool.replicas.keys().next().expect("it is loaded");
    pool.step(pool.now, Event::ReplicaReady { replica });
    // Its request runs for twelve hours.
    for minute in 1..=12 * 60 {
        pool.step(START + Span(MINUTE.0 * minute), Event::TimerFired);
    }
    let reading = GateReading {
        replica,
        in_flight: 0,
        entered: 1,
        last_end: Some(pool.now),
        idle_before: None,
    };
    let readings = vec![reading];
    pool.step(pool.now, Event::GatesRead { readings });
    after_a_quiet_half(pool)
}

fn after_a_quiet_half(mut pool: Pool) -> Pool {
    let from = pool.now;
    for minute in 1..=12 * 60 {
        let response = pool.step(from + Span(MINUTE.0 * minute), Event::TimerFired);
        for action in response.actions {
            match action {
                crate::Action::CloseGate { replica, .. } => {
                    let in_flight = 0;
                    pool.step(pool.now, Event::GateClosed { replica, in_flight });
                    let exit = crate::Exit::Requested;
                    pool.step(pool.now, Event::Drained { replica });
                    pool.step(pool.now, Event::ReplicaExited { replica, exit });
                }
                crate::Action::Stop { replica, .. } => {
                    let exit = crate::Exit::Requested;
                    pool.step(pool.now, Event::ReplicaExited { replica, exit });
                }
                _ => {}
            }
        }
    }
    pool
}

#[test]
fn a_model_that_cannot_be_loaded_never_ends_its_batch() {
    let mut pool = after_a_quiet_day(pool(1, &[0]));
    let model = ModelId(0);
    let demands = vec![BatchDemand {
        model,
        lines: 1,
        may_evict: true,
        must_begin: None,
        deadline_evicts: false,
    }];
    pool.step(pool.now, Event::BatchesSet { demands });
    let replica = *pool.replicas.keys().next().expect("it is loaded");
    let exit = crate::Exit::Failed {
        message: "broken".into(),
        remedy: crate::Remedy::Change,
    };
    pool.step(pool.now, Event::ReplicaExited { replica, exit });
    let works = [work(1, 0, HOUR, HOURS_2, &pool)];
    assert_eq!(ends(&pool, &works)[&1], BatchEnd::Never);
    assert_eq!(BatchEnd::Never.will_hold(Time(u64::MAX)), Some(false));
}

#[test]
fn the_load_must_begin_before_the_deadline_by_the_careful_time_of_the_work() {
    let pool = after_a_quiet_day(pool(1, &[0]));
    let works = [
        work(1, 0, HOUR, Span(9 * HOUR.0), &pool),
        work(2, 0, HOUR, Span(4 * HOUR.0), &pool),
    ];
    let outlook = pool.batch_outlook(pool.now, &works, &ALWAYS, false);
    let by = outlook.must_begin[&ModelId(0)];
    let left = works[1].deadline.since(by);
    let least = Span(2 * HOUR.0 * CAREFUL.work / PERMILLE);
    assert!(left > least && left < least + Span(10 * MINUTE.0), "{left}");
}

#[test]
fn many_models_take_a_bounded_time_and_the_last_ones_are_unknown() {
    let priorities = vec![0; MODELS_MAX + 10];
    let pool = pool(1, &priorities);
    let works: Vec<BatchWork> = (0..priorities.len() as u32)
        .map(|nth| work(u64::from(nth), nth, HOUR, HOURS_2, &pool))
        .collect();
    let ends = ends(&pool, &works);
    let unknown = ends.values().filter(|end| **end == BatchEnd::Unknown);
    assert_eq!(unknown.count(), 10);
}

#[test]
fn the_memory_of_an_always_hot_model_with_a_batch_is_counted_once() {
    let mut pool = pool_of(1, Bytes(20), &[2, 0]);
    let replica = *pool.replicas.keys().next().expect("always-hot");
    pool.step(pool.now, Event::ReplicaReady { replica });
    let pool = after_a_quiet_day(pool);
    let works = [
        work(1, 0, Span(3 * HOUR.0), HOURS_2, &pool),
        work(2, 1, HOUR, HOURS_2, &pool),
    ];
    let found = ends(&pool, &works);
    // 8 of 20 bytes are the always-hot model's, and the other one needs 8.
    let other = expected(&pool, found[&2]);
    assert!(
        other < HOUR + MINUTE + MINUTE,
        "it runs at the same time: {other}"
    );
    let own = expected(&pool, found[&1]);
    assert!(own.0.abs_diff(3 * HOUR.0) < 2 * MINUTE.0, "{own}");
}

#[test]
fn memory_that_an_always_hot_model_has_stays_its_own_after_its_batch() {
    let mut pool = pool(1, &[2, 0]);
    let replica = *pool.replicas.keys().next().expect("always-hot");
    pool.step(pool.now, Event::ReplicaReady { replica });
    let pool = after_a_quiet_day(pool);
    let works = [
        work(1, 0, MINUTE, HOURS_2, &pool),
        work(2, 1, MINUTE, HOURS_2, &pool),
    ];
    assert_eq!(ends(&pool, &works)[&2], BatchEnd::Never);
}

#[test]
fn another_device_with_room_makes_up_for_the_hours_of_the_first() {
    let mut held = Vec::new();
    for devices in [1, 2] {
        let pool = after_a_busy_morning(pool(devices, &[0, 1]));
        let works = [work(1, 0, HOUR, HOURS_2, &pool)];
        held.push(ends(&pool, &works)[&1].will_hold(works[0].deadline));
    }
    assert_eq!(held, [Some(false), Some(true)]);
}
