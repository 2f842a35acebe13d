//! Explanations of Kubernetes' reasons, with advice. Each ends with Kubernetes' own words, for searching.

use super::super::program::one_line;
use super::objects::{Container, Pod, PodStatus};
use super::scaled::ScaledKind;

const TEXT_CHARACTERS_MAX: usize = 600;

/// Explanations for pods without a machine: a part of the scheduler's message, and its meaning.
const UNSCHEDULABLE: &[(&str, &str)] = &[
    (
        "Insufficient ",
        "machines have too little free; it starts when enough becomes free, or the cluster grows",
    ),
    (
        "untolerated taint",
        "a taint reserves machines for other pods; if they are for this pool, add its toleration to the shape",
    ),
    (
        "node affinity/selector",
        "machines are not of the kind that its nodeSelector or affinity names",
    ),
    (
        "were unschedulable",
        "machines are cordoned; `kubectl get nodes` shows them",
    ),
    (
        "unbound immediate PersistentVolumeClaims",
        "its volume is not bound; `kubectl get persistentvolumeclaims` shows it",
    ),
    (
        "volume node affinity conflict",
        "its volume is on other machines",
    ),
    (
        "persistentvolumeclaim",
        "its volume claim is missing; correct the volumes of the shape",
    ),
    ("Too many pods", "machines have reached their limit of pods"),
];

/// Explanations for waiting containers: Kubernetes' reason, and its meaning with advice.
const WAITING: &[(&str, &str)] = &[
    (
        "ContainerCreating",
        "its image is pulled and its volumes are mounted; if it stays so, `kubectl describe pod` says what is missing",
    ),
    ("PodInitializing", "its first containers run"),
    (
        "ErrImagePull",
        "its image cannot be pulled; correct the image or its pull secret",
    ),
    (
        "ImagePullBackOff",
        "its image cannot be pulled; correct the image or its pull secret",
    ),
    (
        "InvalidImageName",
        "the name of its image is wrong; correct it",
    ),
    (
        "ErrImageNeverPull",
        "its image is not on the machine, and imagePullPolicy is Never",
    ),
    (
        "CreateContainerConfigError",
        "a Secret or ConfigMap that it needs is missing; make it, or correct its name",
    ),
    (
        "CreateContainerError",
        "its container cannot be made; look at its command and volumes",
    ),
    (
        "RunContainerError",
        "its container cannot be started; look at its command, volumes and runtime class",
    ),
];

/// Explanations for pods that have to end: the reason of the condition `DisruptionTarget`, or of the pod itself.
const DISRUPTION: &[(&str, &str)] = &[
    (
        "PreemptionByScheduler",
        "a pod of higher priority takes its place",
    ),
    (
        "EvictionByEvictionAPI",
        "it was evicted, as when its machine is drained",
    ),
    (
        "DeletionByTaintManager",
        "its machine got a taint that it does not tolerate, as when the machine is lost",
    ),
    ("DeletionByPodGC", "its machine is gone"),
    (
        "TerminationByKubelet",
        "its machine ended it, for lack of memory or disk, or to shut down",
    ),
    ("Evicted", "its machine was short of memory or disk"),
    ("Preempting", "a pod of higher priority takes its place"),
    ("NodeShutdown", "its machine was shut down"),
    ("Terminated", "its machine was shut down"),
    ("NodeLost", "its machine is lost"),
    (
        "NodeAffinity",
        "its machine no longer matches its nodeSelector or affinity",
    ),
    (
        "UnexpectedAdmissionError",
        "its machine did not admit it, as when a GPU has failed",
    ),
];

fn meaning<'a>(table: &[(&str, &'a str)], word: &str) -> Option<&'a str> {
    table
        .iter()
        .find(|(known, _)| *known == word)
        .map(|(_, meaning)| *meaning)
}

/// The meaning, followed by Kubernetes' reason and message.
fn explained(meaning: &str, word: &str, message: &str) -> String {
    let message = short(message);
    match (word, message.as_str()) {
        ("", "") => meaning.to_owned(),
        (word, "") => format!("{meaning} ({word})"),
        ("", message) => format!("{meaning} ({message})"),
        (word, message) => format!("{meaning} ({word}: {message})"),
    }
}

/// The beginning of the text, on one line.
pub(super) fn short(text: &str) -> String {
    let line: String = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect::<Vec<_>>()
        .join("; ");
    let plain = line.chars().filter(|letter| !letter.is_control());
    plain.take(TEXT_CHARACTERS_MAX).collect()
}

