//! Turns texts into the tokens of an encoder: special tokens, pairs, prompts, limits and truncation.

mod errors;
mod prompts;

pub(super) use errors::check_text;

use super::network::Sequence;
use crate::api_error::ApiError;
use crate::error::EngineError;
use crate::files::{read_json, read_tokenizer};
use errors::{empty, no_room, no_tokens, too_long};
use prompts::Prompts;
use serde_json::Value;
use std::path::Path;
use tokenizers::utils::truncation::{
    TruncationDirection, TruncationParams, TruncationStrategy, truncate_encodings,
};
use tokenizers::{Encoding, PostProcessor, Tokenizer};

/// The treatment of a text with too many tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cut {
    /// Maximum number of tokens, including special tokens.
    pub most: usize,
    /// Truncate longer texts instead of refusing them.
    pub is_allowed: bool,
    /// Cut off the beginning instead of the end.
    pub from_left: bool,
}

/// The tokenizer of an encoder, and the text settings of its files.
pub(crate) struct Texts {
    tokenizer: Tokenizer,
    /// Rows of the embedding.
    vocabulary: usize,
    /// Maximum tokens of a text, including special tokens.
    pub limit: usize,
    lowercases: bool,
    pub prompts: Prompts,
    /// Pooling includes the prompt's tokens.
    includes_prompt: bool,
}

impl Texts {
    /// Reads `tokenizer.json` and Sentence Transformers' files in the folder. `most` is the number of tokens that the network and
    /// the options allow.
    ///
    /// # Errors
    /// If a file is missing; see also [`Self::new`].
    pub fn load(
        folder: &Path,
        vocabulary: usize,
        most: usize,
        includes_prompt: bool,
    ) -> Result<Self, EngineError> {
        let (tokenizer, file) = read_tokenizer(folder)?;
        let from = (file.as_path(), Some(folder));
        Self::new(tokenizer, from, vocabulary, most, includes_prompt)
    }

    /// Takes a tokenizer read from a file, and Sentence Transformers' files if the folder has any.
    ///
    /// # Errors
    /// If a file is invalid, or the vocabulary is larger than the model's embedding.
    pub fn new(
        mut tokenizer: Tokenizer,
        (file, folder): (&Path, Option<&Path>),
        vocabulary: usize,
        most: usize,
        includes_prompt: bool,
    ) -> Result<Self, EngineError> {
        // Files often contain the padding and truncation settings of some earlier batch.
        tokenizer.with_padding(None);
        tokenizer
            .with_truncation(None)
            .map_err(|error| EngineError::load(format!("{}: {error}", file.display())))?;
        let highest = tokenizer.get_vocab(true).into_values().max();
        let tokens = highest.map_or(0, |id| id as usize + 1);
        if tokens == 0 || tokens > vocabulary {
            return Err(EngineError::model(
                file,
                format!(
                    "its vocabulary has {tokens} tokens, but the model's embedding has {vocabulary} (vocab_size in config.json)"
                ),
                "use the tokenizer that belongs to the model",
            ));
        }
        let beside = |name: &str| -> Result<Value, EngineError> {
            Ok(match folder {
                Some(folder) => read_json(&folder.join(name))?.unwrap_or_default(),
                None => Value::Null,
            })
        };
        let sentences = beside("sentence_bert_config.json")?;
        let settings = beside("tokenizer_config.json")?;
        let what = |value: &Value| {
            value
                .as_u64()
                .map(|limit| usize::try_from(limit).unwrap_or(most))
        };
        // Like Sentence Transformers: its own limit, otherwise the tokenizer's. Some tokenizers use a very large number for no
        // limit.
        let own = what(&sentences["max_seq_length"]).or(what(&settings["model_max_length"]));
        let limit = own.filter(|own| *own > 0).unwrap_or(most).min(most);
        let prompts_file = "config_sentence_transformers.json";
        let prompts = Prompts::new(&beside(prompts_file)?).map_err(|problem| {
            let file = file.with_file_name(prompts_file);
            EngineError::model(file, problem, "correct it or remove it")
        })?;
        let texts = Self {
            tokenizer,
            vocabulary,
            limit,
            lowercases: sentences["do_lower_case"] == true,
            prompts,
            includes_prompt,
        };
        if limit <= texts.added(true) {
            return Err(EngineError::model(
                file,
                format!(
                    "a text may have {limit} tokens, which leaves no room after the {} special tokens of a pair",
                    texts.added(true)
                ),
                "raise max_seq_length in sentence_bert_config.json or model_max_length in tokenizer_config.json",
            ));
        }
        Ok(texts)
    }

