//! The keys of older systems' releases, each with a value they accepted and the expected notice.
//! One file because it is one list.

use serde_json::{Value, json};
use support::table::{json as json_of, rows_of};

/// A key of a release, a value, and the expected notice.
pub type Key = (String, Value, ExpectedNotice);

/// The expected notice about a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectedNotice {
    /// It takes effect, or the value requests nothing: no notice.
    Nothing,
    /// It has no effect, and a warning names it.
    Warning,
}

pub use ExpectedNotice::{Nothing, Warning};

/// The keys of a table, below the section `at`.
fn keys(at: &str, table: &'static str) -> Vec<Key> {
    let keys = rows_of(table).map(|[key, value, notice]| {
        let path = format!("{at}.{key}").trim_start_matches('.').to_owned();
        (
            path,
            json_of(value),
            if notice == "Warning" {
                Warning
            } else {
                Nothing
            },
        )
    });
    keys.collect()
}

/// Keys of every form.
const DEPLOYMENT: &str = r#"
    deployment_config.max_concurrent_queries | 32 | Nothing
    deployment_config.max_ongoing_requests | 32 | Nothing
    deployment_config.max_queued_requests | -1 | Warning
    deployment_config.max_queued_requests | 64 | Nothing
    deployment_config.num_replicas | 2 | Warning
    deployment_config.name | "one" | Warning
    deployment_config.user_config | {"a": 1} | Warning
    deployment_config.graceful_shutdown_timeout_s | 300 | Warning
    deployment_config.graceful_shutdown_wait_loop_s | 2.0 | Warning
    deployment_config.health_check_period_s | 10 | Warning
    deployment_config.health_check_timeout_s | 30 | Warning
    deployment_config.logging_config | {"log_level": "INFO"} | Warning
    deployment_config.request_router_config | {} | Warning
    deployment_config.max_replicas_per_node | 1 | Warning
    deployment_config.placement_group_bundles | [{"GPU": 1}] | Warning
    deployment_config.placement_group_strategy | "PACK" | Warning
    deployment_config.ray_actor_options | {"num_cpus": 1, "num_gpus": 0.5} | Warning
    deployment_config.ray_actor_options.num_cpus | 0.5 | Warning
    deployment_config.ray_actor_options.num_gpus | 0.25 | Warning
    deployment_config.ray_actor_options.memory | 1000000 | Warning
    deployment_config.ray_actor_options.resources | {"accelerator_type_cpu": 0.01} | Warning
    deployment_config.ray_actor_options.accelerator_type | "A10G" | Warning
    deployment_config.ray_actor_options.runtime_env | {"env_vars": {"A": "b"}} | Nothing
    deployment_config.autoscaling_config.min_replicas | 0 | Nothing
    deployment_config.autoscaling_config.initial_replicas | 1 | Nothing
    deployment_config.autoscaling_config.max_replicas | 100 | Nothing
    deployment_config.autoscaling_config.target_ongoing_requests | 16 | Nothing
    deployment_config.autoscaling_config.target_num_ongoing_requests_per_replica | 16.0 | Nothing
    deployment_config.autoscaling_config.metrics_interval_s | 10.0 | Warning
    deployment_config.autoscaling_config.look_back_period_s | 30.0 | Nothing
    deployment_config.autoscaling_config.smoothing_factor | 0.6 | Nothing
    deployment_config.autoscaling_config.upscale_smoothing_factor | 0.6 | Nothing
    deployment_config.autoscaling_config.downscale_smoothing_factor | 0.6 | Nothing
    deployment_config.autoscaling_config.upscaling_factor | 0.6 | Nothing
    deployment_config.autoscaling_config.downscaling_factor | 0.6 | Nothing
    deployment_config.autoscaling_config.upscale_delay_s | 10.0 | Nothing
    deployment_config.autoscaling_config.downscale_delay_s | 300.0 | Nothing
    deployment_config.autoscaling_config.downscale_to_zero_delay_s | 60.0 | Nothing
    deployment_config.autoscaling_config.aggregation_function | "mean" | Warning
    deployment_config.autoscaling_config.policy | {"policy_function": "a:b"} | Warning
    enabled | true | Nothing
