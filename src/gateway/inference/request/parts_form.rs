//! Forms with several files, such as image edits. They are read completely and rewritten with the engine's name for
//! the model.

use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, FromRequest, Multipart};
use axum::http::{HeaderValue, Request, header};
use serde_json::value::RawValue;

use crate::inference::request::request_fields::{Fate, fate};
use api_types::error::Failure;
use catalog::{Ask, Entry};

const MODEL: &str = "model";
/// Fields that may be files.
const FILES: [&str; 4] = ["image", "image[]", "images[]", "mask"];
const PARTS_MAX: usize = 64;
const MODEL_NAME_MAX: usize = 256;
const FIELD_NAME_MAX: usize = 100;

/// A parsed form.
#[derive(Debug)]
pub(crate) struct PartsForm {
    pub model: String,
    parts: Vec<Part>,
}

#[derive(Debug)]
struct Part {
    name: String,
    /// The name and the type of a file.
    file: Option<(String, Option<String>)>,
    bytes: Bytes,
}

impl PartsForm {
    pub async fn read(kind: Option<&HeaderValue>, body: Bytes) -> Result<PartsForm, Failure> {
        let mut request = Request::new(Body::from(body));
        if let Some(kind) = kind {
            let headers = request.headers_mut();
            headers.insert(header::CONTENT_TYPE, kind.clone());
        }
        // The body's size was limited when it was read.
        DefaultBodyLimit::apply(DefaultBodyLimit::disable(), &mut request);
        let Ok(mut form) = Multipart::from_request(request, &()).await else {
            let message = "the body must be a form, multipart/form-data with its boundary";
            return Err(Failure::invalid(None, message));
        };
        let broken = |error: axum::extract::multipart::MultipartError| {
            let text = error.body_text();
            Failure::invalid(None, format!("the form cannot be read: {text}"))
        };
        let (mut model, mut parts) = (None, Vec::new());
        while let Some(field) = form.next_field().await.map_err(broken)? {
            let name = checked_name(field.name())?;
            let file = field.file_name().map(str::to_owned);
            let file = file.map(|file| (file, field.content_type().map(str::to_owned)));
            if file.is_some() && !FILES.contains(&name.as_str()) {
                let shown: String = name.chars().take(100).collect();
                let message = format!("`{shown}` cannot be a file; files are {}", FILES.join(", "));
                return Err(Failure::invalid(shown, message));
            }
            if parts.len() == PARTS_MAX {
                let message = format!("the form has more than {PARTS_MAX} parts");
                return Err(Failure::invalid(None, message));
            }
            let bytes = field.bytes().await.map_err(broken)?;
            if file.is_none() && std::str::from_utf8(&bytes).is_err() {
                let shown: String = name.chars().take(100).collect();
                let message = format!("`{shown}` is not UTF-8");
                return Err(Failure::invalid(shown, message));
            }
            if name == MODEL {
                model = Some(String::from_utf8_lossy(&bytes).into_owned());
                continue;
            }
            parts.push(Part { name, file, bytes });
        }
        let model = check_model(model)?;
        if !parts.iter().any(|part| part.file.is_some()) {
            let message = "the form has no file named `image`";
            return Err(Failure::invalid("image".to_owned(), message));
        }
        Ok(PartsForm { model, parts })
    }

    /// Replaces the bytes of all parts.
    pub fn keeps(&mut self, keep: impl Fn(Bytes) -> Bytes) {
        for part in &mut self.parts {
            part.bytes = keep(std::mem::take(&mut part.bytes));
        }
    }

    /// Refuses or drops fields as the model's file says, and limits the number of images.
    pub fn check(&mut self, ask: Ask, entry: &Entry, most: u32) -> Result<(), Failure> {
        let mut fates = Vec::new();
        for part in &self.parts {
            let text = String::from_utf8_lossy(&part.bytes);
            let count = text.trim().parse::<u32>();
            // Engines also accept `1e3` and `1_000` as numbers.
            if part.name == "n" && count.map_or(!text.trim().is_empty(), |count| count > most) {
                let message =
                    format!("`n` must be a number of images up to {most} (server.sequences_max)");
                return Err(Failure::invalid("n".to_owned(), message));
            }
            if part.file.is_some() {
                fates.push(Fate::Goes);
                continue;
            }
            if FILES.contains(&part.name.as_str()) {
                let message = format!(
                    "`{}` must be a file; the server fetches nothing for a request",
                    part.name
                );
                return Err(Failure::invalid(part.name.clone(), message));
            }
            let value = serde_json::Value::from(&*text).to_string();
            let value = RawValue::from_string(value)
                .map_err(|_| Failure::invalid(part.name.clone(), "this field cannot be read"))?;
            fates.push(fate(entry, ask, &part.name, &value)?);
        }
        let mut fates = fates.into_iter();
        self.parts.retain(|_| fates.next() == Some(Fate::Goes));
        Ok(())
    }

