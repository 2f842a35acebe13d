//! SGLang: `python3 -m sglang.launch_server`. The flags match SGLang 0.5.23; `tests/fixtures/sglang_flags.txt` lists them.
//! One file because it is a single engine's table.
//!
//! `--mem-fraction-static` is a share of the memory that is *free* on a device when SGLang starts, for weights and cache together;
//! activations and CUDA graphs are added to it. The pool computes it from the device's total memory: on a device shared with other
//! programs the result is smaller than reserved, never larger.

use std::net::SocketAddr;

use pool::Bytes;

use super::engine::{
    ArgumentContext, Call, Engine, Metrics, NeedsWeightSize, Parking, RerankApi, pair,
};
use super::flags::{FlagReason, Flags, GATEWAY_ALONE, Group, Kind, Spelling, group, reason};
use super::launch_context::EngineAddress;
use super::lines::{Failure, FailureClass, StageMark, by_marks, failure, mark};
use super::lora::SGLANG_LORA;
use super::parser_names;
use super::reasoning::{EffortField, ReasoningSwitch};
use super::routes::{ExtraRoute, TokenApi};
use crate::documents::Sleep;
use crate::engines::kind::EngineKind;

pub const SGLANG: Engine = Engine {
    names: &["SGLangEngine"],
    word: "sglang",
    program: &["python3", "-m", "sglang.launch_server"],
    install: "install SGLang with `pip install sglang` in a separate environment and name its Python in engine_config.program (/opt/sglang/bin/python3), or run the image lmsysorg/sglang with engine_config.command_prefix",
    package: None,
    kind: EngineKind::Sglang,
    flags: Flags {
        groups: GROUPS,
        barred: BARRED,
        warned: WARNED,
        spelling: Spelling::HYPHENS,
    },
    sockets: false,
    needs_gpu: true,
    devices_max: 64,
    spans_nodes: true,
    seats: 20,
    sequences_key: Some("max_running_requests"),
    share_key: Some("mem_fraction_static"),
    fills: true,
    needs_weight_size: NeedsWeightSize::Never,
    reads_gguf: false,
    arguments,
    environment,
    ready_path: "/health",
    health_path: "/health",
    generation_path: Some("/health_generate"),
    barred_env: &[reason(
        "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION",
        "is set by the pool: heartbeats would compute tokens",
    )],
    metrics: Some(Metrics {
        path: "/metrics",
        running: "sglang:num_running_reqs",
        waiting: "sglang:num_queue_reqs",
        cache_used: &["sglang:token_usage"],
        // Its counter of generated tokens increases only at the end of each response.
        generated: None,
    }),
    ends_with_client: true,
    parking: PARKING,
    stage: |line| by_marks(line, MARKS),
    lora: Some(SGLANG_LORA),
    ignores: &["best_of"],
    extensions: &[
        "chat_template_kwargs",
        "continue_final_message",
        "ebnf",
        "ignore_eos",
        "json_schema",
        "min_p",
        "min_tokens",
        "no_stop_trim",
        "regex",
        "repetition_penalty",
        "response_format",
        "separate_reasoning",
        "skip_special_tokens",
        "stop_regex",
        "stop_token_ids",
        "stream_reasoning",
        "top_k",
    ],
    pooling_extensions: &["messages"],
    continuous_usage: true,
    parsers: Some(parser_names::SGLANG),
    reasoning: ReasoningSwitch {
        effort: EffortField::Common,
        template: true,
        ..ReasoningSwitch::NONE
    },
    rerank: RerankApi::Common,
    routes: &[
        ExtraRoute::Embeddings,
        ExtraRoute::Rerank,
        ExtraRoute::Score,
        ExtraRoute::Transcriptions,
        ExtraRoute::Tokenize,
        ExtraRoute::Detokenize,
    ],
    tokens: TokenApi::Sglang,
    dimensions: true,
    last_errors: &[],
    failures: FAILURES,
};

/// Activations and CUDA graphs, in addition to the static share.
const BESIDE_SHARE: Bytes = Bytes(3 * Bytes::GIB);

