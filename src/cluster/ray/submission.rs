//! Submissions to Ray: the body of a request for a job, the script that starts a node in it, and the job that ends another one
//! immediately.

use std::collections::BTreeMap;

use config::{ClusterSection, ShapeSection};
use serde_json::{Value, json};

use super::super::batch::is_numbered;
use super::super::node_command::{data, node_command, setup};
use super::start_line;

const PREFIX: &str = "model-pool";
/// Suffix of the id of a job that ends another.
const CANCEL: &str = ".cancel";
/// The label that every node of Ray has.
const NODE_ID: &str = "ray.io/node-id";
/// Ray kills the remaining processes after the grace period; the script's own timeout is shorter.
const STOP_WAIT_EXTRA_SECONDS: u64 = 10;

/// A job's id, made from the number of the pool's request, or from the time of a person's request.
pub(super) fn job_id(section: &ClusterSection, demand: Option<u64>, now_micros: u128) -> String {
    let key = demand.map_or_else(|| format!("p{now_micros}"), |demand| demand.to_string());
    format!("{PREFIX}.{}.{key}", section.name)
}

/// The last part of a job's id, if the job is a lease of this pool.
pub(super) fn key_of<'a>(id: &'a str, pool: &str) -> Option<&'a str> {
    let rest = id.strip_prefix(PREFIX)?.strip_prefix('.')?;
    let key = rest.strip_prefix(pool)?.strip_prefix('.')?;
    let digits = key.strip_prefix('p').unwrap_or(key);
    let is_key = !digits.is_empty() && digits.chars().all(|digit| digit.is_ascii_digit());
    is_key.then_some(key)
}

/// The number of the pool's request in an id's key.
pub(super) fn demand_of(key: &str) -> Option<u64> {
    key.parse().ok()
}

/// The name with which a job's node joins.
pub(super) fn node_name(key: &str) -> String {
    format!("ray-{key}")
}

pub(super) fn is_node_name(name: &str) -> bool {
    is_numbered(name, "ray-") || is_numbered(name, "ray-p")
}

pub(super) fn cancel_id(id: &str) -> String {
    format!("{id}{CANCEL}")
}

/// The id of the job that this one ends.
pub(super) fn cancelled_by(id: &str) -> Option<&str> {
    id.strip_suffix(CANCEL)
}

/// The body of `POST /api/jobs/`. `left_out` is the ids of Ray's nodes to avoid.
pub(super) fn body(
    section: &ClusterSection,
    shape: &ShapeSection,
    demand: Option<u64>,
    id: &str,
    left_out: &[String],
) -> Value {
    let ray = &section.ray;
    let mut labels = labels(section, shape);
    if !left_out.is_empty() {
        labels.insert(NODE_ID.to_owned(), format!("!in({})", left_out.join(", ")));
    }
    let mut variables: BTreeMap<String, String> = ray.env.clone();
    let wait = ray.grace.duration().as_secs() + STOP_WAIT_EXTRA_SECONDS;
    variables.insert("RAY_JOB_STOP_WAIT_TIME_S".to_owned(), wait.to_string());
    let mut body = json!({
        "entrypoint": script(section, shape, demand, id),
        "submission_id": id,
        "entrypoint_num_gpus": shape.gpus,
        "entrypoint_num_cpus": ray.cpus,
        "runtime_env": {"env_vars": variables},
        "metadata": {
            "model-pool": section.name,
            "shape": shape.name,
            "time_limit_seconds": shape.time_limit.duration().as_secs().to_string(),
        },
    });
    let resources = resources(section, shape);
    if !resources.is_empty() {
        body["entrypoint_resources"] = json!(resources);
    }
    // An older Ray refuses the key even if it is empty.
    if !labels.is_empty() {
        body["entrypoint_label_selector"] = json!(labels);
    }
    body
}

/// The resources of the section and the shape.
pub(super) fn resources(section: &ClusterSection, shape: &ShapeSection) -> BTreeMap<String, f64> {
    let own = shape.resources.clone();
    section
        .ray
        .resources
        .clone()
        .into_iter()
        .chain(own)
        .collect()
}

/// The labels of the section and the shape.
pub(super) fn labels(section: &ClusterSection, shape: &ShapeSection) -> BTreeMap<String, String> {
    let own = shape.labels.clone();
    section.ray.labels.clone().into_iter().chain(own).collect()
}

/// The entry point of a node. It handles two problems:
///
/// - Ray stops a job with SIGTERM to all processes below its entry point, including engines, which would break streams. So the node
///   is not a child of the entry point. The entry point passes the signal on to the node alone and waits for its end.
/// - When a job's actor or Ray on its machine dies, Ray gives the GPUs to other jobs and kills the entry point, but not always its
///   descendants. So the node's process group is killed once the entry point is gone, which closes the last writer of `alive`.
fn script(section: &ClusterSection, shape: &ShapeSection, demand: Option<u64>, id: &str) -> String {
    let key = key_of(id, &section.name).unwrap_or_default();
    let data = data(section, id, id);
    let node = node_command(section, &node_name(key), &data, demand);
    let setup = setup(&section.ray.setup, "cluster.ray");
    let grace = section.ray.grace.duration().as_secs();
    let limit = shape.time_limit.duration().as_secs();
    let drains_after = limit.saturating_sub(grace).max(1);
    let says_start = start_line::command();
    format!(
        "{says_start}
unset RAY_ADDRESS RAY_AUTH_TOKEN RAY_AUTH_TOKEN_PATH RAY_JOB_CONFIG_JSON_ENV_VAR
ends=; trap 'ends=yes' TERM
{setup}state=$(mktemp -d) && mkfifo \"$state/alive\" && exec 9<>\"$state/alive\" || exit 1
( ( exec 8<\"$state/alive\" 9>&-
  timeout --foreground --kill-after={grace} {drains_after} {node} 8<&- & node=$!
  ( read -r _ <&8; rm -rf \"$state\"; kill -KILL -$$ ) & watch=$!
  echo \"$node\" >\"$state/node\"; wait \"$node\"; status=$?
  kill \"$watch\"; echo \"$status\" >\"$state/status\" ) & )
while [ ! -s \"$state/status\" ]; do
  if [ -n \"$ends\" ] && [ -s \"$state/node\" ]; then kill -TERM \"$(cat \"$state/node\")\"; ends=; fi
  sleep 1 9>&- & wait $!
done
status=$(cat \"$state/status\"); rm -rf \"$state\"; exit \"$status\"
"
    )
}

/// The job that ends another one immediately. Ray's `stop` does not end a pending job, and gives a running one its grace period;
/// but a job ends with its actor, which this job kills. It runs in Ray's Python, taken from the parent process because it may not
/// be on the PATH.
pub(super) fn cancel_body(id: &str) -> Value {
    let entrypoint = format!(
        "packages=$(sed -n 's|^.* \\(/.*\\)/ray/_raylet\\.so$|\\1|p' /proc/$PPID/maps | head -n 1)
PYTHONPATH=\"$packages${{PYTHONPATH:+:$PYTHONPATH}}\" exec /proc/$PPID/exe -c '
import ray
ray.init(address=\"auto\", log_to_driver=False)
try:
    actor = ray.get_actor(\"_ray_internal_job_actor_{id}\", namespace=\"SUPERVISOR_ACTOR_RAY_NAMESPACE\")
except ValueError:
    print(\"the job has ended already\")
else:
    ray.kill(actor)
'
"
    );
    json!({
        "entrypoint": entrypoint,
        "submission_id": cancel_id(id),
        "metadata": {"model-pool-cancels": id},
    })
}
