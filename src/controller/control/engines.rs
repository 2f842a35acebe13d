//! The engines of replicas: their processes, gates and logs.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use super::devices::{Devices, kind_name};
use super::ledger::Ledger;
use super::models::Models;
use crate::gates::{BatchRoom, ChangedGates, Gate, GateReports, ToLoop};
use crate::messages::Message;
use crate::view::ProcessFacts;
use config::Provider;
use engine::{Guardians, ReplicaLog, Use};
use pool::{Bytes, DeviceId, GateReading, ModelId, NodeId, ReplicaId, ReplicaKeys, Time};
use store::Circumstances;

/// Number of logs of ended engines kept per model.
const LOGS_MAX: usize = 3;

pub(crate) struct Engines {
    guardians: Arc<Guardians>,
    gates: BTreeMap<ReplicaId, Arc<Gate>>,
    /// True while a model waits for memory. Shared with the gates.
    idle_matters: Arc<AtomicBool>,
    /// Shared with the gates.
    changed_gates: ChangedGates,
    /// Shared with the gates and the runner of batches.
    batch_room: Arc<BatchRoom>,
    /// Buffer for the gates to read, reused across turns.
    to_read: Vec<ReplicaId>,
    /// The last reading of each gate.
    readings: BTreeMap<ReplicaId, GateReading>,
    /// Replicas with requests inside, by the last readings.
    busy: BTreeSet<ReplicaId>,
    processes: BTreeMap<ReplicaId, ProcessFacts>,
    /// The latest logs of each model, kept after their engines have ended.
    logs: BTreeMap<ModelId, VecDeque<(ReplicaId, Arc<ReplicaLog>)>>,
    stops: BTreeMap<ReplicaId, oneshot::Sender<Duration>>,
}

impl Engines {
    pub fn new(guardians: Arc<Guardians>) -> Engines {
        Engines {
            guardians,
            gates: BTreeMap::new(),
            idle_matters: Arc::default(),
            changed_gates: ChangedGates::default(),
            batch_room: Arc::default(),
            to_read: Vec::new(),
            readings: BTreeMap::new(),
            busy: BTreeSet::new(),
            processes: BTreeMap::new(),
            logs: BTreeMap::new(),
            stops: BTreeMap::new(),
        }
    }

    pub fn guardians(&self) -> Arc<Guardians> {
        Arc::clone(&self.guardians)
    }

    /// The facts of every replica that has a process or is about to.
    pub fn facts(&self) -> &BTreeMap<ReplicaId, ProcessFacts> {
        &self.processes
    }

    pub fn iter(&self) -> impl Iterator<Item = (ReplicaId, &ProcessFacts)> {
        self.processes
            .iter()
            .map(|(&replica, facts)| (replica, facts))
    }

    pub fn contains(&self, replica: ReplicaId) -> bool {
        self.processes.contains_key(&replica)
    }

    pub fn get(&self, replica: ReplicaId) -> Option<&ProcessFacts> {
        self.processes.get(&replica)
    }

    pub fn get_mut(&mut self, replica: ReplicaId) -> Option<&mut ProcessFacts> {
        self.processes.get_mut(&replica)
    }

    /// The replicas on this node.
    pub fn on_node(&self, node: NodeId) -> Vec<ReplicaId> {
        let on = self.iter().filter(|(_, process)| process.is_on(node));
        on.map(|(replica, _)| replica).collect()
    }

    /// Adds a replica, and its log to the latest of its model.
    pub fn add(&mut self, replica: ReplicaId, facts: ProcessFacts) {
        let logs = self.logs.entry(facts.model).or_default();
        logs.push_back((replica, Arc::clone(&facts.log)));
        while logs.len() > LOGS_MAX {
            logs.pop_front();
        }
        self.processes.insert(replica, facts);
    }

    /// Forgets the process of a replica, and the way to stop it.
    pub fn remove(&mut self, replica: ReplicaId) -> Option<ProcessFacts> {
        self.stops.remove(&replica);
        self.processes.remove(&replica)
    }

    /// Sets the sender that stops the engine of a replica. An engine ends if its sender is dropped.
    pub fn stop_with(&mut self, replica: ReplicaId, stop: oneshot::Sender<Duration>) {
        self.stops.insert(replica, stop);
    }

    /// Stops the engine of a replica on this machine.
    pub fn stop(&mut self, replica: ReplicaId, grace: Duration) {
        if let Some(stop) = self.stops.remove(&replica) {
            let _ = stop.send(grace);
        }
    }

    /// The latest logs of each model.
    pub fn logs(&self) -> BTreeMap<ModelId, Vec<(ReplicaId, Arc<ReplicaLog>)>> {
        let logs = self.logs.iter();
        logs.map(|(&model, logs)| (model, logs.iter().cloned().collect()))
            .collect()
    }

    /// The signals of a gate to the loop.
    pub fn to_loop(&self, inbox: mpsc::UnboundedSender<Message>) -> ToLoop {
        ToLoop {
            reports: GateReports::new(move |report| {
                // Fails only while the process ends.
                let _ = inbox.send(Message::Gate(report));
            }),
            idle_matters: Arc::clone(&self.idle_matters),
            changed: self.changed_gates.clone(),
            batch_room: Arc::clone(&self.batch_room),
        }
    }

    pub fn batch_room(&self) -> Arc<BatchRoom> {
        Arc::clone(&self.batch_room)
    }

