//! Slurm as a cluster: a node is a job that runs `model-pool node`, and nodes that are requested together are one job that runs it on
//! each of its machines. Jobs are found by their names, so a restarted pool knows its own.

mod hostlist;
mod inspection;
mod jobs;
mod reasons;
mod script;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use config::ClusterSection;

use super::batch::{self, Errors};
use super::program::{Call, run};
use super::shape::find_shape;
use super::{Cluster, ClusterError, LeaseId, LeaseState, NodeLease, Release};
use jobs::Job;
use script::Request;

/// Limit of `squeue`'s JSON. Larger clusters use its text form, which lists only this account's jobs in every version.
const OUTPUT_BYTES_MAX: usize = 8 << 20;
/// Time for which requests avoid a node on which a job failed.
const EXCLUDED_FOR_SECONDS: u64 = 3600;
/// If jobs fail on more nodes than this, the nodes are not the cause.
const EXCLUDED_MAX: usize = 3;
const ADVICE: &str = "install Slurm's client programs on this machine (Debian: slurm-client), or set cluster.slurm.bin_dir to their folder";
/// Makes Slurm's programs print times as seconds since 1970.
const TIMES: (&str, &str) = ("SLURM_TIME_FORMAT", "%s");
/// Messages of `scancel` about a job that has ended, or is in another state than the call selects.
const GONE: &[&str] = &["Invalid job id", "already completing or completed"];
const ERRORS: Errors = Errors {
    // Texts from Slurm's own table of errors.
    unreachable: &[
        "Unable to contact slurm controller",
        "Unable to establish",
        "Socket timed out",
        "Connection refused",
        "Connection timed out",
        "Zero Bytes were transmitted",
        "Transport endpoint",
        "Slurm backup controller in standby",
        "temporarily unable to accept job",
        "Unexpected message received",
        "Munged",
        "munge",
        "Protocol authentication error",
        "Resource temporarily unavailable",
    ],
    advice: reasons::ADVICE,
};

pub struct Slurm {
    section: ClusterSection,
    /// The id of this pool. Another pool with the same name has another id.
    pub(super) owner: Option<String>,
    /// Set once `squeue --json` has failed.
    only_text: AtomicBool,
    /// Set if the cluster has no accounting.
    no_accounting: AtomicBool,
}

impl Slurm {
    pub fn new(section: &ClusterSection) -> Slurm {
        Slurm {
            section: section.clone(),
            owner: None,
            only_text: AtomicBool::new(false),
            no_accounting: AtomicBool::new(false),
        }
    }

    /// The script that a request for this shape submits. `demands` are the numbers of the pool's requests: none for a person's
    /// request, several for nodes that start together.
    ///
    /// # Errors
    /// If the shape does not exist.
    pub fn script(
        &self,
        shape: &str,
        demands: &[u64],
        exclude: &[String],
    ) -> Result<String, ClusterError> {
        let shape = find_shape(&self.section, shape)?;
        let request = Request {
            demands,
            owner: self.owner.as_deref(),
            exclude,
        };
        Ok(script::render(&self.section, shape, &request))
    }

    /// Submits a job without the hosts on which jobs have failed, if the cluster has others.
    async fn request_nodes(
        &self,
        shape: &str,
        demands: &[u64],
        exclude: &[String],
    ) -> Result<LeaseId, ClusterError> {
        // A wrong shape is refused before Slurm is called.
        find_shape(&self.section, shape)?;
        let failed = failed_hosts(&self.jobs().await?, batch::now_unix());
        let all: Vec<String> = exclude.iter().chain(&failed).cloned().collect();
        match self.submit(shape, demands, &all).await {
            // Without the avoided nodes the cluster may have too few.
            Err(ClusterError::Refused { .. }) if !failed.is_empty() => {
                self.submit(shape, demands, exclude).await
            }
            result => result,
        }
    }

    async fn submit(
        &self,
        shape: &str,
        demands: &[u64],
        exclude: &[String],
    ) -> Result<LeaseId, ClusterError> {
        let script = self.script(shape, demands, exclude)?;
        let call = self.call("sbatch", vec!["--parsable".to_owned()], &script);
        let ended = ERRORS.submit(call).await?;
        // With several clusters the output is `JOB;CLUSTER`.
        let id = ended.stdout.trim().split(';').next().unwrap_or_default();
        batch::submitted("sbatch", &ended, id, id)
    }

