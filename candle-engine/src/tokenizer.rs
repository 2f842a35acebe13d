//! The tokenizer of a model and its special tokens.

use crate::api_error::ApiError;
use crate::detokenize::DecodeTokens;
use crate::error::EngineError;
use crate::files::{ModelFiles, TokenizerFile};
use crate::vocabulary::Vocabulary;
use std::collections::BTreeSet;
use tokenizers::Tokenizer;

#[cfg(test)]
mod vectors;

/// Converts between text and tokens, and knows the end tokens.
pub(crate) struct ModelTokenizer {
    tokenizer: Tokenizer,
    /// Maximum length of a token's text, in bytes.
    longest_token_bytes: usize,
    /// Tokens that end a completion; their text is never emitted.
    pub end_tokens: BTreeSet<u32>,
    /// Number of token ids; the model's embedding may have additional, unused rows.
    pub vocabulary: usize,
    /// The text of each token.
    pub token_texts: Vocabulary,
    /// The text of the beginning-of-sequence token, for templates.
    pub bos_token: Option<String>,
    /// The text of the end-of-sequence token, for templates.
    pub eos_token: Option<String>,
}

impl ModelTokenizer {
    /// Loads the tokenizer from a model's files.
    ///
    /// # Errors
    /// If a file is missing or invalid, or the vocabulary is larger than the model's embedding.
    pub fn load(files: &ModelFiles) -> Result<Self, EngineError> {
        let TokenizerFile {
            tokenizer,
            file,
            bos_token,
            eos_token,
        } = files.tokenizer()?;
        let words = tokenizer.get_vocab(true);
        let longest_token_bytes = words.keys().map(String::len).max().unwrap_or(1).max(1);
        let vocabulary = words.into_values().max().map_or(0, |id| id as usize + 1);
        let rows = files.vocabulary();
        if vocabulary > rows {
            return Err(EngineError::model(
                &file,
                format!(
                    "its vocabulary has {vocabulary} tokens, but the model's embedding has {rows} (vocab_size)"
                ),
                "use the tokenizer that belongs to the model",
            ));
        }
        if vocabulary == 0 {
            return Err(EngineError::model(
                &file,
                "its vocabulary is empty",
                "use the tokenizer that belongs to the model",
            ));
        }
        let mut end_tokens = files.end_tokens().clone();
        end_tokens.extend(
            eos_token
                .as_deref()
                .and_then(|token| tokenizer.token_to_id(token)),
        );
        if let Some(id) = end_tokens.iter().find(|id| **id as usize >= rows) {
            return Err(EngineError::model(
                files.description(),
                format!("eos_token_id {id} is outside the vocabulary of {rows}"),
                "correct it",
            ));
        }
        Ok(Self {
            token_texts: Vocabulary::new(&tokenizer, vocabulary),
            tokenizer,
            longest_token_bytes,
            end_tokens,
            vocabulary,
            bos_token,
            eos_token,
        })
    }

    /// Lower bound for the number of tokens in a text of `bytes` bytes. Generous, because a tokenizer may drop white space first.
    pub fn tokens_at_least(&self, bytes: usize) -> usize {
        bytes / self.longest_token_bytes / 4
    }

    /// Returns the id of a token by its spelling in the tokenizer's file.
    pub fn token_of(&self, text: &str) -> Option<u32> {
        self.tokenizer.token_to_id(text)
    }

