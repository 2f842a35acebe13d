//! The parts behind the API server: they create pods, assign machines, and run programs.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::{Value, json};

use super::{NAMESPACE, Starts};

const MACHINE: &str = "gpu-machine-1";

/// An object whose number of pods can be set.
pub struct Deployment {
    /// The resource of its API group, such as `deployments`.
    pub resource: &'static str,
    pub replicas: u32,
    pub version: u64,
    gpus: u32,
    /// The pods of each replica.
    size: u32,
}

pub struct Pod {
    pub name: String,
    pub deployment: String,
    pub object: Value,
    gpus: u32,
    is_scheduled: bool,
    is_leaving: bool,
    pid: Option<u32>,
    has_ended: bool,
}

pub struct Cluster {
    pool: String,
    pub gpus: u32,
    pub deployments: BTreeMap<String, Deployment>,
    pub pods: BTreeMap<String, Pod>,
    pub starts: Option<Arc<Starts>>,
    pub calls: Vec<String>,
    version: u64,
    made: u32,
}

impl Cluster {
    pub fn new(pool: &str, gpus: u32) -> Cluster {
        Cluster {
            pool: pool.to_owned(),
            gpus,
            deployments: BTreeMap::new(),
            pods: BTreeMap::new(),
            starts: None,
            calls: Vec::new(),
            version: 1000,
            made: 0,
        }
    }

    pub fn next_version(&mut self) -> u64 {
        self.version += 1;
        self.version
    }

    /// `size` is the number of pods of each replica of `resource`.
    pub fn deploy(&mut self, resource: &'static str, name: &str, gpus: u32, size: u32) {
        let version = self.next_version();
        let deployment = Deployment {
            resource,
            replicas: 0,
            version,
            gpus,
            size,
        };
        self.deployments.insert(name.to_owned(), deployment);
    }

    pub fn set_replicas(&mut self, name: &str, replicas: u32) {
        let version = self.next_version();
        let deployment = self.deployments.get_mut(name).expect("a Deployment");
        deployment.replicas = replicas;
        deployment.version = version;
    }

    pub fn evict(&mut self, name: &str) {
        let pod = self.pods.get_mut(name).expect("a pod");
        let conditions = &mut pod.object["status"]["conditions"];
        conditions.as_array_mut().expect("conditions").push(json!({
            "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting"}));
        pod.leaves();
    }

    /// Ends all programs and starts no more.
    pub fn end(&mut self) {
        self.starts = None;
        for pid in self.pods.values().filter_map(|pod| pod.pid) {
            signal(pid, "-KILL");
        }
    }

    fn active(&self, deployment: &str) -> Vec<String> {
        let pods = self.pods.values();
        let active = pods.filter(|pod| pod.deployment == deployment && !pod.is_leaving);
        active.map(|pod| pod.name.clone()).collect()
    }

    /// The Deployment controller: creates and removes pods to match the desired numbers. Pods without a machine are removed first.
    fn make_pods(&mut self) {
        let names: Vec<String> = self.deployments.keys().cloned().collect();
        for name in names {
            let wanted = &self.deployments[&name];
            let wanted = (wanted.replicas * wanted.size) as usize;
            let mut active = self.active(&name);
            if active.len() == wanted {
                continue;
            }
            while active.len() < wanted {
                active.push(self.make_pod(&name));
            }
            active.sort_by_key(|name| self.pods[name].is_scheduled);
            for surplus in &active[..active.len() - wanted] {
                self.pods.get_mut(surplus).expect("a pod").leaves();
            }
            // The Deployment's status has changed.
            let version = self.next_version();
            self.deployments.get_mut(&name).expect("there").version = version;
        }
        // A pod without a program ends immediately.
        self.pods
            .retain(|_, pod| !pod.is_leaving || pod.pid.is_some());
    }

