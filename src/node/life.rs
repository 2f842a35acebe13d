//! The life of a node: it continues the work of an earlier process or starts a new identity, searches for the leading controller
//! until it is accepted, reconnects when the connection breaks (`joining`), ends its engines before it ends (`leaving`), or leaves
//! them to a process that takes over (`replacement`).

mod joining;
mod leaving;
mod replacement;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinSet;

use super::engines::{Engines, Folders};
use super::generation::Generations;
use super::identity::Identity;
use super::machine::Machine;
use super::peer_server::PeerServer;
use super::readings;
use super::relay::Relay;
use super::settings::Settings;
use super::target::Target;
use super::weights::Weights;
use engine::{GuardianSettings, Guardians, Record};

/// Time limit for the controller to receive the goodbye.
const GOODBYE_WITHIN: Duration = Duration::from_secs(3);
/// Time limit for engines to end after an order, beyond their grace period.
const ENDING_WITHIN: Duration = Duration::from_secs(30);

/// Values agreed with the controller.
#[derive(Clone)]
struct Agreement {
    controller: Option<u64>,
    credential: String,
    orphan_after: Duration,
    drain: Duration,
    /// Unix time at which the node with its engines lost the controller; `None` while it is connected.
    alone_since_ms: Option<u64>,
}

/// The end of [`Node::live`].
#[derive(Debug, PartialEq, Eq)]
pub enum NodeEnd {
    /// The node has left the pool, and its engines have ended.
    Ended,
    /// Another process has taken over and serves. Requests that began here may continue.
    Replaced,
    /// Another process failed to take over, for this reason. The engines wait for the next process.
    NotReplaced(String),
}

/// A node whose listener and engines are open.
pub struct Node {
    settings: Arc<Settings>,
    relay: Relay,
    peers: Arc<PeerServer>,
    engines: Arc<Engines>,
    /// Identifies the work of the node, which later processes may continue.
    identity: std::sync::Mutex<Identity>,
    /// Identifies this process.
    process: u64,
    agreement: std::sync::Mutex<Agreement>,
    /// Index of the controller to try next.
    turn: AtomicUsize,
}

/// Maximum time from SIGTERM to the node's end, given the controller's drain time for requests in flight and the engines' grace
/// period.
pub fn longest_stop(drain: Duration, grace: Duration) -> Duration {
    drain + grace + ENDING_WITHIN + GOODBYE_WITHIN
}

/// Opens the listener of an earlier process, with its identity, or else a new one.
async fn open_relay(
    settings: &Settings,
    kept: Option<Identity>,
    (inherited, is_takeover): (Option<OwnedFd>, bool),
) -> Result<(Relay, Identity, bool), String> {
    if let Some(kept) = kept {
        match Relay::again(&kept, inherited).await {
            Ok(relay) => return Ok((relay, kept, true)),
            Err(why) if is_takeover => {
                return Err(format!(
                    "{why}; if no other process takes over at the same time, start without --takeover: the engines of the earlier process then end"
                ));
            }
            Err(why) => tracing::warn!("the engines of an earlier process end: {why}"),
        }
    }
    let loopback = settings.controllers.iter().all(Target::is_loopback);
    let listen = settings.listen.unwrap_or_else(|| {
        let ip = if loopback {
            IpAddr::V4(Ipv4Addr::LOCALHOST)
        } else {
            IpAddr::V4(Ipv4Addr::UNSPECIFIED)
        };
        SocketAddr::new(ip, 0)
    });
    let relay = Relay::open(listen, settings.plain || listen.ip().is_loopback()).await?;
    let certificate = relay.certificate.clone();
    let identity = Identity::new(settings, relay.address, relay.secret.reveal(), certificate);
    Ok((relay, identity, false))
}

/// The identity of an earlier process whose work this one can continue.
fn continued(settings: &Settings) -> Option<Identity> {
    let kept = Identity::read(&settings.data).and_then(|kept| {
        let problem = kept.as_ref().and_then(|kept| kept.problem(settings));
        problem.map_or(Ok(kept), Err)
    });
    kept.unwrap_or_else(|why| {
        tracing::warn!("the work of the earlier node in this folder is not continued: {why}");
        None
    })
}

/// Adopts the engines of an earlier process, except those with a reason from `refuse`, each once it is known to be healthy. Returns
/// the Unix time at which the first of them lost that process.
async fn adopt_all(engines: &Engines, refuse: impl Fn(&Record) -> Option<String>) -> Option<u64> {
    let (sender, mut receiver) = mpsc::unbounded_channel();
    let resolving = async {
        let send = |adopted| drop(sender.send(adopted));
        let found = engine::resolve_each(&engines.guardians, refuse, send).await;
        drop(sender);
        for other in found.others {
            tracing::warn!("an engine of an earlier process: {}", other.reason);
        }
    };
    let adopting = async {
        let mut alone_since_ms: Option<u64> = None;
        while let Some(adopted) = receiver.recv().await {
            let since = adopted.alone_since_ms.into_iter();
            alone_since_ms = since.chain(alone_since_ms).min();
            engines.adopt(adopted).await;
        }
        alone_since_ms
    };
    tokio::join!(resolving, adopting).1
}

