"""Owns the shapes of the tiny decoders: one configuration for each family, written as the published ones are. Never computes.

Numbers are chosen so that a variation shows within 168 tokens: windows, first contexts of scaled ropes and caps are far
smaller than those of published models.
"""

BASE = {
    "vocab_size": 256,
    "hidden_size": 64,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def config(architecture, model_type, *without, **changes):
    made = {"architectures": [architecture], "model_type": model_type, **BASE, **changes}
    return {name: value for name, value in made.items() if name not in without}


def llama(**changes):
    return config("LlamaForCausalLM", "llama", **changes)


LLAMA3_SCALING = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN_SCALING = {
    "rope_type": "yarn",
    "factor": 8.0,
    "beta_fast": 4.0,
    "beta_slow": 0.5,
    "original_max_position_embeddings": 64,
}
# Half of 16 turned numbers, each with a divisor of its own.
SHORT_FACTORS = [1.0, 1.02, 1.05, 1.1, 1.2, 1.3, 1.4, 1.5]
LONG_FACTORS = [1.0, 1.3, 1.9, 2.8, 4.0, 5.5, 7.0, 8.0]


def phi3(**changes):
    return config(
        "Phi3ForCausalLM", "phi3", **{"pad_token_id": 0, "sliding_window": None, "attention_bias": False, **changes}
    )


def phi3_long(first_context, **changes):
    turned = {"short_factor": SHORT_FACTORS, "long_factor": LONG_FACTORS, "type": "longrope"}
    return phi3(rope_scaling=turned, original_max_position_embeddings=first_context, **changes)


def gpt(architecture, model_type, **changes):
    """GPT-J's and GPT-2's fields, which are called otherwise."""
    return {
        "architectures": [architecture],
        "model_type": model_type,
        "vocab_size": 256,
        "n_embd": 64,
        "n_head": 4,
        "n_layer": 2,
        "n_positions": 512,
        "n_inner": None,
        "activation_function": "gelu_new",
        "layer_norm_epsilon": 1e-5,
        "bos_token_id": 0,
        "eos_token_id": 0,
        **changes,
    }


def neox(**changes):
    return {
        "architectures": ["GPTNeoXForCausalLM"],
        "model_type": "gpt_neox",
        "vocab_size": 256,
        "hidden_size": 64,
        "intermediate_size": 160,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": 512,
        "layer_norm_eps": 1e-5,
        "hidden_act": "gelu",
        "rotary_pct": 0.25,
        "rotary_emb_base": 10000,
        "use_parallel_residual": True,
        "tie_word_embeddings": False,
        "bos_token_id": 0,
        "eos_token_id": 0,
        **changes,
    }


GEMMA = {"head_dim": 16, "hidden_act": "gelu_pytorch_tanh", "tie_word_embeddings": True, "rms_norm_eps": 1e-6}
DEEPSEEK = {
    "kv_lora_rank": 32,
    "q_lora_rank": 24,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 12,
    "num_key_value_heads": 4,
    "first_k_dense_replace": 1,
    "moe_intermediate_size": 24,
    "n_routed_experts": 8,
    "n_shared_experts": 2,
    "num_experts_per_tok": 3,
    "moe_layer_freq": 1,
    "attention_bias": False,
}
DEEPSEEK_YARN = {
    "type": "yarn",
    "factor": 8,
    "beta_fast": 4,
    "beta_slow": 1,
    "mscale": 0.707,
    "mscale_all_dim": 0.5,
    "original_max_position_embeddings": 64,
}

# name -> (configuration, how weights are stored, other facts: shards, hidden states kept, contrastive continuations kept, names
# without their prefix)
MODELS = {
    "llama": (llama(num_key_value_heads=4), "F32", {"hidden": True}),
    "llama3": (llama(rope_scaling=LLAMA3_SCALING, tie_word_embeddings=True), "BF16", {"shards": 3}),
    "llama-biased": (
        llama(attention_bias=True, mlp_bias=True, head_dim=24, num_key_value_heads=1, hidden_act="gelu"),
        "BF16",
        {},
    ),
    "llama-linear": (llama(rope_scaling={"type": "linear", "factor": 4.0}), "F16", {}),
    "llama-yarn": (llama(rope_theta=1000.0, rope_scaling=YARN_SCALING), "BF16", {}),
    "llama-new-config": (
        config(
            "LlamaForCausalLM",
            "llama",
            "rope_theta",
            rope_parameters={"rope_theta": 5000.0, **LLAMA3_SCALING},
            dtype="bfloat16",
        ),
        "BF16",
        {},
    ),
    "llama-wide": (
        llama(hidden_size=256, intermediate_size=256, num_hidden_layers=2, num_key_value_heads=1, head_dim=64),
        "BF16",
        {},
    ),
    "mistral": (
        config("MistralForCausalLM", "mistral", num_hidden_layers=3, sliding_window=16, head_dim=32),
        "BF16",
        {"hidden": True},
    ),
    "mixtral": (
        config(
            "MixtralForCausalLM",
            "mixtral",
            sliding_window=None,
            num_local_experts=4,
            num_experts_per_tok=2,
            intermediate_size=48,
            rope_theta=1000000.0,
        ),
        "BF16",
        {},
    ),
    "qwen2": (
        config(
            "Qwen2ForCausalLM",
            "qwen2",
            tie_word_embeddings=True,
            use_sliding_window=False,
            sliding_window=16,
            max_window_layers=1,
            rope_theta=1000000.0,
        ),
        "BF16",
        {},
    ),
    "qwen2-windowed": (
        config("Qwen2ForCausalLM", "qwen2", num_hidden_layers=3, use_sliding_window=True, sliding_window=16, max_window_layers=1),
        "BF16",
        {},
    ),
    "qwen2-moe": (
        config(
            "Qwen2MoeForCausalLM",
            "qwen2_moe",
            num_hidden_layers=3,
            decoder_sparse_step=1,
            mlp_only_layers=[1],
            moe_intermediate_size=24,
            shared_expert_intermediate_size=40,
            num_experts=6,
            num_experts_per_tok=2,
            norm_topk_prob=False,
            use_sliding_window=False,
            sliding_window=16,
            max_window_layers=1,
        ),
        "BF16",
        {},
    ),
    "qwen3": (
        config("Qwen3ForCausalLM", "qwen3", head_dim=24, attention_bias=False, tie_word_embeddings=True),
        "BF16",
        {"hidden": True},
    ),
    "qwen3-moe": (
        config(
            "Qwen3MoeForCausalLM",
            "qwen3_moe",
            head_dim=24,
            attention_bias=False,
            decoder_sparse_step=1,
            mlp_only_layers=[],
            moe_intermediate_size=24,
            num_experts=8,
            num_experts_per_tok=3,
            norm_topk_prob=True,
        ),
        "BF16",
        {"shards": 2},
    ),
    # "gelu" is what the first published files say; the tanh approximation is meant.
    "gemma": (config("GemmaForCausalLM", "gemma", **{**GEMMA, "hidden_act": "gelu"}), "BF16", {}),
    "gemma2": (
        config(
            "Gemma2ForCausalLM",
            "gemma2",
            **GEMMA,
            hidden_activation="gelu_pytorch_tanh",
            num_hidden_layers=4,
            sliding_window=16,
            query_pre_attn_scalar=12,
            attn_logit_softcapping=4.0,
            final_logit_softcapping=6.0,
        ),
        "BF16",
        {"hidden": True},
    ),
    "gemma3": (
        config(
            "Gemma3ForCausalLM",
            "gemma3_text",
            "hidden_act",
            **GEMMA,
            hidden_activation="gelu_pytorch_tanh",
            num_hidden_layers=4,
            sliding_window=16,
            sliding_window_pattern=3,
            query_pre_attn_scalar=20,
            rope_theta=1000000.0,
            rope_local_base_freq=10000.0,
            rope_scaling={"rope_type": "linear", "factor": 8.0},
        ),
        "BF16",
        {"hidden": True},
    ),
    "phi3": (phi3(sliding_window=24, num_key_value_heads=4), "BF16", {}),
    "phi3-short": (phi3_long(256), "BF16", {}),
    "phi3-long": (phi3_long(32), "BF16", {}),
    "phi4-partial": (
        phi3_long(
            32, num_attention_heads=2, num_key_value_heads=1, partial_rotary_factor=0.5, tie_word_embeddings=True
        ),
        "BF16",
        {},
    ),
    "smollm3": (
        config(
            "SmolLM3ForCausalLM",
            "smollm3",
            num_hidden_layers=4,
            no_rope_layers=[1, 0, 1, 0],
            no_rope_layer_interval=2,
            pad_token_id=0,
            tie_word_embeddings=True,
            use_sliding_window=False,
            sliding_window=None,
            attention_bias=False,
            mlp_bias=False,
            rope_theta=50000.0,
        ),
        "BF16",
        {},
    ),
    "olmo2": (config("Olmo2ForCausalLM", "olmo2", attention_bias=False), "BF16", {}),
    "granite": (
        config(
            "GraniteForCausalLM",
            "granite",
            embedding_multiplier=6.0,
            residual_multiplier=0.4,
            attention_multiplier=0.125,
            logits_scaling=2.0,
            tie_word_embeddings=True,
        ),
        "BF16",
        {},
    ),
    "deepseek2": (
        config(
            "DeepseekV2ForCausalLM",
            "deepseek_v2",
            num_hidden_layers=3,
            **{**DEEPSEEK, "q_lora_rank": None},
            n_group=1,
            topk_group=1,
            topk_method="greedy",
            norm_topk_prob=False,
            routed_scaling_factor=1.0,
            scoring_func="softmax",
            rope_scaling=DEEPSEEK_YARN,
        ),
        "BF16",
        {},
    ),
    "deepseek2-grouped": (
        config(
            "DeepseekV2ForCausalLM",
            "deepseek_v2",
            num_hidden_layers=3,
            **DEEPSEEK,
            n_group=4,
            topk_group=2,
            topk_method="group_limited_greedy",
            norm_topk_prob=False,
            routed_scaling_factor=4.0,
            scoring_func="softmax",
        ),
        "BF16",
        {},
    ),
    "gpt-j": (
        gpt("GPTJForCausalLM", "gptj", rotary_dim=8, tie_word_embeddings=False),
        "F16",
        {"hidden": True, "contrastive": True},
    ),
    "gpt-neox": (neox(), "F16", {"hidden": True}),
    "gpt-neox-in-turn": (
        neox(use_parallel_residual=False, attention_bias=False, rotary_pct=0.5, rotary_emb_base=500, hidden_act="gelu_new"),
        "BF16",
        {"shards": 2},
    ),
    "gpt2": (gpt("GPT2LMHeadModel", "gpt2", tie_word_embeddings=True), "F32", {"hidden": True}),
    "gpt2-scaled": (
        gpt(
            "GPT2LMHeadModel",
            "gpt2",
            tie_word_embeddings=False,
            n_inner=96,
            n_layer=3,
            scale_attn_by_inverse_layer_idx=True,
            activation_function="gelu",
        ),
        "BF16",
        {"bare": True},
    ),
    "deepseek3": (
        config(
            "DeepseekV3ForCausalLM",
            "deepseek_v3",
            num_hidden_layers=3,
            **DEEPSEEK,
            n_group=4,
            topk_group=2,
            topk_method="noaux_tc",
            norm_topk_prob=True,
            routed_scaling_factor=2.5,
            scoring_func="sigmoid",
            rope_scaling={**DEEPSEEK_YARN, "mscale": 1.0, "mscale_all_dim": 1.0},
        ),
        "BF16",
        {},
    ),
}

# Changes of a configuration that must change what is computed: otherwise a vector would not show what it is for.
SHOWN = {
    "llama3": [{"rope_scaling": None}],
    "llama-biased": [{"hidden_act": "silu"}],
    "llama-linear": [{"rope_scaling": None}],
    "llama-yarn": [{"rope_scaling": None}, {"rope_scaling": {**YARN_SCALING, "attention_factor": 1.0}}],
    "llama-new-config": [{"rope_parameters": {"rope_theta": 5000.0, "rope_type": "default"}}],
    "mistral": [{"sliding_window": None}, {"sliding_window": 15}],
    "mixtral": [{"num_experts_per_tok": 3}],
    "qwen2-windowed": [{"use_sliding_window": False}, {"max_window_layers": 2}],
    "qwen2-moe": [{"norm_topk_prob": True}],
    "qwen3-moe": [{"norm_topk_prob": False}],
    "gemma": [{"hidden_act": "silu"}],
    "gemma2": [
        {"sliding_window": 15},
        {"query_pre_attn_scalar": 16},
        {"attn_logit_softcapping": None},
        {"final_logit_softcapping": None},
    ],
    "gemma3": [{"sliding_window": 15}, {"rope_scaling": None}, {"rope_local_base_freq": 1000000.0}],
    "phi3": [{"sliding_window": None}],
    "phi3-short": [{"rope_scaling": None}, {"original_max_position_embeddings": 32}],
    "phi3-long": [{"rope_scaling": None}, {"original_max_position_embeddings": 256}],
    "phi4-partial": [{"original_max_position_embeddings": 256}],
    "smollm3": [{"no_rope_layers": [1, 1, 1, 1]}],
    "gpt-j": [{"rotary_dim": 16}, {"activation_function": "silu"}],
    "gpt-neox": [{"use_parallel_residual": False}, {"rotary_pct": 1.0}, {"hidden_act": "silu"}],
    "gpt-neox-in-turn": [{"use_parallel_residual": True}, {"rotary_emb_base": 10000}],
    "gpt2": [{"activation_function": "silu"}],
    "gpt2-scaled": [{"scale_attn_by_inverse_layer_idx": False}],
    "granite": [
        {"embedding_multiplier": 5.0},
        {"residual_multiplier": 0.5},
        {"attention_multiplier": 0.25},
        {"logits_scaling": 1.0},
    ],
    "deepseek2": [{"rope_scaling": None}, {"num_experts_per_tok": 2}, {"routed_scaling_factor": 2.0}],
    "deepseek2-grouped": [{"topk_group": 3}, {"topk_method": "greedy"}],
    "deepseek3": [{"rope_scaling": None}, {"topk_group": 3}, {"norm_topk_prob": False}],
}


# The models below are smaller: the library computes them, and they show that its networks and their wrapping are right.
SMALL = {
    "vocab_size": 64,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "bos_token_id": 0,
    "eos_token_id": 0,
}


def small(architecture, model_type, **changes):
    return {"architectures": [architecture], "model_type": model_type, **SMALL, **changes}


def falcon(**changes):
    return small(
        "FalconForCausalLM",
        "falcon",
        **{
            "alibi": False,
            "bias": False,
            "multi_query": True,
            "new_decoder_architecture": False,
            "parallel_attn": True,
            "layer_norm_epsilon": 1e-5,
            "tie_word_embeddings": True,
            **changes,
        },
    )


STARCODER2 = {
    "intermediate_size": 40,
    "num_key_value_heads": 1,
    "hidden_act": "gelu_pytorch_tanh",
    "max_position_embeddings": 512,
    "norm_epsilon": 1e-5,
    "rope_theta": 5000.0,
    "use_bias": True,
    "sliding_window": 256,
    "tie_word_embeddings": True,
}
STABLELM = {
    "intermediate_size": 40,
    "num_key_value_heads": 1,
    "hidden_act": "silu",
    "max_position_embeddings": 512,
    "layer_norm_eps": 1e-5,
    "partial_rotary_factor": 0.5,
    "rope_theta": 5000.0,
    "use_qkv_bias": True,
    "use_parallel_residual": False,
    "qk_layernorm": False,
    "tie_word_embeddings": False,
}
PHI = {
    "intermediate_size": 40,
    "hidden_act": "gelu_new",
    "max_position_embeddings": 512,
    "layer_norm_eps": 1e-5,
    "partial_rotary_factor": 0.5,
    "rope_theta": 5000.0,
    "qk_layernorm": False,
    "tie_word_embeddings": False,
}
OLMO = {
    "intermediate_size": 40,
    "num_key_value_heads": 1,
    "hidden_act": "silu",
    "max_position_embeddings": 512,
    "rope_theta": 5000.0,
    "attention_bias": False,
    "clip_qkv": 1.5,
    "pad_token_id": 1,
    "tie_word_embeddings": False,
}
GLM4 = {
    "intermediate_size": 40,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "hidden_act": "silu",
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "partial_rotary_factor": 0.5,
    "rope_theta": 5000.0,
    "attention_bias": True,
    "pad_token_id": 1,
    "tie_word_embeddings": False,
}
LFM2 = {
    "block_ff_dim": 48,
    "block_auto_adjust_ff_dim": True,
    "block_ffn_dim_multiplier": 1.0,
    "block_multiple_of": 8,
    "conv_L_cache": 3,
    "conv_bias": False,
    "layer_types": ["conv", "full_attention"],
    "max_position_embeddings": 512,
    "norm_eps": 1e-5,
    "num_key_value_heads": 1,
    "rope_theta": 5000.0,
    "tie_embedding": True,
    "tie_word_embeddings": True,
}
T5 = {
    "architectures": ["T5ForConditionalGeneration"],
    "model_type": "t5",
    "vocab_size": 64,
    "d_model": 16,
    "d_kv": 8,
    "d_ff": 40,
    "num_heads": 2,
    "num_layers": 3,
    "num_decoder_layers": 2,
    "relative_attention_num_buckets": 32,
    "relative_attention_max_distance": 128,
    "feed_forward_proj": "relu",
    "layer_norm_epsilon": 1e-6,
    "n_positions": 256,
    "is_encoder_decoder": True,
    "decoder_start_token_id": 0,
    "pad_token_id": 0,
    "eos_token_id": 1,
    "tie_word_embeddings": True,
}
MARIAN = {
    "architectures": ["MarianMTModel"],
    "model_type": "marian",
    "vocab_size": 64,
    "decoder_vocab_size": 64,
    "d_model": 16,
    "encoder_layers": 3,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 40,
    "decoder_ffn_dim": 48,
    "activation_function": "swish",
    "max_position_embeddings": 192,
    "scale_embedding": True,
    "share_encoder_decoder_embeddings": True,
    "tie_word_embeddings": True,
    "is_encoder_decoder": True,
    "decoder_start_token_id": 63,
    "pad_token_id": 63,
    "eos_token_id": 0,
    "forced_eos_token_id": 0,
}
MAMBA2 = {
    "architectures": ["Mamba2ForCausalLM"],
    "model_type": "mamba2",
    "vocab_size": 64,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_heads": 4,
    "head_dim": 8,
    "n_groups": 2,
    "state_size": 8,
    "conv_kernel": 4,
    "chunk_size": 16,
    "expand": 2,
    "use_bias": False,
    "use_conv_bias": True,
    "hidden_act": "silu",
    "layer_norm_epsilon": 1e-5,
    "tie_word_embeddings": False,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "pad_token_id": 0,
}

# As MODELS, computed through candle's library.
LIBRARY = {
    "falcon": (falcon(), "BF16", {}),
    "falcon-grouped": (
        falcon(new_decoder_architecture=True, num_attention_heads=4, num_kv_heads=2, bias=True),
        "BF16",
        {},
    ),
    "mpt": (
        {
            "architectures": ["MptForCausalLM"],
            "model_type": "mpt",
            "vocab_size": 64,
            "d_model": 12,
            "n_heads": 3,
            "n_layers": 2,
            "expansion_ratio": 4,
            "max_seq_len": 512,
            "attn_config": {"alibi": True, "alibi_bias_max": 8, "attn_type": "multihead_attention", "clip_qkv": 1.5},
            "no_bias": True,
            "tie_word_embeddings": True,
            "bos_token_id": 0,
            "eos_token_id": 0,
        },
        "BF16",
        {},
    ),
    "starcoder": (
        {
            **gpt("GPTBigCodeForCausalLM", "gpt_bigcode", multi_query=True, tie_word_embeddings=True),
            "vocab_size": 64,
            "n_embd": 16,
            "n_head": 2,
            "n_positions": 192,
            "n_inner": 40,
            "activation_function": "gelu_pytorch_tanh",
        },
        "BF16",
        {"tokenizer": True},
    ),
    "starcoder2": (small("Starcoder2ForCausalLM", "starcoder2", **STARCODER2), "BF16", {}),
    "stablelm": (small("StableLmForCausalLM", "stablelm", **STABLELM), "BF16", {}),
    "phi": (small("PhiForCausalLM", "phi", **PHI), "F16", {}),
    "olmo": (small("OlmoForCausalLM", "olmo", **OLMO), "BF16", {}),
    "lfm2": (small("Lfm2ForCausalLM", "lfm2", **LFM2), "BF16", {}),
    "glm4": (small("Glm4ForCausalLM", "glm4", **GLM4), "BF16", {}),
    "mamba": (
        {
            "architectures": ["MambaForCausalLM"],
            "model_type": "mamba",
            "vocab_size": 64,
            "hidden_size": 16,
            "num_hidden_layers": 2,
            "state_size": 16,
            "conv_kernel": 4,
            "expand": 2,
            "time_step_rank": 1,
            "use_bias": False,
            "use_conv_bias": True,
            "hidden_act": "silu",
            "layer_norm_epsilon": 1e-5,
            "tie_word_embeddings": True,
            "bos_token_id": 0,
            "eos_token_id": 0,
        },
        "BF16",
        {},
    ),
}

LIBRARY |= {
    # Its translators never write the padding token.
    "marian": (MARIAN, "BF16", {"suppressed": 63}),
    "mamba2": (MAMBA2, "BF16", {}),
    "mamba2-tied": ({**MAMBA2, "n_groups": 1, "use_bias": True, "tie_word_embeddings": True}, "BF16", {}),
    "t5": (T5, "BF16", {"tokenizer": "unigram"}),
    "t5-gated": (
        {
            **T5,
            "feed_forward_proj": "gated-gelu",
            "tie_word_embeddings": False,
            "relative_attention_num_buckets": 16,
            "relative_attention_max_distance": 40,
        },
        "BF16",
        {},
    ),
}

SHOWN |= {
    "mamba2": [{"layer_norm_epsilon": 0.5}],
    "marian": [{"scale_embedding": False}, {"activation_function": "relu"}],
    "t5": [{"relative_attention_max_distance": 64}],
    "t5-gated": [{"feed_forward_proj": "gated-silu"}, {"relative_attention_max_distance": 128}],
    "falcon": [{"rope_theta": 100.0}],
    "mpt": [{"attn_config": {"alibi": True}}],
    "starcoder": [{"activation_function": "silu"}],
    "stablelm": [{"partial_rotary_factor": 1.0}],
    "phi": [{"partial_rotary_factor": 1.0}],
    "olmo": [{"clip_qkv": None}],
    "glm4": [{"partial_rotary_factor": 1.0}],
}
