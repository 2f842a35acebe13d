//! The engines of replicas: their processes, gates and logs.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tokio::sync::oneshot;

use super::gate::Gate;
use super::seats_taken::use_of;
use super::snapshot::ProcessFacts;
use engine::{Guardians, ReplicaLog, ServeWriters};
use pool::{GateReading, ModelId, ReplicaId};

pub(super) struct Engines {
    pub guardians: Arc<Guardians>,
    /// Of the models in Ray Serve.
    pub serve_writers: Arc<ServeWriters>,
    pub gates: BTreeMap<ReplicaId, Arc<Gate>>,
    /// A model waits for room; shared with the gates.
    pub idle_matters: Arc<AtomicBool>,
    /// The gates as they were last read.
    readings: BTreeMap<ReplicaId, GateReading>,
    pub processes: BTreeMap<ReplicaId, ProcessFacts>,
    /// The last logs of each model, kept after their engines are gone.
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
            readings: BTreeMap::new(),
            processes: BTreeMap::new(),
            logs: BTreeMap::new(),
            stops: BTreeMap::new(),
        }
    }

    /// Replicas with requests inside, as the gates were when they were last read.
    pub fn busy(&self) -> Vec<(ReplicaId, u32)> {
        let busy = self.readings.values().filter(|it| it.in_flight > 0);
        busy.map(|it| (it.replica, it.in_flight)).collect()
    }

    /// Readings that changed since the last time. The guardians hear of them too.
    pub fn read_gates(&mut self) -> Vec<GateReading> {
        let (readings, guardians) = (&mut self.readings, &self.guardians);
        self.gates
            .iter()
            .filter_map(|(&replica, gate)| {
                let reading = gate.reading();
                if readings.insert(replica, reading) == Some(reading) {
                    return None;
                }
                guardians.used(replica, use_of(&reading));
                Some(reading)
            })
            .collect()
    }

    /// Forgets the gate of a replica that is gone.
    pub fn drop_gate(&mut self, replica: ReplicaId) -> Option<Arc<Gate>> {
        self.readings.remove(&replica);
        self.gates.remove(&replica)
    }
}
