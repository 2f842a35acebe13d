//! The keys of older systems' releases, each with a value they accepted and the expected notice.
//! One file because it is one list.

use serde_json::{Value, json};

/// The expected notice about a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectedNotice {
    /// It takes effect, or the value requests nothing: no notice.
    Nothing,
    /// It has no effect, and a warning names it.
    Warning,
}

pub use ExpectedNotice::{Nothing, Warning};

/// Deployment keys of every form.
fn deployment() -> Vec<(&'static str, Value, ExpectedNotice)> {
    vec![
        (
            "deployment_config.max_concurrent_queries",
            json!(32),
            Nothing,
        ),
        ("deployment_config.max_ongoing_requests", json!(32), Nothing),
        ("deployment_config.max_queued_requests", json!(-1), Warning),
        ("deployment_config.max_queued_requests", json!(64), Nothing),
        ("deployment_config.num_replicas", json!(2), Warning),
        ("deployment_config.name", json!("one"), Warning),
        ("deployment_config.user_config", json!({"a": 1}), Warning),
        (
            "deployment_config.graceful_shutdown_timeout_s",
            json!(300),
            Warning,
        ),
        (
            "deployment_config.graceful_shutdown_wait_loop_s",
            json!(2.0),
            Warning,
        ),
        (
            "deployment_config.health_check_period_s",
            json!(10),
            Warning,
        ),
        (
            "deployment_config.health_check_timeout_s",
            json!(30),
            Warning,
        ),
        (
            "deployment_config.logging_config",
            json!({"log_level": "INFO"}),
            Warning,
        ),
        (
            "deployment_config.request_router_config",
            json!({}),
            Warning,
        ),
        ("deployment_config.max_replicas_per_node", json!(1), Warning),
        (
            "deployment_config.placement_group_bundles",
            json!([{"GPU": 1}]),
            Warning,
        ),
        (
            "deployment_config.placement_group_strategy",
            json!("PACK"),
            Warning,
        ),
        (
            "deployment_config.ray_actor_options",
            json!({"num_cpus": 1, "num_gpus": 0.5}),
            Warning,
        ),
        (
            "deployment_config.ray_actor_options.num_cpus",
            json!(0.5),
            Warning,
        ),
        (
            "deployment_config.ray_actor_options.num_gpus",
            json!(0.25),
            Warning,
        ),
        (
            "deployment_config.ray_actor_options.memory",
            json!(1_000_000),
            Warning,
        ),
        (
            "deployment_config.ray_actor_options.resources",
            json!({"accelerator_type_cpu": 0.01}),
            Warning,
        ),
        (
            "deployment_config.ray_actor_options.accelerator_type",
            json!("A10G"),
            Warning,
        ),
        (
            "deployment_config.ray_actor_options.runtime_env",
            json!({"env_vars": {"A": "b"}}),
            Nothing,
        ),
        (
            "deployment_config.autoscaling_config.min_replicas",
            json!(0),
            Nothing,
        ),
        (
            "deployment_config.autoscaling_config.initial_replicas",
            json!(1),
            Nothing,
        ),
        (
            "deployment_config.autoscaling_config.max_replicas",
            json!(100),
            Nothing,
        ),
        (
            "deployment_config.autoscaling_config.target_ongoing_requests",
            json!(16),
            Nothing,
        ),
        (
            "deployment_config.autoscaling_config.target_num_ongoing_requests_per_replica",
            json!(16.0),
            Nothing,
        ),
        (
            "deployment_config.autoscaling_config.metrics_interval_s",
            json!(10.0),
            Warning,
        ),
        (
            "deployment_config.autoscaling_config.look_back_period_s",
            json!(30.0),
            Nothing,
        ),
        (
            "deployment_config.autoscaling_config.smoothing_factor",
            json!(0.6),
            Nothing,
        ),
        (
            "deployment_config.autoscaling_config.upscale_smoothing_factor",
            json!(0.6),
            Nothing,
        ),
        (
            "deployment_config.autoscaling_config.downscale_smoothing_factor",
            json!(0.6),
            Nothing,
        ),
        (
            "deployment_config.autoscaling_config.upscaling_factor",
            json!(0.6),
            Nothing,
        ),
        (
            "deployment_config.autoscaling_config.downscaling_factor",
            json!(0.6),
            Nothing,
        ),
        (
            "deployment_config.autoscaling_config.upscale_delay_s",
            json!(10.0),
            Nothing,
        ),
        (
            "deployment_config.autoscaling_config.downscale_delay_s",
            json!(300.0),
            Nothing,
        ),
        (
            "deployment_config.autoscaling_config.downscale_to_zero_delay_s",
            json!(60.0),
            Nothing,
        ),
        (
            "deployment_config.autoscaling_config.aggregation_function",
            json!("mean"),
            Warning,
        ),
        (
            "deployment_config.autoscaling_config.policy",
            json!({"policy_function": "a:b"}),
            Warning,
        ),
        ("enabled", json!(true), Nothing),
    ]
}

