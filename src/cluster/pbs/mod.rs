//! PBS Professional and OpenPBS as a cluster: each node is a job that runs `model-pool node`. Jobs are found by the pool's name, so
//! a restarted pool knows its own. Based on the manual pages and the source of OpenPBS (qsub(1B), qselect(1B), qstat(1B), qsig(1B),
//! qdel(1B), pbsnodes(8B), pbs_job_attributes(7B) in openpbs/openpbs), and tested with programs that imitate PBS.
//!
//! PBS chooses a job's node: a chunk of `-l select` can name a host, but cannot exclude one. The list of nodes to avoid therefore
//! has no effect.

mod inspection;
mod jobs;
mod reasons;
mod script;
mod text;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use chrono::DateTime;
use config::ClusterSection;
use tokio::sync::OnceCell;

use super::batch::{self, Errors};
use super::program::{Call, ProgramResult, run};
use super::shape::find_shape;
use super::{Cluster, ClusterError, LeaseId, NodeLease, Release};
use jobs::Job;

const OUTPUT_BYTES_MAX: usize = 8 << 20;
/// Number of jobs per `qstat` call. Each job has some KiB of output.
const IDS_AT_ONCE: usize = 200;
/// Time for which ended jobs are listed.
const FINISHED_FOR_SECONDS: u64 = 86_400;
const ADVICE: &str = "install PBS' client programs on this machine, or set cluster.pbs.bin_dir to their folder, such as /opt/pbs/bin";
/// PBS' programs read and print times in this zone.
const UTC: &[(&str, &str)] = &[("TZ", "UTC"), ("LC_ALL", "C")];
/// Messages of PBS' programs about a job that ended while they ran.
const GONE: &[&str] = &["Unknown Job Id", "has finished"];
const ERRORS: Errors = Errors {
    unreachable: &[
        "cannot connect to server",
        "Connection refused",
        "Connection timed out",
        "Connection reset",
        "No route to host",
        "Communication failure",
        "End of File",
        "Premature end of message",
        "Batch protocol error",
        "pbs_iff",
        "Invalid credential",
        "Expired credential",
        "munge",
        "Server is shutting down",
        "Server shutting down",
        "Temporary failure in name resolution",
    ],
    advice: reasons::ADVICE,
};

pub struct Pbs {
    section: ClusterSection,
    /// The id of this pool. Another pool with the same name has another id.
    pub(super) owner: Option<String>,
    /// The name of this account, once it is known.
    user: OnceCell<String>,
    /// Set if the server keeps no ended jobs.
    no_history: AtomicBool,
}

impl Pbs {
    pub fn new(section: &ClusterSection) -> Pbs {
        Pbs {
            section: section.clone(),
            owner: None,
            user: OnceCell::new(),
            no_history: AtomicBool::new(false),
        }
    }

    /// The script that a request for this shape submits.
    ///
    /// # Errors
    /// If the shape does not exist.
    pub fn script(&self, shape: &str, demand: Option<u64>) -> Result<String, ClusterError> {
        let shape = find_shape(&self.section, shape)?;
        Ok(script::render(
            &self.section,
            shape,
            demand,
            self.owner.as_deref(),
        ))
    }

