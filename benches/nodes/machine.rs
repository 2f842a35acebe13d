//! The state of a simulated node: engines that compute nothing and take their time, devices whose readings reflect them, and frames
//! in the order in which `model-pool node` sends them. No sockets.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use engine::{ExitReport, Failure};
use node_link::{
    EngineReport, FromController, FromNode, KeptForm, LogLineForm, MachineForm, NodeDevice,
    NodeLinkKind, NodeReading, NodeReadings, NodeReport, Order, RunningEngine, Start,
    WeightsReport,
};
use tokio::sync::Notify;
use tokio::time::Instant;

pub const DEVICES: u32 = 8;
const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;
const DEVICE_BYTES: u64 = 80 * GIB;
const HEADROOM_BYTES: u64 = 4 * GIB;
const READ_EVERY: Duration = Duration::from_secs(1);
/// The shortest pause that a controller may request.
const READ_EVERY_MIN: Duration = Duration::from_millis(50);
/// The time from the order to stop to the end of the process.
const STOPS_IN: Duration = Duration::from_millis(200);
/// The host memory of an engine's processes.
const HOST_BYTES: u64 = 4 * GIB;
const FIRST_PID: u64 = 100_000;

pub struct Machine {
    nth: u32,
    /// The time from the start of an engine until it is ready.
    load: Duration,
    inner: Mutex<Inner>,
    /// Notified when there is something to send, or something becomes due sooner.
    pub news: Notify,
}

#[derive(Default)]
struct Inner {
    engines: BTreeMap<u64, Engine>,
    /// The number of the last report; 0 before the first.
    last: u64,
    reports: VecDeque<(u64, NodeReport)>,
    logs: VecDeque<(u64, Vec<LogLineForm>)>,
    /// The controller's clock at its last beat.
    beat: u64,
    read_every: Option<Duration>,
    /// The devices are to be read immediately.
    looks: bool,
    /// The number of readings so far, from which figures vary.
    rounds: u64,
}

struct Engine {
    model: String,
    kept: KeptForm,
    pid: u32,
    /// The indices of its devices.
    devices: Vec<u32>,
    bytes_per_device: u64,
    phase: Phase,
}

#[derive(Clone, Copy)]
enum Phase {
    Loads { until: Instant },
    Ready { since: Instant },
    Ends { at: Instant },
}

/// The devices of any simulated node, by the names that it gives them.
pub fn devices(nth: u32) -> Vec<NodeDevice> {
    let name = |index: u32| format!("gpu{index}");
    let device = |index: u32| NodeDevice {
        name: name(index),
        is_gpu: true,
        kind: None,
        partition: None,
        variable: None,
        is_unified: false,
        has_mps: false,
        index,
        uuid: Some(format!("GPU-{nth:08x}-0000-0000-0000-{index:012x}")),
        total: DEVICE_BYTES,
        installed: DEVICE_BYTES,
        headroom: HEADROOM_BYTES,
        product_name: Some("NVIDIA H100 80GB HBM3".to_owned()),
        product: 0,
        pci: Some(format!("00000000:{:02X}:00.0", 0x10 + index)),
        links: (0..DEVICES)
            .filter(|other| *other != index)
            .map(|other| (name(other), NodeLinkKind::NvLink))
            .collect(),
        labels: Vec::new(),
    };
    (0..DEVICES).map(device).collect()
}

