//! llama.cpp: `llama-server`. The flags match ggml-org/llama.cpp at 0c1e57098, the version in the package
//! llama-cpp-python 0.3.36; `tests/fixtures/llama_server_flags.txt` lists them.
//!
//! `--ctx-size` is the context of all slots together, which makes it `max_total_tokens` times `--parallel`. llama-server's own
//! choices follow the free memory; `--n-gpu-layers` and `LLAMA_ARG_FIT=off` keep layers on the GPU, and an even `--tensor-split`
//! keeps it from overfilling a device.
//! One file because the command line and the memory estimate follow the same flags.

use super::engine::{ArgumentContext, Engine, Metrics, NeedsWeightSize, RerankApi, pair};
use super::flags::{FlagReason, Flags, GATEWAY_ALONE, Group, Kind, Spelling, group, reason};
use super::launch_context::EngineAddress;
use super::lines::{Failure, FailureClass, Stage, StageMark, by_marks, failure, mark};
use super::reasoning::{EffortField, ReasoningSwitch};
use super::routes::{ExtraRoute, TokenApi};
use crate::engines::kind::EngineKind;

pub const LLAMA_CPP: Engine = Engine {
    names: &["LlamaCppEngine"],
    word: "llama.cpp",
    program: &["llama-server"],
    install: "install llama.cpp with `brew install llama.cpp`, your distribution's package (apt install llama.cpp), or build it: cmake -B build -DGGML_CUDA=ON && cmake --build build --config Release -t llama-server; then name the program in engine_config.program (/opt/llama.cpp/build/bin/llama-server)",
    package: None,
    kind: EngineKind::LlamaCpp,
    flags: Flags {
        groups: GROUPS,
        barred: BARRED,
        warned: WARNED,
        spelling: Spelling {
            joint: '-',
            equals: false,
        },
    },
    sockets: true,
    needs_gpu: false,
    devices_max: 16,
    spans_nodes: false,
    seats: 4,
    sequences_key: None,
    share_key: None,
    fills: false,
    needs_weight_size: NeedsWeightSize::Never,
    reads_gguf: true,
    arguments,
    environment,
    ready_path: "/health",
    health_path: "/health",
    generation_path: None,
    barred_env: &[reason(
        "LLAMA_ARG_FIT LLAMA_ARG_CORS_ORIGINS",
        "is set by the pool, which reserves the memory and is the only client",
    )],
    metrics: Some(Metrics {
        path: "/metrics",
        running: "llamacpp:requests_processing",
        waiting: "llamacpp:requests_deferred",
        cache_used: &["llamacpp:kv_cache_usage_ratio"],
        // Its token counters increase only at the end of each response.
        generated: None,
    }),
    // It checks for a disconnected client only after a second in which no request had a result, so never while another request
    // streams.
    ends_with_client: false,
    parking: &[],
    stage,
    lora: None,
    ignores: &["best_of"],
    extensions: &[
        "cache_prompt",
        "chat_template_kwargs",
        "dry_allowed_length",
        "dry_base",
        "dry_multiplier",
        "dry_penalty_last_n",
        "dry_sequence_breakers",
        "dynatemp_exponent",
        "dynatemp_range",
        "grammar",
        "ignore_eos",
        "json_schema",
        "min_keep",
        "min_p",
        "mirostat",
        "mirostat_eta",
        "mirostat_tau",
        "n_indent",
        "n_keep",
        "n_predict",
        "n_probs",
        "parse_tool_calls",
        "post_sampling_probs",
        "reasoning_format",
        "repeat_last_n",
        "repeat_penalty",
        "response_format",
        "return_tokens",
        "samplers",
        "t_max_predict_ms",
        "thinking_budget_tokens",
        "timings_per_token",
        "top_k",
        "top_n_sigma",
        "typical_p",
        "xtc_probability",
        "xtc_threshold",
    ],
    pooling_extensions: &["content", "embd_normalize"],
    continuous_usage: false,
    parsers: None,
    reasoning: ReasoningSwitch {
        effort: EffortField::OfTemplate,
        template: true,
        budget: Some("thinking_budget_tokens"),
        budget_needs: None,
    },
    rerank: RerankApi::Common,
    routes: &[
        ExtraRoute::Embeddings,
        ExtraRoute::Rerank,
        ExtraRoute::Transcriptions,
        ExtraRoute::Infill,
        ExtraRoute::Completion,
        ExtraRoute::Tokenize,
        ExtraRoute::Detokenize,
    ],
    tokens: TokenApi::LlamaCpp,
    dimensions: false,
    last_errors: &[],
    failures: FAILURES,
};

