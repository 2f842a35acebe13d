//! Transcription, translation and speech routes. Forms are read and rewritten with known fields only; the engine's response is
//! returned unchanged.

use std::pin::pin;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{Request, header};
use axum::response::Response;
use serde_json::Value;

use crate::auth::User;
use crate::deployments::Deployment;
use crate::inference::admission::RequestContext;
use crate::inference::in_flight::{JSON, engine_error, reach};
use crate::inference::request::engine_routes::check_has;
use crate::inference::request::failed::Failed;
use crate::inference::request::form::Form;
use crate::inference::request::ignored::note;
use crate::inference::request::outgoing::renamed;
use crate::inference::request::receiving::{read, read_form};
use crate::inference::request::request_fields::{Fate, fate_in_audio};
use crate::inference::routes::flowing::flowing;
use crate::inference::routes::unary_routes::{Answer, ask, name_there, named, seated};
use crate::inference::understood::{find, model, real_name};
use crate::openapi::{InferenceErrors, WaitHeaders};
use crate::state::App;
use api_types::error::Failure;
use api_types::schemas::audio::{
    SpeechRequest, Transcription, TranscriptionRequest, TranslationRequest,
};
use catalog::{Entry, ExtraRoute};
use dialect::RequestFields;
use edge::record;
use reading::has_effect;

/// Fields of OpenAI's speech request.
const SPEECH_FIELDS: [&str; 7] = [
    "model",
    "input",
    "voice",
    "instructions",
    "response_format",
    "speed",
    "stream_format",
];

/// Transcribe speech
///
/// Needs a speech model; other models get a 501. If the model is not loaded, the pool loads it and the request waits. The pool
/// reads the complete recording first, at most `server.body_limit` bytes.
///
/// Every key that may use the model may call this.
#[utoipa::path(
    post, path = "/v1/audio/transcriptions", tag = "audio", operation_id = "create_transcription",
    security(("user_key" = [])), params(WaitHeaders),
    request_body(content = TranscriptionRequest, content_type = "multipart/form-data", example = json!({
        "model": "tiny-guide", "file": "(a recording)"
    })),
    responses(
        (status = 200, description = "The text, in the format of `response_format`", content(
            (Transcription = "application/json", example = json!({"text": "The model is loaded."})),
            (String = "text/plain", example = json!("The model is loaded.")),
            (String = "text/event-stream", example = json!("event: transcript.text.delta\ndata: {\"type\":\"transcript.text.delta\",\"delta\":\"The model is loaded.\"}\n\n")),
        )),
        InferenceErrors,
    )
)]
pub(crate) async fn transcriptions(
    State(app): State<App>,
    user: User,
    request: Request<Body>,
) -> Response {
    let context = RequestContext::new(&app, user, request.headers());
    let work = pin!(speech_to_text(
        &app,
        &context,
        request,
        ExtraRoute::Transcriptions
    ));
    context.end(&app, work).await
}

/// Translate speech into English text
///
/// Needs a speech model; other models get a 501. If the model is not loaded, the pool loads it and the request waits. The pool
/// reads the complete recording first, at most `server.body_limit` bytes.
///
/// Every key that may use the model may call this.
#[utoipa::path(
    post, path = "/v1/audio/translations", tag = "audio", operation_id = "create_translation",
    security(("user_key" = [])), params(WaitHeaders),
    request_body(content = TranslationRequest, content_type = "multipart/form-data", example = json!({
        "model": "tiny-guide", "file": "(a recording)"
    })),
    responses(
        (status = 200, description = "The text, in the format of `response_format`", content(
            (Transcription = "application/json", example = json!({"text": "The model is loaded."})),
            (String = "text/plain", example = json!("The model is loaded.")),
        )),
        InferenceErrors,
    )
)]
pub(crate) async fn translations(
    State(app): State<App>,
    user: User,
    request: Request<Body>,
) -> Response {
    let context = RequestContext::new(&app, user, request.headers());
    let work = pin!(speech_to_text(
        &app,
        &context,
        request,
        ExtraRoute::Translations
    ));
    context.end(&app, work).await
}

/// Turn text into speech
///
/// Needs a voice model; other models get a 501. If the model is not loaded, the pool loads it and the request waits. The audio is
/// streamed as the engine generates it.
///
/// Every key that may use the model may call this.
#[utoipa::path(
    post, path = "/v1/audio/speech", tag = "audio", operation_id = "create_speech",
    security(("user_key" = [])), params(WaitHeaders),
    request_body(content = SpeechRequest, example = json!({
        "model": "tiny-guide", "input": "The model is loaded.", "voice": "default"
    })),
    responses(
        (status = 200, description = "The audio, in the format of `response_format`", content_type = "audio/*"),
        InferenceErrors,
    )
)]
pub(crate) async fn speech(State(app): State<App>, user: User, request: Request<Body>) -> Response {
    let context = RequestContext::new(&app, user, request.headers());
    let work = pin!(text_to_speech(&app, &context, request));
    context.end(&app, work).await
}

