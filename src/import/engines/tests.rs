//! Tests of `engines.rs`.

use super::*;

fn parse(line: &str) -> Result<Native, String> {
    let argv: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    native(&argv).expect("a program of the table")
}

#[test]
fn a_llama_server_command_is_converted_to_keys() {
    let native = parse(
        "/opt/llama-server --port {{port}} -m /m/a.gguf -c 16384 -np 4 -ngl 99 -fa -ctk q8_0 --jinja --temp 0.70 --no-warmup --seed -1 --metrics",
    )
    .expect("understood");
    assert_eq!(
        Value::Object(native.section),
        json!({
            "model_path": "/m/a.gguf", "program": "/opt/llama-server", "max_total_tokens": 4096,
            "engine_kwargs": {"flash_attn": "on", "cache_type_k": "q8_0", "jinja": true, "temp": 0.70,
                "warmup": false, "seed": -1}
        })
    );
    assert_eq!((native.seats, native.gpus), (Some(4), None));
    assert!(native.notes.is_empty(), "{:?}", native.notes);
}

#[test]
fn options_left_out_of_the_import_are_noted() {
    let native =
        parse("llama-server -hf org/m-GGUF:Q4_K_M --api-key sk-secret --fit off -ts 3,1 -ngl 20");
    let native = native.expect("understood");
    assert_eq!(native.section["hf_model_id"], "org/m-GGUF:Q4_K_M");
    assert_eq!(native.section["engine_kwargs"]["n_gpu_layers"], 20);
    assert_eq!(native.gpus, Some(2));
    let notes = native.notes.join("\n");
    assert!(notes.contains("--api-key is not copied"), "{notes}");
    assert!(notes.contains("--fit is not used"), "{notes}");
    assert!(notes.contains("has no --parallel"), "{notes}");
    assert!(!notes.contains("sk-secret"), "{notes}");
}

#[test]
fn a_vllm_command_is_converted_to_keys() {
    let native = parse(
        "vllm serve org/model --port {{port}} -tp 2 --max-model-len 8192 --gpu-memory-utilization=0.92 --served-model-name m --enable-prefix-caching --dtype bfloat16 --max-num-seqs 32 --enable-sleep-mode",
    )
    .expect("understood");
    assert_eq!(
        Value::Object(native.section),
        json!({
            "hf_model_id": "org/model", "served_model_name": "m", "max_total_tokens": 8192,
            "engine_kwargs": {"enable_prefix_caching": true, "dtype": "bfloat16", "max_num_seqs": 32,
                "gpu_memory_utilization": 0.92}
        })
    );
    assert_eq!((native.gpus, native.sleep), (Some(2), Some("weights")));
}

#[test]
fn a_command_that_cannot_be_converted_is_kept_with_the_reason() {
    for (line, why) in [
        (
            "llama-server -m a.gguf --no-mmap",
            "--no-mmap is not an option",
        ),
        ("llama-server -m a.gguf --lora a --lora b", "given twice"),
        (
            "llama-server -m a.gguf b.gguf",
            "`b.gguf` belongs to no option",
        ),
        ("llama-server --port 1", "must set the model"),
        (
            "llama-server -m a.gguf --device none",
            "--device none names no GPUs",
        ),
        ("vllm serve org/m -pp 2", "above 1"),
        (
            "vllm serve org/m --max-model-len auto",
            "not a plain number",
        ),
        ("vllm serve org/m --pot 1", "did you mean"),
    ] {
        let reason = parse(line).expect_err(line);
        assert!(reason.contains(why), "{line}: {reason}");
    }
    let argv = ["python", "-m", "vllm"].map(str::to_owned);
    assert!(native(&argv).is_none());
}

/// `tests/outside/llama_server/flags.rs` compares this list with the real program.
#[test]
fn every_imported_llama_server_option_is_on_its_list_of_flags() {
    let list = include_str!("../../../tests/fixtures/llama_server_flags.txt");
    let known: Vec<&str> = list.split_whitespace().collect();
    let own = LLAMA_CPP.values.iter().chain(LLAMA_CPP.switches);
    let long = own.map(|key| format!("--{}", key.replace('_', "-")));
    let short = LLAMA_CPP.short.iter().map(|(short, _)| (*short).to_owned());
    let unknown: Vec<String> = long
        .chain(short)
        .filter(|flag| !known.contains(&flag.as_str()))
        .collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}

#[test]
fn devices_of_llama_server_become_a_placement() {
    for (options, devices, gpus) in [
        ("-dev CUDA1", vec![1], None),
        ("--device CUDA0,CUDA2", vec![0, 2], Some(2)),
        ("-dev Vulkan3 -sm layer", vec![3], None),
        ("-sm none -mg 2", vec![2], None),
        ("-sm none -ts 1,1 -dev ROCm1,ROCm3 -mg 1", vec![3], None),
        ("-sm none", vec![], None),
        ("-ts 3,1", vec![], Some(2)),
    ] {
        let native = parse(&format!("llama-server -m /m/a.gguf -np 1 {options}")).expect(options);
        assert_eq!((native.devices, native.gpus), (devices, gpus), "{options}");
        let kwargs = &native.section.get("engine_kwargs");
        let has_split = kwargs.is_some_and(|kwargs| kwargs.get("split_mode").is_some());
        assert!(!has_split, "{options}");
    }
    let rows = parse("llama-server -m /m/a.gguf -np 1 -sm row -mg 1").expect("understood");
    assert_eq!(rows.section["engine_kwargs"]["split_mode"], "row");
    assert!(
        rows.notes.join(" ").contains("--main-gpu 1 is not used"),
        "{:?}",
        rows.notes
    );
    for options in ["-dev none", "-dev RPC", "-mg x", "-sm rows"] {
        let refused = parse(&format!("llama-server -m /m/a.gguf {options}"));
        assert!(refused.is_err(), "{options}");
    }
}

#[test]
fn options_that_place_tensors_are_kept() {
    let native = parse("llama-server -m /m/a.gguf -np 1 -ncmoe 20 -ot exps=CPU -nkvo -ngl 30")
        .expect("understood");
    assert_eq!(
        native.section["engine_kwargs"],
        json!({"n_cpu_moe": 20, "override_tensor": "exps=CPU", "kv_offload": false, "n_gpu_layers": 30})
    );
}