/// More layers than any model has. Older versions do not know `all`.
const ALL_LAYERS: u32 = 999;

fn arguments(inputs: &ArgumentContext<'_>) -> Result<Vec<String>, String> {
    let recipe = inputs.recipe;
    let mut argv = Vec::new();
    pair(
        &mut argv,
        if recipe.is_local {
            "--model"
        } else {
            "--hf-repo"
        },
        &recipe.model,
    );
    match inputs.place.at {
        EngineAddress::Port(port) => {
            pair(&mut argv, "--host", "127.0.0.1");
            pair(&mut argv, "--port", port);
        }
        // llama-server treats a host with this ending as a socket.
        EngineAddress::Socket(path) => pair(&mut argv, "--host", path.display()),
    }
    pair(&mut argv, "--alias", recipe.served_name(inputs.place));
    pair(&mut argv, "--parallel", recipe.seats);
    if let Some(tokens) = recipe.context {
        pair(
            &mut argv,
            "--ctx-size",
            u64::from(tokens) * u64::from(recipe.seats),
        );
    }
    if !recipe.flags.has("n_gpu_layers") {
        let layers = if inputs.has_gpus() { ALL_LAYERS } else { 0 };
        pair(&mut argv, "--n-gpu-layers", layers);
    }
    if inputs.has_gpus() && inputs.devices() > 1 && !recipe.flags.has("tensor_split") {
        pair(
            &mut argv,
            "--tensor-split",
            vec!["1"; inputs.devices()].join(","),
        );
    }
    argv.push("--metrics".to_owned());
    argv.push("--no-webui".to_owned());
    Ok(argv)
}

/// Settings passed as variables, because older builds have no flags for them and ignore unknown variables.
fn environment(_: &ArgumentContext<'_>) -> Vec<(&'static str, String)> {
    vec![
        // Otherwise llama-server would fit the model to the free memory, which the pool has reserved, and read the model twice.
        ("LLAMA_ARG_FIT", "off".to_owned()),
        // Otherwise it would accept requests from pages of any origin.
        ("LLAMA_ARG_CORS_ORIGINS", "localhost".to_owned()),
    ]
}

/// A hundred dots mean a complete load; the line is printed when loading ends.
fn stage(line: &str) -> Option<Stage> {
    let line = line.trim();
    if line.len() >= 20 && line.bytes().all(|byte| byte == b'.') {
        return Some(Stage {
            name: "reading weights",
            percent: Some(line.len().min(100) as u8),
        });
    }
    by_marks(line, MARKS)
}

const MARKS: &[StageMark] = &[
    mark("downloading", "fetching"),
    mark("loading model", "reading weights"),
    mark("load_tensors", "reading weights"),
    mark("llama_kv_cache", "making the cache"),
    mark("llama_context:", "making the cache"),
    mark("warming up the model", "warming up"),
];

