//! vLLM: `vllm serve`. Its flags are those of vLLM 0.33; `tests/fixtures/vllm_flags.txt` has them all.
//! Tensor parallelism comes from the placement. `--gpu-memory-utilization` is the reserved part of the
//! tightest device, less what CUDA graphs take beside it in versions before 0.21. vLLM sleeps with
//! `--enable-sleep-mode`; the routes for it are there in its development mode alone.

use crate::pool::Bytes;

use super::super::engine_options::EngineKind;
use super::super::model_file::Sleep;
use super::flags::{Flags, Group, Kind, Said, Spelling, group, said};
use super::lines::{Failure, FailureClass, Mark, by_marks, failure, mark};
use super::{Asks, Call, Engine, Given, Metrics, Parking, Where, lora, pair, post};

pub const VLLM: Engine = Engine {
    names: &["VLLMEngine"],
    word: "vllm",
    program: &["vllm", "serve"],
    install: "install vLLM with `pip install vllm` in an environment of its own and name its program in engine_config.program (/opt/vllm/bin/vllm), or run the image vllm/vllm-openai with engine_config.command_prefix",
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
    seats: 20,
    sequences_key: Some("max_num_seqs"),
    share_key: Some("gpu_memory_utilization"),
    fills: true,
    asks_for_weights: Asks::InHostMemory,
    reads_gguf: false,
    arguments,
    environment,
    ready_path: "/health",
    health_path: "/health",
    generation_path: None,
    barred_env: &[said(
        "VLLM_SERVER_DEV_MODE",
        "is set by pool_config.sleep: it opens routes that run code in the engine",
    )],
    metrics: Some(Metrics {
        path: "/metrics",
        running: "vllm:num_requests_running",
        waiting: "vllm:num_requests_waiting",
        cache_used: &["vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"],
    }),
    parking: PARKING,
    stage: |line| by_marks(line, MARKS),
    lora: Some(lora("--lora-modules")),
    ignores: &["best_of"],
    failures: FAILURES,
};

/// CUDA graphs were captured after the share had been filled until 0.21 counted them in.
const BESIDE_SHARE: Bytes = Bytes(512 * Bytes::MIB);

fn arguments(given: &Given<'_>) -> Result<Vec<String>, String> {
    let recipe = given.recipe;
    let mut words = vec![recipe.model.clone()];
    match given.place.at {
        Where::Port(port) => {
            pair(&mut words, "--host", "127.0.0.1");
            pair(&mut words, "--port", port);
        }
        Where::Socket(path) => pair(&mut words, "--uds", path.display()),
    }
    pair(
        &mut words,
        "--served-model-name",
        recipe.served_name(given.place),
    );
    if given.has_gpus() {
        pair(&mut words, "--tensor-parallel-size", given.devices());
        let eager = recipe.words.all().any(|word| word == "--enforce-eager");
        let beside = if eager { Bytes::ZERO } else { BESIDE_SHARE };
        pair(&mut words, "--gpu-memory-utilization", given.share(beside)?);
    } else if !recipe.words.has("kv_cache_memory_bytes") {
        // On processors its share is one of the machine's whole memory, nine tenths by default.
        let (cache, _) = given.cache_beside_weights()?;
        pair(&mut words, "--kv-cache-memory-bytes", cache.0);
    }
    if let Some(tokens) = recipe.context {
        pair(&mut words, "--max-model-len", tokens);
    }
    if !recipe.words.has("max_num_seqs") {
        pair(&mut words, "--max-num-seqs", recipe.seats);
    }
    if let Some(revision) = &recipe.revision {
        pair(&mut words, "--revision", revision);
    }
    if recipe.sleep != Sleep::Off {
        words.push("--enable-sleep-mode".to_owned());
    }
    Ok(words)
}

