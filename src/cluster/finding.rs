//! Findings of a cluster's inspection: `model-pool check --slurm`, `--pbs`, `--kubernetes` and `--ray`.

use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use config::ClusterSection;

use super::ClusterError;
use super::program::ProgramResult;

/// Generous: a token has 46 characters.
const TOKEN_BYTES_MAX: u64 = 4096;

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
    let shown = file.display();
    let how = "write a token of `admin-client nodes token` there, in a folder that the nodes share";
    let problem = |why: String| {
        Some(Finding::Problem(format!(
            "cluster.token_file {shown} {why}"
        )))
    };
    let read = std::fs::metadata(file).and_then(|facts| {
        let mut text = String::new();
        let bounded = std::fs::File::open(file)?.take(TOKEN_BYTES_MAX + 1);
        std::io::BufReader::new(bounded).read_to_string(&mut text)?;
        Ok((facts, text))
    });
    let (facts, text) = match read {
        Ok(read) => read,
        Err(error) => return problem(format!("cannot be read: {error}; {how}")),
    };
    // A file of root may be for a group, as Kubernetes mounts Secrets. Nodes refuse other files that others can read.
    let others = if facts.uid() == 0 && !rustix::process::geteuid().is_root() {
        0o007
    } else {
        0o077
    };
    if facts.mode() & others != 0 {
        let mode = facts.mode() & 0o7777;
        return problem(format!(
            "can be read by others (mode {mode:04o}), so nodes refuse it; run `chmod 600 {shown}`"
        ));
    }
    let token = text.trim();
    if token.is_empty() {
        return problem(format!("is empty; {how}"));
    }
    if facts.len() > TOKEN_BYTES_MAX || token.contains(char::is_whitespace) {
        return problem(format!("holds more than one token; {how}"));
    }
    Some(Finding::Good(format!("token file: {shown}")))
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