"#;

/// Keys for the devices of a replica.
const SCALING: &str = r#"
    scaling_config.num_workers | 2 | Nothing
    scaling_config.num_workers | 0 | Warning
    scaling_config.num_gpus_per_worker | 0 | Warning
    scaling_config.num_gpus_per_worker | 0.5 | Warning
    scaling_config.num_cpus_per_worker | 8 | Warning
    scaling_config.num_cpus_per_worker | 0.25 | Warning
    scaling_config.placement_strategy | "STRICT_PACK" | Warning
    scaling_config.resources_per_worker | {"accelerator_type_a100_40g": 0.01} | Nothing
    scaling_config.resources_per_worker | {"worker_node": 0.01} | Warning
    scaling_config.pg_timeout_s | 600 | Warning
"#;

/// Keys of a section for generation.
const GENERATION: &str = r####"
    stopping_sequences | ["### End", 2, "2", [13, 13]] | Nothing
    stopping_tokens | [2, 32000] | Nothing
    generate_kwargs | {"do_sample": true, "max_new_tokens": 512, "min_new_tokens": 1, "top_p": 0.92, "top_k": 0, "temperature": 0.9, "repetition_penalty": 1.1, "typical_p": 0.9, "num_beams": 1, "use_cache": true, "return_token_type_ids": false} | Nothing
"####;

/// Keys of Aviary 0.0 and 0.1.
const AVIARY: &str = r#"
    model_config.model_url | "https://example.org/m" | Warning
    model_config.model_description | "A model" | Warning
    model_config.max_input_words | 400 | Warning
    model_config.initialization.hf_model_id | "org/other" | Nothing
    model_config.initialization.runtime_env | {"pip": ["deepspeed"]} | Warning
    model_config.initialization.full_warmup | true | Warning
    model_config.initialization.s3_mirror_config | {"bucket_uri": "s3://b/m/", "s3_sync_args": ["--no-sign-request"]} | Nothing
"#;

/// Keys of its initializer for Text Generation Inference.
const AVIARY_TGI: &str = r#"
    model_init_kwargs | {"quantize": "bitsandbytes", "revision": "main"} | Nothing
"#;

/// Keys of its initializer for llama.cpp.
const AVIARY_LLAMA_CPP: &str = r#"
    model_filename | "m.ggml.bin" | Warning
    model_init_kwargs | {"n_gpu_layers": 40, "n_ctx": 2048} | Warning
"#;

/// Keys of its initializers for Transformers.
const AVIARY_TRANSFORMERS: &str = r#"
    use_bettertransformer | true | Warning
    torch_compile | {"backend": "inductor", "mode": "max-autotune", "fullgraph": false, "dynamic": false, "options": null} | Warning
    dtype | "float16" | Nothing
    dtype | "int8" | Warning
    from_pretrained_kwargs | {"trust_remote_code": true, "use_cache": true} | Warning
    use_kernel | true | Warning
    use_meta_tensor | true | Warning
    max_tokens | 1536 | Nothing
"#;

/// Its keys for the batches of Text Generation Inference.
const AVIARY_BATCHES_TGI: &str = r"
    max_batch_total_tokens | 40000 | Nothing
    max_total_tokens | 4096 | Nothing
    max_waiting_tokens | 20 | Nothing
    max_input_length | 1024 | Nothing
    max_batch_prefill_tokens | 9216 | Nothing
    waiting_served_ratio | 1.2 | Nothing
";

/// Its keys for batches of other engines.
const AVIARY_BATCHES: &str = r"
    max_batch_size | 8 | Warning
    batch_wait_timeout_s | 0 | Warning
    max_input_words | 400 | Warning
";