const FAILURES: &[Failure] = &[
    failure(
        FailureClass::OutOfMemory,
        &[
            "failed to allocate buffer",
            "failed to allocate compute",
            "unable to allocate cuda",
            "failed to allocate cuda",
            "failed to create context",
        ],
        "set a smaller engine_config.max_total_tokens or deployment_config.max_ongoing_requests (the cache is their product), engine_kwargs.cache_type_k: q8_0, or spread it over more GPUs (pool_config.gpus_per_replica)",
    ),
    failure(
        FailureClass::UnknownArchitecture,
        &[
            "unknown model architecture",
            "unknown pre-tokenizer type",
            "key not found in model",
        ],
        "this build of llama.cpp is older than the model: build or install a newer one",
    ),
    failure(
        FailureClass::Quantisation,
        &[
            "invalid ggml type",
            "has invalid type",
            "unsupported tensor type",
        ],
        "this build of llama.cpp does not know the file's quantisation: build a newer one, or take another GGUF file of the model",
    ),
    failure(
        FailureClass::NoAccess,
        &[
            "failed to get repo",
            "http status code: 401",
            "http status code: 404",
        ],
        "check the name; for a gated model of Hugging Face put a token into engine_config.env.HF_TOKEN",
    ),
    failure(
        FailureClass::ModelMissing,
        &["failed to open gguf file", "failed to load model from"],
        "check that the file in engine_config.model_path exists, is readable and complete",
    ),
];

const BARRED: &[FlagReason] = &[
    reason(
        "host port reuse_port",
        "is chosen by the pool for each replica; engine_config.listen says whether it is a port or a socket",
    ),
    reason(
        "api_key api_key_file ssl_key_file ssl_cert_file api_prefix path cors_origins cors_methods cors_headers \
         cors_credentials",
        GATEWAY_ALONE,
    ),
    reason(
        "model model_url hf_repo docker_repo",
        "is engine_config.model_path (a GGUF file), or engine_config.hf_model_id",
    ),
    reason(
        "alias",
        "is engine_config.served_model_name; the pool passes it on",
    ),
    reason(
        "ctx_size",
        "is engine_config.max_total_tokens (of one request); the pool writes it times the number of slots",
    ),
    reason("parallel", "is deployment_config.max_ongoing_requests"),
    reason(
        "hf_token",
        "would be visible in the process list; set engine_config.env.HF_TOKEN instead",
    ),
    reason(
        "device main_gpu mmproj_device rpc list_devices",
        "is made from the placement; pool_config.devices says which GPUs the model may use",
    ),
    reason(
        "fit fit_target fit_ctx",
        "is not used: the pool reserves memory before it starts the engine",
    ),
    reason("metrics", "is always on; the pool reads them"),
    reason(
        "ui webui ui_config ui_config_file ui_mcp_proxy",
        "is not used: the gateway does not expose the engine's pages",
    ),
    reason(
        "tools tools_runtime agent mcp_servers_config mcp_servers_json",
        "is refused: it would let every client of the model run programs on this machine",
    ),
    reason(
        "models_dir models_preset models_max models_autoload sleep_idle_seconds",
        "is done by the pool: each llama-server serves one model, and pool_config.keep_hot unloads it",
    ),
    reason(
        "spec_synth_len spec_synth_rates",
        "generates fake responses, for benchmarks of llama.cpp itself",
    ),
    reason(
        "draft draft_n draft_max draft_min draft_n_min spec_ngram_size_n spec_ngram_size_m spec_ngram_min_hits",
        "has been removed from llama.cpp; see spec_draft_n_max and similar options",
    ),
];

const WARNED: &[FlagReason] = &[
    reason(
        "media_path",
        "lets every user of the model read the files below it",
    ),
    reason(
        "props slots slot_save_path",
        "enables routes that the gateway does not forward",
    ),
    reason("log_prompts_dir", "writes what users say to disk"),
];

