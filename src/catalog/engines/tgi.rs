//! Text Generation Inference: `text-generation-launcher`. `tests/fixtures/tgi_flags.txt` lists its flags.
//!
//! `--cuda-memory-fraction` is the share of each device that PyTorch may take; the CUDA context is added to it. Several launchers
//! on one machine would by default share the socket of the shards and the ports of torch.distributed and Prometheus; each replica
//! gets separate ones.

use pool::Bytes;

use super::engine::{
    ArgumentContext, Engine, ExtraPort, Metrics, NeedsWeightSize, RerankApi, pair, port_beside,
};
use super::flags::{FlagReason, Flags, GATEWAY_ALONE, Group, Kind, Spelling, group, reason};
use super::launch_context::EngineAddress;
use super::lines::{Failure, FailureClass, StageMark, by_marks, failure, mark};
use super::reasoning::ReasoningSwitch;
use super::routes::TokenApi;
use crate::engines::kind::{EngineKind, GPU_OVERHEAD};

pub const TGI: Engine = Engine {
    names: &["TextGenerationInferenceEngine"],
    word: "tgi",
    program: &["text-generation-launcher"],
    install: "run the image ghcr.io/huggingface/text-generation-inference with engine_config.command_prefix, or build the launcher from its repository and name it in engine_config.program",
    package: None,
    kind: EngineKind::Tgi,
    flags: Flags {
        groups: GROUPS,
        barred: BARRED,
        warned: WARNED,
        spelling: Spelling::HYPHENS,
    },
    sockets: false,
    needs_gpu: true,
    devices_max: 16,
    spans_nodes: false,
    seats: 20,
    sequences_key: Some("max_batch_size"),
    share_key: Some("cuda_memory_fraction"),
    fills: true,
    needs_weight_size: NeedsWeightSize::Never,
    reads_gguf: false,
    arguments,
    environment,
    ready_path: "/health",
    health_path: "/health",
    generation_path: None,
    barred_env: &[reason(
        "PROMETHEUS_PORT",
        "is chosen by the pool for each replica",
    )],
    metrics: Some(Metrics {
        path: "/metrics",
        running: "tgi_batch_current_size",
        waiting: "tgi_queue_size",
        cache_used: &[],
        generated: None,
    }),
    ends_with_client: false,
    parking: &[],
    stage: |line| by_marks(line, MARKS),
    lora: None,
    ignores: &["best_of", "echo", "logit_bias", "n", "parallel_tool_calls"],
    extensions: &[
        "guideline",
        "repetition_penalty",
        "response_format",
        "top_k",
    ],
    pooling_extensions: &[],
    continuous_usage: false,
    parsers: None,
    reasoning: ReasoningSwitch::NONE,
    rerank: RerankApi::Common,
    routes: &[],
    tokens: TokenApi::Vllm,
    dimensions: false,
    last_errors: &[],
    failures: FAILURES,
};

const BESIDE_SHARE: Bytes = GPU_OVERHEAD;

fn arguments(inputs: &ArgumentContext<'_>) -> Result<Vec<String>, String> {
    let recipe = inputs.recipe;
    let mut argv = Vec::new();
    pair(&mut argv, "--model-id", &recipe.model);
    match inputs.place.at {
        EngineAddress::Port(port) => {
            pair(&mut argv, "--hostname", "127.0.0.1");
            pair(&mut argv, "--port", port);
        }
        EngineAddress::Socket(_) => {
            return Err("text-generation-launcher listens on a port only".to_owned());
        }
    }
    pair(&mut argv, "--shard-uds-path", inputs.place.sockets);
    if let Some(port) = port_beside(inputs.place.at, ExtraPort::Torch) {
        pair(&mut argv, "--master-port", port);
    }
    pair(&mut argv, "--num-shard", inputs.devices());
    pair(
        &mut argv,
        "--cuda-memory-fraction",
        inputs.share(BESIDE_SHARE)?,
    );
    if let Some(tokens) = recipe.context {
        pair(&mut argv, "--max-total-tokens", tokens);
        // The default is the model's own length, and it must be less than the total.
        if !recipe.flags.has("max_input_tokens") {
            pair(
                &mut argv,
                "--max-input-tokens",
                tokens.saturating_sub(1).max(1),
            );
        }
    }
    if !recipe.flags.has("max_concurrent_requests") {
        pair(&mut argv, "--max-concurrent-requests", recipe.seats);
    }
    if let Some(revision) = &recipe.revision {
        pair(&mut argv, "--revision", revision);
    }
    pair(&mut argv, "--usage-stats", "off");
    Ok(argv)
}

fn environment(inputs: &ArgumentContext<'_>) -> Vec<(&'static str, String)> {
    let mut env = Vec::new();
    if let Some(port) = port_beside(inputs.place.at, ExtraPort::Prometheus) {
        // As a flag it would stop versions that do not know it.
        env.push(("PROMETHEUS_PORT", port.to_string()));
    }
    if inputs.recipe.is_local {
        env.push(("HF_HUB_OFFLINE", "1".to_owned()));
    }
    env
}

