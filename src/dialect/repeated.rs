//! Fast path for token events that differ only in their text: engines write most tokens of a response into the same JSON. Once such
//! an event has been parsed, the following ones are recognized by their bytes, and only their text is parsed.

use std::borrow::Cow;

use serde::Deserialize;

/// Number of choices with a pattern. Events of further choices are parsed completely.
const CHOICES_MAX: usize = 8;

/// The bytes around the text of one choice's tokens.
#[derive(Debug)]
struct Pattern {
    choice: usize,
    /// Up to and including the text's opening quote.
    before: Vec<u8>,
    /// From the text's closing quote.
    after: Vec<u8>,
}

/// A JSON string.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl Pattern {
    /// The text of an event that matches.
    fn text<'a>(&self, data: &'a [u8]) -> Option<Cow<'a, str>> {
        let end = data.len().checked_sub(self.after.len())?;
        if end < self.before.len()
            || !data.starts_with(&self.before)
            || !data.ends_with(&self.after)
        {
            return None;
        }
        // Parsed with its quotes: an unescaped quote or an invalid escape inside is an error.
        let text = serde_json::from_slice::<Text<'_>>(&data[self.before.len() - 1..=end]);
        text.ok().map(|Text(text)| text)
    }
}

/// The patterns of a response's token events.
#[derive(Debug, Default)]
pub(super) struct Repeated {
    patterns: Vec<Pattern>,
}

impl Repeated {
    /// Returns the text of an event that matches a pattern, and the position of its choice.
    pub fn take<'a>(&self, data: &'a [u8]) -> Option<(usize, Cow<'a, str>)> {
        let mut patterns = self.patterns.iter();
        patterns.find_map(|pattern| Some((pattern.choice, pattern.text(data)?)))
    }

    /// Learns the pattern of an event that only adds `text` to this choice. `text` is a part of `data` without escapes.
    pub(crate) fn learn(&mut self, data: &[u8], text: &str, choice: usize) {
        let from = (text.as_ptr() as usize).wrapping_sub(data.as_ptr() as usize);
        let Some(to) = from.checked_add(text.len()) else {
            return;
        };
        if from == 0 || data.get(from - 1) != Some(&b'"') || data.get(to) != Some(&b'"') {
            return;
        }
        let pattern = Pattern {
            choice,
            before: data[..from].to_vec(),
            after: data[to..].to_vec(),
        };
        let known = self
            .patterns
            .iter()
            .position(|pattern| pattern.choice == choice);
        match known {
            Some(nth) => self.patterns[nth] = pattern,
            None if self.patterns.len() < CHOICES_MAX => self.patterns.push(pattern),
            None => {}
        }
    }

    /// Forgets all patterns. Called after an event that may have changed the target of the text.
    pub fn forget(&mut self) {
        self.patterns.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(data: &[u8], text: &str) -> Repeated {
        let at = memchr::memmem::find(data, text.as_bytes()).unwrap();
        let text = std::str::from_utf8(&data[at..at + text.len()]).unwrap();
        let mut known = Repeated::default();
        known.learn(data, text, 0);
        known
    }

    #[test]
    fn an_event_that_differs_only_in_its_text_is_recognized_for_any_text() {
        let events = known(br#"{"text":"one","n":1}"#, "one");
        for text in [
            "two",
            "",
            "a \\\"b\\\"",
            "\\u00e9",
            "\u{e9}",
            "\\n",
            "\",\\\"",
        ] {
            let event = format!(r#"{{"text":"{text}","n":1}}"#);
            let read = serde_json::from_str::<String>(&format!("\"{text}\"")).ok();
            let taken = events.take(event.as_bytes());
            assert_eq!(taken, read.map(|text| (0, text.into())), "{event}");
        }
    }

    #[test]
    fn an_event_with_other_differences_is_not_recognized() {
        let events = known(br#"{"text":"one","n":1}"#, "one");
        for event in [
            r#"{"text":"two","n":2}"#,
            r#"{"text":"two","x":"y","n":1}"#,
            r#"{"text":"two"}"#,
            r#"{"text":"#,
            r#"{"text":"","n":1"#,
            r#"{"text":","n":1}"#,
            "",
        ] {
            assert_eq!(events.take(event.as_bytes()), None, "{event}");
        }
        assert_eq!(events.take(b"{\"text\":\"\xff\",\"n\":1}"), None);
    }

    #[test]
    fn an_event_with_its_text_in_another_field_is_not_learned() {
        let mut events = Repeated::default();
        events.learn(br#"{"text":"one"}"#, "one", 0);
        assert_eq!(events.take(br#"{"text":"two"}"#), None);
    }
}