fn arguments(inputs: &ArgumentContext<'_>) -> Result<Vec<String>, String> {
    let recipe = inputs.recipe;
    let mut argv = Vec::new();
    pair(&mut argv, "--model-path", &recipe.model);
    match inputs.place.at {
        EngineAddress::Port(port) => {
            pair(&mut argv, "--host", "127.0.0.1");
            pair(&mut argv, "--port", port);
        }
        EngineAddress::Socket(_) => return Err("SGLang listens on a port only".to_owned()),
    }
    pair(
        &mut argv,
        "--served-model-name",
        recipe.served_name(inputs.place),
    );
    let nodes = inputs.place.member.map_or(1, |member| member.nodes.len());
    pair(&mut argv, "--tp-size", inputs.devices() * nodes);
    if let Some(member) = inputs.place.member {
        let leader = SocketAddr::new(member.leader_address, member.leader_port);
        pair(&mut argv, "--nnodes", nodes);
        pair(&mut argv, "--node-rank", member.rank);
        pair(&mut argv, "--dist-init-addr", leader);
    }
    pair(
        &mut argv,
        "--mem-fraction-static",
        inputs.share(BESIDE_SHARE)?,
    );
    if let Some(tokens) = recipe.context {
        pair(&mut argv, "--context-length", tokens);
    }
    if !recipe.flags.has("max_running_requests") {
        pair(&mut argv, "--max-running-requests", recipe.seats);
    }
    if let Some(revision) = &recipe.revision {
        pair(&mut argv, "--revision", revision);
    }
    argv.push("--enable-metrics".to_owned());
    if recipe.sleep != Sleep::Off {
        // Without the copy in host memory, the weights would be garbage after waking.
        argv.push("--enable-memory-saver".to_owned());
        argv.push("--enable-weights-cpu-backup".to_owned());
    }
    Ok(argv)
}

fn environment(inputs: &ArgumentContext<'_>) -> Vec<(&'static str, String)> {
    let on = || "1".to_owned();
    // Otherwise /health would compute a token each time, which takes a second.
    let mut env = vec![(
        "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION",
        "false".to_owned(),
    )];
    if inputs.recipe.is_local {
        env.extend([("HF_HUB_OFFLINE", on()), ("TRANSFORMERS_OFFLINE", on())]);
    }
    env
}

const PARKING: &[Parking] = &[Parking {
    depth: Sleep::Weights,
    sleep: Call {
        method: "POST",
        path: "/release_memory_occupation",
        body: Some("{}"),
    },
    wake: &[Call {
        method: "POST",
        path: "/resume_memory_occupation",
        body: Some("{}"),
    }],
    is_sleeping: None,
    resident_per_device: Bytes(2 * Bytes::GIB),
    weights_on_host: true,
}];

const MARKS: &[StageMark] = &[
    mark("Loading safetensors checkpoint shards:", "reading weights"),
    mark("Loading pt checkpoint shards:", "reading weights"),
    mark("Loading np_cache checkpoint shards:", "reading weights"),
    mark("Multi-thread loading shards:", "reading weights"),
    mark(
        "Multi-thread loading pt checkpoint shards:",
        "reading weights",
    ),
    mark("Fetching ", "fetching"),
    mark("Load weight begin", "reading weights"),
    mark("Load weight end", "making the cache"),
    mark("Memory pool end", "making the cache"),
    mark("Capturing batches", "capturing graphs"),
    mark("Capture cuda graph begin", "capturing graphs"),
    mark("Capture cuda graph end", "warming up"),
    mark("Application startup complete", "warming up"),
];

const FAILURES: &[Failure] = &[
    failure(
        FailureClass::OutOfMemory,
        &[
            "not enough memory. please try to increase --mem-fraction-static",
            "not enough memory; increase",
        ],
        "its share holds the weights but no cache for one sequence: set a smaller engine_config.max_total_tokens or a larger pool_config.memory_gib; SGLang computes its share from the memory that is free when it starts, so a dedicated device (pool_config.devices) gives it more",
    ),
    failure(
        FailureClass::OutOfMemory,
        &[
            "capture cuda graph failed",
            "capture prefill cuda graph failed",
        ],
        "no memory was left for CUDA graphs: reduce engine_kwargs.cuda_graph_max_bs_decode, or increase pool_config.memory_gib",
    ),
    failure(
        FailureClass::UnknownArchitecture,
        &[
            "are not supported for now",
            "does not recognize this architecture",
            "has no sglang implementation",
        ],
        "this version of SGLang does not support the model's architecture: install a newer one (pip install -U sglang), or try engine_kwargs.model_impl: transformers",
    ),
    failure(
        FailureClass::Quantisation,
        &[
            "unknown quantization method",
            "is not supported for the current gpu. minimum capability",
        ],
        "the GPU or this version of SGLang does not support this quantisation: remove engine_kwargs.quantization, or use the model in another form",
    ),
    failure(
        FailureClass::MissingLibrary,
        &["torch_memory_saver"],
        "pool_config.sleep needs the package torch-memory-saver in SGLang's environment: pip install torch-memory-saver",
    ),
];

