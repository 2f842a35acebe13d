//! Reads the devices periodically, off the async threads, and sends the readings to the loop. `src/pool/plan/readings.rs` decides
//! the interval. A device that cannot be read keeps its last figures.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::{Notify, mpsc};

use crate::clock::Clock;
use crate::control::FIRST_NUMBER;
use crate::messages::{Message, Readings};
use crate::view::Snapshot;
use inventory::{self, DeviceEvent, DeviceTrouble, Inventory};
use pool::{NodeId, ReplicaId, Time, reading_interval};

/// A reading that takes longer is reported as failed; its figures count when they arrive.
const READ_MAX: Duration = Duration::from_secs(5);

pub(crate) async fn run(
    inventory: Inventory,
    snapshot: Arc<ArcSwap<Snapshot>>,
    inbox: mpsc::UnboundedSender<Message>,
    clock: Clock,
    look: Arc<Notify>,
) {
    let inventory = Arc::new(inventory);
    let trouble = inbox.clone();
    let _watch = inventory.events(move |event| {
        let _ = trouble.send(Message::DeviceTrouble(event));
    });
    let shared = inventory.provider().measures_devices();
    loop {
        // Excludes replicas on nodes: their process ids belong to other machines and may match unrelated processes here.
        let leaders: BTreeMap<u32, ReplicaId> = snapshot
            .load()
            .processes
            .iter()
            .filter(|(_, process)| is_here(process.node))
            .flat_map(|(&replica, process)| {
                let leaders = [process.pid, process.contained].into_iter().flatten();
                leaders.map(move |pid| (pid, replica))
            })
            .collect();
        let began = clock.now();
        let reader = Arc::clone(&inventory);
        let mut reading = tokio::task::spawn_blocking(move || {
            let owners = engine::with_children(&leaders);
            let ours: BTreeSet<u32> = owners.keys().copied().collect();
            let mut readings = Readings {
                node: None,
                began,
                devices: Vec::new(),
                own: BTreeMap::new(),
                faults: BTreeMap::new(),
                fault: None,
                lost: Vec::new(),
                owners,
                machine: reader.memory_for_sleepers(),
            };
            for (device, reading) in reader.measure(&ours) {
                match reading {
                    Ok(used) => readings.devices.push(used),
                    Err(fault) => {
                        if fault.is_lost() {
                            let what = DeviceTrouble::Lost;
                            readings.lost.push(DeviceEvent { device, what });
                        }
                        readings.faults.insert(device, fault.to_string());
                    }
                }
            }
            readings
        });
        let done = match tokio::time::timeout(READ_MAX, &mut reading).await {
            Ok(done) => done,
            Err(_) => {
                if inbox.send(Message::Readings(late(began))).is_err() {
                    return;
                }
                reading.await
            }
        };
        match done {
            Ok(readings) => {
                if inbox.send(Message::Readings(readings)).is_err() {
                    return;
                }
            }
            Err(error) => tracing::error!(%error, "reading the devices panicked"),
        }
        let settles = snapshot
            .load()
            .on_nodes
            .iter()
            .any(|(&node, on_node)| on_node.settles && is_here(node));
        let pause = reading_interval(settles, shared);
        tokio::select! {
            () = ticks::pause(Duration::from_millis(pause.0)) => {}
            // Reads immediately after a process has ended, to see the memory it held.
            () = look.notified() => {}
        }
    }
}

/// Returns true for this machine's nodes: its fixed devices may be spread over several.
fn is_here(node: NodeId) -> bool {
    node < NodeId(FIRST_NUMBER)
}

/// The report for a reading that is late.
fn late(began: Time) -> Readings {
    Readings {
        node: None,
        began,
        devices: Vec::new(),
        own: BTreeMap::new(),
        faults: BTreeMap::new(),
        lost: Vec::new(),
        fault: Some(format!(
            "the driver has not answered for {} s",
            READ_MAX.as_secs()
        )),
        owners: BTreeMap::new(),
        machine: None,
    }
}
