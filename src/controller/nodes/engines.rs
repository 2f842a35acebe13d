//! Engines on nodes: launches, adoption of engines of an earlier controller (D2), commands that put them to sleep, and readings of
//! a node's devices.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::control::{Control, watch};
use crate::engines::adoption::arguments_problem;
use crate::messages::{Message, ParkRequest, ParkingResult, Readings};
use catalog::Entry;
use engine::{Launch, LaunchFacts, LivenessLimits, ReplicaLog};
use inventory::{DeviceUse, EnergyFigure};
use node_link::{KeptForm, LaunchForm, NodeReadings, Order, RunningEngine, Start};
use pool::{Bytes, DeviceId, Event, ModelId, NodeId, ReplicaId, Share, Span, Time};

/// Signs of activity arrive some hundred milliseconds later than on the controller's machine.
const LIVENESS_MIN: Duration = Duration::from_secs(2);

/// Stop grace of engines that the pool has given up.
const STOP_GRACE_MS: u64 = 10_000;

impl Control {
    /// Orders the node to start the engine. Its reports arrive over the node's connection.
    pub(crate) fn launch_on(
        &self,
        node: NodeId,
        model: ModelId,
        launch: Launch,
        kept: LaunchFacts,
    ) {
        let member = launch.member.clone();
        let mut launch = LaunchForm::new(launch);
        let limits = &mut launch.limits;
        *limits = LivenessLimits {
            stall_after: limits.stall_after.max(LIVENESS_MIN),
            first_token_after: limits.first_token_after.max(LIVENESS_MIN),
            ..limits.clone()
        };
        let start = Start {
            launch,
            kept: KeptForm {
                member,
                ..KeptForm::new(kept)
            },
            weights: self.weights_form(node, model),
        };
        self.nodes.order(node, Order::Start(Box::new(start)));
    }

    /// Adopts an engine that runs on a node and that this controller did not start.
    pub(crate) fn adopt_from(
        &mut self,
        node: NodeId,
        engine: &RunningEngine,
    ) -> Result<Option<Event>, String> {
        if engine.ending {
            return Err("it was ordered to stop".to_owned());
        }
        if engine.ready_for_ms.is_none() {
            return Err("it was not ready".to_owned());
        }
        if engine.asleep {
            return Err("it was asleep".to_owned());
        }
        if self.config.pool.on_restart == config::OnRestart::Stop {
            return Err("pool.on_restart is stop".to_owned());
        }
        let model = self.models.find(&engine.model);
        let Some((model, facts)) = model.and_then(|id| Some((id, self.models.get(id)?))) else {
            return Err("the model is no longer in the catalogue".to_owned());
        };
        if let Some(problem) = arguments_problem(&engine.kept.arguments, &facts.entry) {
            return Err(problem);
        }
        let entry = Arc::clone(&facts.entry);
        let placement = self.kept_placement(node, engine)?;
        let replica = ReplicaId(engine.replica);
        let Some(member) = &engine.kept.member else {
            return self
                .adopts(model, &entry, engine, (node, replica), placement)
                .map(Some);
        };
        let whole =
            self.nodes
                .returning
                .returns(replica, member, (node, engine.clone(), placement));
        let Some(processes) = whole else {
            return Ok(None);
        };
        let (leader, first, _) = processes.first().ok_or("it has no leader")?.clone();
        let placement = processes
            .iter()
            .flat_map(|(.., part)| part)
            .copied()
            .collect();
        let adopted = self.adopts(model, &entry, &first, (leader, replica), placement)?;
        for (node, engine, _) in &processes {
            self.member_started(*node, replica, engine.pid);
        }
        Ok(Some(adopted))
    }

    /// The devices that an engine of an earlier controller holds.
    fn kept_placement(&self, node: NodeId, engine: &RunningEngine) -> Result<Vec<Share>, String> {
        let mut placement = Vec::new();
        for share in &engine.kept.placement {
            let of_node = self.nodes.devices(node);
            let device = of_node
                .into_iter()
                .find(|id| self.devices.key(*id) == share.device);
            let device =
                device.ok_or_else(|| format!("its device {} is not there", share.device))?;
            let bytes = Bytes(share.bytes);
            placement.push(Share { device, bytes });
        }
        Ok(placement)
    }

