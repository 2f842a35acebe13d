//! The engines of replicas: their processes, gates and logs.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::gates::seat_counts::use_of;
use crate::gates::{ChangedGates, Gate};
use crate::view::ProcessFacts;
use engine::{Guardians, ReplicaLog, ServeWriters};
use pool::{GateReading, ModelId, ReplicaId};

pub(crate) struct Engines {
    pub guardians: Arc<Guardians>,
    /// Writers of the models in Ray Serve.
    pub serve_writers: Arc<ServeWriters>,
    pub gates: BTreeMap<ReplicaId, Arc<Gate>>,
    /// True while a model waits for memory. Shared with the gates.
    pub idle_matters: Arc<AtomicBool>,
    /// Shared with the gates.
    pub changed_gates: ChangedGates,
    /// Buffer for the gates to read, reused across turns.
    to_read: Vec<ReplicaId>,
    /// The last reading of each gate.
    readings: BTreeMap<ReplicaId, GateReading>,
    /// Replicas with requests inside, by the last readings.
    busy: BTreeSet<ReplicaId>,
    pub processes: BTreeMap<ReplicaId, ProcessFacts>,
    /// The latest logs of each model, kept after their engines have ended.
    pub logs: BTreeMap<ModelId, VecDeque<(ReplicaId, Arc<ReplicaLog>)>>,
    pub stops: BTreeMap<ReplicaId, oneshot::Sender<Duration>>,
}

impl Engines {
    pub fn new(guardians: Arc<Guardians>, serve_writers: Arc<ServeWriters>) -> Engines {
        Engines {
            guardians,
            serve_writers,
            gates: BTreeMap::new(),
            idle_matters: Arc::default(),
            changed_gates: ChangedGates::default(),
            to_read: Vec::new(),
            readings: BTreeMap::new(),
            busy: BTreeSet::new(),
            processes: BTreeMap::new(),
            logs: BTreeMap::new(),
            stops: BTreeMap::new(),
        }
    }

    /// Replicas with requests inside and their number, by the last readings.
    pub fn busy(&self) -> Vec<(ReplicaId, u32)> {
        let in_flight = |id: &ReplicaId| Some((*id, self.readings.get(id)?.in_flight));
        self.busy.iter().filter_map(in_flight).collect()
    }

    pub fn is_busy(&self) -> bool {
        !self.busy.is_empty()
    }

    /// Reads the changed gates and returns the readings that differ from the last ones. Passes them to the guardians too.
    pub fn read_gates(&mut self) -> Vec<GateReading> {
        let mut news = Vec::new();
        let mut changed = std::mem::take(&mut self.to_read);
        self.changed_gates.take(&mut changed);
        for &replica in &changed {
            let Some(gate) = self.gates.get(&replica) else {
                continue;
            };
            let reading = gate.read();
            if self.readings.insert(replica, reading) == Some(reading) {
                continue;
            }
            if reading.in_flight > 0 {
                self.busy.insert(replica);
            } else {
                self.busy.remove(&replica);
            }
            self.guardians.used(replica, use_of(&reading));
            news.push(reading);
        }
        self.to_read = changed;
        news
    }

    /// Forgets the gate of a replica that has ended.
    pub fn drop_gate(&mut self, replica: ReplicaId) -> Option<Arc<Gate>> {
        self.readings.remove(&replica);
        self.busy.remove(&replica);
        self.guardians.forget_use(replica);
        self.gates.remove(&replica)
    }
}
