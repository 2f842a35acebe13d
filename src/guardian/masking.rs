//! Masks secrets in an engine's output before a line is kept, shown or written anywhere.
//!
//! Masks the values in the engine's environment and command line whose names mark them as secret. Also masks, whatever their
//! origin, tokens of Hugging Face (`hf_…`), tokens in OpenAI's format (`sk-…`), and the text after `Bearer` and `Authorization:`.

use std::collections::BTreeMap;

/// The replacement for a secret.
const MASK: &str = "[masked]";
/// Parts of names that mark their value as secret.
const SECRET_NAMES: [&str; 8] = [
    "token",
    "secret",
    "password",
    "passwd",
    "credential",
    "api_key",
    "apikey",
    "access_key",
];
/// Shorter values would mask unrelated text.
const VALUE_BYTES_MIN: usize = 6;
/// The minimum length of a token after its prefix.
const TOKEN_CHARS_MIN: usize = 16;
const TOKEN_STARTS: [&str; 2] = ["hf_", "sk-"];

/// The secrets to mask in one engine's lines.
#[derive(Clone, Default)]
pub struct Masking {
    /// Longest first: a secret may be part of another.
    values: Vec<String>,
}

/// The values must not be shown.
impl std::fmt::Debug for Masking {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Masking")
            .field("values", &self.values.len())
            .finish()
    }
}

impl Masking {
    /// Collects the secrets of an engine's environment, and of arguments that follow a flag such as `--api-key`
    /// or are part of it.
    pub fn new(env: &BTreeMap<String, String>, argv: &[String]) -> Masking {
        let named = env
            .iter()
            .filter(|(name, _)| is_secret_name(name))
            .map(|(_, value)| value.as_str());
        let following = argv.windows(2).filter_map(|pair| {
            let is_flag = pair[0].starts_with('-') && !pair[0].contains('=');
            (is_flag && is_secret_name(&pair[0])).then_some(pair[1].as_str())
        });
        let joined = argv.iter().filter_map(|word| {
            let (flag, value) = word.split_once('=')?;
            is_secret_name(flag).then_some(value)
        });
        let mut values: Vec<String> = named
            .chain(following)
            .chain(joined)
            .filter(|value| value.len() >= VALUE_BYTES_MIN)
            .map(str::to_owned)
            .collect();
        values.sort_by_key(|value| std::cmp::Reverse(value.len()));
        values.dedup();
        Masking { values }
    }

    /// The line with its secrets masked; `None` if it has none.
    pub fn mask(&self, line: &str) -> Option<String> {
        let mut masked: Option<String> = None;
        for value in &self.values {
            let text = masked.as_deref().unwrap_or(line);
            if text.contains(value.as_str()) {
                masked = Some(text.replace(value.as_str(), MASK));
            }
        }
        for start in TOKEN_STARTS {
            if let Some(text) = without_tokens(masked.as_deref().unwrap_or(line), start) {
                masked = Some(text);
            }
        }
        if let Some(text) = without_headers(masked.as_deref().unwrap_or(line)) {
            masked = Some(text);
        }
        masked
    }
}

/// True for `HF_TOKEN`, `--api-key`, `AWS_SECRET_ACCESS_KEY`; false for `--max-num-batched-tokens`.
fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase().replace('-', "_");
    let counts = name.contains("tokens") || name.contains("tokenizer");
    !counts && SECRET_NAMES.iter().any(|part| name.contains(part))
}

fn is_token_char(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '-' | '_')
}

fn without_tokens(line: &str, start: &str) -> Option<String> {
    let mut masked = None;
    let mut from = 0;
    while let Some(found) = line[from..].find(start) {
        let at = from + found;
        let body = &line[at + start.len()..];
        let length = body.find(|c| !is_token_char(c)).unwrap_or(body.len());
        let end = at + start.len() + length;
        let begins = !line[..at].ends_with(is_token_char);
        if begins && length >= TOKEN_CHARS_MIN {
            let text = masked.get_or_insert_with(String::new);
            text.push_str(&line[from..at]);
            text.push_str(MASK);
        } else if let Some(text) = &mut masked {
            text.push_str(&line[from..end]);
        } else {
            masked = Some(line[from..end].to_owned());
        }
        from = end;
    }
    let mut masked = masked?;
    masked.push_str(&line[from..]);
    (masked != line).then_some(masked)
}

