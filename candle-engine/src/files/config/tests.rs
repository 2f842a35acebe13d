//! Tests the `config.json` reader on small configurations of each family; complete models are covered by the test vectors.
//! One file because every test describes one small configuration.

use super::*;
use crate::spec::{ExpertGroups, RopeScaling, Scoring};
use serde_json::json;

/// A small configuration of a family; fields in `more` override it.
fn config(architecture: &str, more: Value) -> Value {
    let mut config = json!({
        "architectures": [architecture], "vocab_size": 100, "hidden_size": 64, "intermediate_size": 80,
        "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512,
    });
    for (name, value) in more.as_object().expect("an object") {
        config[name] = value.clone();
    }
    config
}

fn described(architecture: &str, more: Value) -> Spec {
    spec(&config(architecture, more)).expect("a description")
}

fn problem(architecture: &str, more: Value) -> String {
    spec(&config(architecture, more)).expect_err("must be refused")
}

fn windows(spec: &Spec) -> Vec<Option<usize>> {
    spec.blocks.iter().map(|block| block.window).collect()
}

fn rope_of(architecture: &str, scaling: Value) -> Rope {
    described(architecture, json!({"rope_scaling": scaling})).ropes[0].clone()
}

#[test]
fn both_forms_of_rope_say_the_same() {
    let old = described(
        "LlamaForCausalLM",
        json!({"rope_theta": 500_000.0, "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 64}}),
    );
    let new = described(
        "LlamaForCausalLM",
        json!({"rope_parameters": {"rope_theta": 500_000.0, "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 64}}),
    );
    assert_eq!(old, new);
    assert_eq!(old.ropes[0].theta, 500_000.0);
    assert_eq!(
        old.ropes[0].scaling,
        RopeScaling::Llama3 {
            factor: 8.0,
            low_frequency_factor: 1.0,
            high_frequency_factor: 4.0,
            first_context_tokens: 64
        }
    );
    let oldest = rope_of("LlamaForCausalLM", json!({"type": "linear", "factor": 2}));
    assert_eq!(oldest.scaling, RopeScaling::Linear { factor: 2.0 });
    let dynamic = rope_of("LlamaForCausalLM", json!({"type": "dynamic", "factor": 2}));
    assert_eq!(dynamic.scaling, RopeScaling::None);
}

#[test]
fn the_amplitude_of_yarn_is_given_or_comes_from_the_factor() {
    let amplitude = |scaling: Value| match rope_of("Qwen2ForCausalLM", scaling).scaling {
        RopeScaling::Yarn {
            amplitude,
            fast_turns,
            slow_turns,
            truncates,
            ..
        } => (amplitude, fast_turns, slow_turns, truncates),
        other => panic!("{other:?}"),
    };
    let ln_four = 0.1 * 4.0_f32.ln() + 1.0;
    assert_eq!(
        amplitude(json!({"rope_type": "yarn", "factor": 4.0})),
        (ln_four, 32.0, 1.0, true)
    );
    assert_eq!(
        amplitude(
            json!({"rope_type": "yarn", "factor": 4.0, "attention_factor": 0.5, "beta_fast": 8, "beta_slow": 2, "truncate": false})
        ),
        (0.5, 8.0, 2.0, false)
    );
    let both = amplitude(
        json!({"rope_type": "yarn", "factor": 4.0, "mscale": 2.0, "mscale_all_dim": 1.0}),
    );
    assert!((both.0 - (0.2 * 4.0_f32.ln() + 1.0) / ln_four).abs() < 1e-6);
}

#[test]
fn deepseek_scales_scores_by_the_square_of_its_amplitude() {
    let more = json!({"qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 12, "num_experts_per_tok": 2, "n_routed_experts": 8,
        "n_group": 4, "topk_group": 2, "q_lora_rank": null, "first_k_dense_replace": 1, "moe_intermediate_size": 24,
        "rope_scaling": {"type": "yarn", "factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0, "original_max_position_embeddings": 64}});
    let spec = described("DeepseekV3ForCausalLM", more.clone());
    let amplitude = 0.1 * 40.0_f64.ln() + 1.0;
    let expected = amplitude * amplitude / 24.0_f64.sqrt();
    assert!((f64::from(spec.attention.score_factor) - expected).abs() < 1e-6);
    assert_eq!(
        (spec.key_width, spec.value_width, spec.key_value_heads),
        (24, 12, 4)
    );
    assert!(spec.ropes[0].interleaved && spec.ropes[0].turned_width == 8);
    assert!(matches!(spec.blocks[0].feed_forward, FeedForward::Gated(_)));
    let FeedForward::Experts(experts) = &spec.blocks[1].feed_forward else {
        panic!("the second block has experts");
    };
    assert_eq!(experts.scoring, Scoring::Sigmoid);
    assert_eq!((experts.factor, experts.shared_width), (2.5, Some(24)));
    assert_eq!(
        experts.groups,
        Some(ExpertGroups {
            count: 4,
            chosen: 2,
            by_two_best: true
        })
    );
    let second = described("DeepseekV2ForCausalLM", more);
    let FeedForward::Experts(experts) = &second.blocks[1].feed_forward else {
        panic!("the second block has experts");
    };
    assert_eq!((experts.scoring, experts.groups), (Scoring::Softmax, None));
    assert!(!experts.normalises_chosen);
}

#[test]
fn long_ropes_need_a_divisor_for_each_pair_and_phi_turns_a_part() {
    let phi = |short: usize| {
        json!({"partial_rotary_factor": 0.75, "original_max_position_embeddings": 64, "num_key_value_heads": 4,
            "rope_scaling": {"type": "su", "short_factor": vec![1.0; short], "long_factor": vec![2.0; 6]}})
    };
    let spec = described("Phi3ForCausalLM", phi(6));
    assert_eq!(spec.ropes[0].turned_width, 12);
    assert_eq!(spec.attention.projections, Projections::Fused);
    let amplitude = (1.0 + 8.0_f32.ln() / 64.0_f32.ln()).sqrt();
    assert_eq!(
        spec.ropes[0].scaling,
        RopeScaling::Long {
            short: vec![1.0; 6],
            long: vec![2.0; 6],
            first_context_tokens: 64,
            amplitude
        }
    );
    let found = problem("Phi3ForCausalLM", phi(8));
    assert!(
        found.contains("short_factor has 8 numbers, the heads need 6"),
        "{found}"
    );
}

#[test]
fn gemma_3_says_the_same_in_both_forms_and_with_a_file_of_a_model_that_sees() {
    let old = described(
        "Gemma3ForCausalLM",
        json!({"sliding_window": 16, "sliding_window_pattern": 2, "rope_theta": 1e6, "rope_local_base_freq": 5000.0, "head_dim": 16,
            "rope_scaling": {"rope_type": "linear", "factor": 8.0}}),
    );
    let kinds = [
        "sliding_attention",
        "full_attention",
        "sliding_attention",
        "full_attention",
    ];
    let new = described(
        "Gemma3ForCausalLM",
        json!({"sliding_window": 16, "layer_types": kinds, "head_dim": 16, "rope_parameters": {
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
            "sliding_attention": {"rope_type": "default", "rope_theta": 5000.0}}}),
    );
    assert_eq!(old, new);
    assert_eq!(windows(&old), [Some(16), None, Some(16), None]);
    let ropes: Vec<_> = old.blocks.iter().map(|block| block.rope).collect();
    assert_eq!(ropes, [Some(1), Some(0), Some(1), Some(0)]);
    assert_eq!(old.ropes[0].scaling, RopeScaling::Linear { factor: 8.0 });
    assert_eq!(
        (old.ropes[1].theta, old.ropes[1].scaling.clone()),
        (5000.0, RopeScaling::None)
    );
    // The decoder fields of a published model of four billion parameters, which omit most values.
    let seeing = json!({"architectures": ["Gemma3ForConditionalGeneration"], "text_config": {"hidden_size": 2560,
        "intermediate_size": 10240, "num_hidden_layers": 34, "sliding_window": 1024,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"}}, "vision_config": {"hidden_size": 1152}});
    let seeing = spec(&seeing).expect("a description");
    assert_eq!(
        (
            seeing.heads,
            seeing.key_value_heads,
            seeing.key_width,
            seeing.vocabulary
        ),
        (8, 4, 256, 262_208)
    );
    assert_eq!((seeing.context_tokens, seeing.ties_head), (131_072, true));
    assert_eq!(seeing.attention.score_factor, 1.0 / 16.0);
    assert_eq!(seeing.embedding_factor, 2560.0_f32.sqrt());
    assert_eq!((seeing.ropes[0].theta, seeing.ropes[1].theta), (1e6, 1e4));
}

#[test]
fn windows_follow_each_familys_own_rule() {
    let of = |architecture, more| windows(&described(architecture, more));
    let all = |window| vec![window; 4];
    // Mistral has a window if its file omits the field, and none if the field is null.
    let long = json!({"max_position_embeddings": 8192});
    assert_eq!(of("MistralForCausalLM", long), all(Some(4096)));
    assert_eq!(
        of("MistralForCausalLM", json!({"sliding_window": null})),
        all(None)
    );
    assert_eq!(
        of("LlamaForCausalLM", json!({"sliding_window": 8})),
        all(None)
    );
    let request = json!({"use_sliding_window": true, "sliding_window": 8, "max_window_layers": 3});
    assert_eq!(
        of("Qwen2ForCausalLM", request.clone()),
        [None, None, None, Some(8)]
    );
    assert_eq!(
        of("Qwen3ForCausalLM", json!({"sliding_window": 8})),
        all(None)
    );
    assert_eq!(of("Qwen3MoeForCausalLM", request), all(Some(8)));
    assert_eq!(
        of("Gemma2ForCausalLM", json!({"sliding_window": 8})),
        [Some(8), None, Some(8), None]
    );
    assert_eq!(
        of(
            "Phi3ForCausalLM",
            json!({"sliding_window": 8, "num_key_value_heads": 4})
        ),
        all(Some(8))
    );
    // A window larger than the context has no effect.
    assert_eq!(
        of("MistralForCausalLM", json!({"sliding_window": 512})),
        all(None)
    );
    let kinds = [
        "full_attention",
        "sliding_attention",
        "full_attention",
        "full_attention",
    ];
    assert_eq!(
        of(
            "Qwen3ForCausalLM",
            json!({"use_sliding_window": true, "sliding_window": 8, "layer_types": kinds})
        ),
        [None, Some(8), None, None]
    );
}

#[test]
fn what_sets_a_family_apart_is_described() {
    let smol = described("SmolLM3ForCausalLM", json!({}));
    let turns: Vec<_> = smol.blocks.iter().map(|block| block.rope).collect();
    assert_eq!(turns, [Some(0), Some(0), Some(0), None]);
    let smol = described(
        "SmolLM3ForCausalLM",
        json!({"no_rope_layers": [1, 0, 1, 0]}),
    );
    assert_eq!(smol.blocks[1].rope, None);
    let gemma = described("Gemma2ForCausalLM", json!({"query_pre_attn_scalar": 20}));
    assert_eq!(
        (gemma.attention.score_cap, gemma.logit_cap),
        (Some(50.0), Some(30.0))
    );
    assert_eq!(gemma.attention.score_factor, 20.0_f64.powf(-0.5) as f32);
    assert!(gemma.norm.adds_one && gemma.ties_head);
    assert_eq!(gemma.blocks[0].norms, Norms::BeforeAndAfter);
    let gemma = described(
        "Gemma2ForCausalLM",
        json!({"final_logit_softcapping": null}),
    );
    assert_eq!(gemma.logit_cap, None);
    let granite = described(
        "GraniteForCausalLM",
        json!({"embedding_multiplier": 12.0, "logits_scaling": 8.0, "residual_multiplier": 0.22, "attention_multiplier": 0.015625}),
    );
    assert_eq!(
        (
            granite.embedding_factor,
            granite.logit_factor,
            granite.residual_factor,
            granite.attention.score_factor
        ),
        (12.0, 0.125, 0.22, 0.015_625)
    );
    let olmo = described("Olmo2ForCausalLM", json!({}));
    assert_eq!(
        (olmo.attention.head_norm, olmo.blocks[0].norms),
        (HeadNorm::AllHeads, Norms::After)
    );
    let qwen = described("Qwen2ForCausalLM", json!({}));
    assert!(qwen.attention.query_key_value_bias && !qwen.attention.output_bias);
    let qwen = described("Qwen3ForCausalLM", json!({}));
    assert_eq!(
        (qwen.key_width, qwen.attention.head_norm),
        (128, HeadNorm::PerHead)
    );
    let embeds = described("Qwen3Model", json!({}));
    assert!(
        embeds.ties_head,
        "without a head there are no separate weights"
    );
}

#[test]
fn experts_are_where_their_family_has_them() {
    let has_experts = |architecture, more| -> Vec<bool> {
        let spec = described(architecture, more);
        let blocks = spec.blocks.iter();
        blocks
            .map(|block| matches!(block.feed_forward, FeedForward::Experts(_)))
            .collect()
    };
    let qwen = |more: Value| {
        let mut all =
            json!({"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 24});
        for (name, value) in more.as_object().expect("an object") {
            all[name] = value.clone();
        }
        has_experts("Qwen3MoeForCausalLM", all)
    };
    assert_eq!(qwen(json!({})), [true; 4]);
    assert_eq!(
        qwen(json!({"mlp_only_layers": [1]})),
        [true, false, true, true]
    );
    assert_eq!(
        qwen(json!({"decoder_sparse_step": 2})),
        [false, true, false, true]
    );
    assert_eq!(has_experts("MixtralForCausalLM", json!({})), [true; 4]);
}

#[test]
fn fields_that_cannot_be_are_named_with_their_value() {
    const LLAMA: &str = "LlamaForCausalLM";
    for (more, found) in [
        (json!({"hidden_size": "wide"}), "hidden_size is \"wide\""),
        (json!({"hidden_size": -3}), "hidden_size is -3"),
        (json!({"hidden_size": 0}), "hidden_size is 0"),
        (json!({"hidden_size": 4_000_000}), "hidden_size is 4000000"),
        (
            json!({"num_hidden_layers": 1_000_000}),
            "num_hidden_layers is 1000000",
        ),
        (
            json!({"num_key_value_heads": 3}),
            "4 attention heads do not divide into 3",
        ),
        (
            json!({"num_attention_heads": 6}),
            "64 does not divide into 6",
        ),
        (json!({"head_dim": 15}), "15 numbers are not of even width"),
        (
            json!({"rms_norm_eps": "small"}),
            "rms_norm_eps is \"small\"",
        ),
        (json!({"rms_norm_eps": -1.0}), "rms_norm_eps is -1"),
        (json!({"rope_theta": 0}), "rope_theta is 0"),
        (json!({"attention_bias": "yes"}), "neither true nor false"),
        (
            json!({"rope_scaling": {"rope_type": "spiral"}}),
            "rope_type is spiral",
        ),
        (
            json!({"rope_scaling": {"rope_type": "linear"}}),
            "factor is missing",
        ),
        (
            json!({"rope_scaling": "linear"}),
            "rope_scaling is \"linear\"",
        ),
        (
            json!({"rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 4}}),
            "high_freq_factor 4 is not above low_freq_factor 4",
        ),
        (json!({"hidden_act": "relu"}), "hidden_act is relu"),
        (
            json!({"quantization_config": {"quant_method": "gptq"}}),
            "quantised (gptq)",
        ),
    ] {
        let problem = problem(LLAMA, more);
        assert!(problem.contains(found), "{problem:?} should say {found:?}");
    }
    for (architecture, more, found) in [
        (
            "Qwen3ForCausalLM",
            json!({"use_sliding_window": true, "layer_types": ["full_attention"]}),
            "layer_types has 1 entries",
        ),
        (
            "SmolLM3ForCausalLM",
            json!({"no_rope_layers": [1]}),
            "no_rope_layers has 1 entries",
        ),
        (
            "MixtralForCausalLM",
            json!({"num_experts_per_tok": 9}),
            "num_experts_per_tok is 9",
        ),
        (
            "MixtralForCausalLM",
            json!({"num_local_experts": 10_000_000}),
            "10000000 experts",
        ),
        (
            "Gemma3ForCausalLM",
            json!({"use_bidirectional_attention": true}),
            "use_bidirectional_attention",
        ),
        (
            "Gemma2ForCausalLM",
            json!({"sliding_window": null}),
            "no sliding_window",
        ),
        (
            "DeepseekV3ForCausalLM",
            json!({"n_group": 7}),
            "7 groups (n_group)",
        ),
    ] {
        let problem = problem(architecture, more);
        assert!(problem.contains(found), "{problem:?} should say {found:?}");
    }
}

#[test]
fn an_unknown_architecture_is_named_with_those_that_are_known() {
    let found = problem("MambaForCausalLM", json!({}));
    for name in [
        "MambaForCausalLM",
        "LlamaForCausalLM",
        "DeepseekV3ForCausalLM",
        "BertModel",
    ] {
        assert!(found.contains(name), "{found}");
    }
    assert_eq!(Kind::new(&["BertModel"]), Ok(Kind::Encoder));
    assert_eq!(
        Kind::new(&["XLMRobertaForSequenceClassification"]),
        Ok(Kind::CrossEncoder)
    );
    assert_eq!(Kind::new(&["Gemma3TextModel"]), Ok(Kind::Decoder));
    let ranker = "Qwen3ForSequenceClassification";
    assert_eq!(Kind::new(&[ranker]), Ok(Kind::Decoder));
    assert!(Kind::new(&[]).is_err());
}