fn scaling() -> Vec<(&'static str, Value, ExpectedNotice)> {
    vec![
        ("scaling_config.num_workers", json!(2), Nothing),
        ("scaling_config.num_workers", json!(0), Warning),
        ("scaling_config.num_gpus_per_worker", json!(0), Warning),
        ("scaling_config.num_gpus_per_worker", json!(0.5), Warning),
        ("scaling_config.num_cpus_per_worker", json!(8), Warning),
        ("scaling_config.num_cpus_per_worker", json!(0.25), Warning),
        (
            "scaling_config.placement_strategy",
            json!("STRICT_PACK"),
            Warning,
        ),
        (
            "scaling_config.resources_per_worker",
            json!({"accelerator_type_a100_40g": 0.01}),
            Nothing,
        ),
        (
            "scaling_config.resources_per_worker",
            json!({"worker_node": 0.01}),
            Warning,
        ),
        ("scaling_config.pg_timeout_s", json!(600), Warning),
    ]
}

/// Generation keys; `at` is the section.
fn generation(at: &'static str, texts: bool) -> Vec<(String, Value, ExpectedNotice)> {
    let mut keys = vec![
        (
            "stopping_sequences",
            json!(["### End", 2, "2", [13, 13]]),
            Nothing,
        ),
        ("stopping_tokens", json!([2, 32000]), Nothing),
        (
            "generate_kwargs",
            json!({"do_sample": true, "max_new_tokens": 512, "min_new_tokens": 1, "top_p": 0.92, "top_k": 0, "temperature": 0.9,
                "repetition_penalty": 1.1, "typical_p": 0.9, "num_beams": 1, "use_cache": true, "return_token_type_ids": false}),
            Nothing,
        ),
    ];
    if texts {
        keys.push((
            "prompt_format",
            json!("### Instruction:\n{instruction}\n### Response:\n"),
            Nothing,
        ))
    } else {
        let format = json!({"system": "{instruction}\n", "user": "{system}{instruction}", "assistant": "{instruction}",
            "trailing_assistant": "", "default_system_message": "", "system_in_user": true, "system_in_last_user": true,
            "add_system_tags_even_if_message_is_empty": false, "strip_whitespace": false, "bos": "<s>"});
        keys.push(("prompt_format", format.clone(), Nothing));
        keys.push(("prompt_format", Value::Null, Nothing));
        keys.push((
            "prompt_format",
            json!({"use_hugging_face_chat_template": true}),
            Nothing,
        ));
        for key in ["tool", "tool_calls", "tools_list"] {
            let mut format = format.clone();
            format[key] = json!("{instruction}");
            keys.push(("prompt_format", format, Warning));
        }
    }
    let full = keys.into_iter();
    full.map(|(key, value, told)| (format!("{at}.{key}"), value, told))
        .collect()
}