    /// Number of special tokens added to one text, or to a pair.
    pub fn added(&self, pair: bool) -> usize {
        let processor = self.tokenizer.get_post_processor();
        processor.map_or(0, |processor| processor.added_tokens(pair))
    }

    /// Tokenizes a text. `param` names it in errors.
    ///
    /// # Errors
    /// 400 if the text is empty or too long.
    pub fn single(
        &self,
        prompt: &str,
        text: &str,
        adds_special: bool,
        cut: Cut,
        param: &str,
    ) -> Result<Sequence, ApiError> {
        let what;
        let text = match prompt {
            "" => check_text(text, param)?,
            prompt => {
                what = format!("{prompt}{}", check_text(text, param)?);
                &what
            }
        };
        let tokens = self.split(text, param)?;
        let mut sequence = self.finish(tokens, None, adds_special, cut, param)?;
        if !prompt.is_empty() && !self.includes_prompt {
            sequence.passed_over = self.tokens_of_prompt(prompt, adds_special)?;
        }
        Ok(sequence)
    }

    /// Tokenizes a pair of texts.
    ///
    /// # Errors
    /// 400 if the texts are empty or too long.
    pub fn pair(
        &self,
        first: (&Encoding, &str),
        second: &str,
        cut: Cut,
        param: &str,
    ) -> Result<Sequence, ApiError> {
        let tokens = self.split(check_text(second, param)?, param)?;
        let what = format!("`{}` and `{param}` together", first.1);
        self.finish_named(first.0.clone(), Some(tokens), true, cut, param, &what)
    }

    /// Tokenizes the first text of a pair, for reuse with several second texts.
    ///
    /// # Errors
    /// 400 if the text is empty, or too long to tokenize.
    pub fn first_of_pair(&self, text: &str, param: &str) -> Result<Encoding, ApiError> {
        self.split(check_text(text, param)?, param)
    }

    /// Tokenizes a text without adding special tokens.
    ///
    /// # Errors
    /// 400 if the text is empty, or too long to tokenize.
    pub fn tokens(&self, text: &str, param: &str) -> Result<Vec<u32>, ApiError> {
        let tokens = self.split(check_text(text, param)?, param)?;
        Ok(tokens.get_ids().to_vec())
    }

    /// Places tokens between others that are never truncated. `what` names the combination in errors.
    ///
    /// # Errors
    /// 400 if there are too many tokens.
    pub fn between(
        &self,
        before: &[u32],
        mut tokens: Vec<u32>,
        after: &[u32],
        cut: Cut,
        param: &str,
        what: &str,
    ) -> Result<Sequence, ApiError> {
        let around = before.len() + after.len();
        let count = tokens.len() + around;
        if count > cut.most {
            if !cut.is_allowed {
                return Err(too_long(what, count, cut.most, param));
            }
            if cut.from_left {
                return Err(ApiError::field(
                    "truncation_direction",
                    "`truncation_direction` is left, but this model's prompt begins with the query; only the end of a document can be cut off",
                ));
            }
            if cut.most <= around {
                return Err(no_room(cut.most, around));
            }
            tokens.truncate(cut.most - around);
        }
        let tokens = [before, &tokens, after].concat();
        if tokens.is_empty() {
            return Err(no_tokens(param));
        }
        Ok(Sequence {
            types: vec![0; tokens.len()],
            tokens,
            passed_over: 0,
        })
    }