/// Keys of Aviary 0.2 to RayLLM 0.5, and of Anyscale's fork.
const RAYLLM: &str = r#"
    standalone_function_calling_model | true | Warning
    depends_on_model | "org/m" | Warning
    multiplex_config | {"max_num_models_per_replica": 16, "download_timeout_s": 30, "max_download_tries": 3} | Warning
    engine_config.hf_model_id | "org/other" | Nothing
    engine_config.model_type | "text-generation" | Warning
    engine_config.model_url | "https://example.org/m" | Warning
    engine_config.model_description | "A model" | Warning
    engine_config.max_total_tokens | 4096 | Nothing
    engine_config.runtime_env | {"env_vars": {"HUGGING_FACE_HUB_TOKEN": null}} | Warning
    engine_config.runtime_env | {"env_vars": {"A": "b"}, "pip": ["transformers"]} | Warning
    engine_config.env_vars_to_propogate | ["PATH"] | Nothing
    engine_config.s3_mirror_config | {"bucket_uri": "s3://b/m/", "s3_sync_args": ["--no-sign-request"], "s3_aws_credentials": {"create_aws_credentials_url": "https://example.org/keys", "auth_token_env_variable": "T"}, "extra_files": [{"bucket_uri": "s3://b/x/", "destination_path": "x"}]} | Nothing
    engine_config.gcs_mirror_config | {"bucket_uri": "gs://b/m/", "extra_files": []} | Nothing
"#;

/// Its keys for Text Generation Inference.
const RAYLLM_TGI: &str = r#"
    engine_config.model_init_kwargs | {"trust_remote_code": true, "quantize": "gptq"} | Nothing
    engine_config.scheduler.policy | {"type": "QuotaBasedTaskSelectionPolicy", "max_batch_total_tokens": 40000, "max_total_tokens": 2048, "max_iterations_curr_batch": 20, "max_input_length": 1024, "max_batch_prefill_tokens": 4096, "waiting_served_ratio": 1.2} | Warning
"#;

/// Its keys for TensorRT-LLM.
const RAYLLM_TRTLLM: &str = r#"
    engine_config.model_local_path | "/home/ray/models/trtllm" | Nothing
    engine_config.model_type | "InflightFusedBatching" | Warning
    engine_config.scheduler_policy | "GUARANTEED_NO_EVICT" | Warning
    engine_config.logger_level | "INFO" | Warning
    engine_config.max_num_sequences | 64 | Nothing
    engine_config.max_tokens_in_paged_kv_cache | 9000 | Warning
    engine_config.kv_cache_free_gpu_mem_fraction | 0.9 | Nothing
    engine_config.enable_trt_overlap | true | Warning
"#;

/// Its keys for vLLM and other engines.
const RAYLLM_VLLM: &str = r#"
    engine_config.type | null | Warning
    engine_config.tokenizer_id | "org/tokenizer" | Nothing
"#;

