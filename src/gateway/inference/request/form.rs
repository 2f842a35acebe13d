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
mod tests {
    use super::*;
    use catalog::{Reference, Source};
    use config::Config;
    use serde_json::json;

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

    async fn read(parts: &[(&str, &str)]) -> Result<Form, Failure> {
        let kind = HeaderValue::from_static("multipart/form-data; boundary=x");
        Form::read(Some(&kind), body(parts)).await
    }

    #[tokio::test]
    async fn a_form_is_forwarded_with_the_engines_model_name_and_all_known_fields() {
        let parts = [
            ("model", "m"),
            ("file", "RIFF"),
            ("language", "de"),
            ("timestamp_granularities[]", "word"),
            ("timestamp_granularities[]", "segment"),
            ("stream", "false"),
        ];
        let form = read(&parts).await.unwrap();
        let (kind, body) = form.written("theirs");
        let again = Form::read(Some(&kind), body.clone()).await.unwrap();
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

    /// A name with a path, quotes or control characters would reach the engine as a different name.
    #[tokio::test]
    async fn a_form_field_name_that_would_change_in_transit_is_refused() {
        for name in [
            "x/audio_url",
            "x\\\\file",
            "a=\\\"b",
            "caf\u{e9}",
            "a b",
            "",
            "a;b",
        ] {
            let parts = [("file", "RIFF"), ("model", "m"), (name, "1")];
            let failure = read(&parts).await.expect_err(name);
            let message = failure.body.error.message;
            assert!(
                message.contains("not a valid field name"),
                "{name}: {message}"
            );
        }
        let long = "a".repeat(101);
        assert!(
            read(&[("file", "RIFF"), ("model", "m"), (&long, "1")])
                .await
                .is_err()
        );
        assert!(
            read(&[("file", "RIFF"), ("model", "m"), (&long[1..], "1")])
                .await
                .is_ok()
        );
    }

    fn entry(engine: &str, policy: &str) -> Entry {
        let document = json!({
            "engine_config": {"model_id": "m", "type": engine, "model_path": "/m", "command": ["x", "{{ port }}"]},
            "pool_config": {"memory_gib": 1, "unknown_fields": policy},
        });
        let mut document = document;
        let engine_keys = document["engine_config"].as_object_mut().unwrap();
        engine_keys.shift_remove(match engine {
            "CommandEngine" => "model_path",
            _ => "command",
        });
        if policy.is_empty() {
            let pool_keys = document["pool_config"].as_object_mut().unwrap();
            pool_keys.shift_remove("unknown_fields");
        }
        let (config, reference) = (Config::default(), Reference::default());
        let read = Entry::from_document(&document, Source::Registered, &config, &reference);
        read.unwrap().0
    }

    #[tokio::test]
    async fn a_form_field_unknown_to_openai_follows_the_models_policy() {
        let settled = async |engine: &str, policy: &str, name: &str, value: &str| {
            let parts = [("file", "RIFF"), ("model", "m"), (name, value)];
            let mut form = read(&parts).await.unwrap();
            let ignored = form.settle(&entry(engine, policy), ExtraRoute::Transcriptions);
            let ignored = ignored.map_err(|failure| failure.body.error.param.unwrap())?;
            Ok::<_, String>((form.fields.len(), ignored.join(", ")))
        };
        let none = String::new();
        for (engine, policy, name, value, expected) in [
            (
                "CommandEngine",
                "",
                "vad_filter",
                "true",
                Ok((1, none.clone())),
            ),
            (
                "CommandEngine",
                "",
                "include[]",
                "logprobs",
                Ok((1, none.clone())),
            ),
            (
                "CommandEngine",
                "",
                "audio_url",
                "http://x/",
                Err("audio_url".to_owned()),
            ),
            (
                "CommandEngine",
                "",
                "prompt",
                "see http://x/",
                Ok((1, none.clone())),
            ),
            (
                "CommandEngine",
                "",
                "lora_path",
                "x",
                Err("lora_path".to_owned()),
            ),
            (
                "CommandEngine",
                "refuse",
                "vad_filter",
                "true",
                Err("vad_filter".to_owned()),
            ),
            (
                "VLLMEngine",
                "",
                "vad_filter",
                "true",
                Err("vad_filter".to_owned()),
            ),
            ("VLLMEngine", "", "vad_filter", "", Ok((0, none.clone()))),
            (
                "VLLMEngine",
                "",
                "include[]",
                "logprobs",
                Ok((0, "include[]".to_owned())),
            ),
            ("VLLMEngine", "", "language", "de", Ok((1, none.clone()))),
            (
                "VLLMEngine",
                "drop",
                "vad_filter",
                "true",
                Ok((0, "vad_filter".to_owned())),
            ),
            ("VLLMEngine", "pass", "vad_filter", "true", Ok((1, none))),
        ] {
            let got = settled(engine, policy, name, value).await;
            assert_eq!(got, expected, "{engine} {policy} {name}: {value}");
        }
        let parts = [("file", "RIFF"), ("model", "m"), ("language", "de")];
        let mut form = read(&parts).await.unwrap();
        assert!(
            form.settle(&entry("VLLMEngine", ""), ExtraRoute::Translations)
                .is_err()
        );
    }

    #[tokio::test]
    async fn a_stream_is_forwarded_to_the_embedded_engine_and_refused_for_others() {
        let parts = [("file", "RIFF"), ("model", "m"), ("stream", "true")];
        for (engine, extra, expected) in [
            ("CandleEngine", ExtraRoute::Transcriptions, true),
            ("CandleEngine", ExtraRoute::Translations, false),
            ("VLLMEngine", ExtraRoute::Transcriptions, false),
        ] {
            let mut form = read(&parts).await.unwrap();
            let settled = form.settle(&entry(engine, ""), extra);
            assert_eq!(settled.is_ok(), expected, "{engine}");
            let (_, body) = form.written("theirs");
            assert!(String::from_utf8_lossy(&body).contains("name=\"stream\""));
        }
    }

    #[tokio::test]
    async fn a_missing_duplicate_or_unsupported_form_field_is_refused_by_name() {
        let file = ("file", "RIFF");
        for (parts, param) in [
            (vec![("model", "m")], "file"),
            (vec![("model", "m"), ("file", "")], "file"),
            (vec![file], "model"),
            (vec![file, ("model", "m"), file], "file"),
            (vec![file, ("model", "m"), ("stream", "maybe")], "stream"),
        ] {
            let failure = read(&parts).await.unwrap_err();
            assert_eq!(
                failure.body.error.param.as_deref(),
                Some(param),
                "{parts:?}"
            );
        }
        let json = HeaderValue::from_static("application/json");
        for kind in [None, Some(&json)] {
            let failure = Form::read(kind, body(&[file])).await.unwrap_err();
            assert!(failure.body.error.message.contains("multipart/form-data"));
        }
        let kind = HeaderValue::from_static("multipart/form-data; boundary=x");
        let cut =
            Bytes::from_static(b"--x\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\nRIF");
        assert!(Form::read(Some(&kind), cut).await.is_err());
    }
}
