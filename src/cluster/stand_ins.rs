//! Test support for several clusters: the configuration of a pool, programs that imitate a cluster's, and leases as text.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use config::{ClusterKind, ClusterSection, Length, ShapeSection, Size};
use pool::Bytes;
use tempfile::TempDir;

use super::{LeaseId, LeaseState};

pub(super) fn shape(name: &str, gpus: u32, time_limit_seconds: u64) -> ShapeSection {
    ShapeSection {
        name: name.to_owned(),
        gpus,
        memory: Size(Bytes(80 * Bytes::GIB)),
        accelerator: None,
        time_limit: Length::from_secs(time_limit_seconds),
        max_nodes: None,
        cost_per_hour: None,
        gres: None,
        partition: None,
        constraint: None,
        queue: None,
        select: None,
        resources: BTreeMap::new(),
        labels: BTreeMap::new(),
    }
}

/// The pool `lab`, whose nodes read their token from a file.
pub(super) fn section(kind: ClusterKind, shapes: Vec<ShapeSection>) -> ClusterSection {
    ClusterSection {
        kind,
        name: "lab".to_owned(),
        controller: Some("https://pool.example.org:8443".into()),
        token_file: Some("/shared/the token".into()),
        shapes,
        ..ClusterSection::default()
    }
}

/// A folder with these programs, each a shell script.
pub(super) fn played(programs: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, script) in programs {
        let path = folder.path().join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("written");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).expect("set");
    }
    folder
}

pub(super) fn write(folder: &TempDir, name: &str, text: &str) {
    std::fs::write(folder.path().join(name), text).expect("written");
}

pub(super) fn read(folder: &TempDir, name: &str) -> String {
    std::fs::read_to_string(folder.path().join(name)).expect("read")
}

/// A file below `tests/fixtures`.
pub(super) fn fixture(name: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures");
    std::fs::read_to_string(root.join(name)).expect("a fixture")
}

pub(super) fn id(text: &str) -> LeaseId {
    LeaseId::parse(text).expect("an id")
}

pub(super) fn in_words(state: LeaseState) -> String {
    match state {
        LeaseState::Pending { reason } => format!("pending: {reason}"),
        LeaseState::Starting { host, reason } => format!("starting on {host}: {reason}"),
        LeaseState::Running { host } => format!("running on {host}"),
        LeaseState::Ended { why } => format!("ended: {why}"),
    }
}
