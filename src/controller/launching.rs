//! Engines of replicas: how a launch is put together from the catalogue's recipe and the placement,
//! and what an engine's reports mean for gates and readers.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::control::Control;
use super::gate::{Cut, Gate};
use super::handle::Message;
use super::snapshot::ProcessFacts;
use crate::catalog::{self, Entry, Recipe};
use crate::engine::{
    self, CandleDevice, CandleProgram, CommandProgram, DeviceAddress, DeviceKind, Launch, Listen,
    Program, ReplicaLog, Report, ServerProgram,
};
use crate::inventory;
use crate::pool::{Event, Exit, ModelId, ReplicaId, Share, Span};

/// Logs of engines that are gone, kept per model.
const LOGS_MAX: usize = 3;

impl Control {
    /// Starts the engine, or says at once why it cannot be started.
    pub(super) fn launch(
        &mut self,
        replica: ReplicaId,
        model: ModelId,
        placement: &[Share],
    ) -> Option<Event> {
        let launch = match self.launch_of(replica, model, placement) {
            Ok(launch) => launch,
            Err(message) => {
                return Some(Event::ReplicaExited {
                    replica,
                    exit: Exit::Failed { message },
                });
            }
        };
        let log = match ReplicaLog::open(&launch.log_dir, &launch.model_name, replica) {
            Ok(log) => Arc::new(log),
            Err(error) => {
                tracing::warn!(%error, model = launch.model_name, "the engine's log is kept in memory only");
                Arc::new(ReplicaLog::in_memory())
            }
        };
        let facts = ProcessFacts {
            pid: None,
            stage: Some("starting".to_owned()),
            percent: None,
            memory: None,
            peak: None,
            device_peak: None,
            devices: placement.iter().map(|share| share.device).collect(),
            arguments: self
                .facts
                .get(&model)
                .map_or_else(String::new, |facts| facts.entry.arguments()),
            ready: false,
            log: Arc::clone(&log),
            model,
        };
        self.processes.insert(replica, facts);
        let logs = self.logs.entry(model).or_default();
        logs.push_back((replica, Arc::clone(&log)));
        while logs.len() > LOGS_MAX {
            logs.pop_front();
        }
        let (stop, stopped) = oneshot::channel();
        self.stops.insert(replica, stop);
        let inbox = self.inbox.clone();
        let report = move |report| {
            let _ = inbox.send(Message::Report { replica, report });
        };
        self.tasks.spawn(engine::run(launch, log, stopped, report));
        self.look_for_weights(replica, model);
        None
    }

    /// Whether the weights lie in the host's memory already: then the disk is free for others (M1).
    fn look_for_weights(&mut self, replica: ReplicaId, model: ModelId) {
        let Some(path) = self
            .facts
            .get(&model)
            .and_then(|it| it.entry.weights_path())
        else {
            return;
        };
        let inbox = self.inbox.clone();
        self.tasks.spawn(async move {
            let tier = tokio::task::spawn_blocking(move || engine::tier_of(&path)).await;
            if let Ok(tier) = tier {
                let _ = inbox.send(Message::LoadsFrom { replica, tier });
            }
        });
    }

    fn launch_of(
        &self,
        replica: ReplicaId,
        model: ModelId,
        placement: &[Share],
    ) -> Result<Launch, String> {
        let facts = self
            .facts
            .get(&model)
            .ok_or("the model left the catalogue")?;
        let address = |share: &Share| {
            let info = &self.devices[&share.device].info;
            DeviceAddress {
                id: info.id,
                index: info.index,
                uuid: info.uuid.clone(),
                total: info.installed,
                kind: match info.kind {
                    inventory::DeviceKind::Host => DeviceKind::Host,
                    inventory::DeviceKind::Nvidia => DeviceKind::Nvidia,
                },
            }
        };
        Ok(Launch {
            replica,
            model_name: facts.entry.name.clone(),
            program: self.program(&facts.entry, placement)?,
            devices: placement.iter().map(address).collect(),
            bytes_per_device: placement
                .iter()
                .map(|share| share.bytes)
                .max()
                .unwrap_or_default(),
            runtime_dir: self.runtime_dir.clone(),
            log_dir: self.log_dir.clone(),
        })
    }