/// Aviary 0.0 and 0.1.
pub fn aviary_0_1(document: &Value) -> Vec<(String, Value, ExpectedNotice)> {
    let initializer = &document["model_config"]["initialization"]["initializer"]["type"];
    let mut keys = vec![
        (
            "model_config.model_url",
            json!("https://example.org/m"),
            Warning,
        ),
        ("model_config.model_description", json!("A model"), Warning),
        ("model_config.max_input_words", json!(400), Warning),
        (
            "model_config.initialization.hf_model_id",
            json!("org/other"),
            Nothing,
        ),
        (
            "model_config.initialization.runtime_env",
            json!({"pip": ["deepspeed"]}),
            Warning,
        ),
        (
            "model_config.initialization.full_warmup",
            json!(true),
            Warning,
        ),
        (
            "model_config.initialization.s3_mirror_config",
            json!({"bucket_uri": "s3://b/m/", "s3_sync_args": ["--no-sign-request"]}),
            Nothing,
        ),
    ];
    let at = "model_config.initialization.initializer";
    let own: &[(&str, Value, ExpectedNotice)] = match initializer.as_str().unwrap() {
        "TextGenerationInference" => &[(
            "model_init_kwargs",
            json!({"quantize": "bitsandbytes", "revision": "main"}),
            Nothing,
        )],
        "LlamaCpp" => &[
            ("model_filename", json!("m.ggml.bin"), Warning),
            (
                "model_init_kwargs",
                json!({"n_gpu_layers": 40, "n_ctx": 2048}),
                Warning,
            ),
        ],
        kind => &[
            ("use_bettertransformer", json!(true), Warning),
            (
                "torch_compile",
                json!({"backend": "inductor", "mode": "max-autotune", "fullgraph": false, "dynamic": false, "options": null}),
                Warning,
            ),
            ("dtype", json!("float16"), Nothing),
            ("dtype", json!("int8"), Warning),
            (
                "from_pretrained_kwargs",
                json!({"trust_remote_code": true, "use_cache": true}),
                Warning,
            ),
            match kind {
                "DeepSpeed" => (
                    "ds_inference_kwargs",
                    json!({"replace_with_kernel_inject": true}),
                    Warning,
                ),
                _ => ("device_map", json!("auto"), Warning),
            },
            ("use_kernel", json!(true), Warning),
            ("use_meta_tensor", json!(true), Warning),
            ("max_tokens", json!(1536), Nothing),
        ],
    };
    let section = "model_config.generation";
    let batch: &[(&str, Value, ExpectedNotice)] = if initializer == "TextGenerationInference" {
        &[
            ("max_batch_total_tokens", json!(40000), Nothing),
            ("max_total_tokens", json!(4096), Nothing),
            ("max_waiting_tokens", json!(20), Nothing),
            ("max_input_length", json!(1024), Nothing),
            ("max_batch_prefill_tokens", json!(9216), Nothing),
            ("waiting_served_ratio", json!(1.2), Nothing),
        ]
    } else {
        &[
            ("max_batch_size", json!(8), Warning),
            ("batch_wait_timeout_s", json!(0), Warning),
            ("max_input_words", json!(400), Warning),
        ]
    };
    let below = |at: &str, keys: &[(&str, Value, ExpectedNotice)]| {
        let keys = keys.iter();
        keys.map(|(key, value, told)| (format!("{at}.{key}"), value.clone(), *told))
            .collect::<Vec<_>>()
    };
    keys.extend(deployment());
    keys.extend(scaling());
    let mut keys: Vec<(String, Value, ExpectedNotice)> = keys
        .into_iter()
        .map(|(key, value, told)| (key.to_owned(), value, told))
        .collect();
    keys.extend(below(at, own));
    keys.extend(below(section, batch));
    keys.extend(generation(section, true));
    keys
}

