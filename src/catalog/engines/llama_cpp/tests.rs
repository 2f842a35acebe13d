//! Tests of `llama_cpp.rs`.

use super::super::tests_support::{gpus, place, recipe, refusal};
use super::*;

#[test]
fn the_total_context_is_the_context_of_one_slot_times_the_number_of_slots() {
    let mut recipe = recipe(
        &LLAMA_CPP,
        r#"{"flash_attn": "on", "cache_type_k": "q8_0", "keep": -1}"#,
    );
    recipe.context = Some(8192);
    let devices = gpus(2, 24);
    let command = recipe.command(&place(&devices, 20)).expect("a command");
    let expected = "llama-server --model /models/m --host 127.0.0.1 --port 4321 --alias org/model --parallel 4 --ctx-size 32768 --n-gpu-layers 999 --tensor-split 1,1 --metrics --no-webui --flash-attn on --cache-type-k q8_0 --keep -1";
    assert_eq!(command.argv.join(" "), expected);
}

#[test]
fn in_host_memory_no_layer_is_offloaded_and_a_socket_is_passed_as_the_host() {
    let recipe = recipe(&LLAMA_CPP, "{}");
    let mut place = place(&[], 4);
    place.at = EngineAddress::Socket(std::path::Path::new("/run/m.sock"));
    let line = recipe.command(&place).expect("a command").argv.join(" ");
    assert!(
        line.contains("--host /run/m.sock") && line.contains("--n-gpu-layers 0"),
        "{line}"
    );
}

#[test]
fn flags_set_by_the_pool_and_dangerous_flags_are_refused() {
    assert!(refusal(&LLAMA_CPP, r#"{"ctx-size": 1}"#).contains("max_total_tokens"));
    assert!(refusal(&LLAMA_CPP, r#"{"tools": "all"}"#).contains("run programs"));
    assert!(refusal(&LLAMA_CPP, r#"{"flash_atn": "on"}"#).contains("flash_attn"));
    assert!(refusal(&LLAMA_CPP, r#"{"cache_type_k": "q3"}"#).contains("allowed: f32"));
}

#[test]
fn llama_cpp_logs_are_parsed_for_load_stages_and_failures() {
    let stage = |line: &str| stage(line).map(|stage| (stage.name, stage.percent));
    assert_eq!(
        stage(&".".repeat(100)),
        Some(("reading weights", Some(100)))
    );
    assert_eq!(
        stage("srv    load_model: loading model '/m.gguf'"),
        Some(("reading weights", None))
    );
    assert_eq!(
        stage("common_init_from_params: warming up the model with an empty run"),
        Some(("warming up", None))
    );
    assert_eq!(stage("..."), None);
    let argv = "llama_model_load: error loading model: unknown model architecture: 'x'";
    assert_eq!(
        LLAMA_CPP.failure(argv).map(|failure| failure.class),
        Some(FailureClass::UnknownArchitecture)
    );
    let argv = "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 4096.00 MiB on device 0: cudaMalloc failed: out of memory";
    assert_eq!(
        LLAMA_CPP.failure(argv).map(|failure| failure.class),
        Some(FailureClass::OutOfMemory)
    );
}
