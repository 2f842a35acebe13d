//! All the played nodes in one process, each a task with a connection of its own, and what is counted of them together.

use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::played::{Played, Presence};

/// Nodes that join at the same time.
const JOINING_MAX: usize = 32;
/// Words that are kept of nodes that could not join, or lost their connection.
const TROUBLES_MAX: usize = 10;

/// What the nodes have in common.
pub struct Shared {
    /// `HOST:PORT`.
    pub controller: String,
    pub token: String,
    /// Where a gateway would reach their engines.
    pub relay: SocketAddr,
    pub load: Duration,
    pub joining: Semaphore,
    joined: AtomicU32,
    /// Engines that have become ready.
    pub ready: AtomicU32,
    /// Frames to the controller, and from it.
    pub sent: AtomicU64,
    pub heard: AtomicU64,
    lost: AtomicU32,
    troubles: Mutex<Vec<String>>,
}

/// A node is connected as long as this is there.
pub struct Joined<'a>(&'a AtomicU32);

impl Drop for Joined<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Shared {
    pub fn join(&self) -> Joined<'_> {
        self.joined.fetch_add(1, Ordering::Relaxed);
        Joined(&self.joined)
    }

    /// A connection has ended that the bench did not end.
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
    shared: Arc<Shared>,
    nodes: Vec<Arc<Played>>,
    // They end before the runtime does.
    _tasks: JoinSet<()>,
    _runtime: Runtime,
    _relay: TcpListener,
}

impl Fleet {
    /// Nodes that join the controller as soon as they can.
    pub fn start(controller: &str, token: String, nodes: u32, load: Duration) -> Fleet {
        let relay = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let shared = Arc::new(Shared {
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
        let nodes: Vec<Arc<Played>> = (0..nodes)
            .map(|nth| Arc::new(Played::new(nth, Arc::clone(&shared))))
            .collect();
        // One thread: the rest of the machine is for the controller.
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

    /// Nodes with a connection.
    pub fn joined(&self) -> u32 {
        self.shared.joined.load(Ordering::Relaxed)
    }

    /// Engines that have become ready.
    pub fn ready(&self) -> u32 {
        self.shared.ready.load(Ordering::Relaxed)
    }

    /// Frames in both directions.
    pub fn frames(&self) -> u64 {
        self.shared.sent.load(Ordering::Relaxed) + self.shared.heard.load(Ordering::Relaxed)
    }

    /// Connections that ended by themselves.
    pub fn lost(&self) -> u32 {
        self.shared.lost.load(Ordering::Relaxed)
    }

    /// What went wrong first.
    pub fn troubles(&self) -> Vec<String> {
        let troubles = self.shared.troubles.lock();
        troubles.unwrap_or_else(PoisonError::into_inner).clone()
    }
}
