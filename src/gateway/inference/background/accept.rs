//! Accepts a request with `background: true`: the request is checked as usual, and is on disk before its response is sent.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use memchr::memmem;
use serde::Deserialize;
use serde_json::Value;

use super::holder;
use super::service::bounds;
use crate::inference::admission::RequestContext;
use crate::inference::received::reading;
use crate::inference::request::failed::Failed;
use crate::inference::request::ignored::note;
use crate::inference::understood::understand;
use crate::open_background::BACKGROUND_MAX;
use crate::state::App;
use api_types::error::{ErrorKind, Failure};
use dialect::responses::BackgroundRun;
use dialect::{CHAT, Dialect, Teller};
use edge::record;
use pool::Span;
use store::{BackgroundBounds, BackgroundHead, BackgroundLimit, BackgroundResponse};

/// `Retry-After` at a limit.
const RETRY: Span = Span::from_secs(10);

#[derive(Deserialize)]
struct Head {
    background: Option<bool>,
}

#[derive(Deserialize)]
struct StreamHead {
    stream: Option<bool>,
}

/// Returns true if the request is to run in the background. Malformed fields are left to the code that reads the complete request.
pub(crate) fn is_requested(body: &[u8]) -> bool {
    memmem::find(body, b"\"background\"").is_some()
        && serde_json::from_slice::<Head>(body).is_ok_and(|head| head.background == Some(true))
}

/// Accepts the request, and returns the queued response or its events.
pub(crate) async fn accept(
    app: &App,
    context: &RequestContext,
    body: Bytes,
) -> Result<Response, Failed> {
    let early = |failure: Failure| (None, failure);
    let holder = holder::id_of(&context.user).map_err(early)?;
    let mut reading = reading(app, context, &body, Dialect::Responses).await?;
    let run = Arc::new(BackgroundRun::new(reading.now_seconds));
    reading.background = Some(Arc::clone(&run));
    let earlier = reading.desk.as_ref().map_or(0, |desk| desk.earlier().bytes);
    let (bytes, share) = (body.len() + earlier, record::share());
    let copy = body.clone();
    let translate = move || Dialect::Responses.read(copy, &reading);
    let mut translated = app.reading.run(bytes, translate).await.map_err(early)?;
    translated.body = share.charge(translated.body);
    let queued = match &translated.teller {
        Teller::Responses(response) => response.queued(),
        _ => Value::Null,
    };
    let ignored = translated.ignored.clone();
    // Refuses what the model cannot serve. The run checks it again with the rights of its time.
    drop(understand(app, context, CHAT, &mut translated).await?);
    let stream = serde_json::from_slice::<StreamHead>(&body).ok();
    let is_streamed = stream.and_then(|head| head.stream) == Some(true);
    let request = String::from_utf8(body.to_vec())
        .map_err(|_| early(Failure::invalid(None, "the body is not UTF-8")))?;
    let new = BackgroundResponse {
        id: run.id.clone(),
        holder: holder.clone(),
        created: context.arrived_at,
        runs: 0,
        is_streamed,
        request,
        response: queued.to_string(),
    };
    let bounds = bounds(app);
    let added = app.handle.store().add_background(&new, bounds).await;
    let refused = added.map_err(|fault| {
        tracing::error!(%fault, "a background response cannot be stored");
        let message = "background responses cannot be stored now; see the server log";
        early(Failure::new(ErrorKind::Unavailable, "not_saved", message).again_in(RETRY))
    })?;
    if let Some(limit) = refused {
        return Err(early(over(limit, bounds)));
    }
    let events = app.backgrounds.add(BackgroundHead {
        id: new.id,
        holder,
        created: new.created,
        runs: 0,
        is_streamed,
    });
    let response = match events {
        Some(events) => {
            events.announce(&queued);
            let silence = app.config().server.keep_alive_comment.duration();
            streamed(events.body(None, silence, app.ending.clone()))
        }
        None => Json(queued).into_response(),
    };
    Ok(note(response, &ignored))
}

/// A response whose body has events.
pub(crate) fn streamed(body: axum::body::Body) -> Response {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    let kind = HeaderValue::from_static("text/event-stream");
    headers.insert(header::CONTENT_TYPE, kind);
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // Keeps proxies from buffering the comments.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

fn over(limit: BackgroundLimit, bounds: BackgroundBounds) -> Failure {
    let message = match limit {
        BackgroundLimit::NumberOfHolder => format!(
            "this key has {} background responses that have not ended, the limit (state.responses.background_per_key); wait for some, or cancel them",
            bounds.number_per_holder
        ),
        BackgroundLimit::BytesOfHolder => format!(
            "the background responses of this key that have not ended would have more than {} (state.responses.per_key_size); wait for some, or cancel them",
            bounds.bytes_per_holder
        ),
        BackgroundLimit::Number => format!(
            "the server has {BACKGROUND_MAX} background responses that have not ended, the limit; try again later"
        ),
        BackgroundLimit::Bytes => format!(
            "the background responses that have not ended would have more than {} (state.responses.size); try again later",
            bounds.bytes
        ),
    };
    Failure::new(ErrorKind::TooMany, "too_many_background_responses", message).again_in(RETRY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_true_field_at_the_top_requests_the_background() {
        for (body, expected) in [
            (r#"{"model":"m","background":true}"#, true),
            (r#"{"model":"m","background":false}"#, false),
            (r#"{"model":"m","background":null}"#, false),
            (r#"{"model":"m","background":"true"}"#, false),
            (r#"{"input":"\"background\": true"}"#, false),
            (r#"{"metadata":{"background":true}}"#, false),
            (r#"{"background":true"#, false),
        ] {
            assert_eq!(is_requested(body.as_bytes()), expected, "{body}");
        }
    }

    #[test]
    fn a_refusal_names_the_limit_and_the_time_to_try_again() {
        let bounds = BackgroundBounds {
            number_per_holder: 500,
            bytes_per_holder: pool::Bytes(64 << 20),
            number: BACKGROUND_MAX,
            bytes: pool::Bytes(4 << 30),
        };
        for (limit, expected) in [
            (BackgroundLimit::NumberOfHolder, "500"),
            (BackgroundLimit::BytesOfHolder, "per_key_size"),
            (BackgroundLimit::Number, "20000"),
            (BackgroundLimit::Bytes, "responses.size"),
        ] {
            let failure = over(limit, bounds);
            assert_eq!(failure.kind, ErrorKind::TooMany);
            let message = failure.body.error.message.replace(',', "");
            assert!(message.contains(expected), "{message}");
            assert!(failure.retry().is_some());
        }
    }
}
