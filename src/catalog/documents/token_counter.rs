//! Counts the tokens of texts with a model's `tokenizer.json`, which is read once, on first use. Blocking: call it outside the
//! event loop. Does not render chat templates and adds no special tokens.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use tokenizers::Tokenizer;

/// Allows for white space that a tokenizer drops before counting, as a factor of the text's length.
const WHITE_SPACE_FACTOR: usize = 4;
/// A text cut at a token boundary may have a different number of tokens when it is tokenized again.
const CUTS_MAX: usize = 8;

/// Clones share the loaded tokenizer.
#[derive(Clone, Default)]
pub struct TokenCounter(Arc<Mutex<Option<Arc<LoadedTokenizer>>>>);

struct LoadedTokenizer {
    tokenizer: Tokenizer,
    /// Maximum bytes of text that one token stands for.
    longest_token_bytes: usize,
}

/// The number of tokens in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenCount {
    Exactly(usize),
    /// More than the limit, where counting stopped.
    MoreThan(usize),
}

/// An error in counting. For the log only: it contains file names.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CountError {
    #[error("{path} cannot be read as a tokenizer: {problem}")]
    Unreadable { path: String, problem: String },
    #[error("the text cannot be tokenized: {problem}")]
    Text { problem: String },
}

impl TokenCounter {
    /// Counts the tokens of the text, up to `most`. `file` is the model's tokenizer.
    pub fn count(&self, file: &Path, text: &str, most: usize) -> Result<TokenCount, CountError> {
        let read = self.read(file)?;
        if text.len() > read.bytes_of(most) {
            return Ok(TokenCount::MoreThan(most));
        }
        read.count(text).map(TokenCount::Exactly)
    }

    /// The length in bytes of the first `most` tokens of the text.
    pub fn cut(&self, file: &Path, text: &str, most: usize) -> Result<usize, CountError> {
        let read = self.read(file)?;
        let mut end = floor(text, read.bytes_of(most));
        let mut keep = most;
        for _ in 0..CUTS_MAX {
            let encoding = read.tokenizer.encode(&text[..end], false);
            let encoding = encoding.map_err(|error| CountError::Text {
                problem: error.to_string(),
            })?;
            if encoding.len() <= most {
                return Ok(end);
            }
            end = match keep.checked_sub(1) {
                Some(last) => floor(text, encoding.get_offsets()[last.min(encoding.len() - 1)].1),
                None => 0,
            };
            keep = keep.saturating_sub(keep.div_ceil(8));
        }
        Ok(0)
    }

    fn read(&self, file: &Path) -> Result<Arc<LoadedTokenizer>, CountError> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(read) = &*known {
            return Ok(Arc::clone(read));
        }
        let read = Arc::new(LoadedTokenizer::new(file)?);
        *known = Some(Arc::clone(&read));
        Ok(read)
    }
}

impl LoadedTokenizer {
    fn new(file: &Path) -> Result<LoadedTokenizer, CountError> {
        let unreadable = |problem: String| CountError::Unreadable {
            path: file.display().to_string(),
            problem,
        };
        let mut tokenizer =
            Tokenizer::from_file(file).map_err(|error| unreadable(error.to_string()))?;
        // Some files truncate long texts and pad short ones.
        tokenizer.with_padding(None);
        let uncut = tokenizer.with_truncation(None);
        uncut.map_err(|error| unreadable(error.to_string()))?;
        let words = tokenizer.get_vocab(true);
        let longest_token_bytes = words.keys().map(String::len).max().unwrap_or(1).max(1);
        Ok(LoadedTokenizer {
            tokenizer,
            longest_token_bytes,
        })
    }

    /// Length in bytes above which a text has more than `tokens` tokens.
    fn bytes_of(&self, tokens: usize) -> usize {
        tokens
            .saturating_add(1)
            .saturating_mul(self.longest_token_bytes)
            .saturating_mul(WHITE_SPACE_FACTOR)
    }

    fn count(&self, text: &str) -> Result<usize, CountError> {
        let encoding = self.tokenizer.encode_fast(text, false);
        encoding
            .map(|encoding| encoding.len())
            .map_err(|error| CountError::Text {
                problem: error.to_string(),
            })
    }
}

/// The nearest character boundary at or before this byte.
fn floor(text: &str, byte: usize) -> usize {
    let mut end = byte.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    end
}

/// The tokenizer follows from the model's folder, which the entry compares.
impl PartialEq for TokenCounter {
    fn eq(&self, _: &TokenCounter) -> bool {
        true
    }
}

impl fmt::Debug for TokenCounter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenCounter")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn demo() -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../demo/models/tiny-chat/tokenizer.json")
    }

    const TEXT: &str = "What is a priority, and who leaves first? Ümläute — 中文.";

    #[test]
    fn a_text_is_truncated_to_its_first_tokens() {
        let (counter, file) = (TokenCounter::default(), demo());
        let Ok(TokenCount::Exactly(whole)) = counter.count(&file, TEXT, 1000) else {
            panic!("no count");
        };
        assert!(whole > 10, "{whole}");
        for most in 1..whole {
            let end = counter.cut(&file, TEXT, most).unwrap();
            assert!(TEXT.is_char_boundary(end) && end < TEXT.len());
            let Ok(TokenCount::Exactly(left)) = counter.count(&file, &TEXT[..end], 1000) else {
                panic!("no count");
            };
            assert!(left <= most, "{left} of {most}");
        }
        assert_eq!(counter.cut(&file, TEXT, whole), Ok(TEXT.len()));
    }

    #[test]
    fn only_the_beginning_of_a_far_too_long_text_is_read() {
        let (counter, file) = (TokenCounter::default(), demo());
        let long = "a ".repeat(1_000_000);
        assert_eq!(counter.count(&file, &long, 5), Ok(TokenCount::MoreThan(5)));
        assert!(counter.cut(&file, &long, 5).unwrap() <= 20);
    }

    #[test]
    fn a_tokenizer_file_with_truncation_counts_texts_completely() {
        let folder = tempfile::tempdir().unwrap();
        let mut json: serde_json::Value =
            serde_json::from_str(&std::fs::read_to_string(demo()).unwrap()).unwrap();
        json["truncation"] = serde_json::json!({"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0});
        let file = folder.path().join("tokenizer.json");
        std::fs::write(&file, json.to_string()).unwrap();
        let counted = TokenCounter::default().count(&file, TEXT, 1000);
        assert!(
            matches!(counted, Ok(TokenCount::Exactly(count)) if count > 3),
            "{counted:?}"
        );
    }

    #[test]
    fn a_missing_tokenizer_file_is_read_once_it_exists() {
        let folder = tempfile::tempdir().unwrap();
        let (counter, file) = (
            TokenCounter::default(),
            folder.path().join("tokenizer.json"),
        );
        let error = counter.count(&file, TEXT, 5).unwrap_err();
        assert!(error.to_string().contains("tokenizer.json"), "{error}");
        std::fs::copy(demo(), &file).unwrap();
        assert!(counter.count(&file, TEXT, 1000).is_ok());
    }
}
