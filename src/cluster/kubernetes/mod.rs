//! Kubernetes as a cluster: each node is the pod of a Deployment with at most one pod. Scaling that Deployment to zero gives back
//! the lease.
//!
//! A single Deployment with many pods could not release a chosen pod: a StatefulSet always removes its last pod, and a Deployment
//! removes pending and unready pods before it considers their `pod-deletion-cost`, so a pending request would go instead of an idle
//! node. Setting that cost would also need the right to change pods. A StatefulSet with one pod would reuse the pod's name on
//! another machine, and the controller could not distinguish the new node from the one it has lost; the pods of a Deployment have
//! new names. See docs/guides/kubernetes.md.

mod api;
mod inspection;
mod leases;
mod objects;
mod reasons;

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures_util::{StreamExt, TryStreamExt, stream};
use reqwest::Method;

use super::shape::find_shape;
use super::{Cluster, ClusterError, LeaseId, NodeLease, Release};
use api::{Api, CallError};
use config::ClusterSection;
use leases::Slot;
use objects::{Pod, PodList, Scale};
use reasons::Call;

/// Labels of the pods, with the names of the pool and the Deployment.
const POOL_LABEL: &str = "model-pool/pool";
const DEPLOYMENT_LABEL: &str = "model-pool/deployment";
/// Attempts to set a number of pods that another program may change at the same time.
const TRIES_MAX: u32 = 5;
const CALLS_AT_ONCE: usize = 8;
const PAGE: &str = "200";
const PAGES_MAX: usize = 50;

pub struct Kubernetes {
    section: ClusterSection,
    api: Api,
    /// The numbers of this process's requests, by Deployment. Numbers of an earlier process are not known.
    demands: Mutex<BTreeMap<String, u64>>,
}

impl Kubernetes {
    pub fn new(section: &ClusterSection) -> Kubernetes {
        Kubernetes {
            section: section.clone(),
            api: Api::new(&section.kubernetes),
            demands: Mutex::new(BTreeMap::new()),
        }
    }

    fn demands(&self) -> MutexGuard<'_, BTreeMap<String, u64>> {
        self.demands.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The shape and Deployment of each possible node.
    fn deployments(&self) -> impl Iterator<Item = (&str, &str)> {
        let all = self.section.kubernetes.deployments.iter();
        all.flat_map(|(shape, names)| names.iter().map(|name| (shape.as_str(), name.as_str())))
    }

    async fn scale(&self, deployment: &str) -> Result<Scale, CallError> {
        let namespace = self.api.namespace()?;
        let call = Call::ReadScale {
            deployment: deployment.to_owned(),
        };
        let path = scale_path(&namespace, deployment);
        self.api.call(&call, Method::GET, &path, &[], None).await
    }

    /// Sets the number of pods. Fails with a conflict if the object has changed since `scale` was read.
    async fn set_scale(
        &self,
        deployment: &str,
        mut scale: Scale,
        replicas: u32,
    ) -> Result<(), CallError> {
        let namespace = self.api.namespace()?;
        scale.spec.replicas = replicas;
        let body = serde_json::to_string(&scale).map_err(|error| ClusterError::Output {
            program: "the API server".to_owned(),
            message: error.to_string(),
        })?;
        let call = Call::WriteScale {
            deployment: deployment.to_owned(),
        };
        let path = scale_path(&namespace, deployment);
        let put = self
            .api
            .call::<Scale>(&call, Method::PUT, &path, &[], Some(body));
        put.await.map(drop)
    }

    /// All pods of this pool.
    async fn pods(&self) -> Result<Vec<Pod>, ClusterError> {
        let namespace = self.api.namespace()?;
        let selector = format!("{POOL_LABEL}={}", self.section.name);
        let path = ["api", "v1", "namespaces", &namespace, "pods"];
        let mut pods = Vec::new();
        let mut next: Option<String> = None;
        for _ in 0..PAGES_MAX {
            let mut query = vec![("labelSelector", selector.as_str()), ("limit", PAGE)];
            if let Some(next) = &next {
                query.push(("continue", next));
            }
            let page = self
                .api
                .call(&Call::ListPods, Method::GET, &path, &query, None);
            let page: PodList = page.await.map_err(|error| self.plain(error, "pods"))?;
            pods.extend(page.items);
            next = page.metadata.next.filter(|next| !next.is_empty());
            if next.is_none() {
                return Ok(pods);
            }
        }
        Err(ClusterError::Output {
            program: "the API server".to_owned(),
            message: format!("it lists more than {} pods of this pool", pods.len()),
        })
    }

    /// The desired number of pods of a Deployment; 0 if it does not exist.
    async fn replicas(&self, deployment: &str) -> Result<u32, ClusterError> {
        match self.scale(deployment).await {
            Ok(scale) => Ok(scale.spec.replicas),
            Err(CallError::NotFound) => Ok(0),
            Err(error) => Err(self.plain(error, deployment)),
        }
    }

    /// The lease of a Deployment with its pods.
    async fn lease(
        &self,
        shape: &str,
        name: &str,
        pods: &[Pod],
    ) -> Result<Option<NodeLease>, ClusterError> {
        let pods: Vec<&Pod> = pods.iter().filter(|pod| is_of(pod, name)).collect();
        // A Deployment with a pod needs no call.
        let replicas = match leases::staying(&pods) {
            Some(_) => 1,
            None => self.replicas(name).await?,
        };
        let slot = Slot {
            shape,
            deployment: LeaseId::parse(name)?,
            demand: self.demands().get(name).copied(),
            replicas,
            pods,
        };
        Ok(leases::lease(&slot))
    }

