//! Tests of leases: across a restart, and in large numbers (P7).

use alloc::format;
use alloc::vec::Vec;

use crate::{
    Bytes, DeviceId, DeviceReading, Event, KeyId, Limits, LoadOrder, ModelId, ModelSpec, Override,
    Pool, Priority, ReplicaId, Span, Ticket, Time,
};

const HOUR: Span = Span::from_secs(3_600);

fn pool(devices: u32) -> Pool {
    let mut pool = Pool::new(Limits::default(), false, ReplicaId(1));
    for nth in 0..devices {
        let reading = DeviceReading {
            name: format!("gpu{nth}"),
            total: Bytes(1_000),
            ..DeviceReading::default()
        };
        let device = DeviceId(nth);
        pool.step(Time(1), Event::DeviceRead { device, reading });
    }
    pool
}

fn model(nth: u32) -> Event {
    Event::ModelSet {
        model: ModelId(nth),
        spec: ModelSpec {
            name: format!("m{nth}"),
            bytes_per_device: Bytes(800),
            keep_hot: Span(HOUR.0 * 24),
            ..ModelSpec::default()
        },
    }
}

fn leased(nth: u32, until: Time) -> Event {
    Event::WishesRestored {
        model: ModelId(nth),
        over: Override {
            expires: Some(until),
            ..Override::default()
        },
        load: None,
    }
}

fn arrives(ticket: u64, nth: u32) -> Event {
    Event::RequestArrived {
        ticket: Ticket(ticket),
        model: ModelId(nth),
        key: KeyId(0),
    }
}

/// Loads the model for a request that ends immediately.
fn loaded(pool: &mut Pool, now: Time, nth: u32) -> ReplicaId {
    pool.step(now, arrives(u64::from(nth), nth));
    let replicas = pool.models[&ModelId(nth)].replicas.iter();
    let replica = *replicas.last().expect("launched");
    pool.step(now, Event::ReplicaReady { replica });
    let readings = alloc::vec![crate::GateReading {
        replica,
        in_flight: 0,
        entered: 1,
        last_end: Some(now),
        idle_before: None,
    }];
    pool.step(now, Event::GatesRead { readings });
    replica
}

fn refusal_of_a_load(pool: &Pool, now: Time, nth: u32, priority: u32) -> Option<crate::Refusal> {
    let load = LoadOrder {
        model: ModelId(nth),
        replicas: None,
        devices: None,
        priority: Some(Priority(priority)),
        keep_hot: None,
        lease: None,
        force: false,
        waits: true,
    };
    let pool = pool.clone();
    pool.preview(now, &load).expect("known").refusal
}

#[test]
fn p7_a_lease_from_before_a_restart_protects_until_its_end() {
    let mut pool = pool(1);
    let ends = Time(10 * 60_000);
    pool.step_all(Time(1), [model(0), model(1), leased(0, ends)]);
    loaded(&mut pool, Time(2), 0);
    let shortly_before = Time(ends.0 - 1_000);
    let refusal = refusal_of_a_load(&pool, shortly_before, 1, 0).expect("an equal is refused");
    let text = format!("{refusal}");
    assert!(text.contains("leased for 1.0 s more"), "{text}");
    assert_eq!(refusal_of_a_load(&pool, shortly_before, 1, 1), None);
    pool.step(ends, Event::TimerFired);
    assert_eq!(refusal_of_a_load(&pool, ends, 1, 0), None);
}

#[test]
fn p7_the_expected_wait_for_a_leased_place_lasts_until_the_lease_ends() {
    let mut pool = pool(1);
    let ends = Time(100_000);
    pool.step_all(Time(1), [model(0), model(1), leased(0, ends)]);
    loaded(&mut pool, Time(2), 0);
    let now = Time(40_000);
    let wake = pool.step(now, arrives(7, 1)).wake;
    let expected = pool.expected_wait(ModelId(1));
    let reload = ModelSpec::default().reload;
    assert_eq!(expected, Span(60_000 + reload.0));
    assert!(wake.is_some_and(|at| at <= ends), "{wake:?}");
}

#[test]
fn p7_each_of_a_thousand_leases_ends_at_its_own_time() {
    let mut pool = pool(1);
    let ends = |nth: u32| Time(HOUR.0 + u64::from(nth % 500) * 1_000);
    let events: Vec<Event> = (0..1_000)
        .flat_map(|nth| [model(nth), leased(nth, ends(nth))])
        .collect();
    let mut response = pool.step_all(Time(1), events);
    let mut wakes = 0;
    while let Some(wake) = response.wake.filter(|at| *at <= ends(499)) {
        response = pool.step(wake, Event::TimerFired);
        wakes += 1;
        let open = pool.models.values();
        let left = open.filter(|model| model.over.expires.is_some()).count();
        let later = (0..1_000).filter(|nth| ends(*nth) > wake).count();
        assert_eq!(left, later, "at {wake}");
    }
    assert_eq!(wakes, 500);
}

#[test]
fn p7_a_lease_ends_by_the_wall_clock() {
    let mut pool = pool(1);
    let ends = Time(3_600_000);
    pool.step_all(Time(1), [model(0), model(1), leased(0, ends)]);
    loaded(&mut pool, Time(2), 0);
    let ahead = 3_000_000;
    let response = pool.step(Time(10), Event::WallClockJumped { ahead });
    assert!(refusal_of_a_load(&pool, Time(10), 1, 0).is_some());
    assert_eq!(
        response.wake.map(|at| at.0 <= 600_000),
        Some(true),
        "{response:?}"
    );
    let back = -1_000_000;
    pool.step(Time(20), Event::WallClockJumped { ahead: back });
    pool.step(ends, Event::TimerFired);
    assert!(
        refusal_of_a_load(&pool, ends, 1, 0).is_some(),
        "it lasts by that clock"
    );
    let ahead = 10_800_000;
    pool.step(ends, Event::WallClockJumped { ahead });
    assert_eq!(refusal_of_a_load(&pool, ends, 1, 0), None);
    assert_eq!(pool.models[&ModelId(0)].over, Override::default());
}

#[test]
fn p7_a_lease_end_from_a_wrong_clock_protects_nothing_until_the_clock_is_corrected() {
    let year = 365 * 24 * HOUR.0;
    let mut pool = pool(1);
    let ends = Time(73 * year + HOUR.0);
    pool.step_all(Time(1), [model(0), model(1), leased(0, ends)]);
    loaded(&mut pool, Time(2), 0);
    let refusal = |pool: &Pool| refusal_of_a_load(pool, Time(10), 1, 0);
    assert_eq!(refusal(&pool), None, "it would last 73 years");
    let ahead = i64::try_from(73 * year).unwrap();
    pool.step(Time(10), Event::WallClockJumped { ahead });
    assert!(refusal(&pool).is_some(), "an hour is left by this clock");
}