fn environment(given: &Given<'_>) -> Vec<(&'static str, String)> {
    let on = || "1".to_owned();
    let mut env = vec![("VLLM_NO_USAGE_STATS", on()), ("DO_NOT_TRACK", on())];
    if given.recipe.is_local {
        env.extend([("HF_HUB_OFFLINE", on()), ("TRANSFORMERS_OFFLINE", on())]);
    }
    if given.recipe.sleep != Sleep::Off {
        // Without it there is no /sleep, whatever the flags say.
        env.push(("VLLM_SERVER_DEV_MODE", on()));
    }
    env
}

/// What a sleeping vLLM keeps on each device, as its log gives it (`memory is still in use`): a start.
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
    // The weights are gone: room is made for them, they are read again, then the cache comes back.
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

const MARKS: &[Mark] = &[
    mark("Loading safetensors checkpoint shards:", "reading weights"),
    mark("Loading pt checkpoint shards:", "reading weights"),
    mark("Loading safetensors using", "reading weights"),
    mark("Fetching ", "fetching"),
    mark("Starting to load model", "reading weights"),
    mark("Model loading took", "profiling"),
    mark("Dynamo bytecode transform time", "compiling"),
    mark("Compiling a graph", "compiling"),
    mark("torch.compile takes", "compiling"),
    mark("Available KV cache memory", "making the cache"),
    mark("KV cache size:", "making the cache"),
    mark("Capturing CUDA graphs", "capturing graphs"),
    mark("Graph capturing finished", "warming up"),
    mark("init engine (profile", "warming up"),
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
        "this version of vLLM does not run the model's architecture: install a newer one (pip install -U vllm), or try engine_kwargs.model_impl: transformers",
    ),
    failure(
        FailureClass::Quantisation,
        &[
            "unknown quantization method",
            "quantization method specified in the model config",
            "is not supported for the current gpu. minimum capability",
            "does not match the quantization method specified",
        ],
        "the GPU or this version of vLLM cannot compute with this quantisation: remove engine_kwargs.quantization, or take the model in another form",
    ),
    failure(
        FailureClass::WrongFlags,
        &["validation error for modelconfig", "invalid value for --"],
        "vLLM's own words above name the option; correct it in engine_config.engine_kwargs",
    ),
];

const BARRED: &[Said] = &[
    said(
        "host port uds grpc_port",
        "is chosen by the pool for each replica; engine_config.listen says whether it is a port or a socket",
    ),
    said(
        "api_key ssl_keyfile ssl_certfile ssl_ca_certs enable_ssl_refresh ssl_cert_reqs ssl_ciphers root_path \
         allowed_origins allowed_methods allowed_headers allow_credentials",
        "is the gateway's business: engines are reached from this machine alone, and keys are set with /llm/admin/keys and auth",
    ),
    said(
        "model",
        "is engine_config.model_path, or engine_config.hf_model_id",
    ),
    said(
        "served_model_name",
        "is engine_config.served_model_name; the pool passes it on",
    ),
    said("revision", "is engine_config.revision"),
    said(
        "max_model_len",
        "is engine_config.max_total_tokens; the memory estimate needs it there",
    ),
    said(
        "hf_token",
        "would show in the list of processes; write it into engine_config.env.HF_TOKEN",
    ),
    said(
        "tensor_parallel_size",
        "is made from the placement; pool_config.gpus_per_replica says how many GPUs a replica takes",
    ),
    said(
        "device_ids",
        "is made from the placement; pool_config.devices says which GPUs the model may use",
    ),
    said(
        "pipeline_parallel_size prefill_context_parallel_size nnodes node_rank master_addr master_port \
         data_parallel_size data_parallel_rank data_parallel_start_rank data_parallel_size_local \
         data_parallel_address data_parallel_rpc_port data_parallel_backend data_parallel_hybrid_lb \
         data_parallel_external_lb data_parallel_multi_port_external_lb data_parallel_supervisor_port \
         dp_supervisor_probe_interval_s dp_supervisor_probe_timeout_s dp_supervisor_probe_failure_threshold \
         enable_elastic_ep elastic_ep_max_dp_size ray_workers_use_nsight",
        "is not used: the pool places a replica on GPUs of one machine with tensor parallelism, and starts more replicas instead of data parallel ranks",
    ),
    said("enable_sleep_mode", "is set by pool_config.sleep"),
    said(
        "tool_server",
        "is refused: it would run tools on this machine for whoever may ask the model",
    ),
    said(
        "swap_space max_seq_len_to_capture max_context_len_to_capture disable_log_requests num_scheduler_steps \
         use_v2_block_manager worker_use_ray guided_decoding_backend preemption_mode scheduler_delay_factor \
         mamba_cache_mode log_config_file task disable_frontend_multiprocessing",
        "is gone from vLLM; remove it, or run an old version with type: CommandEngine",
    ),
];

