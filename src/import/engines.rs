//! Translates command lines of llama-server and vLLM to sections of a model file. Only commands whose options are all known are
//! translated; others are left unchanged for a CommandEngine.

use std::collections::BTreeMap;

use catalog::{Engine, find_engine};
use serde_json::{Map, Value, json};

use crate::options::{SpecialOptions, read};

/// A command line translated to the keys of an engine from the table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Native {
    pub engine: &'static str,
    /// Keys of `engine_config` other than `model_id`, `type` and `env`.
    pub section: Map<String, Value>,
    pub gpus: Option<u64>,
    /// Indices of the GPUs it may use; empty for all.
    pub devices: Vec<u64>,
    /// Simultaneous requests.
    pub seats: Option<u64>,
    /// `pool_config.sleep`.
    pub sleep: Option<&'static str>,
    /// Notes on options without a counterpart.
    pub notes: Vec<String>,
}

/// `None`: the program is not a known engine. `Err`: the reason for keeping the command.
pub fn native(argv: &[String]) -> Option<Result<Native, String>> {
    let program = argv.first()?;
    let base = program.rsplit('/').next().unwrap_or(program);
    match (base, argv.get(1).map(String::as_str)) {
        ("llama-server", _) => Some(llama_cpp(program, &argv[1..])),
        ("vllm", Some("serve")) => Some(vllm(program, &argv[2..])),
        _ => None,
    }
}

const LLAMA_CPP: SpecialOptions = SpecialOptions {
    values: &[
        "model",
        "hf_repo",
        "ctx_size",
        "parallel",
        "alias",
        "host",
        "port",
        "api_key",
        "api_key_file",
        "hf_token",
        "n_gpu_layers",
        "tensor_split",
        "device",
        "main_gpu",
        "split_mode",
        "fit",
        "fit_target",
        "fit_ctx",
    ],
    switches: &["metrics", "webui", "no_webui", "ui", "no_ui"],
    short: &[
        ("-m", "model"),
        ("-hf", "hf_repo"),
        ("-hfr", "hf_repo"),
        ("-hff", "hf_file"),
        ("-hft", "hf_token"),
        ("-c", "ctx_size"),
        ("-np", "parallel"),
        ("-a", "alias"),
        ("-ngl", "n_gpu_layers"),
        ("--gpu-layers", "n_gpu_layers"),
        ("-ts", "tensor_split"),
        ("-dev", "device"),
        ("-mg", "main_gpu"),
        ("-fit", "fit"),
        ("-fitt", "fit_target"),
        ("-fitc", "fit_ctx"),
        ("-fa", "flash_attn"),
        ("-t", "threads"),
        ("-tb", "threads_batch"),
        ("-C", "cpu_mask"),
        ("-Cr", "cpu_range"),
        ("-n", "n_predict"),
        ("--predict", "n_predict"),
        ("-b", "batch_size"),
        ("-ub", "ubatch_size"),
        ("-ctxcp", "ctx_checkpoints"),
        ("--swa-checkpoints", "ctx_checkpoints"),
        ("-cms", "checkpoint_min_step"),
        ("-cram", "cache_ram"),
        ("-kvu", "kv_unified"),
        ("-no-kvu", "no_kv_unified"),
        ("-e", "escape"),
        ("-r", "reverse_prompt"),
        ("-sp", "special"),
        ("-s", "seed"),
        ("--sampling-seq", "sampler_seq"),
        ("--top-n-sigma", "top_nsigma"),
        ("--typical-p", "typical"),
        ("-l", "logit_bias"),
        ("-j", "json_schema"),
        ("-jf", "json_schema_file"),
        ("-kvo", "kv_offload"),
        ("-nkvo", "no_kv_offload"),
        ("-nr", "no_repack"),
        ("-ctk", "cache_type_k"),
        ("-ctv", "cache_type_v"),
        ("-dt", "defrag_thold"),
        ("-cb", "cont_batching"),
        ("-nocb", "no_cont_batching"),
        ("-mm", "mmproj"),
        ("-mmu", "mmproj_url"),
        ("-lm", "load_mode"),
        ("-ot", "override_tensor"),
        ("-cmoe", "cpu_moe"),
        ("-ncmoe", "n_cpu_moe"),
        ("-sm", "split_mode"),
        ("-to", "timeout"),
        ("-rea", "reasoning"),
        ("-sps", "slot_prompt_similarity"),
        ("-v", "verbose"),
        ("--log-verbose", "verbose"),
        ("-lv", "verbosity"),
        ("--log-verbosity", "verbosity"),
        ("-md", "spec_draft_model"),
        ("--model-draft", "spec_draft_model"),
        ("-ngld", "spec_draft_ngl"),
        ("--gpu-layers-draft", "spec_draft_ngl"),
        ("--n-gpu-layers-draft", "spec_draft_ngl"),
        ("-td", "spec_draft_threads"),
        ("-tbd", "spec_draft_threads_batch"),
        ("-ctkd", "spec_draft_type_k"),
        ("-ctvd", "spec_draft_type_v"),
        ("--draft-p-min", "spec_draft_p_min"),
        ("--draft-p-split", "spec_draft_p_split"),
    ],
};

