//! Broken folders of GPT-J, GPT-NeoX and GPT-2: errors use the field and tensor names of these families' files.

use super::{assert_says, copy_of, edit, edit_header, last_words};
use serde_json::{Value, json};
use std::path::Path;
use tempfile::TempDir;

/// A copy of a test model.
fn copy_of_kept(name: &str) -> TempDir {
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors");
    copy_of(&kept.join(name))
}

#[tokio::test]
async fn a_contradictory_gpt_configuration_is_refused_with_its_field_names() {
    let of = |name, fields: Value, said| (name, fields, said);
    for (name, fields, said) in [
        of(
            "gpt-j",
            json!({"n_head": 6}),
            "n_embd 64 does not divide into 6 heads (n_head)",
        ),
        of(
            "gpt-j",
            json!({"rotary_dim": 18}),
            "rotary_dim is 18, and a head has 16 numbers (n_embd 64 by n_head 4)",
        ),
        of(
            "gpt-j",
            json!({"rotary_dim": null}),
            "rotary_dim is 64, and a head has 16 numbers",
        ),
        of(
            "gpt-j",
            json!({"rotary_dim": 7}),
            "rotary_dim is 7, which is not even",
        ),
        of("gpt-j", json!({"rotary_dim": 0}), "rotary_dim is 0"),
        of(
            "gpt-j",
            json!({"n_layer": "two"}),
            "n_layer is \"two\", which is not a whole number",
        ),
        of(
            "gpt-j",
            json!({"n_layer": 3}),
            "the tensor transformer.h.2.ln_1.weight is missing",
        ),
        of(
            "gpt-j",
            json!({"n_inner": 100}),
            "the tensor transformer.h.0.mlp.fc_in.weight has shape [256, 64], config.json says [100, 64]",
        ),
        of(
            "gpt-j",
            json!({"activation_function": "relu"}),
            "activation_function is relu",
        ),
        of(
            "gpt-j",
            json!({"layer_norm_epsilon": 0}),
            "layer_norm_epsilon is 0",
        ),
        of(
            "gpt-neox",
            json!({"num_attention_heads": 7}),
            "hidden_size 64 does not divide into 7 heads (num_attention_heads)",
        ),
        of(
            "gpt-neox",
            json!({"rotary_pct": 1.5}),
            "heads of 16 numbers cannot rotate 24",
        ),
        of(
            "gpt-neox",
            json!({"rotary_pct": 0.2}),
            "heads of 16 numbers cannot rotate 3",
        ),
        of(
            "gpt2",
            json!({"n_positions": 1024}),
            "the tensor transformer.wpe.weight has shape [512, 64], config.json says [1024, 64]",
        ),
        of(
            "gpt2",
            json!({"n_inner": 100}),
            "the tensor transformer.h.0.mlp.c_fc.weight has shape [64, 256], config.json says [64, 100]",
        ),
        of(
            "gpt2",
            json!({"add_cross_attention": true}),
            "add_cross_attention is true",
        ),
        of(
            "gpt2",
            json!({"scale_attn_weights": 2}),
            "scale_attn_weights is 2, which is neither true nor false",
        ),
    ] {
        let folder = copy_of_kept(name);
        edit(folder.path(), "config.json", |config| {
            for (field, value) in fields.as_object().expect("an object") {
                config[field] = value.clone();
            }
        });
        assert_says(
            &last_words(folder.path()).await,
            &[folder.path().to_str().expect("text"), said],
        );
    }
}

#[tokio::test]
async fn incomplete_gpt_weights_are_refused_by_the_tensor_names_in_the_file() {
    for (model, tensor) in [
        ("gpt-j", "lm_head.bias"),
        ("gpt-j", "lm_head.weight"),
        ("gpt-j", "transformer.h.1.attn.q_proj.weight"),
        ("gpt-j", "transformer.ln_f.bias"),
        (
            "gpt-neox",
            "gpt_neox.layers.0.attention.query_key_value.bias",
        ),
        ("gpt-neox", "embed_out.weight"),
        ("gpt2", "transformer.h.1.attn.c_attn.weight"),
        ("gpt2", "transformer.wpe.weight"),
    ] {
        let folder = copy_of_kept(model);
        edit_header(folder.path(), |header| {
            let header = header.as_object_mut().expect("an object");
            let lost = header.remove(tensor).expect("the tensor");
            header.insert("another".to_owned(), lost);
        });
        assert_says(
            &last_words(folder.path()).await,
            &[
                "model.safetensors",
                &format!("the tensor {tensor} is missing"),
            ],
        );
    }
    let folder = copy_of_kept("gpt-j");
    let path = folder.path().join("model.safetensors");
    let bytes = std::fs::read(&path).expect("weights");
    std::fs::write(&path, &bytes[..bytes.len() - 1000]).expect("written");
    assert_says(
        &last_words(folder.path()).await,
        &[
            "model.safetensors",
            "the first that is cut off",
            "transformer.",
        ],
    );
}

#[tokio::test]
async fn pickled_weights_are_refused_with_advice() {
    let folder = copy_of_kept("gpt-j");
    let weights = folder.path().join("model.safetensors");
    std::fs::rename(weights, folder.path().join("pytorch_model.bin")).expect("renamed");
    // A single file with another name would be used as the weights.
    std::fs::remove_file(folder.path().join("expected.safetensors")).expect("removed");
    assert_says(
        &last_words(folder.path()).await,
        &[
            "neither model.safetensors nor",
            "pytorch_model.bin is a pickle",
            "save_pretrained",
        ],
    );
}
