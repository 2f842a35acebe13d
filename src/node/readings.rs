//! Reads the node's devices every second, as often as the controller requests, and immediately after an engine has ended. Each
//! reading also lists the node's weights. Only the node knows which replica a process belongs to.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::machine::Machine;
use super::peer_server::PeerServer;
use super::weights::Weights;
use inventory::{DeviceTrouble, EnergyFigure, Inventory};
use node_link::{NodeReading, NodeReadings, NodeReport, WeightsReport};
use pool::{DeviceId, ReplicaId};

const READ_EVERY: Duration = Duration::from_secs(1);
/// The shortest interval that a controller may request.
const READ_EVERY_MIN: Duration = Duration::from_millis(50);

pub(super) async fn run(
    inventory: Arc<Inventory>,
    machine: Arc<Machine>,
    weights: Arc<Weights>,
    peers: Arc<PeerServer>,
) {
    weights.look().await;
    let names: BTreeMap<DeviceId, String> = inventory
        .devices()
        .iter()
        .map(|device| (device.id, device.name.clone()))
        .collect();
    let troubled = (Arc::clone(&machine), names.clone());
    let _watch = inventory.events(move |event| {
        let (machine, names) = &troubled;
        if let Some(device) = names.get(&event.device) {
            machine.report(NodeReport::Trouble {
                device: device.clone(),
                trouble: event.what.into(),
            });
        }
    });
    loop {
        let (since_beat, leaders, pause) = {
            let inner = machine.lock();
            let engines = inner.engines.iter();
            let leaders: BTreeMap<u32, ReplicaId> = engines
                .flat_map(|(&replica, engine)| {
                    let leaders = [engine.pid, engine.contained].into_iter().flatten();
                    leaders.map(move |pid| (pid, ReplicaId(replica)))
                })
                .collect();
            let pause = inner.read_every.unwrap_or(READ_EVERY);
            (inner.beat, leaders, pause.clamp(READ_EVERY_MIN, READ_EVERY))
        };
        let (reader, of) = (Arc::clone(&inventory), names.clone());
        let read = tokio::task::spawn_blocking(move || read(&reader, &of, &leaders, since_beat));
        match read.await {
            Ok((mut readings, lost)) => {
                readings.weights = Some(WeightsReport {
                    complete: weights.complete(),
                    readable: weights.readable(),
                    serving: peers.serving(),
                    at_once: peers.at_once(),
                });
                for device in lost {
                    machine.report(NodeReport::Trouble {
                        device,
                        trouble: DeviceTrouble::Lost.into(),
                    });
                }
                machine.lock().outbox.readings = Some(readings);
                machine.news.notify_one();
            }
            Err(error) => tracing::error!(%error, "reading the devices panicked"),
        }
        tokio::select! {
            () = ticks::pause(pause) => {}
            () = machine.look.notified() => {}
        }
    }
}

fn read(
    inventory: &Inventory,
    names: &BTreeMap<DeviceId, String>,
    leaders: &BTreeMap<u32, ReplicaId>,
    since_beat: u64,
) -> (NodeReadings, Vec<String>) {
    let owners = engine::with_children(leaders);
    let ours: BTreeSet<u32> = owners.keys().copied().collect();
    let mut lost = Vec::new();
    let mut readings = NodeReadings {
        since_beat,
        devices: Vec::new(),
        faults: Vec::new(),
        machine: inventory.memory_for_sleepers().map(Into::into),
        weights: None,
    };
    for (id, reading) in inventory.measure(&ours) {
        let Some(device) = names.get(&id).cloned() else {
            continue;
        };
        match reading {
            Ok(used) => {
                let mut replicas: BTreeMap<u64, u64> = BTreeMap::new();
                for (pid, bytes) in &used.processes {
                    if let Some(replica) = owners.get(pid) {
                        let held = replicas.entry(replica.0).or_default();
                        *held = held.saturating_add(bytes.0);
                    }
                }
                readings.devices.push(NodeReading {
                    device,
                    total: used.total.0,
                    used: used.used.0,
                    own: used.own.0,
                    foreign: used.foreign.0,
                    replicas: replicas.into_iter().collect(),
                    utilisation_percent: used.utilisation_percent,
                    temperature_celsius: used.temperature_celsius,
                    energy_mj: match used.energy {
                        Some(EnergyFigure::Counter(mj)) => Some(mj),
                        _ => None,
                    },
                    power_mw: match used.energy {
                        Some(EnergyFigure::Power(mw)) => Some(mw),
                        _ => None,
                    },
                });
            }
            Err(error) => {
                if error.is_lost() {
                    lost.push(device.clone());
                }
                readings.faults.push((device, error.to_string()));
            }
        }
    }
    (readings, lost)
}
