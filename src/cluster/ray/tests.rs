//! What a real Ray has answered (tests/fixtures/ray), given back by a small server that keeps what it was sent. A real Ray is
//! in tests/outside.

mod answers;
mod calls;
mod double;
mod logs;
mod script;

use std::collections::BTreeMap;

use config::{ClusterKind, Length, ShapeSection, Size};
use pool::Bytes;

use super::super::LeaseState;
use super::*;

fn shape(name: &str, gpus: u32) -> ShapeSection {
    ShapeSection {
        name: name.to_owned(),
        gpus,
        memory: Size(Bytes(80 * Bytes::GIB)),
        time_limit: Length::from_secs(28_800),
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

fn section() -> ClusterSection {
    let mut section = ClusterSection {
        kind: ClusterKind::Ray,
        name: "lab".to_owned(),
        controller: Some("https://pool.example.org:8443".into()),
        token_file: Some("/shared/the token".into()),
        shapes: vec![shape("a1", 1), shape("a2", 2), shape("a8", 8)],
        ..ClusterSection::default()
    };
    // A variable of the tests' own environment must not be sent.
    section.ray.token_file = Some("/nowhere".into());
    section
}

fn fixture(name: &str) -> Value {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/ray");
    let text = std::fs::read_to_string(root.join(name)).expect("a fixture");
    serde_json::from_str(&text).expect("JSON")
}