/// Options of vLLM 0.1 to 0.6 and of Anyscale's fork.
const VLLM: &str = r#"
    dtype | "auto" | Nothing
    dtype | "half" | Nothing
    kv_cache_dtype | "fp8_e5m2" | Nothing
    seed | 0 | Nothing
    revision | "main" | Nothing
    code_revision | "main" | Nothing
    tokenizer | "org/tokenizer" | Nothing
    tokenizer_mode | "auto" | Nothing
    tokenizer_revision | "main" | Nothing
    skip_tokenizer_init | false | Nothing
    trust_remote_code | true | Nothing
    download_dir | "/tmp/weights" | Nothing
    load_format | "auto" | Nothing
    load_format | "safetensors" | Nothing
    quantization | "awq" | Nothing
    quantization | "squeezellm" | Nothing
    enforce_eager | true | Nothing
    max_model_len | 4096 | Nothing
    tensor_parallel_size | 4 | Warning
    pipeline_parallel_size | 1 | Warning
    max_parallel_loading_workers | 2 | Nothing
    block_size | 16 | Nothing
    swap_space | 16 | Warning
    cpu_offload_gb | 0 | Nothing
    gpu_memory_utilization | 0.92 | Nothing
    max_num_batched_tokens | 8192 | Nothing
    max_num_seqs | 64 | Nothing
    max_paddings | 512 | Warning
    max_logprobs | 5 | Nothing
    max_log_probs | 5 | Nothing
    disable_log_stats | true | Nothing
    disable_log_requests | true | Warning
    max_log_len | 100 | Nothing
    worker_use_ray | true | Warning
    engine_use_ray | false | Warning
    max_context_len_to_capture | 8192 | Warning
    max_seq_len_to_capture | 8192 | Warning
    disable_custom_all_reduce | true | Nothing
    tokenizer_pool_size | 2 | Warning
    tokenizer_pool_type | "ray" | Warning
    tokenizer_pool_extra_config | {"runtime_env": {"pip": null}} | Warning
    num_tokenizer_actors | 2 | Warning
    enable_cuda_graph | true | Warning
    enable_cuda_graph | false | Nothing
    enable_custom_nccl | true | Warning
    min_decodes_per_prefill | 4 | Warning
    enable_json_logits_processors | true | Warning
    load_s3_path | "s3://b/m" | Warning
    enable_lora | true | Nothing
    max_loras | 16 | Nothing
    max_lora_rank | 32 | Nothing
    max_cpu_loras | 16 | Nothing
    lora_dtype | "float16" | Nothing
    lora_extra_vocab_size | 256 | Warning
    long_lora_scaling_factors | [4.0] | Warning
    fully_sharded_loras | true | Nothing
    enable_prompt_adapter | true | Warning
    enable_prefix_caching | true | Nothing
    enable_chunked_prefill | true | Nothing
    disable_sliding_window | true | Nothing
    use_v2_block_manager | true | Warning
    scheduler_delay_factor | 0.5 | Warning
    num_lookahead_slots | 4 | Warning
    num_scheduler_steps | 8 | Warning
    preemption_mode | "swap" | Warning
    device | "cuda" | Warning
    rope_theta | 10000.0 | Warning
    rope_scaling | {"type": "dynamic", "factor": 2.0} | Warning
    guided_decoding_backend | "outlines" | Warning
    distributed_executor_backend | "ray" | Nothing
    ray_workers_use_nsight | false | Warning
    num_gpu_blocks_override | 1000 | Nothing
    image_input_type | "pixel_values" | Warning
    limit_mm_per_prompt | {"image": 1} | Nothing
    speculative_model | "org/draft" | Nothing
    num_speculative_tokens | 5 | Warning
    speculative_max_model_len | 2048 | Warning
    speculative_disable_by_batch_size | 8 | Warning
    speculative_draft_tensor_parallel_size | 1 | Warning
    ngram_prompt_lookup_max | 4 | Warning
    ngram_prompt_lookup_min | 1 | Warning
    use_speculative | true | Warning
    spec_decoding_acceptance_method | "rejection_sampler" | Warning
    typical_acceptance_sampler_posterior_alpha | 0.3 | Warning
    disable_logprobs_during_spec_decoding | true | Warning
    otlp_traces_endpoint | "http://localhost:4317" | Nothing
    a_key_that_no_release_had | 1 | Warning
"#;

/// Keys of the form after RayLLM 0.5.
const LLM_CONFIG: &str = r#"
    runtime_env | {"env_vars": {"HUGGING_FACE_HUB_TOKEN": null}} | Warning
    runtime_env | {"pip": ["x"], "env_vars": {"A": 1}} | Warning
    model_loading_config.model_source | "org/other" | Nothing
    model_loading_config.model_source | "s3://b/m" | Nothing
    model_loading_config.model_source | {"bucket_uri": "gs://b/m", "extra_files": []} | Nothing
    model_loading_config.tokenizer_source | "org/tokenizer" | Nothing
    model_loading_config.anytensor_config | {"model_path": "/m"} | Warning
    llm_engine | "vLLM" | Nothing
    llm_engine | "VLLMEngine" | Nothing
    accelerator_type | "A100_80G" | Nothing
    accelerator_config | {"kind": "gpu"} | Warning
    placement_group_config | {"bundles": [{"GPU": 1}], "strategy": "PACK"} | Warning
    tensor_parallelism | {"degree": 2} | Nothing
    pipeline_parallelism | {"degree": 2} | Warning
    max_request_context_length | 4096 | Nothing
    input_modality | "text" | Warning
    json_mode | {"enabled": true, "options": {"num_processes": 8, "recreate_failed_actors": true}} | Warning
    lora_config | {"dynamic_lora_loading_path": "s3://b/loras", "max_num_adapters_per_replica": 16, "download_timeout_s": 30, "max_download_tries": 3} | Warning
    lora_config | null | Nothing
    server_cls | "a:B" | Warning
    experimental_configs | {"stream_batching_interval_ms": 50, "num_ingress_replicas": 2} | Warning
    callback_config | {"callback_class": "a:B"} | Warning
    log_engine_metrics | true | Warning
