//! Measures the cost of decisions: a step of a large pool, and a plan in a full one. `cargo bench --bench pool`. Targets: a step
//! within 20 µs with 1,000 models on 64 devices, a plan within 1 ms on 256 devices, and a seat within 20 µs with 10,000 waiting
//! requests.

use std::time::{Duration, Instant};

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use model_pool::pool::{
    Action, Bytes, DeviceId, DeviceReading, Event, GateReading, Group, GroupId, Groups, KeyId,
    Limits, LoadOrder, ModelId, ModelSpec, NodeId, Pool, Priority, ReplicaId, ServiceClass, Span,
    Ticket, Time, TokenCosts, Tokens,
};
use model_pool::sim::World;

const GIB: u64 = Bytes::GIB;

fn model(nth: u32) -> ModelSpec {
    ModelSpec {
        name: format!("org/model-{nth}"),
        priority: Priority(u32::from(nth.is_multiple_of(10))),
        devices_per_replica: 1,
        bytes_per_device: Bytes((8 + u64::from(nth % 5) * 4) * GIB),
        keep_hot: Span::from_secs(600),
        min_resident: Some(Span::from_secs(10)),
        max_turn: None,
        queue_limit: 512,
        queue_timeout: Span::from_secs(300),
        seats_per_replica: 64,
        load_deadline: Span::from_secs(600),
        reload: Span::from_secs(20),
        ..ModelSpec::default()
    }
}

/// A pool in which every device is full of replicas that were used a while ago.
fn full_pool(models: u32, devices: u32) -> Pool {
    let mut pool = Pool::new(Limits::default(), false, ReplicaId(1));
    for nth in 0..devices {
        let reading = DeviceReading {
            name: format!("gpu{nth}"),
            node: NodeId(nth / 8),
            total: Bytes(80 * GIB),
            headroom: Bytes(4 * GIB),
            ..DeviceReading::default()
        };
        pool.step(
            Time(0),
            Event::DeviceRead {
                device: DeviceId(nth),
                reading,
            },
        );
    }
    for nth in 0..models {
        pool.step(
            Time(0),
            Event::ModelSet {
                model: ModelId(nth),
                spec: model(nth),
            },
        );
    }
    let mut launched = Vec::new();
    let mut refused = 0;
    for nth in 0..models {
        let arrival = Event::RequestArrived {
            ticket: Ticket(u64::from(nth)),
            model: ModelId(nth),
            key: KeyId(0),
        };
        let actions = pool.step(Time(1), arrival).actions;
        let before = launched.len();
        launched.extend(actions.iter().filter_map(|action| match action {
            Action::Launch { replica, .. } => Some(*replica),
            _ => None,
        }));
        // Every size has been refused: the devices are full.
        refused = if launched.len() > before {
            0
        } else {
            refused + 1
        };
        if refused > 8 {
            break;
        }
    }
    for nth in 0..u64::from(models) {
        pool.step(
            Time(2),
            Event::RequestLeft {
                ticket: Ticket(nth),
            },
        );
    }
    for (nth, &replica) in launched.iter().enumerate() {
        pool.step(Time(20_000), Event::ReplicaReady { replica });
        let last_end = Some(Time(20_000 + nth as u64));
        let readings = vec![GateReading {
            replica,
            in_flight: 0,
            entered: 1 + nth as u64 % 7,
            last_end,
            idle_before: None,
        }];
        pool.step(Time(21_000), Event::GatesRead { readings });
    }
    pool
}

fn step(criterion: &mut Criterion) {
    let pool = full_pool(1_000, 64);
    let ready = ReplicaId(1);
    let reading = |in_flight| Event::GatesRead {
        readings: vec![GateReading {
            replica: ready,
            in_flight,
            entered: 9,
            last_end: Some(Time(22_000)),
            idle_before: None,
        }],
    };
    let mut warm = pool.clone();
    let mut in_flight = 0;
    criterion.bench_function(
        "step, 1000 models on 64 devices: a gate is read",
        |bencher| {
            bencher.iter(|| {
                in_flight ^= 1;
                warm.step(Time(30_000), reading(in_flight))
            });
        },
    );
    criterion.bench_function(
        "step, 1000 models on 64 devices: a request for a ready model",
        |bencher| {
            let mut warm = pool.clone();
            let mut ticket = 10_000;
            bencher.iter(|| {
                ticket += 1;
                let arrival = Event::RequestArrived {
                    ticket: Ticket(ticket),
                    model: ModelId(0),
                    key: KeyId(0),
                };
                let granted = warm.step(Time(30_000), arrival);
                let back = GateReading {
                    replica: ready,
                    in_flight: 0,
                    entered: ticket,
                    last_end: Some(Time(30_000)),
                    idle_before: None,
                };
                (
                    granted,
                    warm.step(
                        Time(30_000),
                        Event::GatesRead {
                            readings: vec![back],
                        },
                    ),
                )
            });
        },
    );
    criterion.bench_function(
        "step, 1000 models on 64 devices: a load that must evict",
        |bencher| {
            let arrival = || Event::RequestArrived {
                ticket: Ticket(99_999),
                model: ModelId(990),
                key: KeyId(0),
            };
            bencher.iter_batched_ref(
                || pool.clone(),
                |pool| pool.step(Time(60_000), arrival()),
                BatchSize::LargeInput,
            );
        },
    );
}

