//! Inspects a Kubernetes cluster for the configuration's needs without changing anything: `model-pool check --kubernetes`.

use reqwest::Method;

use super::super::{Cluster, ClusterError, Finding, LeaseState};
use super::api::CallError;
use super::objects::{Scale, Version};
use super::reasons::Call;
use super::{DEPLOYMENT_LABEL, Kubernetes, POOL_LABEL, Scaled, ScaledKind, scale_path};

impl Kubernetes {
    /// All findings. A problem does not hide later ones, unless the API server cannot be reached at all.
    pub async fn inspect(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        let place = match (self.api.server(), self.api.namespace()) {
            (Ok(server), Ok(namespace)) => (server, namespace),
            (server, namespace) => {
                let errors = [server.err(), namespace.err()];
                let errors = errors.into_iter().flatten();
                findings.extend(errors.map(|error| Finding::Problem(error.to_string())));
                return findings;
            }
        };
        match self.version().await {
            Ok(version) => findings.push(Finding::Good(format!(
                "the API server {} answers: Kubernetes {version}; namespace {}",
                place.0, place.1
            ))),
            Err(error @ ClusterError::Refused { .. }) => findings.push(Finding::Note(format!(
                "the version of Kubernetes is not known: {error}"
            ))),
            Err(error) => {
                findings.push(Finding::Problem(error.to_string()));
                return findings;
            }
        }
        findings.push(self.listing().await);
        for shape in &self.section.shapes {
            let mut problems = Vec::new();
            let objects = self.objects().into_iter();
            let (sets, single): (Vec<Scaled>, Vec<Scaled>) = objects
                .filter(|object| object.shape == shape.name)
                .partition(Scaled::is_set);
            for object in single.iter().chain(&sets) {
                problems.extend(self.object(object).await);
            }
            if problems.is_empty() {
                let and_sets = match sets.len() {
                    0 => String::new(),
                    count => format!(" and {count} sets"),
                };
                findings.push(Finding::Good(format!(
                    "shape {}: {} Deployments{and_sets}, whose number of pods may be read and set",
                    shape.name,
                    single.len()
                )));
            }
            // All Deployments lack the same rule.
            findings.extend(problems.into_iter().take(3));
        }
        findings.extend(self.strangers().await);
        findings.push(Finding::Note(
            "not checked: whether machines have the GPUs of a shape, and whether its pods reach the controller. Try: model-pool cluster request SHAPE, then model-pool cluster status"
                .to_owned(),
        ));
        findings
    }

    async fn version(&self) -> Result<String, ClusterError> {
        let version = self
            .api
            .call(&Call::Version, Method::GET, &["version"], &[], None);
        let version: Version = version
            .await
            .map_err(|error| self.plain(error, "version"))?;
        Ok(version.git_version)
    }

    async fn listing(&self) -> Finding {
        let leases = match self.status().await {
            Ok(leases) => leases,
            Err(error) => return Finding::Problem(error.to_string()),
        };
        let count = |is_one: fn(&LeaseState) -> bool| {
            leases.iter().filter(|lease| is_one(&lease.state)).count()
        };
        Finding::Good(format!(
            "pods with the label {POOL_LABEL}={} may be listed: {} pending, {} starting, {} running",
            self.section.name,
            count(|state| matches!(state, LeaseState::Pending { .. })),
            count(|state| matches!(state, LeaseState::Starting { .. })),
            count(|state| matches!(state, LeaseState::Running { .. })),
        ))
    }

    /// The problems of one Deployment or set. A dry run sets its current number of pods.
    async fn object(&self, object: &Scaled<'_>) -> Vec<Finding> {
        let (name, word) = (object.name, object.kind.word());
        let namespace = self.api.namespace().unwrap_or_default();
        let scale = match self.scale(object).await {
            Ok(scale) => scale,
            Err(CallError::NotFound) => {
                let advice = match object.kind {
                    ScaledKind::Deployment => {
                        "correct cluster.kubernetes.deployments, or install the chart with it"
                    }
                    ScaledKind::LeaderWorkerSet => {
                        "create it, install its API in the cluster, or use a StatefulSet in cluster.kubernetes.sets"
                    }
                    ScaledKind::StatefulSet => "create it, or correct cluster.kubernetes.sets",
                };
                return vec![Finding::Problem(format!(
                    "the namespace {namespace} has no {word} {name}; {advice}"
                ))];
            }
            Err(error) => return vec![Finding::Problem(self.plain(error, name).to_string())],
        };
        let mut findings = Vec::new();
        let replicas = scale.spec.replicas;
        if replicas > 0 && replicas != object.replicas() {
            let what = match object.kind {
                ScaledKind::Deployment => "pods, and each has to be one node".to_owned(),
                ScaledKind::StatefulSet | ScaledKind::LeaderWorkerSet => {
                    format!("replicas, and {} make its nodes", object.replicas())
                }
            };
            findings.push(Finding::Problem(format!(
                "the {word} {name} has {replicas} {what}; set it to 0 with `kubectl scale {} {name} --replicas 0`, and find out what has set it, such as an autoscaler",
                word.to_lowercase()
            )));
        }
        let call = Call::Scale {
            kind: object.kind,
            name: name.to_owned(),
        };
        let path = scale_path(&namespace, object);
        let query = [("dryRun", "All")];
        let body = serde_json::to_string(&scale).ok();
        let put = self
            .api
            .call::<Scale>(&call, Method::PUT, &path, &query, body);
        match put.await {
            // A conflict means that the number of pods changed in between, so it may be set.
            Ok(_) | Err(CallError::Conflict) => {}
            Err(error) => findings.push(Finding::Problem(self.plain(error, name).to_string())),
        }
        findings
    }

    /// Pods that look like this pool's nodes and belong to no configured Deployment.
    async fn strangers(&self) -> Option<Finding> {
        let pods = self.pods().await.ok()?;
        let known = |name: &str| self.objects().iter().any(|object| object.name == name);
        let others = pods.iter().filter(|pod| {
            let of = pod.metadata.labels.get(DEPLOYMENT_LABEL);
            of.is_none_or(|of| !known(of))
        });
        let names: Vec<&str> = others
            .map(|pod| pod.metadata.name.as_str())
            .take(5)
            .collect();
        (!names.is_empty()).then(|| {
            Finding::Problem(format!(
                "pods with the label {POOL_LABEL}={} have no label {DEPLOYMENT_LABEL} of an object in cluster.kubernetes.deployments or sets, so they are never given back: {}; list their objects, or correct the labels",
                self.section.name,
                names.join(", ")
            ))
        })
    }
}
