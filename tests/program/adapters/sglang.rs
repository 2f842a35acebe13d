//! Adapters with the double in SGLang's form, whose routes and adapter names differ.

use serde_json::json;
use support::adapters::write;
use support::double::vllm_double;
use support::family::told;
use support::machine::{GIB, Machine};
use support::service::Pool;

#[test]
fn sglang_is_started_with_adapter_slots_and_loads_and_unloads_adapters_by_id() {
    let folder = tempfile::tempdir().expect("a folder");
    let machine = Machine::new(folder.path()).gpus(1, "NVIDIA H100 80GB HBM3", 80 * GIB);
    let adapters = folder.path().join("adapters");
    for nth in 0..3_u64 {
        write(&adapters.join(format!("own:{nth}")), "org/base", 8, nth);
    }
    let file = format!(
        "engine_config:\n  model_id: lab/base\n  type: SGLangEngine\n  hf_model_id: org/base\n  fetch: engine\n  program: {:?}\n  env: {{MODEL_POOL_FAKE_NVML: {:?}, VLLM_DOUBLE_LOAD_MS: '50'}}\nlora_config: {{dynamic_lora_loading_path: {:?}, max_lora_rank: 16, max_num_adapters_per_replica: 2}}\npool_config: {{memory_gib: 40}}\n",
        vllm_double().display().to_string(),
        machine.state_file().display().to_string(),
        adapters.display().to_string(),
    );
    let models = [("base.yaml".to_owned(), file)];
    let mut pool = Pool::on_gpus(&models, &machine.library(), "");
    // For this start and all later ones.
    pool.set_env("MODEL_POOL__POOL__ON_RESTART", "adopt");
    pool.kill_and_restart();
    let ask = |pool: &Pool, model: &str| {
        let body = json!({"model": model, "messages": [{"role": "user", "content": "Hi"}]});
        pool.post("/v1/chat/completions", &body.to_string())
    };
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
        "loaded adapter own:0 (1 of 2)",
        "loaded adapter own:1 (2 of 2)",
        "unloaded adapter own:0",
        "loaded adapter own:2 (2 of 2)",
    ];
    pool.wait_for_engine_log("lab/base", &lines);
    let engines = pool.engine_pids();
    assert_eq!(engines.len(), 1);
    pool.kill_and_restart();
    assert_eq!(pool.engine_pids(), engines, "the same process");
    let adopted = told(&pool, "adopt", 1);
    assert!(adopted[0].contains("found ready for"), "{adopted:?}");
    for name in ["lab/base", "lab/base:own:2", "lab/base:own:0"] {
        let (status, text) = ask(&pool, name);
        assert_eq!(status, 200, "{name}: {text}");
    }
    assert_eq!(pool.engine_pids(), engines, "and it answers");
}
