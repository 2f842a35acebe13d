//! Tests accepted and rejected encoder configurations.

use super::*;
use serde_json::json;

fn bert() -> Value {
    json!({"architectures": ["BertModel"], "vocab_size": 100, "hidden_size": 32, "num_hidden_layers": 2,
        "num_attention_heads": 4, "intermediate_size": 64, "max_position_embeddings": 66})
}

#[test]
fn roberta_has_fewer_positions_than_rows() {
    let mut json = bert();
    assert_eq!(
        EncoderSpec::read(&json).map(|spec| spec.context_tokens),
        Ok(66)
    );
    json["architectures"] = json!(["XLMRobertaModel"]);
    assert_eq!(
        EncoderSpec::read(&json).map(|spec| spec.context_tokens),
        Ok(64)
    );
    json["pad_token_id"] = json!(70);
    assert!(EncoderSpec::read(&json).is_err());
}

#[test]
fn relative_positions_are_used_exactly_in_the_families_that_reserve_scores() {
    for (word, family) in families::ENCODERS {
        let mut json = bert();
        json["architectures"] = json!([format!("{word}Model")]);
        let Ok(spec) = EncoderSpec::read(&json) else {
            // DistilBERT uses other field names.
            assert!(!family.has_relative_positions(), "{word}");
            continue;
        };
        let adds = matches!(spec.positions, Positions::LearnedAndRelative { .. });
        assert_eq!(adds, family.has_relative_positions(), "{word}");
    }
}

#[test]
fn modernbert_uses_global_attention_in_every_third_layer() {
    let mut json = bert();
    json["architectures"] = json!(["ModernBertModel"]);
    json["num_hidden_layers"] = json!(4);
    let spec = EncoderSpec::read(&json).expect("well formed");
    let windows: Vec<_> = spec.layers.iter().map(|layer| layer.window).collect();
    assert_eq!(windows, [None, Some(64), Some(64), None]);
    assert_eq!(spec.layers[0].theta, Some(160_000.0));
    assert_eq!(spec.layers[1].theta, Some(10_000.0));
}

#[test]
fn an_unsupported_encoder_setting_is_refused_by_name() {
    for (field, value, word) in [
        (
            "position_embedding_type",
            json!("relative_key"),
            "position_embedding_type",
        ),
        ("hidden_act", json!("mish"), "hidden_act"),
        ("num_attention_heads", json!(5), "divide"),
        ("num_hidden_layers", json!(1_000_000), "num_hidden_layers"),
        ("vocab_size", json!(-1), "vocab_size"),
        ("layer_norm_eps", json!("x"), "layer_norm_eps"),
        ("hidden_size", Value::Null, "hidden_size is missing"),
    ] {
        let mut json = bert();
        json[field] = value;
        let error = EncoderSpec::read(&json).expect_err("must be refused");
        assert!(error.contains(word), "{error}");
    }
}

#[test]
fn a_reranker_has_one_label_and_its_score_activation_is_read() {
    let mut json = bert();
    json["architectures"] = json!(["BertForSequenceClassification"]);
    assert!(EncoderSpec::read(&json).is_err(), "two labels");
    json["id2label"] = json!({"0": "LABEL_0"});
    let spec = EncoderSpec::read(&json).expect("one label");
    assert_eq!(spec.head, Some(RankHead::Pooler));
    assert!(spec.shows_probability);
    json["sbert_ce_default_activation_function"] = json!("torch.nn.modules.linear.Identity");
    let spec = EncoderSpec::read(&json).expect("one label");
    assert!(!spec.shows_probability);
}
