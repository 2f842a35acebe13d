//! Tests of `vllm.rs`.

use super::super::tests_support::{gpus, place, recipe};
use super::*;

#[test]
fn the_command_line_is_made_from_the_placement() {
    let mut recipe = recipe(
        &VLLM,
        r#"{"quantization": "awq", "enable_prefix_caching": false}"#,
    );
    recipe.context = Some(8192);
    let devices = gpus(2, 80);
    let command = recipe.command(&place(&devices, 40)).expect("a command");
    let expected = "vllm serve /models/m --host 127.0.0.1 --port 4321 --served-model-name org/model --tensor-parallel-size 2 --gpu-memory-utilization 0.4937 --max-model-len 8192 --max-num-seqs 20 --quantization awq --no-enable-prefix-caching";
    assert_eq!(command.argv.join(" "), expected);
    assert_eq!(command.env["VLLM_NO_USAGE_STATS"].0, "1");
    assert_eq!(command.env["HF_HUB_OFFLINE"].0, "1");
    assert!(!command.env.contains_key("VLLM_SERVER_DEV_MODE"));
}

#[test]
fn eager_mode_uses_the_full_reservation_and_a_socket_replaces_the_port() {
    let recipe = recipe(&VLLM, r#"{"enforce_eager": true, "max_num_seqs": 4}"#);
    let devices = gpus(1, 80);
    let mut place = place(&devices, 40);
    place.at = EngineAddress::Socket(std::path::Path::new("/run/s"));
    let line = recipe.command(&place).expect("a command").argv.join(" ");
    assert!(
        line.contains("--uds /run/s") && !line.contains("--port"),
        "{line}"
    );
    assert!(line.contains("--gpu-memory-utilization 0.5000"), "{line}");
    assert!(line.ends_with("--enforce-eager --max-num-seqs 4"), "{line}");
}

#[test]
fn a_reservation_that_leaves_no_share_is_refused_with_numbers() {
    let devices = gpus(1, 80);
    let mut place = place(&devices, 1);
    place.reserved = Bytes(100 * Bytes::MIB);
    let problem = recipe(&VLLM, "{}").command(&place).unwrap_err();
    assert!(
        problem.contains("100") && problem.contains("512"),
        "{problem}"
    );
}

#[test]
fn in_host_memory_the_cache_size_is_passed_in_bytes() {
    let line = |place| {
        let command = recipe(&VLLM, "{}").command(&place);
        command.map(|command| command.argv.join(" "))
    };
    let bytes = (20 - 8 - 3) * Bytes::GIB;
    let text = line(place(&[], 20)).expect("a command");
    assert!(
        text.contains(&format!("--kv-cache-memory-bytes {bytes} ")),
        "{text}"
    );
    let mut unknown = place(&[], 20);
    unknown.weights = None;
    assert!(line(unknown).unwrap_err().contains("model_path"));
    assert!(line(place(&[], 9)).unwrap_err().contains("memory_gib"));
}

#[test]
fn damaged_weights_are_reported_as_such_and_not_as_unknown_in_size() {
    let folder = tempfile::tempdir().expect("a folder");
    let weights = folder.path().join("model.safetensors");
    std::fs::write(&weights, [200, 0, 0, 0, 0, 0, 0, 0, b'{']).expect("written");
    let recipe = ServerRecipe::new(&VLLM, &folder.path().display().to_string());
    let mut place = place(&[], 20);
    place.weights = None;
    let problem = recipe.command(&place).expect_err("no command");
    assert!(
        problem.starts_with("the weights are damaged: /") && problem.contains("model.safetensors"),
        "{problem}"
    );
}

#[test]
fn sleep_adds_its_flag_and_enables_the_sleep_routes() {
    let mut recipe = recipe(&VLLM, "{}");
    recipe.sleep = Sleep::Weights;
    let command = recipe.command(&place(&gpus(1, 80), 40)).expect("a command");
    assert!(command.argv.contains(&"--enable-sleep-mode".to_owned()));
    assert_eq!(command.env["VLLM_SERVER_DEV_MODE"].0, "1");
    assert_eq!(
        VLLM.parks(Sleep::Weights).expect("level 1").sleep.path,
        "/sleep?level=1"
    );
    assert_eq!(VLLM.parks(Sleep::Discard).expect("level 2").wake.len(), 3);
    assert!(VLLM.parks(Sleep::Off).is_none());
}

#[test]
fn vllm_logs_are_parsed_for_load_stages_and_failures() {
    let stage = |line| (VLLM.stage)(line).map(|stage| (stage.name, stage.percent));
    for (line, expected) in [
        (
            "Loading safetensors checkpoint shards:  75% Completed | 3/4 [00:03<00:01,  1.0s/it]",
            ("reading weights", Some(75)),
        ),
        (
            "Loading safetensors checkpoint shards (eager):  50% Completed | 1/2 [00:03<00:03,  3.0s/it]",
            ("reading weights", Some(50)),
        ),
        (
            "Multi-thread loading shards: 100% Completed | 4/4 [00:03<00:00,  1.0it/s]",
            ("reading weights", Some(100)),
        ),
        (
            "INFO 11-21 10:00:00 [gpu_model_runner.py:5089] Model loading took 14.99 GiB memory and 3.1 seconds",
            ("profiling", None),
        ),
        (
            "Capturing CUDA graphs (mixed prefill-decode, PIECEWISE):  50%|#####     | 10/20",
            ("capturing graphs", Some(50)),
        ),
        (
            "INFO [kv_cache_utils.py:1148] GPU KV cache size: 100,000 tokens",
            ("making the cache", None),
        ),
    ] {
        assert_eq!(stage(line), Some(expected), "{line}");
    }
    assert_eq!(
        stage("INFO: 127.0.0.1 - \"GET /health HTTP/1.1\" 200 OK"),
        None
    );
    let class = |arguments| VLLM.failure(arguments).map(|failure| failure.class);
    assert_eq!(
        class("ValueError: No available memory for the cache blocks."),
        Some(FailureClass::OutOfMemory)
    );
    assert_eq!(
        class("ValueError: Model architectures ['X'] are not supported for now."),
        Some(FailureClass::UnknownArchitecture)
    );
    assert_eq!(
        class("OSError: [Errno 98] Address already in use"),
        Some(FailureClass::PortInUse)
    );
}
