//! A double of Kubernetes, written from its published API: an API server with the scale of Deployments and the list of
//! pods, and behind it the parts that make pods of numbers: the controller of Deployments, a scheduler that counts GPUs,
//! and a machine that runs a program for each pod. It refuses, forbids and disappears on demand.

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
    /// The tokens that it accepts; without any, each.
    pub tokens: Vec<String>,
    /// What the service account may not, as `get deployments/scale`, `update deployments/scale` or `list pods`.
    pub forbidden: BTreeSet<String>,
    /// So many of the next changes come too late: another one changed the object first.
    pub conflicts: u32,
    /// Each call is answered with 503.
    pub is_away: bool,
    /// The next change is carried out and not answered.
    pub loses_answer: bool,
    /// The next pages of pods have so many.
    pub page: Option<usize>,
}

/// Starts the program of a pod.
pub type Starts = dyn Fn(&str) -> Child + Send + Sync;

/// Its pods' programs end with it.
pub struct Kubernetes {
    cluster: Arc<Mutex<Cluster>>,
    manners: Arc<Mutex<Manners>>,
    address: SocketAddr,
}

impl Kubernetes {
    /// On a free port of this machine, until the process ends. `gpus`: those of its one machine.
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

    /// Plain; for TLS there is `servers::tls_before`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// What a call without a body is answered.
    pub fn get(&self, path: &str) -> Value {
        let mut socket = TcpStream::connect(self.address).unwrap();
        let request = format!("GET {path} HTTP/1.0\r\nHost: double\r\n\r\n");
        socket.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        serde_json::from_str(body).unwrap()
    }

    /// A Deployment without a pod, each of whose pods has so many GPUs.
    pub fn deploy(&self, name: &str, gpus: u32) {
        self.with(|it| it.deploy(name, gpus));
    }

    /// From now on a pod that has its machine runs this program, which gets SIGTERM when the pod is to end.
    pub fn runs(&self, starts: impl Fn(&str) -> Child + Send + Sync + 'static) {
        self.with(|it| it.starts = Some(Arc::new(starts)));
        self.settle();
    }

    pub fn behave(&self, change: impl FnOnce(&mut Manners)) {
        change(&mut self.manners.lock().unwrap());
    }

    /// The machine has so many GPUs from now on.
    pub fn set_gpus(&self, gpus: u32) {
        self.with(|it| it.gpus = gpus);
        self.settle();
    }

    /// Another program sets the number of pods.
    pub fn scale(&self, deployment: &str, replicas: u32) {
        self.with(|it| it.set_replicas(deployment, replicas));
        self.settle();
    }

    pub fn replicas(&self, deployment: &str) -> u32 {
        self.with(|it| it.deployments[deployment].replicas)
    }

    /// The sum over all Deployments.
    pub fn all_replicas(&self) -> u32 {
        self.with(|it| it.deployments.values().map(|it| it.replicas).sum())
    }

    /// Names of the pods of a Deployment, those that end included.
    pub fn pods(&self, deployment: &str) -> Vec<String> {
        self.with(|it| {
            let of_it = it.pods.values().filter(|it| it.deployment == deployment);
            of_it.map(|it| it.name.clone()).collect()
        })
    }

    /// A part of a pod is as the test says, such as `/status/phase`.
    pub fn set(&self, pod: &str, pointer: &str, value: Value) {
        self.with(|it| {
            let object = &mut it.pods.get_mut(pod).expect("a pod").object;
            let (parent, key) = pointer.rsplit_once('/').expect("a path");
            object.pointer_mut(parent).expect("its parent")[key] = value;
        });
    }

    /// As `kubectl drain`: the pod ends, and another one comes.
    pub fn evict(&self, pod: &str) {
        self.with(|it| it.evict(pod));
        self.settle();
    }

    /// Calls since the last time, as `GET /api/v1/…`.
    pub fn calls(&self) -> Vec<String> {
        self.with(|it| std::mem::take(&mut it.calls))
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

/// The files of a service account: its token, and where the authorities go.
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
