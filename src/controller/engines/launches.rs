//! Launches the engines of replicas: builds a launch from the catalogue's recipe and the placement, and turns an engine's reports
//! into events, gates and snapshots.
//!
//! One file because a launch and the reports of its engine share the replica's record.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::control::Control;
use crate::gates::{CutReason, Gate};
use crate::messages::Message;
use crate::view::{LoadStage, ProcessFacts, remote_device};
use catalog::{Entry, Recipe};
use config::{Length, Provider};
use engine::{
    self, ActivityMeter, CandleDevice, CandleProgram, CommandProgram, DeviceAddress, Endpoint,
    EngineLoad, ExitReport, Failure, Launch, LaunchFacts, LivenessLimits, Program, ReplicaLog,
    Report, ServeProgram, ServerProgram, Stage, Watch,
};
use pool::{Event, Exit, ModelId, Remedy, ReplicaId, Share, Span, Tier};

impl Control {
    /// Starts the engine, or returns the reason it cannot start.
    pub(crate) fn launch(
        &mut self,
        replica: ReplicaId,
        model: ModelId,
        placement: &[Share],
    ) -> Option<Event> {
        // The load reads the disk itself.
        self.reader.now = None;
        let launch = match self.launch_of(replica, model, placement) {
            Ok(launch) => launch,
            Err(message) => {
                return Some(Event::ReplicaExited {
                    replica,
                    exit: Exit::Failed {
                        message,
                        remedy: Remedy::Time,
                    },
                });
            }
        };
        // Opens no file here, which may block.
        let log = ReplicaLog::in_memory().masking(launch.program.masking());
        let log = Arc::new(log);
        let kept = self.kept_of(model, placement);
        self.know(replica, model, placement, &log, &launch.watch.activity);
        let parts = self.devices.by_node(placement);
        if parts.len() > 1 {
            return self.launch_gang(replica, model, &launch, parts);
        }
        let node = self.devices.node_of(placement);
        if self.nodes.is_remote(node) {
            self.launch_on(node, model, launch, kept);
            return None;
        }
        let (stopped, report) = self.connect(replica);
        let guardians = self.engines.guardians();
        self.tasks
            .spawn(engine::run(guardians, launch, kept, log, stopped, report));
        self.look_for_weights(replica, model);
        None
    }

    /// The record of a launch that a later controller needs to adopt the engine.
    pub(crate) fn kept_of(&self, model: ModelId, placement: &[Share]) -> LaunchFacts {
        let entry = self.models.facts.get(&model).map(|facts| &facts.entry);
        let grace = entry.and_then(|entry| entry.stop_grace);
        let grace = grace.unwrap_or_else(|| pool::ModelSpec::default().stop_grace);
        LaunchFacts {
            placement: placement
                .iter()
                .map(|share| (self.devices.key(share.device), share.bytes))
                .collect(),
            arguments: self.models.arguments(model),
            served_model_name: entry
                .and_then(|entry| entry.recipe.served_model_name())
                .map(str::to_owned),
            stop_grace: Duration::from_millis(grace.0),
        }
    }

    /// Connects the task of an engine: the order to stop reaches it, and its reports reach the loop.
    pub(super) fn connect(
        &mut self,
        replica: ReplicaId,
    ) -> (
        oneshot::Receiver<Duration>,
        impl Fn(Report) + Send + Sync + 'static + use<>,
    ) {
        let (stop, stopped) = oneshot::channel();
        self.engines.stop_with(replica, stop);
        let inbox = self.inbox.clone();
        let report = move |report| {
            let _ = inbox.send(Message::Report { replica, report });
        };
        (stopped, report)
    }

