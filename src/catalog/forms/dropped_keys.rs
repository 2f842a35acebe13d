//! Keys of older systems that are accepted without effect, with their replacements. The single source for warnings about a file and
//! for docs/reference/compatibility.md.

/// Keys of a section, with their replacement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DroppedKeys {
    /// The section in the current form; empty for top-level keys.
    pub section: &'static str,
    /// Keys separated by spaces.
    pub keys: &'static str,
    pub instead: &'static str,
}

const fn dropped(section: &'static str, keys: &'static str, instead: &'static str) -> DroppedKeys {
    DroppedKeys {
        section,
        keys,
        instead,
    }
}

impl DroppedKeys {
    pub fn keys(&self) -> impl Iterator<Item = &'static str> {
        self.keys.split_ascii_whitespace()
    }
}

/// The keys of `section` without effect, with their replacements.
pub(crate) fn keys_of(
    table: &[DroppedKeys],
    section: &str,
) -> impl Iterator<Item = (&'static str, &'static str)> {
    let rows = table.iter().filter(move |row| row.section == section);
    rows.flat_map(|row| row.keys().map(|key| (key, row.instead)))
}

const DEPLOYMENT: &str = "deployment_config";
pub(crate) const SCALING: &str = "deployment_config.autoscaling_config";
pub(crate) const ACTOR: &str = "deployment_config.ray_actor_options";
const KWARGS: &str = "engine_config.engine_kwargs";
pub(crate) const APPLICATION: &str = "applications[]";
pub(crate) const ARGUMENTS: &str = "applications[].args";
pub(crate) const CLUSTER: &str = "top level";

/// For the settings of a Ray worker other than its variables.
pub(crate) const OUTSIDE_OF_RAY: &str = "has no effect outside of Ray: install what the engine needs into its own environment, and name its program in engine_config.program";
const OF_RAY: &str = "it only concerns Ray Serve";
const OF_CLUSTER: &str = "it describes the cluster or service that runs Ray Serve; model-pool has a separate configuration";
const ONE_ADDRESS: &str = "all models are served at one address, under their names";

/// Keys of RayLLM, Anyscale's templates and Ray Serve.
pub(crate) const RAYLLM: &[DroppedKeys] = &[
    dropped(
        "",
        "standalone_function_calling_model depends_on_model",
        "each model is independent",
    ),
    dropped(
        DEPLOYMENT,
        "name user_config logging_config request_router_config num_ingress_replicas version route_prefix is_driver_deployment \
         max_constructor_retry_count gang_scheduling_config",
        OF_RAY,
    ),
    dropped(
        DEPLOYMENT,
        "num_replicas",
        "replicas are loaded on demand; an administrator can load several",
    ),
    dropped(
        DEPLOYMENT,
        "health_check_period_s health_check_timeout_s",
        "pool.heartbeat and pool.heartbeat_timeout set when an engine is probed",
    ),
    dropped(
        DEPLOYMENT,
        "graceful_shutdown_wait_loop_s graceful_shutdown_timeout_s",
        "pool.preempt_drain and pool_config.stop_grace bound how long a replica drains and stops",
    ),
    dropped(
        DEPLOYMENT,
        "placement_group_bundles placement_group_strategy max_replicas_per_node",
        "pool_config.gpus_per_replica says how many GPUs a replica takes, and pool_config.nodes on how many machines",
    ),
    dropped(
        SCALING,
        "policy _policy _serialized_policy_def aggregation_function",
        "there is one policy: replicas follow the average of the ongoing requests",
    ),
    dropped(
        ACTOR,
        "num_gpus",
        "pool_config.gpus_per_replica says how many GPUs a replica takes, and models share a GPU by the memory they need (pool_config.memory_gib)",
    ),
    dropped(
        ACTOR,
        "num_cpus memory object_store_memory",
        "the pool reserves GPU memory alone; engine_kwargs bound an engine's threads",
    ),
    dropped(
        ACTOR,
        "resources accelerator_type label_selector fallback_strategy",
        "pool_config.devices says which GPUs the model may use; so do scaling_config.resources_per_worker and accelerator_type",
    ),
    dropped(
        ACTOR,
        "max_concurrency max_restarts max_task_retries max_pending_calls name namespace lifetime scheduling_strategy \
         placement_group placement_group_bundle_index placement_group_capture_child_tasks get_if_exists concurrency_groups",
        "there are no actors; the pool restarts failed engines automatically",
    ),
    dropped(
        KWARGS,
        "enable_cuda_graph",
        "CUDA graphs are on unless enforce_eager is true",
    ),
    dropped(
        KWARGS,
        "enable_custom_nccl",
        "vLLM has a custom all-reduce, which disable_custom_all_reduce turns off",
    ),
    dropped(
        KWARGS,
        "min_decodes_per_prefill",
        "vLLM computes parts of prompts together with running requests (enable_chunked_prefill, max_num_batched_tokens)",
    ),
    dropped(
        KWARGS,
        "num_tokenizer_actors tokenizer_pool_size tokenizer_pool_type tokenizer_pool_extra_config worker_use_ray \
         use_v2_block_manager enable_json_logits_processors engine_use_ray max_paddings max_context_len_to_capture \
         max_seq_len_to_capture disable_log_requests swap_space num_scheduler_steps multi_step_stream_outputs \
         scheduler_delay_factor preemption_mode disable_async_output_proc num_lookahead_slots quantization_param_path \
         rope_theta lora_extra_vocab_size long_lora_scaling_factors enable_prompt_adapter max_prompt_adapters \
         max_prompt_adapter_token image_input_type image_token_id image_input_shape image_feature_size image_processor \
         image_processor_revision disable_image_processor qlora_adapter_name_or_path \
         override_neuron_config",
        "vLLM has removed it",
    ),
    dropped(
        KWARGS,
        "guided_decoding_backend",
        "vLLM takes structured_outputs_config instead, an object with backend",
    ),
    dropped(
        KWARGS,
        "use_speculative speculative_disable_by_batch_size speculative_disable_mqa_scorer spec_decoding_acceptance_method \
         typical_acceptance_sampler_posterior_threshold typical_acceptance_sampler_posterior_alpha \
         disable_logprobs_during_spec_decoding",
        "vLLM's speculative_config, which the other speculative keys become, has no such key",
    ),
    dropped(KWARGS, "device", "the pool gives the engine its devices"),
    dropped(
        KWARGS,
        "load_s3_path",
        "s3_mirror_config says where weights come from",
    ),
    dropped(
        "engine_config",
        "scheduler_policy logger_level max_tokens_in_paged_kv_cache enable_trt_overlap",
        "trtllm-serve has a different default, which engine_kwargs can change",
    ),
    dropped(
        "engine_config",
        "batch_wait_timeout_s",
        "the engine batches waiting requests without delay",
    ),
    dropped(
        "engine_config",
        "optimize",
        "the engine chooses its own back end",
    ),
];