fn plan(criterion: &mut Criterion) {
    let mut pool = full_pool(2_000, 256);
    let load = || LoadOrder {
        model: ModelId(1_990),
        replicas: Some(1),
        devices: None,
        priority: Some(Priority(1)),
        keep_hot: None,
        lease: None,
        force: false,
        waits: true,
    };
    for devices in [1, 8] {
        let spec = ModelSpec {
            bytes_per_device: Bytes(60 * GIB),
            devices_per_replica: devices,
            ..model(1_990)
        };
        pool.step(
            Time(21_000),
            Event::ModelSet {
                model: ModelId(1_990),
                spec,
            },
        );
        let order = load();
        pool.step(Time(60_000), Event::TimerFired);
        let found = pool
            .clone()
            .preview(Time(60_000), &order)
            .expect("the model exists");
        assert!(
            found.refusal.is_none() && !found.victims.is_empty(),
            "the plan must have to evict: {found:?}"
        );
        criterion.bench_function(
            &format!("plan in a full pool of 256 devices, {devices} per replica"),
            |bencher| {
                bencher.iter(|| pool.clone().preview(Time(60_000), &order));
            },
        );
    }
}

/// The number of requests that wait for a replica with one seat.
const WAITING: u64 = 10_000;
const KEYS: u64 = 1_000;
const GROUPS: u32 = 200;

/// Requests of many keys in many groups that wait for one seat.
struct Line {
    world: World,
    tickets: u64,
    seated: Ticket,
}

impl Line {
    fn new() -> Line {
        let device = DeviceReading {
            name: "gpu0".into(),
            total: Bytes(80 * GIB),
            ..DeviceReading::default()
        };
        let spec = ModelSpec {
            seats_per_replica: 1,
            queue_limit: 2 * WAITING as u32,
            queue_timeout: Span::from_secs(86_400),
            ..model(1)
        };
        let groups = (1..=GROUPS).map(|id| Group {
            id: GroupId(id),
            name: format!("group-{id}"),
            parent: (id > 20).then_some(GroupId(id % 20 + 1)),
            weight: 1 + id % 7,
            reserved_permille: 0,
        });
        let members = (1..=KEYS).map(|key| (KeyId(key), GroupId(21 + key as u32 % 180)));
        let groups = Groups::new(groups.collect(), members).expect("the tree is valid");
        let (model, costs) = (ModelId(0), TokenCosts::new(100, 5_000));
        let events = [
            Event::DeviceRead {
                device: DeviceId(0),
                reading: device,
            },
            Event::ModelSet { model, spec },
            Event::TokensMeasured { model, costs },
            Event::GroupsSet { groups },
        ];
        let mut world = World::new(Pool::new(Limits::default(), false, ReplicaId(1)));
        world.feed_all(Time(0), events);
        let mut line = Line {
            world,
            tickets: 0,
            seated: Ticket(0),
        };
        (0..=WAITING).for_each(|_| line.arrives());
        let ready = Event::ReplicaReady {
            replica: ReplicaId(1),
        };
        let actions = line.world.feed(Time(20_000), ready);
        line.seated = granted(&actions);
        line
    }

    fn arrives(&mut self) {
        let (ticket, model) = (Ticket(self.tickets), ModelId(0));
        let key = KeyId(1 + self.tickets * 7 % KEYS);
        self.tickets += 1;
        let (class, expected) = (ServiceClass::Default, TOKENS);
        let events = [
            Event::RequestArrived { ticket, model, key },
            Event::RequestDescribed {
                ticket,
                class,
                expected,
            },
        ];
        self.world.feed_all(self.world.now, events);
    }

    /// The request inside ends, and the next one gets its seat. Returns the time that this takes.
    #[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
    fn turn(&mut self) -> Duration {
        let now = self.world.now + Span(10);
        self.world.takes_tokens(self.seated, TOKENS);
        let ended = self.world.end(self.seated, now).expect("the gate reports");
        let begun = Instant::now();
        let actions = self.world.feed(now, ended);
        let took = begun.elapsed();
        self.seated = granted(&actions);
        self.arrives();
        took
    }
}

const TOKENS: Tokens = Tokens {
    prompt: 500,
    output: 50,
};

fn granted(actions: &[Action]) -> Ticket {
    let mut granted = actions.iter().filter_map(|action| match action {
        Action::Grant { ticket, .. } => Some(*ticket),
        _ => None,
    });
    granted.next().expect("a request gets the seat")
}

fn seat(criterion: &mut Criterion) {
    let mut line = Line::new();
    criterion.bench_function(
        "seat, 10000 waiting requests of 1000 keys in 200 groups",
        |bencher| {
            bencher.iter_custom(|turns| (0..turns).map(|_| line.turn()).sum());
        },
    );
}

criterion_group!(benches, step, plan, seat);
criterion_main!(benches);
