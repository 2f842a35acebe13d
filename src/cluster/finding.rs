//! What an inspection of a cluster finds: `model-pool check --slurm`, `--pbs`, `--kubernetes` and `--ray`.

use std::path::Path;

use config::ClusterSection;

use super::ClusterError;
use super::program::Ended;

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// As it has to be.
    Good(String),
    /// It could not be looked at, or needs a person.
    Note(String),
    /// It would fail, with what to do.
    Problem(String),
}

impl Finding {
    pub(super) fn is_problem(&self) -> bool {
        matches!(self, Finding::Problem(_))
    }
}

/// The join token, as this machine sees it.
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

/// The program of the nodes, if it is a path.
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

/// How a client program that prints its version has ended.
pub(super) fn version(program: &str, ended: Result<Ended, ClusterError>) -> Finding {
    match ended {
        Ok(ended) if ended.status.success() => {
            Finding::Good(format!("{program}: {}", ended.stdout.trim()))
        }
        Ok(ended) => Finding::Problem(format!("{program} --version fails: {}", ended.reason())),
        Err(error) => Finding::Problem(error.to_string()),
    }
}

/// What answers with the jobs of this pool, and how many of them have not ended.
pub(super) fn live_jobs(answers: &str, section: &ClusterSection, live: usize) -> Finding {
    Finding::Good(format!(
        "{answers}; this pool (cluster.name: {}) has {live} pending or running job{}",
        section.name,
        if live == 1 { "" } else { "s" }
    ))
}

/// Files that nodes need at the same path. Whether nodes see them, only a job can tell. `logs`: the key of the folder of the
/// jobs' output, and the folder.
pub(super) fn shared_files(section: &ClusterSection, logs: (&str, Option<&Path>)) -> Vec<Finding> {
    let (key, folder) = logs;
    let all = [
        token_file(section),
        folder.map(|folder| log_folder(key, folder)),
        program(section),
    ];
    all.into_iter().flatten().collect()
}

/// The folder of the jobs' output, as this machine sees it.
fn log_folder(key: &str, folder: &Path) -> Finding {
    if folder.is_dir() {
        Finding::Good(format!("folder of the jobs' output: {}", folder.display()))
    } else {
        Finding::Problem(format!(
            "{key} {} is no folder; create it where the nodes see it, or their jobs fail",
            folder.display()
        ))
    }
}

/// Shell commands that tell on a node whether it sees the files and reaches the controller. They have no `'`.
pub(super) fn on_a_node(section: &ClusterSection) -> String {
    let controller = section.controller.as_ref().map_or("", |it| it.first());
    let token = section.token_file.as_deref().unwrap_or(Path::new(""));
    format!(
        "test -r {} && curl -ksS -o /dev/null -w \"%{{http_code}}\\n\" {controller}/llm/health && command -v {}",
        token.display(),
        section.program
    )
}
