//! Transcriptions, translations and speech. A form is read and written anew with the fields that are known; the
//! engine's answer goes back as it is.

use std::pin::pin;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderValue, Request, header};
use axum::response::Response;
use http_body_util::BodyExt;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use crate::auth::User;
use crate::dialect::Taken;
use crate::edge::record;
use crate::error::Failure;
use crate::inference::admission::{self, RequestContext};
use crate::inference::answer::stream::spawn;
use crate::inference::request::engine_routes::check_has;
use crate::inference::request::failed::Failed;
use crate::inference::request::form::Form;
use crate::inference::request::receiving::{find, model, read};
use crate::inference::routes::unary_routes::{Answer, ask, name_there, named, seated};
use crate::inference::upstream::in_flight::{InFlightRequest, JSON, engine_error, reach, why};
use crate::inference::upstream::proxy::Incoming;
use crate::openapi::schemas::audio::{
    SpeechRequest, Transcription, TranscriptionRequest, TranslationRequest,
};
use crate::openapi::{InferenceErrors, WaitHeaders};
use crate::state::App;
use catalog::Extra;

/// Pieces of a sound that may wait for a slow reader.
const PIECES_MAX: usize = 16;

/// Turn speech into text
///
/// Needs a speech model; other models get a 501. If the model is not loaded, the pool loads it and the request waits. The
/// pool reads the whole recording first, at most `server.body_limit` bytes.
///
/// Every key that may use the model may call this.
#[utoipa::path(
    post, path = "/v1/audio/transcriptions", tag = "audio", operation_id = "create_transcription",
    security(("user_key" = [])), params(WaitHeaders),
    request_body(content = TranscriptionRequest, content_type = "multipart/form-data", example = json!({
        "model": "tiny-guide", "file": "(a recording)"
    })),
    responses(
        (status = 200, description = "The text, in the form that `response_format` names", content(
            (Transcription = "application/json", example = json!({"text": "The model is loaded."})),
            (String = "text/plain", example = json!("The model is loaded.")),
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
    let work = pin!(heard(&app, &context, request, Extra::Transcriptions));
    context.end(&app, work).await
}

/// Turn speech into English text
///
/// Needs a speech model; other models get a 501. If the model is not loaded, the pool loads it and the request waits. The
/// pool reads the whole recording first, at most `server.body_limit` bytes.
///
/// Every key that may use the model may call this.
#[utoipa::path(
    post, path = "/v1/audio/translations", tag = "audio", operation_id = "create_translation",
    security(("user_key" = [])), params(WaitHeaders),
    request_body(content = TranslationRequest, content_type = "multipart/form-data", example = json!({
        "model": "tiny-guide", "file": "(a recording)"
    })),
    responses(
        (status = 200, description = "The text, in the form that `response_format` names", content(
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
    let work = pin!(heard(&app, &context, request, Extra::Translations));
    context.end(&app, work).await
}

/// Turn text into speech
///
/// Needs a voice model; other models get a 501. If the model is not loaded, the pool loads it and the request waits. The
/// bytes of the sound are sent as the engine makes them.
///
/// Every key that may use the model may call this.
#[utoipa::path(
    post, path = "/v1/audio/speech", tag = "audio", operation_id = "create_speech",
    security(("user_key" = [])), params(WaitHeaders),
    request_body(content = SpeechRequest, example = json!({
        "model": "tiny-guide", "input": "The model is loaded.", "voice": "default"
    })),
    responses(
        (status = 200, description = "The sound, in the form that `response_format` names", content_type = "audio/*"),
        InferenceErrors,
    )
)]
pub(crate) async fn speech(State(app): State<App>, user: User, request: Request<Body>) -> Response {
    let context = RequestContext::new(&app, user, request.headers());
    let work = pin!(spoken(&app, &context, request));
    context.end(&app, work).await
}

async fn heard(
    app: &App,
    context: &RequestContext,
    request: Request<Body>,
    extra: Extra,
) -> Result<Response, Failed> {
    let (head, body) = request.into_parts();
    let body = read(app, body).await?;
    let kind = head.headers.get(header::CONTENT_TYPE);
    let (kind, share) = (kind.cloned(), record::share());
    let bytes = body.len();
    let runtime = tokio::runtime::Handle::current();
    // Nothing of it is waited for: the whole body is there.
    let form = move || runtime.block_on(Form::read(kind.as_ref(), body, extra));
    let form = app.reading.apart(bytes, form).await;
    let mut form = form.map_err(|failure| (None, failure))?;
    form.keeps(|file| share.of(file));
    let route = model(app, &context.user, &form.model).await?;
    let name = route.entry.name.clone();
    let fail = |failure: Failure| (Some(name.clone()), failure);
    check_has(&route, extra).map_err(fail)?;
    let served = seated(app, context, &route, 0).await.map_err(fail)?;
    let name = name_there(&served, &route, &form.model);
    let written = move || Ok(form.written(&name));
    let (kind, body) = app.reading.run(bytes, written).await.map_err(fail)?;
    let body = share.of(body);
    match ask(app, served, extra.path(), (&kind, body))
        .await
        .map_err(fail)?
    {
        Answer::Refused(response) => Ok(response),
        Answer::Complete(served, kind, bytes) => {
            let mut response = Response::new(Body::from(bytes));
            let kind = kind.unwrap_or(JSON);
            response.headers_mut().insert(header::CONTENT_TYPE, kind);
            served.answered(200);
            Ok(response)
        }
    }
}

async fn spoken(
    app: &App,
    context: &RequestContext,
    request: Request<Body>,
) -> Result<Response, Failed> {
    let body = read(app, request.into_body()).await?;
    let (scanned, route) = find(app, &context.user, body).await?;
    let name = route.entry.name.clone();
    let fail = |failure: Failure| (Some(name.clone()), failure);
    check_has(&route, Extra::Speech).map_err(fail)?;
    let (bytes, fields_in) = (scanned.body.len(), scanned.body.clone());
    let checked = app.reading.run(bytes, move || check_text(&fields_in));
    checked.await.map_err(fail)?;
    let served = seated(app, context, &route, bytes).await.map_err(fail)?;
    let there = name_there(&served, &route, &scanned.model);
    let body = named(app, scanned.body, there).await.map_err(fail)?;
    let path = Extra::Speech.path();
    let (served, answer) = reach(app, served, path, (&JSON, body))
        .await
        .map_err(fail)?;
    if !answer.status().is_success() {
        served.answered(answer.status().as_u16());
        return Ok(engine_error(answer, &served).await);
    }
    Ok(flowing(served, answer))
}

/// Only what OpenAI's request has: engines know fields beside that name files and addresses.
fn check_text(body: &Bytes) -> Result<(), Failure> {
    let mut fields_in = Taken::body(body)?;
    fields_in.need_text("model")?;
    if fields_in.need_text("input")?.is_empty() {
        return Err(fields_in.wrong("input", "a text that is not empty"));
    }
    for name in ["voice", "instructions", "response_format"] {
        fields_in.text(name)?;
    }
    fields_in.number("speed")?;
    let allowed = [serde_json::json!("audio")];
    fields_in.refuse(
        "stream_format",
        &allowed,
        "the sound itself is streamed, as `audio`",
    )?;
    fields_in.finish()
}

/// The engine's bytes as they come. One that breaks off breaks the connection off: half a sound must not look
/// like a whole one.
fn flowing(served: InFlightRequest, answer: hyper::Response<Incoming>) -> Response {
    let (pieces, received) = mpsc::channel::<Result<Bytes, std::io::Error>>(PIECES_MAX);
    let (head, mut upstream) = answer.into_parts();
    spawn(async move {
        let cut = served.lease.cut();
        let mut late = std::pin::pin!(admission::over(served.clock, served.deadline));
        loop {
            let frame = tokio::select! {
                biased;
                () = cut.cancelled() => None,
                () = served.ending.cancelled() => None,
                () = pieces.closed() => return,
                () = &mut late => {
                    served.answered(504);
                    let timeout_error = std::io::Error::other("the time of x-request-timeout is over");
                    let _ = pieces.try_send(Err(timeout_error));
                    return;
                }
                frame = upstream.frame() => Some(frame),
            };
            match frame {
                Some(Some(Ok(frame))) => {
                    let Ok(data) = frame.into_data() else {
                        continue;
                    };
                    // It speaks, though no tokens.
                    served.lease.token();
                    served.lease.hold();
                    let sent = tokio::select! {
                        biased;
                        sent = pieces.send(Ok(data)) => sent.is_ok(),
                        () = cut.cancelled() => true,
                        () = served.ending.cancelled() => true,
                        () = admission::over(served.clock, served.deadline) => true,
                    };
                    served.lease.resume();
                    if !sent {
                        return;
                    }
                }
                Some(None) => return served.answered(200),
                broken @ (Some(Some(Err(_))) | None) => {
                    if broken.is_some() {
                        served.lease.worked(false);
                    }
                    let why = why(&served).await;
                    served.answered(why.status.as_u16());
                    let timeout_error = std::io::Error::other(why.body.error.message.clone());
                    let _ = pieces.try_send(Err(timeout_error));
                    return;
                }
            }
        }
    });
    let mut response = Response::new(Body::from_stream(ReceiverStream::new(received)));
    let kind = head.headers.get(header::CONTENT_TYPE).cloned();
    let unknown = HeaderValue::from_static("application/octet-stream");
    let kind = kind.unwrap_or(unknown);
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_text_to_be_spoken_has_openais_fields_and_no_others() {
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
                json!({"model": "m", "input": "a", "ref_audio": "http://x"}),
                "ref_audio",
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
