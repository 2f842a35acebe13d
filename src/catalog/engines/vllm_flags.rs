//! The flags of vLLM 0.33 by value type: flags that a model file may set, flags that it may not set, and flags that cause a
//! warning. `vllm.rs` checks `engine_kwargs` against them; `tests/fixtures/vllm_flags.txt` lists them all.

use super::flags::{FlagReason, GATEWAY_ALONE, Group, Kind, group, reason};

/// Refused flags, with the reason.
pub(super) const BARRED: &[FlagReason] = &[
    reason(
        "host port uds grpc_port",
        "is chosen by the pool for each replica; engine_config.listen says whether it is a port or a socket",
    ),
    reason(
        "api_key ssl_keyfile ssl_certfile ssl_ca_certs enable_ssl_refresh ssl_cert_reqs ssl_ciphers root_path \
         allowed_origins allowed_methods allowed_headers allow_credentials",
        GATEWAY_ALONE,
    ),
    reason(
        "model",
        "is engine_config.model_path, or engine_config.hf_model_id",
    ),
    reason(
        "served_model_name",
        "is engine_config.served_model_name; the pool passes it on",
    ),
    reason("revision", "is engine_config.revision"),
    reason(
        "max_model_len",
        "is engine_config.max_total_tokens; the memory estimate needs it there",
    ),
    reason(
        "hf_token",
        "would be visible in the process list; set engine_config.env.HF_TOKEN instead",
    ),
    reason(
        "tensor_parallel_size",
        "is made from the placement; pool_config.gpus_per_replica says how many GPUs a replica takes",
    ),
    reason(
        "device_ids",
        "is made from the placement; pool_config.devices says which GPUs the model may use",
    ),
    reason(
        "pipeline_parallel_size prefill_context_parallel_size nnodes node_rank master_addr master_port \
         data_parallel_size data_parallel_rank data_parallel_start_rank data_parallel_size_local \
         data_parallel_address data_parallel_rpc_port data_parallel_backend data_parallel_hybrid_lb \
         data_parallel_external_lb data_parallel_multi_port_external_lb data_parallel_supervisor_port \
         dp_supervisor_probe_interval_s dp_supervisor_probe_timeout_s dp_supervisor_probe_failure_threshold \
         enable_elastic_ep elastic_ep_max_dp_size ray_workers_use_nsight",
        "is set by the pool from the placement, or not used: pool_config.nodes spreads a replica over several machines, and the pool starts more replicas instead of data parallel ranks",
    ),
    reason("enable_sleep_mode", "is set by pool_config.sleep"),
    reason(
        "tool_server",
        "is refused: it would let every client of the model run tools on this machine",
    ),
    reason(
        "swap_space max_seq_len_to_capture max_context_len_to_capture disable_log_requests num_scheduler_steps \
         use_v2_block_manager worker_use_ray guided_decoding_backend preemption_mode scheduler_delay_factor \
         mamba_cache_mode log_config_file task disable_frontend_multiprocessing",
        "has been removed from vLLM; remove it, or run an old version with type: CommandEngine",
    ),
];

/// Flags that are passed on with a warning.
pub(super) const WARNED: &[FlagReason] = &[
    reason(
        "trust_remote_code",
        "is on: the model's own Python code runs with the rights of the pool's account; pin engine_config.revision and read that code",
    ),
    reason(
        "worker_cls worker_extension_cls scheduler_cls logits_processors io_processor_plugin middleware \
         reasoning_parser_plugin tool_parser_plugin",
        "loads Python code into the engine; make sure that only administrators can write it",
    ),
    reason(
        "allowed_local_media_path",
        "lets every user of the model read the files below it",
    ),
    reason(
        "trust_request_chat_template trust_request_mm_kwargs",
        "lets every user send templates or options that the engine uses",
    ),
    reason(
        "kv_cache_memory_bytes num_gpu_blocks_override",
        "sets the size of the cache: vLLM then ignores the share that the pool assigns",
    ),
];

/// Generated from the sources of vLLM 0.33: every key, except the ones above.
#[rustfmt::skip]
pub(super) const GROUPS: &[Group] = &[
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