    fn program(&self, entry: &Entry, placement: &[Share]) -> Result<Program, String> {
        let wide = |number: u32| number as usize;
        let kind = |share: &Share| self.devices[&share.device].info.kind;
        let in_host_memory = placement
            .iter()
            .any(|share| kind(share) == inventory::DeviceKind::Host);
        Ok(match &entry.recipe {
            Recipe::Candle(recipe) => Program::Candle(CandleProgram {
                executable: self.executable.clone(),
                model_dir: recipe.model_path.clone(),
                context_tokens: recipe.context_tokens().map_err(|error| error.to_string())?
                    as usize,
                concurrency: wide(recipe.concurrency),
                threads: recipe.threads.map(wide),
                device: match recipe.device {
                    catalog::ComputeDevice::Cpu => CandleDevice::Cpu,
                    catalog::ComputeDevice::Cuda => CandleDevice::Cuda,
                    catalog::ComputeDevice::Metal => CandleDevice::Metal,
                },
                env: plain(&recipe.env),
            }),
            Recipe::Command(recipe) => Program::Command(CommandProgram {
                argv: recipe.command.clone(),
                env: plain(&recipe.env),
                listen: match recipe.listen {
                    catalog::Listen::Port => Listen::Port,
                    catalog::Listen::Socket => Listen::Socket,
                },
                ready_path: recipe.ready_path.clone(),
                model_path: recipe.model_path.clone().map(Into::into),
                served_model_name: recipe.served_model_name.clone(),
                working_dir: recipe.working_dir.clone(),
                context: recipe.context.map(wide),
            }),
            Recipe::Server(recipe) => Program::Server(ServerProgram {
                recipe: recipe.clone(),
                weights_per_device: u32::try_from(placement.len())
                    .ok()
                    .filter(|_| recipe.engine.needs_weights(in_host_memory))
                    .and_then(|devices| entry.weights_per_device(devices)),
            }),
        })
    }

    /// What an engine says of itself.
    pub(super) fn report(&mut self, replica: ReplicaId, report: Report) {
        let Some(facts) = self.processes.get_mut(&replica) else {
            return;
        };
        let model = facts.model;
        match report {
            Report::Started { pid, endpoint } => {
                facts.pid = Some(pid);
                facts.stage = Some("loading".to_owned());
                let Some(entry) = self.facts.get(&model).map(|facts| Arc::clone(&facts.entry))
                else {
                    return;
                };
                let served = entry.recipe.served_model_name().map(str::to_owned);
                let (clock, inbox) = (self.clock, self.inbox.clone());
                let gate = Gate::new(
                    replica,
                    endpoint,
                    served,
                    entry.seats_per_replica,
                    clock,
                    inbox,
                );
                self.gates.insert(replica, Arc::new(gate));
            }
            Report::Progress { stage, percent } => {
                (facts.stage, facts.percent) = (Some(stage), percent);
                self.turn(Event::Woke);
            }
            Report::Ready { took, memory } => {
                (facts.stage, facts.percent, facts.memory) = (None, None, memory);
                facts.peak = facts.peak.max(memory);
                facts.ready = true;
                let reload = Span(u64::try_from(took.as_millis()).unwrap_or(u64::MAX));
                self.measure(replica, model, Some(reload));
                self.offer(replica, model);
                self.turn(Event::ReplicaReady { replica });
            }
            Report::Memory { now, peak } => {
                facts.memory = Some(now);
                facts.peak = facts.peak.max(Some(peak));
                self.measure(replica, model, None);
            }
            Report::Exited(exit) => {
                self.measured_to_the_end(replica, model);
                self.processes.remove(&replica);
                self.stops.remove(&replica);
                let message = match exit.last_words.is_empty() {
                    true => exit.status.clone(),
                    false => format!("{} ({})", exit.last_words, exit.status),
                };
                if let Some(gate) = self.drop_gate(replica) {
                    gate.cut(Cut::Crashed(message.clone()));
                }
                self.withdraw(replica, model);
                let exit = match exit.lack {
                    _ if exit.asked => Exit::Asked,
                    Some(lack) => Exit::OutOfMemory {
                        message,
                        needed: lack.needed,
                    },
                    None => Exit::Failed { message },
                };
                self.turn(Event::ReplicaExited { replica, exit });
                self.publish();
                self.look.notify_one();
            }
        }
    }

    /// The replica's gate goes into the routing table; the pool opens it.
    fn offer(&self, replica: ReplicaId, model: ModelId) {
        if let (Some(route), Some(gate)) = (self.route(model), self.gates.get(&replica)) {
            let mut gates = route.gates.load().as_ref().clone();
            gates.push(Arc::clone(gate));
            route.gates.store(Arc::new(gates));
        }
    }

    fn withdraw(&self, replica: ReplicaId, model: ModelId) {
        if let Some(route) = self.route(model) {
            let mut gates = route.gates.load().as_ref().clone();
            gates.retain(|gate| gate.replica != replica);
            route.gates.store(Arc::new(gates));
        }
    }
}

fn plain(
    env: &std::collections::BTreeMap<String, catalog::Secret>,
) -> std::collections::BTreeMap<String, String> {
    env.iter()
        .map(|(name, value)| (name.clone(), value.0.clone()))
        .collect()
}
