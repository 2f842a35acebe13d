//! The special tokens of a Whisper model, its languages, and the tokens that it must not choose.

use super::languages;
use crate::api_error::ApiError;
use crate::error::EngineError;
use crate::files::{read_json, read_tokenizer};
use serde_json::Value;
use std::path::Path;
use tokenizers::Tokenizer;

/// Timestamps of a window: from 0 to 30 seconds in steps of 20 ms.
pub(super) const TIMESTAMPS: u32 = 1501;
/// First timestamps beyond this index are not allowed: 1 second.
const INITIAL_TIMESTAMP_MAX: u32 = 50;

/// The language of the text: the recording's own, or English.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SpeechTask {
    Transcribe,
    Translate,
}

impl SpeechTask {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Transcribe => "transcribe",
            Self::Translate => "translate",
        }
    }
}

/// A language of the model, with its token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Language {
    pub code: &'static str,
    pub token: u32,
}

/// The tokens of a model.
pub(super) struct Vocabulary {
    tokenizer: Tokenizer,
    /// Token ids up to here are in the network's logits.
    pub size: usize,
    /// Ends a window's text. Text tokens are below.
    pub end: u32,
    pub start: u32,
    pub start_of_previous: u32,
    pub no_speech: Option<u32>,
    tasks: Option<(u32, u32)>,
    /// Empty for models of English alone.
    pub languages: Vec<Language>,
    /// The first timestamp. No token after the timestamps has a meaning.
    pub first_timestamp: u32,
    pub initial_timestamp_max: u32,
    /// Tokens that are never chosen, in addition to the special ones.
    pub suppressed: Vec<u32>,
    /// Tokens that are not chosen first.
    pub suppressed_first: Vec<u32>,
}

impl Vocabulary {
    /// Reads `tokenizer.json` and `generation_config.json` of a folder.
    ///
    /// # Errors
    /// If a file is missing or invalid, or a special token is missing.
    pub fn read(folder: &Path, config: &Value, size: usize) -> Result<Self, EngineError> {
        let (tokenizer, file) = read_tokenizer(folder)?;
        let wrong = |problem: String| {
            EngineError::model(
                &file,
                problem,
                "download the files of a Whisper model completely",
            )
        };
        let token = |word: &str| {
            tokenizer
                .token_to_id(word)
                .filter(|id| (*id as usize) < size)
        };
        let needed = |word: &str| {
            token(word).ok_or_else(|| {
                wrong(format!(
                    "it has no token {word} below config.json's vocab_size {size}"
                ))
            })
        };
        let end = needed("<|endoftext|>")?;
        let start = needed("<|startoftranscript|>")?;
        let start_of_previous = needed("<|startofprev|>")?;
        let no_timestamps = needed("<|notimestamps|>")?;
        let first_timestamp = no_timestamps + 1;
        if (first_timestamp + TIMESTAMPS) as usize > size {
            return Err(wrong(format!(
                "{TIMESTAMPS} timestamps follow <|notimestamps|> ({no_timestamps}), which is more than config.json's vocab_size {size}"
            )));
        }
        let generation = read_json(&folder.join("generation_config.json"))?.unwrap_or(Value::Null);
        let languages: Vec<Language> = languages::codes()
            .filter_map(|code| {
                let token = token(&format!("<|{code}|>"))?;
                Some(Language { code, token })
            })
            .collect();
        let is_multilingual = generation["is_multilingual"].as_bool();
        // Models of English alone have the languages' tokens as well, and other ids for the start.
        let is_multilingual =
            is_multilingual.unwrap_or(end != ENGLISH_END) && !languages.is_empty();
        let tasks = token("<|transcribe|>").zip(token("<|translate|>"));
        if is_multilingual && tasks.is_none() {
            return Err(wrong(
                "it has no tokens <|transcribe|> and <|translate|>".to_owned(),
            ));
        }
        let list = |name: &str| -> Option<Vec<u32>> {
            let list = [&generation[name], &config[name]];
            let list = list.into_iter().find_map(Value::as_array)?;
            let ids = list.iter().filter_map(Value::as_u64);
            Some(ids.filter_map(|id| u32::try_from(id).ok()).collect())
        };
        let blank = token("Ġ").into_iter().chain([end]).collect();
        Ok(Self {
            size,
            end,
            start,
            start_of_previous,
            no_speech: token("<|nospeech|>").or_else(|| token("<|nocaptions|>")),
            tasks: tasks.filter(|_| is_multilingual),
            languages: if is_multilingual {
                languages
            } else {
                Vec::new()
            },
            first_timestamp,
            initial_timestamp_max: generation["max_initial_timestamp_index"]
                .as_u64()
                .map_or(INITIAL_TIMESTAMP_MAX, |index| index.min(1500) as u32),
            suppressed: list("suppress_tokens").unwrap_or_default(),
            suppressed_first: list("begin_suppress_tokens").unwrap_or(blank),
            tokenizer,
        })
    }