const WARNED: &[Said] = &[
    said(
        "trust_remote_code",
        "is on: the model's own Python code runs with the rights of the pool's account; pin engine_config.revision and read that code",
    ),
    said(
        "worker_cls worker_extension_cls scheduler_cls logits_processors io_processor_plugin middleware \
         reasoning_parser_plugin tool_parser_plugin",
        "loads Python code into the engine; see that only administrators can write it",
    ),
    said(
        "allowed_local_media_path",
        "lets every user of the model read the files below it",
    ),
    said(
        "trust_request_chat_template trust_request_mm_kwargs",
        "lets every user hand the engine templates or options that it runs",
    ),
    said(
        "kv_cache_memory_bytes num_gpu_blocks_override",
        "sets the cache by itself: vLLM then does not keep to the share that the pool gives it",
    ),
];

/// Generated from the sources of vLLM 0.33: every key, but for those above.
#[rustfmt::skip]
const GROUPS: &[Group] = &[
    group(Kind::Switch, "allow_deprecated_quantization async_scheduling cohere_is_reasoning_model \
        cudagraph_metrics dcp_q_replicate disable_cascade_attn disable_chunked_mm_input \
        disable_custom_all_reduce disable_fastapi_docs disable_hybrid_kv_cache_manager \
        disable_nccl_for_dp_synchronization disable_sliding_window disable_uvicorn_access_log \
        enable_auto_tool_choice enable_batch_sharded_sampling enable_chunked_prefill enable_cumem_allocator \
        enable_dbo enable_ep_weight_filter enable_eplb enable_expert_parallel enable_fault_tolerance \
        enable_flash_late_interaction enable_flashinfer_autotune enable_force_include_usage enable_hc_sp \
        enable_layerwise_nvtx_tracing enable_log_deltas enable_log_outputs enable_log_requests \
        enable_logging_iteration_details enable_lora enable_mamba_cache_stochastic_rounding \
        enable_mamba_shared_prefix_checkpoint enable_mfu_metrics enable_mixed_moe_lora_format enable_mm_embeds \
        enable_moe_shared_loras enable_nccl_comm_suspend enable_offline_docs enable_per_request_metrics \
        enable_prefix_caching enable_prompt_embeds enable_prompt_tokens_details enable_request_id_headers \
        enable_return_routed_experts enable_scale_out enable_server_load_tracking enable_shm_tensor_arena \
        enable_tokenizer_info_endpoint enable_tower_connector_lora enable_trace_replay enforce_eager \
        exclude_tools_when_tool_choice_none fail_on_environ_validation fully_sharded_loras \
        interleave_mm_strings jit_monitor_verbose kv_cache_metrics kv_sharing_fast_prefill language_model_only \
        log_error_stack long_prefill_token_threshold_adaptive mm_device_do_normalize mm_encoder_only \
        monokernel numa_bind return_sampling_mask return_tokens_as_token_ids scheduler_reserve_full_isl \
        skip_mm_profiling skip_tokenizer_init sleep_mode_offload_cudagraph specialize_active_lora \
        swa_bounded_replay tokens_only trust_remote_code trust_request_chat_template trust_request_mm_kwargs \
        use_fp64_gumbel use_replayssm use_tqdm_on_load"),
    group(Kind::On, "aggregate_engine_logging disable_log_stats"),
    group(Kind::Count(1), "kv_cache_memory_bytes max_num_batched_tokens max_num_queued_tokens \
        max_num_scheduled_tokens safetensors_prefetch_block_size"),
    group(Kind::Integer(-1, 1 << 40), "cp_kv_cache_interleave_size cpu_distributed_timeout_seconds \
        dbo_decode_token_threshold dbo_prefill_token_threshold dcp_kv_cache_interleave_size \
        distributed_timeout_seconds dp_sync_interval h11_max_header_count h11_max_incomplete_event_size \
        long_prefill_token_threshold mamba_block_size mamba_cache_philox_rounds max_cudagraph_capture_size \
        max_log_len max_logprobs max_lora_cls_labels max_num_queued_reqs max_parallel_loading_workers \
        mm_shm_cache_max_object_size_mb num_gpu_blocks_override offload_group_size offload_num_in_group \
        offload_prefetch_step prefill_schedule_interval prefix_cache_retention_interval prefix_match_unit \
        replayssm_buffer_len safetensors_prefetch_num_threads seed shutdown_timeout spec_tokens \
        sse_keep_alive_interval ubatch_size"),
    group(Kind::Integer(1, 100_000), "block_size decode_context_parallel_size max_cpu_loras max_loras \
        max_num_active_seqs max_num_seqs renderer_num_workers stream_interval"),
    group(Kind::Integer(0, 3), "optimization_level"),
    group(Kind::Float(0.0, 1e9), "cpu_offload_gb kv_cache_metrics_sample kv_offloading_size \
        mm_encoder_fp8_scale_save_margin mm_ipc_gpu_memory_gb mm_processor_cache_gb video_pruning_rate \
        watermark"),
    group(Kind::Text, "all2all_backend allowed_local_media_path anthropic_disabled_thinking_effort \
        attention_backend chat_template chat_template_content_format code_revision cohere_format config_format \
        disable_access_log_for_endpoints distributed_executor_backend fingerprint_value generation_config \
        hf_config_path io_processor_plugin kv_cache_dtype linear_backend load_format log_level mamba_backend \
        mm_encoder_attn_backend mm_encoder_fp8_scale_path mm_encoder_fp8_scale_save_path mm_processor_device \
        model_impl moe_backend otlp_traces_endpoint quantization reasoning_parser reasoning_parser_plugin \
        response_role safetensors_load_strategy scheduler_cls show_hidden_metrics_for_version \
        sleep_mode_backend sparse_indexer_topk_backend spec_method spec_model tokenizer tokenizer_mode \
        tokenizer_revision tool_call_parser tool_parser_plugin tool_strict_level worker_cls \
        worker_extension_cls"),
    group(Kind::Path, "download_dir"),
    group(Kind::List, "allowed_media_domains collect_detailed_traces cpu_offload_params \
        cudagraph_capture_sizes custom_histogram_buckets ignore_patterns kv_cache_dtype_skip_layers \
        logits_processors lora_modules lora_target_modules middleware numa_bind_cpus numa_bind_nodes \
        offload_params sleep_preserve_parameter_names"),
    group(Kind::Json, "additional_config attention_config aux_output_config compilation_config \
        default_chat_template_kwargs default_mm_loras diffusion_config ec_manager_config ec_transfer_config \
        engram_config eplb_config fault_tolerance_config hf_overrides ir_op_priority kernel_config \
        kv_events_config kv_transfer_config limit_mm_per_prompt logging_config media_io_kwargs \
        mm_processor_kwargs model_class_overrides model_loader_extra_config override_generation_config \
        pooler_config profiler_config pt_load_map_location quantization_config reasoning_config \
        reasoning_effort_map speculative_config structured_outputs_config watchdog_config watermark_config \
        weight_transfer_config"),
    group(Kind::OneOf("8 16 32 64 128 256 320 512"), "max_lora_rank"),
    group(Kind::OneOf("auto none embed classify"), "convert"),
    group(Kind::OneOf("ag_rs a2a"), "dcp_comm_backend"),
    group(Kind::OneOf("auto half float16 bfloat16 float float32"), "dtype"),
    group(Kind::OneOf("linear round_robin"), "expert_placement_strategy"),
    group(Kind::OneOf("full hash custom none"), "fingerprint_mode"),
    group(Kind::OneOf("flashinfer triton cutedsl aiter_flydsl sycl"), "gdn_prefill_backend"),
    group(Kind::OneOf("warn error"), "jit_monitor_mode"),
    group(Kind::OneOf("auto native flashinfer triton"), "kda_decode_backend"),
    group(Kind::OneOf("auto triton flashkda flashinfer fused"), "kda_prefill_backend"),
    group(Kind::OneOf("native lmcache"), "kv_offloading_backend"),
    group(Kind::OneOf("raw_logits raw_logprobs processed_logits processed_logprobs"), "logprobs_mode"),
    group(Kind::OneOf("auto float16 bfloat16"), "lora_dtype"),
    group(Kind::OneOf("auto float32 float16 bfloat16"), "mamba_cache_dtype mamba_ssm_cache_dtype"),
    group(Kind::OneOf("auto simple vertical horizontal"), "mamba_ssu_algorithm"),
    group(Kind::OneOf("fp8"), "mm_encoder_attn_dtype"),
    group(Kind::OneOf("weights data"), "mm_encoder_tp_mode"),
    group(Kind::OneOf("blake3 sha256 sha512"), "mm_hasher_algorithm"),
    group(Kind::OneOf("shm lru"), "mm_processor_cache_type"),
    group(Kind::OneOf("direct_rpc torch_shm"), "mm_tensor_ipc"),
    group(Kind::OneOf("auto uva prefetch"), "offload_backend"),
    group(Kind::OneOf("none summary detailed"), "per_request_spec_decode_metrics"),
    group(Kind::OneOf("balanced interactivity throughput"), "performance_mode"),
    group(Kind::OneOf("sha256 sha256_cbor xxhash xxhash_cbor"), "prefix_caching_hash_algo"),
    group(Kind::OneOf("auto generate pooling draft"), "runner"),
    group(Kind::OneOf("fcfs priority"), "scheduling_policy"),
    group(Kind::OneOf("critical error warning info debug trace"), "uvicorn_log_level"),
    group(Kind::OneOf("evs vidcom2"), "video_pruning_method"),
];

