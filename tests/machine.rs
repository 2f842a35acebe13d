//! The whole program on a machine with eight GPUs that are not there.

mod support {
    pub mod machine;
    pub mod stub;
    pub mod whole;
}

use serde_json::Value;
use support::machine::{GIB, Machine};
use support::stub::stub_engine;
use support::whole::{Pool, wait_for};

/// A model whose engine is the stub, which takes this much of its GPU.
fn model(machine: &Machine, name: &str, gib: u64, flags: &[&str]) -> (String, String) {
    let (state, bytes) = (machine.state_file(), (gib * GIB).to_string());
    let state = state.display().to_string();
    let mut words = vec!["--fake-gpu-state", &state, "--fake-gpu-bytes", &bytes];
    words.extend(flags);
    let words: Vec<String> = words.iter().map(|word| format!("{word:?}")).collect();
    let file = format!(
        "engine_config:\n  model_id: {name}\n  type: CommandEngine\n  listen: port\n  command: [{:?}, \"--port\", \"{{{{ port }}}}\", {}]\npool_config: {{memory_gib: {gib}}}\n",
        stub_engine().display().to_string(),
        words.join(", ")
    );
    (format!("{name}.yaml"), file)
}

fn devices(pool: &Pool) -> Vec<Value> {
    let key = pool.admin_key();
    let (status, text, _) = pool.request("GET", "/llm/admin/devices", "", Some(&key));
    assert_eq!(status, 200, "{text}");
    let answer: Value = serde_json::from_str(&text).unwrap();
    let list = answer.as_array().or_else(|| answer["devices"].as_array());
    list.unwrap_or_else(|| panic!("{text}")).clone()
}

#[test]
fn a_model_on_one_of_eight_gpus_is_seen_with_its_bytes_there() {
    let folder = tempfile::tempdir().unwrap();
    let machine = Machine::new(folder.path())
        .gpus(8, "NVIDIA H100 80GB HBM3", 80 * GIB)
        .nvlink_pairs();
    let files = [
        model(&machine, "modest", 30, &[]),
        model(&machine, "greedy", 40, &["--oom-above", "200000000000"]),
    ];
    let pool = Pool::on_gpus(&files, &machine.library(), "");
    assert_eq!(devices(&pool).len(), 8);
    let ask = |model| {
        let body =
            format!(r#"{{"model":"{model}","messages":[{{"role":"user","content":"Hi"}}]}}"#);
        pool.post("/v1/chat/completions", &body)
    };
    let (status, answer) = ask("modest");
    assert_eq!(status, 200, "{answer}");
    let taken: Vec<usize> = (0..8).filter(|gpu| machine.used(*gpu) > 0).collect();
    let [gpu] = taken[..] else {
        panic!("one GPU: {taken:?}")
    };
    let held = machine.held(gpu);
    assert_eq!(held, [(pool.engine_pids()[0], 30 * GIB)]);
    wait_for("the reading of the engine's bytes", || {
        devices(&pool)[gpu]
            .to_string()
            .contains(&(30 * GIB).to_string())
    });
    machine.foreign((gpu + 1) % 8, 4242, 17 * GIB);
    wait_for("the reading of somebody else's bytes", || {
        let device = &devices(&pool)[(gpu + 1) % 8];
        device.to_string().contains(&(17 * GIB).to_string())
    });
    let (status, answer) = ask("greedy");
    assert_eq!(status, 503, "{answer}");
    assert!(answer.contains("CUDA out of memory"), "{answer}");
}
