//! Reads and checks the rule for users' texts in a model's file (`pool_config.validation`): allowed lengths and characters. `http`
//! applies the rule.

use regex_syntax::hir::{Class, ClassUnicode, HirKind};
use serde::{Deserialize, Serialize};

use super::diagnostics::Diagnostics;
use super::error::CatalogError;
use super::limits;
use super::token_counter::TokenCounter;

const SECTION: &str = "pool_config.validation";
/// The highest limit that can be configured.
const COUNT_MAX: u32 = 100_000_000;
/// Character classes are shorter than this.
const PATTERN_BYTES_MAX: usize = 1000;

/// The section as written in the file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ValidationSection {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_characters: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_characters: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_tokens: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<i64>,
    /// The allowed characters, as a character class of a regular expression.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pattern: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_violation: Option<OnViolation>,
}

/// The handling of a text that violates the rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnViolation {
    /// Refuse the request.
    #[default]
    Reject,
    /// Remove characters that are not allowed, and truncate long texts.
    Clean,
}

/// An inclusive range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Range {
    pub min: Option<usize>,
    pub max: Option<usize>,
}

impl Range {
    pub fn is_open(self) -> bool {
        self == Range::default()
    }

    pub fn is_below(self, count: usize) -> bool {
        self.min.is_some_and(|min| count < min)
    }

    pub fn is_above(self, count: usize) -> bool {
        self.max.is_some_and(|max| count > max)
    }
}

impl std::fmt::Display for Range {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.min, self.max) {
            (Some(min), Some(max)) => write!(f, "{min} to {max}"),
            (Some(min), None) => write!(f, "{min} and more"),
            (None, Some(max)) => write!(f, "at most {max}"),
            (None, None) => f.write_str("any number"),
        }
    }
}

/// The rule for a model's requests.
#[derive(Clone, Debug, PartialEq)]
pub struct Validation {
    pub characters: Range,
    pub tokens: Range,
    pub allowed: Option<AllowedCharacters>,
    pub on_violation: OnViolation,
    /// Counts with the model's own tokenizer, if tokens are limited.
    pub counter: TokenCounter,
}

/// A set of characters. Matched by lookup and not by regular expression, which keeps the cost per character constant.
#[derive(Clone, Debug, PartialEq)]
pub struct AllowedCharacters {
    pattern: String,
    set: ClassUnicode,
    /// A lookup table for ASCII, which covers most characters.
    ascii: [bool; 128],
}

impl AllowedCharacters {
    fn read(pattern: &str) -> Result<AllowedCharacters, String> {
        const LIKE: &str = "write a class of a regular expression like [\\p{L}\\p{N}\\s.,!?]";
        if pattern.len() > PATTERN_BYTES_MAX {
            return Err(format!(
                "is {} bytes long; allowed: at most {PATTERN_BYTES_MAX}",
                pattern.len()
            ));
        }
        let parsed = regex_syntax::parse(pattern).map_err(|error| {
            // The library underlines the position below the pattern; the last line is the message.
            let message = error.to_string();
            let what = message.lines().last().unwrap_or_default();
            format!(
                "`{pattern}` cannot be read: {}; {LIKE}",
                what.trim_start_matches("error: ")
            )
        })?;
        let set = match parsed.into_kind() {
            HirKind::Class(Class::Unicode(set)) => set,
            HirKind::Class(Class::Bytes(bytes)) => {
                bytes.to_unicode_class().unwrap_or(ClassUnicode::empty())
            }
            // A class of a single character.
            HirKind::Literal(literal) => {
                match std::str::from_utf8(&literal.0).ok().and_then(single) {
                    Some(only) => {
                        ClassUnicode::new([regex_syntax::hir::ClassUnicodeRange::new(only, only)])
                    }
                    None => {
                        return Err(format!(
                            "`{pattern}` matches a word, not single characters; {LIKE}"
                        ));
                    }
                }
            }
            _ => {
                return Err(format!(
                    "`{pattern}` is more than a set of characters; {LIKE}"
                ));
            }
        };
        if set.ranges().is_empty() {
            return Err(format!("`{pattern}` allows no character at all; {LIKE}"));
        }
        let mut allowed = AllowedCharacters {
            pattern: pattern.to_owned(),
            set,
            ascii: [false; 128],
        };
        for code in 0..128_u8 {
            allowed.ascii[usize::from(code)] = allowed.is_in_set(char::from(code));
        }
        Ok(allowed)
    }

    /// The pattern as written in the file.
    pub fn pattern(&self) -> &str {
        &self.pattern
    }

    pub fn has(&self, character: char) -> bool {
        match self.ascii.get(character as usize) {
            Some(allowed) => *allowed,
            None => self.is_in_set(character),
        }
    }

    fn is_in_set(&self, character: char) -> bool {
        let ranges = self.set.ranges();
        let after = ranges.partition_point(|range| range.start() <= character);
        after > 0 && character <= ranges[after - 1].end()
    }
}

fn single(text: &str) -> Option<char> {
    let mut characters = text.chars();
    characters.next().filter(|_| characters.next().is_none())
}

