//! Finds the `usage` of a non-streaming response that is forwarded in pieces, and detects whether the response is complete. Reads
//! each byte once, and copies only a `usage` that spans pieces.

use serde_json::{Value, json};

use dialect::usage::{Usage, usage_of};

const NAME: &[u8] = b"usage";
/// The bytes that are structural in JSON.
const MEANS: [bool; 256] = {
    let mut means = [false; 256];
    let shaping = b"\"{}[]:,";
    let mut nth = 0;
    while nth < shaping.len() {
        means[shaping[nth] as usize] = true;
        nth += 1;
    }
    means
};
/// Longer `usage` objects are not read.
const USAGE_BYTES_MAX: usize = 4 << 10;

/// Scanner state of one JSON object.
#[derive(Debug, Default)]
pub(crate) struct UsageScan {
    depth: u32,
    in_string: bool,
    /// The previous byte was a backslash.
    is_escaped: bool,
    /// At the outermost level, a value follows rather than a name.
    after_colon: bool,
    /// Number of bytes of the current outermost name that match `NAME`; `None` after a mismatch.
    matched: Option<usize>,
    is_usage: bool,
    /// The last outermost `usage` that is an object.
    usage: Option<Usage>,
    /// The beginning of a `usage` that continues in the next piece.
    kept: Vec<u8>,
    is_keeping: bool,
    is_whole: bool,
}

impl UsageScan {
    /// Scans the next bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        let (mut at, mut kept_from) = (0, 0);
        while at < bytes.len() {
            if self.is_escaped {
                self.is_escaped = false;
                at += 1;
                continue;
            }
            if self.in_string {
                let found = memchr::memchr2(b'"', b'\\', &bytes[at..]);
                let end = found.map_or(bytes.len(), |length| at + length);
                self.compare(&bytes[at..end]);
                at = end + 1;
                match bytes.get(end) {
                    Some(b'"') => self.end_string(),
                    Some(_) => (self.is_escaped, self.matched) = (true, None),
                    None => {}
                }
                continue;
            }
            // Between strings, only structural bytes matter.
            let Some(length) = bytes[at..].iter().position(|byte| MEANS[*byte as usize]) else {
                break;
            };
            at += length;
            match bytes[at] {
                b'"' => {
                    self.in_string = true;
                    self.matched = (self.depth == 1 && !self.after_colon).then_some(0);
                }
                b'{' | b'[' => {
                    if self.depth == 1 && self.after_colon && self.is_usage && bytes[at] == b'{' {
                        self.kept.clear();
                        (self.usage, self.is_keeping, kept_from) = (None, true, at);
                    }
                    self.depth += 1;
                }
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.depth == 1 && self.is_keeping {
                        self.end_usage(&bytes[kept_from..=at]);
                    }
                    self.is_whole = self.depth == 0;
                }
                b':' if self.depth == 1 => self.after_colon = true,
                b',' if self.depth == 1 => (self.after_colon, self.is_usage) = (false, false),
                _ => {}
            }
            at += 1;
        }
        if self.is_keeping {
            self.keep(&bytes[kept_from..]);
        }
    }

    fn compare(&mut self, bytes: &[u8]) {
        let expected = self.matched.map(|matched| &NAME[matched..]);
        self.matched = match expected {
            Some(expected) if expected.starts_with(bytes) => {
                Some(NAME.len() - expected.len() + bytes.len())
            }
            _ => None,
        };
    }

    fn end_string(&mut self) {
        self.in_string = false;
        if self.depth == 1 && !self.after_colon {
            self.is_usage = self.matched == Some(NAME.len());
        }
    }

    /// Reads the `usage` in place if it is in one piece, which is the usual case.
    fn end_usage(&mut self, bytes: &[u8]) {
        if self.kept.is_empty() && bytes.len() <= USAGE_BYTES_MAX {
            self.usage = read(bytes);
        } else {
            self.keep(bytes);
            self.usage = read(&self.kept);
            self.kept.clear();
        }
        self.is_keeping = false;
    }

    fn keep(&mut self, bytes: &[u8]) {
        if self.kept.len() + bytes.len() <= USAGE_BYTES_MAX {
            self.kept.extend_from_slice(bytes);
        } else {
            (self.is_keeping, self.kept) = (false, Vec::new());
        }
    }

    /// Returns true if the object has ended.
    pub fn is_whole(&self) -> bool {
        self.is_whole
    }

    pub fn usage(&self) -> Option<Usage> {
        self.usage
    }
}