async fn speech_to_text(
    app: &App,
    context: &RequestContext,
    request: Request<Body>,
    extra: ExtraRoute,
) -> Result<Response, Failed> {
    let (head, body) = request.into_parts();
    let body = read_form(app, body).await?;
    let kind = head.headers.get(header::CONTENT_TYPE);
    let (kind, share) = (kind.cloned(), record::share());
    let bytes = body.len();
    let runtime = tokio::runtime::Handle::current();
    // Never waits, because the complete body is in memory.
    let form = move || runtime.block_on(Form::read(kind.as_ref(), body));
    let form = app.reading.apart(bytes, form).await;
    let mut form = form.map_err(|failure| (None, failure))?;
    if let Some(Deployment(model)) = head.extensions.get() {
        form.model.clone_from(model);
    }
    if let Some(real) = real_name(app, &form.model) {
        form.model = real.to_owned();
    }
    form.keeps(|file| share.charge(file));
    let route = model(app, context, &form.model).await?;
    let name = route.entry.name.clone();
    let fail = |failure: Failure| (Some(name.clone()), failure);
    check_has(&route, extra).map_err(fail)?;
    let ignored = form.settle(&route.entry, extra).map_err(fail)?;
    let streams = form.streams;
    let within = app.config().server.body_timeout.duration();
    let recording = Box::pin(app.recordings.hold(bytes, within)).await;
    let recording = recording.map_err(fail)?;
    let mut served = seated(app, context, &route, 0).await.map_err(fail)?;
    served.recording = Some(Box::new(recording));
    let name = name_there(&served, &route, &form.model);
    let written = move || Ok(form.written(&name));
    let (kind, body) = app.reading.run(bytes, written).await.map_err(fail)?;
    let body = share.charge(body);
    if streams {
        let reached = reach(app, served, extra.path(), (&kind, body)).await;
        let (served, response) = reached.map_err(fail)?;
        if !response.status().is_success() {
            served.responded(response.status().as_u16());
            return Ok(engine_error(response, &served).await);
        }
        return Ok(note(flowing(served, response, None), &ignored));
    }
    match ask(app, served, extra.path(), (&kind, body))
        .await
        .map_err(fail)?
    {
        Answer::Refused(response) => Ok(response),
        Answer::Complete(served, kind, bytes) => {
            let mut response = Response::new(Body::from(bytes));
            let kind = kind.unwrap_or(JSON);
            response.headers_mut().insert(header::CONTENT_TYPE, kind);
            served.responded(200);
            Ok(note(response, &ignored))
        }
    }
}

async fn text_to_speech(
    app: &App,
    context: &RequestContext,
    request: Request<Body>,
) -> Result<Response, Failed> {
    let body = read(app, request.into_body()).await?;
    let (scanned, route) = find(app, context, body).await?;
    let name = route.entry.name.clone();
    let fail = |failure: Failure| (Some(name.clone()), failure);
    check_has(&route, ExtraRoute::Speech).map_err(fail)?;
    let (bytes, share) = (scanned.body.len(), record::share());
    let (received, of_model) = (scanned.body, Arc::clone(&route));
    let written = move || speech_request(&received, &of_model.entry);
    let (body, ignored) = app.reading.run(bytes, written).await.map_err(fail)?;
    let body = share.charge(body);
    let served = seated(app, context, &route, bytes).await.map_err(fail)?;
    let there = name_there(&served, &route, &scanned.model);
    let body = named(app, body, there).await.map_err(fail)?;
    let path = ExtraRoute::Speech.path();
    let (served, response) = reach(app, served, path, (&JSON, body))
        .await
        .map_err(fail)?;
    if !response.status().is_success() {
        served.responded(response.status().as_u16());
        return Ok(engine_error(response, &served).await);
    }
    Ok(note(flowing(served, response, None), &ignored))
}

/// Returns the body with the fields that the engine accepts, and the names of the others.
fn speech_request(body: &Bytes, entry: &Entry) -> Result<(Bytes, Vec<String>), Failure> {
    check_text(body)?;
    let mut ignored = Vec::new();
    let written = renamed(body, &entry.name, |name, value| {
        if value.get() == "null" {
            return Ok(Fate::Ignored);
        }
        if SPEECH_FIELDS.contains(&name) {
            return Ok(Fate::Goes);
        }
        let value: Value = serde_json::from_str(value.get()).unwrap_or_default();
        let fate = fate_in_audio(entry, name, &value, &SPEECH_FIELDS)?;
        if fate == Fate::Ignored && has_effect(&value) {
            ignored.push(name.to_owned());
        }
        Ok(fate)
    })?;
    Ok((written, ignored))
}

/// Checks the fields of OpenAI's request.
fn check_text(body: &Bytes) -> Result<(), Failure> {
    let mut fields_in = RequestFields::parse(body)?;
    fields_in.need_text("model")?;
    if fields_in.need_text("input")?.is_empty() {
        return Err(fields_in.wrong("input", "a non-empty text"));
    }
    for name in ["voice", "instructions", "response_format"] {
        fields_in.text(name)?;
    }
    fields_in.number("speed")?;
    let allowed = [serde_json::json!("audio")];
    fields_in.refuse(
        "stream_format",
        &allowed,
        "the audio itself is streamed, as `audio`",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn speech_request_fields_are_type_checked() {
        let check = |body: serde_json::Value| check_text(&body.to_string().into());
        let allowed = json!({"model": "m", "input": "Hi", "voice": "v", "speed": 1.5, "response_format": "wav", "stream_format": "audio"});
        assert!(check(allowed).is_ok());
        for (body, param) in [
            (json!({"model": "m"}), "input"),
            (json!({"model": "m", "input": ""}), "input"),
            (
                json!({"model": "m", "input": "a", "speed": "fast"}),
                "speed",
            ),
            (
                json!({"model": "m", "input": "a", "stream_format": "sse"}),
                "stream_format",
            ),
        ] {
            let failure = check(body).unwrap_err();
            assert_eq!(failure.body.error.param.as_deref(), Some(param));
        }
    }
}