const VLLM: SpecialOptions = SpecialOptions {
    values: &[
        "model",
        "max_model_len",
        "tensor_parallel_size",
        "pipeline_parallel_size",
        "data_parallel_size",
        "gpu_memory_utilization",
        "served_model_name",
        "revision",
        "host",
        "port",
        "uds",
        "api_key",
        "hf_token",
        "swap_space",
    ],
    switches: &["enable_sleep_mode", "disable_log_requests"],
    short: &[
        ("-tp", "tensor_parallel_size"),
        ("-pp", "pipeline_parallel_size"),
        ("-dp", "data_parallel_size"),
        ("-q", "quantization"),
    ],
};

fn llama_cpp(program: &str, argv: &[String]) -> Result<Native, String> {
    let engine = find_engine("LlamaCppEngine").ok_or("this build has no LlamaCppEngine")?;
    let mut read = read(engine, &LLAMA_CPP, argv)?;
    if let Some(word) = read.rest.first() {
        return Err(format!("`{word}` belongs to no option"));
    }
    let mut native = Native {
        engine: "LlamaCppEngine",
        ..Native::default()
    };
    let section = &mut native.section;
    match (read.own.remove("model"), read.own.remove("hf_repo")) {
        (Some(path), None) => section.insert("model_path".to_owned(), json!(path)),
        (None, Some(name)) => section.insert("hf_model_id".to_owned(), json!(name)),
        _ => return Err("it must set the model once, with --model or --hf-repo".to_owned()),
    };
    name_program(section, program, "llama-server");
    let seats = match read.own.remove("parallel") {
        // The engine's default, as without the option.
        Some(text) if text == "-1" => None,
        Some(text) => Some(number("parallel", &text)?.max(1)),
        None => None,
    };
    let context = read.own.remove("ctx_size");
    let context = context.map(|text| number("ctx-size", &text)).transpose()?;
    if let Some(tokens) = context.filter(|tokens| *tokens > 0) {
        let of_one = tokens / seats.unwrap_or(1);
        section.insert("max_total_tokens".to_owned(), json!(of_one));
    }
    if seats.is_none() {
        native.notes.push(
            "has no --parallel, so a single request gets the full --ctx-size; for more, set deployment_config.max_ongoing_requests: each request gets max_total_tokens, and the cache grows with their number".to_owned(),
        );
    } else if read.kwargs.contains_key("kv_unified") {
        native.notes.push(
            "has --kv-unified, where one request may use the context of all; here each request has --ctx-size divided by --parallel (max_total_tokens)".to_owned(),
        );
    }
    native.seats = Some(seats.unwrap_or(1));
    if let Some(layers) = read.own.remove("n_gpu_layers") {
        // The pool always puts all layers on the GPU.
        let is_all = matches!(layers.as_str(), "all" | "auto" | "-1")
            || layers.parse::<u32>().is_ok_and(|count| count >= 99);
        if !is_all {
            read.kwargs
                .insert("n_gpu_layers".to_owned(), number_or_text(&layers));
        }
    }
    if let Some(split) = read.own.remove("tensor_split") {
        let parts = split.split([',', '/']).count();
        native.gpus = u64::try_from(parts).ok().filter(|parts| *parts > 1);
        read.kwargs.insert("tensor_split".to_owned(), json!(split));
    }
    if let Some(names) = read.own.remove("device") {
        native.devices = devices(&names)?;
        if native.devices.len() > 1 {
            native.gpus = Some(native.devices.len() as u64);
        }
    }
    let main = read.own.remove("main_gpu");
    let main = main.map(|text| number("main-gpu", &text)).transpose()?;
    match read.own.remove("split_mode") {
        // A single GPU is the placement of one replica.
        Some(mode) if mode == "none" => {
            native.gpus = None;
            read.kwargs.shift_remove("tensor_split");
            native.devices = match (main, native.devices.as_slice()) {
                (Some(main), []) => vec![main],
                (main, devices) => {
                    let index = usize::try_from(main.unwrap_or(0)).unwrap_or(usize::MAX);
                    devices.get(index).copied().into_iter().collect()
                }
            };
        }
        mode => {
            if let Some(mode) = mode.filter(|mode| mode != "layer") {
                read.kwargs.insert("split_mode".to_owned(), json!(mode));
            }
            if let Some(main) = main.filter(|main| *main > 0) {
                native.notes.push(format!(
                    "--main-gpu {main} is not used: the pool chooses the GPUs; name them in pool_config.devices"
                ));
            }
        }
    }
    not_used(&mut native.notes, &read.own);
    finish(engine, native, read.kwargs)
}