impl Node {
    /// Opens the listener, and adopts the engines of an earlier process if this one can continue its work. `inherited` is the
    /// listening socket of a process that is replaced. A takeover fails where another start would end the engines. Also returns a
    /// copy of the listening socket, for the next process.
    ///
    /// # Errors
    /// One line for the user, with what to do.
    pub async fn open(
        settings: Arc<Settings>,
        inherited: Option<OwnedFd>,
        is_takeover: bool,
    ) -> Result<(Node, OwnedFd), String> {
        private_files::make(&settings.data)
            .map_err(|error| format!("{error}: name one with --data, or state.dir"))?;
        let generations = Generations::open(&settings.data)?;
        let kept = continued(&settings);
        let (relay, identity, is_continued) =
            open_relay(&settings, kept, (inherited, is_takeover)).await?;
        // No later step fails: a failure after the adoption would end the engines.
        let listening = relay
            .listening()
            .map_err(|error| format!("cannot copy the listening socket: {error}"))?;
        let orphan_after = Duration::from_millis(identity.orphan_after_ms);
        let guardians = Arc::new(Guardians::new(GuardianSettings {
            executable: settings.executable.clone(),
            runtime_dir: settings.runtime_dir(),
            journal_dir: settings.data.join("engines"),
            // A cluster's job ends with its process, and the engines end with the job.
            keep: settings.demand.is_none(),
            adopt_within: orphan_after,
        }));
        let refuse = |record: &Record| {
            let why = if !is_continued {
                "its node was restarted"
            } else if record.watch.is_none() {
                "another version of its node started it"
            } else {
                return None;
            };
            Some(why.to_owned())
        };
        let machine = Arc::new(Machine::default());
        machine.lock().is_resolving = true;
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
            machine,
            guardians,
            folders: Folders {
                executable: settings.executable.clone(),
                cuda: settings.cuda.clone(),
                runtime_dir: settings.runtime_dir(),
                log_dir: settings.data.join("logs"),
            },
            generations,
            weights,
            tasks: Mutex::new(JoinSet::new()),
        });
        // Gateways connect while an engine that hangs is examined.
        let alone_since_ms = tokio::select! {
            alone_since_ms = adopt_all(&engines, refuse) => alone_since_ms,
            () = async {
                relay.serve(Arc::clone(&engines.machine), Arc::clone(&peers)).await;
                std::future::pending::<()>().await;
            } => None,
        };
        engines.machine.resolved();
        engines.guardians.prepare().await;
        let has_engines = engines.machine.has_engines();
        let agreement = Agreement {
            alone_since_ms: identity
                .alone_since_ms
                .or(alone_since_ms)
                .filter(|_| has_engines),
            controller: identity.controller,
            credential: identity.credential.clone(),
            orphan_after,
            drain: Duration::from_millis(identity.drain_ms),
        };
        let node = Node {
            process: rand::random(),
            identity: std::sync::Mutex::new(identity),
            relay,
            peers,
            engines,
            agreement: std::sync::Mutex::new(agreement),
            turn: AtomicUsize::new(0),
            settings,
        };
        node.record();
        Ok((node, listening))
    }

    /// Runs until the node is ordered to end, has had no controller for too long, or is replaced. `stop` completes at each signal.
    /// `successor` completes when another process asks to take over; `hand_over` then frees the state for it, and returns when it
    /// serves.
    ///
    /// # Errors
    /// One line for the user, with what to do.
    pub async fn live<F, T, H>(
        &self,
        stop: impl Fn() -> F,
        successor: impl Future<Output = T>,
        hand_over: impl FnOnce(T) -> H,
    ) -> Result<NodeEnd, String>
    where
        F: Future<Output = ()>,
        H: Future<Output = Result<(), String>>,
    {
        let machine = &self.engines.machine;
        let Settings {
            name, controllers, ..
        } = &*self.settings;
        for device in self.settings.inventory.devices() {
            tracing::info!("device {}: {}", device.name, device.total);
        }
        tracing::info!("node {name}: engines are reached at {}", self.relay.address);
        let signals = async {
            stop().await;
            tracing::info!(
                "stopping: this node leaves the pool, engines drain and stop; a second signal ends the node immediately"
            );
            self.leave("it received a signal to end".to_owned());
            stop().await;
            tracing::warn!("ending immediately");
            machine.stop_all(true);
            std::future::pending::<()>().await;
        };
        let mut orphaned = pin!(async {
            let why = self.connect_again_and_again().await?;
            tracing::warn!("{why}: its engines finish their requests, and it ends");
            self.finish_streams().await;
            self.end_engines().await;
            Ok(())
        });
        let readings = readings::run(
            Arc::clone(&self.settings.inventory),
            Arc::clone(machine),
            Arc::clone(&self.engines.weights),
            Arc::clone(&self.peers),
        );
        let all: Vec<String> = controllers.iter().map(Target::to_string).collect();
        tracing::info!("node {name}: joining {}", all.join(" or "));
        let ended: Result<Option<T>, String> = tokio::select! {
            () = self.relay.serve(Arc::clone(machine), Arc::clone(&self.peers)) => Ok(None),
            () = readings => Ok(None),
            () = signals => Ok(None),
            ended = &mut orphaned => ended.map(|()| None),
            () = self.leaving() => Ok(None),
            successor = self.replaced_by(successor) => Ok(Some(successor)),
        };
        let Some(successor) = ended.inspect_err(|_| self.forget())? else {
            self.forget();
            return Ok(NodeEnd::Ended);
        };
        self.leave_engines().await;
        // The connection stays until the controller has the new one, so the node is never silent.
        let served = tokio::select! {
            served = hand_over(successor) => served,
            () = async {
                let _ = orphaned.await;
                std::future::pending::<()>().await;
            } => Ok(()),
        };
        Ok(served.map_or_else(NodeEnd::NotReplaced, |()| NodeEnd::Replaced))
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