    /// Records a replica that has a process or is about to.
    pub(crate) fn know(
        &mut self,
        replica: ReplicaId,
        model: ModelId,
        placement: &[Share],
        log: &Arc<ReplicaLog>,
        activity: &Arc<ActivityMeter>,
    ) {
        let facts = ProcessFacts {
            pid: None,
            contained: None,
            stage: Some(self.stage(Stage::Starting, None, None)),
            memory: None,
            peak: None,
            device_peak: None,
            devices: placement.iter().map(|share| share.device).collect(),
            load: EngineLoad::default(),
            took: None,
            arguments: self.models.arguments(model),
            ready: false,
            activity: Arc::clone(activity),
            dead: None,
            log: Arc::clone(log),
            model,
            node: self.devices.node_of(placement),
            members: self.members_of(placement),
        };
        self.nodes.know_log(facts.node, replica, log);
        self.engines.add(replica, facts);
    }

    /// The way memory is counted on the replica's node.
    pub(crate) fn provider_of(&self, replica: ReplicaId) -> Provider {
        let node = self.engines.get(replica).map(|facts| facts.node);
        let of_node = node.and_then(|node| self.nodes.provider(node));
        of_node.unwrap_or(self.devices.provider)
    }

    /// Checks whether the weights are in the page cache: then the load leaves the disk free for others (M1).
    fn look_for_weights(&mut self, replica: ReplicaId, model: ModelId) {
        let Some(path) = self
            .models
            .facts
            .get(&model)
            .and_then(|facts| facts.entry.weights_path())
        else {
            return;
        };
        let inbox = self.inbox.clone();
        self.tasks.spawn(async move {
            let look = move || (engine::tier_of(&path), engine::weights_mark(&path));
            if let Ok((tier, weights)) = tokio::task::spawn_blocking(look).await {
                let _ = inbox.send(Message::LoadsFrom {
                    replica,
                    tier,
                    weights,
                });
            }
        });
    }

    pub(crate) fn launch_of(
        &self,
        replica: ReplicaId,
        model: ModelId,
        placement: &[Share],
    ) -> Result<Launch, String> {
        let facts = self
            .models
            .facts
            .get(&model)
            .ok_or("the model left the catalogue")?;
        let address = |share: &Share| {
            let info = &self.devices.known.get(&share.device)?.info;
            Some(DeviceAddress {
                id: info.id,
                index: info.index,
                uuid: info.uuid.clone(),
                total: info.installed,
                kind: info.kind,
                variable: info.variable.clone(),
            })
        };
        Ok(Launch {
            replica,
            model_name: facts.entry.name.clone(),
            program: self.program(&facts.entry, placement)?,
            devices: placement.iter().filter_map(address).collect(),
            bytes_per_device: placement
                .iter()
                .map(|share| share.bytes)
                .max()
                .unwrap_or_default(),
            runtime_dir: self.folders.runtime_dir.clone(),
            log_dir: self.folders.log_dir.clone(),
            watch: self.watch_of(&facts.entry),
            member: None,
        })
    }

    /// The pool's limits, with the model file's own values in place of them.
    pub(crate) fn watch_of(&self, entry: &Entry) -> Watch {
        let pool = &self.config.pool;
        let own = |from_file: Option<Span>, general: Length| {
            from_file.map_or(general.duration(), |span| Duration::from_millis(span.0))
        };
        let stall_after = own(entry.stall_after, pool.stall_after);
        let model_name = entry.recipe.served_model_name().unwrap_or(&entry.name);
        let limits = LivenessLimits {
            heartbeat: pool.heartbeat.duration(),
            heartbeat_timeout: pool.heartbeat_timeout.duration(),
            heartbeat_misses: pool.heartbeat_misses,
            stall_after,
            first_token_after: own(entry.first_token_after, pool.first_token_after)
                .max(stall_after),
            idle_probe: entry.idle_probe.unwrap_or(pool.idle_probe).duration(),
        };
        Watch {
            activity: Arc::default(),
            limits: if entry.recipe.is_remote() {
                remote_device::gentle(limits)
            } else {
                limits
            },
            model_name: model_name.to_owned(),
            metrics: entry.recipe.metrics(),
        }
    }

