//! Fast path for token events that differ only in their text: engines write most tokens of a response into the same JSON. Once such
//! an event has been parsed, the following ones are recognized by their bytes, and only their text is parsed.

use std::borrow::Cow;

use serde::Deserialize;

/// Number of choices with a pattern. Events of further choices are parsed completely.
const CHOICES_MAX: usize = 8;

/// The bytes around the text of one choice's tokens, and the texts received since.
#[derive(Debug)]
struct Pattern {
    choice: usize,
    /// Up to and including the text's opening quote.
    before: Vec<u8>,
    /// From the text's closing quote.
    after: Vec<u8>,
    text: String,
}

/// A JSON string.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl Pattern {
    fn take(&mut self, data: &[u8]) -> bool {
        let Some(end) = data.len().checked_sub(self.after.len()) else {
            return false;
        };
        if end < self.before.len()
            || !data.starts_with(&self.before)
            || !data.ends_with(&self.after)
        {
            return false;
        }
        // Parsed with its quotes: an unescaped quote or an invalid escape inside is an error.
        match serde_json::from_slice::<Text<'_>>(&data[self.before.len() - 1..=end]) {
            Ok(Text(text)) => {
                self.text.push_str(&text);
                true
            }
            Err(_) => false,
        }
    }
}

/// The patterns of a response's token events.
#[derive(Debug, Default)]
pub(super) struct Repeated {
    patterns: Vec<Pattern>,
}

impl Repeated {
    /// Takes the text of an event that matches a pattern. Returns false for any other event.
    pub fn take(&mut self, data: &[u8]) -> bool {
        self.patterns.iter_mut().any(|pattern| pattern.take(data))
    }

    /// Drains the texts taken so far, each with the position of its choice.
    pub fn taken(&mut self) -> impl Iterator<Item = (usize, String)> + '_ {
        let patterns = self.patterns.iter_mut();
        let taken = patterns.map(|pattern| (pattern.choice, std::mem::take(&mut pattern.text)));
        taken.filter(|(_, text)| !text.is_empty())
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
            text: String::new(),
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
    fn an_event_with_another_text_is_known_whatever_the_text() {
        let mut events = known(br#"{"text":"one","n":1}"#, "one");
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
            let is_a_string = serde_json::from_str::<String>(&format!("\"{text}\"")).is_ok();
            assert_eq!(events.take(event.as_bytes()), is_a_string, "{event}");
        }
        let taken: Vec<_> = events.taken().collect();
        assert_eq!(taken, [(0, "twoa \"b\"\u{e9}\u{e9}\n".to_owned())]);
        assert_eq!(events.taken().count(), 0);
    }

    #[test]
    fn an_event_that_says_more_is_not_known() {
        let mut events = known(br#"{"text":"one","n":1}"#, "one");
        for event in [
            r#"{"text":"two","n":2}"#,
            r#"{"text":"two","x":"y","n":1}"#,
            r#"{"text":"two"}"#,
            r#"{"text":"#,
            r#"{"text":"","n":1"#,
            r#"{"text":","n":1}"#,
            "",
        ] {
            assert!(!events.take(event.as_bytes()), "{event}");
        }
        assert!(!events.take(b"{\"text\":\"\xff\",\"n\":1}"));
    }

    #[test]
    fn a_text_that_stands_elsewhere_teaches_nothing() {
        let mut events = Repeated::default();
        events.learn(br#"{"text":"one"}"#, "one", 0);
        assert!(!events.take(br#"{"text":"two"}"#));
    }
}
