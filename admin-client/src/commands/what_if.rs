//! `plan --if-cordoned`, `plan --if-priority`: the pool's plan under these assumptions.

use serde_json::{Map, Value, json};

use crate::error::CommandError;
use crate::render;
use crate::session::Session;
use crate::what_if::WhatIf;

pub async fn run(
    session: &Session,
    cordoned: &[String],
    priorities: &[(String, u32)],
) -> Result<(), CommandError> {
    let mut words: Vec<String> = Vec::new();
    words.extend(
        cordoned
            .iter()
            .map(|device| format!("{device} were cordoned")),
    );
    let priority = |(model, number): &(String, u32)| format!("{model} had priority {number}");
    words.extend(priorities.iter().map(priority));
    let of = |(model, number): &(String, u32)| (model.clone(), Value::from(*number));
    let priorities: Map<String, Value> = priorities.iter().map(of).collect();
    let request = json!({ "cordoned": cordoned, "priorities": priorities });
    let assumed = words.join(" and ");
    let show = |response: &WhatIf, style| render::what_if::what_if(response, &assumed, style);
    session.post("admin/what-if", &request, show).await
}
