//! Applies the text rule of a model's file (`pool_config.validation`) before anything is loaded or queued: refuses texts, or cleans
//! them and reports that in a header.

#[cfg(test)]
mod tests;
mod text;

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use axum::body::Bytes;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;

use crate::inference::admission::RequestContext;
use crate::state::App;
use api_types::error::Failure;
use catalog::{Entry, Validation};
use dialect::CHAT;
use dialect::body::{Fields, Scanned, write_json};
use dialect::shape::may_be_a_tree;
use text::Rule;

/// A header such as `x-model-pool-cleaned: messages[0]: 2 characters left out, 15 cut off`.
const CLEANED: HeaderName = HeaderName::from_static("x-model-pool-cleaned");
/// Number of texts named in the header; further ones are only counted.
const NAMED_MAX: usize = 8;

/// Descriptions of the changes to a request's texts; empty if there were none.
#[derive(Debug, Default)]
pub struct Cleaned(Vec<String>);

/// Validates the request and returns it, unchanged or with cleaned texts.
pub async fn checked(
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
    // Counting tokens reads a file and takes time, even for short texts.
    let workers = if counts {
        &app.reading.tokens
    } else {
        &app.reading.validation
    };
    let (body, done) = workers.run(bytes, check).await?;
    context.tell(|head| note(head, &done));
    Ok(Scanned { body, ..scanned })
}

/// Reports the changes to the request's texts in the response head.
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

/// Returns the body with its texts as the rule requires, or an error. `tokenizer` is the model's file, required if the rule limits
/// tokens.
fn check(
    body: &Bytes,
    path: &'static str,
    rule: &Validation,
    tokenizer: Option<&Path>,
) -> Result<(Bytes, Cleaned), Failure> {
    let fields = Fields::read(body)?;
    let name = if path == CHAT { "messages" } else { "prompt" };
    let Some(field) = fields.get(name).filter(|value| value.get() != "null") else {
        // The engine reports missing fields.
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
    // Writes what was parsed, so a repeated key inside cannot hide a text from the check.
    let mut written = Vec::with_capacity(body.len() + 16);
    written.push(b'{');
    for (known, raw) in fields.all() {
        if written.len() > 1 {
            written.push(b',');
        }
        write_json(&mut written, known);
        written.push(b':');
        if known == name {
            written.extend_from_slice(value.to_string().as_bytes())
        } else {
            written.extend_from_slice(raw.get().as_bytes())
        }
    }
    written.push(b'}');
    Ok((written.into(), cleaned))
}