/// Every key of the common and server options, except the ones above, options that only make sense on a command line, and the
/// default models that llama-server downloads.
const GROUPS: &[Group] = &[
    group(
        Kind::Switch,
        "kv_unified cache_idle_slots context_shift perf escape warmup kv_offload repack cont_batching \
         mmproj_auto mmproj_offload op_offload cache_prompt slots jinja reasoning_preserve \
         skip_chat_parsing prefill_assistant log_jsonl log_prefix log_timestamps \
         spec_draft_backend_sampling",
    ),
    group(
        Kind::On,
        "swa_full special spm_infill ignore_eos backend_sampling no_host cpu_moe check_tensors embedding \
         embeddings rerank reranking props lora_init_without_apply log_disable verbose offline \
         spec_draft_cpu_moe spec_default",
    ),
    group(
        Kind::Integer(-1, 1 << 40),
        "threads threads_batch prio poll prio_batch poll_batch cpu_strict cpu_strict_batch kv_unified_per_slot \
         predict n_predict batch_size ubatch_size keep ctx_checkpoints checkpoint_min_step cache_ram top_k \
         repeat_last_n dry_allowed_length dry_penalty_last_n mirostat yarn_orig_ctx image_min_tokens \
         image_max_tokens mtmd_batch_max_tokens video_timestamp_interval n_cpu_moe n_cpu_ffn \
         embd_normalize timeout sse_ping_interval threads_http cache_reuse reasoning_budget verbosity seed \
         spec_draft_cpu_strict spec_draft_cpu_strict_batch spec_draft_prio_batch spec_draft_poll_batch \
         spec_draft_threads spec_draft_threads_batch spec_draft_prio spec_draft_poll spec_draft_n_cpu_moe \
         spec_draft_n_max spec_draft_n_min spec_ngram_mod_n_min spec_ngram_mod_n_max spec_ngram_mod_n_match \
         spec_ngram_simple_size_n spec_ngram_simple_size_m spec_ngram_simple_min_hits \
         spec_ngram_map_k_size_n spec_ngram_map_k_size_m spec_ngram_map_k_min_hits \
         spec_ngram_map_k4v_size_n spec_ngram_map_k4v_size_m spec_ngram_map_k4v_min_hits",
    ),
    group(
        Kind::Float(-1e9, 1e9),
        "temp temperature top_p min_p top_nsigma xtc_probability xtc_threshold typical repeat_penalty \
         presence_penalty frequency_penalty dry_multiplier dry_base adaptive_target adaptive_decay \
         dynatemp_range dynatemp_exp mirostat_lr mirostat_ent rope_scale rope_freq_base rope_freq_scale \
         yarn_ext_factor yarn_attn_factor yarn_beta_slow yarn_beta_fast defrag_thold video_fps \
         slot_prompt_similarity spec_draft_p_split spec_draft_p_min",
    ),
    group(
        Kind::Text,
        "cpu_mask cpu_range cpu_mask_batch cpu_range_batch samplers sampler_seq dry_sequence_breaker \
         logit_bias grammar hf_file tags override_tensor override_kv reverse_prompt n_gpu_layers gpu_layers \
         reasoning_effort reasoning_budget_message chat_template mmproj_url reasoning_format \
         spec_draft_hf spec_draft_cpu_mask spec_draft_cpu_mask_batch spec_draft_cpu_range spec_draft_override_tensor \
         spec_draft_device spec_draft_ngl spec_type load_mode lazy_mode",
    ),
    group(
        Kind::Commas,
        "tensor_split lora_scaled control_vector_scaled",
    ),
    group(
        Kind::Path,
        "lookup_cache_static lookup_cache_dynamic grammar_file json_schema_file mmproj video_ffmpeg_dir \
         lora control_vector slot_save_path media_path chat_template_file log_file log_prompts_dir \
         spec_draft_model model_draft",
    ),
    group(Kind::List, "control_vector_layer_range"),
    group(Kind::Json, "json_schema chat_template_kwargs"),
    group(
        Kind::OneOf("on off auto"),
        "flash_attn reasoning log_colors",
    ),
    group(Kind::OneOf("none mean cls last rank"), "pooling"),
    group(Kind::OneOf("none linear yarn"), "rope_scaling"),
    group(Kind::OneOf("none layer row tensor"), "split_mode"),
    group(Kind::OneOf("distribute isolate numactl"), "numa"),
    group(
        Kind::OneOf("f32 f16 bf16 q8_0 q4_0 q4_1 iq4_nl q5_0 q5_1"),
        "cache_type_k cache_type_v spec_draft_type_k spec_draft_type_v",
    ),
];

#[cfg(test)]
mod tests;
