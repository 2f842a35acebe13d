//! Turns tokens into text incrementally. Emits only complete characters.

use crate::api_error::ApiError;

/// A decoder from token ids to text.
pub(crate) trait DecodeTokens {
    /// Decodes `tokens`. Invalid bytes become U+FFFD.
    fn decode(&self, tokens: &[u32]) -> Result<String, ApiError>;
}

/// Window length at which old tokens are dropped, which keeps the cost of a step constant.
const WINDOW_TOKENS_MAX: usize = 16;
/// Minimum number of tokens to keep: enough context for decoders that treat the first token differently.
const WINDOW_TOKENS_KEPT: usize = 4;
const REPLACEMENT: char = char::REPLACEMENT_CHARACTER;

/// Decodes a sliding window of the last tokens and returns the text that is new in it.
///
/// Tokens may end within a character. The decoder then returns U+FFFD at the end, which is withheld until the character is
/// complete.
#[derive(Debug, Clone, Default)]
pub(crate) struct Detokenizer {
    window: Vec<u32>,
    /// The part of the window's text that has been emitted.
    emitted: String,
    /// Window length at which to drop old tokens next.
    cut_at: usize,
}

impl Detokenizer {
    pub fn new() -> Self {
        Self {
            window: Vec::new(),
            emitted: String::new(),
            cut_at: WINDOW_TOKENS_MAX,
        }
    }

    /// Adds a token and returns the text that became certain, which may be empty.
    ///
    /// # Errors
    /// If the decoder rejects the tokens.
    pub fn push(&mut self, decoder: &impl DecodeTokens, token: u32) -> Result<String, ApiError> {
        self.window.push(token);
        let text = decoder.decode(&self.window)?;
        let certain = text.trim_end_matches(REPLACEMENT);
        let Some(new) = certain.strip_prefix(&self.emitted).map(str::to_owned) else {
            return Ok(String::new());
        };
        self.emitted.push_str(&new);
        if self.window.len() >= self.cut_at && certain.len() == text.len() {
            self.cut(decoder, &text)?;
        }
        Ok(new)
    }

    /// Returns the rest after the last token, with incomplete characters as U+FFFD.
    ///
    /// # Errors
    /// If the decoder rejects the tokens.
    pub fn finish(self, decoder: &impl DecodeTokens) -> Result<String, ApiError> {
        let text = decoder.decode(&self.window)?;
        match text.strip_prefix(&self.emitted) {
            Some(rest) => Ok(rest.to_owned()),
            // The decoder now returns different text for the emitted part; everything after its length is new.
            None => Ok(text.chars().skip(self.emitted.chars().count()).collect()),
        }
    }

    /// Drops old tokens if the remaining ones decode to the end of the text, which keeps characters intact.
    fn cut(&mut self, decoder: &impl DecodeTokens, text: &str) -> Result<(), ApiError> {
        for kept in WINDOW_TOKENS_KEPT..self.window.len() {
            let tail = &self.window[self.window.len() - kept..];
            let tail_text = decoder.decode(tail)?;
            if !tail_text.trim().is_empty()
                && !tail_text.contains(REPLACEMENT)
                && text.ends_with(tail_text.trim_start())
            {
                self.window = tail.to_vec();
                self.emitted = tail_text;
                break;
            }
        }
        self.cut_at = self.window.len() + WINDOW_TOKENS_MAX;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    /// One token per byte, like rare characters in a byte-level vocabulary.
    struct Bytes;

    impl DecodeTokens for Bytes {
        fn decode(&self, tokens: &[u32]) -> Result<String, ApiError> {
            Ok(String::from_utf8_lossy(
                &tokens.iter().map(|token| *token as u8).collect::<Vec<_>>(),
            )
            .into_owned())
        }
    }

    /// Like sentencepiece: tokens below 256 are bytes, and a run of them decodes to text or entirely to U+FFFD. Other tokens are
    /// words, and the text loses its first space.
    struct ByteFallback;

    impl DecodeTokens for ByteFallback {
        fn decode(&self, tokens: &[u32]) -> Result<String, ApiError> {
            let mut text = String::new();
            for run in tokens.chunk_by(|a, b| (*a < 256) == (*b < 256)) {
                if run[0] < 256 {
                    let bytes: Vec<u8> = run.iter().map(|token| *token as u8).collect();
                    text += &String::from_utf8(bytes)
                        .unwrap_or_else(|_| REPLACEMENT.to_string().repeat(run.len()));
                } else {
                    run.iter()
                        .for_each(|token| text += &format!(" word{token}"));
                }
            }
            Ok(text.strip_prefix(' ').map(str::to_owned).unwrap_or(text))
        }
    }

    fn pieces(decoder: &impl DecodeTokens, tokens: &[u32]) -> Vec<String> {
        let mut detokenizer = Detokenizer::new();
        let mut pieces: Vec<String> = tokens
            .iter()
            .map(|token| detokenizer.push(decoder, *token).expect("decodes"))
            .collect();
        pieces.push(detokenizer.finish(decoder).expect("decodes"));
        pieces
    }

    fn bytes(text: &str) -> Vec<u32> {
        text.bytes().map(u32::from).collect()
    }

    #[test]
    fn a_multi_byte_character_is_never_split() {
        assert_eq!(
            pieces(&Bytes, &bytes("a😀b")),
            ["a", "", "", "", "😀", "b", ""]
        );
        assert_eq!(
            pieces(&ByteFallback, &bytes("a😀b")),
            ["a", "", "", "", "😀", "b", ""]
        );
    }

    #[test]
    fn an_incomplete_character_ends_as_a_replacement_character() {
        assert_eq!(pieces(&Bytes, &[0x61, 0xf0, 0x9f]).concat(), "a\u{fffd}");
    }

    #[test]
    fn a_leading_space_survives_every_cut_of_the_window() {
        let tokens: Vec<u32> = (300..400).collect();
        assert_eq!(
            pieces(&ByteFallback, &tokens).concat(),
            ByteFallback.decode(&tokens).expect("decodes")
        );
    }

    #[test]
    fn concatenated_pieces_equal_the_text_for_random_texts() {
        let mut random = StdRng::seed_from_u64(3);
        let letters = ["a", "é", "€", "😀", "👩‍👩‍👧", " ", "\n", "文", "\u{fffd}"];
        for _ in 0..500 {
            let count = random.random_range(0..60);
            let text: String = (0..count)
                .map(|_| letters[random.random_range(0..letters.len())])
                .collect();
            assert_eq!(pieces(&Bytes, &bytes(&text)).concat(), text);
            let mut mixed = Vec::new();
            for letter in text.chars() {
                if random.random_bool(0.3) {
                    mixed.push(random.random_range(256..400));
                }
                mixed.extend(bytes(&letter.to_string()));
            }
            assert_eq!(
                pieces(&ByteFallback, &mixed).concat(),
                ByteFallback.decode(&mixed).expect("decodes")
            );
        }
    }

    #[test]
    fn concatenated_pieces_equal_the_decoded_text_for_random_bytes() {
        let mut random = StdRng::seed_from_u64(4);
        for _ in 0..500 {
            let tokens: Vec<u32> = (0..random.random_range(0..80))
                .map(|_| random.random_range(0..256))
                .collect();
            assert_eq!(
                pieces(&Bytes, &tokens).concat(),
                Bytes.decode(&tokens).expect("decodes")
            );
        }
    }
}
