//! Tests the files that make a decoder serve text, vectors or scores.

use super::*;
use crate::files::tests::gguf_writer::GgufWriter;
use candle_core::quantized::gguf_file::Value as GgufValue;
use serde_json::json;
use std::fs;
use std::path::Path;
use tempfile::TempDir;

/// A copy of the test decoder with another architecture, additional fields in `config.json`, and additional files.
fn folder(architecture: &str, fields: Value, files: &[(&str, Value)]) -> TempDir {
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors/qwen3");
    let folder = tempfile::tempdir().expect("a folder");
    let copied = folder.path().join("model.safetensors");
    fs::copy(kept.join("model.safetensors"), copied).expect("copied");
    let text = fs::read(kept.join("config.json")).expect("it is kept");
    let mut config: Value = serde_json::from_slice(&text).expect("JSON");
    config["architectures"] = json!([architecture]);
    for (name, value) in fields.as_object().expect("an object") {
        config[name] = value.clone();
    }
    for (name, json) in files.iter().chain(&[("config.json", config)]) {
        let file = folder.path().join(name);
        fs::create_dir_all(file.parent().expect("a folder")).expect("made");
        fs::write(file, json.to_string()).expect("written");
    }
    folder
}

fn purpose(folder: &TempDir, task: Option<Task>) -> Result<Purpose, String> {
    let files = ModelFiles::open(folder.path()).expect("it opens");
    Purpose::new(&files, task).map_err(|error| error.to_string())
}

fn module(path: &str, kind: &str) -> Value {
    json!({"path": path, "type": format!("sentence_transformers.models.{kind}")})
}

const DECODER: &str = "Qwen3ForCausalLM";
const RANKER: &str = "Qwen3ForSequenceClassification";

fn last_token() -> PoolingPlan {
    PoolingPlan {
        pools: vec![Reduction::LastToken],
        includes_prompt: true,
        dense: Vec::new(),
        normalises: true,
    }
}

fn by_words() -> ScoreBy {
    ScoreBy::Tokens {
        yes: NamedToken::Text("yes".to_owned()),
        no: Some(NamedToken::Text("no".to_owned())),
    }
}

#[test]
fn every_test_decoder_serves_texts_by_default() {
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors");
    let mut tried = std::collections::BTreeSet::new();
    for entry in fs::read_dir(kept).expect("the vectors") {
        let path = entry.expect("an entry").path();
        if !path.join("config.json").is_file() || !path.join("model.safetensors").is_file() {
            continue;
        }
        let files = ModelFiles::open(&path).expect("it opens");
        let found = Purpose::new(&files, None);
        let is_for_texts = matches!(found, Ok(Purpose::Texts));
        assert!(is_for_texts, "{}: {found:?}", path.display());
        tried.insert(files.spec().expect("a decoder").architecture.clone());
    }
    for architecture in ["GPT2LMHeadModel", "GPTJForCausalLM", "LlamaForCausalLM"] {
        assert!(tried.contains(architecture), "{tried:?}");
    }
}

#[test]
fn the_purpose_of_a_decoder_is_read_from_its_files_and_otherwise_from_the_option() {
    let plain = folder(DECODER, json!({}), &[]);
    assert_eq!(purpose(&plain, None), Ok(Purpose::Texts));
    let embeds = Purpose::Vectors(last_token());
    assert_eq!(purpose(&plain, Some(Task::Embed)), Ok(embeds.clone()));
    let ranks = Purpose::Scores(ScorePlan {
        by: by_words(),
        shows_probability: true,
        begins_response: false,
    });
    assert_eq!(purpose(&plain, Some(Task::Rerank)), Ok(ranks.clone()));
    let headless = folder("Qwen3Model", json!({}), &[]);
    assert_eq!(purpose(&headless, None), Ok(embeds));
    assert_eq!(
        purpose(&headless, Some(Task::Generate)),
        Ok(Purpose::Texts),
        "its head is its embedding"
    );
    let marked = folder(DECODER, json!({"is_original_qwen3_reranker": true}), &[]);
    assert_eq!(purpose(&marked, None), Ok(ranks));
}

#[test]
fn a_decoder_saved_without_its_head_serves_only_embeddings() {
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors/encoders/qwen3-embedding");
    let bare = folder(DECODER, json!({}), &[]);
    for file in ["config.json", "model.safetensors"] {
        fs::copy(kept.join(file), bare.path().join(file)).expect("copied");
    }
    let file = bare.path().join("config.json");
    let text = fs::read(&file).expect("it is there");
    let mut config: Value = serde_json::from_slice(&text).expect("JSON");
    config["architectures"] = json!([DECODER]);
    config["tie_word_embeddings"] = json!(false);
    fs::write(&file, config.to_string()).expect("written");
    assert_eq!(purpose(&bare, None), Ok(Purpose::Vectors(last_token())));
    for task in [Task::Generate, Task::Rerank] {
        let problem = purpose(&bare, Some(task)).expect_err("it has no head");
        assert!(problem.contains("head"), "{problem}");
    }
}

