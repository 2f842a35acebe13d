//! A double of Kubernetes, written from its published API: an API server with the scale of Deployments and the list of pods, the
//! Deployment controller, a scheduler that counts GPUs, and a machine that runs a program for each pod. It refuses, forbids and
//! disappears on demand.

mod cluster;
mod server;

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::{Arc, Mutex};

use serde_json::Value;

use cluster::Cluster;

pub const NAMESPACE: &str = "lab";

/// Faults of the API server.
#[derive(Clone, Debug, Default)]
pub struct Manners {
    /// Accepted tokens; if empty, every token is accepted.
    pub tokens: Vec<String>,
    /// Operations that are forbidden to the service account, such as `get deployments/scale`, `update deployments/scale` or `list
    /// pods`.
    pub forbidden: BTreeSet<String>,
    /// Number of next changes that conflict with an earlier change.
    pub conflicts: u32,
    /// Every call gets 503.
    pub is_away: bool,
    /// The next change is carried out without a response.
    pub loses_response: bool,
    /// Maximum number of pods per page.
    pub page: Option<usize>,
}

/// Starts the program of a pod.
pub type Starts = dyn Fn(&str) -> Child + Send + Sync;

/// Dropping it ends the programs of its pods.
pub struct Kubernetes {
    cluster: Arc<Mutex<Cluster>>,
    manners: Arc<Mutex<Manners>>,
    address: SocketAddr,
}

impl Kubernetes {
    /// Starts on a free local port, and runs until the process ends. `gpus` is the number of GPUs of its machine.
    pub fn start(pool: &str, gpus: u32) -> Kubernetes {
        let cluster = Arc::new(Mutex::new(Cluster::new(pool, gpus)));
        let manners = Arc::new(Mutex::new(Manners::default()));
        let address = server::start(Arc::clone(&cluster), Arc::clone(&manners));
        Kubernetes {
            cluster,
            manners,
            address,
        }
    }

    /// Plain HTTP; use `servers::tls_before` for TLS.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// The response to a call without a body.
    pub fn get(&self, path: &str) -> Value {
        let mut socket = TcpStream::connect(self.address).unwrap();
        let request = format!("GET {path} HTTP/1.0\r\nHost: double\r\n\r\n");
        socket.write_all(request.as_bytes()).unwrap();
        let mut response = String::new();
        socket.read_to_string(&mut response).unwrap();
        let (_, body) = response.split_once("\r\n\r\n").unwrap();
        serde_json::from_str(body).unwrap()
    }

    /// Creates a Deployment without pods. Each pod has this many GPUs.
    pub fn deploy(&self, name: &str, gpus: u32) {
        self.with(|cluster| cluster.deploy("deployments", name, gpus, 1));
    }

    /// Creates a StatefulSet without pods.
    pub fn stateful_set(&self, name: &str, gpus: u32) {
        self.with(|cluster| cluster.deploy("statefulsets", name, gpus, 1));
    }

    /// Creates a LeaderWorkerSet without groups. Each group has this many pods.
    pub fn leader_worker_set(&self, name: &str, gpus: u32, size: u32) {
        self.with(|cluster| cluster.deploy("leaderworkersets", name, gpus, size));
    }

    /// Scheduled pods run this program from now on. It receives SIGTERM when its pod ends.
    pub fn runs(&self, starts: impl Fn(&str) -> Child + Send + Sync + 'static) {
        self.with(|cluster| cluster.starts = Some(Arc::new(starts)));
        self.settle();
    }

    pub fn behave(&self, change: impl FnOnce(&mut Manners)) {
        change(&mut self.manners.lock().unwrap());
    }

    /// Changes the number of GPUs of the machine.
    pub fn set_gpus(&self, gpus: u32) {
        self.with(|cluster| cluster.gpus = gpus);
        self.settle();
    }

    /// Sets the number of pods, as another program would.
    pub fn scale(&self, deployment: &str, replicas: u32) {
        self.with(|cluster| cluster.set_replicas(deployment, replicas));
        self.settle();
    }

    pub fn replicas(&self, deployment: &str) -> u32 {
        self.with(|cluster| cluster.deployments[deployment].replicas)
    }

    /// The sum over all Deployments.
    pub fn all_replicas(&self) -> u32 {
        self.with(|cluster| {
            cluster
                .deployments
                .values()
                .map(|deployment| deployment.replicas)
                .sum()
        })
    }

    /// Names of a Deployment's pods, including ending ones.
    pub fn pods(&self, deployment: &str) -> Vec<String> {
        self.with(|cluster| {
            let pods = cluster
                .pods
                .values()
                .filter(|pod| pod.deployment == deployment);
            pods.map(|pod| pod.name.clone()).collect()
        })
    }

    /// Sets a field of a pod, such as `/status/phase`.
    pub fn set(&self, pod: &str, pointer: &str, value: Value) {
        self.with(|cluster| {
            let object = &mut cluster.pods.get_mut(pod).expect("a pod").object;
            let (parent, key) = pointer.rsplit_once('/').expect("a path");
            object.pointer_mut(parent).expect("its parent")[key] = value;
        });
    }

    /// Evicts a pod as `kubectl drain` does: the pod ends, and a new one is created.
    pub fn evict(&self, pod: &str) {
        self.with(|cluster| cluster.evict(pod));
        self.settle();
    }

    /// Calls since the last call of this function, such as `GET /api/v1/…`.
    pub fn calls(&self) -> Vec<String> {
        self.with(|cluster| std::mem::take(&mut cluster.calls))
    }

    fn with<R>(&self, edit: impl FnOnce(&mut Cluster) -> R) -> R {
        edit(&mut self.cluster.lock().unwrap())
    }

    fn settle(&self) {
        cluster::settle(&self.cluster);
    }
}

impl Drop for Kubernetes {
    fn drop(&mut self) {
        let mut cluster = match self.cluster.lock() {
            Ok(cluster) => cluster,
            Err(poisoned) => poisoned.into_inner(),
        };
        cluster.end();
    }
}

/// Files of a service account: its token and its certificate authorities.
pub struct Account {
    pub token: PathBuf,
    pub ca: PathBuf,
}

impl Account {
    pub fn in_folder(folder: &Path, token: &str) -> Account {
        let account = Account {
            token: folder.join("token"),
            ca: folder.join("ca.crt"),
        };
        std::fs::write(&account.token, token).unwrap();
        account
    }
}
