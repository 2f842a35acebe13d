//! Reads the multipart form of an audio request and rewrites it for the engine, with known fields only and a sanitized file name.

use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, FromRequest, Multipart};
use axum::http::{HeaderValue, Request, header};
use serde_json::Value;

use crate::inference::request::parts_form::{check_model, checked_name, write_part};
use crate::inference::request::request_fields::{Fate, fate_in_audio};
use api_types::error::Failure;
use catalog::{Entry, ExtraRoute, Recipe};

const FILE: &str = "file";
const STREAM: &str = "stream";
/// Fields of both routes in addition to the file and the model.
const KNOWN: [&str; 3] = ["prompt", "response_format", "temperature"];
/// Fields without a meaning for translations, which are always into English.
const OF_TRANSCRIPTIONS: [&str; 3] = [
    "language",
    "timestamp_granularities[]",
    "timestamp_granularities",
];
/// Hints of OpenAI's form that no supported engine accepts.
const HINTS: [&str; 5] = [
    "chunking_strategy",
    "include",
    "include[]",
    "known_speaker_names[]",
    "known_speaker_references[]",
];
const FIELDS_MAX: usize = 32;

#[derive(Debug)]
pub struct Form {
    pub model: String,
    /// The client wants the text while it is decoded.
    pub streams: bool,
    file: File,
    /// Names and values, in order.
    fields: Vec<(String, String)>,
}

#[derive(Debug)]
struct File {
    name: String,
    kind: Option<String>,
    bytes: Bytes,
}

impl Form {
    pub async fn read(kind: Option<&HeaderValue>, body: Bytes) -> Result<Form, Failure> {
        let mut request = Request::new(Body::from(body));
        if let Some(kind) = kind {
            request
                .headers_mut()
                .insert(header::CONTENT_TYPE, kind.clone());
        }
        // The body's size was limited when it was read.
        DefaultBodyLimit::apply(DefaultBodyLimit::disable(), &mut request);
        let form = Multipart::from_request(request, &()).await;
        let Ok(mut form) = form else {
            let message = "the body must be a form, multipart/form-data with its boundary";
            return Err(Failure::invalid(None, message));
        };
        let (mut model, mut file, mut fields) = (None, None, Vec::new());
        let mut streams = false;
        loop {
            let broken = |error: axum::extract::multipart::MultipartError| {
                Failure::invalid(
                    None,
                    format!("the form cannot be read: {}", error.body_text()),
                )
            };
            let Some(field) = form.next_field().await.map_err(broken)? else {
                break;
            };
            let name = checked_name(field.name())?;
            if name == FILE && file.is_none() {
                file = Some(File {
                    name: field.file_name().unwrap_or(FILE).to_owned(),
                    kind: field.content_type().map(str::to_owned),
                    bytes: field.bytes().await.map_err(broken)?,
                });
                continue;
            }
            if name == FILE || fields.len() >= FIELDS_MAX {
                let shown: String = name.chars().take(100).collect();
                let message = match name.as_str() {
                    FILE => "the form has more than one `file`".to_owned(),
                    _ => {
                        format!("the form has more than {FIELDS_MAX} fields; the next is `{shown}`")
                    }
                };
                return Err(Failure::invalid(shown, message));
            }
            let value = field.text().await.map_err(broken)?;
            match name.as_str() {
                "model" => model = Some(value),
                STREAM if value == "false" => {}
                STREAM if value == "true" => streams = true,
                STREAM => {
                    return Err(Failure::invalid(name, "`stream` must be true or false"));
                }
                _ => fields.push((name, value)),
            }
        }
        let missing =
            |name: &str| Failure::invalid(name.to_owned(), format!("the form has no `{name}`"));
        let file = file.ok_or_else(|| missing(FILE))?;
        if file.bytes.is_empty() {
            return Err(Failure::invalid(FILE.to_owned(), "`file` is empty"));
        }
        let model = check_model(model)?;
        Ok(Form {
            model,
            streams,
            file,
            fields,
        })
    }

    /// Removes the fields that the model's engine must not get, and returns the names of ignored hints.
    ///
    /// # Errors
    /// The engine is not known to accept a field, and the model does not drop or pass unknown fields.
    pub fn settle(&mut self, entry: &Entry, extra: ExtraRoute) -> Result<Vec<String>, Failure> {
        let has_streams =
            matches!(entry.recipe, Recipe::Candle(_)) && extra == ExtraRoute::Transcriptions;
        if self.streams && !has_streams {
            let message = "`stream` is not supported here: the text is returned in one response";
            return Err(Failure::invalid(STREAM.to_owned(), message));
        }
        let mut known = KNOWN.to_vec();
        if extra == ExtraRoute::Transcriptions {
            known.extend(OF_TRANSCRIPTIONS);
        }
        let mut ignored = Vec::new();
        let mut goes = Vec::with_capacity(self.fields.len());
        for (name, value) in std::mem::take(&mut self.fields) {
            let is_hint = HINTS.contains(&name.as_str()) && entry.recipe.has_known_fields();
            let has_effect = !value.is_empty();
            let fate = if known.contains(&name.as_str()) {
                Fate::Goes
            } else if is_hint {
                Fate::Ignored
            } else {
                fate_in_audio(entry, &name, &Value::String(value.clone()), &known)?
            };
            match fate {
                Fate::Goes => goes.push((name, value)),
                _ if has_effect => ignored.push(name),
                _ => {}
            }
        }
        self.fields = goes;
        Ok(ignored)
    }

    /// Returns true if both forms have the same fields and the same file; the model may differ.
    pub(crate) fn has_same_content(&self, other: &Form) -> bool {
        self.fields == other.fields
            && self.streams == other.streams
            && self.file.bytes == other.file.bytes
    }

    /// Replaces the file's bytes.
    pub fn keeps(&mut self, keep: impl FnOnce(Bytes) -> Bytes) {
        self.file.bytes = keep(std::mem::take(&mut self.file.bytes));
    }

    /// The form for an engine that calls the model `model`, and its `content-type`.
    pub fn written(&self, model: &str) -> (HeaderValue, Bytes) {
        let boundary = format!("model-pool-{}", uuid::Uuid::now_v7().simple());
        let mut text = Vec::with_capacity(self.file.bytes.len() + 1024);
        write_part(&mut text, &boundary, "model", None, model.as_bytes());
        if self.streams {
            write_part(&mut text, &boundary, STREAM, None, b"true");
        }
        for (name, value) in &self.fields {
            write_part(&mut text, &boundary, name, None, value.as_bytes());
        }
        let file = (self.file.name.as_str(), self.file.kind.as_deref());
        write_part(&mut text, &boundary, FILE, Some(file), &self.file.bytes);
        text.extend_from_slice(format!("--{boundary}--\r\n").as_bytes());
        let kind = HeaderValue::from_str(&format!("multipart/form-data; boundary={boundary}"));
        (kind.expect("hexadecimal digits make a header"), text.into())
    }
}

#[cfg(test)]
mod tests;
