//! Tests of `free_devices.rs`.

use alloc::vec::Vec;

use super::*;
use crate::types::requirements::Requirements;
use crate::{
    Action, DeviceReading, Event, KeyId, KindId, Limits, Loader, LoaderId, ModelId, ModelSpec,
    NodeId, Pool, Record, ReplicaId, Span, Ticket, Time, check,
};

const START: Time = Time(1_000_000);

/// Five nodes of twenty devices each. The devices are of two kinds and of different sizes, and partly held by others. There are
/// models of every size. Some nodes have the weights of some models, and three of four models are read through one disk of a node.
fn pool() -> Pool {
    let mut pool = Pool::new(Limits::default(), false, ReplicaId(1));
    let device = |nth: u32| Event::DeviceRead {
        device: DeviceId(nth),
        reading: DeviceReading {
            name: format!("gpu{nth}"),
            node: NodeId(nth / 20),
            kind: KindId(nth % 2),
            total: Bytes(40 + u64::from(nth * 7 % 40)),
            foreign: Bytes(u64::from(nth * 3 % 11)),
            ..DeviceReading::default()
        },
    };
    let loader = Loader {
        loader: LoaderId(1),
        takes: Span::from_secs(10),
    };
    let model = |nth: u32| Event::ModelSet {
        model: ModelId(nth),
        spec: ModelSpec {
            name: format!("model-{nth}"),
            bytes_per_device: Bytes(u64::from(1 + nth % 50)),
            loader: (!nth.is_multiple_of(4)).then_some(loader),
            queue_limit: 8,
            ..ModelSpec::default()
        },
    };
    let weights = |nth: u32| Event::WeightsOn {
        node: NodeId(nth),
        models: (0..200_u32)
            .filter(|model| model % 3 == nth)
            .map(ModelId)
            .collect(),
    };
    let events = (0..100).map(device).chain((0..200).map(model));
    pool.step_all(START, events.chain((0..2).map(weights)));
    pool
}

fn request(pool: &mut Pool, model: u32) -> Vec<Action> {
    let arrival = Event::RequestArrived {
        ticket: Ticket(u64::from(model)),
        model: ModelId(model),
        key: KeyId(0),
    };
    pool.step(START, arrival).actions
}

fn compare(pool: &Pool) {
    for model in 0..50 {
        let requirements = Requirements::new(pool, ModelId(model), START);
        let claim = Claim::new(pool, &requirements);
        let (found, all) = (
            FreeDevices::tightest(pool, &claim),
            FreeDevices::all(pool, &claim),
        );
        assert!(found.agrees_with(&all), "{found:?} {all:?}");
    }
}

#[test]
fn a_load_finds_the_same_device_with_and_without_the_index() {
    let mut pool = pool();
    compare(&pool);
    for model in 0..200 {
        for action in request(&mut pool, model * 7 % 200) {
            if let Action::Launch { replica, .. } = action
                && model.is_multiple_of(5)
            {
                pool.step(START, Event::ReplicaReady { replica });
            }
        }
        if model.is_multiple_of(10) {
            compare(&pool);
            assert_eq!(check(&pool), []);
        }
    }
    compare(&pool);
}

#[test]
fn the_history_records_the_chosen_device_and_the_best_alternatives() {
    let mut pool = pool();
    let actions = request(&mut pool, 48);
    let records = actions.iter().filter_map(|action| match action {
        Action::Record(record) => Some(record),
        _ => None,
    });
    let of_load: Vec<&Record> = records
        .filter(|record| !record.candidates.is_empty())
        .collect();
    let candidates = &of_load[0].candidates;
    assert_eq!(candidates.len(), CANDIDATES_MAX);
    assert!(candidates[0].starts_with("chosen: "), "{candidates:?}");
    assert!(
        candidates[1..]
            .iter()
            .all(|candidate| candidate.starts_with("gpu"))
    );
}