    fn call<'a>(&'a self, name: &'a str, arguments: Vec<String>, input: &'a str) -> Call<'a> {
        Call {
            name,
            program: batch::program(self.section.pbs.bin_dir.as_deref(), name),
            arguments,
            input,
            deadline: self.section.pbs.timeout.duration(),
            output_bytes_max: OUTPUT_BYTES_MAX,
            variables: &[],
            deadline_key: "cluster.pbs.timeout",
            advice: ADVICE,
        }
    }

    /// A call that changes nothing.
    fn query<'a>(&'a self, name: &'a str, arguments: Vec<String>) -> Call<'a> {
        Call {
            variables: UTC,
            ..self.call(name, arguments, "")
        }
    }

    async fn user(&self) -> Result<&str, ClusterError> {
        let name = self.user.get_or_try_init(|| async {
            let call = Call {
                program: "id".into(),
                ..self.call("id", vec!["-un".to_owned()], "")
            };
            let ended = run(call).await?;
            if ended.status.success() {
                Ok(ended.stdout.trim().to_owned())
            } else {
                Err(ClusterError::Setup {
                    message: format!("this account has no name (id -un): {}", ended.reason()),
                })
            }
        });
        Ok(name.await?.as_str())
    }

    /// This account's jobs with this pool's name, including recently ended ones.
    async fn jobs(&self) -> Result<Vec<Job>, ClusterError> {
        let mut ids = self.select(&[]).await?;
        for id in self.finished().await {
            if !ids.contains(&id) {
                ids.push(id);
            }
        }
        let mut jobs = Vec::new();
        for some in ids.chunks(IDS_AT_ONCE) {
            jobs.extend(self.described(some).await?);
        }
        Ok(jobs)
    }

    /// The ids of this pool's waiting and running jobs, or of the jobs that other options of `qselect` select.
    async fn select(&self, options: &[&str]) -> Result<Vec<String>, ClusterError> {
        let name = script::job_name(&self.section.name);
        let mut arguments: Vec<String> = ["-u", self.user().await?, "-N", name.as_str()]
            .map(str::to_owned)
            .to_vec();
        arguments.extend(options.iter().map(|option| (*option).to_owned()));
        let ended = run(self.query("qselect", arguments)).await?;
        let ended = ERRORS.checked("qselect", ended)?;
        let ids = ended.stdout.split_whitespace();
        let ids = ids.filter(|id| LeaseId::parse(id).is_ok());
        Ok(ids.map(str::to_owned).collect())
    }

    /// The ids of ended jobs that changed within a day. Empty if the server keeps no history.
    async fn finished(&self) -> Vec<String> {
        if self.no_history.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let since = batch::now_unix().saturating_sub(FINISHED_FOR_SECONDS);
        let since = i64::try_from(since).ok();
        let Some(since) = since.and_then(|seconds| DateTime::from_timestamp(seconds, 0)) else {
            return Vec::new();
        };
        let since = format!("-tm.gt.{}", since.format("%Y%m%d%H%M"));
        match self.select(&["-x", "-s", "F", since.as_str()]).await {
            Ok(ids) => ids,
            Err(error) => {
                if is_without_history(&error.to_string()) {
                    self.no_history.store(true, Ordering::Relaxed);
                }
                Vec::new()
            }
        }
    }

    /// The records of these jobs. A missing job has ended in between if `qstat` names it as gone; otherwise this is an error.
    async fn described(&self, ids: &[String]) -> Result<Vec<Job>, ClusterError> {
        let mut ended = self.details(ids).await?;
        if is_without_history(&ended.message) && !self.no_history.swap(true, Ordering::Relaxed) {
            ended = self.details(ids).await?;
        }
        let is_gone = batch::has_any(&ended.errors, GONE);
        if ERRORS.is_unreachable(&ended.errors) || !(ended.status.success() || is_gone) {
            return Err(ERRORS.failure("qstat", &ended));
        }
        let records = text::records(&ended.stdout, "Job Id: ");
        let is_known = |id: &&String| {
            let id = jobs::number(id);
            let mut same = records
                .iter()
                .filter(|record| jobs::number(&record.name) == id);
            same.any(|record| !record.get("job_state").is_empty())
                || is_named_as_gone(&ended.errors, id)
        };
        let known = ids.iter().filter(is_known).count();
        if known < ids.len() {
            return Err(ClusterError::Output {
                program: "qstat".to_owned(),
                message: format!(
                    "it describes {known} of {} jobs; {}",
                    ids.len(),
                    ended.reason()
                ),
            });
        }
        let pool = &self.section.name;
        let jobs = records
            .iter()
            .filter_map(|record| Job::from_record(record, pool));
        Ok(jobs.collect())
    }

    async fn details(&self, ids: &[String]) -> Result<ProgramResult, ClusterError> {
        let mut arguments = vec!["-f".to_owned()];
        if !self.no_history.load(Ordering::Relaxed) {
            arguments.push("-x".to_owned());
        }
        arguments.extend(ids.iter().cloned());
        run(self.query("qstat", arguments)).await
    }

    fn lease(&self, job: Job) -> Option<NodeLease> {
        let (state, has_failed) = (job.lease_state(), job.has_failed());
        let node = format!("pbs-{}", job.number());
        let mut lease = job.facts.lease(node, state)?;
        if has_failed {
            let line = self.last_line(&lease.id);
            batch::add_log_end(&mut lease, line);
        }
        Some(lease)
    }

    /// The end of a job's output, if this machine sees its folder.
    fn last_line(&self, id: &LeaseId) -> Option<String> {
        let path = match &self.section.pbs.log_dir {
            Some(folder) => folder.join(batch::log_name(id.as_str())),
            None => {
                let number = jobs::number(id.as_str());
                Path::new(".").join(script::copied_log_name(&self.section.name, number))
            }
        };
        batch::last_line(&path, |line| line.starts_with("=>> PBS"))
    }
}

