//! The script of a job: options for `qsub`, the site's own lines, and `model-pool node`. The shell stays as the node's parent,
//! because `qsig` and PBS itself signal all processes of a job, including the shell that runs the script.

use config::{ClusterSection, ShapeSection};

use super::super::batch::PREFIX;
use super::super::node_command::{data, node_command, plain, setup};

/// The variable with a job's shape and the number of the pool's request. The job's name is only the pool's, because `qselect -N`
/// compares complete names and has to find all of the pool's jobs and no others.
const MARK: &str = "MODEL_POOL_LEASE";
/// `qsig` sends this signal to all processes of a job. All but the script ignore it, which is its default action.
pub(super) const DRAIN_SIGNAL: &str = "SIGURG";
/// Exit statuses of a script that cannot start its node, from sysexits.h.
pub(super) const NO_LOG: i64 = 73;
pub(super) const NO_GPUS: i64 = 78;

/// The job name by which a pool finds its jobs. Not all versions of PBS allow a `:`.
pub(super) fn job_name(pool: &str) -> String {
    format!("{PREFIX}.{pool}")
}

/// The file to which PBS copies a job's output if its script names no other file.
pub(super) fn copied_log_name(pool: &str, number: &str) -> String {
    format!("{}.o{number}", job_name(pool))
}

/// The shape, the number of the pool's request, and the pool's id in a job's list of variables.
pub(super) fn mark_of(variables: &str) -> Option<(String, Option<u64>, Option<String>)> {
    let mut variables = variables.split(',');
    let mark =
        variables.find_map(|variable| variable.trim().strip_prefix(MARK)?.strip_prefix('='))?;
    let mut parts = mark.split('.');
    let shape = parts.next()?.to_owned();
    let demand = parts.next().map(str::parse).transpose().ok()?;
    Some((shape, demand, parts.next().map(str::to_owned)))
}

/// The resources of a node of this shape, in the form of `-l select`.
pub(super) fn select(section: &ClusterSection, shape: &ShapeSection) -> String {
    let gpus = (shape.gpus > 0).then(|| format!(":{}={}", section.pbs.gpu_resource, shape.gpus));
    let more = shape.select.as_ref().or(section.pbs.select.as_ref());
    let more = more.map(|select| format!(":{select}"));
    format!("1{}{}", gpus.unwrap_or_default(), more.unwrap_or_default())
}

pub(super) fn walltime(seconds: u64) -> String {
    let (minutes, seconds) = (seconds / 60, seconds % 60);
    format!("{:02}:{:02}:{seconds:02}", minutes / 60, minutes % 60)
}

pub(super) fn render(
    section: &ClusterSection,
    shape: &ShapeSection,
    demand: Option<u64>,
    owner: Option<&str>,
) -> String {
    let pbs = &section.pbs;
    let mut lines = vec!["#!/bin/bash".to_owned()];
    lines.extend(options(section, shape, demand, owner));
    lines.push(String::new());
    if let Some(folder) = &pbs.log_dir {
        let path = folder.join(format!("{PREFIX}-"));
        let path = plain(&path.to_string_lossy());
        // PBS copies its own log only after the job has ended.
        lines.push(format!(
            "exec >>{path}\"$PBS_JOBID.log\" 2>&1 || exit {NO_LOG}"
        ));
    }
    lines.push(SIGNALS.to_owned());
    // `set -e` must not stay: the first signal would end the script while its node drains.
    let setup = setup(&pbs.setup, "cluster.pbs");
    if !setup.is_empty() {
        lines.push(setup.trim_end().to_owned());
    }
    if shape.gpus > 0 && !pbs.exclusive {
        lines.push(GPUS.replace("STATUS", &NO_GPUS.to_string()));
    }
    lines.push("[ -z \"$mp_ends\" ] || exit 0".to_owned());
    let name = "\"pbs-${PBS_JOBID%%.*}\"";
    let data = data(section, "$PBS_JOBID", "model-pool-$PBS_JOBID");
    lines.push(format!("{} &", node_command(section, name, &data, demand)));
    lines.push("mp_node=$!".to_owned());
    lines.push("[ -z \"$mp_ends\" ] || mp_drain".to_owned());
    let limit = shape.time_limit.duration().as_secs();
    let grace = pbs.grace.duration().as_secs().min(limit / 2);
    lines.push(WAIT.replace("SECONDS", &(limit - grace).to_string()));
    lines.push(String::new());
    lines.join("\n")
}

/// A node exits immediately on a second SIGTERM, so the script sends only one. The prefix keeps the names apart from a site's own.
const SIGNALS: &str = r#"mp_node= mp_sent= mp_ends= mp_again=yes
mp_drain() {
  mp_again=yes mp_ends=yes
  if [ -n "$mp_node" ] && [ -z "$mp_sent" ]; then mp_sent=yes; kill -TERM "$mp_node"; fi
}
trap mp_drain URG
trap 'mp_again=yes mp_ends=yes mp_sent=$mp_node' TERM
echo "model-pool: job $PBS_JOBID starts a node on $(hostname)""#;

const GPUS: &str = r#"if [ -z "${CUDA_VISIBLE_DEVICES+set}" ]; then
  echo "PBS has not set CUDA_VISIBLE_DEVICES, so this node cannot know which GPUs are its own: ask for PBS' hook pbs_cgroups, set the variable in cluster.pbs.setup, or set cluster.pbs.exclusive to true" >&2
  exit STATUS
fi"#;

const WAIT: &str = r#"( trap 'kill "$!"' TERM; sleep SECONDS & wait "$!" && kill -URG "$$" ) &
mp_timer=$!
while [ -n "$mp_again" ]; do
  mp_again=
  wait "$mp_node"
  mp_status=$?
done
kill "$mp_timer" 2>/dev/null
exit "$mp_status""#;

fn options(
    section: &ClusterSection,
    shape: &ShapeSection,
    demand: Option<u64>,
    owner: Option<&str>,
) -> Vec<String> {
    let pbs = &section.pbs;
    let mark = match demand {
        Some(demand) => {
            let owner = owner.map_or_else(String::new, |owner| format!(".{owner}"));
            format!("{}.{demand}{owner}", shape.name)
        }
        None => shape.name.clone(),
    };
    let place = if pbs.exclusive {
        "pack:exclhost"
    } else {
        "pack"
    };
    let requeue = if pbs.requeue { "y" } else { "n" };
    let limit = shape.time_limit.duration().as_secs();
    let queue = shape.queue.as_ref().or(pbs.queue.as_ref());
    let all = [
        Some(format!("-N {}", job_name(&section.name))),
        Some(format!("-v {MARK}={mark}")),
        Some("-S /bin/bash".to_owned()),
        queue.map(|queue| format!("-q {queue}")),
        pbs.account.as_ref().map(|account| format!("-A {account}")),
        Some(format!("-l select={}", select(section, shape))),
        Some(format!("-l place={place}")),
        Some(format!("-l walltime={}", walltime(limit))),
        Some(format!("-r {requeue}")),
        Some("-m n".to_owned()),
        Some("-j oe".to_owned()),
        pbs.log_dir.as_ref().map(|_| "-o /dev/null".to_owned()),
    ];
    let own = all.into_iter().flatten();
    let all = own.chain(pbs.options.iter().cloned());
    all.map(|option| format!("#PBS {option}")).collect()
}