    /// The form for an engine that calls the model `model`, and its `content-type`.
    pub fn written(&self, model: &str) -> (HeaderValue, Bytes) {
        let boundary = format!("model-pool-{}", uuid::Uuid::now_v7().simple());
        let bytes: usize = self.parts.iter().map(|part| part.bytes.len() + 256).sum();
        let mut text = Vec::with_capacity(bytes + 256);
        write_part(&mut text, &boundary, MODEL, None, model.as_bytes());
        for part in &self.parts {
            let file = part.file.as_ref();
            let file = file.map(|(name, kind)| (name.as_str(), kind.as_deref()));
            write_part(&mut text, &boundary, &part.name, file, &part.bytes);
        }
        text.extend_from_slice(format!("--{boundary}--\r\n").as_bytes());
        let kind = HeaderValue::from_str(&format!("multipart/form-data; boundary={boundary}"));
        (kind.expect("hexadecimal digits make a header"), text.into())
    }
}

/// Returns the model of a form, or an error if it is missing, empty or too long.
pub(crate) fn check_model(model: Option<String>) -> Result<String, Failure> {
    let wrong = |message: String| Err(Failure::invalid("model".to_owned(), message));
    match model {
        None => wrong("the form has no `model`".to_owned()),
        Some(model) if model.is_empty() => wrong("the form has no `model`".to_owned()),
        Some(model) if model.len() > MODEL_NAME_MAX => {
            wrong(format!("`model` is longer than {MODEL_NAME_MAX} bytes"))
        }
        Some(model) => Ok(model),
    }
}

/// Returns the name of a field if [`write_part`] would not change it. Otherwise the field could pass the checks under one name and
/// reach the engine under another.
pub(crate) fn checked_name(name: Option<&str>) -> Result<String, Failure> {
    let name = name.unwrap_or_default();
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.[]".contains(letter);
    if (1..=FIELD_NAME_MAX).contains(&name.len()) && name.chars().all(is_plain) {
        return Ok(name.to_owned());
    }
    let shown: String = name.chars().take(FIELD_NAME_MAX).collect();
    let message = format!(
        "`{shown}` is not a valid field name; use up to {FIELD_NAME_MAX} letters, digits, `-`, `_`, `.`, `[` and `]`"
    );
    Err(Failure::invalid(shown, message))
}

/// Writes one part of a form. `file` is the name and the type of a file.
pub(crate) fn write_part(
    text: &mut Vec<u8>,
    boundary: &str,
    name: &str,
    file: Option<(&str, Option<&str>)>,
    value: &[u8],
) {
    let more = file.map_or_else(String::new, |(name, kind)| {
        let kind = kind.and_then(|kind| HeaderValue::from_str(kind).ok());
        let kind = kind.as_ref().and_then(|kind| kind.to_str().ok());
        let kind = kind.unwrap_or("application/octet-stream");
        format!("; filename=\"{}\"\r\nContent-Type: {kind}", quoted(name))
    });
    let name = quoted(name);
    let head =
        format!("--{boundary}\r\nContent-Disposition: form-data; name=\"{name}\"{more}\r\n\r\n");
    text.extend_from_slice(head.as_bytes());
    text.extend_from_slice(value);
    text.extend_from_slice(b"\r\n");
}

/// Quotes a name as browsers do. Only the last component of a path is kept, because its extension gives the audio format.
fn quoted(name: &str) -> String {
    let last = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let safe = last
        .replace('"', "%22")
        .replace('\r', "%0D")
        .replace('\n', "%0A");
    safe.chars()
        .filter(|character| !character.is_control())
        .take(200)
        .collect()
}
