//! Tests the `config.json` reader on small configurations of each family; complete models are covered by the test vectors.

mod ropes;

use super::*;
use crate::spec::{ExpertGroups, FeedForward, Norms, RopeScaling, Scoring};
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
fn sliding_windows_follow_the_rule_of_each_family() {
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
fn the_distinguishing_features_of_each_family_are_described() {
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
fn experts_are_in_the_layers_defined_by_their_family() {
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
fn invalid_fields_are_reported_with_their_value() {
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
fn an_unknown_architecture_is_refused_with_the_known_ones() {
    let found = problem("XlstmForCausalLM", json!({}));
    for name in [
        "XlstmForCausalLM",
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
