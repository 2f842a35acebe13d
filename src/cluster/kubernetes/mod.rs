//! Kubernetes as a cluster: each node is the pod of a Deployment with at most one pod. Scaling that Deployment to zero gives back
//! the lease. Nodes that are requested together are the pods of a LeaderWorkerSet or StatefulSet, which the pool scales as one.
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
mod scaled;

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
use scaled::{Scaled, ScaledKind};

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

    /// The objects that make the possible nodes.
    fn objects(&self) -> Vec<Scaled<'_>> {
        scaled::all(&self.section)
    }

    async fn scale(&self, object: &Scaled<'_>) -> Result<Scale, CallError> {
        let namespace = self.api.namespace()?;
        let call = Call::Scale {
            kind: object.kind,
            name: object.name.to_owned(),
        };
        let path = scale_path(&namespace, object);
        self.api.call(&call, Method::GET, &path, &[], None).await
    }

    /// Sets the number of pods. Fails with a conflict if the object has changed since `scale` was read.
    async fn set_scale(
        &self,
        object: &Scaled<'_>,
        mut scale: Scale,
        replicas: u32,
    ) -> Result<(), CallError> {
        let namespace = self.api.namespace()?;
        scale.spec.replicas = replicas;
        let body = serde_json::to_string(&scale).map_err(|error| ClusterError::Output {
            program: "the API server".to_owned(),
            message: error.to_string(),
        })?;
        let call = Call::Scale {
            kind: object.kind,
            name: object.name.to_owned(),
        };
        let path = scale_path(&namespace, object);
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

    /// The desired number of pods, or of groups of pods; 0 if the object does not exist.
    async fn replicas(&self, object: &Scaled<'_>) -> Result<u32, ClusterError> {
        match self.scale(object).await {
            Ok(scale) => Ok(scale.spec.replicas),
            Err(CallError::NotFound) => Ok(0),
            Err(error) => Err(self.plain(error, object.name)),
        }
    }

    /// The leases of an object with its pods: one, or one for each node of a set.
    async fn leases(
        &self,
        object: Scaled<'_>,
        pods: &[Pod],
    ) -> Result<Vec<NodeLease>, ClusterError> {
        let pods: Vec<&Pod> = pods.iter().filter(|pod| is_of(pod, object.name)).collect();
        let stays = pods.iter().filter(|pod| !pod.is_leaving()).count();
        // An object with all of its pods needs no call.
        let replicas = if stays >= object.nodes as usize {
            object.replicas()
        } else {
            self.replicas(&object).await?
        };
        let slot = Slot {
            shape: object.shape,
            deployment: LeaseId::parse(object.name)?,
            demand: self.demands().get(object.name).copied(),
            replicas,
            pods,
        };
        Ok(if object.is_set() {
            leases::of_set(&slot, &object)
        } else {
            leases::lease(&slot).into_iter().collect()
        })
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

    /// Scales an object from zero pods to its nodes. Returns false if it has pods already or does not exist.
    async fn take(&self, object: &Scaled<'_>, demand: Option<u64>) -> Result<bool, ClusterError> {
        let deployment = object.name;
        for _ in 0..TRIES_MAX {
            let scale = match self.scale(object).await {
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
            match self.set_scale(object, scale, object.replicas()).await {
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

impl Kubernetes {
    /// Scales the first of these objects that has no pods. Those whose old pods finish come last: they would need additional GPUs.
    async fn take_any(
        &self,
        objects: &[Scaled<'_>],
        demand: Option<u64>,
    ) -> Result<Option<LeaseId>, ClusterError> {
        let pods = self.pods().await?;
        let is_used = |object: &&Scaled| pods.iter().any(|pod| is_of(pod, object.name));
        let (used, free): (Vec<&Scaled>, Vec<&Scaled>) = objects.iter().partition(is_used);
        for object in free.into_iter().chain(used) {
            if self.take(object, demand).await? {
                return LeaseId::parse(object.name).map(Some);
            }
        }
        Ok(None)
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
        let all = self.objects().into_iter();
        let all = all.filter(|object| !object.is_set() && object.shape == shape);
        let names: Vec<Scaled> = all.collect();
        if let Some(id) = self.take_any(&names, demand).await? {
            return Ok(id);
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

    /// `None` without a free set of this size: as many Deployments serve the requests.
    async fn request_set(
        &self,
        shape: &str,
        demands: &[u64],
        _exclude: &[String],
    ) -> Option<Result<LeaseId, ClusterError>> {
        let all = self.objects().into_iter();
        let fits = |object: &Scaled| {
            object.is_set() && object.shape == shape && object.nodes as usize == demands.len()
        };
        let sets: Vec<Scaled> = all.filter(fits).collect();
        if sets.is_empty() {
            return None;
        }
        let taken = self.take_any(&sets, demands.first().copied()).await;
        taken.transpose()
    }

    async fn status(&self) -> Result<Vec<NodeLease>, ClusterError> {
        let pods = self.pods().await?;
        let calls: Vec<_> = self
            .objects()
            .into_iter()
            .map(|object| self.leases(object, &pods))
            .collect();
        let leases = stream::iter(calls).buffered(CALLS_AT_ONCE).try_collect();
        let leases: Vec<Vec<NodeLease>> = leases.await?;
        Ok(leases.into_iter().flatten().collect())
    }

    /// Both ways send SIGTERM to the pod, which then has the grace period of its template.
    async fn release(&self, id: &LeaseId, _how: Release) -> Result<(), ClusterError> {
        let name = id.as_str();
        let objects = self.objects();
        let Some(object) = objects.iter().find(|object| object.name == name) else {
            return Err(ClusterError::WrongId { id: id.to_string() });
        };
        for _ in 0..TRIES_MAX {
            let set = match self.scale(object).await {
                Ok(scale) if scale.spec.replicas == 0 => Ok(()),
                Ok(scale) => self.set_scale(object, scale, 0).await,
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

fn scale_path<'a>(namespace: &'a str, object: &Scaled<'a>) -> [&'a str; 8] {
    let (group, resource) = object.kind.resource();
    [
        "apis",
        group,
        "v1",
        "namespaces",
        namespace,
        resource,
        object.name,
        "scale",
    ]
}

fn is_of(pod: &Pod, deployment: &str) -> bool {
    let label = pod.metadata.labels.get(DEPLOYMENT_LABEL);
    label.is_some_and(|value| value == deployment)
}

#[cfg(test)]
mod tests;