const BARRED: &[FlagReason] = &[
    reason(
        "host port nccl_port grpc_port grpc_mode smg_grpc_mode smg_http_sidecar_port enable_http_worker_reuseport \
         gated_launch_port",
        "is chosen by the pool for each replica",
    ),
    reason(
        "api_key admin_api_key ssl_keyfile ssl_certfile ssl_ca_certs ssl_keyfile_password enable_ssl_refresh \
         fastapi_root_path",
        GATEWAY_ALONE,
    ),
    reason(
        "model_path model",
        "is engine_config.model_path, or engine_config.hf_model_id",
    ),
    reason(
        "served_model_name",
        "is engine_config.served_model_name; the pool passes it on",
    ),
    reason("revision", "is engine_config.revision"),
    reason(
        "context_length",
        "is engine_config.max_total_tokens; the memory estimate needs it there",
    ),
    reason(
        "tp_size tensor_parallel_size tp",
        "is made from the placement; pool_config.gpus_per_replica says how many GPUs a replica takes",
    ),
    reason(
        "device base_gpu_id gpu_id_step",
        "is made from the placement; pool_config.devices says which GPUs the model may use",
    ),
    reason(
        "pp_size dp_size attn_dp_size attn_cp_size moe_dp_size dwdp_size nnodes node_rank dist_init_addr use_ray \
         elastic_ep_join_mode elastic_ep_join_rank_offset elastic_ep_initial_size max_ep_size",
        "is set by the pool from the placement, or not used: pool_config.nodes spreads a replica over several machines, and the pool starts more replicas instead of data parallel ranks",
    ),
    reason(
        "enable_memory_saver enable_weights_cpu_backup",
        "is set by pool_config.sleep",
    ),
    reason("enable_metrics", "is always on; the pool reads them"),
    reason(
        "tool_server sidecar sidecar_args",
        "is refused: it would let every client of the model run programs on this machine",
    ),
    reason(
        "delete_ckpt_after_loading",
        "is refused: the next load would find the weights missing",
    ),
];

const WARNED: &[FlagReason] = &[
    reason(
        "trust_remote_code",
        "is on: the model's own Python code runs with the rights of the pool's account; pin engine_config.revision and read that code",
    ),
    reason(
        "enable_custom_logit_processor trust_request_chat_template",
        "lets every user send code or templates that the engine runs",
    ),
    reason(
        "custom_weight_loader forward_hooks",
        "loads Python code into the engine; make sure that only administrators can write it",
    ),
    reason(
        "max_total_tokens",
        "sets the size of the cache: SGLang then does not fill the share that the pool assigns",
    ),
];

