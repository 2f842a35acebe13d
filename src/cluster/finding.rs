//! What an inspection of a cluster finds: `model-pool check --slurm`, `--kubernetes` and `--ray`.

use std::path::Path;

use config::ClusterSection;

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
pub(super) fn program(section: &ClusterSection) -> Option<Finding> {
    let is_path = section.program.starts_with('/');
    let is_missing = is_path && !Path::new(&section.program).is_file();
    is_missing.then(|| {
        Finding::Note(format!(
            "cluster.program {} is not on this machine; make sure that it is on the nodes",
            section.program
        ))
    })
}