    fn plain(&self, error: CallError, what: &str) -> ClusterError {
        let refused = |message: String| ClusterError::Refused {
            program: "the API server".to_owned(),
            message,
            advice: String::new(),
        };
        match error {
            CallError::Other(error) => error,
            CallError::NotFound => {
                let namespace = self.api.namespace().unwrap_or_default();
                refused(format!(
                    "the namespace {namespace} has no {what}; correct cluster.kubernetes.namespace"
                ))
            }
            CallError::Conflict => refused(format!(
                "{what} was changed {TRIES_MAX} times while the pool set its number of pods; check whether another program sets it, such as an autoscaler"
            )),
        }
    }

    /// Scales a Deployment from zero pods to one. Returns false if it has a pod already or does not exist.
    async fn take(&self, deployment: &str, demand: Option<u64>) -> Result<bool, ClusterError> {
        for _ in 0..TRIES_MAX {
            let scale = match self.scale(deployment).await {
                Ok(scale) if scale.spec.replicas > 0 => return Ok(false),
                Ok(scale) => scale,
                Err(CallError::NotFound) => return Ok(false),
                Err(error) => return Err(self.plain(error, deployment)),
            };
            // Recorded before the call, which may be carried out without a response.
            self.demands().remove(deployment);
            if let Some(demand) = demand {
                self.demands().insert(deployment.to_owned(), demand);
            }
            match self.set_scale(deployment, scale, 1).await {
                Ok(()) => return Ok(true),
                Err(CallError::Conflict) => {
                    self.demands().remove(deployment);
                }
                Err(error) => {
                    let error = self.plain(error, deployment);
                    if !error.is_unknown() {
                        self.demands().remove(deployment);
                    }
                    return Err(error);
                }
            }
        }
        Err(self.plain(CallError::Conflict, deployment))
    }
}

impl Cluster for Kubernetes {
    /// `exclude` has no effect: the scheduler chooses the machine. `kubectl cordon` leaves one out.
    async fn request(
        &self,
        shape: &str,
        demand: Option<u64>,
        _exclude: &[String],
    ) -> Result<LeaseId, ClusterError> {
        find_shape(&self.section, shape)?;
        let names = self.section.kubernetes.deployments.get(shape);
        let names = names.map(Vec::as_slice).unwrap_or_default();
        let pods = self.pods().await?;
        // While a Deployment's old pod finishes, its new pod would need additional GPUs, so these Deployments come last.
        let is_used = |name: &&String| pods.iter().any(|pod| is_of(pod, name));
        let (used, free): (Vec<&String>, Vec<&String>) = names.iter().partition(is_used);
        for name in free.into_iter().chain(used) {
            if self.take(name, demand).await? {
                return LeaseId::parse(name);
            }
        }
        Err(ClusterError::Refused {
            program: "the pool".to_owned(),
            message: format!(
                "all {} nodes of the shape {shape} are in use or requested; list more Deployments in cluster.kubernetes.deployments (with the chart: raise its `count`)",
                names.len()
            ),
            advice: String::new(),
        })
    }

    async fn status(&self) -> Result<Vec<NodeLease>, ClusterError> {
        let pods = self.pods().await?;
        let calls: Vec<_> = self
            .deployments()
            .map(|(shape, name)| self.lease(shape, name, &pods))
            .collect();
        let leases = stream::iter(calls).buffered(CALLS_AT_ONCE).try_collect();
        let leases: Vec<Option<NodeLease>> = leases.await?;
        Ok(leases.into_iter().flatten().collect())
    }

    /// Both ways send SIGTERM to the pod, which then has the grace period of its template.
    async fn release(&self, id: &LeaseId, _how: Release) -> Result<(), ClusterError> {
        let name = id.as_str();
        if self.deployments().all(|(_, deployment)| deployment != name) {
            return Err(ClusterError::WrongId { id: id.to_string() });
        }
        for _ in 0..TRIES_MAX {
            let set = match self.scale(name).await {
                Ok(scale) if scale.spec.replicas == 0 => Ok(()),
                Ok(scale) => self.set_scale(name, scale, 0).await,
                Err(error) => Err(error),
            };
            match set {
                Ok(()) | Err(CallError::NotFound) => {
                    self.demands().remove(name);
                    return Ok(());
                }
                Err(CallError::Conflict) => {}
                Err(error) => return Err(self.plain(error, name)),
            }
        }
        Err(self.plain(CallError::Conflict, name))
    }

    fn node_of(&self, id: &LeaseId) -> Option<String> {
        Some(id.to_string())
    }

    /// The pool has no right to read the pods' logs. The reasons include the end of a failed container.
    async fn log_end(&self, _: &LeaseId) -> Option<String> {
        None
    }
}

fn scale_path<'a>(namespace: &'a str, deployment: &'a str) -> [&'a str; 8] {
    [
        "apis",
        "apps",
        "v1",
        "namespaces",
        namespace,
        "deployments",
        deployment,
        "scale",
    ]
}

fn is_of(pod: &Pod, deployment: &str) -> bool {
    let label = pod.metadata.labels.get(DEPLOYMENT_LABEL);
    label.is_some_and(|value| value == deployment)
}

#[cfg(test)]
mod tests;