/// Reads the section. `can_count`: success if tokens of this model can be counted, otherwise the reason.
pub(crate) fn read(
    section: &ValidationSection,
    can_count: impl FnOnce() -> Result<(), String>,
    notes: &Diagnostics,
) -> Result<Validation, CatalogError> {
    let characters = range(
        ("min_characters", section.min_characters),
        ("max_characters", section.max_characters),
        notes,
    )?;
    let tokens = range(
        ("min_tokens", section.min_tokens),
        ("max_tokens", section.max_tokens),
        notes,
    )?;
    let allowed = section
        .pattern
        .as_deref()
        .map(AllowedCharacters::read)
        .transpose()
        .map_err(|problem| notes.refuse(&format!("{SECTION}.pattern"), problem))?;
    if characters.is_open() && tokens.is_open() && allowed.is_none() {
        return Err(notes.refuse(
            SECTION,
            "has no condition; set min_characters, max_characters, min_tokens, max_tokens or pattern, or remove it",
        ));
    }
    if !tokens.is_open() {
        let key = if tokens.max.is_some() {
            "max_tokens"
        } else {
            "min_tokens"
        };
        can_count().map_err(|why| {
            notes.refuse(
                &format!("{SECTION}.{key}"),
                format!(
                    "tokens of this model cannot be counted: {why}; limit the characters instead"
                ),
            )
        })?;
    }
    Ok(Validation {
        characters,
        tokens,
        allowed,
        on_violation: section.on_violation.unwrap_or_default(),
        counter: TokenCounter::default(),
    })
}

fn range(
    (min_key, min): (&str, Option<i64>),
    (max_key, max): (&str, Option<i64>),
    notes: &Diagnostics,
) -> Result<Range, CatalogError> {
    let count = |key: &str, value: Option<i64>| {
        value
            .map(|value| {
                let bounded = |value| limits::count(value, COUNT_MAX);
                notes.check(&format!("{SECTION}.{key}"), value, bounded)
            })
            .transpose()
    };
    let (min, max) = (count(min_key, min)?, count(max_key, max)?);
    if let (Some(min), Some(max)) = (min, max)
        && min > max
    {
        return Err(notes.refuse(
            &format!("{SECTION}.{min_key}"),
            format!("{min} is more than {max_key}, which is {max}"),
        ));
    }
    let wide = |count: Option<u32>| count.and_then(|count| usize::try_from(count).ok());
    Ok(Range {
        min: wide(min),
        max: wide(max),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn rule(section: serde_json::Value) -> Result<Validation, String> {
        let section: ValidationSection =
            serde_json::from_value(section).map_err(|error| error.to_string())?;
        let here = || Err("there is no tokenizer.json".to_owned());
        read(&section, here, &Diagnostics::new("m.yaml")).map_err(|error| error.to_string())
    }

    fn allowed(pattern: &str) -> AllowedCharacters {
        AllowedCharacters::read(pattern).unwrap()
    }

    #[test]
    fn a_pattern_is_read_as_the_set_of_characters_of_its_class() {
        let letters = allowed(r"[\p{L}\p{N}\s.,!?]");
        for character in ['a', 'é', '中', '7', '\n', '!', 'ß'] {
            assert!(letters.has(character), "{character}");
        }
        for character in ['$', '*', '\u{0}', '🙂', '\u{202e}'] {
            assert!(!letters.has(character), "{character:?}");
        }
        assert!(allowed("[^$*]").has('🙂') && !allowed("[^$*]").has('*'));
        assert!(allowed("[a]").has('a') && !allowed("[a]").has('b'));
        assert!(allowed("(?i)[a-c]").has('B') && allowed(r"\w").has('_'));
    }

    #[test]
    fn a_pattern_that_is_not_a_character_class_is_refused_with_an_example() {
        for (pattern, word) in [
            ("[a-z]+", "more than a set"),
            ("^[a-z]$", "more than a set"),
            ("abc", "matches a word"),
            ("", "more than a set"),
            ("[a", "unclosed"),
            (r"[\p{Nothing}]", "not found"),
            (r"[a&&b]", "no character"),
        ] {
            let text = rule(json!({"pattern": pattern})).unwrap_err();
            assert!(
                text.contains("pool_config.validation.pattern") && text.contains(word),
                "{pattern}: {text}"
            );
            assert!(text.contains(r"[\p{L}"), "{text}");
        }
        let long = format!("[{}]", "a".repeat(1000));
        assert!(
            rule(json!({"pattern": long}))
                .unwrap_err()
                .contains("1002 bytes")
        );
    }

    #[test]
    fn validation_bounds_must_be_in_range_ordered_and_not_all_absent() {
        let read = rule(json!({"min_characters": 1, "max_characters": 200})).unwrap();
        assert_eq!(read.characters.to_string(), "1 to 200");
        assert!(
            read.characters.is_below(0)
                && read.characters.is_above(201)
                && !read.characters.is_above(200)
        );
        assert_eq!(read.on_violation, OnViolation::Reject);
        let text = rule(json!({"max_characters": 0})).unwrap_err();
        assert!(
            text.contains("max_characters: 0 is not allowed; allowed: 1 to 100000000"),
            "{text}"
        );
        let text = rule(json!({"min_characters": 3, "max_characters": 2})).unwrap_err();
        assert!(
            text.contains("min_characters: 3 is more than max_characters"),
            "{text}"
        );
        let text = rule(json!({"on_violation": "clean"})).unwrap_err();
        assert!(text.contains("has no condition"), "{text}");
    }

    #[test]
    fn a_token_limit_requires_a_tokenizer() {
        let text = rule(json!({"max_tokens": 5})).unwrap_err();
        assert!(
            text.contains("pool_config.validation.max_tokens")
                && text.contains("no tokenizer.json"),
            "{text}"
        );
    }
}
