//! Launches the engines of replicas, and turns their reports into events, gates and snapshots.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::control::Control;
use crate::gates::{CutReason, Gate};
use crate::view::{LoadStage, ProcessFacts};
use config::Provider;
use engine::{
    self, ActivityMeter, Endpoint, EngineLoad, ExitReport, Failure, LaunchFacts, ReplicaLog,
    Report, Stage,
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
        self.reader.stop();
        let facts = self.models.get(model).ok_or("the model left the catalogue");
        let launch = facts.map_err(str::to_owned).and_then(|facts| {
            let pool = &self.config.pool;
            self.launcher
                .launch(replica, facts, placement, &self.devices, pool)
        });
        let launch = match launch {
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
        self.background
            .spawn(engine::run(guardians, launch, kept, log, stopped, report));
        let weights = self.models.get(model);
        if let Some(path) = weights.and_then(|facts| facts.entry.weights_path()) {
            self.background.look_for_weights(replica, path);
        }
        None
    }

    /// The record of a launch that a later controller needs to adopt the engine.
    pub(crate) fn kept_of(&self, model: ModelId, placement: &[Share]) -> LaunchFacts {
        let entry = self.models.get(model).map(|facts| &facts.entry);
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
            watch: None,
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
        (stopped, self.background.reports(replica))
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
            stage: Some(LoadStage::new(
                Stage::Starting,
                None,
                None,
                self.clock.now(),
            )),
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
        of_node.unwrap_or(self.devices.provider())
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
                let stage =
                    LoadStage::new(Stage::parse(&stage), percent, Some(stage), self.clock.now());
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
                self.devices.look_again();
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
                    let entry = self.models.entry(model).into_iter();
                    entry.for_each(|entry| self.background.look_for_weights_again(entry));
                }
                self.publish();
                self.devices.look_again();
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

    /// Creates the replica's gate for this endpoint; the pool opens it later.
    pub(crate) fn make_gate(&mut self, replica: ReplicaId, model: ModelId, endpoint: Endpoint) {
        let Some(entry) = self.models.entry(model) else {
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
        let to_loop = self.engines.to_loop(self.background.inbox());
        let tokens = self.publishing.route(model);
        let tokens = tokens.map(|route| Arc::clone(&route.tokens));
        let gate = Gate::new(
            replica,
            endpoint,
            served,
            (entry.seats_per_replica, room.map_or(0, |room| room.count)),
            clock,
            to_loop,
            (activity, tokens.unwrap_or_default()),
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
