//! What is submitted to Ray: the body of a request for a job, the script that starts a node in it, and the job that ends
//! another at once.

use std::collections::BTreeMap;

use config::{ClusterSection, ShapeSection};
use serde_json::{Value, json};

use super::super::node_command::{data, node_command};
use super::start_line;

const PREFIX: &str = "model-pool";
/// The end of the id of a job that ends another.
const CANCEL: &str = ".cancel";
/// The label that every node of Ray has.
const NODE_ID: &str = "ray.io/node-id";
/// Ray kills what is left after the grace time; the script's own clock comes first.
const STOP_WAIT_EXTRA_SECONDS: u64 = 10;

/// The id of a job: the pool's request, or the time at which a person requested it.
pub(super) fn job_id(section: &ClusterSection, demand: Option<u64>, now_micros: u128) -> String {
    let key = demand.map_or_else(|| format!("p{now_micros}"), |demand| demand.to_string());
    format!("{PREFIX}.{}.{key}", section.name)
}

/// The last part of a job's id, if it is a lease of this pool.
pub(super) fn key_of<'a>(id: &'a str, pool: &str) -> Option<&'a str> {
    let rest = id.strip_prefix(PREFIX)?.strip_prefix('.')?;
    let key = rest.strip_prefix(pool)?.strip_prefix('.')?;
    let digits = key.strip_prefix('p').unwrap_or(key);
    let is_key = !digits.is_empty() && digits.chars().all(|it| it.is_ascii_digit());
    is_key.then_some(key)
}

/// The number of the pool's request in the key of an id.
pub(super) fn demand_of(key: &str) -> Option<u64> {
    key.parse().ok()
}

/// The name by which the node of a job joins.
pub(super) fn node_name(key: &str) -> String {
    format!("ray-{key}")
}

pub(super) fn cancel_id(id: &str) -> String {
    format!("{id}{CANCEL}")
}

/// The job that this one ends.
pub(super) fn cancelled_by(id: &str) -> Option<&str> {
    id.strip_suffix(CANCEL)
}

/// The body of `POST /api/jobs/`. `left_out`: ids of Ray's nodes that are not used.
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
    // An older Ray refuses the key, even if it is empty.
    if !labels.is_empty() {
        body["entrypoint_label_selector"] = json!(labels);
    }
    body
}

/// Those of the section, and those of the shape.
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

/// Those of the section, and those of the shape.
pub(super) fn labels(section: &ClusterSection, shape: &ShapeSection) -> BTreeMap<String, String> {
    let own = shape.labels.clone();
    section.ray.labels.clone().into_iter().chain(own).collect()
}

/// The entry point of a node, which has two things to bear:
///
/// - Ray stops a job with SIGTERM to all processes below its entry point, engines included, so that streams would break.
///   Hence the node is no child of the entry point, which passes the signal on to the node alone and waits for its end.
/// - When a job's actor or its machine's Ray dies, Ray gives the GPUs to others, and kills the entry point, but not always
///   what that has started. Hence the node's process group is killed once the entry point is gone: then nothing has
///   `alive` open for writing any more.
fn script(section: &ClusterSection, shape: &ShapeSection, demand: Option<u64>, id: &str) -> String {
    let key = key_of(id, &section.name).unwrap_or_default();
    let data = data(section, id, id);
    let node = node_command(section, &node_name(key), &data, demand);
    let setup = match section.ray.setup.trim() {
        "" => String::new(),
        setup => format!("{setup}\n"),
    };
    let grace = section.ray.grace.duration().as_secs();
    let limit = shape.time_limit.duration().as_secs();
    let drains_after = limit.saturating_sub(grace).max(1);
    let says_start = start_line::command();
    format!(
        "{says_start}
unset RAY_ADDRESS RAY_AUTH_TOKEN RAY_AUTH_TOKEN_PATH RAY_JOB_CONFIG_JSON_ENV_VAR
ends=; trap 'ends=yes' TERM
state=$(mktemp -d) && mkfifo \"$state/alive\" && exec 9<>\"$state/alive\" || exit 1
{setup}( ( exec 8<\"$state/alive\" 9>&-
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

/// The job that ends another at once. Ray's `stop` does not end a job that waits, and gives one that runs its grace time;
/// but a job ends with its actor, which this one kills. It runs in the Python of Ray, which need not be on the PATH: it is
/// that of the parent process.
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
