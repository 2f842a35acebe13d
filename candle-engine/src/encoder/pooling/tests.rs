//! Tests of `pooling.rs`.

use super::*;
use serde_json::{Value, json};
use std::fs;

fn folder_with(files: &[(&str, Value)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, json) in files {
        let file = folder.path().join(name);
        fs::create_dir_all(file.parent().expect("a folder")).expect("made");
        fs::write(file, json.to_string()).expect("written");
    }
    folder
}

fn modules(kinds: &[(&str, &str)]) -> Value {
    let modules = kinds
        .iter()
        .map(|(path, kind)| json!({"path": path, "type": format!("sentence_transformers.models.{kind}")}));
    modules.collect()
}

#[test]
fn each_pooling_reduces_rows_as_its_name_says() {
    let rows = [1.0, 8.0, 2.0, 5.0, 6.0, -1.0];
    for (kind, expected) in [
        (Reduction::FirstToken, [1.0, 8.0]),
        (Reduction::LastToken, [6.0, -1.0]),
        (Reduction::Mean, [3.0, 4.0]),
        (Reduction::Max, [6.0, 8.0]),
        (Reduction::WeightedMean, [23.0 / 6.0, 15.0 / 6.0]),
    ] {
        assert_eq!(pool(kind, &rows, 2), expected, "{kind:?}");
    }
    let root = pool(Reduction::RootMean, &rows, 2);
    assert!((root[0] - 9.0 / 3f32.sqrt()).abs() < 1e-6);
}

#[test]
fn a_model_without_modules_json_uses_normalised_mean_pooling() {
    let plan = PoolingPlan::read(folder_with(&[]).path()).expect("the usual");
    assert_eq!(plan, PoolingPlan::usual());
}

#[test]
fn modules_define_pooling_and_normalization() {
    let folder = folder_with(&[
        (
            "modules.json",
            modules(&[("", "Transformer"), ("1_Pooling", "Pooling")]),
        ),
        (
            "1_Pooling/config.json",
            json!({"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": true, "include_prompt": false}),
        ),
    ]);
    let plan = PoolingPlan::read(folder.path()).expect("well formed");
    assert_eq!(plan.pools, [Reduction::FirstToken, Reduction::Mean]);
    assert!(!plan.normalises && !plan.includes_prompt);
}

#[test]
fn an_unsupported_module_is_refused_by_name() {
    let pooling = ("1_Pooling/config.json", json!({"pooling_mode": "mean"}));
    for (list, word) in [
        (
            modules(&[
                ("", "Transformer"),
                ("1_Pooling", "Pooling"),
                ("2_LSTM", "LSTM"),
            ]),
            "LSTM",
        ),
        (modules(&[("", "Transformer")]), "no Pooling"),
        (modules(&[("..", "Pooling")]), "plain folder name"),
        (json!({}), "not a list"),
    ] {
        let folder = folder_with(&[("modules.json", list), pooling.clone()]);
        let error = PoolingPlan::read(folder.path()).expect_err("must be refused");
        assert!(error.to_string().contains(word), "{error}");
    }
}

#[test]
fn normalizing_a_zero_vector_leaves_it_unchanged() {
    let mut zeros = [0.0; 3];
    normalise(&mut zeros);
    assert_eq!(zeros, [0.0; 3]);
    let mut vector = [3.0, 4.0];
    normalise(&mut vector);
    assert_eq!(vector, [0.6, 0.8]);
}
