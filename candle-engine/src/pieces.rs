//! The pieces in which a completion is emitted: text that is certain, and its tokens.

use crate::api_error::ApiError;
use crate::detokenize::{DecodeTokens, Detokenizer};
use crate::sampling::TokenLogprob;
use crate::stop::StopMatcher;
use std::collections::VecDeque;

/// A token as the client sees it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ScoredToken {
    pub token: u32,
    /// Number of characters of text before it.
    pub offset: usize,
    /// `None` for the first token of a prompt, which has no context.
    pub logprob: Option<TokenLogprob>,
}

/// A piece of a completion.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Piece {
    pub text: String,
    /// Tokens that begin in the text emitted so far; empty unless requested.
    pub tokens: Vec<ScoredToken>,
    /// Number of completion tokens computed so far; 0 in pieces that do not report it.
    pub computed: usize,
}

impl Piece {
    pub fn is_empty(&self) -> bool {
        self.text.is_empty() && self.tokens.is_empty()
    }
}

/// The result of adding a token.
#[derive(Debug, PartialEq)]
pub(crate) struct Step {
    pub piece: Piece,
    /// The stop string that was found. It is dropped, with everything after it.
    pub stopped: Option<String>,
}

/// Assembles the text of a completion from its tokens. A token is emitted with the text it begins in, so tokens of a stop string
/// are never emitted.
#[derive(Debug, Clone)]
pub(crate) struct ResponseText {
    detokenizer: Detokenizer,
    stops: StopMatcher,
    /// Tokens that have not been emitted, with the byte offset at which each begins.
    waiting: VecDeque<(usize, ScoredToken)>,
    /// Length of the text of all tokens, in bytes and characters.
    total_bytes: usize,
    total_letters: usize,
    emitted_bytes: usize,
}

impl ResponseText {
    /// `letters_before` is the number of characters of a prompt that is emitted first.
    pub fn new(stops: StopMatcher, letters_before: usize) -> Self {
        Self {
            detokenizer: Detokenizer::new(),
            stops,
            waiting: VecDeque::new(),
            total_bytes: 0,
            total_letters: letters_before,
            emitted_bytes: 0,
        }
    }

    /// Adds a token, with its `logprob` if the client wants it.
    ///
    /// # Errors
    /// If the decoder rejects the tokens.
    pub fn push(
        &mut self,
        decoder: &impl DecodeTokens,
        token: u32,
        logprob: Option<TokenLogprob>,
    ) -> Result<Step, ApiError> {
        if let Some(logprob) = logprob {
            let scored = ScoredToken {
                token,
                offset: self.total_letters,
                logprob: Some(logprob),
            };
            self.waiting.push_back((self.total_bytes, scored));
        }
        let text = self.detokenizer.push(decoder, token)?;
        self.total_bytes += text.len();
        self.total_letters += text.chars().count();
        let step = self.stops.push(&text);
        Ok(Step {
            piece: self.piece(step.text, false),
            stopped: step.stopped,
        })
    }

    /// Returns the rest after the last token.
    ///
    /// # Errors
    /// If the decoder rejects the tokens.
    pub fn finish(mut self, decoder: &impl DecodeTokens) -> Result<Step, ApiError> {
        let rest = std::mem::replace(&mut self.detokenizer, Detokenizer::new()).finish(decoder)?;
        let step = self.stops.push(&rest);
        let text = match &step.stopped {
            Some(_) => step.text,
            None => step.text + &std::mem::take(&mut self.stops).finish(),
        };
        Ok(Step {
            piece: self.piece(text, step.stopped.is_none()),
            stopped: step.stopped,
        })
    }

    fn piece(&mut self, text: String, is_all: bool) -> Piece {
        self.emitted_bytes += text.len();
        let emitted = self.emitted_bytes;
        let count = if is_all {
            self.waiting.len()
        } else {
            self.waiting.partition_point(|(start, _)| *start < emitted)
        };
        let tokens = self.waiting.drain(..count).map(|(_, token)| token);
        Piece {
            tokens: tokens.collect(),
            text,
            computed: 0,
        }
    }
}

