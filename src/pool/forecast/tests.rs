//! Tests of `forecast.rs`: a forecast is compared with what the pool does.

use super::*;
use crate::{Bytes, Command, DeviceId, DeviceReading, KeyId, Limits, LoadOrder, ModelSpec, Tier};

const GIB: u64 = Bytes::GIB;
const LOAD: Span = Span::from_secs(10);

/// A device for two of three models, whose loads take ten seconds and which have two seats each.
fn pool() -> Pool {
    let mut pool = Pool::new(Limits::default(), false, ReplicaId(1));
    let reading = DeviceReading {
        name: "gpu0".into(),
        total: Bytes(20 * GIB),
        ..DeviceReading::default()
    };
    let device = DeviceId(0);
    pool.step(Time(1), Event::DeviceRead { device, reading });
    for nth in 0..3 {
        let spec = ModelSpec {
            name: alloc::format!("m{nth}"),
            bytes_per_device: Bytes(10 * GIB),
            need_is_fixed: true,
            reload: LOAD,
            seats_per_replica: 2,
            keep_hot: Span::from_secs(600),
            queue_limit: 100,
            queue_timeout: Span::from_secs(300),
            load_deadline: Span::from_secs(300),
            ..ModelSpec::default()
        };
        let model = ModelId(nth);
        pool.step(Time(1), Event::ModelSet { model, spec });
    }
    pool
}

fn asks(pool: &mut Pool, at: u64, ticket: u64, model: u32) -> Vec<Action> {
    let event = Event::RequestArrived {
        ticket: Ticket(ticket),
        model: ModelId(model),
        key: KeyId(1),
    };
    pool.step(Time(at), event).actions
}

fn seat_of(pool: &Pool, at: u64, ticket: u64) -> Option<u64> {
    let forecast = pool.clone().forecast(Time(at), Ticket(ticket))?;
    Some(forecast.at.0 - at)
}

#[test]
fn a_load_in_progress_takes_the_rest_of_its_expected_time() {
    let mut pool = pool();
    asks(&mut pool, 1_000, 1, 0);
    assert_eq!(seat_of(&pool, 1_000, 1), Some(10_000));
    pool.step(Time(5_000), Event::TimerFired);
    assert_eq!(seat_of(&pool, 5_000, 1), Some(6_000));
    // A load that is late is expected to take as long again as it is late.
    pool.step(Time(14_000), Event::TimerFired);
    assert_eq!(seat_of(&pool, 14_000, 1), Some(3_000));
}

#[test]
fn a_request_beyond_the_seats_waits_for_the_end_of_another() {
    let mut pool = pool();
    for ticket in 1..=5 {
        asks(&mut pool, 1_000, ticket, 0);
    }
    // Two seats, and unmeasured requests of two seconds.
    let waits = [1, 2, 3, 4, 5].map(|ticket| seat_of(&pool, 1_000, ticket));
    let expected = [10_000, 10_000, 12_000, 12_000, 14_000].map(Some);
    assert_eq!(waits, expected);
}

#[test]
fn a_forecast_counts_the_loads_before_its_seat() {
    let mut pool = pool();
    for model in 0..3 {
        asks(&mut pool, 1_000, u64::from(model), model);
    }
    let seats = pool.forecasts(Time(1_000));
    let loads = |ticket| seats[&Ticket(ticket)].loads;
    assert_eq!((loads(0), loads(1)), (0, 0), "both have begun");
    assert_eq!(loads(2), 1);
    let third = seats[&Ticket(2)].at.since(Time(1_000));
    // It waits for a load, a request, a stop of two seconds, and its own load.
    assert!(third >= Span::from_secs(22), "{third}");
}

#[test]
fn a_forecast_changes_nothing_and_a_refused_request_has_none() {
    let mut pool = pool();
    let spec = ModelSpec {
        bytes_per_device: Bytes(90 * GIB),
        ..pool.models[&ModelId(2)].spec.clone()
    };
    let model = ModelId(2);
    pool.step(Time(2), Event::ModelSet { model, spec });
    asks(&mut pool, 1_000, 1, 0);
    asks(&mut pool, 1_000, 2, 2);
    let before = alloc::format!("{:?}", pool.view(Time(1_000)));
    assert!(seat_of(&pool, 1_000, 1).is_some());
    assert_eq!(seat_of(&pool, 1_000, 2), None);
    assert_eq!(alloc::format!("{:?}", pool.view(Time(1_000))), before);
}

#[test]
fn the_forecast_of_a_plan_ends_with_its_load() {
    let mut pool = pool();
    let load = |model| LoadOrder {
        model: ModelId(model),
        replicas: Some(1),
        devices: None,
        priority: None,
        keep_hot: None,
        lease: None,
        force: false,
        waits: true,
    };
    let expected = |pool: &Pool, at: u64, model| {
        let planned = pool.clone().preview_with_forecast(Time(at), &load(model));
        planned.expect("the model is known").1
    };
    assert_eq!(expected(&pool, 1_000, 0), Some(LOAD));
    let order = OrderId(1);
    let command = Command::Load(load(0));
    pool.step(Time(1_000), Event::OrderReceived { order, command });
    let actions = pool.step(Time(1_000), Event::Saved { order }).actions;
    let launched = actions.iter().find_map(|action| match action {
        Action::Launch { replica, .. } => Some(*replica),
        _ => None,
    });
    let replica = launched.expect("there is room");
    assert_eq!(expected(&pool, 3_000, 0), Some(Span::from_secs(8)));
    let tier = Tier::Disk;
    pool.step(Time(4_000), Event::LoadsFrom { replica, tier });
    pool.step(Time(6_000), Event::ReplicaReady { replica });
    assert_eq!(expected(&pool, 7_000, 0), Some(Span::ZERO));
    // The load took five seconds, and so will the next.
    let gone = Exit::Requested;
    pool.step(
        Time(8_000),
        Event::ReplicaExited {
            replica,
            exit: gone,
        },
    );
    assert_eq!(expected(&pool, 9_000, 0), Some(Span::from_secs(5)));
}