impl Machine {
    pub fn new(nth: u32, load: Duration) -> Machine {
        Machine {
            nth,
            load,
            inner: Mutex::default(),
            news: Notify::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Handles a frame from the controller. An error ends the connection.
    pub fn hear(&self, frame: FromController, now: Instant) -> Result<(), String> {
        match frame {
            FromController::Order(order) => self.obey(order, now)?,
            FromController::Beat {
                at,
                received,
                read_every_ms,
                activity: _,
            } => {
                let mut inner = self.lock();
                inner.beat = at;
                while inner
                    .reports
                    .front()
                    .is_some_and(|(number, _)| *number <= received)
                {
                    inner.reports.pop_front();
                }
                let wish = Duration::from_millis(read_every_ms);
                let wish = wish.clamp(READ_EVERY_MIN, READ_EVERY);
                if inner
                    .read_every
                    .replace(wish)
                    .is_none_or(|known| wish < known)
                {
                    self.news.notify_one();
                }
            }
            FromController::Refused(refused) => return Err(refused.message),
            FromController::Accepted(_) => return Err("the controller greets twice".to_owned()),
        }
        Ok(())
    }

    fn obey(&self, order: Order, now: Instant) -> Result<(), String> {
        let mut inner = self.lock();
        match order {
            Order::Start(start) => inner.start(*start, now + self.load),
            Order::Stop { replica, .. } => {
                if let Some(engine) = inner.engines.get_mut(&replica) {
                    engine.phase = match engine.phase {
                        // A load has nothing to finish.
                        Phase::Loads { .. } => Phase::Ends { at: now },
                        Phase::Ready { .. } => Phase::Ends { at: now + STOPS_IN },
                        ends @ Phase::Ends { .. } => ends,
                    };
                }
            }
            Order::Command { replica, sleep, .. } => inner.report(NodeReport::Commanded {
                replica,
                sleep,
                outcome: Ok(()),
            }),
            Order::Leave { why } => return Err(format!("it is to leave: {why}")),
        }
        drop(inner);
        self.news.notify_one();
        Ok(())
    }

    /// Advances engines that are ready or have ended by `now`. Returns the number that have become ready.
    pub fn go_on(&self, now: Instant) -> u32 {
        let mut inner = self.lock();
        let is_due = |engine: &Engine| engine.due().is_some_and(|at| at <= now);
        let due = inner.engines.iter().filter(|(_, engine)| is_due(engine));
        let due: Vec<u64> = due.map(|(&replica, _)| replica).collect();
        let mut ready = 0;
        for replica in due {
            let Some(engine) = inner.engines.get_mut(&replica) else {
                continue;
            };
            if let Phase::Loads { .. } = engine.phase {
                engine.phase = Phase::Ready { since: now };
                ready += 1;
                let took_ms = milliseconds(self.load);
                inner.engine_report(replica, EngineReport::Ready { took_ms });
            } else {
                inner.engines.remove(&replica);
                inner.looks = true;
                inner.engine_report(replica, EngineReport::Exited(ended()));
            }
        }
        ready
    }

    /// The time of the next change.
    pub fn due(&self) -> Option<Instant> {
        let inner = self.lock();
        inner.engines.values().filter_map(Engine::due).min()
    }

    /// Slightly changes the host memory of an engine, as Python programs do.
    pub fn memory_changes(&self) {
        let mut inner = self.lock();
        let ready = inner.engines.iter();
        let ready = ready.filter(|(_, engine)| matches!(engine.phase, Phase::Ready { .. }));
        let ready: Vec<u64> = ready.map(|(&replica, _)| replica).collect();
        let round = inner.rounds;
        let Some(&replica) = ready.get(round as usize % ready.len().max(1)) else {
            return;
        };
        let now = HOST_BYTES + round % 5 * 2 * MIB;
        let peak = HOST_BYTES + 8 * MIB;
        inner.engine_report(replica, EngineReport::Memory { now, peak });
    }

    /// The next frame that the controller lacks: first all reports after `sent`, then the list of running engines, then logs.
    pub fn next_frame(
        &self,
        sent: &mut u64,
        is_listed: &mut bool,
        now: Instant,
    ) -> Option<FromNode> {
        let mut inner = self.lock();
        let next = inner.reports.iter().find(|(number, _)| *number > *sent);
        if let Some((number, report)) = next.cloned() {
            *sent = number;
            return Some(FromNode::Report { number, report });
        }
        if !std::mem::replace(is_listed, true) {
            return Some(FromNode::Running(inner.running(now)));
        }
        let (replica, lines) = inner.logs.pop_front()?;
        Some(FromNode::Log { replica, lines })
    }

    /// The time of the next reading of the devices. `last` is the time of the previous one.
    pub fn reads_at(&self, last: Instant) -> Instant {
        let inner = self.lock();
        if inner.looks {
            last
        } else {
            last + inner.read_every.unwrap_or(READ_EVERY)
        }
    }

    /// A reading of all devices, as NVML reports it.
    pub fn read(&self) -> FromNode {
        let mut inner = self.lock();
        inner.looks = false;
        inner.rounds += 1;
        let round = inner.rounds + u64::from(self.nth);
        let reading = |index: u32| {
            let on = |engine: &&Engine| engine.devices.contains(&index);
            let held = |engine: &Engine| match engine.phase {
                // Its weights are loaded gradually.
                Phase::Loads { .. } => engine.bytes_per_device / 2,
                _ => engine
                    .bytes_per_device
                    .saturating_sub(GIB + round % 7 * 16 * MIB),
            };
            let replicas: Vec<(u64, u64)> = inner
                .engines
                .iter()
                .filter(|(_, engine)| on(engine))
                .map(|(&replica, engine)| (replica, held(engine)))
                .collect();
            let own: u64 = replicas.iter().map(|(_, bytes)| bytes).sum();
            NodeReading {
                device: format!("gpu{index}"),
                total: DEVICE_BYTES,
                used: own,
                own,
                foreign: 0,
                replicas,
                utilisation_percent: Some(((round * 13 + u64::from(index) * 7) % 100) as u32),
                temperature_celsius: Some(40 + (round % 30) as u32),
                energy_mj: Some(round * 300_000),
                power_mw: None,
            }
        };
        FromNode::Readings(NodeReadings {
            since_beat: inner.beat,
            devices: (0..DEVICES).map(reading).collect(),
            faults: Vec::new(),
            machine: Some(MachineForm {
                total: 1024 * GIB,
                available: 900 * GIB - round % 11 * GIB,
            }),
            weights: Some(WeightsReport {
                at_once: 2,
                ..WeightsReport::default()
            }),
        })
    }
}

impl Inner {
    /// A repeated order changes nothing.
    fn start(&mut self, start: Start, until: Instant) {
        let Start { launch, kept, .. } = start;
        let replica = launch.replica;
        if self.engines.contains_key(&replica) {
            return;
        }
        let pid = u32::try_from(FIRST_PID + replica).unwrap_or(u32::MAX);
        let line = |(sequence, text): (u64, &str)| LogLineForm {
            sequence,
            at_ms: 0,
            is_stderr: sequence % 2 == 1,
            text: text.to_owned(),
        };
        let lines = ["loading weights", "capturing graphs", "ready"];
        let lines = (0..).zip(lines).map(line).collect();
        self.logs.push_back((replica, lines));
        self.engines.insert(
            replica,
            Engine {
                model: launch.model,
                kept,
                pid,
                devices: launch.devices.iter().map(|device| device.index).collect(),
                bytes_per_device: launch.bytes_per_device,
                phase: Phase::Loads { until },
            },
        );
        self.engine_report(replica, EngineReport::Started { pid });
    }

    fn engine_report(&mut self, replica: u64, report: EngineReport) {
        self.report(NodeReport::Engine { replica, report });
    }

    fn report(&mut self, report: NodeReport) {
        self.last += 1;
        self.reports.push_back((self.last, report));
    }

    fn running(&self, now: Instant) -> Vec<RunningEngine> {
        let ready_for = |engine: &Engine| match engine.phase {
            Phase::Ready { since } => Some(milliseconds(now - since)),
            _ => None,
        };
        let engines = self.engines.iter();
        engines
            .map(|(&replica, engine)| RunningEngine {
                replica,
                model: engine.model.clone(),
                kept: engine.kept.clone(),
                pid: Some(engine.pid),
                ready_for_ms: ready_for(engine),
                idle_for_ms: None,
                asleep: false,
                ending: matches!(engine.phase, Phase::Ends { .. }),
            })
            .collect()
    }
}

impl Engine {
    /// The time its next phase begins on its own.
    fn due(&self) -> Option<Instant> {
        match self.phase {
            Phase::Loads { until } => Some(until),
            Phase::Ends { at } => Some(at),
            Phase::Ready { .. } => None,
        }
    }
}

fn ended() -> ExitReport {
    ExitReport {
        requested: true,
        status: "exit status 0".to_owned(),
        last_output: String::new(),
        oom: None,
        failure: Failure::Crashed,
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
