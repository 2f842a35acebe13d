//! Reads the vocabulary, chat templates and end tokens of a GGUF file.

use crate::files::generation::Generation;
use crate::sampling::SamplingSettings;
use crate::spec::Spec;
use model_files::gguf::Values;
use std::collections::BTreeSet;

/// Token types, as numbered by llama.cpp.
pub(super) const UNKNOWN: f64 = 2.0;
pub(super) const CONTROL: f64 = 3.0;
pub(super) const USER_DEFINED: f64 = 4.0;

/// Tokens that end a turn. Files name a single end token, but models of these families use more.
const TURN_ENDS: [&str; 12] = [
    "<|eot_id|>",
    "<|eom_id|>",
    "<|im_end|>",
    "<|end|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|eos|>",
    "</s>",
    "<EOT>",
    "_<EOT>",
    "<｜end▁of▁sentence｜>",
];

/// A vocabulary and its settings.
#[derive(Debug)]
pub(crate) struct GgufVocabulary {
    /// `llama` (sentencepiece) or `gpt2` (byte-level BPE).
    pub(super) model: String,
    /// Name of the pre-tokenizer.
    pub(super) split: String,
    pub(super) architecture: String,
    pub(super) tokens: Vec<String>,
    pub(super) kinds: Vec<f64>,
    pub(super) scores: Vec<f64>,
    pub(super) merges: Option<Vec<String>>,
    pub(super) unknown: Option<usize>,
    pub(super) begin: Option<usize>,
    pub(super) end: Option<usize>,
    pub(super) adds_begin: Option<bool>,
    pub(super) adds_end: bool,
    pub(super) adds_space: Option<bool>,
    /// A complete `tokenizer.json`, if the file contains one.
    pub(super) json: Option<String>,
    pub template: Option<String>,
    /// The template for requests with tools.
    pub tools_template: Option<String>,
    end_tokens: BTreeSet<u32>,
    sampling: SamplingSettings,
}

impl GgufVocabulary {
    /// Reads the metadata of the vocabulary.
    ///
    /// # Errors
    /// If lists have different lengths, ids name no token, or there are more tokens than embedding rows.
    pub(super) fn new(metadata: &Values, spec: &Spec) -> Result<Self, String> {
        const PREFIX: &str = "tokenizer.ggml";
        let key = |name: &str| format!("{PREFIX}.{name}");
        let text = |name: &str| {
            metadata
                .text(&key(name))
                .map(|text| text.map(str::to_owned))
        };
        let tokens = metadata
            .texts(&key("tokens"))?
            .ok_or_else(|| format!("{PREFIX}.tokens is missing"))?
            .to_vec();
        if tokens.len() > spec.vocabulary {
            return Err(format!(
                "its vocabulary has {} tokens, but the model's embedding has {} rows",
                tokens.len(),
                spec.vocabulary
            ));
        }
        let of_each = |name: &str| -> Result<Vec<f64>, String> {
            let list = metadata.numbers(&key(name))?.unwrap_or_default().to_vec();
            if list.is_empty() || list.len() == tokens.len() {
                Ok(list)
            } else {
                Err(format!(
                    "{PREFIX}.{name} has {} entries for {} tokens",
                    list.len(),
                    tokens.len()
                ))
            }
        };
        let id = |name: &str| -> Result<Option<usize>, String> {
            let id = metadata.number(&key(name))?.map(|id| id as usize);
            match id {
                Some(id) if id >= tokens.len() => Err(format!(
                    "{PREFIX}.{name} is {id}, outside the vocabulary of {}",
                    tokens.len()
                )),
                id => Ok(id),
            }
        };
        let (kinds, scores) = (of_each("token_type")?, of_each("scores")?);
        let mut end_tokens: BTreeSet<u32> = BTreeSet::new();
        for name in ["eos_token_id", "eot_token_id", "eom_token_id"] {
            end_tokens.extend(id(name)?.map(|id| id as u32));
        }
        let ends = |place: usize, token: &String| {
            kinds.get(place) == Some(&CONTROL) && TURN_ENDS.contains(&token.as_str())
        };
        for (place, token) in tokens.iter().enumerate() {
            if ends(place, token) {
                end_tokens.insert(place as u32);
            }
        }
        Ok(Self {
            model: text("model")?.ok_or_else(|| format!("{PREFIX}.model is missing"))?,
            split: text("pre")?.unwrap_or_else(|| "default".to_owned()),
            architecture: spec.architecture.clone(),
            merges: metadata.texts(&key("merges"))?.map(<[String]>::to_vec),
            unknown: id("unknown_token_id")?,
            begin: id("bos_token_id")?,
            end: id("eos_token_id")?,
            adds_begin: metadata.flag(&key("add_bos_token"))?,
            adds_end: metadata.flag(&key("add_eos_token"))?.unwrap_or(false),
            adds_space: metadata.flag(&key("add_space_prefix"))?,
            json: metadata
                .text("tokenizer.huggingface.json")?
                .map(str::to_owned),
            template: metadata.text("tokenizer.chat_template")?.map(str::to_owned),
            tools_template: metadata
                .text("tokenizer.chat_template.tool_use")?
                .map(str::to_owned),
            end_tokens,
            sampling: sampling(metadata)?,
            tokens,
            kinds,
            scores,
        })
    }

    pub fn generation(&self) -> Generation {
        Generation {
            end_tokens: self.end_tokens.clone(),
            sampling: self.sampling.clone(),
        }
    }

    /// The texts of the begin and end tokens.
    pub fn ends(&self) -> [Option<&str>; 2] {
        [self.begin, self.end].map(|id| Some(self.tokens.get(id?)?.as_str()))
    }
}

/// The authors' recommended sampling settings, which newer files contain. Values out of range are ignored: they are advice.
fn sampling(metadata: &Values) -> Result<SamplingSettings, String> {
    let defaults = SamplingSettings::default();
    let number = |name: &str, most: f64| -> Result<Option<f32>, String> {
        let number = metadata.fraction(&format!("general.sampling.{name}"))?;
        Ok(number
            .filter(|number| (0.0..=most).contains(number))
            .map(|number| number as f32))
    };
    Ok(SamplingSettings {
        temperature: number("temp", 2.0)?.unwrap_or(defaults.temperature),
        top_p: number("top_p", 1.0)?.unwrap_or(defaults.top_p),
        min_p: number("min_p", 1.0)?.unwrap_or(defaults.min_p),
        top_k: number("top_k", 1e9)?
            .map(|count| count as usize)
            .filter(|count| *count > 0),
        repetition_penalty: number("penalty_repeat", 10.0)?
            .filter(|penalty| *penalty >= 0.01)
            .unwrap_or(defaults.repetition_penalty),
        ..defaults
    })
}
