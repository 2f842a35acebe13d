//! Explanations of waiting and leaving pods.

use serde_json::{Value, json};

use super::*;

/// The lease state for a pod with this status, in a Deployment with this desired number of pods.
fn described(replicas: u32, object: Value) -> String {
    let pod: Pod = serde_json::from_value(object).expect("a pod");
    let slot = Slot {
        shape: "one",
        deployment: id(ONE),
        demand: None,
        replicas,
        pods: vec![&pod],
    };
    match leases::lease(&slot).map(|lease| lease.state) {
        None => "nothing".to_owned(),
        Some(LeaseState::Pending { reason }) => format!("pending: {reason}"),
        Some(LeaseState::Starting { reason, .. }) => format!("starting: {reason}"),
        Some(LeaseState::Running { host }) => format!("running on {host}"),
        Some(LeaseState::Ended { why }) => format!("ended: {why}"),
    }
}

#[test]
fn the_reason_that_a_pod_waits_is_explained() {
    let unscheduled = |message: &str| {
        json!({"status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False",
            "reason": "Unschedulable", "message": message}]}})
    };
    let waiting = |reason: &str, message: &str| {
        json!({"spec": {"nodeName": "m1"}, "status": {"phase": "Pending", "containerStatuses": [
            {"name": "node", "state": {"waiting": {"reason": reason, "message": message}}}]}})
    };
    let gated = json!({"spec": {"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]},
        "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]}});
    let looped = json!({"spec": {"nodeName": "m1"}, "status": {"phase": "Running", "containerStatuses": [
        {"name": "node", "restartCount": 4, "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}},
         "lastState": {"terminated": {"exitCode": 1, "reason": "Error", "message": "a line\nthe token has expired\n"}}}]}});
    let out_of_memory = json!({"spec": {"nodeName": "m1"}, "status": {"phase": "Running", "containerStatuses": [
        {"name": "node", "restartCount": 1, "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}]}});
    let first = json!({"spec": {"nodeName": "m1"}, "status": {"phase": "Pending",
        "initContainerStatuses": [{"name": "wait", "state": {"terminated": {"exitCode": 0}}},
            {"name": "weights", "restartCount": 2, "state": {"waiting": {"reason": "CrashLoopBackOff"}},
             "lastState": {"terminated": {"exitCode": 3}}}],
        "containerStatuses": [{"name": "node", "state": {"waiting": {"reason": "PodInitializing"}}}]}});
    for (object, expected) in [
        (
            json!({"status": {"phase": "Pending"}}),
            "pending: the scheduler has not considered it yet",
        ),
        (
            unscheduled(
                "0/12 nodes are available: 12 Insufficient nvidia.com/gpu. preemption: 0/12 nodes are available: 12 No preemption victims found for incoming pod.",
            ),
            "pending: machines have too little free; it starts when enough becomes free, or the cluster grows (0/12 nodes are available: 12 Insufficient nvidia.com/gpu)",
        ),
        (
            unscheduled(
                "0/5 nodes are available: 2 node(s) had untolerated taint {gpu: true}, 3 node(s) didn't match Pod's node affinity/selector.",
            ),
            "pending: a taint reserves machines for other pods; if they are for this pool, add its toleration to the shape; machines are not of the kind that its nodeSelector or affinity names (0/5 nodes are available: 2 node(s) had untolerated taint {gpu: true}, 3 node(s) didn't match Pod's node affinity/selector.)",
        ),
        (
            unscheduled("something new"),
            "pending: no machine takes it (Unschedulable: something new)",
        ),
        (
            gated,
            "pending: it waits in its queue of Kueue until its quota has room (SchedulingGated: kueue.x-k8s.io/admission)",
        ),
        (
            waiting("ContainerCreating", ""),
            "starting: its image is pulled and its volumes are mounted; if it stays so, `kubectl describe pod` says what is missing (ContainerCreating)",
        ),
        (
            waiting(
                "ImagePullBackOff",
                "Back-off pulling image \"nowhere/pool:1\"",
            ),
            "starting: its image cannot be pulled; correct the image or its pull secret (ImagePullBackOff: Back-off pulling image \"nowhere/pool:1\")",
        ),
        (
            waiting("CreateContainerConfigError", "secret \"join\" not found"),
            "starting: a Secret or ConfigMap that it needs is missing; make it, or correct its name (CreateContainerConfigError: secret \"join\" not found)",
        ),
        (
            waiting("SomethingNew", "why"),
            "starting: its container waits (SomethingNew: why)",
        ),
        (
            looped,
            "starting: its container has ended 4 times, most recently with status 1: the token has expired; Kubernetes restarts it after a pause (CrashLoopBackOff)",
        ),
        (
            out_of_memory,
            "starting: its container has ended once, most recently with status 137 because it needed more memory than its limit; raise resources.limits.memory; Kubernetes restarts it after a pause",
        ),
        (
            first,
            "starting: its container has ended 2 times, most recently with status 3; Kubernetes restarts it after a pause (CrashLoopBackOff)",
        ),
        (
            json!({"spec": {"nodeName": "m1"}, "status": {"phase": "Pending"}}),
            "starting: its machine has not started it yet",
        ),
        (
            json!({"spec": {"nodeName": "m1"}, "status": {"phase": "Running", "containerStatuses": [
                {"name": "node", "restartCount": 2, "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}]}}),
            "running on m1",
        ),
    ] {
        assert_eq!(described(1, object), expected);
    }
}

#[test]
fn a_deleted_pod_is_awaited_or_considered_finished() {
    let preempted = json!({"metadata": {"name": "p1", "deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": {"nodeName": "m1"},
        "status": {"phase": "Running", "conditions": [{"type": "DisruptionTarget", "status": "True",
            "reason": "PreemptionByScheduler", "message": "default-scheduler: preempting to accommodate a higher priority pod"}]}});
    assert_eq!(
        described(1, preempted.clone()),
        "pending: another pod replaces p1, which ends on m1: a pod of higher priority takes its place (PreemptionByScheduler: default-scheduler: preempting to accommodate a higher priority pod)"
    );
    assert_eq!(
        described(0, preempted),
        "ended: it was given back; its pod p1 finishes on m1"
    );
    let evicted = json!({"metadata": {"name": "p1"}, "spec": {"nodeName": "m1"}, "status": {"phase": "Failed",
        "reason": "Evicted", "message": "The node was low on resource: memory. "}});
    assert_eq!(
        described(1, evicted.clone()),
        "pending: another pod replaces p1, which ends on m1: its machine was short of memory or disk (Evicted: The node was low on resource: memory.)"
    );
    assert_eq!(described(0, evicted), "nothing");
    let slot = Slot {
        shape: "one",
        deployment: id(ONE),
        demand: None,
        replicas: 1,
        pods: Vec::new(),
    };
    let Some(LeaseState::Pending { reason }) = leases::lease(&slot).map(|lease| lease.state) else {
        panic!("it waits");
    };
    assert!(
        reason.contains("has not created a pod yet") && reason.contains("a quota of the namespace"),
        "{reason}"
    );
}
