//! Finds out from a model's files whether the embedded engine can serve it: its architecture, its task and its trained context.
//! Reads `config.json` or a GGUF header, but no weights.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::documents::Task;
use model_files::config_json::Keys;
use model_files::families::{self, EncoderFamily, GGUF_FORMS, LibraryFamily, SCORING, WHISPER};
use model_files::gguf::Gguf;
use model_files::{Architecture, FileError, LayerCache};

/// A model's task, which determines the routes of its engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelTask {
    /// Chats and text completions.
    Texts,
    Embeddings,
    /// Rankings, and scores of a query and documents.
    Ranks,
    /// Transcriptions and translations of recordings.
    Speech,
}

impl ModelTask {
    pub(crate) fn new(task: Task) -> ModelTask {
        match task {
            Task::Generate => ModelTask::Texts,
            Task::Embed => ModelTask::Embeddings,
            Task::Rerank => ModelTask::Ranks,
        }
    }

    /// The task's name in messages. No option chooses speech.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            ModelTask::Texts => Task::Generate.as_str(),
            ModelTask::Embeddings => Task::Embed.as_str(),
            ModelTask::Ranks => Task::Rerank.as_str(),
            ModelTask::Speech => "transcribe",
        }
    }
}

/// Facts from a model's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ModelSummary {
    pub serves: ModelTask,
    /// Encoders process a complete text in one pass, in wide numbers.
    pub is_encoder: bool,
    /// The engine computes it one sequence at a time, in wide numbers.
    pub is_library: bool,
    /// The model supports no other task.
    pub is_fixed: bool,
    /// Context that the model was trained for, in tokens, if its files say.
    pub context: Option<u64>,
}

/// Files in which sentence-transformers defines how vectors are made from hidden states.
const POOLING: [&str; 2] = ["modules.json", "1_Pooling/config.json"];

fn serves(architecture: &str) -> Option<ModelTask> {
    if architecture == WHISPER {
        return Some(ModelTask::Speech);
    }
    if let Some((_, ranks)) = families::encoder(architecture) {
        return Some(if ranks {
            ModelTask::Ranks
        } else {
            ModelTask::Embeddings
        });
    }
    if families::library_decoder(architecture).is_some() {
        return Some(ModelTask::Texts);
    }
    let (_, has_head) = families::decoder(architecture)?;
    Some(if has_head {
        ModelTask::Texts
    } else if architecture.ends_with(SCORING) {
        ModelTask::Ranks
    } else {
        ModelTask::Embeddings
    })
}

fn known() -> String {
    format!(
        "{}; for embeddings and ranks {}, and decoders with Model or {SCORING} in the place of ForCausalLM; for speech {WHISPER}",
        families::known_decoders(),
        families::known_encoders()
    )
}

/// The GGUF file of a model: the path itself, or the file in a folder that has no other weights.
pub(crate) fn gguf_file(path: &Path) -> Option<PathBuf> {
    if path.is_file() {
        return Some(path.to_owned()).filter(|path| model_files::is_gguf(path));
    }
    if model_files::safetensors::has_weights(path) {
        return None;
    }
    model_files::gguf_of(path).ok().flatten()
}