    /// Finds the language that a request names.
    ///
    /// # Errors
    /// 400 if the model does not have it.
    pub fn language(&self, text: &str) -> Result<&'static str, ApiError> {
        let code = languages::code_of(text);
        if self.languages.is_empty() {
            return if code == Some("en") {
                Ok("en")
            } else {
                Err(ApiError::field(
                    "language",
                    format!(
                        "`language` must be en, not {}: this model supports 1 language",
                        shown(text)
                    ),
                ))
            };
        }
        let known = self.languages.iter().find(|known| Some(known.code) == code);
        known.map(|known| known.code).ok_or_else(|| {
            let codes: Vec<&str> = self.languages.iter().map(|known| known.code).collect();
            ApiError::field(
                "language",
                format!(
                    "`language` must be one of the {} languages that this model supports ({}), not {}",
                    codes.len(),
                    codes.join(", "),
                    shown(text)
                ),
            )
        })
    }

    /// Returns true if the model translates into English.
    pub fn translates(&self) -> bool {
        self.tasks.is_some()
    }

    /// The tokens before a window's text.
    pub fn start_tokens(&self, language: &str, task: SpeechTask) -> Vec<u32> {
        let language = self.languages.iter().find(|known| known.code == language);
        let (Some(language), Some((transcribe, translate))) = (language, self.tasks) else {
            return vec![self.start];
        };
        let task = match task {
            SpeechTask::Transcribe => transcribe,
            SpeechTask::Translate => translate,
        };
        vec![self.start, language.token, task]
    }

    /// The token before a text without timestamps.
    pub fn no_timestamps(&self) -> u32 {
        self.first_timestamp - 1
    }

    /// Returns true for a token of text.
    pub fn is_text(&self, token: u32) -> bool {
        token < self.end
    }

    /// Returns true for a timestamp.
    pub fn is_timestamp(&self, token: u32) -> bool {
        token >= self.first_timestamp
    }

    /// Steps of 20 ms that a timestamp stands for.
    pub fn steps_of(&self, timestamp: u32) -> usize {
        timestamp.saturating_sub(self.first_timestamp) as usize
    }

    /// # Errors
    /// 400 if the tokenizer rejects the text.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, ApiError> {
        let encoding = self.tokenizer.encode_fast(text, false);
        let encoding = encoding.map_err(|error| {
            ApiError::field("prompt", format!("`prompt` cannot be tokenised: {error}"))
        })?;
        let ids = encoding.get_ids().iter().copied();
        Ok(ids.filter(|id| self.is_text(*id)).collect())
    }

    /// The text of tokens without special tokens and timestamps.
    pub fn text(&self, tokens: &[u32]) -> String {
        let text = tokens.iter().copied().filter(|token| self.is_text(*token));
        let text: Vec<u32> = text.collect();
        // The decoder fails for no list of ids.
        self.tokenizer.decode(&text, false).unwrap_or_default()
    }
}

/// `<|endoftext|>` of GPT-2's tokenizer, which models of English alone use.
const ENGLISH_END: u32 = 50_256;

/// A client's text for a message, shortened.
fn shown(text: &str) -> String {
    reading::shortened(&Value::from(text).to_string())
}
