//! Adapters with vLLM's double, which loads them like vLLM.

use serde_json::json;
use support::adapters::write;
use support::double::vllm_double;
use support::machine::{GIB, Machine};
use support::service::Pool;

fn model(machine: &Machine, adapters: &std::path::Path, env: &str) -> (String, String) {
    let state = machine.state_file().display().to_string();
    let program = vllm_double().display().to_string();
    let file = format!(
        "engine_config:\n  model_id: lab/base\n  type: VLLMEngine\n  hf_model_id: org/base\n  fetch: engine\n  program: {program:?}\n  env: {{MODEL_POOL_FAKE_NVML: {state:?}, VLLM_DOUBLE_LOAD_MS: '50'{env}}}\nlora_config: {{dynamic_lora_loading_path: {:?}, max_lora_rank: 16}}\nmultiplex_config: {{max_num_models_per_replica: 2}}\npool_config: {{memory_gib: 40}}\n",
        adapters.display().to_string()
    );
    ("base.yaml".to_owned(), file)
}

fn ask(pool: &Pool, model: &str) -> (u16, String) {
    let body = json!({"model": model, "messages": [{"role": "user", "content": "Hi"}]});
    pool.post("/v1/chat/completions", &body.to_string())
}

#[test]
fn vllm_is_started_with_adapter_slots_and_loads_and_unloads_adapters() {
    let folder = tempfile::tempdir().expect("a folder");
    let machine = Machine::new(folder.path()).gpus(1, "NVIDIA H100 80GB HBM3", 80 * GIB);
    let adapters = folder.path().join("adapters");
    for nth in 0..3_u64 {
        write(&adapters.join(format!("own:{nth}")), "org/base", 8, nth);
    }
    let pool = Pool::on_gpus(&[model(&machine, &adapters, "")], &machine.library(), "");
    for turn in 0..2 {
        for nth in 0..3 {
            let name = format!("lab/base:own:{nth}");
            let (status, text) = ask(&pool, &name);
            assert_eq!(status, 200, "turn {turn}: {text}");
            assert!(text.contains(&format!("\"model\":\"{name}\"")), "{text}");
        }
    }
    assert_eq!(ask(&pool, "lab/base:own:9").0, 404);
    let lines = [
        "loaded adapter lab/base:own:0 (1 of 2)",
        "loaded adapter lab/base:own:1 (2 of 2)",
        "unloaded adapter lab/base:own:0",
        "loaded adapter lab/base:own:2 (2 of 2)",
    ];
    pool.wait_for_engine_log("lab/base", &lines);
}

#[test]
fn an_engine_that_refuses_an_adapter_is_quoted_and_keeps_serving() {
    let folder = tempfile::tempdir().expect("a folder");
    let machine = Machine::new(folder.path()).gpus(1, "NVIDIA H100 80GB HBM3", 80 * GIB);
    let adapters = folder.path().join("adapters");
    write(&adapters.join("own:1"), "org/base", 8, 1);
    let refusing = ", VLLM_DOUBLE_REFUSE_ADAPTERS: 'Adapter modules lm_head are not supported'";
    let pool = Pool::on_gpus(
        &[model(&machine, &adapters, refusing)],
        &machine.library(),
        "",
    );
    let (status, text) = ask(&pool, "lab/base:own:1");
    assert_eq!(status, 400, "{text}");
    assert!(
        text.contains("lm_head are not supported") && text.contains("save the adapter again"),
        "{text}"
    );
    assert_eq!(ask(&pool, "lab/base").0, 200);
}