/// Keys of `model_loading_config` and of the sections next to it.
pub(crate) const RAY_SERVE: &[DroppedKeys] = &[
    dropped(
        "",
        "input_modality supports_vision",
        "the engine reads it from the model",
    ),
    dropped(
        "",
        "json_mode",
        "the engine answers in JSON when a request asks for it",
    ),
    dropped(
        "",
        "accelerator_config placement_group_config resources_per_bundle server_cls experimental_configs callback_config",
        OF_RAY,
    ),
    dropped(
        "",
        "log_engine_metrics",
        "the engine's own metrics are always read",
    ),
    dropped(
        "model_loading_config",
        "anytensor_config",
        "weights are read from the model's own files",
    ),
];

/// Keys of a Ray Serve file outside its models.
pub(crate) const SERVE: &[DroppedKeys] = &[
    dropped(APPLICATION, "name import_path route_prefix", ONE_ADDRESS),
    dropped(
        APPLICATION,
        "deployments host port external_scaler_enabled autoscaling_policy logging_config",
        OF_RAY,
    ),
    dropped(
        ARGUMENTS,
        "api_key",
        "keys are made with `admin-client keys create`",
    ),
    dropped(
        ARGUMENTS,
        "ingress_cls_config ingress_deployment_config",
        OF_RAY,
    ),
    dropped(
        ARGUMENTS,
        "autoscaler_enabled",
        "the section cluster of model-pool.yaml, with kind slurm or ray, has the pool request nodes",
    ),
    dropped(
        ARGUMENTS,
        "dashboard_port",
        "cluster.ray.address sets the Ray cluster that provides nodes; the dashboard for people is /llm/dashboard",
    ),
    dropped(
        ARGUMENTS,
        "model_reference_path",
        "write the path as catalog.model_reference into model-pool.yaml",
    ),
    dropped(
        ARGUMENTS,
        "config_file_path dump_period model_pool_update_period main",
        "the pool is one program, and keeps its state in state.dir",
    ),
    dropped(
        ARGUMENTS,
        "clean_period",
        "pool.keep_hot sets how long an idle model stays, and evening.cleanup when all models are unloaded",
    ),
    dropped(
        ARGUMENTS,
        "gpu_check_period health_check_period",
        "GPUs are measured continuously, and pool.heartbeat sets how often an engine is probed",
    ),
    dropped(
        CLUSTER,
        "proxy_location http_options grpc_options logging_config target_capacity controller_options name \
         query_auth_token_enabled cloud project compute_config image_uri containerfile requirements working_dir env_vars \
         cluster_env build_id ray_serve_config rollout_strategy version tracing_config",
        OF_CLUSTER,
    ),
];

/// Keys of Aviary's static batching.
pub(crate) const AVIARY: &[DroppedKeys] = &[
    dropped("model_config", "max_input_words", WORDS),
    dropped("model_config.generation", "max_input_words", WORDS),
    dropped("model_config", "batching", BATCH),
    dropped(
        "model_config.generation",
        "max_batch_size batch_wait_timeout_s",
        BATCH,
    ),
    dropped(
        "model_config.initialization",
        "pipeline full_warmup",
        "the engine controls generation itself",
    ),
    dropped(
        "model_config.initialization.initializer",
        "from_pretrained_kwargs use_bettertransformer torch_compile use_kernel use_meta_tensor ds_inference_kwargs device_map",
        "the engine has its own kernels and places weights itself",
    ),
    dropped(
        "engine_config.scheduler.policy",
        "type",
        "the engine has a single policy, which accepts the same limits",
    ),
];

const WORDS: &str = "prompts are limited in tokens: engine_config.max_total_tokens";
const BATCH: &str = "the engine batches requests as they arrive; deployment_config.max_ongoing_requests limits the simultaneous requests";

/// Every key of the tables, with its section and replacement.
pub(crate) fn all() -> impl Iterator<Item = &'static DroppedKeys> {
    [AVIARY, RAYLLM, RAY_SERVE, SERVE].into_iter().flatten()
}
