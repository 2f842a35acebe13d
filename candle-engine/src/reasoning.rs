//! Separates a model's reasoning from an answer that arrives in pieces: the text between `<think>` and `</think>` before
//! the answer. A text is held back only as long as it may still become one of the two.

const OPENING: &str = "<think>";
const CLOSING: &str = "</think>";

/// A piece of an answer, in its two parts.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Thought {
    pub reasoning: String,
    pub text: String,
}

/// Reads one answer.
#[derive(Debug)]
pub(crate) struct ReasoningReader {
    /// What is not given out yet.
    held: String,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nothing but white space came yet; a reasoning may begin here.
    Beginning,
    /// Behind the opening. Whether anything of it was given out.
    Reasoning {
        has_begun: bool,
    },
    /// Behind the closing; white space is no answer yet.
    Behind,
    Answer,
}

impl ReasoningReader {
    /// A reader for answers to this prompt. `None` where the model's template knows no reasoning.
    pub fn of(template_knows: bool, prompt: &str) -> Option<Self> {
        // Some templates write the opening themselves.
        let state = if prompt.trim_end().ends_with(OPENING) {
            State::Reasoning { has_begun: false }
        } else {
            State::Beginning
        };
        template_knows.then_some(Self {
            held: String::new(),
            state,
        })
    }

    /// Whether a template has a place for a reasoning.
    pub fn is_known_to(mentions: impl Fn(&str) -> bool) -> bool {
        mentions(OPENING) || mentions(CLOSING)
    }

    /// Takes the next piece of the answer.
    pub fn push(&mut self, piece: &str) -> Thought {
        if self.state == State::Answer && self.held.is_empty() {
            return Thought {
                text: piece.to_owned(),
                ..Thought::default()
            };
        }
        self.held.push_str(piece);
        let mut thought = Thought::default();
        while self.advance(&mut thought) {}
        thought
    }

    /// The rest, when no more comes.
    pub fn finish(&mut self) -> Thought {
        let held = std::mem::take(&mut self.held);
        match self.state {
            State::Reasoning { .. } => Thought {
                reasoning: held.trim_end().to_owned(),
                ..Thought::default()
            },
            State::Behind => Thought::default(),
            State::Beginning | State::Answer => Thought {
                text: held,
                ..Thought::default()
            },
        }
    }

    /// Makes a step if what is held allows one.
    fn advance(&mut self, thought: &mut Thought) -> bool {
        match self.state {
            State::Beginning => {
                let begun = self.held.trim_start();
                if let Some(rest) = begun.strip_prefix(OPENING) {
                    self.held = rest.to_owned();
                    self.state = State::Reasoning { has_begun: false };
                    return true;
                }
                if OPENING.starts_with(begun) {
                    return false;
                }
                self.state = State::Answer;
                true
            }
            State::Reasoning { has_begun } => self.reason(has_begun, thought),
            State::Behind => {
                let rest = self.held.trim_start();
                let is_answer = !rest.is_empty();
                self.held = rest.to_owned();
                if is_answer {
                    self.state = State::Answer;
                }
                is_answer
            }
            State::Answer => {
                thought.text += &std::mem::take(&mut self.held);
                false
            }
        }
    }

    fn reason(&mut self, has_begun: bool, thought: &mut Thought) -> bool {
        if !has_begun {
            self.held = self.held.trim_start().to_owned();
            // Templates that write the opening themselves know models which write it once more.
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
            self.state = State::Behind;
            return true;
        }
        let kept = self.held.split_off(certain_length(&self.held));
        let released = std::mem::replace(&mut self.held, kept);
        self.state = State::Reasoning {
            has_begun: has_begun || !released.is_empty(),
        };
        thought.reasoning += &released;
        false
    }
}

/// Bytes before white space and before a beginning of the closing at the end of `held`.
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

    /// Whatever the cuts, the parts are the same.
    fn read(prompt: &str, written: &str) -> (String, String) {
        let mut all = Vec::new();
        for size in [1, 3, usize::MAX] {
            let mut reader = ReasoningReader::of(true, prompt).expect("a reader");
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
    fn a_reasoning_is_told_apart_from_the_answer() {
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
    fn text_is_not_held_longer_than_needed() {
        let mut reader = ReasoningReader::of(true, "<think>").expect("a reader");
        let thought = |reasoning: &str, text: &str| Thought {
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
    fn models_without_a_place_for_it_are_read_as_they_are() {
        assert!(ReasoningReader::of(false, "<think>").is_none());
        assert!(ReasoningReader::is_known_to(|text| text == "</think>"));
        assert!(!ReasoningReader::is_known_to(|_| false));
    }
}