"#;

/// Generation keys; `at` is the section.
fn generation(at: &str, texts: bool) -> Vec<Key> {
    let mut keys = keys(at, GENERATION);
    let mut add = |value, notice| keys.push((format!("{at}.prompt_format"), value, notice));
    if texts {
        let format = "### Instruction:\n{instruction}\n### Response:\n";
        add(json!(format), Nothing);
    } else {
        let format = json!({"system": "{instruction}\n", "user": "{system}{instruction}", "assistant": "{instruction}",
            "trailing_assistant": "", "default_system_message": "", "system_in_user": true, "system_in_last_user": true,
            "add_system_tags_even_if_message_is_empty": false, "strip_whitespace": false, "bos": "<s>"});
        add(format.clone(), Nothing);
        add(Value::Null, Nothing);
        add(json!({"use_hugging_face_chat_template": true}), Nothing);
        for key in ["tool", "tool_calls", "tools_list"] {
            let mut format = format.clone();
            format[key] = json!("{instruction}");
            add(format, Warning);
        }
    }
    keys
}

/// Aviary 0.0 and 0.1.
pub fn aviary_0_1(document: &Value) -> Vec<Key> {
    let initializer = &document["model_config"]["initialization"]["initializer"]["type"];
    let at = "model_config.initialization.initializer";
    let section = "model_config.generation";
    let (own, batches) = match initializer.as_str().unwrap() {
        "TextGenerationInference" => (AVIARY_TGI, AVIARY_BATCHES_TGI),
        "LlamaCpp" => (AVIARY_LLAMA_CPP, AVIARY_BATCHES),
        _ => (AVIARY_TRANSFORMERS, AVIARY_BATCHES),
    };
    let device = match initializer.as_str().unwrap() {
        "DeepSpeed" => r#"ds_inference_kwargs | {"replace_with_kernel_inject": true} | Warning"#,
        "TextGenerationInference" | "LlamaCpp" => "",
        _ => r#"device_map | "auto" | Warning"#,
    };
    let mut keys = [
        keys("", AVIARY),
        keys("", DEPLOYMENT),
        keys("", SCALING),
        keys(at, own),
        keys(at, device),
        keys(section, batches),
    ]
    .concat();
    keys.extend(generation(section, true));
    keys
}

/// Aviary 0.2 to RayLLM 0.5, and Anyscale's fork of it.
pub fn rayllm(document: &Value) -> Vec<Key> {
    let kind = document["engine_config"]["type"].as_str().unwrap();
    let own = match kind {
        "TextGenerationInferenceEngine" => RAYLLM_TGI,
        "TRTLLMEngine" => RAYLLM_TRTLLM,
        _ => RAYLLM_VLLM,
    };
    let mut keys = [RAYLLM, own, DEPLOYMENT, SCALING]
        .map(|table| keys("", table))
        .concat();
    keys.extend(generation("engine_config.generation", false));
    if kind == "VLLMEngine" {
        keys.extend(self::keys("engine_config.engine_kwargs", VLLM));
    }
    keys
}

/// The form after RayLLM 0.5.
pub fn llm_config() -> Vec<Key> {
    let mut keys = [LLM_CONFIG, DEPLOYMENT]
        .map(|table| keys("", table))
        .concat();
    keys.extend(generation("generation_config", false));
    let kwargs = self::keys("engine_kwargs", VLLM).into_iter();
    keys.extend(kwargs.filter(|(key, ..)| key != "engine_kwargs.tensor_parallel_size"));
    keys
}
