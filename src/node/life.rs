//! The life of a node: it searches for the leading controller until it is accepted, reconnects when the connection breaks
//! (`joining`), and ends its engines before it ends (`leaving`).

mod joining;
mod leaving;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::task::JoinSet;

use super::engines::{Engines, Folders};
use super::generation::Generations;
use super::machine::Machine;
use super::peer_server::PeerServer;
use super::readings;
use super::relay::Relay;
use super::target::Target;
use super::weights::{Weights, WeightsSettings};
use engine::{CudaProgram, GuardianSettings, Guardians};
use inventory::Inventory;

/// Time limit for the controller to receive the goodbye.
const GOODBYE_WITHIN: Duration = Duration::from_secs(3);
/// Time limit for engines to end after an order, beyond their grace period.
const ENDING_WITHIN: Duration = Duration::from_secs(30);

/// The settings of a node.
pub struct Settings {
    /// Tried in turn; a single one leads. Never empty.
    pub controllers: Vec<Target>,
    pub name: String,
    pub token: String,
    /// Address of the listener for gateways. `None` chooses a free port, on loopback if the controller is local.
    pub listen: Option<SocketAddr>,
    /// Uses plain TCP to gateways on other machines.
    pub plain: bool,
    /// Folder of sockets, the journal and logs. Absolute, and used only by this process.
    pub data: PathBuf,
    pub executable: PathBuf,
    /// The embedded engine for NVIDIA GPUs, as found at the start.
    pub cuda: CudaProgram,
    pub inventory: Arc<Inventory>,
    pub weights: WeightsSettings,
    /// Used until a controller sends its own value.
    pub orphan_after: Duration,
    pub demand: Option<u64>,
    pub version: &'static str,
}

/// Values agreed with the controller.
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
    /// Index of the controller to try next.
    turn: AtomicUsize,
}

/// Runs until the node is ordered to end, or has had no controller for too long. `stop` completes at each signal.
///
/// # Errors
/// One line for the user, with what to do.
pub async fn run<F>(settings: Settings, stop: impl Fn() -> F) -> Result<(), String>
where
    F: Future<Output = ()>,
{
    let loopback = settings.controllers.iter().all(Target::is_loopback);
    private_files::make(&settings.data)
        .map_err(|error| format!("{error}: name one with --data, or state.dir"))?;
    let generations = Generations::open(&settings.data)?;
    let listen = settings.listen.unwrap_or_else(|| {
        let ip = if loopback {
            IpAddr::V4(Ipv4Addr::LOCALHOST)
        } else {
            IpAddr::V4(Ipv4Addr::UNSPECIFIED)
        };
        SocketAddr::new(ip, 0)
    });
    let relay = Relay::open(listen, settings.plain || listen.ip().is_loopback()).await?;
    let runtime_dir = settings.data.join("run");
    let guardians = Arc::new(Guardians::new(GuardianSettings {
        executable: settings.executable.clone(),
        runtime_dir: runtime_dir.clone(),
        journal_dir: settings.data.join("engines"),
        // Without its node, no controller would know of the engine.
        keep: false,
        adopt_within: Duration::ZERO,
    }));
    let left = engine::resolve(&guardians, |_| Some("its node was restarted".to_owned())).await;
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

/// Maximum time from SIGTERM to the node's end, given the controller's drain time for requests in flight and the engines' grace
/// period.
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
                "stopping: this node leaves the pool, engines drain and stop; a second signal ends the node immediately"
            );
            self.leave("it received a signal to end".to_owned());
            stop().await;
            tracing::warn!("ending immediately");
            machine.stop_all(true);
            std::future::pending::<()>().await;
        };
        let orphaned = async {
            let why = self.connect_again_and_again().await?;
            tracing::warn!("{why}: its engines finish their requests, and it ends");
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