impl Cluster for Pbs {
    async fn request(
        &self,
        shape: &str,
        demand: Option<u64>,
        _exclude: &[String],
    ) -> Result<LeaseId, ClusterError> {
        let script = self.script(shape, demand)?;
        // Without `-f`, a process with the environment of the first call stays behind.
        let call = self.call("qsub", vec!["-f".to_owned()], &script);
        let ended = ERRORS.submit(call).await?;
        let id = ended.stdout.trim();
        batch::submitted("qsub", &ended, id, jobs::number(id))
    }

    async fn status(&self) -> Result<Vec<NodeLease>, ClusterError> {
        let jobs = self.jobs().await?;
        Ok(jobs.into_iter().filter_map(|job| self.lease(job)).collect())
    }

    async fn release(&self, id: &LeaseId, how: Release) -> Result<(), ClusterError> {
        // People may type only the number.
        let jobs = self.jobs().await?;
        let is_meant = |job: &&Job| job.facts.id == id.as_str() || job.number() == id.as_str();
        let Some(job) = jobs.iter().find(is_meant) else {
            return Err(ClusterError::WrongId { id: id.to_string() });
        };
        if job.has_ended() {
            return Ok(());
        }
        let id = job.facts.id.clone();
        // `qdel` gives a running job only a few seconds.
        let (program, arguments) = match how {
            Release::Drain if job.has_machine() => {
                let signal = script::DRAIN_SIGNAL.to_owned();
                ("qsig", vec!["-s".to_owned(), signal, id])
            }
            Release::Drain | Release::Now => ("qdel", vec![id]),
        };
        let ended = run(self.call(program, arguments, "")).await?;
        let is_over = batch::has_any(&ended.message, GONE)
            || ended.message.contains("invalid for state of job");
        if ended.status.success() || is_over {
            Ok(())
        } else {
            Err(ERRORS.failure(program, &ended))
        }
    }

    fn names_node(&self, node: &str) -> bool {
        batch::is_numbered(node, "pbs-")
    }

    async fn log_end(&self, id: &LeaseId) -> Option<String> {
        self.last_line(id)
    }
}

/// Returns true if a line of the errors names the job with this number as gone.
fn is_named_as_gone(errors: &str, number: &str) -> bool {
    let mut lines = errors.lines().filter(|line| batch::has_any(line, GONE));
    lines.any(|line| {
        let mut words = line.split([' ', ',', ':']);
        words.any(|word| jobs::number(word) == number)
    })
}

/// Returns true for the message of a server with job_history_enable off.
fn is_without_history(message: &str) -> bool {
    message.contains("job history") || message.contains("job_history_enable")
}

#[cfg(test)]
mod tests;