/// Aviary 0.2 to RayLLM 0.5, and Anyscale's fork of it.
pub fn rayllm(document: &Value) -> Vec<(String, Value, ExpectedNotice)> {
    let kind = document["engine_config"]["type"].as_str().unwrap();
    let mut keys = vec![
        ("standalone_function_calling_model", json!(true), Warning),
        ("depends_on_model", json!("org/m"), Warning),
        (
            "multiplex_config",
            json!({"max_num_models_per_replica": 16, "download_timeout_s": 30, "max_download_tries": 3}),
            Warning,
        ),
        ("engine_config.hf_model_id", json!("org/other"), Nothing),
        (
            "engine_config.model_type",
            json!("text-generation"),
            Warning,
        ),
        (
            "engine_config.model_url",
            json!("https://example.org/m"),
            Warning,
        ),
        ("engine_config.model_description", json!("A model"), Warning),
        ("engine_config.max_total_tokens", json!(4096), Nothing),
        (
            "engine_config.runtime_env",
            json!({"env_vars": {"HUGGING_FACE_HUB_TOKEN": null}}),
            Warning,
        ),
        (
            "engine_config.runtime_env",
            json!({"env_vars": {"A": "b"}, "pip": ["transformers"]}),
            Warning,
        ),
        (
            "engine_config.env_vars_to_propogate",
            json!(["PATH"]),
            Nothing,
        ),
        (
            "engine_config.s3_mirror_config",
            json!({"bucket_uri": "s3://b/m/", "s3_sync_args": ["--no-sign-request"],
            "s3_aws_credentials": {"create_aws_credentials_url": "https://example.org/keys", "auth_token_env_variable": "T"},
            "extra_files": [{"bucket_uri": "s3://b/x/", "destination_path": "x"}]}),
            Nothing,
        ),
        (
            "engine_config.gcs_mirror_config",
            json!({"bucket_uri": "gs://b/m/", "extra_files": []}),
            Nothing,
        ),
    ];
    match kind {
        "TextGenerationInferenceEngine" => keys.extend([
            (
                "engine_config.model_init_kwargs",
                json!({"trust_remote_code": true, "quantize": "gptq"}),
                Nothing,
            ),
            (
                "engine_config.scheduler.policy",
                json!({"type": "QuotaBasedTaskSelectionPolicy", "max_batch_total_tokens": 40000,
                "max_total_tokens": 2048, "max_iterations_curr_batch": 20, "max_input_length": 1024,
                "max_batch_prefill_tokens": 4096, "waiting_served_ratio": 1.2}),
                Warning,
            ),
        ]),
        "TRTLLMEngine" => keys.extend([
            (
                "engine_config.model_local_path",
                json!("/home/ray/models/trtllm"),
                Nothing,
            ),
            (
                "engine_config.model_type",
                json!("InflightFusedBatching"),
                Warning,
            ),
            (
                "engine_config.scheduler_policy",
                json!("GUARANTEED_NO_EVICT"),
                Warning,
            ),
            ("engine_config.logger_level", json!("INFO"), Warning),
            ("engine_config.max_num_sequences", json!(64), Nothing),
            (
                "engine_config.max_tokens_in_paged_kv_cache",
                json!(9000),
                Warning,
            ),
            (
                "engine_config.kv_cache_free_gpu_mem_fraction",
                json!(0.9),
                Nothing,
            ),
            ("engine_config.enable_trt_overlap", json!(true), Warning),
        ]),
        _ => keys.extend([
            ("engine_config.type", Value::Null, Warning),
            (
                "engine_config.tokenizer_id",
                json!("org/tokenizer"),
                Nothing,
            ),
        ]),
    }
    keys.extend(deployment());
    keys.extend(scaling());
    let mut keys: Vec<(String, Value, ExpectedNotice)> = keys
        .into_iter()
        .map(|(key, value, told)| (key.to_owned(), value, told))
        .collect();
    keys.extend(generation("engine_config.generation", false));
    if kind == "VLLMEngine" {
        let kwargs = vllm().into_iter();
        keys.extend(
            kwargs.map(|(key, value, told)| {
                (format!("engine_config.engine_kwargs.{key}"), value, told)
            }),
        );
    }
    keys
}

