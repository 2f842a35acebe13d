//! Checks texts of a request against the rule of a model's file. Returns a refusal, or a description of what was changed.

use std::path::Path;

use serde_json::Value;

use super::Cleaned;
use api_types::error::{ErrorKind, Failure};
use catalog::{CountError, OnViolation, Range, TokenCount, Validation};

/// The rule, with the model's tokenizer if available.
pub(crate) struct Rule<'a> {
    pub rule: &'a Validation,
    pub tokenizer: Option<&'a Path>,
}

impl Rule<'_> {
    /// Treats each user message as one text, even if it has several parts.
    pub fn messages(&self, value: &mut Value) -> Result<Cleaned, Failure> {
        let wrong = |message: &str| Failure::invalid("messages".to_owned(), message);
        let Some(messages) = value.as_array_mut() else {
            return Err(wrong("`messages` must be a list of messages"));
        };
        let mut cleaned = Cleaned::default();
        for (nth, message) in messages.iter_mut().enumerate() {
            if message.get("role").and_then(Value::as_str) != Some("user") {
                continue;
            }
            let mut texts: Vec<&mut String> = match message.get_mut("content") {
                Some(Value::String(text)) => vec![text],
                Some(Value::Array(parts)) => parts.iter_mut().filter_map(text_of_part).collect(),
                None | Some(Value::Null) => Vec::new(),
                Some(_) => {
                    return Err(wrong(&format!(
                        "messages[{nth}].content must be a text or a list of parts"
                    )));
                }
            };
            cleaned
                .0
                .extend(self.text(&format!("messages[{nth}]"), "messages", &mut texts)?);
        }
        Ok(cleaned)
    }

    pub fn prompts(&self, value: &mut Value) -> Result<Cleaned, Failure> {
        let mut cleaned = Cleaned::default();
        match value {
            Value::String(text) => cleaned
                .0
                .extend(self.text("prompt", "prompt", &mut [text])?),
            Value::Array(all) if all.iter().all(Value::is_u64) => self.ids("prompt", all)?,
            Value::Array(all) => {
                for (nth, prompt) in all.iter_mut().enumerate() {
                    let place = format!("prompt[{nth}]");
                    match prompt {
                        Value::String(text) => {
                            cleaned.0.extend(self.text(&place, "prompt", &mut [text])?)
                        }
                        Value::Array(ids) if ids.iter().all(Value::is_u64) => {
                            self.ids(&place, ids)?
                        }
                        _ => return Err(no_prompt()),
                    }
                }
            }
            _ => return Err(no_prompt()),
        }
        Ok(cleaned)
    }

    /// Checks a prompt given as token ids. Only their number can be checked, because their text is unknown here.
    fn ids(&self, place: &str, ids: &[Value]) -> Result<(), Failure> {
        let Validation {
            characters,
            tokens,
            allowed,
            ..
        } = self.rule;
        if !characters.is_open() || allowed.is_some() {
            return Err(refused(
                "prompt",
                format!(
                    "{place}: is a list of tokens, but this model restricts characters; send text"
                ),
            ));
        }
        if out_of(*tokens, ids.len()) {
            Err(refused(
                "prompt",
                format!(
                    "{place}: {}",
                    amount("tokens", TokenCount::Exactly(ids.len()), *tokens)
                ),
            ))
        } else {
            Ok(())
        }
    }

    /// Checks or cleans one text, given in parts. Returns a description of the changes.
    fn text(
        &self,
        place: &str,
        param: &str,
        parts: &mut [&mut String],
    ) -> Result<Option<String>, Failure> {
        let cleans = self.rule.on_violation == OnViolation::Clean;
        let (mut left_out, mut cut_off) = (0, 0);
        if cleans {
            left_out = self.leave_out(parts);
            cut_off = self.cut_characters(parts);
        }
        let mut flaws = Vec::new();
        let count: usize = parts.iter().map(|part| part.chars().count()).sum();
        let too_long = self.rule.characters.is_above(count);
        if out_of(self.rule.characters, count) {
            let counted = TokenCount::Exactly(count);
            flaws.push(amount("characters", counted, self.rule.characters));
        }
        flaws.extend(self.wrong_character(parts));
        // Skips counting tokens if the text is already too long.
        if !self.rule.tokens.is_open() && !too_long {
            let mut counted = self.count_tokens(parts)?;
            let is_above = |counted| match counted {
                TokenCount::Exactly(count) => self.rule.tokens.is_above(count),
                TokenCount::MoreThan(_) => true,
            };
            if cleans && is_above(counted) {
                cut_off += self.cut_tokens(parts)?;
                counted = self.count_tokens(parts)?;
            }
            let is_out = match counted {
                TokenCount::Exactly(count) => out_of(self.rule.tokens, count),
                TokenCount::MoreThan(_) => self.rule.tokens.max.is_some(),
            };
            if is_out {
                flaws.push(amount("tokens", counted, self.rule.tokens));
            }
            let left: usize = parts.iter().map(|part| part.chars().count()).sum();
            if flaws.is_empty() && self.rule.characters.is_below(left) {
                let counted = TokenCount::Exactly(left);
                flaws.push(amount("characters", counted, self.rule.characters));
            }
        }
        let done = done(left_out, cut_off);
        if flaws.is_empty() {
            return Ok(done.map(|done| format!("{place}: {done}")));
        }
        let after = done.map(|done| format!(" (once cleaned: {done})"));
        let message = format!("{place}: {}{}", flaws.join("; "), after.unwrap_or_default());
        Err(refused(param, message))
    }

    fn leave_out(&self, parts: &mut [&mut String]) -> usize {
        let Some(allowed) = &self.rule.allowed else {
            return 0;
        };
        let mut count = 0;
        for part in parts {
            part.retain(|character| {
                let has = allowed.has(character);
                count += usize::from(!has);
                has
            });
        }
        count
    }

    fn cut_characters(&self, parts: &mut [&mut String]) -> usize {
        let mut left = self.rule.characters.max.unwrap_or(usize::MAX);
        let mut cut = 0;
        for part in parts {
            let count = part.chars().count();
            if let Some((end, _)) = part.char_indices().nth(left) {
                part.truncate(end);
            }
            cut += count.saturating_sub(left);
            left = left.saturating_sub(count);
        }
        cut
    }

    fn wrong_character(&self, parts: &[&mut String]) -> Option<String> {
        let allowed = self.rule.allowed.as_ref()?;
        let mut all = parts.iter().flat_map(|part| part.chars());
        let (nth, wrong) = (1_usize..)
            .zip(&mut all)
            .find(|(_, character)| !allowed.has(*character))?;
        let code = u32::from(wrong);
        let shown = if wrong.is_control() || wrong.is_whitespace() {
            format!("U+{code:04X}")
        } else {
            format!("`{wrong}` (U+{code:04X})")
        };
        Some(format!(
            "character {nth} is {shown}, which is not allowed; allowed: {}",
            allowed.pattern()
        ))
    }

    /// Counts only as far as needed to compare with both limits.
    fn count_tokens(&self, parts: &[&mut String]) -> Result<TokenCount, Failure> {
        let file = self.tokenizer.ok_or_else(uncounted)?;
        let Range { min, max } = self.rule.tokens;
        let most = max.unwrap_or_default().max(min.unwrap_or_default());
        let mut sum = 0_usize;
        for part in parts {
            match self
                .rule
                .counter
                .count(file, part, most)
                .map_err(unreadable)?
            {
                TokenCount::Exactly(count) => sum += count,
                more @ TokenCount::MoreThan(_) => return Ok(more),
            }
        }
        Ok(TokenCount::Exactly(sum))
    }

    /// Keeps the first tokens and returns the number of characters cut off.
    fn cut_tokens(&self, parts: &mut [&mut String]) -> Result<usize, Failure> {
        let file = self.tokenizer.ok_or_else(uncounted)?;
        let mut left = self.rule.tokens.max.unwrap_or(usize::MAX);
        let mut cut = 0;
        for part in parts {
            let counter = &self.rule.counter;
            let end = counter.cut(file, part, left).map_err(unreadable)?;
            cut += part[end..].chars().count();
            part.truncate(end);
            if let TokenCount::Exactly(count) =
                counter.count(file, part, left).map_err(unreadable)?
            {
                left = left.saturating_sub(count);
            }
        }
        Ok(cut)
    }
}

