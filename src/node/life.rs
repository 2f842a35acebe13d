//! The life of a node: it looks for its controller, or for the one of two that leads, until it is accepted, comes back when
//! the connection breaks, and ends its engines before it ends.
//! One file because the states of a node are one loop, from the first attempt to the end.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::engines::{Engines, Folders};
use super::generation::Generations;
use super::machine::{Machine, now};
use super::peer_server::PeerServer;
use super::readings;
use super::relay::Relay;
use super::session::{Ended, greet};
use super::target::{DialError, Target};
use super::weights::{Weights, WeightsSettings};
use engine::{CudaProgram, GuardianSettings, Guardians};
use inventory::Inventory;
use node_link::{Hello, NodeDevice, NodeReport, PROTOCOL, RefusedKind, RelayForm};

/// The first pause before another attempt; it doubles.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// The same trouble is logged again after so long.
const SAY_AGAIN: Duration = Duration::from_secs(30);
/// How long the controller may take to hear the goodbye.
const GOODBYE_WITHIN: Duration = Duration::from_secs(3);
/// Of engines that were ordered to end, beyond their grace period.
const ENDING_WITHIN: Duration = Duration::from_secs(30);
/// No byte for so long means that no stream runs.
const QUIET: Duration = Duration::from_secs(2);

/// Everything a node is made of.
pub struct Settings {
    /// Tried in turn; of several one leads. Never empty.
    pub controllers: Vec<Target>,
    pub name: String,
    pub token: String,
    /// Where gateways connect; `None`: a free port, on loopback if the controller is there.
    pub listen: Option<SocketAddr>,
    /// Plain TCP to gateways on other machines.
    pub plain: bool,
    /// Where sockets, the journal and logs go; absolute, and this process's alone.
    pub data: PathBuf,
    pub executable: PathBuf,
    /// The embedded engine on NVIDIA GPUs, as it was found at the start.
    pub cuda: CudaProgram,
    pub inventory: Arc<Inventory>,
    pub weights: WeightsSettings,
    /// Until a controller says how long.
    pub orphan_after: Duration,
    pub demand: Option<u64>,
    pub version: &'static str,
}

/// What a controller has agreed to.
#[derive(Clone)]
struct Agreement {
    controller: Option<u64>,
    credential: String,
    orphan_after: Duration,
    drain: Duration,
}

struct Node {
    settings: Settings,
    relay: Relay,
    peers: Arc<PeerServer>,
    engines: Arc<Engines>,
    epoch: u64,
    place: String,
    agreement: std::sync::Mutex<Agreement>,
    /// Which of the controllers is tried next.
    turn: AtomicUsize,
}

/// Runs until the node is ordered to end, or has no controller any more. `stop` completes at each signal.
///
/// # Errors
/// One line for the user, with what to do.
pub async fn run<F>(settings: Settings, stop: impl Fn() -> F) -> Result<(), String>
where
    F: Future<Output = ()>,
{
    let loopback = settings.controllers.iter().all(Target::is_loopback);
    let generations = Generations::open(&settings.data)?;
    let listen = settings.listen.unwrap_or_else(|| {
        let ip = match loopback {
            true => IpAddr::V4(Ipv4Addr::LOCALHOST),
            false => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        };
        SocketAddr::new(ip, 0)
    });
    let relay = Relay::open(listen, settings.plain || listen.ip().is_loopback()).await?;
    let runtime_dir = settings.data.join("run");
    let guardians = Arc::new(Guardians::new(GuardianSettings {
        executable: settings.executable.clone(),
        runtime_dir: runtime_dir.clone(),
        journal_dir: settings.data.join("engines"),
        // Without its node an engine would be unknown.
        keep: false,
        adopt_within: Duration::ZERO,
    }));
    let left = engine::resolve(&guardians, |_| Some("its node started anew".to_owned())).await;
    for found in left.others {
        tracing::warn!("an engine of an earlier start: {}", found.reason);
    }
    guardians.prepare().await;
    let machine = Arc::new(Machine::default());
    let peers = Arc::new(PeerServer::new(
        settings.weights.cache.clone(),
        relay.secret.clone(),
        settings.weights.peers_at_once,
        Arc::clone(&machine),
    ));
    let notes = settings.data.join("weights");
    let weights = Arc::new(Weights::new(settings.weights.clone(), notes));
    let engines = Arc::new(Engines {
        node: settings.name.clone(),
        machine: Arc::clone(&machine),
        guardians,
        folders: Folders {
            executable: settings.executable.clone(),
            cuda: settings.cuda.clone(),
            runtime_dir,
            log_dir: settings.data.join("logs"),
        },
        generations,
        weights,
        tasks: Mutex::new(JoinSet::new()),
    });
    let agreement = Agreement {
        controller: None,
        credential: settings.token.clone(),
        orphan_after: settings.orphan_after,
        drain: Duration::from_secs(600),
    };
    let node = Node {
        place: format!("{} {}", guardian::proc::boot(), settings.data.display()),
        epoch: rand::random(),
        relay,
        peers,
        engines,
        agreement: std::sync::Mutex::new(agreement),
        turn: AtomicUsize::new(0),
        settings,
    };
    node.live(stop).await
}