    /// Returns the id of a special token by its text.
    pub fn special_token(&self, text: &str) -> Option<u32> {
        let id = self.tokenizer.token_to_id(text);
        id.filter(|id| self.token_texts.special.contains(id))
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

    /// Tokenizes `text`. Rendered chat templates contain their special tokens already; plain prompts need `add_special_tokens`.
    ///
    /// # Errors
    /// If the tokenizer rejects the text.
    pub fn encode(&self, text: &str, add_special_tokens: bool) -> Result<Vec<u32>, ApiError> {
        let encoding = self.tokenizer.encode_fast(text, add_special_tokens);
        let encoding = encoding
            .map_err(|error| ApiError::invalid(format!("the text cannot be tokenised: {error}")))?;
        Ok(encoding.get_ids().to_vec())
    }
}

impl DecodeTokens for ModelTokenizer {
    fn decode(&self, tokens: &[u32]) -> Result<String, ApiError> {
        self.tokenizer
            .decode(tokens, true)
            .map_err(|error| ApiError::internal(format!("tokens cannot be decoded: {error}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::detokenize::Detokenizer;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};
    use serde_json::json;
    use std::path::Path;

    fn demo() -> ModelTokenizer {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../demo/models/tiny-chat");
        let files = ModelFiles::open(&folder).expect("the demo model can be opened");
        ModelTokenizer::load(&files).expect("the demo model has a tokenizer")
    }

    /// A sentencepiece-like tokenizer: two words, and a token per byte.
    fn byte_fallback() -> ModelTokenizer {
        let mut vocabulary = serde_json::Map::new();
        for byte in 0..256 {
            vocabulary.insert(format!("<0x{byte:02X}>"), json!(byte));
        }
        vocabulary.insert("▁hello".to_owned(), json!(256));
        vocabulary.insert("▁".to_owned(), json!(257));
        let decoders = json!([
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}
        ]);
        let json = json!({
            "version": "1.0", "added_tokens": [], "truncation": null, "padding": null, "pre_tokenizer": null, "post_processor": null,
            "normalizer": {"type": "Sequence", "normalizers": [
                {"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
            "decoder": {"type": "Sequence", "decoders": decoders},
            "model": {"type": "BPE", "vocab": vocabulary, "merges": [], "byte_fallback": true, "unk_token": null,
                "dropout": null, "continuing_subword_prefix": null, "end_of_word_suffix": null, "fuse_unk": false, "ignore_merges": true}
        });
        let tokenizer =
            Tokenizer::from_bytes(json.to_string()).expect("the tokenizer is well formed");
        ModelTokenizer {
            token_texts: Vocabulary::new(&tokenizer, 258),
            tokenizer,
            longest_token_bytes: 16,
            end_tokens: BTreeSet::new(),
            vocabulary: 258,
            bos_token: None,
            eos_token: None,
        }
    }

    fn pieces(tokenizer: &ModelTokenizer, tokens: &[u32]) -> String {
        let mut detokenizer = Detokenizer::new();
        let mut text: String = tokens
            .iter()
            .map(|token| detokenizer.push(tokenizer, *token).expect("decodes"))
            .collect();
        text += &detokenizer.finish(tokenizer).expect("decodes");
        text
    }

    #[test]
    fn every_text_survives_encoding_and_incremental_decoding() {
        for tokenizer in [demo(), byte_fallback()] {
            for text in [
                "hello",
                "What is a lease?",
                "naïve café",
                "日本語のテキスト",
                "👩‍👩‍👧 family 😀",
                "tabs\tand\nlines",
                "\u{0}\u{7f}",
            ] {
                let tokens = tokenizer.encode(text, false).expect("encodes");
                assert_eq!(pieces(&tokenizer, &tokens), text);
            }
        }
    }

    #[test]
    fn pieces_of_random_tokens_equal_the_full_decode() {
        let tokenizer = demo();
        let mut random = StdRng::seed_from_u64(9);
        for _ in 0..200 {
            let tokens: Vec<u32> = (0..60)
                .map(|_| random.random_range(0..tokenizer.vocabulary as u32))
                .collect();
            assert_eq!(
                pieces(&tokenizer, &tokens),
                tokenizer.decode(&tokens).expect("decodes")
            );
        }
    }

    #[test]
    fn special_tokens_are_never_shown() {
        let tokenizer = demo();
        let tokens = tokenizer
            .encode("<|im_start|>a<|im_end|>", false)
            .expect("encodes");
        assert_eq!(tokens.len(), 3);
        assert_eq!(tokenizer.decode(&tokens).expect("decodes"), "a");
    }
}