    /// Accepts tokens from the client, including special tokens.
    ///
    /// # Errors
    /// 400 for an empty list, for too many tokens, or for an id that the model does not have.
    pub fn of_tokens(
        &self,
        mut tokens: Vec<u32>,
        cut: Cut,
        param: &str,
    ) -> Result<Sequence, ApiError> {
        if tokens.is_empty() {
            return Err(empty(param));
        }
        self.check_tokens(&tokens, param)?;
        if tokens.len() > cut.most {
            if !cut.is_allowed {
                return Err(too_long(
                    &format!("`{param}`"),
                    tokens.len(),
                    cut.most,
                    param,
                ));
            }
            if cut.from_left {
                drop(tokens.drain(..tokens.len() - cut.most))
            } else {
                tokens.truncate(cut.most)
            }
        }
        Ok(Sequence {
            types: vec![0; tokens.len()],
            tokens,
            passed_over: 0,
        })
    }

    /// # Errors
    /// 400 if the model does not have an id.
    pub fn check_tokens(&self, tokens: &[u32], param: &str) -> Result<(), ApiError> {
        match tokens.iter().find(|id| **id as usize >= self.vocabulary) {
            None => Ok(()),
            Some(id) => Err(ApiError::field(
                param,
                format!(
                    "`{param}` has the token id {id}; this model has {} tokens, from 0 on",
                    self.vocabulary
                ),
            )),
        }
    }

    /// Decodes tokens, keeping special tokens in the text.
    ///
    /// # Errors
    /// If the decoder rejects the tokens.
    pub fn text_of(&self, tokens: &[u32]) -> Result<String, ApiError> {
        self.tokenizer
            .decode(tokens, false)
            .map_err(|error| ApiError::internal(format!("tokens cannot be decoded: {error}")))
    }

    /// A token as written in the tokenizer's file.
    pub fn word(&self, token: u32) -> String {
        self.tokenizer.id_to_token(token).unwrap_or_default()
    }

    fn split(&self, text: &str, param: &str) -> Result<Encoding, ApiError> {
        let lowered;
        let text = if self.lowercases {
            lowered = text.to_lowercase();
            &lowered
        } else {
            text
        };
        self.tokenizer.encode_fast(text, false).map_err(|error| {
            ApiError::field(param, format!("`{param}` cannot be tokenised: {error}"))
        })
    }

    fn finish(
        &self,
        tokens: Encoding,
        second: Option<Encoding>,
        adds_special: bool,
        cut: Cut,
        param: &str,
    ) -> Result<Sequence, ApiError> {
        let what = format!("`{param}`");
        self.finish_named(tokens, second, adds_special, cut, param, &what)
    }

    /// Truncates if allowed, and adds the special tokens.
    fn finish_named(
        &self,
        tokens: Encoding,
        second: Option<Encoding>,
        adds_special: bool,
        cut: Cut,
        param: &str,
        what: &str,
    ) -> Result<Sequence, ApiError> {
        let added = usize::from(adds_special) * self.added(second.is_some());
        let count = tokens.len() + second.as_ref().map_or(0, Encoding::len) + added;
        if count > cut.most && !cut.is_allowed {
            return Err(too_long(what, count, cut.most, param));
        }
        if cut.most <= added {
            return Err(no_room(cut.most, added));
        }
        let params = TruncationParams {
            max_length: cut.most - added,
            strategy: TruncationStrategy::LongestFirst,
            stride: 0,
            direction: if cut.from_left {
                TruncationDirection::Left
            } else {
                TruncationDirection::Right
            },
        };
        let encoding = truncate_encodings(tokens, second, &params)
            .and_then(|(first, second)| self.tokenizer.post_process(first, second, adds_special));
        let encoding = encoding.map_err(|error| {
            ApiError::internal(format!("`{param}` cannot be tokenised: {error}"))
        })?;
        if encoding.is_empty() {
            return Err(no_tokens(param));
        }
        Ok(Sequence {
            tokens: encoding.get_ids().to_vec(),
            types: encoding.get_type_ids().to_vec(),
            passed_over: 0,
        })
    }

    /// Number of tokens of a prompt at the beginning of a text, without the final special token.
    fn tokens_of_prompt(&self, prompt: &str, adds_special: bool) -> Result<usize, ApiError> {
        let encoding = self
            .tokenizer
            .encode_fast(prompt, adds_special)
            .map_err(|error| {
                ApiError::internal(format!("the prompt cannot be tokenised: {error}"))
            })?;
        let mask = encoding.get_special_tokens_mask();
        let after = mask.iter().rev().take_while(|special| **special == 1);
        Ok(encoding.len() - after.count())
    }
}