    fn program(&self, entry: &Entry, placement: &[Share]) -> Result<Program, String> {
        let wide = |number: u32| number as usize;
        let in_host_memory = placement
            .iter()
            .filter_map(|share| self.devices.known.get(&share.device))
            .any(|device| device.info.kind == inventory::DeviceKind::Host);
        Ok(match &entry.recipe {
            Recipe::Candle(recipe) => Program::Candle(CandleProgram {
                executable: self.folders.executable.clone(),
                cuda: self.folders.cuda.clone(),
                model_dir: recipe.model_path.clone(),
                context_tokens: recipe.context_tokens().map_err(|error| error.to_string())?
                    as usize,
                concurrency: wide(recipe.concurrency),
                threads: recipe.threads.map(wide),
                tokenizer_workers: recipe.tokenizer_workers.map(wide),
                budgets: recipe.budgets,
                speculation: recipe.speculation,
                quantization: recipe.quantization,
                numbers: recipe.numbers,
                verify: recipe.verify,
                task: recipe.task,
                adapters: recipe.adapters.clone(),
                adapter_room: recipe.adapter_room,
                overflows: recipe.overflows,
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
                listen: recipe.listen.into(),
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
            Recipe::Remote(recipe) => Program::Remote(recipe.clone()),
            Recipe::RayServe(recipe) => Program::RayServe(ServeProgram {
                recipe: recipe.clone(),
                writer: self.engines.serve_writers().writer_for(&recipe.place),
            }),
        })
    }

    /// Handles a report of an engine.
    pub(crate) fn report(&mut self, replica: ReplicaId, report: Report) {
        let Some(facts) = self.engines.get_mut(replica) else {
            return;
        };
        let model = facts.model;
        match report {
            Report::Started { pid, endpoint } => {
                facts.pid = Some(pid);
                self.make_gate(replica, model, endpoint);
            }
            Report::Reached { endpoint } => self.make_gate(replica, model, endpoint),
            Report::Progress { stage, percent } => {
                let stage = self.stage(Stage::parse(&stage), percent, Some(stage));
                // The pool measures loads from the network separately from loads from disk.
                let event = match self.node_of(replica) {
                    Some(_) if stage.stage == Stage::Fetching => Event::LoadsFrom {
                        replica,
                        tier: Tier::Network,
                    },
                    _ => Event::TimerFired,
                };
                self.load_timeline
                    .reached(replica, stage.stage, stage.since);
                if let Some(facts) = self.engines.get_mut(replica) {
                    facts.stage = Some(stage);
                }
                self.turn(event);
            }
            Report::Ready { took } => {
                facts.stage = None;
                facts.ready = true;
                facts.took = Some(Span(u64::try_from(took.as_millis()).unwrap_or(u64::MAX)));
                self.measure(replica, model);
                self.offer(replica, model);
                self.turn(Event::ReplicaReady { replica });
            }
            Report::Memory { now, peak } => {
                facts.memory = Some(now);
                facts.peak = facts.peak.max(Some(peak));
                self.publishing.outdated();
                self.measure(replica, model);
            }
            Report::Contained { pid } => {
                facts.contained = Some(pid);
                // Reads the devices now: the process's memory has counted as foreign so far.
                self.devices.look.notify_one();
            }
            Report::Load(load) => facts.load = load,
            Report::Dead { reason } => {
                facts.dead = Some(self.clock.now());
                self.lost(replica, model, reason);
            }
            Report::Ended { message } => self.lost(replica, model, message),
            Report::Exited(exit) => {
                let (was_ready, requested) = (facts.ready, exit.requested);
                let with_node = self.ends_with_its_node(replica);
                let message = exit.failure.tell(&exit.last_output, &exit.status);
                let exit = self.exit_of(replica, &exit, with_node.is_some());
                self.measured_to_the_end(replica, model);
                self.engines.remove(replica);
                if let Some(gate) = self.engines.drop_gate(replica) {
                    gate.cut(
                        with_node
                            .clone()
                            .unwrap_or(CutReason::Crashed(message.clone())),
                    );
                }
                self.publishing.withdraw(replica, model);
                self.turn(Event::ReplicaExited { replica, exit });
                if !was_ready && !requested {
                    self.look_for_weights_again(model);
                }
                self.publish();
                self.devices.look.notify_one();
            }
        }
    }

    /// The exit of a process of this replica, for the pool.
    pub(crate) fn exit_of(&self, replica: ReplicaId, exit: &ExitReport, with_node: bool) -> Exit {
        let was_ready = self.engines.get(replica).is_some_and(|facts| facts.ready);
        let is_measured = self.provider_of(replica).measures_devices();
        let message = exit.failure.tell(&exit.last_output, &exit.status);
        match &exit.oom {
            _ if (exit.requested || with_node) && was_ready => Exit::Requested,
            _ if with_node => Exit::Failed {
                message: "its node ended during the load".to_owned(),
                remedy: Remedy::Retry,
            },
            // A larger reservation on a GPU makes no room in host memory.
            Some(lack) if !exit.requested && lack.of_host && is_measured => Exit::Failed {
                message: format!(
                    "{message}; the kernel killed it because the host's memory was full, not a GPU's"
                ),
                remedy: Remedy::Time,
            },
            Some(lack) if !exit.requested => Exit::OutOfMemory {
                message,
                needed: lack.needed,
            },
            // The last words of a load that was ended may still explain why it was slow.
            _ => Exit::Failed {
                message,
                remedy: remedy_of(exit.failure),
            },
        }
    }

    /// Stops giving seats, even if parts of the replica are still to be removed.
    pub(crate) fn lost(&mut self, replica: ReplicaId, model: ModelId, why: String) {
        let why = self
            .ends_with_its_node(replica)
            .unwrap_or(CutReason::Crashed(why));
        if let Some(gate) = self.engines.gate(replica) {
            gate.cut(why);
        }
        self.publishing.withdraw(replica, model);
        self.turn(Event::ReplicaLost { replica });
    }

    pub(crate) fn stage(
        &self,
        stage: Stage,
        percent: Option<u8>,
        engine_text: Option<String>,
    ) -> LoadStage {
        LoadStage {
            stage,
            percent,
            // The engine's own text may repeat the stage.
            engine_text: engine_text.filter(|engine_text| *engine_text != stage.to_string()),
            since: self.clock.now(),
        }
    }

    /// Creates the replica's gate for this endpoint; the pool opens it later.
    pub(crate) fn make_gate(&mut self, replica: ReplicaId, model: ModelId, endpoint: Endpoint) {
        let Some(entry) = self
            .models
            .facts
            .get(&model)
            .map(|facts| Arc::clone(&facts.entry))
        else {
            return;
        };
        let Some(activity) = self
            .engines
            .get(replica)
            .map(|facts| Arc::clone(&facts.activity))
        else {
            return;
        };
        let served = entry.recipe.served_model_name().map(str::to_owned);
        let room = entry
            .dynamic_adapters
            .as_ref()
            .map(|adapters| adapters.room);
        let clock = self.clock;
        let to_loop = self.engines.to_loop(self.inbox.clone());
        let gate = Gate::new(
            replica,
            endpoint,
            served,
            (entry.seats_per_replica, room.map_or(0, |room| room.count)),
            clock,
            to_loop,
            activity,
        );
        self.engines.add_gate(gate);
    }

    /// Adds the replica's gate to the routing table; the pool opens it later.
    pub(crate) fn offer(&self, replica: ReplicaId, model: ModelId) {
        if let Some(gate) = self.engines.gate(replica) {
            let gate = Arc::clone(gate);
            self.publishing
                .change_gates(model, |gates| gates.push(gate));
        }
    }
}

fn remedy_of(failure: Failure) -> Remedy {
    match failure {
        failure if failure.is_lasting() => Remedy::Change,
        failure if failure.is_chance() => Remedy::Retry,
        _ => Remedy::Time,
    }
}

fn plain(
    env: &std::collections::BTreeMap<String, catalog::Secret>,
) -> std::collections::BTreeMap<String, String> {
    env.iter()
        .map(|(name, value)| (name.clone(), value.0.clone()))
        .collect()
}
