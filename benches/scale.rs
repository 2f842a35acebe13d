//! Measures how decisions scale with models, devices and waiting requests: the 50th and 99th percentile of single steps and plans,
//! and the memory of an unused model. A plain program, because the promise is about percentiles: `cargo bench --bench scale`, and
//! `-- --large` for 8,000 devices only.

use std::time::{Duration, Instant};

use model_pool::pool::{
    Action, Bytes, DeviceId, DeviceReading, Event, GateReading, KeyId, Limits, LoadOrder, ModelId,
    ModelSpec, NodeId, Pool, Priority, ReplicaId, Span, Ticket, Time,
};

const GIB: u64 = Bytes::GIB;

struct Rig {
    pool: Pool,
    ready: Vec<(ReplicaId, ModelId, u64)>,
    waiting: u64,
    tickets: u64,
    now: Time,
}

fn spec(nth: u32) -> ModelSpec {
    ModelSpec {
        name: format!("org/model-{nth}"),
        bytes_per_device: Bytes((6 + u64::from(nth * 7 % 31)) * GIB),
        seats_per_replica: 64,
        queue_limit: 100_000,
        reload: Span::from_secs(u64::from(4 + nth % 40)),
        ..ModelSpec::default()
    }
}

impl Rig {
    /// Devices and models, without loaded replicas.
    fn empty(models: u32, devices: u32) -> Rig {
        let mut rig = Rig {
            pool: Pool::new(Limits::default(), false, ReplicaId(1)),
            ready: Vec::new(),
            waiting: 0,
            tickets: 0,
            now: Time(1_000),
        };
        let device = |nth: u32| Event::DeviceRead {
            device: DeviceId(nth),
            reading: DeviceReading {
                name: format!("gpu{nth}"),
                node: NodeId(nth / 8),
                total: Bytes(80 * GIB),
                headroom: Bytes(4 * GIB),
                ..DeviceReading::default()
            },
        };
        let model = |nth: u32| Event::ModelSet {
            model: ModelId(nth),
            spec: spec(nth),
        };
        let setup: Vec<Event> = (0..devices)
            .map(device)
            .chain((0..models).map(model))
            .collect();
        rig.pool.step_all(Time(0), setup);
        rig
    }

    /// Full devices whose replicas are busy and keep their turn, and a queue that cannot move.
    fn new(models: u32, devices: u32, waiting: u64) -> Rig {
        let mut rig = Rig::empty(models, devices);
        // The first models requested are loaded until the memory is full; all others wait.
        for nth in 0..models {
            if let Some(replica) = rig.ask(nth) {
                rig.serve(nth, replica);
            } else {
                rig.waiting += 1;
            }
            if rig.waiting >= waiting {
                break;
            }
        }
        let mut nth = 0;
        while rig.waiting < waiting && !rig.ready.is_empty() {
            nth += 1;
            rig.ask(models - 1 - nth % models.min(64));
            rig.waiting += 1;
        }
        rig
    }

    fn ask(&mut self, model: u32) -> Option<ReplicaId> {
        self.tickets += 1;
        let arrival = Event::RequestArrived {
            ticket: Ticket(self.tickets),
            model: ModelId(model),
            key: KeyId(u64::from(model % 5)),
        };
        let response = self.pool.step(self.now, arrival);
        response.actions.iter().find_map(|action| match action {
            Action::Launch { replica, .. } => Some(*replica),
            _ => None,
        })
    }

    /// The launched replica becomes ready and serves the request that caused its launch.
    fn serve(&mut self, model: u32, replica: ReplicaId) {
        self.now = Time(self.now.0 + 50);
        self.pool.step(self.now, Event::ReplicaReady { replica });
        self.read(replica, 1, 1);
        self.ready.push((replica, ModelId(model), 1));
    }

    fn read(&mut self, replica: ReplicaId, in_flight: u32, entered: u64) {
        let reading = GateReading {
            replica,
            in_flight,
            entered,
            last_end: (in_flight == 0).then_some(self.now),
            idle_before: None,
        };
        let readings = vec![reading];
        self.pool.step(self.now, Event::GatesRead { readings });
    }
}

fn timed(times: &mut Vec<Duration>, mut what: impl FnMut()) {
    let start = now();
    what();
    times.push(start.elapsed());
}

#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
fn now() -> Instant {
    Instant::now()
}

fn percentiles(mut times: Vec<Duration>) -> String {
    times.sort();
    let at = |percent: usize| times[(times.len() * percent / 100).min(times.len() - 1)];
    format!("{:>10.1?} {:>10.1?}", at(50), at(99))
}

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm
        .split_whitespace()
        .nth(1)
        .and_then(|argument| argument.parse().ok());
    pages.unwrap_or(0_u64) * 4096
}