/// How long a node may take from SIGTERM to its end, if its controller lets requests in flight take so long, and engines their
/// grace period.
pub fn longest_stop(drain: Duration, grace: Duration) -> Duration {
    drain + grace + ENDING_WITHIN + GOODBYE_WITHIN
}

impl Node {
    async fn live<F: Future<Output = ()>>(&self, stop: impl Fn() -> F) -> Result<(), String> {
        let machine = &self.engines.machine;
        let Settings {
            name, controllers, ..
        } = &self.settings;
        for device in self.settings.inventory.devices() {
            tracing::info!("device {}: {}", device.name, device.total);
        }
        tracing::info!("node {name}: engines are reached at {}", self.relay.address);
        let signals = async {
            stop().await;
            tracing::info!(
                "stopping: this node leaves the pool, engines drain and stop; a second signal ends at once"
            );
            self.leave("it received a signal to end".to_owned());
            stop().await;
            tracing::warn!("ending at once");
            machine.stop_all(true);
            std::future::pending::<()>().await;
        };
        let orphaned = async {
            let why = self.connect_again_and_again().await?;
            tracing::warn!("{why}: its engines finish what they have, and it ends");
            self.finish_streams().await;
            self.end_engines().await;
            Ok(())
        };
        let readings = readings::run(
            Arc::clone(&self.settings.inventory),
            Arc::clone(machine),
            Arc::clone(&self.engines.weights),
            Arc::clone(&self.peers),
        );
        let all: Vec<String> = controllers.iter().map(Target::to_string).collect();
        tracing::info!("node {name}: joining {}", all.join(" or "));
        tokio::select! {
            () = self.relay.serve(Arc::clone(machine), Arc::clone(&self.peers)) => Ok(()),
            () = readings => Ok(()),
            () = signals => Ok(()),
            ended = orphaned => ended,
            () = self.leaving() => Ok(()),
        }
    }

    fn leave(&self, why: String) {
        let machine = &self.engines.machine;
        if machine.lock().leaving.replace(why.clone()).is_none() {
            machine.report(NodeReport::Leaving { why });
            machine.fewer.notify_waiters();
        }
    }

    /// Waits until the node is to leave and the controller has had its engines end, at most as long as a drain takes;
    /// then ends the rest, says goodbye, and returns.
    async fn leaving(&self) {
        let machine = &self.engines.machine;
        let why = loop {
            let changed = machine.fewer.notified();
            if let Some(why) = machine.lock().leaving.clone() {
                break why;
            }
            changed.await;
        };
        let drain = self.agreement().drain;
        let drained = async {
            loop {
                let changed = machine.fewer.notified();
                if !machine.has_engines() {
                    return;
                }
                changed.await;
            }
        };
        if timeout(drain, drained).await.is_err() {
            tracing::warn!("its engines have not drained within {} s", drain.as_secs());
        }
        self.end_engines().await;
        machine.report(NodeReport::Goodbye { why });
        // A controller that has heard it closes the connection.
        let heard = async {
            while machine.lock().is_connected {
                sleep(PAUSE_MIN / 4).await;
            }
        };
        if timeout(GOODBYE_WITHIN, heard).await.is_err() {
            tracing::warn!("the controller has not heard the goodbye; it will notice the silence");
        }
        tracing::info!("node {} has ended", self.settings.name);
    }

