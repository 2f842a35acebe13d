//! Separates reasoning, between `<think>` and `</think>` at the beginning, from the rest of a streamed completion. Text is withheld
//! only while it could still become a tag.

const OPENING: &str = "<think>";
const CLOSING: &str = "</think>";

/// A piece of a completion, split in two.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ReasoningPiece {
    pub reasoning: String,
    pub text: String,
}

/// Parses one completion.
#[derive(Debug)]
pub(crate) struct ReasoningReader {
    /// Text that has not been emitted.
    held: String,
    state: ReaderState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReaderState {
    /// Only white space so far; reasoning may begin here.
    Beginning,
    /// After the opening tag. `has_begun`: part of the reasoning has been emitted.
    Reasoning {
        has_begun: bool,
    },
    /// After the closing tag; white space here is not part of the text.
    Behind,
    Answer,
}

impl ReasoningReader {
    /// Creates a reader for completions of this prompt. Returns `None` if the model's template does not use reasoning.
    pub fn new(template_knows: bool, prompt: &str) -> Option<Self> {
        // Some templates end the prompt with the opening tag.
        let state = if prompt.trim_end().ends_with(OPENING) {
            ReaderState::Reasoning { has_begun: false }
        } else {
            ReaderState::Beginning
        };
        template_knows.then_some(Self {
            held: String::new(),
            state,
        })
    }

    /// Returns true if a template uses reasoning tags.
    pub fn is_known_to(mentions: impl Fn(&str) -> bool) -> bool {
        mentions(OPENING) || mentions(CLOSING)
    }

    /// Adds the next piece of the completion.
    pub fn push(&mut self, piece: &str) -> ReasoningPiece {
        if self.state == ReaderState::Answer && self.held.is_empty() {
            return ReasoningPiece {
                text: piece.to_owned(),
                ..ReasoningPiece::default()
            };
        }
        self.held.push_str(piece);
        let mut thought = ReasoningPiece::default();
        while self.advance(&mut thought) {}
        thought
    }

    /// Returns the rest after the last piece.
    pub fn finish(&mut self) -> ReasoningPiece {
        let held = std::mem::take(&mut self.held);
        match self.state {
            ReaderState::Reasoning { .. } => ReasoningPiece {
                reasoning: held.trim_end().to_owned(),
                ..ReasoningPiece::default()
            },
            ReaderState::Behind => ReasoningPiece::default(),
            ReaderState::Beginning | ReaderState::Answer => ReasoningPiece {
                text: held,
                ..ReasoningPiece::default()
            },
        }
    }

    /// Advances the parser by one step. Returns false if more text is needed.
    fn advance(&mut self, thought: &mut ReasoningPiece) -> bool {
        match self.state {
            ReaderState::Beginning => {
                let begun = self.held.trim_start();
                if let Some(rest) = begun.strip_prefix(OPENING) {
                    self.held = rest.to_owned();
                    self.state = ReaderState::Reasoning { has_begun: false };
                    return true;
                }
                if OPENING.starts_with(begun) {
                    return false;
                }
                self.state = ReaderState::Answer;
                true
            }
            ReaderState::Reasoning { has_begun } => self.reason(has_begun, thought),
            ReaderState::Behind => {
                let rest = self.held.trim_start();
                let is_response = !rest.is_empty();
                self.held = rest.to_owned();
                if is_response {
                    self.state = ReaderState::Answer;
                }
                is_response
            }
            ReaderState::Answer => {
                thought.text += &std::mem::take(&mut self.held);
                false
            }
        }
    }