/// Options of vLLM 0.1 to 0.6 and of Anyscale's fork.
fn vllm() -> Vec<(&'static str, Value, ExpectedNotice)> {
    vec![
        ("dtype", json!("auto"), Nothing),
        ("dtype", json!("half"), Nothing),
        ("kv_cache_dtype", json!("fp8_e5m2"), Nothing),
        ("seed", json!(0), Nothing),
        ("revision", json!("main"), Nothing),
        ("code_revision", json!("main"), Nothing),
        ("tokenizer", json!("org/tokenizer"), Nothing),
        ("tokenizer_mode", json!("auto"), Nothing),
        ("tokenizer_revision", json!("main"), Nothing),
        ("skip_tokenizer_init", json!(false), Nothing),
        ("trust_remote_code", json!(true), Nothing),
        ("download_dir", json!("/tmp/weights"), Nothing),
        ("load_format", json!("auto"), Nothing),
        ("load_format", json!("safetensors"), Nothing),
        ("quantization", json!("awq"), Nothing),
        ("quantization", json!("squeezellm"), Nothing),
        ("enforce_eager", json!(true), Nothing),
        ("max_model_len", json!(4096), Nothing),
        ("tensor_parallel_size", json!(4), Warning),
        ("pipeline_parallel_size", json!(1), Warning),
        ("max_parallel_loading_workers", json!(2), Nothing),
        ("block_size", json!(16), Nothing),
        ("swap_space", json!(16), Warning),
        ("cpu_offload_gb", json!(0), Nothing),
        ("gpu_memory_utilization", json!(0.92), Nothing),
        ("max_num_batched_tokens", json!(8192), Nothing),
        ("max_num_seqs", json!(64), Nothing),
        ("max_paddings", json!(512), Warning),
        ("max_logprobs", json!(5), Nothing),
        ("max_log_probs", json!(5), Nothing),
        ("disable_log_stats", json!(true), Nothing),
        ("disable_log_requests", json!(true), Warning),
        ("max_log_len", json!(100), Nothing),
        ("worker_use_ray", json!(true), Warning),
        ("engine_use_ray", json!(false), Warning),
        ("max_context_len_to_capture", json!(8192), Warning),
        ("max_seq_len_to_capture", json!(8192), Warning),
        ("disable_custom_all_reduce", json!(true), Nothing),
        ("tokenizer_pool_size", json!(2), Warning),
        ("tokenizer_pool_type", json!("ray"), Warning),
        (
            "tokenizer_pool_extra_config",
            json!({"runtime_env": {"pip": null}}),
            Warning,
        ),
        ("num_tokenizer_actors", json!(2), Warning),
        ("enable_cuda_graph", json!(true), Warning),
        ("enable_cuda_graph", json!(false), Nothing),
        ("enable_custom_nccl", json!(true), Warning),
        ("min_decodes_per_prefill", json!(4), Warning),
        ("enable_json_logits_processors", json!(true), Warning),
        ("load_s3_path", json!("s3://b/m"), Warning),
        ("enable_lora", json!(true), Nothing),
        ("max_loras", json!(16), Nothing),
        ("max_lora_rank", json!(32), Nothing),
        ("max_cpu_loras", json!(16), Nothing),
        ("lora_dtype", json!("float16"), Nothing),
        ("lora_extra_vocab_size", json!(256), Warning),
        ("long_lora_scaling_factors", json!([4.0]), Warning),
        ("fully_sharded_loras", json!(true), Nothing),
        ("enable_prompt_adapter", json!(true), Warning),
        ("enable_prefix_caching", json!(true), Nothing),
        ("enable_chunked_prefill", json!(true), Nothing),
        ("disable_sliding_window", json!(true), Nothing),
        ("use_v2_block_manager", json!(true), Warning),
        ("scheduler_delay_factor", json!(0.5), Warning),
        ("num_lookahead_slots", json!(4), Warning),
        ("num_scheduler_steps", json!(8), Warning),
        ("preemption_mode", json!("swap"), Warning),
        ("device", json!("cuda"), Warning),
        ("rope_theta", json!(10000.0), Warning),
        (
            "rope_scaling",
            json!({"type": "dynamic", "factor": 2.0}),
            Warning,
        ),
        ("guided_decoding_backend", json!("outlines"), Warning),
        ("distributed_executor_backend", json!("ray"), Nothing),
        ("ray_workers_use_nsight", json!(false), Warning),
        ("num_gpu_blocks_override", json!(1000), Nothing),
        ("image_input_type", json!("pixel_values"), Warning),
        ("limit_mm_per_prompt", json!({"image": 1}), Nothing),
        ("speculative_model", json!("org/draft"), Nothing),
        ("num_speculative_tokens", json!(5), Warning),
        ("speculative_max_model_len", json!(2048), Warning),
        ("speculative_disable_by_batch_size", json!(8), Warning),
        ("speculative_draft_tensor_parallel_size", json!(1), Warning),
        ("ngram_prompt_lookup_max", json!(4), Warning),
        ("ngram_prompt_lookup_min", json!(1), Warning),
        ("use_speculative", json!(true), Warning),
        (
            "spec_decoding_acceptance_method",
            json!("rejection_sampler"),
            Warning,
        ),
        (
            "typical_acceptance_sampler_posterior_alpha",
            json!(0.3),
            Warning,
        ),
        (
            "disable_logprobs_during_spec_decoding",
            json!(true),
            Warning,
        ),
        (
            "otlp_traces_endpoint",
            json!("http://localhost:4317"),
            Nothing,
        ),
        ("a_key_that_no_release_had", json!(1), Warning),
    ]
}