/// Inspects a model's files. Returns `None` if there are none yet. Damaged files are not reported here; the estimate and the load
/// report them.
///
/// # Errors
/// If the engine does not know the model's architecture; the message lists the known ones.
pub(crate) fn look(path: &Path) -> Result<Option<ModelSummary>, String> {
    if let Some(file) = gguf_file(path) {
        return look_at_gguf(&file);
    }
    let config = path.join("config.json");
    if !config.is_file() {
        return Ok(None);
    }
    let Ok(keys) = Keys::read(&config) else {
        return Ok(None);
    };
    let names: Vec<&str> = keys
        .list("architectures")
        .map(|names| names.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default();
    let found = names.iter().find_map(|name| Some((serves(name)?, *name)));
    let (serves, name) = match found {
        Some((ModelTask::Texts, name)) => (of_decoder(path, &keys), name),
        Some(found) => found,
        // Some files omit the architecture, and the engine reports how it reads them.
        None if names.is_empty() => return Ok(None),
        None => {
            return Err(format!(
                "{} names {}, which the embedded engine does not support; it supports {}",
                config.display(),
                shown(&names),
                known()
            ));
        }
    };
    let architecture = Architecture::of_folder(path).ok();
    Ok(Some(ModelSummary {
        serves,
        is_encoder: architecture
            .as_ref()
            .is_some_and(|read| read.layers.is_empty()),
        is_library: families::library_decoder(name).is_some(),
        is_fixed: serves == ModelTask::Speech
            || name.ends_with(SCORING)
            || families::encoder(name).is_some()
            || families::library_decoder(name).is_some(),
        context: architecture.and_then(|read| context(&read)),
    }))
}

/// The implementation that the engine uses for the encoder that this `config.json` describes.
pub(crate) fn encoder_family(config: &Path) -> Option<EncoderFamily> {
    let keys = Keys::read(config).ok()?;
    let mut names = keys.list("architectures")?.iter().filter_map(Value::as_str);
    let (family, _) = names.find_map(families::encoder)?;
    Some(family)
}

/// The library's family of the decoder that this `config.json` describes.
pub(crate) fn library_family(config: &Path) -> Option<LibraryFamily> {
    let keys = Keys::read(config).ok()?;
    let mut names = keys.list("architectures")?.iter().filter_map(Value::as_str);
    names.find_map(families::library_decoder)
}

/// The longest sequence that the engine computes. The library computes no windows, so sequences stay within them.
pub(crate) fn context(architecture: &Architecture) -> Option<u64> {
    let windows = architecture.layers.iter().map(|group| match group.cache {
        LayerCache::Heads { window, .. } => window,
        LayerCache::Latent { .. } | LayerCache::State { .. } => None,
    });
    match windows.flatten().min() {
        Some(window) if library_family(&architecture.origin).is_some() => {
            Some(architecture.context.map_or(window, |most| most.min(window)))
        }
        _ => architecture.context,
    }
}

/// The task of a decoder with a language-model head. Its files may mark it as a model for vectors or scores.
fn of_decoder(path: &Path, keys: &Keys) -> ModelTask {
    let sentences = Keys::read(&path.join("config_sentence_transformers.json"));
    let is_cross_encoder = |keys: &Keys| keys.text("model_type") == Some("CrossEncoder");
    let reads_responses = keys.list("classifier_from_token").is_some()
        || keys.flag("is_original_qwen3_reranker") == Some(true);
    let modules = std::fs::read_to_string(path.join(POOLING[0])).unwrap_or_default();
    if reads_responses
        || modules.contains("LogitScore")
        || sentences.as_ref().is_ok_and(is_cross_encoder)
    {
        ModelTask::Ranks
    } else if POOLING.iter().any(|file| path.join(file).is_file()) {
        ModelTask::Embeddings
    } else {
        ModelTask::Texts
    }
}

fn look_at_gguf(file: &Path) -> Result<Option<ModelSummary>, String> {
    let Ok(gguf) = Gguf::read(file) else {
        return Ok(None);
    };
    let Ok(Some(name)) = gguf.values.text("general.architecture") else {
        return Ok(None);
    };
    if !GGUF_FORMS.iter().any(|(form, _)| *form == name) {
        return Err(format!(
            "{} has the architecture {}, which the embedded engine does not support; for GGUF files it supports {}",
            file.display(),
            shown(&[name]),
            GGUF_FORMS.map(|(form, _)| form).join(", ")
        ));
    }
    let context = Architecture::of_gguf(file, &gguf)
        .ok()
        .and_then(|read| read.context);
    let pooling = gguf.values.number(&format!("{name}.pooling_type"));
    Ok(Some(ModelSummary {
        serves: match pooling {
            Ok(Some(1..=3)) => ModelTask::Embeddings,
            _ => ModelTask::Texts,
        },
        is_encoder: false,
        is_library: false,
        is_fixed: false,
        context,
    }))
}

/// Names from a foreign file for a message, limited to one line.
fn shown(names: &[&str]) -> String {
    model_files::config_json::shortened(&Value::from(names.join(", ")))
}

/// Reads the architecture of the model at this path.
pub(crate) fn architecture(path: &Path) -> Result<Architecture, FileError> {
    match gguf_file(path) {
        Some(file) => Architecture::of_gguf(&file, &Gguf::read(&file)?),
        None => Architecture::of_folder(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_purpose_of_a_model_is_derived_from_its_architecture() {
        for (name, expected) in [
            ("LlamaForCausalLM", Some(ModelTask::Texts)),
            ("DeepseekV3ForCausalLM", Some(ModelTask::Texts)),
            ("Gemma3ForConditionalGeneration", Some(ModelTask::Texts)),
            ("Qwen3Model", Some(ModelTask::Embeddings)),
            ("BertModel", Some(ModelTask::Embeddings)),
            ("XLMRobertaForMaskedLM", Some(ModelTask::Embeddings)),
            (
                "XLMRobertaForSequenceClassification",
                Some(ModelTask::Ranks),
            ),
            ("WhisperForConditionalGeneration", Some(ModelTask::Speech)),
            ("MambaForCausalLM", Some(ModelTask::Texts)),
            ("GPTBigCodeForCausalLM", Some(ModelTask::Texts)),
            ("XlstmForCausalLM", None),
            ("FalconModel", None),
            ("LlamaForSequenceClassification", Some(ModelTask::Ranks)),
            ("MambaForSequenceClassification", None),
            ("ForCausalLM", None),
        ] {
            assert_eq!(serves(name), expected, "{name}");
        }
    }

    #[test]
    fn a_decoder_with_a_pooling_file_serves_embeddings() {
        let folder = tempfile::tempdir().expect("a folder");
        let config = r#"{"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "num_attention_heads": 4,
            "num_hidden_layers": 1, "hidden_size": 8, "max_position_embeddings": 77}"#;
        std::fs::write(folder.path().join("config.json"), config).expect("written");
        let seen = |serves| ModelSummary {
            serves,
            is_encoder: false,
            is_library: false,
            is_fixed: false,
            context: Some(77),
        };
        let look = || look(folder.path()).expect("it is known");
        assert_eq!(look(), Some(seen(ModelTask::Texts)));
        std::fs::write(folder.path().join("modules.json"), "[]").expect("written");
        assert_eq!(look(), Some(seen(ModelTask::Embeddings)));
    }

    #[test]
    fn a_decoder_with_answer_tokens_serves_ranks() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str, text: &str| {
            std::fs::write(folder.path().join(name), text).expect("written");
        };
        let serves = || {
            look(folder.path())
                .expect("it is known")
                .map(|summary| summary.serves)
        };
        write("config.json", r#"{"architectures": ["Qwen3ForCausalLM"]}"#);
        assert_eq!(serves(), Some(ModelTask::Texts));
        write(
            "config_sentence_transformers.json",
            r#"{"model_type": "CrossEncoder"}"#,
        );
        write("modules.json", "[]");
        assert_eq!(serves(), Some(ModelTask::Ranks));
        write("config_sentence_transformers.json", "{}");
        write("modules.json", r#"[{"type": "a.LogitScore"}]"#);
        assert_eq!(serves(), Some(ModelTask::Ranks));
        std::fs::remove_file(folder.path().join("modules.json")).expect("removed");
        write(
            "config.json",
            r#"{"architectures": ["Qwen3ForCausalLM"], "classifier_from_token": ["no", "yes"]}"#,
        );
        assert_eq!(serves(), Some(ModelTask::Ranks));
    }

    #[test]
    fn a_window_limits_the_context_of_a_model_that_the_library_computes() {
        let folder = tempfile::tempdir().expect("a folder");
        let context_of = |name: &str| {
            let config = format!(
                r#"{{"architectures": ["{name}"], "model_type": "starcoder2", "num_attention_heads": 4, "num_hidden_layers": 1,
                    "hidden_size": 8, "max_position_embeddings": 77, "sliding_window": 50}}"#
            );
            std::fs::write(folder.path().join("config.json"), config).expect("written");
            let seen = look(folder.path()).expect("it is known").expect("a model");
            (seen.is_library, seen.context)
        };
        assert_eq!(context_of("Starcoder2ForCausalLM"), (true, Some(50)));
        assert_eq!(context_of("MistralForCausalLM"), (false, Some(77)));
    }

    #[test]
    fn a_config_with_an_unknown_architecture_is_refused_with_the_known_ones() {
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(look(folder.path()), Ok(None), "nothing is there yet");
        let config = r#"{"architectures": ["XlstmForCausalLM"]}"#;
        std::fs::write(folder.path().join("config.json"), config).expect("written");
        let problem = look(folder.path()).expect_err("it is not known");
        for word in [
            "config.json",
            "XlstmForCausalLM",
            "FalconForCausalLM",
            "Qwen3ForCausalLM",
            "ModernBert",
        ] {
            assert!(problem.contains(word), "{problem}");
        }
    }
}
