//! All simulated nodes in one process, each a task with a separate connection, and their combined counts.

use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::simulated_node::{Presence, SimulatedNode};

/// The maximum number of nodes that join simultaneously.
const JOINING_MAX: usize = 32;
/// The maximum number of kept messages of nodes that could not join or lost their connection.
const TROUBLES_MAX: usize = 10;

/// State shared by the nodes.
pub struct FleetSettings {
    /// `HOST:PORT`.
    pub controller: String,
    pub token: String,
    /// The address at which a gateway would reach their engines.
    pub relay: SocketAddr,
    pub load: Duration,
    pub joining: Semaphore,
    joined: AtomicU32,
    /// The number of engines that have become ready.
    pub ready: AtomicU32,
    /// The number of frames to and from the controller.
    pub sent: AtomicU64,
    pub heard: AtomicU64,
    lost: AtomicU32,
    troubles: Mutex<Vec<String>>,
}

/// A node is connected while this exists.
pub struct ConnectionGuard<'a>(&'a AtomicU32);

impl Drop for ConnectionGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl FleetSettings {
    pub fn join(&self) -> ConnectionGuard<'_> {
        self.joined.fetch_add(1, Ordering::Relaxed);
        ConnectionGuard(&self.joined)
    }

    /// A connection has ended unexpectedly.
    pub fn lost(&self, node: &str, why: &str) {
        self.lost.fetch_add(1, Ordering::Relaxed);
        self.trouble(format!("{node}: {why}"));
    }

    pub fn not_joined(&self, node: &str, why: &str) {
        self.trouble(format!("{node} could not join: {why}"));
    }

    fn trouble(&self, words: String) {
        let troubles = self.troubles.lock();
        let mut troubles = troubles.unwrap_or_else(PoisonError::into_inner);
        if troubles.len() < TROUBLES_MAX {
            troubles.push(words);
        }
    }
}

pub struct Fleet {
    shared: Arc<FleetSettings>,
    nodes: Vec<Arc<SimulatedNode>>,
    // Dropped before the runtime.
    _tasks: JoinSet<()>,
    _runtime: Runtime,
    _relay: TcpListener,
}

impl Fleet {
    /// Starts nodes that join the controller as soon as they can.
    pub fn start(controller: &str, token: String, nodes: u32, load: Duration) -> Fleet {
        let relay = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let shared = Arc::new(FleetSettings {
            controller: controller.to_owned(),
            token,
            relay: relay.local_addr().expect("bound"),
            load,
            joining: Semaphore::new(JOINING_MAX),
            joined: AtomicU32::new(0),
            ready: AtomicU32::new(0),
            sent: AtomicU64::new(0),
            heard: AtomicU64::new(0),
            lost: AtomicU32::new(0),
            troubles: Mutex::default(),
        });
        let nodes: Vec<Arc<SimulatedNode>> = (0..nodes)
            .map(|nth| Arc::new(SimulatedNode::new(nth, Arc::clone(&shared))))
            .collect();
        // A single thread leaves the rest of the machine to the controller.
        let mut builder = Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let mut tasks = JoinSet::new();
        for node in &nodes {
            let node = Arc::clone(node);
            tasks.spawn_on(async move { node.live().await }, runtime.handle());
        }
        Fleet {
            shared,
            nodes,
            _tasks: tasks,
            _runtime: runtime,
            _relay: relay,
        }
    }

    pub fn name(&self, nth: usize) -> &str {
        &self.nodes[nth].name
    }

    pub fn set(&self, nth: usize, presence: Presence) {
        self.nodes[nth].presence.send_replace(presence);
    }

    /// The number of connected nodes.
    pub fn joined(&self) -> u32 {
        self.shared.joined.load(Ordering::Relaxed)
    }

    /// The number of engines that have become ready.
    pub fn ready(&self) -> u32 {
        self.shared.ready.load(Ordering::Relaxed)
    }

    /// The number of frames in both directions.
    pub fn frames(&self) -> u64 {
        self.shared.sent.load(Ordering::Relaxed) + self.shared.heard.load(Ordering::Relaxed)
    }

    /// The number of connections that ended on their own.
    pub fn lost(&self) -> u32 {
        self.shared.lost.load(Ordering::Relaxed)
    }

    /// The first problems.
    pub fn troubles(&self) -> Vec<String> {
        let troubles = self.shared.troubles.lock();
        troubles.unwrap_or_else(PoisonError::into_inner).clone()
    }
}