    fn call<'a>(&'a self, name: &'a str, arguments: Vec<String>, input: &'a str) -> Call<'a> {
        Call {
            name,
            program: batch::program(self.section.slurm.bin_dir.as_deref(), name),
            arguments,
            input,
            deadline: self.section.slurm.timeout.duration(),
            output_bytes_max: OUTPUT_BYTES_MAX,
            variables: &[TIMES],
            deadline_key: "cluster.slurm.timeout",
            advice: ADVICE,
        }
    }

    /// This account's jobs with this pool's name, including recently ended ones.
    async fn jobs(&self) -> Result<Vec<Job>, ClusterError> {
        let mut jobs = self.queue().await?;
        for job in self.accounting().await {
            if job.has_ended() && jobs.iter().all(|known| known.facts.id != job.facts.id) {
                jobs.push(job);
            }
        }
        Ok(jobs)
    }

    async fn queue(&self) -> Result<Vec<Job>, ClusterError> {
        let is_text = self.only_text.load(Ordering::Relaxed);
        if !is_text && let Some(jobs) = self.queue_json().await? {
            return Ok(jobs);
        }
        let arguments = vec![
            "--noheader".to_owned(),
            "--me".to_owned(),
            "--states=all".to_owned(),
            format!("--format={}", jobs::QUEUE_FORMAT),
        ];
        let ended = run(self.call("squeue", arguments, "")).await?;
        let ended = ERRORS.checked("squeue", ended)?;
        let read = jobs::of_queue_text(&ended.stdout, &self.section.name);
        let jobs = read.map_err(|message| ClusterError::Output {
            program: "squeue".to_owned(),
            message,
        })?;
        // The text form works, but the JSON form failed.
        self.only_text.store(true, Ordering::Relaxed);
        Ok(jobs)
    }

    /// Returns `None` if the text form is needed: the JSON is missing, broken, too long, or reports an error.
    async fn queue_json(&self) -> Result<Option<Vec<Job>>, ClusterError> {
        let arguments = ["--json", "--me", "--states=all"].map(str::to_owned);
        match run(self.call("squeue", arguments.to_vec(), "")).await {
            Ok(ended) if ERRORS.is_unreachable(&ended.message) => {
                Err(ERRORS.failure("squeue", &ended))
            }
            Ok(ended) if ended.status.success() => {
                let uid = rustix::process::getuid().as_raw();
                Ok(jobs::of_json(&ended.stdout, &self.section.name, uid).ok())
            }
            Ok(_) | Err(ClusterError::Output { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Jobs that slurmctld has already forgotten. Empty without accounting.
    async fn accounting(&self) -> Vec<Job> {
        if self.no_accounting.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let arguments = vec![
            "--allocations".to_owned(),
            "--noheader".to_owned(),
            "--parsable2".to_owned(),
            format!("--delimiter={}", jobs::SEPARATOR),
            format!("--uid={}", rustix::process::getuid().as_raw()),
            "--starttime=now-1day".to_owned(),
            format!("--format={}", jobs::ACCOUNTING_FIELDS),
        ];
        match run(self.call("sacct", arguments, "")).await {
            Ok(ended) if ended.status.success() => {
                jobs::of_accounting(&ended.stdout, &self.section.name)
            }
            Ok(ended) if ended.message.contains("disabled") => {
                self.no_accounting.store(true, Ordering::Relaxed);
                Vec::new()
            }
            Ok(_) | Err(_) => Vec::new(),
        }
    }

    /// The nodes of a job. The job's task with rank `n` runs on its machine `n`.
    fn leases(&self, job: Job) -> Vec<NodeLease> {
        let (state, has_failed) = (job.lease_state(), job.has_failed());
        let nodes = job.facts.set.map_or(1, |set| set.nodes);
        let hosts = hostlist::expand(&job.facts.host, nodes as usize);
        let lease = |rank: u32| {
            let mut facts = job.facts.clone();
            let node = node_name(&facts.id, facts.set.map(|_| rank));
            facts.demand = facts.demand.map(|first| first.saturating_add(rank.into()));
            let state = match &state {
                LeaseState::Running { host } => LeaseState::Running {
                    host: hosts.get(rank as usize).unwrap_or(host).clone(),
                },
                state => state.clone(),
            };
            let mut lease = facts.lease(node, state)?;
            if has_failed {
                let line = self.last_line(&lease.id);
                batch::add_log_end(&mut lease, line);
            }
            Some(lease)
        };
        (0..nodes).filter_map(lease).collect()
    }

    /// The end of a job's output, if this machine sees its folder.
    fn last_line(&self, id: &LeaseId) -> Option<String> {
        let folder = self.section.slurm.log_dir.clone();
        let path = folder
            .unwrap_or_else(|| PathBuf::from("."))
            .join(batch::log_name(id.as_str()));
        // Of several nodes, `srun` names the first that failed; the others end later.
        let failed = batch::last_line(&path, |line| !line.starts_with("srun: error: "));
        failed.or_else(|| {
            batch::last_line(&path, |line| {
                line.starts_with("slurmstepd") || line.starts_with("srun: ")
            })
        })
    }
}

impl Cluster for Slurm {
    async fn request(
        &self,
        shape: &str,
        demand: Option<u64>,
        exclude: &[String],
    ) -> Result<LeaseId, ClusterError> {
        self.request_nodes(shape, demand.as_slice(), exclude).await
    }

    async fn request_set(
        &self,
        shape: &str,
        demands: &[u64],
        exclude: &[String],
    ) -> Option<Result<LeaseId, ClusterError>> {
        Some(self.request_nodes(shape, demands, exclude).await)
    }

    async fn status(&self) -> Result<Vec<NodeLease>, ClusterError> {
        let jobs = self.jobs().await?;
        Ok(jobs.into_iter().flat_map(|job| self.leases(job)).collect())
    }

    async fn release(&self, id: &LeaseId, how: Release) -> Result<(), ClusterError> {
        // A job keeps its number and its name forever. `scancel` also checks the name.
        let jobs = self.jobs().await?;
        let Some(job) = jobs.iter().find(|job| job.facts.id == id.as_str()) else {
            return Err(ClusterError::WrongId { id: id.to_string() });
        };
        let name = format!(
            "--name={}",
            script::job_name(&self.section, &job.facts.shape)
        );
        let steps: &[&[&str]] = match how {
            Release::Now => &[&[]],
            // The nodes are tasks. `srun`, the job's script, would end them without grace.
            Release::Drain if job.facts.set.is_some() => {
                &[&["--state=PENDING"], &["--state=RUNNING", "--signal=TERM"]]
            }
            // `scancel` without a signal gives a running job only a few seconds.
            Release::Drain => &[
                &["--state=PENDING"],
                &["--state=RUNNING", "--batch", "--signal=TERM"],
            ],
        };
        for step in steps {
            let mut arguments = vec![name.clone()];
            arguments.extend(step.iter().map(|argument| (*argument).to_owned()));
            arguments.push(id.to_string());
            let ended = run(self.call("scancel", arguments, "")).await?;
            let is_gone = batch::has_any(&ended.message, GONE);
            if !ended.status.success() && !is_gone {
                return Err(ERRORS.failure("scancel", &ended));
            }
        }
        Ok(())
    }

    fn names_node(&self, node: &str) -> bool {
        batch::is_numbered(node, "slurm-")
    }

    async fn log_end(&self, id: &LeaseId) -> Option<String> {
        self.last_line(id)
    }
}

/// The name with which a job's node joins. `rank` is the number of its task in a job of several nodes.
fn node_name(id: &str, rank: Option<u32>) -> String {
    match rank {
        None => format!("slurm-{id}"),
        Some(rank) => format!("slurm-{id}-{rank}"),
    }
}

/// Hosts on which a job has failed recently; empty above `EXCLUDED_MAX`, because then the hosts are not the cause.
fn failed_hosts(jobs: &[Job], now_unix: u64) -> Vec<String> {
    let is_late = |job: &&Job| {
        let ended = job.facts.ends_unix.unwrap_or(0);
        job.has_failed() && !job.facts.host.is_empty() && ended + EXCLUDED_FOR_SECONDS > now_unix
    };
    let late = jobs.iter().filter(is_late);
    // The other machines of a job of several nodes are not the cause.
    let only_host = |job: &Job| match &hostlist::expand(&job.facts.host, 2)[..] {
        [host] => Some(host.clone()),
        _ => None,
    };
    let hosts: BTreeSet<String> = late.filter_map(only_host).collect();
    if hosts.len() > EXCLUDED_MAX {
        Vec::new()
    } else {
        hosts.into_iter().collect()
    }
}

/// Splits at commas outside of brackets.
fn split_list(text: &str) -> Vec<&str> {
    let (mut parts, mut start, mut depth) = (Vec::new(), 0, 0_i32);
    for (at, letter) in text.char_indices() {
        match letter {
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

#[cfg(test)]
mod tests;