/// The tokens of a prompt that is returned as text, with their offsets.
///
/// # Errors
/// If the decoder rejects the tokens.
pub(crate) fn prompt_tokens(
    decoder: &impl DecodeTokens,
    prompt: &[u32],
    logprobs: Vec<Option<TokenLogprob>>,
) -> Result<Vec<ScoredToken>, ApiError> {
    let mut detokenizer = Detokenizer::new();
    let mut offset = 0;
    let mut tokens = Vec::with_capacity(prompt.len());
    for (token, logprob) in prompt.iter().zip(logprobs) {
        tokens.push(ScoredToken {
            token: *token,
            offset,
            logprob,
        });
        offset += detokenizer.push(decoder, *token)?.chars().count();
    }
    Ok(tokens)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One token per byte.
    struct Bytes;

    impl DecodeTokens for Bytes {
        fn decode(&self, tokens: &[u32]) -> Result<String, ApiError> {
            let bytes: Vec<u8> = tokens.iter().map(|token| *token as u8).collect();
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        }
    }

    fn run(text: &str, stops: &[&str]) -> (Vec<(String, String)>, bool) {
        let stops = StopMatcher::new(stops.iter().map(|stop| (*stop).to_owned()));
        let mut response = ResponseText::new(stops, 10);
        let mut pieces = Vec::new();
        let shown = |piece: Piece| {
            let tokens = piece.tokens.iter();
            let bytes: Vec<u8> = tokens.map(|scored| scored.token as u8).collect();
            (piece.text, String::from_utf8_lossy(&bytes).into_owned())
        };
        for byte in text.bytes() {
            let logprob = TokenLogprob {
                token: u32::from(byte),
                logprob: -1.0,
                top: Vec::new(),
            };
            let step = response
                .push(&Bytes, u32::from(byte), Some(logprob))
                .unwrap();
            pieces.push(shown(step.piece));
            if step.stopped.is_some() {
                return (pieces, true);
            }
        }
        let step = response.finish(&Bytes).unwrap();
        pieces.push(shown(step.piece));
        (pieces, step.stopped.is_some())
    }

    fn joined(pieces: &[(String, String)]) -> (String, String) {
        let texts = pieces.iter().map(|(text, _)| text.as_str()).collect();
        (
            texts,
            pieces.iter().map(|(_, tokens)| tokens.as_str()).collect(),
        )
    }

    #[test]
    fn the_tokens_of_a_stop_string_are_not_returned() {
        let (pieces, stopped) = run("one END two", &["END"]);
        assert!(stopped);
        assert_eq!(joined(&pieces), ("one ".to_owned(), "one ".to_owned()));
        let (pieces, stopped) = run("one EN", &["END"]);
        assert!(!stopped);
        assert_eq!(joined(&pieces), ("one EN".to_owned(), "one EN".to_owned()));
    }

    #[test]
    fn a_token_is_reported_with_the_piece_of_text_in_which_it_begins() {
        let (pieces, _) = run("a😀b", &[]);
        assert_eq!(pieces[0], ("a".to_owned(), "a".to_owned()));
        assert_eq!(pieces[1], (String::new(), String::new()));
        assert_eq!(pieces[4], ("😀".to_owned(), "😀".to_owned()));
    }

    #[test]
    fn offsets_count_characters_and_continue_after_a_prompt() {
        let mut response = ResponseText::new(StopMatcher::default(), 10);
        let mut offsets = Vec::new();
        for token in "é€a".bytes() {
            let logprob = TokenLogprob {
                token: 0,
                logprob: 0.0,
                top: Vec::new(),
            };
            let step = response
                .push(&Bytes, u32::from(token), Some(logprob))
                .unwrap();
            offsets.extend(step.piece.tokens.iter().map(|token| token.offset));
        }
        assert_eq!(offsets, [10, 10, 11, 11, 11, 12]);
        let prompt: Vec<u32> = "é€a".bytes().map(u32::from).collect();
        let tokens = prompt_tokens(&Bytes, &prompt, vec![None; 6]).unwrap();
        let offsets: Vec<usize> = tokens.iter().map(|token| token.offset).collect();
        assert_eq!(offsets, [0, 0, 1, 1, 1, 2]);
    }
}