    /// Sets whether a model waits for memory. Returns the former value.
    pub fn set_idle_matters(&self, matters: bool) -> bool {
        self.idle_matters.swap(matters, Ordering::AcqRel)
    }

    pub fn gate(&self, replica: ReplicaId) -> Option<&Arc<Gate>> {
        self.gates.get(&replica)
    }

    pub fn add_gate(&mut self, gate: Gate) {
        self.gates.insert(gate.replica, Arc::new(gate));
    }

    /// Marks the gates of a node's replicas, to tell their requests why connections end.
    pub fn mark_away(&self, node: NodeId, is_away: bool) {
        let on_node = self.on_node(node).into_iter();
        let gates = on_node.filter_map(|replica| self.gate(replica));
        gates.for_each(|gate| gate.set_away(is_away));
    }

    /// Replicas with requests inside and their number, by the last readings.
    pub fn busy(&self) -> Vec<(ReplicaId, u32)> {
        let in_flight = |id: &ReplicaId| Some((*id, self.readings.get(id)?.in_flight));
        self.busy.iter().filter_map(in_flight).collect()
    }

    pub fn is_busy(&self) -> bool {
        !self.busy.is_empty()
    }

    /// Reads the changed gates and returns the readings that differ from the last ones, and the seats of each key there. Passes the
    /// readings to the guardians and to the ledger too.
    pub fn read_gates(
        &mut self,
        now: Time,
        ledger: &mut Ledger,
    ) -> (Vec<GateReading>, Vec<ReplicaKeys>) {
        let mut news = Vec::new();
        let mut keys = Vec::new();
        let mut changed = std::mem::take(&mut self.to_read);
        self.changed_gates.take(&mut changed);
        for &replica in &changed {
            let Some(gate) = self.gates.get(&replica) else {
                continue;
            };
            let reading = gate.read();
            if let Some((seats, used)) = gate.read_keys(now) {
                ledger.gate(now, &seats, used);
                keys.push(seats);
            }
            if self.readings.insert(replica, reading) == Some(reading) {
                continue;
            }
            if reading.in_flight > 0 {
                self.busy.insert(replica);
            } else {
                self.busy.remove(&replica);
            }
            let used = Use {
                busy: reading.in_flight > 0,
                last_end_ms: reading.last_end.map(|at| at.0),
            };
            self.guardians.used(replica, used);
            news.push(reading);
        }
        self.to_read = changed;
        (news, keys)
    }

    /// Host memory of the models on a node that are divided between GPUs and the host, beyond what their processes show. The
    /// system counts mapped weights as available, but engines that compute with them need all of them.
    pub fn mapped_parts(&self, models: &Models, node: NodeId) -> Bytes {
        let on_node = self.iter().filter(|(_, process)| process.node == node);
        let parts = on_node.filter_map(|(_, process)| {
            let split = models.get(process.model)?.split.as_ref()?;
            let shown = process.memory.unwrap_or_default();
            Some(split.host.saturating_sub(shown))
        });
        parts.fold(Bytes::ZERO, |sum, part| sum + part)
    }

    /// The largest memory measured on any device of the replica, and what it was measured for. `provider` is the way memory is
    /// counted on its node. `None` for devices of several kinds, to which one figure does not apply.
    pub fn peak(
        &self,
        replica: ReplicaId,
        model: String,
        devices: &Devices,
        provider: Provider,
    ) -> Option<(Bytes, Circumstances)> {
        let process = self.get(replica)?;
        let mut kinds: Vec<String> = process
            .devices
            .iter()
            .filter_map(|&id| Some(kind_name(&devices.get(id)?.info)))
            .collect();
        let devices = u32::try_from(kinds.len()).ok()?;
        kinds.dedup();
        let [kind] = kinds.as_slice() else {
            return None;
        };
        // Host memory does not show what an engine takes on a GPU, where NVML measures it instead.
        let peak = match provider {
            provider if provider.measures_devices() => process.device_peak?,
            // The processes on other nodes do not report theirs.
            _ if !process.members.is_empty() => return None,
            _ => Bytes(process.peak?.0 / u64::from(devices)),
        };
        let of = Circumstances {
            model,
            arguments: process.arguments.clone(),
            kind: kind.clone(),
            devices,
        };
        Some((peak, of))
    }

    /// Takes the memory that these devices show for each replica. Returns the ready replicas whose peak has grown: during a load,
    /// the peak is not reached yet.
    pub fn take_peaks(
        &mut self,
        devices: &Devices,
        read: &BTreeSet<DeviceId>,
    ) -> Vec<(ReplicaId, ModelId)> {
        let mut grown = Vec::new();
        for device in read.iter().filter_map(|&id| devices.get(id)) {
            for (&replica, &bytes) in &device.own {
                if let Some(process) = self.get_mut(replica)
                    && process.device_peak < Some(bytes)
                {
                    process.device_peak = Some(bytes);
                    if process.ready {
                        grown.push((replica, process.model));
                    }
                }
            }
        }
        grown.dedup();
        grown
    }

    /// Forgets the gate of a replica that has ended.
    pub fn drop_gate(&mut self, replica: ReplicaId) -> Option<Arc<Gate>> {
        self.readings.remove(&replica);
        self.busy.remove(&replica);
        self.guardians.forget_use(replica);
        self.gates.remove(&replica)
    }
}