/// Generated from the sources of SGLang 0.5.23: every key, except the ones above and those for disaggregated serving.
#[rustfmt::skip]
const GROUPS: &[Group] = &[
    group(Kind::Integer(1, 100_000), "max_running_requests tokenizer_worker_num detokenizer_worker_num \
        stream_interval num_continuous_decode_steps max_loras_per_batch"),
    group(Kind::Text, "reasoning_parser tool_call_parser sampling_backend"),
    group(Kind::On, "disable_cuda_graph enable_dp_attention"),
    group(Kind::Switch, "dcp_replicate_q_proj dllm_fdfo enable_decoder_swa_bounded_replay \
        enable_dsa_fused_indexer enable_fused_qk_norm_rope enable_tf32_matmul enable_tp_lm_head_all_to_all \
        experts_shared_outer_loras lora_strict_loading mm_enable_dp_encoder ple_offload_embedding \
        speculative_enable_w4a4_mxfp4_megamoe"),
    group(Kind::On, "abort_on_priority_when_disabled allow_auto_truncate \
        checkpoint_engine_wait_weights_before_ready constrained_json_disable_any_whitespace debug_cuda_graph \
        disable_aiter_allreduce_fusion_in_decode disable_aiter_allreduce_fusion_in_prefill \
        disable_attn_tp_gather disable_chunked_prefix_cache disable_cuda_graph_padding \
        disable_custom_all_reduce disable_decode_cuda_graph disable_fast_image_processor \
        disable_flashinfer_autotune disable_flashinfer_cutlass_moe_fp4_allgather disable_hybrid_swa_memory \
        disable_outlines_disk_cache disable_overlap_schedule disable_prefill_cuda_graph \
        disable_priority_preemption disable_radix_cache disable_shared_experts_fusion \
        disable_tokenizer_batch_decode enable_adaptive_dispatch_to_encoder enable_aiter_allreduce_fusion \
        enable_amd_monokernel enable_attn_tp_input_scattered enable_broadcast_mm_inputs_process \
        enable_cache_report enable_cp_decode_attn_tp enable_cudagraph_gc enable_custom_logit_processor \
        enable_deepseek_v4_fp4_indexer enable_dense_mlp_attn_tp enable_deterministic_inference \
        enable_dp_attention_local_control_broadcast enable_dp_lm_head enable_draft_weights_cpu_backup \
        enable_dsa_cache_layer_split enable_dynamic_batch_tokenizer enable_dynamic_chunking \
        enable_elastic_expert_backup enable_encoder_swa_bounded_replay enable_eplb enable_flexkv \
        enable_forward_pass_metrics enable_fp32_lm_head enable_fused_moe_sum_all_reduce \
        enable_hierarchical_cache enable_hisparse enable_http2 enable_int8_mamba_checkpoint \
        enable_kv_cache_sharding enable_layernorm_sp enable_layerwise_nvtx_marker enable_lean_attention \
        enable_linear_replayssm enable_linear_replayssm_spec enable_linker_mla_dedup enable_lmcache \
        enable_lora enable_lora_overlap_loading enable_mamba_cache_stochastic_rounding \
        enable_megamoe_for_layernorm_sp enable_metrics_for_all_schedulers enable_mfu_metrics enable_mis \
        enable_mixed_chunk enable_mm_global_cache enable_mscclpp enable_multi_layer_eagle enable_multimodal \
        enable_nccl_nvls enable_nvidia_megakernel enable_p2p_check enable_page_major_kv_layout \
        enable_paged_experts enable_pd_role_switch enable_pdmux enable_precise_embedding_interpolation \
        enable_prefill_cp enable_prefill_delayer enable_prefix_mm_cache enable_priority_scheduling \
        enable_profile_cuda_graph enable_quant_communications enable_request_time_stats_logging \
        enable_response_store enable_return_aux_hidden_states enable_return_hidden_states \
        enable_return_indexer_topk enable_return_routed_experts enable_scattered_sconv \
        enable_session_radix_cache enable_shared_experts_attn_tp enable_single_batch_overlap \
        enable_streaming_session enable_strict_thinking enable_symm_mem enable_tokenizer_batch_encode \
        enable_torch_compile enable_torch_compile_debug_mode enable_torch_symm_mem enable_trace \
        enable_two_batch_overlap enable_unified_cache_external_linker enable_unified_memory \
        enable_w4a4_mxfp4_megamoe enable_waterfill enable_watermark \
        enforce_disable_flashinfer_allreduce_fusion enforce_shared_experts_fusion export_metrics_to_file \
        flashinfer_mla_disable_ragged incremental_streaming_output is_embedding language_model_only \
        language_only log_requests lora_use_virtual_experts mlx_enable_sampling pre_warm_nccl \
        prefill_only_disable_kv_cache quantize_and_serve return_input_ids return_output_ids \
        schedule_low_priority_values_first show_time_cost skip_server_warmup skip_tokenizer_init sleep_on_idle \
        speculative_adaptive speculative_dspark_align_verify_tokens_to_graph_tier \
        speculative_use_block_verification speculative_use_rejection_sampling \
        stream_response_default_include_usage strip_thinking_cache triton_attention_reduce_in_fp32 \
        trust_mm_content_hashes trust_remote_code trust_request_chat_template weight_loader_disable_mmap \
        weight_loader_drop_cache_after_load weight_loader_prefetch_checkpoints"),
    group(Kind::Count(1), "cuda_graph_prefill_max_context max_prefill_tokens max_total_tokens"),
    group(Kind::Integer(-1, 1 << 40), "asr_max_buffer_seconds asr_max_concurrent_sessions batch_notify_size \
        c128_page_size chunked_prefill_size constrained_json_max_whitespace_cnt cpu_offload_gb \
        cuda_graph_max_bs_decode cuda_graph_max_bs_prefill cuda_graph_max_seq_len_prefill dcp_size \
        decode_log_interval default_priority_value dist_timeout dynamic_batch_tokenizer_batch_size \
        engine_info_bootstrap_port ep_num_redundant_experts ep_size eplb_rebalance_layers_per_chunk \
        eplb_rebalance_num_iterations expert_distribution_recorder_buffer_size grpc_response_timeout_secs \
        hicache_size hicache_storage_prefetch_retry_max_attempts hicache_storage_prefetch_retry_poll_interval \
        http2_initial_connection_window_size http2_max_concurrent_streams int8_mamba_ckpt_size kt_cpuinfer \
        kt_max_deferred_experts_per_token kt_num_gpu_experts kt_threadpool_count kv_canary_sweep_interval \
        linear_replayssm_cache_len load_snapshot_publish_interval mamba_cache_philox_rounds \
        mamba_max_states_per_path mamba_track_interval max_loaded_loras max_lora_rank max_mamba_cache_size \
        max_queued_requests media_url_max_file_size_mb min_free_slots_delay mm_io_worker_num \
        mm_preprocess_cache_size_mb mm_processor_worker_num moe_dense_tp_size num_reserved_decode_tokens \
        offload_group_size offload_num_in_group offload_prefetch_step optimistic_prefill_attempts page_size \
        paged_experts_num_resident pp_async_batch_depth pp_max_micro_batch_size prefill_decode_interval \
        prefill_decode_interval_min_bs prefill_delayer_max_delay_passes prefill_max_requests \
        priority_scheduling_preemption_threshold random_seed sampling_mask_max_tokens scheduler_recv_interval \
        shared_experts_tp_size sm_group_num speculative_dflash_block_size \
        speculative_domino_candidate_pool_size speculative_draft_sink_size speculative_draft_window_size \
        speculative_dspark_block_size speculative_eagle_topk speculative_ngram_capacity \
        speculative_ngram_external_corpus_max_tokens speculative_ngram_external_sam_budget \
        speculative_ngram_max_bfs_breadth speculative_ngram_max_trie_depth speculative_ngram_min_bfs_breadth \
        speculative_num_draft_tokens speculative_num_steps swa_prefix_tails torch_compile_max_bs \
        triton_attention_num_kv_splits triton_attention_split_tile_size weight_cache_timeout \
        weight_loader_prefetch_num_threads"),
    group(Kind::Float(0.0, 1e9), "dynamic_batch_tokenizer_batch_timeout elastic_ep_scale_timeout \
        eplb_min_rebalancing_utilization_threshold gc_warning_threshold_secs hicache_host_memory_fraction \
        hicache_ratio lora_drain_wait_threshold mamba_full_memory_ratio prefill_delayer_max_delay_ms \
        prefill_delayer_queue_min_ratio prefill_delayer_token_usage_low_watermark schedule_conservativeness \
        soft_watchdog_timeout speculative_accept_threshold_acc speculative_accept_threshold_single \
        swa_full_tokens_ratio tbo_token_distribution_threshold watchdog_timeout"),
    group(Kind::Text, "attention_backend bf16_gemm_backend boundary_reduction chat_template \
        completion_template constrained_json_whitespace_pattern cp_strategy crash_dump_folder \
        cuda_graph_backend_decode cuda_graph_backend_prefill cuda_graph_config dcp_comm_backend \
        debug_tensor_dump_input_file debug_tensor_dump_output_folder decode_attention_backend \
        decrypted_config_file decrypted_draft_config_file deepep_config deepep_dispatcher_output_dtype \
        deepep_mode deepep_v2_mode dllm_algorithm dllm_algorithm_config download_dir dsa_decode_backend \
        dsa_paged_mqa_logits_backend dsa_prefill_backend dsa_topk_backend dsa_triton_union dsv4_attn_backend \
        dsv4_prefill_backend elastic_ep_backend ep_dispatch_algorithm eplb_algorithm \
        expert_balancedness_report_mode expert_distribution_recorder_mode export_metrics_to_file_dir \
        file_storage_path flashinfer_a2a_dispatch_type flashinfer_allreduce_fusion_backend \
        flashinfer_mxfp4_moe_precision flexkv_config_file forward_pass_metrics_ipc_name \
        forward_pass_metrics_worker_id fp4_gemm_backend fp8_gemm_backend fuseep_mode grammar_backend \
        hf_chat_template_name hicache_host_memory_mode hicache_io_backend hicache_mem_layout \
        hicache_storage_backend hicache_storage_backend_extra_config hicache_storage_prefetch_policy \
        hicache_write_policy hisparse_config image_processor_backend init_expert_location \
        json_model_override_args kt_method kt_weight_path kv_canary kv_events_config linear_attn_backend \
        linear_attn_decode_backend linear_attn_prefill_backend linear_attn_verify_backend lmcache_config_file \
        load_balance_method load_format load_publish_endpoint log_level log_level_http log_requests_format \
        log_requests_level lora_backend mamba_backend mamba_radix_cache_strategy mamba_ssm_dtype \
        max_lora_chunk_size mm_attention_backend mm_feature_transport mm_global_cache_backend model_checksum \
        model_config_parser model_impl model_loader_extra_config modelexpress_config \
        modelopt_checkpoint_restore_path modelopt_checkpoint_save_path modelopt_export_path moe_a2a_backend \
        moe_runner_backend mooncake_ib_device msprobe_dump_config offload_mode otlp_service_name \
        otlp_traces_endpoint pdmux_config_path ple_offload_backend ple_offload_dir prefill_attention_backend \
        prefill_kv_cache_dequant_dtype qsa_indexer_dtype quantization quantization_param_path \
        radix_cache_backend radix_eviction_policy return_hidden_states_mode rl_on_policy_target \
        rl_quant_profile sampling_defaults schedule_policy spec_trace_dir speculative_adaptive_config \
        speculative_algorithm speculative_attention_mode speculative_draft_attention_backend \
        speculative_draft_kv_cache_dtype speculative_draft_load_format speculative_draft_model_path \
        speculative_draft_model_quantization speculative_draft_model_revision speculative_dsa_topk_backend \
        speculative_dspark_confidence_sts_path speculative_dspark_sps_table_path speculative_moe_a2a_backend \
        speculative_moe_runner_backend speculative_ngram_external_corpus_path speculative_ngram_match_type \
        speculative_token_map startup_weight_load_mode tokenizer_backend \
        tokenizer_metrics_custom_labels_header tokenizer_path trace_modules \
        unified_cache_external_linker_backend uno_lora_path warmups watermark_config weight_cache_mode \
        weight_cache_socket weight_version"),
    group(Kind::List, "allowed_media_domains bucket_e2e_request_latency bucket_inter_token_latency \
        bucket_time_to_first_token cuda_graph_bs_decode cuda_graph_bs_prefill custom_weight_loader \
        debug_tensor_dump_layers flashinfer_autotune_skip_ops gc_threshold generation_tokens_buckets \
        log_requests_target lora_paths lora_target_modules numa_node prefill_delayer_forward_passes_buckets \
        prefill_delayer_wait_seconds_buckets prompt_tokens_buckets return_aux_hidden_state_layer_ids \
        tokenizer_metrics_allowed_custom_labels uvicorn_access_log_exclude_prefixes"),
    group(Kind::Json, "default_chat_template_kwargs extra_metric_labels forward_hooks \
        limit_mm_data_per_request mm_process_config modelopt_quant preferred_sampling_params \
        radix_eviction_policy_config unified_cache_external_linker_config"),
    group(Kind::OneOf("lru fifo"), "lora_eviction_policy"),
    group(Kind::OneOf("auto half float16 bfloat16 float float32"), "dtype"),
    group(Kind::OneOf("auto fp8_e5m2 fp8_e4m3 mxfp8 bf16 bfloat16 nvfp4 fp4_mx_block16"), "kv_cache_dtype"),
    group(Kind::OneOf("length priority"), "retraction_policy"),
    group(Kind::OneOf("auto slow"), "tokenizer_mode"),
];

#[cfg(test)]
mod tests;
