//! TensorRT-LLM: `trtllm-serve`. `tests/fixtures/trtllm_flags.txt` lists its flags, which are written with underscores.
//!
//! `--free_gpu_memory_fraction` is the cache's share of the memory that remains after the weights. To stay within the reservation,
//! the pool reads the size of the weights from the files of a local model. With weights `w`, a reservation `r` and a device of `t`
//! bytes, the fraction is `(r − w − overhead) / (t − w)`. On a device shared with other programs the cache is smaller than
//! reserved, never larger.

use super::engine::{ArgumentContext, Engine, NeedsWeightSize, RerankApi, pair};
use super::flags::{FlagReason, Flags, Group, Kind, Spelling, group, reason};
use super::launch_context::EngineAddress;
use super::lines::{Failure, FailureClass, StageMark, by_marks, failure, mark};
use super::reasoning::{EffortField, ReasoningSwitch};
use super::routes::TokenApi;
use crate::engines::kind::EngineKind;

pub const TRTLLM: Engine = Engine {
    names: &["TRTLLMEngine"],
    word: "trtllm",
    program: &["trtllm-serve"],
    install: "install TensorRT-LLM with `pip install tensorrt-llm --extra-index-url https://pypi.nvidia.com` in a separate environment and name its program in engine_config.program, or run the image nvcr.io/nvidia/tensorrt-llm/release with engine_config.command_prefix",
    package: None,
    kind: EngineKind::TrtLlm,
    flags: Flags {
        groups: GROUPS,
        barred: BARRED,
        warned: WARNED,
        spelling: Spelling {
            joint: '_',
            equals: true,
        },
    },
    sockets: false,
    needs_gpu: true,
    devices_max: 64,
    spans_nodes: false,
    seats: 20,
    sequences_key: Some("max_batch_size"),
    share_key: None,
    fills: true,
    needs_weight_size: NeedsWeightSize::Always,
    reads_gguf: false,
    arguments,
    environment,
    ready_path: "/health",
    health_path: "/health",
    generation_path: None,
    barred_env: &[],
    metrics: None,
    ends_with_client: false,
    parking: &[],
    stage: |line| by_marks(line, MARKS),
    lora: None,
    ignores: &["parallel_tool_calls"],
    extensions: &[
        "add_special_tokens",
        "chat_template_kwargs",
        "early_stopping",
        "ignore_eos",
        "include_stop_str_in_output",
        "length_penalty",
        "min_p",
        "min_tokens",
        "repetition_penalty",
        "response_format",
        "skip_special_tokens",
        "spaces_between_special_tokens",
        "stop_token_ids",
        "top_k",
        "top_p_min",
        "truncate_prompt_tokens",
        "use_beam_search",
    ],
    pooling_extensions: &[],
    continuous_usage: true,
    parsers: None,
    reasoning: ReasoningSwitch {
        effort: EffortField::Common,
        template: true,
        ..ReasoningSwitch::NONE
    },
    rerank: RerankApi::Common,
    routes: &[],
    tokens: TokenApi::Vllm,
    dimensions: false,
    last_errors: &[],
    failures: FAILURES,
};

fn arguments(inputs: &ArgumentContext<'_>) -> Result<Vec<String>, String> {
    let recipe = inputs.recipe;
    let mut argv = vec![recipe.model.clone()];
    match inputs.place.at {
        EngineAddress::Port(port) => {
            pair(&mut argv, "--host", "127.0.0.1");
            pair(&mut argv, "--port", port);
        }
        EngineAddress::Socket(_) => return Err("trtllm-serve listens on a port only".to_owned()),
    }
    pair(&mut argv, "--tensor_parallel_size", inputs.devices());
    pair(&mut argv, "--gpus_per_node", inputs.devices());
    pair(
        &mut argv,
        "--free_gpu_memory_fraction",
        cache_fraction(inputs)?,
    );
    if let Some(tokens) = recipe.context {
        pair(&mut argv, "--max_seq_len", tokens);
    }
    if !recipe.flags.has("max_batch_size") {
        pair(&mut argv, "--max_batch_size", recipe.seats);
    }
    if let Some(revision) = &recipe.revision {
        pair(&mut argv, "--revision", revision);
    }
    Ok(argv)
}

fn cache_fraction(inputs: &ArgumentContext<'_>) -> Result<String, String> {
    let (cache, weights) = inputs.cache_beside_weights()?;
    let largest = inputs.place.devices.iter().map(|device| device.total).max();
    let left = largest.unwrap_or_default().saturating_sub(weights);
    // Rounded down, and at most 1, since the cache is a part of the rest.
    let part = u128::from(cache.0) * 10_000 / u128::from(left.0.max(1));
    if part == 0 || part > 10_000 {
        return Err(format!(
            "{cache} for a cache are not a valid share of the {left} that the weights leave on a device; set pool_config.memory_gib to another figure"
        ));
    }
    Ok(format!("{}.{:04}", part / 10_000, part % 10_000))
}

fn environment(inputs: &ArgumentContext<'_>) -> Vec<(&'static str, String)> {
    let on = || "1".to_owned();
    let mut env = vec![("TRTLLM_NO_USAGE_STATS", on())];
    if inputs.recipe.is_local {
        env.extend([("HF_HUB_OFFLINE", on()), ("TRANSFORMERS_OFFLINE", on())]);
    }
    env
}

const MARKS: &[StageMark] = &[
    mark(
        "Loading safetensors weights in parallel:",
        "reading weights",
    ),
    mark("Loading weights:", "reading weights"),
    mark("Prefetching", "reading weights"),
    mark("Fetching ", "fetching"),
    mark("Building TRT engine", "building the engine"),
    mark("Run autotuning warmup", "warming up"),
    mark("Creating CUDA graph instances", "capturing graphs"),
    mark("Run generation only CUDA graph warmup", "capturing graphs"),
    mark("Waiting for application startup", "starting the server"),
];