/// The indices in names such as `CUDA0,CUDA1`.
fn devices(names: &str) -> Result<Vec<u64>, String> {
    let index = |name: &str| {
        let digits = name.trim_start_matches(|letter: char| !letter.is_ascii_digit());
        digits.parse().map_err(|_| {
            format!("--device {names} names no GPUs by their numbers, such as CUDA0, which LlamaCppEngine needs")
        })
    };
    names.split(',').map(|name| index(name.trim())).collect()
}

fn vllm(program: &str, argv: &[String]) -> Result<Native, String> {
    let engine = find_engine("VLLMEngine").ok_or("this build has no VLLMEngine")?;
    let mut read = read(engine, &VLLM, argv)?;
    let mut native = Native {
        engine: "VLLMEngine",
        ..Native::default()
    };
    let served = read.own.remove("served_model_name");
    let model = match (read.own.remove("model"), read.rest.as_slice()) {
        (Some(model), []) => model,
        (None, [model]) => model.clone(),
        _ => return Err("it names no model, or has arguments that belong to no option".to_owned()),
    };
    let section = &mut native.section;
    let is_path = model.starts_with(['/', '.', '~']) || model.matches('/').count() > 1;
    let key = if is_path { "model_path" } else { "hf_model_id" };
    section.insert(key.to_owned(), json!(model));
    name_program(section, program, "vllm");
    if let Some(revision) = read.own.remove("revision") {
        section.insert("revision".to_owned(), json!(revision));
    }
    if let Some(name) = served {
        section.insert("served_model_name".to_owned(), json!(name));
    }
    if let Some(text) = read.own.remove("max_model_len") {
        let tokens = number("max-model-len", &text)?;
        section.insert("max_total_tokens".to_owned(), json!(tokens));
    }
    if let Some(text) = read.own.remove("tensor_parallel_size") {
        native.gpus = Some(number("tensor-parallel-size", &text)?);
    }
    for key in ["pipeline_parallel_size", "data_parallel_size"] {
        if read.own.remove(key).is_some_and(|size| size != "1") {
            return Err(format!(
                "--{} above 1 is not supported by VLLMEngine, which uses tensor parallelism and replicas",
                key.replace('_', "-")
            ));
        }
    }
    if let Some(share) = read.own.remove("gpu_memory_utilization") {
        let share = number_or_text(&share);
        read.kwargs
            .insert("gpu_memory_utilization".to_owned(), share);
    }
    if read.own.remove("enable_sleep_mode").is_some() {
        native.sleep = Some("weights");
    }
    not_used(&mut native.notes, &read.own);
    finish(engine, native, read.kwargs)
}

fn name_program(section: &mut Map<String, Value>, program: &str, usual: &str) {
    if program != usual {
        section.insert("program".to_owned(), json!(program));
    }
}

/// Notes on options that were not translated and that the pool does not set itself.
fn not_used(notes: &mut Vec<String>, own: &BTreeMap<&'static str, String>) {
    for key in own.keys() {
        let why = match *key {
            "api_key" | "api_key_file" => {
                "is not copied: only this machine reaches engines, and clients use keys of the pool"
            }
            "hf_token" => {
                "is a secret and was not copied: set HF_TOKEN in the environment of model-pool, and name it in engine_config.env_vars_to_propogate"
            }
            "fit" | "fit_target" | "fit_ctx" => {
                "is not used: the pool reserves memory before it starts the engine"
            }
            "swap_space" | "disable_log_requests" => "has been removed from vLLM, and was left out",
            _ => continue,
        };
        notes.push(format!("--{} {why}", key.replace('_', "-")));
    }
}

/// Checks the translated options against the engine's table, and adds them to the section.
fn finish(
    engine: &Engine,
    mut native: Native,
    kwargs: Map<String, Value>,
) -> Result<Native, String> {
    let mut checked = kwargs.clone();
    if let Some(key) = engine.share_key {
        checked.shift_remove(key);
    }
    engine
        .flags
        .check(&checked)
        .map_err(|flaw| format!("--{}: {}", flaw.key.replace('_', "-"), flaw.problem))?;
    if !kwargs.is_empty() {
        native
            .section
            .insert("engine_kwargs".to_owned(), Value::Object(kwargs));
    }
    Ok(native)
}

fn number(name: &str, text: &str) -> Result<u64, String> {
    text.parse()
        .map_err(|_| format!("--{name} {text} is not a plain number"))
}

fn number_or_text(text: &str) -> Value {
    serde_json::from_str::<Value>(text)
        .ok()
        .filter(Value::is_number)
        .unwrap_or_else(|| json!(text))
}

#[cfg(test)]
mod tests;
