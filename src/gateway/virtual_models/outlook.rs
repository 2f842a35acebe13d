//! The expected wait for a model without a ready replica, read from the snapshot of the pool. An estimate: the pool decides about
//! the load when the request waits.

use pool::{Bytes, ModelId, ModelState, ModelView, PoolView, ReplicaState, Span};

/// The time in which an idle replica leaves.
const EVICTION: Span = Span::from_secs(2);

/// The standing of a model that is not ready, in the order of preference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Outlook {
    /// A request would be refused: its loads have failed, or its weights are absent.
    pub is_blocked: bool,
    /// Its load needs memory of replicas that serve requests or are protected.
    pub needs_busy_memory: bool,
    pub wait: Span,
}

impl Outlook {
    /// The standing of a model that the pool does not know.
    const UNKNOWN: Outlook = Outlook {
        is_blocked: true,
        needs_busy_memory: false,
        wait: Span(0),
    };

    /// The standing of a model. Takes time linear in the waiting requests and the replicas.
    pub fn new(pool: &PoolView, model: ModelId) -> Outlook {
        let Ok(nth) = pool.models.binary_search_by_key(&model, |view| view.model) else {
            return Outlook::UNKNOWN;
        };
        let view = &pool.models[nth];
        let is_blocked = view.absent
            || view.damage.is_some()
            || matches!(view.state, ModelState::Cooling | ModelState::Quarantined);
        let usable = |wait| Outlook {
            is_blocked,
            needs_busy_memory: false,
            wait,
        };
        if view.waiting > 0 {
            // All requests of a model have one expected wait.
            let mut waiting = pool.waiting.iter();
            let first = waiting.find(|request| request.model == model);
            return usable(first.map_or(view.reload, |request| request.expected));
        }
        let coming = |replica: &ReplicaState| {
            matches!(
                replica,
                ReplicaState::Planned | ReplicaState::Launching | ReplicaState::Asleep
            )
        };
        if let Some(replica) = view.replicas.iter().find(|replica| coming(&replica.state)) {
            return usable(match replica.state {
                ReplicaState::Launching => Span(view.reload.0.saturating_sub(replica.for_.0)),
                _ => view.reload,
            });
        }
        let room = Room::new(pool, view);
        Outlook {
            is_blocked,
            needs_busy_memory: room == Room::Busy,
            wait: match room {
                Room::Free => view.reload,
                Room::Idle | Room::Busy => Span(view.reload.0.saturating_add(EVICTION.0)),
            },
        }
    }
}

/// The memory that a load would use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Room {
    Free,
    /// Memory of idle replicas.
    Idle,
    Busy,
}

impl Room {
    fn new(pool: &PoolView, view: &ModelView) -> Room {
        let devices = pool.devices.iter().filter(|device| device.cordon.is_none());
        let (mut free, mut idle) = (0, 0);
        for device in devices {
            if device.free >= view.bytes_per_device {
                free += 1;
                idle += 1;
                continue;
            }
            let leaving: u64 = pool
                .models
                .iter()
                .filter(|other| !other.protected && other.priority <= view.priority)
                .flat_map(|other| &other.replicas)
                .filter(|replica| replica.state == ReplicaState::Ready && replica.in_flight == 0)
                .flat_map(|replica| &replica.shares)
                .filter(|share| share.device == device.device)
                .map(|share| share.bytes.0)
                .sum();
            let with_idle = Bytes(device.free.0.saturating_add(leaving));
            idle += u32::from(with_idle >= view.bytes_per_device);
        }
        let needed = view.devices_per_replica;
        if free >= needed {
            Room::Free
        } else if idle >= needed {
            Room::Idle
        } else {
            Room::Busy
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pool::{
        DeviceId, DeviceReading, Event, KeyId, Limits, ModelSpec, Pool, ReplicaId, Ticket, Time,
    };

    fn outlook(is_blocked: bool, needs_busy_memory: bool, wait: u64) -> Outlook {
        Outlook {
            is_blocked,
            needs_busy_memory,
            wait: Span(wait),
        }
    }

    #[test]
    fn a_short_wait_counts_less_than_memory_in_use_and_less_than_a_certain_refusal() {
        let mut order = [
            outlook(true, false, 0),
            outlook(false, true, 1),
            outlook(false, false, 9),
            outlook(false, false, 3),
        ];
        order.sort();
        assert_eq!(
            order,
            [
                outlook(false, false, 3),
                outlook(false, false, 9),
                outlook(false, true, 1),
                outlook(true, false, 0),
            ]
        );
    }

    /// A pool with one device of 10 GiB, and models of (GiB, seconds of load).
    fn pool(models: &[(u64, u64)]) -> Pool {
        let mut pool = Pool::new(Limits::default(), false, ReplicaId(1));
        let reading = DeviceReading {
            name: "gpu0".to_owned(),
            total: Bytes(10 * Bytes::GIB),
            ..DeviceReading::default()
        };
        let device = DeviceId(0);
        let mut events = vec![Event::DeviceRead { device, reading }];
        for (nth, (gibibytes, seconds)) in models.iter().enumerate() {
            let spec = ModelSpec {
                name: format!("model-{nth}"),
                bytes_per_device: Bytes(gibibytes * Bytes::GIB),
                reload: Span::from_secs(*seconds),
                ..ModelSpec::default()
            };
            let model = ModelId(u32::try_from(nth).unwrap());
            events.push(Event::ModelSet { model, spec });
        }
        drop(pool.step_all(Time(0), events));
        pool
    }

    #[test]
    fn a_load_into_free_memory_takes_its_time_and_one_that_needs_memory_in_use_comes_last() {
        let mut pool = pool(&[(8, 4), (8, 3), (1, 6)]);
        let of = |pool: &Pool, model: u32| Outlook::new(&pool.view(Time(0)), ModelId(model));
        for (model, seconds) in [(0, 4), (1, 3), (2, 6)] {
            assert_eq!(of(&pool, model), outlook(false, false, seconds * 1_000));
        }
        let arrival = Event::RequestArrived {
            ticket: Ticket(0),
            model: ModelId(0),
            key: KeyId(0),
        };
        drop(pool.step_all(Time(0), [arrival]));
        let coming = of(&pool, 0);
        assert!(
            !coming.is_blocked && !coming.needs_busy_memory,
            "{coming:?}"
        );
        assert!(of(&pool, 1).needs_busy_memory, "model 0 is loading there");
        assert!(!of(&pool, 2).needs_busy_memory, "2 GiB are free");
        assert!(coming < of(&pool, 1), "the model on its way comes first");
    }

    #[test]
    fn a_model_that_the_pool_does_not_know_is_the_last_choice() {
        let unknown = Outlook::new(&PoolView::default(), ModelId(3));
        assert!(unknown.is_blocked);
    }
}