/// The form after RayLLM 0.5.
pub fn llm_config() -> Vec<(String, Value, ExpectedNotice)> {
    let mut keys = vec![
        (
            "runtime_env",
            json!({"env_vars": {"HUGGING_FACE_HUB_TOKEN": null}}),
            Warning,
        ),
        (
            "runtime_env",
            json!({"pip": ["x"], "env_vars": {"A": 1}}),
            Warning,
        ),
        (
            "model_loading_config.model_source",
            json!("org/other"),
            Nothing,
        ),
        (
            "model_loading_config.model_source",
            json!("s3://b/m"),
            Nothing,
        ),
        (
            "model_loading_config.model_source",
            json!({"bucket_uri": "gs://b/m", "extra_files": []}),
            Nothing,
        ),
        (
            "model_loading_config.tokenizer_source",
            json!("org/tokenizer"),
            Nothing,
        ),
        (
            "model_loading_config.anytensor_config",
            json!({"model_path": "/m"}),
            Warning,
        ),
        ("llm_engine", json!("vLLM"), Nothing),
        ("llm_engine", json!("VLLMEngine"), Nothing),
        ("accelerator_type", json!("A100_80G"), Nothing),
        ("accelerator_config", json!({"kind": "gpu"}), Warning),
        (
            "placement_group_config",
            json!({"bundles": [{"GPU": 1}], "strategy": "PACK"}),
            Warning,
        ),
        ("tensor_parallelism", json!({"degree": 2}), Nothing),
        ("pipeline_parallelism", json!({"degree": 2}), Warning),
        ("max_request_context_length", json!(4096), Nothing),
        ("input_modality", json!("text"), Warning),
        (
            "json_mode",
            json!({"enabled": true, "options": {"num_processes": 8, "recreate_failed_actors": true}}),
            Warning,
        ),
        (
            "lora_config",
            json!({"dynamic_lora_loading_path": "s3://b/loras", "max_num_adapters_per_replica": 16,
            "download_timeout_s": 30, "max_download_tries": 3}),
            Warning,
        ),
        ("lora_config", Value::Null, Nothing),
        ("server_cls", json!("a:B"), Warning),
        (
            "experimental_configs",
            json!({"stream_batching_interval_ms": 50, "num_ingress_replicas": 2}),
            Warning,
        ),
        ("callback_config", json!({"callback_class": "a:B"}), Warning),
        ("log_engine_metrics", json!(true), Warning),
    ];
    keys.extend(deployment());
    let mut keys: Vec<(String, Value, ExpectedNotice)> = keys
        .into_iter()
        .map(|(key, value, told)| (key.to_owned(), value, told))
        .collect();
    keys.extend(generation("generation_config", false));
    let kwargs = vllm()
        .into_iter()
        .filter(|(key, ..)| *key != "tensor_parallel_size");
    keys.extend(kwargs.map(|(key, value, told)| (format!("engine_kwargs.{key}"), value, told)));
    keys
}