fn row(models: u32, devices: u32, waiting: u64) {
    let mut rig = Rig::new(models, devices, waiting);
    let count = rig.ready.len();
    let rounds = if devices > 200 { 200 } else { 1000 };
    // A gate becomes idle, and busy again: a blocked demand may go there once its turn is over.
    let mut reads = Vec::new();
    for nth in 0..rounds {
        let (replica, _, entered) = rig.ready[nth * 31 % count];
        rig.now = Time(rig.now.0 + 1);
        timed(&mut reads, || rig.read(replica, 0, entered));
        rig.read(replica, 1, entered + 1);
        rig.ready[nth * 31 % count].2 = entered + 1;
    }
    let mut arrivals = Vec::new();
    for nth in 0..rounds {
        let model = models - 1 - (nth as u32 * 17) % models.min(500);
        timed(&mut arrivals, || {
            rig.ask(model);
        });
    }
    // The turns of busy replicas end one after the other, and a waiting demand takes the room.
    let mut turns = Vec::new();
    let mut pool = rig.pool.clone();
    let mut wake = pool.step(rig.now, Event::TimerFired).wake;
    for _ in 0..rounds.min(100) {
        let Some(at) = wake else { break };
        timed(&mut turns, || wake = pool.step(at, Event::TimerFired).wake);
    }
    let models_from_the_last = |nth: usize| models - 1 - (nth as u32 * 13) % models.min(500);
    let plans = previews(&rig, (0..rounds).map(models_from_the_last));
    println!(
        "{models:>7} {devices:>6} {:>8} {count:>8} | {} | {} | {} | {}",
        rig.waiting,
        percentiles(reads),
        percentiles(arrivals),
        percentiles(plans),
        percentiles(turns),
    );
}

/// The plans shown to administrators for a load of each of these models.
fn previews(rig: &Rig, models: impl Iterator<Item = u32>) -> Vec<Duration> {
    let mut plans = Vec::new();
    for model in models {
        let order = LoadOrder {
            model: ModelId(model),
            replicas: Some(1),
            devices: None,
            priority: Some(Priority(1)),
            keep_hot: None,
            lease: None,
            force: false,
            waits: true,
        };
        timed(&mut plans, || {
            rig.pool.clone().preview(rig.now, &order);
        });
    }
    plans
}

/// Loads all models except the last hundred into a pool with room for all.
fn room(models: u32, devices: u32) {
    let mut rig = Rig::empty(models, devices);
    let (mut loads, mut others) = (Vec::new(), Vec::new());
    for nth in 0..models - 100 {
        let mut launched = None;
        timed(&mut loads, || launched = rig.ask(nth));
        let replica = launched.expect("there is room for all");
        timed(&mut others, || rig.serve(nth, replica));
    }
    let plans = previews(&rig, models - 100..models);
    println!(
        "{models:>7} {devices:>6} {:>8} {:>8} | {} | {} | {}",
        "room",
        rig.ready.len(),
        percentiles(loads),
        percentiles(others),
        percentiles(plans),
    );
}

/// 1,000 nodes: with room for every model, and full.
fn large() {
    println!(
        "{:>7} {:>6} {:>8} {:>8} | {:>21} | {:>21} | {:>21}",
        "models", "GPUs", "", "loaded", "a load", "it is ready", "plan, explained"
    );
    room(10_000, 8_000);
    headings();
    row(32_000, 8_000, 1_000);
}

fn headings() {
    println!(
        "{:>7} {:>6} {:>8} {:>8} | {:>21} | {:>21} | {:>21} | {:>21}",
        "models",
        "GPUs",
        "waiting",
        "loaded",
        "gate turns idle",
        "one more waits",
        "plan, explained",
        "a turn ends"
    );
}

fn main() {
    if std::env::args().any(|argument| argument == "--large") {
        return large();
    }
    headings();
    for (models, devices, waiting) in [
        (10, 2, 10),
        (100, 8, 100),
        (1_000, 64, 1_000),
        (10_000, 64, 1_000),
        (1_000, 64, 10_000),
        (10_000, 1_024, 1_000),
        (10_000, 1_024, 10_000),
    ] {
        row(models, devices, waiting);
    }
    let before = resident_bytes();
    let mut pool = Pool::new(Limits::default(), false, ReplicaId(1));
    let events: Vec<Event> = (0..50_000)
        .map(|nth| Event::ModelSet {
            model: ModelId(nth),
            spec: spec(nth),
        })
        .collect();
    pool.step_all(Time(0), events);
    let each = resident_bytes().saturating_sub(before) / 50_000;
    println!("memory of an unused model: {each} bytes");
}