    fn make_pod(&mut self, deployment: &str) -> String {
        self.made += 1;
        let name = self.free_name(deployment);
        let gpus = self.deployments[deployment].gpus;
        let object = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": name, "namespace": NAMESPACE, "uid": format!("uid-{}", self.made),
                "creationTimestamp": format!("2026-01-01T00:{:02}:00Z", self.made % 60),
                "labels": {"model-pool/pool": self.pool, "model-pool/deployment": deployment},
            },
            "spec": {"containers": [{"name": "node", "resources": {"limits": {"nvidia.com/gpu": gpus}}}]},
            "status": {"phase": "Pending", "conditions": []},
        });
        let pod = Pod {
            name: name.clone(),
            deployment: deployment.to_owned(),
            object,
            gpus,
            is_scheduled: false,
            is_leaving: false,
            pid: None,
            has_ended: false,
        };
        self.pods.insert(name.clone(), pod);
        name
    }

    /// Pods of a Deployment have new names, and pods of sets have the first free number.
    fn free_name(&self, deployment: &str) -> String {
        let size = self.deployments[deployment].size;
        let numbered = |rank: u32| match self.deployments[deployment].resource {
            "deployments" => format!("{deployment}-5d9c7b6f8-{:05}", self.made),
            "leaderworkersets" if rank.is_multiple_of(size) => {
                format!("{deployment}-{}", rank / size)
            }
            "leaderworkersets" => format!("{deployment}-{}-{}", rank / size, rank % size),
            _ => format!("{deployment}-{rank}"),
        };
        let mut names = (0..).map(numbered);
        let is_free = |name: &String| !self.pods.contains_key(name);
        names.find(is_free).expect("a free name")
    }

    /// The scheduler: assigns GPUs to pods in order of creation.
    fn schedule(&mut self) -> Vec<String> {
        let used: u32 = self
            .pods
            .values()
            .filter(|pod| pod.is_scheduled)
            .map(|pod| pod.gpus)
            .sum();
        let mut free = self.gpus.saturating_sub(used);
        let mut scheduled = Vec::new();
        for pod in self.pods.values_mut().filter(|pod| !pod.is_scheduled) {
            if pod.gpus > free {
                pod.object["status"]["conditions"] = json!([{
                    "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                    "message": "0/1 nodes are available: 1 Insufficient nvidia.com/gpu. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."}]);
                continue;
            }
            free -= pod.gpus;
            pod.is_scheduled = true;
            pod.object["spec"]["nodeName"] = json!(MACHINE);
            pod.object["status"]["conditions"] =
                json!([{"type": "PodScheduled", "status": "True"}]);
            pod.object["status"]["startTime"] = json!("2026-01-01T01:00:00Z");
            let state = json!({"waiting": {"reason": "ContainerCreating"}});
            pod.object["status"]["containerStatuses"] = containers(0, &state, &json!({}));
        }
        if self.starts.is_some() {
            let ready = self.pods.values();
            let ready = ready.filter(|pod| pod.is_scheduled && !pod.is_leaving && pod.is_new());
            scheduled.extend(ready.map(|pod| pod.name.clone()));
        }
        scheduled
    }
}

impl Pod {
    fn is_new(&self) -> bool {
        self.pid.is_none() && !self.has_ended
    }

    /// Starts the pod's termination and sends SIGTERM to its program.
    fn leaves(&mut self) {
        if std::mem::replace(&mut self.is_leaving, true) {
            return;
        }
        self.object["metadata"]["deletionTimestamp"] = json!("2026-01-01T02:12:00Z");
        if let Some(pid) = self.pid {
            signal(pid, "-TERM");
        }
    }
}

/// A program that has just ended is still unreaped or gone, and its process id is not reused in this time.
fn signal(pid: u32, signal: &str) {
    let mut kill = Command::new("kill");
    let _ = kill.args([signal, &pid.to_string()]).status();
}

/// The container statuses of a pod.
fn containers(restarts: u32, state: &Value, last: &Value) -> Value {
    json!([{"name": "node", "image": "model-pool:1", "imageID": "", "ready": state["running"].is_object(),
        "restartCount": restarts, "state": state, "lastState": last}])
}

/// Applies all pending changes: creates and schedules pods, and starts their programs. The next call or the end of a program causes
/// further changes.
pub fn settle(cluster: &Arc<Mutex<Cluster>>) {
    let mut inner = cluster.lock().unwrap();
    inner.make_pods();
    let ready = inner.schedule();
    let Some(starts) = inner.starts.clone() else {
        return;
    };
    for name in ready {
        let mut child = starts(&name);
        let pod = inner.pods.get_mut(&name).expect("a pod");
        pod.pid = Some(child.id());
        pod.object["status"]["phase"] = json!("Running");
        let state = json!({"running": {"startedAt": "2026-01-01T01:00:01Z"}});
        pod.object["status"]["containerStatuses"] = containers(0, &state, &json!({}));
        let cluster = Arc::clone(cluster);
        thread::spawn(move || {
            let status = child.wait().ok().and_then(|status| status.code());
            ended(&cluster, &name, status.unwrap_or(137));
        });
    }
}

/// A terminating pod disappears with its program; any other pod enters back-off.
fn ended(cluster: &Arc<Mutex<Cluster>>, name: &str, status: i32) {
    {
        let mut inner = cluster.lock().unwrap();
        let Some(pod) = inner.pods.get_mut(name) else {
            return;
        };
        if pod.is_leaving {
            inner.pods.remove(name);
        } else {
            pod.pid = None;
            pod.has_ended = true;
            let state = json!({"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s restarting failed container"}});
            let last = json!({"terminated": {"exitCode": status, "reason": "Error", "message": "the end of its log\n"}});
            pod.object["status"]["containerStatuses"] = containers(1, &state, &last);
        }
    }
    settle(cluster);
}