#[test]
fn modules_define_how_a_decoder_computes_vectors() {
    let pooling = json!({"pooling_mode_mean_tokens": true, "include_prompt": false});
    let modules = json!([module("", "Transformer"), module("1_Pooling", "Pooling")]);
    let files = [
        ("modules.json", modules),
        ("1_Pooling/config.json", pooling.clone()),
    ];
    let mean = |normalises| {
        Purpose::Vectors(PoolingPlan {
            pools: vec![Reduction::Mean],
            includes_prompt: false,
            normalises,
            ..last_token()
        })
    };
    let both = folder(DECODER, json!({}), &files);
    assert_eq!(purpose(&both, None), Ok(mean(false)));
    assert_eq!(purpose(&both, Some(Task::Generate)), Ok(Purpose::Texts));
    let alone = folder(DECODER, json!({}), &[("1_Pooling/config.json", pooling)]);
    assert_eq!(purpose(&alone, None), Ok(mean(true)));
}

#[test]
fn a_cross_encoders_module_names_its_tokens() {
    let modules = json!([
        module("", "Transformer"),
        {"path": "1_LogitScore", "type": "sentence_transformers.cross_encoder.modules.logit_score.LogitScore"},
    ]);
    let of = |score: Value, sentences: Value| {
        folder(
            DECODER,
            json!({}),
            &[
                ("modules.json", modules.clone()),
                ("1_LogitScore/config.json", score),
                ("config_sentence_transformers.json", sentences),
                (
                    "sentence_bert_config.json",
                    json!({"processing_kwargs": {"chat_template": {"add_generation_prompt": true}}}),
                ),
            ],
        )
    };
    let identity = json!({"activation_fn": "torch.nn.modules.linear.Identity"});
    let named = of(json!({"true_token_id": 7}), identity);
    let expected = ScorePlan {
        by: ScoreBy::Tokens {
            yes: NamedToken::Id(7),
            no: None,
        },
        shows_probability: false,
        begins_response: true,
    };
    assert_eq!(purpose(&named, None), Ok(Purpose::Scores(expected)));
    let wrong = of(json!({"false_token_id": 7}), json!({}));
    let problem = purpose(&wrong, None).expect_err("no token is named");
    assert!(problem.contains("true_token_id is missing"), "{problem}");
    let wrong = of(
        json!({"true_token_id": 7}),
        json!({"activation_fn": "torch.nn.Softmax"}),
    );
    let problem = purpose(&wrong, None).expect_err("it is not computed");
    assert!(problem.contains("Softmax"), "{problem}");
}

#[test]
fn contradictory_model_files_are_refused_with_advice() {
    let one = json!({"id2label": {"0": "LABEL_0"}});
    let refused = |folder: TempDir, task, words: &[&str]| {
        let problem = purpose(&folder, task).expect_err("must be refused");
        for word in words {
            assert!(problem.contains(word), "{problem}");
        }
    };
    let ranker = || folder(RANKER, one.clone(), &[]);
    // Without a scoring row and configured words, the words of Qwen3-Reranker apply; its embedding doubles as the head.
    assert!(purpose(&ranker(), None).is_ok());
    refused(ranker(), Some(Task::Generate), &["task", RANKER]);
    refused(ranker(), Some(Task::Embed), &["task", "rerank"]);
    let words = json!({"classifier_from_token": ["no"]});
    refused(
        folder(DECODER, words, &[]),
        None,
        &["classifier_from_token", "two words"],
    );
    let chats = json!({"modality_config": {"message": {"method": "forward"}}});
    refused(
        folder(
            "Qwen3Model",
            json!({}),
            &[("sentence_bert_config.json", chats)],
        ),
        None,
        &["sentence_bert_config.json", "chat template"],
    );
}

#[test]
fn a_gguf_with_a_pooling_type_serves_vectors() {
    let scratch = tempfile::tempdir().expect("a folder");
    let path = scratch.path().join("model.gguf");
    let purpose = |pooling: u32| {
        let mut written = GgufWriter::new(
            &Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors/qwen3"),
            "qwen3",
        );
        written.set("qwen3.pooling_type", GgufValue::U32(pooling));
        written.save(&path);
        Purpose::new(&ModelFiles::open(&path).expect("opens"), None)
    };
    assert_eq!(purpose(0).expect("no pooling"), Purpose::Texts);
    for pooling in 1..=3 {
        let purpose = purpose(pooling).expect("it is known");
        assert!(matches!(purpose, Purpose::Vectors(plan) if plan.normalises));
    }
    let problem = purpose(4).expect_err("rankers are not read").to_string();
    assert!(problem.contains("pooling_type is 4"), "{problem}");
}