const FAILURES: &[Failure] = &[
    failure(
        FailureClass::OutOfMemory,
        &[
            "executor creation failed due to insufficient gpu memory",
            "no free memory for kv cache",
        ],
        "set a smaller engine_config.max_total_tokens or engine_kwargs.max_num_tokens, or a larger pool_config.memory_gib",
    ),
    failure(
        FailureClass::UnknownArchitecture,
        &[
            "unknown architecture for automodelforcausallm",
            "unsupported architecture",
        ],
        "this version of TensorRT-LLM does not support the model's architecture: install a newer one, or run the model with type: VLLMEngine",
    ),
    failure(
        FailureClass::MissingLibrary,
        &["libmpi.so", "could not load library libmpi"],
        "TensorRT-LLM needs MPI: apt install libopenmpi-dev",
    ),
];

const BARRED: &[FlagReason] = &[
    reason("host port", "is chosen by the pool for each replica"),
    reason("revision", "is engine_config.revision"),
    reason(
        "max_seq_len",
        "is engine_config.max_total_tokens; the memory estimate needs it there",
    ),
    reason(
        "tensor_parallel_size tp_size gpus_per_node",
        "is made from the placement; pool_config.gpus_per_replica says how many GPUs a replica takes",
    ),
    reason(
        "free_gpu_memory_fraction kv_cache_free_gpu_memory_fraction",
        "is made from what is reserved; pool_config.memory_gib says how much that is",
    ),
    reason(
        "pipeline_parallel_size pp_size context_parallel_size cp_size moe_cluster_parallel_size cluster_size \
         server_role disagg_cluster_uri metadata_server_config_file",
        "is not used: the pool places a replica on GPUs of one machine with tensor parallelism",
    ),
];

const WARNED: &[FlagReason] = &[
    reason(
        "trust_remote_code",
        "is on: the model's own Python code runs with the rights of the pool's account; pin engine_config.revision and read that code",
    ),
    reason(
        "custom_module_dirs",
        "loads Python code into the engine; make sure that only administrators can write it",
    ),
    reason(
        "config extra_llm_api_options",
        "may override settings of the pool: make sure that it contains no kv_cache_config and no parallelism settings",
    ),
];

const GROUPS: &[Group] = &[
    group(
        Kind::On,
        "trust_remote_code fail_fast_on_attention_window_too_large enable_chunked_prefill",
    ),
    group(
        Kind::Integer(1, 1 << 40),
        "max_beam_width max_batch_size max_num_tokens moe_expert_parallel_size",
    ),
    group(Kind::Integer(0, 1024), "num_postprocess_workers"),
    group(
        Kind::Text,
        "tokenizer custom_tokenizer reasoning_parser tool_parser otlp_traces_endpoint chat_template",
    ),
    group(Kind::OneOf("pytorch tensorrt trt _autodeploy"), "backend"),
    group(
        Kind::OneOf("internal_error error warning info verbose debug trace"),
        "log_level",
    ),
    group(
        Kind::Path,
        "custom_module_dirs config extra_llm_api_options",
    ),
    group(Kind::Json, "media_io_kwargs"),
];

#[cfg(test)]
mod tests {
    use super::super::tests_support::{gpus, place, recipe, refusal};
    use super::*;

    #[test]
    fn the_command_line_is_made_from_the_placement_and_the_weights() {
        let mut recipe = recipe(
            &TRTLLM,
            r#"{"backend": "pytorch", "enable-chunked-prefill": true}"#,
        );
        recipe.context = Some(8192);
        let devices = gpus(1, 80);
        // (40 − 8 − 3) / (80 − 8)
        let command = recipe.command(&place(&devices, 40)).expect("a command");
        let expected = "trtllm-serve /models/m --host 127.0.0.1 --port 4321 --tensor_parallel_size 1 --gpus_per_node 1 --free_gpu_memory_fraction 0.4027 --max_seq_len 8192 --max_batch_size 20 --backend pytorch --enable_chunked_prefill";
        assert_eq!(command.argv.join(" "), expected);
    }

    #[test]
    fn a_launch_without_weights_room_or_a_gpu_is_refused_with_advice() {
        let recipe = recipe(&TRTLLM, "{}");
        let devices = gpus(1, 80);
        let mut unknown = place(&devices, 40);
        unknown.weights = None;
        let problem = recipe.command(&unknown).unwrap_err();
        assert!(problem.contains("model_path"), "{problem}");
        let problem = recipe.command(&place(&devices, 9)).unwrap_err();
        assert!(problem.contains("memory_gib"), "{problem}");
        let problem = recipe.command(&place(&[], 9)).unwrap_err();
        assert!(
            problem.contains("TRTLLMEngine") && problem.contains("GPUs"),
            "{problem}"
        );
        let two_sizes: Vec<_> = gpus(1, 80).into_iter().chain(gpus(1, 40)).collect();
        let line = recipe
            .command(&place(&two_sizes, 40))
            .expect("a command")
            .argv
            .join(" ");
        assert!(line.contains("--free_gpu_memory_fraction 0.37"), "{line}");
    }

    #[test]
    fn trtllm_flags_owned_by_the_pool_are_refused_with_the_key_to_set_instead() {
        assert!(refusal(&TRTLLM, r#"{"tp_size": 2}"#).contains("gpus_per_replica"));
        assert!(refusal(&TRTLLM, r#"{"max_batchsize": 2}"#).contains("max_batch_size"));
    }
}
