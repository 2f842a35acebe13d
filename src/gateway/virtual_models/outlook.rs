//! The expected waits for models without a ready replica, read from one snapshot of the pool. An estimate: the pool decides about
//! the load when the request waits.

use std::collections::BTreeMap;

use pool::{
    Bytes, DeviceId, ModelId, ModelState, ModelView, PoolView, Priority, ReplicaState, Share, Span,
};

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
}

/// The standings of models in one snapshot. Reads the waiting requests and the replicas at most once, however many models there are.
pub struct Outlooks<'a> {
    pool: &'a PoolView,
    /// The expected wait of the first waiting request of each model.
    waits: Option<BTreeMap<ModelId, Span>>,
    memory: Option<Memory>,
}

impl<'a> Outlooks<'a> {
    pub fn new(pool: &'a PoolView) -> Outlooks<'a> {
        Outlooks {
            pool,
            waits: None,
            memory: None,
        }
    }

    /// The standing of a model.
    pub fn outlook(&mut self, model: ModelId) -> Outlook {
        let pool = self.pool;
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
            let waits = self.waits.get_or_insert_with(|| first_waits(pool));
            return usable(waits.get(&model).copied().unwrap_or(view.reload));
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
        let memory = self.memory.get_or_insert_with(|| Memory::new(pool));
        let room = memory.room(view);
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

/// All requests of a model have one expected wait.
fn first_waits(pool: &PoolView) -> BTreeMap<ModelId, Span> {
    let mut waits = BTreeMap::new();
    for request in &pool.waiting {
        waits.entry(request.model).or_insert(request.expected);
    }
    waits
}

/// The memory that a load would use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Room {
    Free,
    /// Memory of idle replicas.
    Idle,
    Busy,
}

/// The free memory of the devices that are not cordoned, and the memory that idle replicas would leave.
struct Memory {
    /// The free bytes of each device, in ascending order.
    free: Vec<u64>,
    /// The same with the bytes of idle replicas of models up to this priority.
    with_idle: BTreeMap<Priority, Vec<u64>>,
}

impl Memory {
    fn new(pool: &PoolView) -> Memory {
        let devices = pool.devices.iter().filter(|device| device.cordon.is_none());
        let mut bytes: BTreeMap<DeviceId, u64> = devices
            .map(|device| (device.device, device.free.0))
            .collect();
        let mut idle: BTreeMap<Priority, Vec<&Share>> = BTreeMap::new();
        for model in pool.models.iter().filter(|model| !model.protected) {
            let replicas = model
                .replicas
                .iter()
                .filter(|replica| replica.state == ReplicaState::Ready && replica.in_flight == 0);
            for replica in replicas {
                idle.entry(model.priority)
                    .or_default()
                    .extend(&replica.shares);
            }
        }
        let free = sorted(&bytes);
        let with_idle = idle.into_iter().map(|(priority, shares)| {
            for share in shares {
                if let Some(bytes) = bytes.get_mut(&share.device) {
                    *bytes = bytes.saturating_add(share.bytes.0);
                }
            }
            (priority, sorted(&bytes))
        });
        Memory {
            free,
            with_idle: with_idle.collect(),
        }
    }

    /// The memory for one more replica of this model.
    fn room(&self, view: &ModelView) -> Room {
        let needed = view.devices_per_replica as usize;
        if having(&self.free, view.bytes_per_device) >= needed {
            return Room::Free;
        }
        let mut up_to = self.with_idle.range(..=view.priority);
        let with_idle = up_to.next_back().map(|(_, bytes)| bytes);
        if with_idle.is_some_and(|bytes| having(bytes, view.bytes_per_device) >= needed) {
            Room::Idle
        } else {
            Room::Busy
        }
    }
}

fn sorted(bytes: &BTreeMap<DeviceId, u64>) -> Vec<u64> {
    let mut sorted: Vec<u64> = bytes.values().copied().collect();
    sorted.sort_unstable();
    sorted
}

/// The number of devices with at least these bytes.
fn having(sorted: &[u64], bytes: Bytes) -> usize {
    sorted.len() - sorted.partition_point(|known| *known < bytes.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pool::{
        DeviceReading, Event, KeyId, Limits, ModelSpec, Pool, ReplicaId, ReplicaView, Ticket, Time,
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
        let of =
            |pool: &Pool, model: u32| Outlooks::new(&pool.view(Time(0))).outlook(ModelId(model));
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
        let unknown = Outlooks::new(&PoolView::default()).outlook(ModelId(3));
        assert!(unknown.is_blocked);
    }

    /// Looks at every replica for every device.
    fn direct_room(pool: &PoolView, view: &ModelView) -> Room {
        let devices = pool.devices.iter().filter(|device| device.cordon.is_none());
        let (mut free, mut idle) = (0, 0);
        for device in devices {
            let evictable =
                |other: &&ModelView| !other.protected && other.priority <= view.priority;
            let models = pool.models.iter().filter(evictable);
            let replicas = models.flat_map(|other| &other.replicas);
            let replicas = replicas
                .filter(|replica| replica.state == ReplicaState::Ready && replica.in_flight == 0);
            let shares = replicas.flat_map(|replica| &replica.shares);
            let shares = shares.filter(|share| share.device == device.device);
            let leaving: u64 = shares.map(|share| share.bytes.0).sum();
            free += u32::from(device.free >= view.bytes_per_device);
            idle += u32::from(device.free.0 + leaving >= view.bytes_per_device.0);
        }
        if free >= view.devices_per_replica {
            Room::Free
        } else if idle >= view.devices_per_replica {
            Room::Idle
        } else {
            Room::Busy
        }
    }

    #[test]
    fn one_pass_finds_the_same_room_as_a_look_at_every_replica_for_every_device() {
        let mut numbers = 1_u64;
        // The constants of Knuth's MMIX generator.
        let mut below = |most: u64| {
            numbers = numbers.wrapping_mul(6_364_136_223_846_793_005);
            numbers = numbers.wrapping_add(1_442_695_040_888_963_407);
            (numbers >> 33) % most
        };
        let small = |number: u64| u32::try_from(number).unwrap();
        let one = pool(&[(1, 1); 6]).view(Time(0));
        let mut rooms = [0_u32; 3];
        for _ in 0..500 {
            let mut view = one.clone();
            view.devices = vec![one.devices[0].clone(); 4];
            for (device, id) in view.devices.iter_mut().zip(0..) {
                device.device = DeviceId(id);
                device.free = Bytes(below(6));
            }
            for model in &mut view.models {
                model.priority = Priority(small(below(3)));
                model.protected = below(4) == 0;
                model.bytes_per_device = Bytes(1 + below(10));
                model.devices_per_replica = small(1 + below(4));
                model.replicas = (0..below(3))
                    .map(|nth| ReplicaView {
                        replica: ReplicaId(nth),
                        state: match below(4) {
                            0 => ReplicaState::Draining,
                            _ => ReplicaState::Ready,
                        },
                        for_: Span(0),
                        shares: (0..=below(2))
                            .map(|_| Share {
                                device: DeviceId(small(below(5))),
                                bytes: Bytes(below(5)),
                            })
                            .collect(),
                        in_flight: small(below(2)),
                        ready_at: None,
                        expires: None,
                        reason: String::new(),
                    })
                    .collect();
            }
            let memory = Memory::new(&view);
            for model in &view.models {
                let room = memory.room(model);
                assert_eq!(room, direct_room(&view, model));
                rooms[room as usize] += 1;
            }
        }
        assert!(rooms.iter().all(|count| *count > 100), "{rooms:?}");
    }
}
