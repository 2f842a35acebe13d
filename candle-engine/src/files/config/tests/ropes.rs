//! Tests of rotary embeddings in `config.json`.

use super::*;

#[test]
fn both_forms_of_rope_configuration_are_equivalent() {
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
fn the_amplitude_of_yarn_is_given_or_derived_from_the_factor() {
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
fn deepseek_scales_attention_scores_by_the_squared_yarn_amplitude() {
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
fn long_rope_requires_a_divisor_per_pair_and_phi_rotates_only_a_part() {
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
fn both_forms_of_gemma_3_and_its_multimodal_variant_are_equivalent() {
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
