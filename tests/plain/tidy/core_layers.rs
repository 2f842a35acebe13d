//! The layers of the core: `facts` below `plan`, `plan` below `commit`, `commit` below `observe`. The compiler holds the rest: the
//! parts of the facts have private fields, `plan` gets a shared reference, and only `commit` can push an action.

use super::{assert_none, read, root, rust_files};
use support::code::without_tests;

/// A layer, and the layers that it does not use.
const LAYERS: [(&str, &[&str]); 4] = [
    ("facts", &["plan", "commit", "observe", "view"]),
    ("plan", &["commit", "observe", "view"]),
    ("commit", &["observe", "view"]),
    ("observe", &["view"]),
];

fn breaches_of_layer(layer: &str, others: &[&str], file: &str, code: &str) -> Vec<String> {
    let uses = |other: &&&str| code.contains(&format!("crate::{other}::"));
    let used = others.iter().filter(uses);
    let mut breaches: Vec<String> = used
        .map(|other| format!("{file}: {layer} uses {other}"))
        .collect();
    if layer == "plan" && code.contains("&mut Pool") {
        breaches.push(format!("{file}: plan takes the pool to change it"));
    }
    breaches.extend(methods(code).filter_map(|(name, parameters)| {
        let changes = parameters.starts_with("&mut self");
        let acts = parameters.contains("&mut Actions");
        let is_wrong = match layer {
            "plan" => changes || acts,
            // `plan` could call a method that only reads.
            "commit" | "observe" => !changes && !acts,
            _ => acts,
        };
        is_wrong.then(|| format!("{file}: `Pool::{name}` belongs to another layer"))
    }));
    breaches
}

/// The methods of `Pool` that other files of the crate can call, with their parameters.
fn methods(code: &str) -> impl Iterator<Item = (&str, String)> {
    let blocks = code.split("\nimpl Pool {").skip(1);
    let blocks = blocks.filter_map(|rest| rest.split("\n}\n").next());
    let starts = blocks.flat_map(|block| block.split("\n    pub(crate) fn ").skip(1));
    starts.filter_map(|start| {
        let (name, rest) = start.split_once('(')?;
        let head = rest.split(" {\n").next()?;
        let words: Vec<&str> = head.split_whitespace().collect();
        Some((name, words.join(" ")))
    })
}

#[test]
fn the_layers_of_the_core_use_only_those_below_them() {
    let mut breaches = Vec::new();
    let mut known = 0;
    for file in rust_files() {
        let Some(path) = file.strip_prefix("src/pool/") else {
            continue;
        };
        let layer = path.split('/').next().unwrap_or_default();
        let Some((layer, others)) = LAYERS.iter().find(|(name, _)| *name == layer) else {
            continue;
        };
        if file.ends_with("/tests.rs") {
            continue;
        }
        let code = without_tests(&read(root(), &file));
        known += methods(&code).count();
        breaches.extend(breaches_of_layer(layer, others, &file, &code));
    }
    assert!(known > 100, "{known}");
    assert_none(&breaches);
}

#[test]
fn a_method_in_the_wrong_layer_is_found() {
    let reads = "\nimpl Pool {\n    pub(crate) fn free(&self) -> u64 {\n        0\n    }\n}\n";
    let changes = "\nimpl Pool {\n    pub(crate) fn grow(\n        &mut self,\n        by: u64,\n    ) {\n    }\n}\n";
    let found = |layer, code| breaches_of_layer(layer, &["view"], "file", code).len();
    assert_eq!((found("observe", reads), found("plan", reads)), (1, 0));
    assert_eq!((found("observe", changes), found("plan", changes)), (0, 1));
    assert_eq!(found("plan", "use crate::view::pool;"), 1);
    assert_eq!(found("plan", "fn next(pool: &mut Pool) {}"), 1);
}
