//! Kubernetes' reasons in plain words, with what to do. Its own words stand behind, so that people can search for them.

use super::super::program::one_line;
use super::objects::{Container, Pod, PodStatus};

const TEXT_CHARACTERS_MAX: usize = 600;

/// Why no machine takes a pod: a part of the scheduler's message, and what it means.
const UNSCHEDULABLE: &[(&str, &str)] = &[
    (
        "Insufficient ",
        "machines have too little free; it starts when enough becomes free, or the cluster grows",
    ),
    (
        "untolerated taint",
        "machines are kept for others by a taint; if they are for this pool, add its toleration to the shape",
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
        "a volume of it is not bound; `kubectl get persistentvolumeclaims` shows it",
    ),
    (
        "volume node affinity conflict",
        "a volume of it lies on other machines",
    ),
    (
        "persistentvolumeclaim",
        "a volume claim of it is missing; correct the volumes of the shape",
    ),
    (
        "Too many pods",
        "machines have as many pods as they may have",
    ),
];

/// Why a container waits: Kubernetes' word, what it means, and what to do.
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

/// Why a pod has to end: the reason of its condition `DisruptionTarget`, or of the pod itself.
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
        "its machine has got a taint that it does not tolerate, as when the machine is lost",
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
    ("NodeAffinity", "its machine is not of its kind any more"),
    (
        "UnexpectedAdmissionError",
        "its machine did not admit it, as when a GPU has failed",
    ),
];

fn meaning<'a>(table: &[(&str, &'a str)], word: &str) -> Option<&'a str> {
    table.iter().find(|it| it.0 == word).map(|it| it.1)
}

/// The meaning, with Kubernetes' word and message behind it.
fn explained(meaning: &str, word: &str, message: &str) -> String {
    let message = short(message);
    match (word, message.as_str()) {
        ("", "") => meaning.to_owned(),
        (word, "") => format!("{meaning} ({word})"),
        ("", message) => format!("{meaning} ({message})"),
        (word, message) => format!("{meaning} ({word}: {message})"),
    }
}

/// On one line, its beginning.
pub(super) fn short(text: &str) -> String {
    let line: String = text
        .lines()
        .map(str::trim)
        .filter(|it| !it.is_empty())
        .collect::<Vec<_>>()
        .join("; ");
    let plain = line.chars().filter(|it| !it.is_control());
    plain.take(TEXT_CHARACTERS_MAX).collect()
}

/// Why a pod has no machine yet.
pub(super) fn unscheduled(pod: &Pod) -> String {
    let gates: Vec<&str> = pod
        .spec
        .scheduling_gates
        .iter()
        .map(|it| it.name.as_str())
        .collect();
    if !gates.is_empty() {
        let meaning = if gates.iter().any(|it| it.contains("kueue")) {
            "it waits in its queue of Kueue until its quota has room"
        } else {
            "something else holds it back from the scheduler"
        };
        return explained(meaning, "SchedulingGated", &gates.join(", "));
    }
    let Some(condition) = pod.condition("PodScheduled") else {
        return "the scheduler has not looked at it yet".to_owned();
    };
    // The rest is of preemption, and says that there is none.
    let message = condition.message.split(". preemption: ").next();
    let message = message.unwrap_or_default();
    let found = UNSCHEDULABLE.iter().filter(|it| message.contains(it.0));
    let meanings: Vec<&str> = found.map(|it| it.1).take(2).collect();
    if meanings.is_empty() {
        explained("no machine takes it", &condition.reason, message)
    } else {
        explained(&meanings.join("; "), "", message)
    }
}

/// Why a pod that has its machine has no running node; `None` if it has one, or nothing is known.
pub(super) fn not_started(status: &PodStatus) -> Option<String> {
    // The first containers wait for each other, and end.
    let first = status.init_container_statuses.iter();
    let mut first = first.filter(|it| {
        let waits = it.state.waiting.as_ref();
        let failed = it.state.terminated.as_ref();
        waits.is_some_and(|it| it.reason != "PodInitializing")
            || failed.is_some_and(|it| it.exit_code != 0)
    });
    let own = status.container_statuses.iter();
    let mut own = own.filter(|it| it.state.waiting.is_some() || it.state.terminated.is_some());
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
    let how = last.map_or_else(String::new, |it| {
        let status = format!(", lately with status {}", it.exit_code);
        let oom = if it.reason == "OOMKilled" {
            " because it needed more memory than its limit; raise resources.limits.memory"
        } else {
            ""
        };
        // The end of a log has the reason.
        let mut lines = it.message.lines().rev().map(one_line);
        match lines.find(|line| !line.is_empty()) {
            None => format!("{status}{oom}"),
            Some(line) => format!("{status}{oom}: {line}"),
        }
    });
    explained(
        &format!("its container has ended {times}{how}; it is started again in a while"),
        word,
        "",
    )
}

/// Why a pod leaves or has left, where Kubernetes says it.
pub(super) fn disrupted(pod: &Pod) -> Option<String> {
    let target = pod.condition("DisruptionTarget");
    let target = target.filter(|it| it.status == "True");
    if let Some(target) = target {
        let meaning = meaning(DISRUPTION, &target.reason);
        let meaning = meaning.unwrap_or("it was told to end");
        return Some(explained(meaning, &target.reason, &target.message));
    }
    let status = &pod.status;
    if status.reason.is_empty() {
        return None;
    }
    let meaning = meaning(DISRUPTION, &status.reason).unwrap_or("it has failed");
    Some(explained(meaning, &status.reason, &status.message))
}

/// What to do about a message of the API server: the rule of the Role that is missing.
pub(super) fn missing_rule(call: &Call, namespace: &str) -> String {
    let rule = match call {
        Call::ReadScale { deployment } | Call::WriteScale { deployment } => format!(
            "{{apiGroups: [apps], resources: [deployments/scale], resourceNames: [{deployment}], verbs: [get, update]}}"
        ),
        Call::ListPods => "{apiGroups: [\"\"], resources: [pods], verbs: [list]}".to_owned(),
        Call::Version => return String::new(),
    };
    format!(
        "; a Role of the namespace {namespace} that is bound to this service account needs the rule {rule}"
    )
}

/// What was called, for messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Call {
    ReadScale { deployment: String },
    WriteScale { deployment: String },
    ListPods,
    Version,
}
