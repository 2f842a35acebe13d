//! Derives a lease from a Deployment and its pods. Makes no calls.

use chrono::DateTime;

use super::super::{LeaseId, LeaseSet, LeaseState, NodeLease, end_texts};
use super::objects::Pod;
use super::reasons;
use super::scaled::Scaled;

/// The number of a request that is no longer known, or of a person's request: every pod belongs to the pool.
pub(super) const UNKNOWN_DEMAND: u64 = 0;

/// A Deployment with at most one pod, or a set with one pod for each node.
pub(super) struct Slot<'a> {
    pub shape: &'a str,
    pub deployment: LeaseId,
    /// The request that it serves, if this process knows it.
    pub demand: Option<u64>,
    /// The desired number of pods.
    pub replicas: u32,
    pub pods: Vec<&'a Pod>,
}

/// The oldest pod that is not leaving. After an eviction there are two pods for some time.
pub(super) fn staying<'a>(pods: &[&'a Pod]) -> Option<&'a Pod> {
    let staying = pods.iter().filter(|pod| !pod.is_leaving());
    let oldest = staying.min_by_key(|pod| (&pod.metadata.creation_timestamp, &pod.metadata.name));
    oldest.copied()
}

/// Returns `None` if the Deployment has no desired pod and no leaving pod.
pub(super) fn lease(slot: &Slot) -> Option<NodeLease> {
    let leaving = slot.pods.iter().find(|pod| pod.is_leaving());
    let (node, state, starts_unix) = match (staying(&slot.pods), slot.replicas) {
        (Some(pod), _) => (
            pod.metadata.name.clone(),
            state(pod),
            seconds(pod.status.start_time.as_deref()),
        ),
        (None, 0) => {
            // The remains of a failed pod hold no machine.
            let pod = leaving.filter(|pod| pod.metadata.deletion_timestamp.is_some())?;
            let place = end_texts::place(&pod.spec.node_name);
            let name = &pod.metadata.name;
            let why = format!("it was given back; its pod {name} finishes{place}");
            (name.clone(), LeaseState::Ended { why }, None)
        }
        (None, _) => (
            // The pod's name is not known yet.
            slot.deployment.to_string(),
            LeaseState::Pending {
                reason: without_pod(slot, leaving),
            },
            None,
        ),
    };
    Some(NodeLease {
        id: slot.deployment.clone(),
        shape: slot.shape.to_owned(),
        node,
        owner: None,
        set: None,
        demand: Some(slot.demand.unwrap_or(UNKNOWN_DEMAND)),
        state,
        time_limit: None,
        starts_unix,
        ends_unix: None,
    })
}

/// The nodes of a set. Empty if it has no desired pods and no leaving ones.
pub(super) fn of_set(slot: &Slot, object: &Scaled) -> Vec<NodeLease> {
    let node = |rank: u32| {
        let name = object.pod(rank);
        let mut own = slot.pods.iter().filter(|pod| pod.metadata.name == name);
        let pod = own.next();
        let staying = pod.filter(|pod| !pod.is_leaving());
        let state = match (staying, slot.replicas) {
            (Some(pod), _) => state(pod),
            (None, 0) => {
                // The remains of a failed pod hold no machine.
                let pod = pod.filter(|pod| pod.metadata.deletion_timestamp.is_some())?;
                let place = end_texts::place(&pod.spec.node_name);
                let why = format!("it was given back; its pod {name} finishes{place}");
                LeaseState::Ended { why }
            }
            (None, _) => LeaseState::Pending {
                reason: match pod {
                    Some(pod) => replaced(pod),
                    None => format!(
                        "its {} has not created the pod {name} yet; if it stays so, `kubectl describe {}/{}` says why",
                        object.kind.word(),
                        object.kind.resource().1,
                        object.name
                    ),
                },
            },
        };
        let demand = slot.demand.map(|first| first.saturating_add(rank.into()));
        Some(NodeLease {
            id: slot.deployment.clone(),
            shape: slot.shape.to_owned(),
            node: name,
            owner: None,
            // The numbers of requests are times; the object's own number is none of them.
            set: Some(LeaseSet {
                first: slot.demand.unwrap_or(object.number),
                nodes: object.nodes,
            }),
            demand: Some(demand.unwrap_or(UNKNOWN_DEMAND)),
            state,
            time_limit: None,
            starts_unix: staying.and_then(|pod| seconds(pod.status.start_time.as_deref())),
            ends_unix: None,
        })
    };
    (0..object.nodes).filter_map(node).collect()
}

fn state(pod: &Pod) -> LeaseState {
    let host = pod.spec.node_name.clone();
    if host.is_empty() {
        let reason = reasons::unscheduled(pod);
        return LeaseState::Pending { reason };
    }
    let reason = reasons::not_started(&pod.status);
    let reason = reason.or_else(|| {
        let is_new = pod.status.phase != "Running";
        is_new.then(|| "its machine has not started it yet".to_owned())
    });
    match reason {
        None => LeaseState::Running { host },
        Some(reason) => LeaseState::Starting { host, reason },
    }
}

fn without_pod(slot: &Slot, leaving: Option<&&Pod>) -> String {
    let Some(pod) = leaving else {
        return format!(
            "its Deployment has not created a pod yet; if it stays so, `kubectl describe replicasets --selector model-pool/deployment={}` says why, such as a quota of the namespace",
            slot.deployment
        );
    };
    replaced(pod)
}

fn replaced(pod: &Pod) -> String {
    let name = &pod.metadata.name;
    let place = end_texts::place(&pod.spec.node_name);
    let why = reasons::disrupted(pod);
    let why = why.map_or_else(String::new, |why| format!(": {why}"));
    format!("another pod replaces {name}, which ends{place}{why}")
}

fn seconds(time: Option<&str>) -> Option<u64> {
    let time = DateTime::parse_from_rfc3339(time?).ok()?;
    u64::try_from(time.timestamp()).ok()
}
