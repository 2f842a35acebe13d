//! Reads the form of an audio request and writes it anew for the engine: known fields alone, and the file under a plain
//! name.

use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, FromRequest, Multipart};
use axum::http::{HeaderValue, Request, header};

use crate::error::Failure;
use catalog::Extra;

const FILE: &str = "file";
/// What both routes have beside the file and the model.
const KNOWN: [&str; 3] = ["prompt", "response_format", "temperature"];
/// What a translation, which is English always, has no use for.
const OF_TRANSCRIPTIONS: [&str; 3] = [
    "language",
    "timestamp_granularities[]",
    "timestamp_granularities",
];
const FIELDS_MAX: usize = 32;
const MODEL_NAME_MAX: usize = 256;

#[derive(Debug)]
pub(crate) struct Form {
    pub model: String,
    file: File,
    /// Names and values, in their order.
    fields: Vec<(String, String)>,
}

#[derive(Debug)]
struct File {
    name: String,
    kind: Option<String>,
    bytes: Bytes,
}

impl Form {
    pub async fn read(
        kind: Option<&HeaderValue>,
        body: Bytes,
        extra: Extra,
    ) -> Result<Form, Failure> {
        let mut request = Request::new(Body::from(body));
        if let Some(kind) = kind {
            request
                .headers_mut()
                .insert(header::CONTENT_TYPE, kind.clone());
        }
        // It was bounded when it was read.
        DefaultBodyLimit::apply(DefaultBodyLimit::disable(), &mut request);
        let form = Multipart::from_request(request, &()).await;
        let Ok(mut form) = form else {
            let message = "the body must be a form, multipart/form-data with its boundary";
            return Err(Failure::invalid(None, message));
        };
        let (mut model, mut file, mut fields) = (None, None, Vec::new());
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
            let name = field.name().unwrap_or_default().to_owned();
            if name == FILE && file.is_none() {
                file = Some(File {
                    name: field.file_name().unwrap_or(FILE).to_owned(),
                    kind: field.content_type().map(str::to_owned),
                    bytes: field.bytes().await.map_err(broken)?,
                });
                continue;
            }
            let is_known = name == "model" || name == "stream" || is_known(&name, extra);
            if name == FILE || !is_known || fields.len() >= FIELDS_MAX {
                let shown: String = name.chars().take(100).collect();
                let what = match is_known || name == FILE {
                    true => "stands there too often",
                    false => "is not known here; remove it",
                };
                return Err(Failure::invalid(shown.clone(), format!("`{shown}` {what}")));
            }
            let value = field.text().await.map_err(broken)?;
            match name.as_str() {
                "model" => model = Some(value),
                "stream" if value == "false" => {}
                "stream" => {
                    let message = "`stream` is not supported here: the text comes whole";
                    return Err(Failure::invalid(name, message));
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
        let model = model
            .filter(|it| !it.is_empty())
            .ok_or_else(|| missing("model"))?;
        if model.len() > MODEL_NAME_MAX {
            let message = format!("`model` is longer than {MODEL_NAME_MAX} bytes");
            return Err(Failure::invalid("model".to_owned(), message));
        }
        Ok(Form {
            model,
            file,
            fields,
        })
    }

    /// Whether another one has the same fields and the same file, whatever the model is called.
    pub fn has_same_content(&self, other: &Form) -> bool {
        self.fields == other.fields && self.file.bytes == other.file.bytes
    }

    /// The file as it is kept from now on.
    pub fn keeps(&mut self, keep: impl FnOnce(Bytes) -> Bytes) {
        self.file.bytes = keep(std::mem::take(&mut self.file.bytes));
    }

    /// The form for an engine that knows the model by this name, and its `content-type`.
    pub fn written(&self, model: &str) -> (HeaderValue, Bytes) {
        let boundary = format!("model-pool-{}", uuid::Uuid::now_v7().simple());
        let mut text = Vec::with_capacity(self.file.bytes.len() + 1024);
        let mut part = |name: &str, more: &str, value: &[u8]| {
            let name = quoted(name);
            let head = format!(
                "--{boundary}\r\nContent-Disposition: form-data; name=\"{name}\"{more}\r\n\r\n"
            );
            text.extend_from_slice(head.as_bytes());
            text.extend_from_slice(value);
            text.extend_from_slice(b"\r\n");
        };
        part("model", "", model.as_bytes());
        for (name, value) in &self.fields {
            part(name, "", value.as_bytes());
        }
        let kind = self
            .file
            .kind
            .as_deref()
            .and_then(|kind| HeaderValue::from_str(kind).ok());
        let kind = kind.as_ref().and_then(|kind| kind.to_str().ok());
        let kind = kind.unwrap_or("application/octet-stream");
        let more = format!(
            "; filename=\"{}\"\r\nContent-Type: {kind}",
            quoted(&self.file.name)
        );
        part(FILE, &more, &self.file.bytes);
        text.extend_from_slice(format!("--{boundary}--\r\n").as_bytes());
        let kind = HeaderValue::from_str(&format!("multipart/form-data; boundary={boundary}"));
        (kind.expect("hexadecimal digits make a header"), text.into())
    }
}

fn is_known(name: &str, extra: Extra) -> bool {
    KNOWN.contains(&name) || (extra == Extra::Transcriptions && OF_TRANSCRIPTIONS.contains(&name))
}

/// As browsers write names into a form; of a path only the last part, which says what kind of sound it is.
fn quoted(name: &str) -> String {
    let last = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let safe = last
        .replace('"', "%22")
        .replace('\r', "%0D")
        .replace('\n', "%0A");
    safe.chars()
        .filter(|it| !it.is_control())
        .take(200)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(parts: &[(&str, &str)]) -> Bytes {
        let mut text = String::new();
        for (name, value) in parts {
            let file = if *name == "file" {
                "; filename=\"../a\\\"b.wav\"\r\nContent-Type: audio/wav"
            } else {
                ""
            };
            text += &format!(
                "--x\r\nContent-Disposition: form-data; name=\"{name}\"{file}\r\n\r\n{value}\r\n"
            );
        }
        (text + "--x--\r\n").into()
    }

    async fn read(parts: &[(&str, &str)], extra: Extra) -> Result<Form, Failure> {
        let kind = HeaderValue::from_static("multipart/form-data; boundary=x");
        Form::read(Some(&kind), body(parts), extra).await
    }

    #[tokio::test]
    async fn a_form_goes_on_with_the_engines_name_and_everything_that_is_known() {
        let parts = [
            ("model", "m"),
            ("file", "RIFF"),
            ("language", "de"),
            ("timestamp_granularities[]", "word"),
            ("timestamp_granularities[]", "segment"),
            ("stream", "false"),
        ];
        let form = read(&parts, Extra::Transcriptions).await.unwrap();
        let (kind, body) = form.written("theirs");
        let again = Form::read(Some(&kind), body.clone(), Extra::Transcriptions)
            .await
            .unwrap();
        assert_eq!(
            (again.model.as_str(), again.file.bytes.as_ref()),
            ("theirs", b"RIFF".as_slice())
        );
        assert_eq!(again.file.kind.as_deref(), Some("audio/wav"));
        assert_eq!(again.fields, form.fields);
        assert_eq!(again.fields.len(), 3);
        let text = String::from_utf8(body.to_vec()).unwrap();
        assert!(!text.contains(".."), "{text}");
    }

    #[tokio::test]
    async fn what_is_missing_unknown_or_not_done_is_named() {
        let file = ("file", "RIFF");
        for (parts, extra, param) in [
            (vec![("model", "m")], Extra::Transcriptions, "file"),
            (
                vec![("model", "m"), ("file", "")],
                Extra::Transcriptions,
                "file",
            ),
            (vec![file], Extra::Transcriptions, "model"),
            (
                vec![file, ("model", "m"), file],
                Extra::Transcriptions,
                "file",
            ),
            (
                vec![file, ("model", "m"), ("url", "http://x")],
                Extra::Transcriptions,
                "url",
            ),
            (
                vec![file, ("model", "m"), ("stream", "true")],
                Extra::Transcriptions,
                "stream",
            ),
            (
                vec![file, ("model", "m"), ("language", "de")],
                Extra::Translations,
                "language",
            ),
        ] {
            let failure = read(&parts, extra).await.unwrap_err();
            assert_eq!(
                failure.body.error.param.as_deref(),
                Some(param),
                "{parts:?}"
            );
        }
        let json = HeaderValue::from_static("application/json");
        for kind in [None, Some(&json)] {
            let failure = Form::read(kind, body(&[file]), Extra::Transcriptions)
                .await
                .unwrap_err();
            assert!(failure.body.error.message.contains("multipart/form-data"));
        }
        let kind = HeaderValue::from_static("multipart/form-data; boundary=x");
        let cut =
            Bytes::from_static(b"--x\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\nRIF");
        assert!(
            Form::read(Some(&kind), cut, Extra::Transcriptions)
                .await
                .is_err()
        );
    }
}
