//! Builds a tokenizer from a GGUF vocabulary that yields the same tokens as the original `tokenizer.json`.
//!
//! A GGUF file contains the vocabulary and the name of a pre-tokenizer. Normalisers and patterns are taken from the
//! `tokenizer.json` of the families that use that name.

use super::vocabulary::{CONTROL, GgufVocabulary, UNKNOWN, USER_DEFINED};
use serde_json::{Value, json};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use tokenizers::Tokenizer;

/// Llama 3's pattern: up to three digits together.
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Qwen 2's pattern: single digits.
const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// The pattern of Mistral's Tekken.
const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// GPT-4o's pattern, also used by Phi-4-mini.
const GPT4O: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// The splitting of text before merges.
enum Split {
    Pattern(&'static str),
    /// GPT-2's own pattern.
    Gpt2,
    /// GPT-2's pattern, with single digits.
    Gpt2Digits,
}

/// A pre-tokenizer and its settings.
struct PreTokenizer {
    split: Split,
    /// Normalises to NFC first.
    composes: bool,
    /// A word that is in the vocabulary becomes one token without merges.
    ignores_merges: bool,
    /// Default for adding a begin token, if the file does not say.
    adds_begin: bool,
}

const WAYS: [&str; 26] = [
    "default",
    "gpt-2",
    "olmo",
    "phi-2",
    "llama-bpe",
    "llama3",
    "llama-v3",
    "falcon3",
    "pixtral",
    "smaug-bpe",
    "dbrx",
    "lfm2",
    "qwen2",
    "deepseek-r1-qwen",
    "megrez",
    "tekken",
    "gpt-4o",
    "llama4",
    "kanana2",
    "smollm",
    "refact",
    "starcoder",
    "command-r",
    "codeshell",
    "granite",
    "exaone",
];

fn way(name: &str) -> Result<PreTokenizer, String> {
    let way = |split, composes, ignores_merges, adds_begin| PreTokenizer {
        split,
        composes,
        ignores_merges,
        adds_begin,
    };
    Ok(match name {
        "default" | "gpt-2" | "olmo" | "phi-2" => way(Split::Gpt2, false, false, false),
        "llama-bpe" | "llama3" | "llama-v3" | "falcon3" | "pixtral" => {
            way(Split::Pattern(LLAMA3), false, true, true)
        }
        "smaug-bpe" | "dbrx" | "lfm2" => way(Split::Pattern(LLAMA3), false, false, false),
        "qwen2" | "deepseek-r1-qwen" | "megrez" => way(Split::Pattern(QWEN2), true, false, false),
        "tekken" => way(Split::Pattern(TEKKEN), false, true, true),
        "gpt-4o" | "llama4" | "kanana2" => way(Split::Pattern(GPT4O), false, false, false),
        "smollm" | "refact" | "starcoder" | "command-r" | "codeshell" | "granite" | "exaone" => {
            way(Split::Gpt2Digits, false, false, false)
        }
        other => {
            return Err(format!(
                "tokenizer.ggml.pre is {other}; this engine supports {}",
                WAYS.join(", ")
            ));
        }
    })
}

impl GgufVocabulary {
    /// Builds the tokenizer.
    ///
    /// # Errors
    /// If the kind of vocabulary is unknown, or its lists contradict each other.
    pub fn tokenizer(&self) -> Result<Tokenizer, String> {
        let json = match &self.json {
            Some(json) => json.clone(),
            None => self.written()?.to_string(),
        };
        Tokenizer::from_bytes(json)
            .map_err(|error| format!("its vocabulary is not a valid tokenizer ({error})"))
    }

    /// Builds the contents of a `tokenizer.json`.
    fn written(&self) -> Result<Value, String> {
        match self.model.as_str() {
            "gpt2" => self.byte_level(),
            "llama" => self.sentencepiece(),
            other => Err(format!(
                "tokenizer.ggml.model is {other}; this engine supports llama and gpt2"
            )),
        }
    }

