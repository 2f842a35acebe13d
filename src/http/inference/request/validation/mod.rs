//! Applies the rule for texts of a model's file (`pool_config.validation`) before anything is loaded or waits: refuses
//! texts, or cleans them and says so in a header.

#[cfg(test)]
mod tests;
mod text;

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use axum::body::Bytes;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;

use crate::error::Failure;
use crate::inference::admission::RequestContext;
use crate::inference::request::body::{Fields, Scanned, write_json};
use crate::inference::request::outgoing::CHAT;
use crate::inference::request::shape::may_be_a_tree;
use crate::state::App;
use catalog::{Entry, Validation};
use text::Rule;

/// `x-model-pool-cleaned: messages[0]: 2 characters left out, 15 cut off`.
const CLEANED: HeaderName = HeaderName::from_static("x-model-pool-cleaned");
/// So many texts are named in the header; the others are counted.
const NAMED_MAX: usize = 8;

/// What was done to the texts of a request, in words; empty for nothing.
#[derive(Debug, Default)]
pub(crate) struct Cleaned(Vec<String>);

/// The request as it may go on: unchanged, or with cleaned texts.
pub(crate) async fn checked(
    app: &App,
    scanned: Scanned,
    path: &'static str,
    entry: &Arc<Entry>,
    context: &RequestContext,
) -> Result<Scanned, Failure> {
    let Some(rule) = &entry.validation else {
        return Ok(scanned);
    };
    let counts = !rule.tokens.is_open();
    let bytes = scanned.body.len();
    let (of_rule, body) = (Arc::clone(entry), scanned.body.clone());
    let check = move || match &of_rule.validation {
        None => Ok((body, Cleaned::default())),
        Some(rule) => {
            let file = counts.then(|| of_rule.tokenizer_file()).flatten();
            check(&body, path, rule, file.as_deref())
        }
    };
    // To count tokens takes a file and time, however short the texts are.
    let workers = match counts {
        true => &app.reading.tokens,
        false => &app.reading.validation,
    };
    let (body, done) = workers.run(bytes, check).await?;
    context.tell(|head| note(head, &done));
    Ok(Scanned { body, ..scanned })
}

/// Tells in the head of the answer what was done to its request's texts.
fn note(head: &mut HeaderMap, cleaned: &Cleaned) {
    let more = cleaned.0.len().saturating_sub(NAMED_MAX);
    let mut words = cleaned.0[..cleaned.0.len() - more].join("; ");
    if more > 0 {
        let _ = write!(words, "; {more} more");
    }
    if let Ok(value) = HeaderValue::from_str(&words)
        && !cleaned.0.is_empty()
    {
        head.insert(CLEANED, value);
    }
}

/// The body with its texts as the rule wants them, or why it is refused. `tokenizer`: the model's file, needed
/// where tokens are bounded.
fn check(
    body: &Bytes,
    path: &'static str,
    rule: &Validation,
    tokenizer: Option<&Path>,
) -> Result<(Bytes, Cleaned), Failure> {
    let fields = Fields::read(body)?;
    let name = if path == CHAT { "messages" } else { "prompt" };
    let Some(field) = fields.get(name).filter(|value| value.get() != "null") else {
        // The engine says what is missing.
        return Ok((body.clone(), Cleaned::default()));
    };
    may_be_a_tree(field.get().as_bytes())?;
    let mut value: Value = serde_json::from_str(field.get())
        .map_err(|error| Failure::invalid(name.to_owned(), format!("`{name}`: {error}")))?;
    let rule = Rule { rule, tokenizer };
    let cleaned = match path {
        CHAT => rule.messages(&mut value)?,
        _ => rule.prompts(&mut value)?,
    };
    // What goes on is what was read: a key given twice inside it cannot hide a text.
    let mut written = Vec::with_capacity(body.len() + 16);
    written.push(b'{');
    for (known, raw) in fields.all() {
        if written.len() > 1 {
            written.push(b',');
        }
        write_json(&mut written, known);
        written.push(b':');
        match known == name {
            true => written.extend_from_slice(value.to_string().as_bytes()),
            false => written.extend_from_slice(raw.get().as_bytes()),
        }
    }
    written.push(b'}');
    Ok((written.into(), cleaned))
}
