//! Tests of `load_planning.rs`.

use super::*;
use crate::{
    Action, DeviceId, DeviceReading, Event, KeyId, Limits, ModelId, ModelSpec, ReplicaId, Ticket,
};

const START: Time = Time(1_000_000);

/// One device with a busy model, and two models waiting for it. The first needs more than the second.
fn pool() -> Pool {
    let mut pool = Pool::new(Limits::default(), false, ReplicaId(1));
    let reading = DeviceReading {
        name: "gpu0".into(),
        total: Bytes(10),
        ..DeviceReading::default()
    };
    let device = DeviceId(0);
    pool.step(START, Event::DeviceRead { device, reading });
    for (nth, bytes) in [(0_u32, 10), (1, 6), (2, 5)] {
        let now = START + Span(u64::from(nth));
        let model = ModelId(nth);
        let spec = ModelSpec {
            name: format!("model-{nth}"),
            bytes_per_device: Bytes(bytes),
            reload: Span::from_secs(10),
            ..ModelSpec::default()
        };
        pool.step(now, Event::ModelSet { model, spec });
        let arrival = Event::RequestArrived {
            ticket: Ticket(u64::from(nth)),
            model,
            key: KeyId(0),
        };
        for action in pool.step(now, arrival).actions {
            if let Action::Launch { replica, .. } = action {
                pool.step(now, Event::ReplicaReady { replica });
            }
        }
    }
    pool
}

#[test]
fn all_demands_blocked_by_one_examination_form_one_decision() {
    let mut pool = pool();
    assert!(make_room(&pool).is_none(), "nothing has changed");
    pool.grows_everywhere();
    let Some(Decision::Block { demands }) = make_room(&pool) else {
        panic!("the model in use keeps its place");
    };
    let models: Vec<u32> = demands.iter().map(|(rank, _)| rank.model.0).collect();
    assert_eq!(models, [1, 2]);
    pool.demand_index.block_all(demands);
    assert!(make_room(&pool).is_none(), "both were examined");
}