#[cfg(test)]
mod tests {
    use super::super::tests_support::{gpus, place, recipe};
    use super::*;

    #[test]
    fn the_command_line_is_made_from_the_placement() {
        let mut recipe = recipe(
            &VLLM,
            r#"{"quantization": "awq", "enable_prefix_caching": false}"#,
        );
        recipe.context = Some(8192);
        let devices = gpus(2, 80);
        let command = recipe.command(&place(&devices, 40)).expect("a command");
        let expected = "vllm serve /models/m --host 127.0.0.1 --port 4321 --served-model-name org/model --tensor-parallel-size 2 --gpu-memory-utilization 0.4937 --max-model-len 8192 --max-num-seqs 20 --quantization awq --no-enable-prefix-caching";
        assert_eq!(command.argv.join(" "), expected);
        assert_eq!(command.env["VLLM_NO_USAGE_STATS"].0, "1");
        assert_eq!(command.env["HF_HUB_OFFLINE"].0, "1");
        assert!(!command.env.contains_key("VLLM_SERVER_DEV_MODE"));
    }

    #[test]
    fn without_graphs_the_whole_reservation_is_its_share_and_a_socket_takes_the_place_of_the_port()
    {
        let recipe = recipe(&VLLM, r#"{"enforce_eager": true, "max_num_seqs": 4}"#);
        let devices = gpus(1, 80);
        let mut place = place(&devices, 40);
        place.at = Where::Socket(std::path::Path::new("/run/s"));
        let line = recipe.command(&place).expect("a command").argv.join(" ");
        assert!(
            line.contains("--uds /run/s") && !line.contains("--port"),
            "{line}"
        );
        assert!(line.contains("--gpu-memory-utilization 0.5000"), "{line}");
        assert!(line.ends_with("--enforce-eager --max-num-seqs 4"), "{line}");
    }

    #[test]
    fn a_reservation_that_leaves_no_share_is_refused_with_numbers() {
        let devices = gpus(1, 80);
        let mut place = place(&devices, 1);
        place.reserved = Bytes(100 * Bytes::MIB);
        let problem = recipe(&VLLM, "{}").command(&place).unwrap_err();
        assert!(
            problem.contains("100") && problem.contains("512"),
            "{problem}"
        );
    }

    #[test]
    fn in_host_memory_it_is_told_the_bytes_of_its_cache() {
        let line = |place| {
            let command = recipe(&VLLM, "{}").command(&place);
            command.map(|command| command.argv.join(" "))
        };
        let bytes = (20 - 8 - 3) * Bytes::GIB;
        let text = line(place(&[], 20)).expect("a command");
        assert!(
            text.contains(&format!("--kv-cache-memory-bytes {bytes} ")),
            "{text}"
        );
        let mut unknown = place(&[], 20);
        unknown.weights = None;
        assert!(line(unknown).unwrap_err().contains("model_path"));
        assert!(line(place(&[], 9)).unwrap_err().contains("memory_gib"));
    }

    #[test]
    fn sleep_brings_its_flag_and_the_mode_that_has_the_routes() {
        let mut recipe = recipe(&VLLM, "{}");
        recipe.sleep = Sleep::Weights;
        let command = recipe.command(&place(&gpus(1, 80), 40)).expect("a command");
        assert!(command.argv.contains(&"--enable-sleep-mode".to_owned()));
        assert_eq!(command.env["VLLM_SERVER_DEV_MODE"].0, "1");
        assert_eq!(
            VLLM.parks(Sleep::Weights).expect("level 1").sleep.path,
            "/sleep?level=1"
        );
        assert_eq!(VLLM.parks(Sleep::Discard).expect("level 2").wake.len(), 3);
        assert!(VLLM.parks(Sleep::Off).is_none());
    }

    #[test]
    fn its_log_tells_the_stages_of_a_load_and_its_failures() {
        let stage = |line| (VLLM.stage)(line).map(|stage| (stage.name, stage.percent));
        for (line, expected) in [
            (
                "Loading safetensors checkpoint shards:  75% Completed | 3/4 [00:03<00:01,  1.0s/it]",
                ("reading weights", Some(75)),
            ),
            (
                "INFO 11-21 10:00:00 [gpu_model_runner.py:5089] Model loading took 14.99 GiB memory and 3.1 seconds",
                ("profiling", None),
            ),
            (
                "Capturing CUDA graphs (mixed prefill-decode, PIECEWISE):  50%|#####     | 10/20",
                ("capturing graphs", Some(50)),
            ),
            (
                "INFO [kv_cache_utils.py:1148] GPU KV cache size: 100,000 tokens",
                ("making the cache", None),
            ),
        ] {
            assert_eq!(stage(line), Some(expected), "{line}");
        }
        assert_eq!(
            stage("INFO: 127.0.0.1 - \"GET /health HTTP/1.1\" 200 OK"),
            None
        );
        let class = |words| VLLM.failure(words).map(|failure| failure.class);
        assert_eq!(
            class("ValueError: No available memory for the cache blocks."),
            Some(FailureClass::OutOfMemory)
        );
        assert_eq!(
            class("ValueError: Model architectures ['X'] are not supported for now."),
            Some(FailureClass::UnknownArchitecture)
        );
        assert_eq!(
            class("OSError: [Errno 98] Address already in use"),
            Some(FailureClass::PortInUse)
        );
    }
}
