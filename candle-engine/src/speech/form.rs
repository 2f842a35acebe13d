//! Reads the form of a request, whose recording is kept as it arrives.

use super::formats::{Granularity, TranscriptFormat};
use super::upload::{Upload, Uploads};
use super::vocabulary::SpeechTask;
use crate::api_error::ApiError;
use axum::extract::multipart::{Field, Multipart, MultipartError};
use reading::shortened;
use serde_json::Value;

/// Maximum size of a form, as large as the pool's own limit may be.
pub(crate) const FORM_BYTES_MAX: usize = 1 << 30;
/// Maximum size of a text field.
const TEXT_BYTES_MAX: usize = 16 << 10;
const FIELDS_MAX: usize = 32;

/// A request's fields, checked as far as possible without the model.
pub(super) struct SpeechForm {
    pub file: Upload,
    pub file_name: Option<String>,
    pub model: Option<String>,
    pub language: Option<String>,
    pub prompt: Option<String>,
    pub format: TranscriptFormat,
    pub temperature: f32,
    pub stream: bool,
}

impl SpeechForm {
    /// # Errors
    /// 400 for an invalid form, 413 if it is too large, 429 if the recordings have too many bytes together, 503 if the disk is full.
    pub async fn read(
        mut form: Multipart,
        task: SpeechTask,
        all: &Uploads,
    ) -> Result<Self, ApiError> {
        let mut upload = None;
        let mut texts: Vec<(String, String)> = Vec::new();
        while let Some(mut field) = form.next_field().await.map_err(|error| broken(&error))? {
            let name = field.name().unwrap_or_default().to_owned();
            if name != "file" {
                if texts.len() == FIELDS_MAX {
                    let message = format!("the form has more than {FIELDS_MAX} fields");
                    return Err(ApiError::field(shortened(&name), message));
                }
                let text = text_of(field, &name).await?;
                texts.push((name, text));
                continue;
            }
            if upload.is_some() {
                return Err(ApiError::field("file", "the form has more than one `file`"));
            }
            let file_name = field.file_name().map(shortened);
            let mut file = all.begin();
            while let Some(piece) = field.chunk().await.map_err(|error| broken(&error))? {
                file = file.append(&piece).await?;
            }
            upload = Some((file, file_name));
        }
        let (file, file_name) =
            upload.ok_or_else(|| ApiError::field("file", "the form has no `file`"))?;
        if file.is_empty() {
            return Err(ApiError::field("file", "`file` is empty"));
        }
        let mut read = Self {
            file: file.finish().await?,
            file_name,
            model: None,
            language: None,
            prompt: None,
            format: TranscriptFormat::Json,
            temperature: 0.0,
            stream: false,
        };
        let mut granularity = None;
        for (name, text) in texts {
            granularity = merged(granularity, read.take(task, &name, text)?);
        }
        read.check(granularity)?;
        Ok(read)
    }

    /// Reads a text field. Returns the timestamps of the response that it names.
    fn take(
        &mut self,
        task: SpeechTask,
        name: &str,
        text: String,
    ) -> Result<Option<Granularity>, ApiError> {
        let is_transcription = task == SpeechTask::Transcribe;
        let set = Some(text.clone()).filter(|text| !text.trim().is_empty());
        match name {
            "model" => self.model = Some(text),
            "prompt" => self.prompt = set,
            "language" if is_transcription => self.language = set,
            "response_format" => {
                self.format = TranscriptFormat::parse(&text)
                    .ok_or_else(|| wrong(name, "json, text, srt, verbose_json or vtt", &text))?;
            }
            "temperature" => {
                let number = text.trim().parse::<f32>().ok();
                let number = number.filter(|number| (0.0..=1.0).contains(number));
                self.temperature =
                    number.ok_or_else(|| wrong(name, "a number from 0 to 1", &text))?;
            }
            "stream" if is_transcription => {
                self.stream = match text.as_str() {
                    "true" | "True" => true,
                    "false" | "False" | "" => false,
                    _ => return Err(wrong(name, "true or false", &text)),
                }
            }
            "timestamp_granularities[]" | "timestamp_granularities" if is_transcription => {
                return match text.as_str() {
                    "segment" => Ok(Some(Granularity::Segments)),
                    "word" => Ok(Some(Granularity::Words)),
                    _ => Err(wrong(name, "segment or word", &text)),
                };
            }
            // The windows of 30 seconds are the engine's own, and it decides on them.
            "chunking_strategy" if is_transcription && text == "auto" => {}
            _ => {
                return Err(ApiError {
                    code: Some("unknown_parameter"),
                    ..ApiError::field(
                        shortened(name),
                        format!("unknown field: {}", shortened(name)),
                    )
                });
            }
        }
        Ok(None)
    }

    fn check(&mut self, granularity: Option<Granularity>) -> Result<(), ApiError> {
        if let Some(granularity) = granularity {
            if !matches!(self.format, TranscriptFormat::VerboseJson(_)) {
                return Err(ApiError::field(
                    "timestamp_granularities[]",
                    "`timestamp_granularities[]` needs the response_format verbose_json",
                ));
            }
            self.format = TranscriptFormat::VerboseJson(granularity);
        }
        let streams_text = [TranscriptFormat::Json, TranscriptFormat::Text].contains(&self.format);
        if self.stream && !streams_text {
            return Err(ApiError::field(
                "stream",
                "`stream` needs the response_format json or text",
            ));
        }
        Ok(())
    }
}

fn merged(one: Option<Granularity>, other: Option<Granularity>) -> Option<Granularity> {
    match (one, other) {
        (Some(one), Some(other)) if one != other => Some(Granularity::SegmentsAndWords),
        (one, other) => one.or(other),
    }
}

async fn text_of(mut field: Field<'_>, name: &str) -> Result<String, ApiError> {
    let mut text = Vec::new();
    while let Some(piece) = field.chunk().await.map_err(|error| broken(&error))? {
        if text.len() + piece.len() > TEXT_BYTES_MAX {
            let name = shortened(name);
            let message = format!("`{name}` has more than {TEXT_BYTES_MAX} bytes");
            return Err(ApiError::field(name, message));
        }
        text.extend_from_slice(&piece);
    }
    String::from_utf8(text).map_err(|_| {
        let name = shortened(name);
        let message = format!("`{name}` must be UTF-8");
        ApiError::field(name, message)
    })
}

fn wrong(name: &str, wanted: &str, found: &str) -> ApiError {
    crate::fields::expected(name, wanted, &Value::from(found))
}

fn broken(error: &MultipartError) -> ApiError {
    let message = format!("the form cannot be read: {}", error.body_text());
    ApiError::with_status(error.status(), "invalid_body", message)
}