fn read(usage: &[u8]) -> Option<Usage> {
    match serde_json::from_slice(usage) {
        Ok(usage) => Some(usage),
        // The numbers do not have the expected type.
        Err(_) => {
            let usage: Value = serde_json::from_slice(usage).ok()?;
            usage_of(&json!({ "usage": usage }))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the usage and whether the response is complete. Asserts the same result for every split into two pieces.
    fn seen(text: &str) -> (Option<(u64, u64)>, bool) {
        let scanned = |cut: usize| {
            let mut scan = UsageScan::default();
            scan.push(&text.as_bytes()[..cut]);
            scan.push(&text.as_bytes()[cut..]);
            let figures = |usage: Usage| (usage.prompt_tokens, usage.completion_tokens);
            (scan.usage().map(figures), scan.is_whole())
        };
        let whole = scanned(0);
        for cut in 1..=text.len() {
            assert_eq!(scanned(cut), whole, "{text} cut at {cut}");
        }
        whole
    }

    #[test]
    fn usage_is_found_only_at_the_top_level() {
        for (text, usage) in [
            (
                r#"{"usage":{"prompt_tokens":3,"completion_tokens":2}}"#,
                Some((3, 2)),
            ),
            (
                r#"{"choices":[{"message":{"content":"a \"usage\":{ } \\"}}], "usage" : {"completion_tokens":2,"details":{"a":[{}]},"prompt_tokens":1},"x":1}"#,
                Some((1, 2)),
            ),
            (
                r#"{"x":{"usage":{"prompt_tokens":3,"completion_tokens":2}}}"#,
                None,
            ),
            (r#"{"x":"usage","y":{"prompt_tokens":3}}"#, None),
            (
                r#"{"usages":{"prompt_tokens":3},"usag":{"prompt_tokens":3}}"#,
                None,
            ),
            (r#"{"usage":null,"choices":[{"prompt_tokens":3}]}"#, None),
            (r#"{"us\u0061ge":{"prompt_tokens":3}}"#, None),
            (
                r#"{"usage":{"prompt_tokens":3.0,"completion_tokens":2}}"#,
                Some((0, 2)),
            ),
            (
                r#"{"usage":{"prompt_tokens":3},"usage":{"prompt_tokens":4}}"#,
                Some((4, 0)),
            ),
            ("{}", None),
        ] {
            assert_eq!(seen(text), (usage, true), "{text}");
        }
    }

    #[test]
    fn a_truncated_response_is_not_complete() {
        for text in [
            "",
            "{",
            r#"{"a":"}"#,
            r#"{"a":"\"}"#,
            r#"{"a":[1,{"b":2}]"#,
            r#"{"usage":{"prompt_tokens":3}"#,
        ] {
            assert!(!seen(text).1, "{text}");
        }
    }

    #[test]
    fn an_endless_usage_object_is_not_buffered() {
        let mut scan = UsageScan::default();
        scan.push(br#"{"usage":{"a":[0"#);
        for _ in 0..USAGE_BYTES_MAX {
            scan.push(b",0");
        }
        assert!(scan.kept.capacity() <= 2 * USAGE_BYTES_MAX);
        scan.push(b"]}}");
        assert!(scan.is_whole() && scan.usage().is_none());
    }
}
