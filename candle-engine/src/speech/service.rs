//! The service behind the routes of a speech model: from a form to a transcript, complete or as a stream of events.

use super::form::SpeechForm;
use super::formats::{Transcript, TranscriptFormat, usage};
use super::job::{Job, JobOptions, SpeechEvent, undecodable};
use super::loaded_model::SpeechModel;
use super::queue::Queue;
use super::recording::Recording;
use super::recordings_folder::RecordingsFolder;
use super::upload::Uploads;
use super::vocabulary::SpeechTask;
use crate::api_error::ApiError;
use crate::error::EngineError;
use crate::sleep::Sleeper;
use axum::extract::{FromRequest, Multipart, Request};
use axum::http::{StatusCode, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// The paths of a speech model.
pub(crate) const PATHS: [(&str, SpeechTask); 2] = [
    ("/v1/audio/transcriptions", SpeechTask::Transcribe),
    ("/v1/audio/translations", SpeechTask::Translate),
];

/// Interval of comments, which keep the connection of a waiting client alive through proxies.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// A speech model that is served.
pub(crate) struct SpeechService {
    pub model_name: String,
    pub model: Arc<SpeechModel>,
    queue: Queue,
    uploads: Uploads,
}

impl SpeechService {
    /// # Errors
    /// If the system cannot start a thread, or the folder of temporary files cannot be written.
    pub fn start(model_name: String, model: SpeechModel) -> Result<Self, EngineError> {
        let model = Arc::new(model);
        Ok(Self {
            model_name,
            queue: Queue::start(Arc::clone(&model))?,
            model,
            uploads: Uploads::new(RecordingsFolder::create(&std::env::temp_dir())?),
        })
    }

    /// The components that free memory while the engine sleeps.
    pub fn sleepers(&self) -> Vec<Arc<dyn Sleeper>> {
        vec![Arc::clone(&self.model) as Arc<dyn Sleeper>]
    }

    /// The error for a request type that this model does not serve.
    pub fn is_for_something_else(&self, wanted: &str) -> ApiError {
        ApiError {
            code: Some("unsupported_operation"),
            ..ApiError::field(
                "model",
                format!(
                    "the model `{}` does not support {wanted}; it transcribes speech: use /v1/audio/transcriptions",
                    self.model_name
                ),
            )
        }
    }

    /// Handles a request. Dropping the future or the response cancels it.
    ///
    /// # Errors
    /// 400 for an invalid request, 404 for another model, 413 for a form that is too large, 429 if too many requests or bytes are in
    /// the engine, 503 if the disk of recordings is full.
    pub async fn respond(
        self: Arc<Self>,
        task: SpeechTask,
        request: Request,
    ) -> Result<Response, ApiError> {
        let place = self.queue.place()?;
        let form = Multipart::from_request(request, &()).await.map_err(|_| {
            ApiError::invalid("the body must be a form, multipart/form-data with its boundary")
        })?;
        let form = SpeechForm::read(form, task, &self.uploads).await?;
        self.check_model(form.model.as_deref())?;
        let (format, stream) = (form.format, form.stream);
        let service = Arc::clone(&self);
        // Finding the format reads parts of the file.
        let opening = tokio::task::spawn_blocking(move || service.open(task, form));
        let (recording, options) = opening.await.map_err(|_| failed())??;
        let (events, received) = unbounded_channel();
        self.queue
            .submit(Job::new(recording, options, events), place)?;
        if stream {
            Ok(streamed(received))
        } else {
            complete(task, format, received).await
        }
    }

    fn open(
        &self,
        task: SpeechTask,
        form: SpeechForm,
    ) -> Result<(Recording, JobOptions), ApiError> {
        let vocabulary = &self.model.vocabulary;
        if task == SpeechTask::Translate && !vocabulary.translates() {
            return Err(ApiError {
                code: Some("unsupported_operation"),
                ..ApiError::field(
                    "model",
                    format!(
                        "the model `{}` knows English only and does not translate",
                        self.model_name
                    ),
                )
            });
        }
        let language = form.language.as_deref();
        let language = language.map(|text| vocabulary.language(text)).transpose()?;
        let detects = !vocabulary.languages.is_empty();
        let prompt = form
            .prompt
            .as_deref()
            .map(|text| format!(" {}", text.trim()));
        let options = JobOptions {
            task,
            language: language.or((!detects).then_some("en")),
            prompt: match prompt {
                Some(prompt) => vocabulary.encode(&prompt)?,
                None => Vec::new(),
            },
            temperature: form.temperature,
            words: form.format.has_words(),
        };
        let recording = Recording::open(Box::new(form.file), form.file_name.as_deref());
        Ok((recording.map_err(undecodable)?, options))
    }

    /// # Errors
    /// 404 if `model` names another model.
    fn check_model(&self, model: Option<&str>) -> Result<(), ApiError> {
        if model.is_none_or(|model| model == self.model_name) {
            return Ok(());
        }
        let message = format!("this engine serves the model `{}` only", self.model_name);
        Err(ApiError {
            param: Some("model".to_owned()),
            ..ApiError::with_status(StatusCode::NOT_FOUND, "model_not_found", message)
        })
    }
}

/// Waits for the complete transcript.
async fn complete(
    task: SpeechTask,
    format: TranscriptFormat,
    mut events: UnboundedReceiver<SpeechEvent>,
) -> Result<Response, ApiError> {
    let mut segments = Vec::new();
    loop {
        match events.recv().await {
            Some(SpeechEvent::Segment(segment)) => segments.push(segment),
            Some(SpeechEvent::Finished { language, seconds }) => {
                let transcript = Transcript {
                    task,
                    language,
                    seconds,
                    segments,
                };
                let kind = [(header::CONTENT_TYPE, format.media_type())];
                return Ok((kind, transcript.write(format)).into_response());
            }
            Some(SpeechEvent::Failed(error)) => return Err(error),
            None => return Err(failed()),
        }
    }
}

/// The transcript as events: the text of each segment, and the complete text at the end.
fn streamed(received: UnboundedReceiver<SpeechEvent>) -> Response {
    let state = Some((received, String::new()));
    let events = stream::unfold(state, |state| async {
        let (mut received, mut text) = state?;
        let (data, goes_on) = match received.recv().await {
            Some(SpeechEvent::Segment(segment)) => {
                // The complete text does not begin with a space.
                let delta = if text.is_empty() {
                    segment.text.trim_start()
                } else {
                    segment.text.as_str()
                };
                text += delta;
                (
                    json!({"type": "transcript.text.delta", "delta": delta}),
                    true,
                )
            }
            Some(SpeechEvent::Finished { seconds, .. }) => (
                json!({"type": "transcript.text.done", "text": text.trim(), "usage": usage(seconds)}),
                false,
            ),
            Some(SpeechEvent::Failed(error)) => (error.body(), false),
            None => (failed().body(), false),
        };
        Some((event(&data), goes_on.then_some((received, text))))
    });
    Sse::new(events)
        .keep_alive(KeepAlive::new().interval(KEEP_ALIVE))
        .into_response()
}

fn event(data: &Value) -> Result<Event, Infallible> {
    Ok(Event::default().data(data.to_string()))
}

fn failed() -> ApiError {
    ApiError::internal("the engine failed on this request")
}