const MARKS: &[StageMark] = &[
    mark("Download file:", "fetching"),
    mark("Downloaded ", "fetching"),
    mark("Starting check and download process", "fetching"),
    mark("Starting shard", "reading weights"),
    mark("Waiting for shard", "reading weights"),
    mark("Shard ready in", "starting the server"),
    mark("Warming up model", "warming up"),
    mark("Cuda Graphs are enabled", "capturing graphs"),
    mark("Connected", "starting the server"),
];

const FAILURES: &[Failure] = &[
    failure(
        FailureClass::OutOfMemory,
        &[
            "not enough memory to handle",
            "you need to decrease `--max-batch-prefill-tokens`",
        ],
        "set a smaller engine_config.max_total_tokens or engine_kwargs.max_batch_prefill_tokens, or a larger pool_config.memory_gib",
    ),
    failure(
        FailureClass::UnknownArchitecture,
        &[
            "unsupported model type",
            "does not recognize this architecture",
        ],
        "this version of Text Generation Inference does not support the model's architecture: use a newer image, or run the model with type: VLLMEngine",
    ),
    failure(
        FailureClass::Quantisation,
        &[
            "quantization is not supported",
            "cannot load `awq` weight",
            "cannot load `gptq` weight",
        ],
        "the GPU or this version does not support this quantisation: remove engine_kwargs.quantize, or use the model in another form",
    ),
];

const BARRED: &[FlagReason] = &[
    reason(
        "hostname port shard_uds_path master_addr master_port prometheus_port",
        "is chosen by the pool for each replica",
    ),
    reason(
        "api_key cors_allow_origin ngrok ngrok_authtoken ngrok_edge",
        GATEWAY_ALONE,
    ),
    reason(
        "model_id",
        "is engine_config.model_path, or engine_config.hf_model_id",
    ),
    reason("revision", "is engine_config.revision"),
    reason(
        "max_total_tokens",
        "is engine_config.max_total_tokens; the memory estimate needs it there",
    ),
    reason(
        "max_input_length",
        "is the old name of max_input_tokens; use that",
    ),
    reason(
        "num_shard sharded",
        "is made from the placement; pool_config.gpus_per_replica says how many GPUs a replica takes",
    ),
    reason("usage_stats", "is always off"),
    reason(
        "env",
        "prints the engine's environment and exits; set variables in engine_config.env",
    ),
];

const WARNED: &[FlagReason] = &[reason(
    "trust_remote_code",
    "is on: the model's own Python code runs with the rights of the pool's account; pin engine_config.revision and read that code",
)];

const GROUPS: &[Group] = &[
    group(
        Kind::On,
        "trust_remote_code disable_custom_kernels json_output disable_grammar_support enable_prefill_logprobs",
    ),
    group(
        Kind::Integer(1, 1 << 40),
        "validation_workers max_concurrent_requests max_best_of max_stop_sequences max_input_tokens \
         max_batch_prefill_tokens max_batch_total_tokens max_waiting_tokens max_batch_size \
         max_client_batch_size payload_limit",
    ),
    group(Kind::Integer(0, 1 << 20), "speculate max_top_n_tokens"),
    group(
        Kind::Float(0.0, 1e9),
        "waiting_served_ratio rope_factor watermark_gamma watermark_delta",
    ),
    group(
        Kind::OneOf(
            "awq compressed-tensors eetq exl2 gptq marlin bitsandbytes bitsandbytes-nf4 bitsandbytes-fp4 fp8",
        ),
        "quantize",
    ),
    group(Kind::OneOf("float16 bfloat16"), "dtype"),
    group(Kind::OneOf("fp8_e4m3fn fp8_e5m2"), "kv_cache_dtype"),
    group(Kind::OneOf("linear dynamic"), "rope_scaling"),
    group(Kind::Text, "otlp_endpoint otlp_service_name"),
    group(
        Kind::Path,
        "huggingface_hub_cache weights_cache_override tokenizer_config_path",
    ),
    group(Kind::Commas, "cuda_graphs lora_adapters"),
];

#[cfg(test)]
mod tests {
    use super::super::tests_support::{gpus, place, recipe, refusal};
    use super::*;

    #[test]
    fn the_command_line_is_made_from_the_placement() {
        let mut recipe = recipe(&TGI, r#"{"quantize": "awq", "cuda_graphs": [1, 2]}"#);
        recipe.context = Some(4096);
        recipe.revision = Some("main".to_owned());
        let devices = gpus(2, 80);
        let command = recipe.command(&place(&devices, 40)).expect("a command");
        let expected = "text-generation-launcher --model-id /models/m --hostname 127.0.0.1 --port 4321 --shard-uds-path /run/r7-own --master-port 29321 --num-shard 2 --cuda-memory-fraction 0.4937 --max-total-tokens 4096 --max-input-tokens 4095 --max-concurrent-requests 20 --revision main --usage-stats off --quantize awq --cuda-graphs 1,2";
        assert_eq!(command.argv.join(" "), expected);
        assert_eq!(command.env["PROMETHEUS_PORT"].0, "24321");
    }

    #[test]
    fn tgi_flags_owned_by_the_pool_are_refused_with_the_key_to_set_instead() {
        assert!(refusal(&TGI, r#"{"num_shard": 2}"#).contains("gpus_per_replica"));
        assert!(refusal(&TGI, r#"{"quantise": "awq"}"#).contains("quantize"));
        assert!(refusal(&TGI, r#"{"dtype": "float32"}"#).contains("bfloat16"));
    }
}