/// The text of a part, regardless of its type.
fn text_of_part(part: &mut Value) -> Option<&mut String> {
    match part {
        Value::String(text) => Some(text),
        Value::Object(part) => match part.get_mut("text") {
            Some(Value::String(text)) => Some(text),
            _ => None,
        },
        _ => None,
    }
}

fn out_of(range: Range, count: usize) -> bool {
    range.is_below(count) || range.is_above(count)
}

fn amount(what: &str, counted: TokenCount, range: Range) -> String {
    let has = match counted {
        TokenCount::Exactly(1) => format!("1 {}", what.trim_end_matches('s')),
        TokenCount::Exactly(count) => format!("{count} {what}"),
        TokenCount::MoreThan(count) => format!("more than {count} {what}"),
    };
    format!("has {has}; allowed: {range}")
}

fn done(left_out: usize, cut_off: usize) -> Option<String> {
    let characters = |count: usize| match count {
        1 => "1 character".to_owned(),
        count => format!("{count} characters"),
    };
    match (left_out, cut_off) {
        (0, 0) => None,
        (left_out, 0) => Some(format!("{} left out", characters(left_out))),
        (0, cut_off) => Some(format!("{} cut off", characters(cut_off))),
        (left_out, cut_off) => Some(format!(
            "{} left out, {cut_off} cut off",
            characters(left_out)
        )),
    }
}

fn refused(param: &str, message: String) -> Failure {
    let mut failure = Failure::invalid(param.to_owned(), message);
    failure.body.error.code = Some("text_not_allowed");
    failure
}

fn no_prompt() -> Failure {
    Failure::invalid(
        "prompt".to_owned(),
        "`prompt` must be a text, a list of texts, or tokens",
    )
}

fn uncounted() -> Failure {
    Failure::new(
        ErrorKind::Unavailable,
        "tokens_not_countable",
        "this model limits the number of tokens, and its tokenizer.json has not been fetched yet; an administrator must load the model once",
    )
}

fn unreadable(error: CountError) -> Failure {
    tracing::error!(%error, "tokens of a request could not be counted");
    Failure::internal("the request's tokens could not be counted; see the server log")
}
