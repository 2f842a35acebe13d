//! A replica over two nodes that the pool requests from a real Slurm together (M8).

use std::fs;

use serde_json::json;
use support::double::vllm_double;
use support::family::shown;
use support::folder::write_tiny_weights;
use support::service::wait_for;

use super::lab::{Lab, model};
use super::server::SlurmServer;

#[test]
fn m8_a_gang_of_two_nodes_is_requested_from_slurm_loaded_and_given_back() {
    let Some(slurm) = SlurmServer::start() else {
        return;
    };
    let weights = slurm.path().join("wide");
    fs::create_dir(&weights).unwrap();
    write_tiny_weights(&weights);
    let (path, program) = (weights.display(), vllm_double());
    let wide = format!(
        "engine_config:\n  model_id: wide\n  type: VLLMEngine\n  model_path: {path}\n  program: {:?}\n  env: {{VLLM_DOUBLE_LOAD_MS: '300', VLLM_DOUBLE_TOKENS: '3'}}\npool_config: {{memory_gib: 24, nodes: 2, min_resident: 0s}}\n",
        program.display().to_string()
    );
    let lab = Lab::start(
        &slurm,
        "gang",
        &[model("here", 0, &[]), ("wide.yaml".to_owned(), wide)],
        "  scale_down_after: 1s\n  shapes: [{name: one, gpus: 1, memory: 16GiB, time_limit: 10m}]\n  slurm: {log_dir: FOLDER}\n",
    );
    let plan = lab.post("/llm/admin/plan", r#"{"model": "wide"}"#).1;
    assert_eq!(plan["node"]["nodes"], 2, "{plan}");
    assert!(lab.nodes().is_empty());
    let response = lab.asks("wide", 3);
    assert_eq!(response.0, 200, "{response:?}\n{}", lab.pool.log());
    lab.step("the first response");
    let nodes = lab.nodes();
    assert_eq!(nodes.len(), 2, "{nodes:?}");
    let members = shown(&lab.pool, "wide")["replicas"][0]["members"].clone();
    let members = members.as_array().cloned().unwrap_or_default();
    let mut of_members: Vec<_> = members.iter().map(|one| one["node"].clone()).collect();
    of_members.sort_by_key(ToString::to_string);
    let names: Vec<_> = nodes.iter().map(|node| node["node"].clone()).collect();
    assert_eq!(of_members, names);
    assert_eq!(lab.jobs("RUNNING").lines().count(), 2);

    let (status, text) = lab.post("/llm/admin/unload", &json!({"model": "wide"}).to_string());
    assert_eq!(status, 200, "{text}");
    wait_for("the idle nodes to be given back", || lab.nodes().is_empty());
    lab.wait_for_no_job();
    lab.step("no job is left");
}
