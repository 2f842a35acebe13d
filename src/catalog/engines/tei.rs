//! Text Embeddings Inference: `text-embeddings-router`. `tests/fixtures/tei_flags.txt` lists its flags.
//!
//! It computes embeddings, scores and rankings on one device, has no cache, and takes only the memory that the model needs. Options
//! of newer versions are passed as environment variables, which older versions ignore.

use super::engine::{
    ArgumentContext, Engine, ExtraPort, NeedsWeightSize, RerankApi, pair, port_beside,
};
use super::flags::{FlagReason, Flags, GATEWAY_ALONE, Group, Kind, Spelling, group, reason};
use super::launch_context::EngineAddress;
use super::lines::{Failure, FailureClass, StageMark, by_marks, failure, mark};
use super::reasoning::ReasoningSwitch;
use super::routes::{ExtraRoute, TokenApi};
use crate::engines::kind::EngineKind;

pub const TEI: Engine = Engine {
    names: &["EmbeddingEngine", "TextEmbeddingsInferenceEngine"],
    word: "tei",
    program: &["text-embeddings-router"],
    install: "install it with `brew install text-embeddings-inference`, with `cargo install --path router -F candle-cuda` from its repository, or run the image ghcr.io/huggingface/text-embeddings-inference with engine_config.command_prefix; engine_config.program names another program",
    package: None,
    kind: EngineKind::Tei,
    flags: Flags {
        groups: GROUPS,
        barred: BARRED,
        warned: &[],
        spelling: Spelling::HYPHENS,
    },
    sockets: false,
    needs_gpu: false,
    devices_max: 1,
    spans_nodes: false,
    seats: 64,
    sequences_key: None,
    share_key: None,
    fills: false,
    needs_weight_size: NeedsWeightSize::Never,
    reads_gguf: false,
    arguments,
    environment,
    ready_path: "/health",
    health_path: "/health",
    generation_path: None,
    barred_env: &[
        reason("PROMETHEUS_PORT", "is chosen by the pool for each replica"),
        reason(
            "SERVED_MODEL_NAME",
            "is engine_config.served_model_name; the pool passes it on",
        ),
    ],
    metrics: None,
    ends_with_client: false,
    parking: &[],
    stage: |line| by_marks(line, MARKS),
    lora: None,
    ignores: &[],
    extensions: &[],
    pooling_extensions: &[
        "normalize",
        "raw_scores",
        "return_text",
        "texts",
        "truncate",
        "truncation_direction",
    ],
    continuous_usage: false,
    parsers: None,
    reasoning: ReasoningSwitch::NONE,
    rerank: RerankApi::Tei,
    routes: &[ExtraRoute::Embeddings, ExtraRoute::Rerank],
    tokens: TokenApi::Vllm,
    dimensions: true,
    last_errors: &[],
    failures: FAILURES,
};

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
            return Err("text-embeddings-router listens on a port only".to_owned());
        }
    }
    pair(&mut argv, "--uds-path", inputs.place.sockets);
    if !recipe.flags.has("max_concurrent_requests") {
        pair(&mut argv, "--max-concurrent-requests", recipe.seats);
    }
    if let Some(revision) = &recipe.revision {
        pair(&mut argv, "--revision", revision);
    }
    Ok(argv)
}

fn environment(inputs: &ArgumentContext<'_>) -> Vec<(&'static str, String)> {
    let served = inputs.recipe.served_name(inputs.place).to_owned();
    let mut env = vec![("SERVED_MODEL_NAME", served)];
    if let Some(port) = port_beside(inputs.place.at, ExtraPort::Prometheus) {
        env.push(("PROMETHEUS_PORT", port.to_string()));
    }
    if inputs.recipe.is_local {
        env.push(("HF_HUB_OFFLINE", "1".to_owned()));
    }
    env
}

const MARKS: &[StageMark] = &[
    mark("Starting download", "fetching"),
    mark("Downloading ", "fetching"),
    mark("Model artifacts downloaded", "reading weights"),
    mark("Starting model backend", "reading weights"),
    mark("Warming up model", "warming up"),
    mark("Starting HTTP server", "starting the server"),
];

const FAILURES: &[Failure] = &[
    failure(
        FailureClass::UnknownArchitecture,
        &[
            "model is not supported",
            "unknown variant",
            "model type is not supported",
        ],
        "this version of Text Embeddings Inference does not support the model's architecture: use a newer one, or run the model with type: VLLMEngine and engine_kwargs.runner: pooling",
    ),
    failure(
        FailureClass::DriverTooOld,
        &["cuda compute cap", "runtime compute cap"],
        "this build is for GPUs of another generation: use the image whose tag matches the GPU (turing-, 86-, 89-, hopper-)",
    ),
];

const BARRED: &[FlagReason] = &[
    reason(
        "hostname port uds_path prometheus_port",
        "is chosen by the pool for each replica",
    ),
    reason("api_key cors_allow_origin", GATEWAY_ALONE),
    reason(
        "model_id",
        "is engine_config.model_path, or engine_config.hf_model_id",
    ),
    reason(
        "served_model_name",
        "is engine_config.served_model_name; the pool passes it on",
    ),
    reason("revision", "is engine_config.revision"),
    reason(
        "hf_token hf_api_token",
        "would be visible in the process list; set engine_config.env.HF_TOKEN instead",
    ),
    reason(
        "device_id",
        "is made from the placement; pool_config.devices says which GPUs the model may use",
    ),
];

const GROUPS: &[Group] = &[
    group(Kind::On, "auto_truncate json_output disable_spans"),
    group(
        Kind::Integer(1, 1 << 40),
        "tokenization_workers max_concurrent_requests max_batch_tokens max_batch_requests \
         max_client_batch_size payload_limit",
    ),
    group(Kind::OneOf("float16 float32 bfloat16"), "dtype"),
    group(Kind::OneOf("cls mean splade last-token"), "pooling"),
    group(
        Kind::Text,
        "default_prompt_name default_prompt dense_path otlp_endpoint otlp_service_name",
    ),
    group(Kind::Path, "huggingface_hub_cache"),
];

#[cfg(test)]
mod tests {
    use super::super::tests_support::{gpus, place, recipe, refusal};
    use super::*;

    #[test]
    fn the_command_line_is_made_from_the_placement() {
        let mut recipe = recipe(&TEI, r#"{"pooling": "cls", "auto_truncate": true}"#);
        recipe.served_model_name = Some("embed".to_owned());
        let devices = gpus(1, 24);
        let command = recipe.command(&place(&devices, 2)).expect("a command");
        let expected = "text-embeddings-router --model-id /models/m --hostname 127.0.0.1 --port 4321 --uds-path /run/r7-own --max-concurrent-requests 64 --pooling cls --auto-truncate";
        assert_eq!(command.argv.join(" "), expected);
        assert_eq!(command.env["SERVED_MODEL_NAME"].0, "embed");
        assert_eq!(command.env["PROMETHEUS_PORT"].0, "24321");
    }

    #[test]
    fn tei_flags_owned_by_the_pool_are_refused_with_the_key_to_set_instead() {
        assert!(refusal(&TEI, r#"{"device-id": 1}"#).contains("pool_config.devices"));
        assert!(refusal(&TEI, r#"{"hf_token": "x"}"#).contains("env.HF_TOKEN"));
        assert!(refusal(&TEI, r#"{"poolng": "cls"}"#).contains("pooling"));
    }
}