/// The reason that a pod has no machine yet.
pub(super) fn unscheduled(pod: &Pod) -> String {
    let gates: Vec<&str> = pod
        .spec
        .scheduling_gates
        .iter()
        .map(|gate| gate.name.as_str())
        .collect();
    if !gates.is_empty() {
        let meaning = if gates.iter().any(|gate| gate.contains("kueue")) {
            "it waits in its queue of Kueue until its quota has room"
        } else {
            "a scheduling gate holds it back from the scheduler"
        };
        return explained(meaning, "SchedulingGated", &gates.join(", "));
    }
    let Some(condition) = pod.condition("PodScheduled") else {
        return "the scheduler has not considered it yet".to_owned();
    };
    // The rest of the message says that preemption is not possible.
    let message = condition.message.split(". preemption: ").next();
    let message = message.unwrap_or_default();
    let found = UNSCHEDULABLE
        .iter()
        .filter(|(part, _)| message.contains(part));
    let meanings: Vec<&str> = found.map(|(_, meaning)| *meaning).take(2).collect();
    if meanings.is_empty() {
        explained("no machine takes it", &condition.reason, message)
    } else {
        explained(&meanings.join("; "), "", message)
    }
}

/// The reason that a pod with a machine has no running node; `None` if the node runs or the reason is not known.
pub(super) fn not_started(status: &PodStatus) -> Option<String> {
    // Init containers run one after the other, and end.
    let first = status.init_container_statuses.iter();
    let mut first = first.filter(|container| {
        let waits = container.state.waiting.as_ref();
        let failed = container.state.terminated.as_ref();
        waits.is_some_and(|waiting| waiting.reason != "PodInitializing")
            || failed.is_some_and(|ended| ended.exit_code != 0)
    });
    let own = status.container_statuses.iter();
    let mut own = own.filter(|container| {
        container.state.waiting.is_some() || container.state.terminated.is_some()
    });
    let container = first.next().or(own.next())?;
    let Some(waiting) = &container.state.waiting else {
        return Some(ended_often(container, ""));
    };
    if waiting.reason == "CrashLoopBackOff" {
        return Some(ended_often(container, "CrashLoopBackOff"));
    }
    let meaning = meaning(WAITING, &waiting.reason).unwrap_or("its container waits");
    Some(explained(meaning, &waiting.reason, &waiting.message))
}

fn ended_often(container: &Container, word: &str) -> String {
    let times = match container.restart_count {
        0 | 1 => "once".to_owned(),
        count => format!("{count} times"),
    };
    let last = container.state.terminated.as_ref();
    let last = last.or(container.last_state.terminated.as_ref());
    let how = last.map_or_else(String::new, |ended| {
        let status = format!(", most recently with status {}", ended.exit_code);
        let oom = if ended.reason == "OOMKilled" {
            " because it needed more memory than its limit; raise resources.limits.memory"
        } else {
            ""
        };
        // The reason is at the end of the log.
        let mut lines = ended.message.lines().rev().map(one_line);
        match lines.find(|line| !line.is_empty()) {
            None => format!("{status}{oom}"),
            Some(line) => format!("{status}{oom}: {line}"),
        }
    });
    explained(
        &format!("its container has ended {times}{how}; Kubernetes restarts it after a pause"),
        word,
        "",
    )
}

/// The reason that a pod leaves or has left, if Kubernetes reports it.
pub(super) fn disrupted(pod: &Pod) -> Option<String> {
    let target = pod.condition("DisruptionTarget");
    let target = target.filter(|condition| condition.status == "True");
    if let Some(target) = target {
        let meaning = meaning(DISRUPTION, &target.reason);
        let meaning = meaning.unwrap_or("it was ordered to end");
        return Some(explained(meaning, &target.reason, &target.message));
    }
    let status = &pod.status;
    if status.reason.is_empty() {
        return None;
    }
    let meaning = meaning(DISRUPTION, &status.reason).unwrap_or("it has failed");
    Some(explained(meaning, &status.reason, &status.message))
}

/// The advice for a message of the API server: the missing rule of the Role.
pub(super) fn missing_rule(call: &Call, namespace: &str) -> String {
    let rule = match call {
        Call::Scale { kind, name } => {
            let (group, resource) = kind.resource();
            format!(
                "{{apiGroups: [{group}], resources: [{resource}/scale], resourceNames: [{name}], verbs: [get, update]}}"
            )
        }
        Call::ListPods => "{apiGroups: [\"\"], resources: [pods], verbs: [list]}".to_owned(),
        Call::Version => return String::new(),
    };
    format!(
        "; a Role of the namespace {namespace} that is bound to this service account needs the rule {rule}"
    )
}

/// A call of the API server, for messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Call {
    /// Reads or sets a number of pods.
    Scale {
        kind: ScaledKind,
        name: String,
    },
    ListPods,
    Version,
}