    fn reason(&mut self, has_begun: bool, thought: &mut ReasoningPiece) -> bool {
        if !has_begun {
            self.held = self.held.trim_start().to_owned();
            // Models whose template writes the opening tag sometimes repeat it.
            if let Some(rest) = self.held.strip_prefix(OPENING) {
                self.held = rest.to_owned();
                return true;
            }
            if OPENING.starts_with(&self.held) {
                return false;
            }
        }
        if let Some((reasoning, rest)) = self.held.split_once(CLOSING) {
            thought.reasoning += reasoning.trim_end();
            self.held = rest.to_owned();
            self.state = ReaderState::Behind;
            return true;
        }
        let kept = self.held.split_off(certain_length(&self.held));
        let released = std::mem::replace(&mut self.held, kept);
        self.state = ReaderState::Reasoning {
            has_begun: has_begun || !released.is_empty(),
        };
        thought.reasoning += &released;
        false
    }
}

/// Length of `held` without trailing white space and without a trailing prefix of the closing tag, in bytes.
fn certain_length(held: &str) -> usize {
    let least = held.len().saturating_sub(CLOSING.len());
    let partial = held
        .char_indices()
        .map(|(place, _)| place)
        .find(|place| *place >= least && CLOSING.starts_with(&held[*place..]));
    held[..partial.unwrap_or(held.len())].trim_end().len()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses the text in pieces of several sizes, which must all give the same result.
    fn read(prompt: &str, written: &str) -> (String, String) {
        let mut all = Vec::new();
        for size in [1, 3, usize::MAX] {
            let mut reader = ReasoningReader::new(true, prompt).expect("a reader");
            let letters: Vec<char> = written.chars().collect();
            let (mut reasoning, mut text) = (String::new(), String::new());
            let pieces = letters.chunks(size.min(letters.len().max(1)));
            let pieces = pieces.map(|piece| piece.iter().collect::<String>());
            for piece in pieces {
                let thought = reader.push(&piece);
                reasoning += &thought.reasoning;
                text += &thought.text;
            }
            let rest = reader.finish();
            all.push((reasoning + &rest.reasoning, text + &rest.text));
        }
        assert!(all.iter().all(|parts| *parts == all[0]), "{all:?}");
        all.remove(0)
    }

    #[test]
    fn reasoning_is_separated_from_the_response() {
        for (prompt, written, reasoning, text) in [
            (
                "",
                "<think>\nTwo and two.\n</think>\n\nFour.",
                "Two and two.",
                "Four.",
            ),
            (
                "assistant\n<think>\n",
                "Two\n\nand two.\n</think>\n\nFour.",
                "Two\n\nand two.",
                "Four.",
            ),
            (
                "<think>\n",
                "<think>\nTwice.</think>Four.",
                "Twice.",
                "Four.",
            ),
            ("", "<think>\n\n</think>\n\nFour.", "", "Four."),
            ("", "Four is < five.", "", "Four is < five."),
            ("", "  <thin air", "", "  <thin air"),
            ("", "Say <think>.", "", "Say <think>."),
            ("", "<think>a </thin b", "a </thin b", ""),
            ("<think>", "it never ends ", "it never ends", ""),
            ("", "", "", ""),
        ] {
            let wanted = (reasoning.to_owned(), text.to_owned());
            assert_eq!(read(prompt, written), wanted, "{prompt:?} {written:?}");
        }
    }

    #[test]
    fn possible_reasoning_tags_are_held_back_only_as_long_as_needed() {
        let mut reader = ReasoningReader::new(true, "<think>").expect("a reader");
        let thought = |reasoning: &str, text: &str| ReasoningPiece {
            reasoning: reasoning.to_owned(),
            text: text.to_owned(),
        };
        assert_eq!(reader.push("\nFirst "), thought("First", ""));
        assert_eq!(reader.push("a"), thought(" a", ""));
        assert_eq!(reader.push("</th"), thought("", ""));
        assert_eq!(reader.push("ink>\n"), thought("", ""));
        assert_eq!(reader.push("b"), thought("", "b"));
        assert_eq!(reader.push(" <think>"), thought("", " <think>"));
    }

    #[test]
    fn a_model_without_reasoning_tags_needs_no_reasoning_reader() {
        assert!(ReasoningReader::new(false, "<think>").is_none());
        assert!(ReasoningReader::is_known_to(|text| text == "</think>"));
        assert!(!ReasoningReader::is_known_to(|_| false));
    }
}