    /// Adopts a running engine with these devices, which the gateway reaches on this node.
    fn adopts(
        &mut self,
        model: ModelId,
        entry: &Entry,
        engine: &RunningEngine,
        (node, replica): (NodeId, ReplicaId),
        placement: Vec<Share>,
    ) -> Result<Event, String> {
        let ready_for_ms = engine.ready_for_ms.unwrap_or_default();
        let endpoint = self
            .nodes
            .endpoint(node, replica)
            .ok_or("its node is not there")?;
        let log = Arc::new(ReplicaLog::in_memory());
        let watch = watch(entry, &self.config.pool);
        self.know(replica, model, &placement, &log, &watch.activity);
        if let Some(facts) = self.engines.get_mut(replica) {
            facts.arguments = engine.kept.arguments.clone();
            facts.pid = engine.pid;
            facts.stage = None;
            facts.ready = true;
        }
        self.make_gate(replica, model, endpoint);
        self.offer(replica, model);
        let now = self.clock.now();
        tracing::info!(
            "adopted {} ({replica}) on node {}, which kept running without us (D2)",
            engine.model,
            self.nodes.name(node).unwrap_or_default()
        );
        Ok(Event::ReplicaAdopted {
            replica,
            model,
            placement,
            ready_for: Span(ready_for_ms),
            in_flight: 0,
            last_end: engine
                .idle_for_ms
                .map(|ago| Time(now.0.saturating_sub(ago))),
        })
    }

    /// Orders the node to run a command that puts its engine to sleep or wakes it.
    pub(crate) fn command_on(
        &self,
        node: NodeId,
        replica: ReplicaId,
        sleep: bool,
        words: Vec<String>,
        deadline: Span,
    ) {
        self.nodes.order(
            node,
            Order::Command {
                replica: replica.0,
                sleep,
                words,
                deadline_ms: deadline.0,
            },
        );
    }

    pub(crate) fn commanded(
        &mut self,
        replica: ReplicaId,
        sleep: bool,
        outcome: Result<(), String>,
    ) {
        let request = if sleep {
            ParkRequest::Sleep
        } else {
            ParkRequest::Wake
        };
        self.parked(ParkingResult {
            replica,
            request,
            outcome,
        });
    }

    /// Handles a node's readings of its devices.
    pub(crate) fn node_readings(&mut self, node: NodeId, mut readings: NodeReadings) {
        if let Some(event) = self.node_weights(node, readings.weights.take()) {
            self.turn(event);
        }
        let device = |name: &str| self.nodes.device(node, name);
        let mut own: BTreeMap<DeviceId, BTreeMap<ReplicaId, Bytes>> = BTreeMap::new();
        let mut devices = Vec::new();
        for reading in &readings.devices {
            let Some(id) = device(&reading.device) else {
                continue;
            };
            let held = reading.replicas.iter();
            let held = held.map(|&(replica, bytes)| (ReplicaId(replica), Bytes(bytes)));
            own.insert(id, held.collect());
            devices.push(DeviceUse {
                id,
                total: Bytes(reading.total),
                used: Bytes(reading.used),
                own: Bytes(reading.own),
                foreign: Bytes(reading.foreign),
                processes: Vec::new(),
                utilisation_percent: reading.utilisation_percent,
                temperature_celsius: reading.temperature_celsius,
                energy: {
                    let counter = reading.energy_mj.map(EnergyFigure::Counter);
                    counter.or(reading.power_mw.map(EnergyFigure::Power))
                },
            });
        }
        let faults = readings.faults.iter();
        let faults = faults.filter_map(|(name, why)| Some((device(name)?, why.clone())));
        self.readings(Readings {
            node: Some(node),
            // Never later than now, whatever the node reports.
            began: Time(readings.since_beat).min(self.clock.now()),
            devices,
            faults: faults.collect(),
            fault: None,
            lost: Vec::new(),
            owners: BTreeMap::new(),
            own,
            machine: readings.machine.map(Into::into),
        });
    }

    /// Orders the node to stop an engine. Repeating the order has no effect.
    pub(crate) fn stop_on(&self, node: NodeId, replica: ReplicaId, grace: Span) {
        self.nodes.order(
            node,
            Order::Stop {
                replica: replica.0,
                grace_ms: grace.0,
            },
        );
    }

    /// Computes the needs of all models again for new devices, which affect the allowed devices and the known kinds. Runs once for
    /// all nodes that join before it starts: a thousand may join after a start of the controller.
    pub(crate) fn figure_for_devices(&mut self) {
        let is_it = |message: &Message| matches!(message, Message::FigureForDevices);
        if !self.models.has_queued(is_it) {
            self.models.queue(Message::FigureForDevices);
        }
        self.next_change();
    }

    /// The stored cordons of devices that have come with the node.
    pub(crate) fn cordons_of_node(&mut self, node: NodeId) -> Vec<Event> {
        let mut events = Vec::new();
        for device in self.nodes.devices(node) {
            let key = self.devices.key(device);
            if let Some(cordon) = self.nodes.take_cordon(&key) {
                events.push(Event::CordonRestored { device, cordon });
            }
        }
        events
    }

    /// Ends an engine on a node that the pool has given up.
    pub(crate) fn disown(&self, node: NodeId, replica: ReplicaId) {
        self.nodes.order(
            node,
            Order::Stop {
                replica: replica.0,
                grace_ms: STOP_GRACE_MS,
            },
        );
    }
}