    /// Until no stream has moved for a moment, at most as long as a drain takes.
    async fn finish_streams(&self) {
        let quiet = async {
            let mut before = self.relay.moved.load(Ordering::Relaxed);
            loop {
                sleep(QUIET).await;
                let moved = self.relay.moved.load(Ordering::Relaxed);
                if moved == before {
                    return;
                }
                before = moved;
            }
        };
        let _ = timeout(self.agreement().drain, quiet).await;
    }

    /// Each with its own grace period. Returns when all are gone.
    async fn end_engines(&self) {
        let machine = &self.engines.machine;
        machine.stop_all(false);
        let longest = {
            let inner = machine.lock();
            let graces = inner.engines.values().map(|it| it.kept.stop_grace_ms);
            Duration::from_millis(graces.max().unwrap_or(0))
        };
        let gone = async {
            while machine.has_engines() {
                sleep(PAUSE_MIN / 4).await;
            }
        };
        if timeout(longest + ENDING_WITHIN, gone).await.is_err() {
            tracing::error!("engines do not end; their guardians kill them when this process ends");
        }
    }

    /// Returns when there has been no controller for too long, with that in words; an error is final.
    async fn connect_again_and_again(&self) -> Result<String, String> {
        let mut contact = now();
        let mut pause = PAUSE_MIN;
        let mut reply: Option<(String, Instant)> = None;
        // What the controllers of this round have answered.
        let mut troubles: Vec<String> = Vec::new();
        loop {
            let agreement = self.agreement();
            let ends = contact + agreement.orphan_after;
            let has_joined = agreement.controller.is_some();
            let alone = async {
                sleep_until(ends).await;
                // The attempt lasts as long as its connection, whose end begins the time anew.
                if self.engines.machine.lock().is_connected {
                    std::future::pending::<()>().await;
                }
            };
            let trouble = tokio::select! {
                ended = self.attempt(&agreement) => match ended {
                    Attempt::Lost(why) => {
                        contact = now();
                        pause = PAUSE_MIN;
                        // If it is still there, the next one says so at once; if not, its silence would cost seconds.
                        self.turn.fetch_add(1, Ordering::Relaxed);
                        why
                    }
                    Attempt::Failed(why) => {
                        self.turn.fetch_add(1, Ordering::Relaxed);
                        why
                    }
                    Attempt::Refused { message, is_final } => {
                        if !has_joined && is_final {
                            return Err(message);
                        }
                        self.turn.fetch_add(1, Ordering::Relaxed);
                        message
                    }
                    Attempt::Fenced(message) => {
                        self.engines.machine.stop_all(true);
                        self.end_engines().await;
                        return Err(message);
                    }
                },
                () = alone => {
                    let why = format!(
                        "there has been no controller for {} s",
                        agreement.orphan_after.as_secs_f64()
                    );
                    return match has_joined {
                        true => Ok(why),
                        false => Err(match reply {
                            Some((trouble, _)) => format!("{why}: {trouble}"),
                            None => why,
                        }),
                    };
                }
            };
            troubles.push(trouble);
            // Another one may lead: it is asked at once.
            if troubles.len() < self.settings.controllers.len() {
                continue;
            }
            let trouble = std::mem::take(&mut troubles).join("; ");
            let is_news = reply
                .as_ref()
                .is_none_or(|(before, at)| *before != trouble || *at + SAY_AGAIN <= now());
            if is_news {
                tracing::warn!("{trouble}; trying again");
                reply = Some((trouble, now()));
            }
            sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// The controller whose turn it is.
    fn controller(&self) -> &Target {
        let all = &self.settings.controllers;
        &all[self.turn.load(Ordering::Relaxed) % all.len()]
    }

    async fn attempt(&self, agreement: &Agreement) -> Attempt {
        let machine = &self.engines.machine;
        let controller = self.controller();
        let is_only = self.settings.controllers.len() == 1;
        let connected = match controller.connect(&agreement.credential, is_only).await {
            Ok(connected) => connected,
            Err(DialError::Unreachable(why) | DialError::Standby(why)) => {
                return Attempt::Failed(why);
            }
            Err(DialError::Refused { message, is_final }) => {
                // A controller that does not know the credential any more may know the token.
                self.change(|it| it.credential.clone_from(&self.settings.token));
                return Attempt::Refused { message, is_final };
            }
        };
        let greeted = greet(connected.io, self.hello(agreement, connected.local)).await;
        let session = match greeted {
            Ok(session) => session,
            Err(Ended::Refused(refused)) => {
                let message = format!("{controller} refuses this node: {}", refused.message);
                return match refused.kind {
                    RefusedKind::Fenced => Attempt::Fenced(message),
                    RefusedKind::Never => Attempt::Refused {
                        message,
                        is_final: true,
                    },
                    RefusedKind::NotNow => Attempt::Refused {
                        message,
                        is_final: agreement.controller.is_none(),
                    },
                };
            }
            Err(Ended::Broken(why) | Ended::Leave(why)) => return Attempt::Failed(why),
        };
        let accepted = &session.accepted;
        if let Err(why) = self.engines.generations.admit(accepted.generation) {
            return Attempt::Failed(format!("{controller}: {why}"));
        }
        if agreement.controller != Some(accepted.controller) {
            let mut inner = machine.lock();
            // Others than the engines' own reports are for any controller.
            let leaving = inner.leaving.clone();
            inner.outbox.forget_reports();
            if let Some(why) = leaving {
                inner.outbox.push(NodeReport::Leaving { why }, true);
            }
            tracing::info!("node {}: joined {controller}", self.settings.name);
        } else {
            tracing::info!("node {}: connected again", self.settings.name);
        }
        self.change(|it| {
            it.controller = Some(accepted.controller);
            if let Some(credential) = &accepted.credential {
                it.credential.clone_from(credential);
            }
            it.orphan_after = Duration::from_millis(accepted.orphan_after_ms);
            it.drain = Duration::from_millis(accepted.drain_ms);
        });
        let ended = session.run(&self.engines).await;
        machine.disconnected();
        match ended {
            Ended::Broken(why) => Attempt::Lost(why),
            Ended::Refused(refused) if refused.kind == RefusedKind::Fenced => {
                Attempt::Fenced(refused.message)
            }
            Ended::Refused(refused) => Attempt::Lost(refused.message),
            Ended::Leave(why) => {
                self.leave(why.clone());
                Attempt::Lost(why)
            }
        }
    }

    fn hello(&self, agreement: &Agreement, local: IpAddr) -> Hello {
        let Settings {
            name,
            inventory,
            demand,
            version,
            ..
        } = &self.settings;
        let mut address = self.relay.address;
        if address.ip().is_unspecified() {
            // The address from which the controller is reached, unless both are behind others.
            address.set_ip(local);
        }
        Hello {
            protocol: PROTOCOL,
            version: (*version).to_owned(),
            name: name.clone(),
            epoch: self.epoch,
            place: self.place.clone(),
            controller: agreement.controller,
            relay: RelayForm {
                address,
                secret: self.relay.secret.0.clone(),
                fingerprint: self.relay.fingerprint.map(|it| it.to_string()),
            },
            provider: inventory.provider(),
            devices: NodeDevice::all(inventory.devices()),
            demand: *demand,
            generation: self.engines.generations.highest(),
        }
    }

    fn agreement(&self) -> Agreement {
        let agreement = self.agreement.lock();
        agreement
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .clone()
    }

    fn change(&self, change: impl FnOnce(&mut Agreement)) {
        let agreement = self.agreement.lock();
        change(&mut agreement.unwrap_or_else(std::sync::PoisonError::into_inner));
    }
}

/// One attempt to have a controller.
enum Attempt {
    /// It had one until now.
    Lost(String),
    Failed(String),
    Refused {
        message: String,
        is_final: bool,
    },
    /// Others have its work.
    Fenced(String),
}
