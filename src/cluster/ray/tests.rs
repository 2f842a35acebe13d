//! Recorded responses of a real Ray (tests/fixtures/ray), served by a small server that records its requests. Tests with a real Ray
//! are in tests/outside.

mod calls;
mod double;
mod logs;
mod responses;
mod script;

use config::{ClusterKind, Length};

use super::super::LeaseState;
use super::*;
use crate::stand_ins::{self, id, in_words, shape};

fn section() -> ClusterSection {
    let shapes = [("a1", 1), ("a2", 2), ("a8", 8)];
    let shapes = shapes.map(|(name, gpus)| shape(name, gpus, 28_800));
    let mut section = stand_ins::section(ClusterKind::Ray, shapes.to_vec());
    // A variable of the tests' own environment must not be sent.
    section.ray.token_file = Some("/nowhere".into());
    section
}

fn fixture(name: &str) -> Value {
    let text = stand_ins::fixture(&format!("ray/{name}"));
    serde_json::from_str(&text).expect("JSON")
}