/// Masks everything after `Authorization:`, with or without quotes around names, and the word after `Bearer`.
fn without_headers(line: &str) -> Option<String> {
    let lower = line.to_ascii_lowercase();
    if let Some(at) = lower.find("authorization") {
        let after = at + "authorization".len();
        let rest = line[after..].trim_start_matches(['\'', '"', ' ']);
        if let Some(value) = rest.strip_prefix([':', '=']) {
            let kept = line.len() - value.len();
            let is_empty = value.trim().is_empty() || value.trim() == MASK;
            return (!is_empty).then(|| format!("{} {MASK}", &line[..kept]));
        }
    }
    let at = lower.find("bearer ")? + "bearer ".len();
    let word = line[at..].trim_start();
    let end = word
        .find(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | ',' | '}'))
        .unwrap_or(word.len());
    let is_secret = end >= VALUE_BYTES_MIN && &word[..end] != MASK;
    let begin = line.len() - word.len();
    is_secret.then(|| format!("{}{MASK}{}", &line[..begin], &word[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masking() -> Masking {
        let env = [
            ("HF_TOKEN", "plain-looking-1"),
            ("MODE", "fast-and-loose"),
            ("API_KEY", "abc"),
        ];
        let env = env.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let argv = [
            "x",
            "--api-key",
            "key-of-engine",
            "--max-tokens",
            "1234567",
            "--password=hunter22",
        ];
        let argv: Vec<String> = argv.iter().map(|word| (*word).to_owned()).collect();
        Masking::new(&env.into(), &argv)
    }

    #[test]
    fn secrets_passed_to_the_engine_are_masked_anywhere_in_a_line() {
        for (line, masked) in [
            ("token plain-looking-1!", "token [masked]!"),
            (
                "args: --api-key key-of-engine --password=hunter22",
                "args: --api-key [masked] --password=[masked]",
            ),
        ] {
            assert_eq!(masking().mask(line).as_deref(), Some(masked));
        }
        for line in ["mode fast-and-loose", "abc", "--max-tokens 1234567"] {
            assert_eq!(masking().mask(line), None, "{line}");
        }
    }

    #[test]
    fn tokens_of_known_formats_are_always_masked() {
        let none = Masking::default();
        for (line, masked) in [
            (
                "using hf_abcdefghijklmnopqrst for x",
                "using [masked] for x",
            ),
            ("a sk-proj-0123456789abcdefgh", "a [masked]"),
            (
                "hf_home and hf_abcdefghijklmnopqrst",
                "hf_home and [masked]",
            ),
            (
                "two hf_abcdefghijklmnopqrst,hf_ABCDEFGHIJKLMNOPQRST.",
                "two [masked],[masked].",
            ),
            (
                "Authorization: Basic dXNlcjpwYXNz",
                "Authorization: [masked]",
            ),
            (
                "{'authorization': 'Token abcdef'}",
                "{'authorization': [masked]",
            ),
            ("header Bearer abcdefgh, next", "header [masked], next"),
        ] {
            let masked = masked.replace("header ", "header Bearer ");
            assert_eq!(none.mask(line), Some(masked), "{line}");
        }
    }

    #[test]
    fn ordinary_lines_are_not_masked() {
        let none = Masking::default();
        for line in [
            "",
            "loading shard 1 of 4",
            "task-0123456789abcdefghijkl done",
            "hf_hub_download of model.safetensors",
            "Authorization: ",
            "the bearer of this",
            "ünïcödé hf_",
        ] {
            assert_eq!(none.mask(line), None, "{line}");
        }
    }
}
