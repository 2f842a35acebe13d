//! Findings of a cluster's inspection: `model-pool check --slurm`, `--pbs`, `--kubernetes` and `--ray`.

use std::path::Path;

use config::ClusterSection;

use super::ClusterError;
use super::program::ProgramResult;

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The check passed.
    Good(String),
    /// The check was not possible, or a person has to look.
    Note(String),
    /// The check failed; includes advice.
    Problem(String),
}

impl Finding {
    pub(super) fn is_problem(&self) -> bool {
        matches!(self, Finding::Problem(_))
    }
}

/// Checks the join token as this machine sees it.
pub(super) fn token_file(section: &ClusterSection) -> Option<Finding> {
    let file = section.token_file.as_ref()?;
    Some(match std::fs::File::open(file) {
        Ok(_) => Finding::Good(format!("token file: {}", file.display())),
        Err(error) => Finding::Problem(format!(
            "cluster.token_file {} cannot be read: {error}; write a join token there, in a folder that the nodes share",
            file.display()
        )),
    })
}

/// Checks the nodes' program, if it is a path.
fn program(section: &ClusterSection) -> Option<Finding> {
    let is_path = section.program.starts_with('/');
    let is_missing = is_path && !Path::new(&section.program).is_file();
    is_missing.then(|| {
        Finding::Note(format!(
            "cluster.program {} is not on this machine; make sure that it is on the nodes",
            section.program
        ))
    })
}

/// The finding for a client program that prints its version.
pub(super) fn version(program: &str, ended: Result<ProgramResult, ClusterError>) -> Finding {
    match ended {
        Ok(ended) if ended.status.success() => {
            Finding::Good(format!("{program}: {}", ended.stdout.trim()))
        }
        Ok(ended) => Finding::Problem(format!("{program} --version fails: {}", ended.reason())),
        Err(error) => Finding::Problem(error.to_string()),
    }
}

/// The finding for a cluster that responds: `responses` describes it, `live` is the number of this pool's jobs that have not ended.
pub(super) fn live_jobs(responses: &str, section: &ClusterSection, live: usize) -> Finding {
    Finding::Good(format!(
        "{responses}; this pool (cluster.name: {}) has {live} pending or running job{}",
        section.name,
        if live == 1 { "" } else { "s" }
    ))
}

/// Checks files that nodes need at the same path. Only a job can check that nodes see them. `logs` is the configuration key and the
/// path of the folder for the jobs' output.
pub(super) fn shared_files(section: &ClusterSection, logs: (&str, Option<&Path>)) -> Vec<Finding> {
    let (key, folder) = logs;
    let all = [
        token_file(section),
        folder.map(|folder| log_folder(key, folder)),
        program(section),
    ];
    all.into_iter().flatten().collect()
}

/// Checks the folder for the jobs' output as this machine sees it.
fn log_folder(key: &str, folder: &Path) -> Finding {
    if folder.is_dir() {
        Finding::Good(format!("folder of the jobs' output: {}", folder.display()))
    } else {
        Finding::Problem(format!(
            "{key} {} is not a folder; create it where the nodes see it, or their jobs fail",
            folder.display()
        ))
    }
}

/// Shell commands that check on a node that it sees the files and reaches the controller. They contain no `'`.
pub(super) fn on_a_node(section: &ClusterSection) -> String {
    let controller = section
        .controller
        .as_ref()
        .map_or("", |addresses| addresses.first());
    let token = section.token_file.as_deref().unwrap_or(Path::new(""));
    format!(
        "test -r {} && curl -ksS -o /dev/null -w \"%{{http_code}}\\n\" {controller}/llm/health && command -v {}",
        token.display(),
        section.program
    )
}