    fn byte_level(&self) -> Result<Value, String> {
        let way = way(&self.split)?;
        let bytes = |own_pattern: bool| json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": own_pattern});
        let first = match way.split {
            Split::Pattern(pattern) => Some(
                json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false}),
            ),
            Split::Gpt2 => None,
            Split::Gpt2Digits => Some(json!({"type": "Digits", "individual_digits": true})),
        };
        let last = bytes(!matches!(way.split, Split::Pattern(_)));
        let parts: Vec<Value> = first.into_iter().chain([last]).collect();
        let merges = self
            .merges
            .as_ref()
            .ok_or("tokenizer.ggml.merges is missing")?;
        let merges = merges
            .iter()
            .map(|merge| {
                merge
                    .split_once(' ')
                    .map(|(left, right)| json!([left, right]))
                    .ok_or_else(|| {
                        format!("tokenizer.ggml.merges contains {merge:?}, which is not a pair")
                    })
            })
            .collect::<Result<Vec<_>, _>>()?;
        Ok(self.to_json(
            way.composes.then(|| json!({"type": "NFC"})),
            Some(json!({"type": "Sequence", "pretokenizers": parts})),
            bytes(true),
            json!({"type": "BPE", "vocab": self.vocabulary(&self.tokens), "merges": merges, "ignore_merges": way.ignores_merges,
                "byte_fallback": false, "fuse_unk": false, "unk_token": null, "dropout": null,
                "continuing_subword_prefix": null, "end_of_word_suffix": null}),
            self.adds_begin.unwrap_or(way.adds_begin),
        ))
    }

    fn sentencepiece(&self) -> Result<Value, String> {
        let gemma = self.architecture.starts_with("gemma");
        // Gemma's files write runs of spaces as plain spaces.
        let tokens: Vec<String> = self
            .tokens
            .iter()
            .map(|token| {
                let spaces = gemma && !token.is_empty() && token.bytes().all(|byte| byte == b' ');
                if spaces {
                    "▁".repeat(token.len())
                } else {
                    token.clone()
                }
            })
            .collect();
        let scores: Vec<f64> = if gemma || self.scores.is_empty() {
            // Gemma's scores do not follow the order of its merges; its ids do.
            (0..tokens.len()).map(|id| -(id as f64)).collect()
        } else {
            self.scores.clone()
        };
        let spaced = self.adds_space.unwrap_or(!gemma);
        let replace = json!({"type": "Replace", "pattern": {"String": " "}, "content": "▁"});
        let normalizer = if spaced {
            json!({"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, replace]})
        } else {
            replace
        };
        let mut decoders = vec![
            json!({"type": "Replace", "pattern": {"String": "▁"}, "content": " "}),
            json!({"type": "ByteFallback"}),
            json!({"type": "Fuse"}),
        ];
        if spaced {
            decoders.push(json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}));
        }
        let unknown = self.unknown.or_else(|| {
            let found = self.kinds.iter().position(|kind| *kind == UNKNOWN);
            found.or_else(|| tokens.iter().position(|token| token == "<unk>"))
        });
        let merges = match &self.merges {
            Some(merges) => merges
                .iter()
                .filter_map(|merge| merge.split_once(' '))
                .map(|(left, right)| json!([left, right]))
                .collect(),
            None => self.implied_merges(&tokens, &scores),
        };
        Ok(self.to_json(
            Some(normalizer),
            None,
            json!({"type": "Sequence", "decoders": decoders}),
            json!({"type": "BPE", "vocab": self.vocabulary(&tokens), "merges": merges, "ignore_merges": false,
                "byte_fallback": true, "fuse_unk": true, "unk_token": unknown.map(|id| &tokens[id]), "dropout": null,
                "continuing_subword_prefix": null, "end_of_word_suffix": null}),
            self.adds_begin.unwrap_or(true),
        ))
    }

    fn to_json(
        &self,
        normalizer: Option<Value>,
        pre_tokenizer: Option<Value>,
        decoder: Value,
        model: Value,
        adds_begin: bool,
    ) -> Value {
        json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": self.added(), "normalizer": normalizer,
            "pre_tokenizer": pre_tokenizer, "post_processor": self.surrounding(adds_begin), "decoder": decoder, "model": model,
        })
    }

    fn vocabulary(&self, tokens: &[String]) -> Value {
        let mut token_ids = serde_json::Map::new();
        for (id, token) in tokens.iter().enumerate() {
            // If two tokens have the same text, the first one is used.
            token_ids.entry(token.clone()).or_insert_with(|| json!(id));
        }
        Value::Object(token_ids)
    }

    /// Tokens that are matched before the text is split.
    fn added(&self) -> Vec<Value> {
        let ends = [self.begin, self.end];
        self.tokens
            .iter()
            .enumerate()
            .filter_map(|(id, token)| {
                let kind = self.kinds.get(id).copied().unwrap_or_default();
                let special = kind == CONTROL || kind == UNKNOWN || ends.contains(&Some(id));
                let added = (special || kind == USER_DEFINED) && !token.is_empty();
                added.then(|| {
                    json!({"id": id, "content": token, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
                        "special": special})
                })
            })
            .collect()
    }

    /// The post-processor, which adds begin and end tokens to plain text.
    fn surrounding(&self, adds_begin: bool) -> Option<Value> {
        let begin = self.begin.filter(|_| adds_begin);
        let end = self.end.filter(|_| self.adds_end);
        if begin.is_none() && end.is_none() {
            return None;
        }
        let token = |id: Option<usize>, kind: usize| {
            id.map(|id| json!({"SpecialToken": {"id": self.tokens[id], "type_id": kind}}))
        };
        let around = |name: &str, kind: usize| -> Vec<Value> {
            let text = json!({"Sequence": {"id": name, "type_id": kind}});
            let parts = [token(begin, kind), Some(text), token(end, kind)];
            parts.into_iter().flatten().collect()
        };
        let mut special = serde_json::Map::new();
        for id in [begin, end].into_iter().flatten() {
            let token = &self.tokens[id];
            special.insert(
                token.clone(),
                json!({"id": token, "ids": [id], "tokens": [token]}),
            );
        }
        let pair: Vec<Value> = around("A", 0).into_iter().chain(around("B", 1)).collect();
        Some(
            json!({"type": "TemplateProcessing", "single": around("A", 0), "pair": pair, "special_tokens": special}),
        )
    }

    /// The merges implied by a sentencepiece vocabulary: every split of a token into two tokens, the best token first.
    fn implied_merges(&self, tokens: &[String], scores: &[f64]) -> Vec<Value> {
        let ids: BTreeMap<&str, usize> = tokens
            .iter()
            .enumerate()
            .map(|(id, token)| (token.as_str(), id))
            .collect();
        let mut merges = Vec::new();
        for (token, score) in tokens.iter().zip(scores) {
            let mut of_token: Vec<(usize, usize, &str, &str)> = token
                .char_indices()
                .skip(1)
                .filter_map(|(cut, _)| {
                    let (left, right) = token.split_at(cut);
                    Some((*ids.get(left)?, *ids.get(right)?, left, right))
                })
                .collect();
            of_token.sort();
            merges.extend(
                of_token
                    .into_iter()
                    .map(|(_, _, left, right)| (*score, left, right)),
            );
        }
        let letters = |text: &str| text.chars().count();
        merges.sort_by(|one, other| {
            let scores = other.0.partial_cmp(&one.0).unwrap_or(Ordering::Equal);
            scores
                .then_with(|| letters(other.1).cmp(&letters(one.1)))
                .then_with(|| letters(other.2).cmp(&letters(one.2)))
        });
        merges
            .into_iter()
            .map(|(_, left, right)| json!([left, right]))
            .collect()
    }
}
