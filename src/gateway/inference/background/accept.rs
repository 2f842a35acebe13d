//! Accepts a request with `background: true`: the request is checked as usual, and is on disk before its response is sent.

use std::sync::Arc;

use axum::body::Bytes;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use memchr::memmem;
use serde::Deserialize;
use serde_json::Value;

use super::service::bounds;
use crate::inference::admission::RequestContext;
use crate::inference::received::reading;
use crate::inference::request::failed::Failed;
use crate::inference::request::ignored::note;
use crate::inference::understood::understand;
use crate::open_background::{BACKGROUND_MAX, EventLog, KeptEvents};
use crate::open_batches::BatchPerson;
use crate::state::App;
use crate::to_its_end::to_its_end;
use api_types::error::{ErrorKind, Failure};
use dialect::responses::{BackgroundRun, announcement};
use dialect::{CHAT, Dialect, Teller};
use edge::record;
use pool::Span;
use store::{
    BackgroundBounds, BackgroundHead, BackgroundLimit, BackgroundResponse, ResponseBounds,
};

/// `Retry-After` at a limit.
const RETRY: Span = Span::from_secs(10);

/// A request with `background: true`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BackgroundRequest {
    is_streamed: bool,
}

#[derive(Deserialize)]
struct Head {
    background: Option<bool>,
}

#[derive(Deserialize)]
struct StreamHead {
    stream: Option<bool>,
}

impl BackgroundRequest {
    /// Reads the fields that decide how a request runs, or returns `None` if it does not run in the background. Malformed fields are
    /// left to the code that reads the complete request.
    pub(crate) async fn read(
        app: &App,
        body: &Bytes,
    ) -> Result<Option<BackgroundRequest>, Failure> {
        if memmem::find(body, b"\"background\"").is_none() {
            return Ok(None);
        }
        let copy = body.clone();
        let parse = move || Ok(BackgroundRequest::parse(&copy));
        app.reading.run(body.len(), parse).await
    }

    fn parse(body: &[u8]) -> Option<BackgroundRequest> {
        let head = serde_json::from_slice::<Head>(body).ok()?;
        head.background.filter(|background| *background)?;
        let stream = serde_json::from_slice::<StreamHead>(body).ok();
        let is_streamed = stream.and_then(|head| head.stream) == Some(true);
        Some(BackgroundRequest { is_streamed })
    }
}

/// Accepts the request, and returns the queued response or its events.
pub(crate) async fn accept(
    app: &App,
    context: &RequestContext,
    body: Bytes,
    BackgroundRequest { is_streamed }: BackgroundRequest,
) -> Result<Response, Failed> {
    let early = |failure: Failure| (None, failure);
    let holder = context.user.account.id();
    let person = context.user.sight.person().map(BatchPerson::from);
    let mut reading = reading(app, context, &body, Dialect::Responses).await?;
    let run = Arc::new(BackgroundRun::new(reading.now_seconds));
    reading.background = Some(Arc::clone(&run));
    let earlier = reading.desk.as_ref().map_or(0, |desk| desk.earlier().bytes);
    let (bytes, share) = (body.len() + earlier, record::share());
    let copy = body.clone();
    let translate = move || {
        let request = String::from_utf8(copy.to_vec());
        let request = request.map_err(|_| Failure::invalid(None, "the body is not UTF-8"))?;
        let translated = Dialect::Responses.read(copy, &reading)?;
        let queued = match &translated.teller {
            Teller::Responses(response) => response.queued(),
            _ => Value::Null,
        };
        let announcement = is_streamed.then(|| announcement(&queued));
        Ok((translated, request, queued.to_string(), announcement))
    };
    let translated = app.reading.run(bytes, translate).await.map_err(early)?;
    let (mut translated, request, queued, announcement) = translated;
    translated.body = share.charge(translated.body);
    let ignored = translated.ignored.clone();
    // Refuses what the model cannot serve. The run checks it again with the rights of its time.
    drop(understand(app, context, CHAT, &mut translated).await?);
    let new = BackgroundResponse {
        id: run.id.clone(),
        holder,
        // Plain data with text keys is always valid JSON.
        person: person.and_then(|person| serde_json::to_string(&person).ok()),
        created: context.arrived_at,
        runs: 0,
        cuts: 0,
        is_streamed,
        request,
        response: queued.clone(),
    };
    let own = app.clone();
    // The body keeps its share of the memory until its copy is on disk.
    let work = async move {
        let added = add(&own, new, announcement).await;
        drop(body);
        added
    };
    let events = to_its_end("the background response", work).await;
    let response = match events.map_err(early)? {
        Some(events) => {
            let silence = app.config().server.keep_alive_comment.duration();
            streamed(events.body(None, silence, app.ending.clone()))
        }
        None => ([(header::CONTENT_TYPE, "application/json")], queued).into_response(),
    };
    Ok(note(response, &ignored))
}

/// Stores the response, and lets it run. Returns its events, if they are kept.
async fn add(
    app: &App,
    new: BackgroundResponse,
    announcement: Option<[String; 2]>,
) -> Result<Option<Arc<EventLog>>, Failure> {
    let (bounds, sizes) = bounds(app);
    let added = app.handle.store().add_background(&new, bounds, sizes).await;
    let refused = added.map_err(|fault| {
        tracing::error!(%fault, "a background response cannot be stored");
        let message = "background responses cannot be stored now; see the server log";
        Failure::new(ErrorKind::Unavailable, "not_saved", message).again_in(RETRY)
    })?;
    if let Some(limit) = refused {
        return Err(over(limit, bounds, sizes));
    }
    let head = BackgroundHead {
        id: new.id,
        holder: new.holder,
        person: new.person,
        created: new.created,
        runs: new.runs,
        cuts: new.cuts,
        is_streamed: new.is_streamed,
    };
    let events = app.backgrounds.add(head, KeptEvents::default());
    if let (Some(events), Some(announcement)) = (&events, announcement) {
        events.announce(announcement);
    }
    Ok(events)
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

fn over(limit: BackgroundLimit, bounds: BackgroundBounds, sizes: ResponseBounds) -> Failure {
    let message = match limit {
        BackgroundLimit::NumberOfHolder => format!(
            "this key has {} background responses that have not ended, the limit (state.responses.background_per_key); wait for some, or cancel them",
            bounds.number_per_holder
        ),
        BackgroundLimit::BytesOfHolder => format!(
            "the background responses of this key that have not ended, with its last conversation, would have more than {} (state.responses.per_key_size); wait for some, or cancel them",
            sizes.bytes_per_holder
        ),
        BackgroundLimit::Number => format!(
            "the server has {BACKGROUND_MAX} background responses that have not ended, the limit; try again later"
        ),
        BackgroundLimit::Bytes => format!(
            "the background responses that have not ended would have more than {} (state.responses.size); try again later",
            sizes.bytes
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
            let found = BackgroundRequest::parse(body.as_bytes());
            assert_eq!(found.is_some(), expected, "{body}");
        }
        for (stream, is_streamed) in [("true", true), ("false", false), ("1", false)] {
            let body = format!("{{\"background\":true,\"stream\":{stream}}}");
            let found = BackgroundRequest::parse(body.as_bytes());
            assert_eq!(found, Some(BackgroundRequest { is_streamed }), "{body}");
        }
    }

    #[test]
    fn a_refusal_names_the_limit_and_the_time_to_try_again() {
        let bounds = BackgroundBounds {
            number_per_holder: 500,
            number: BACKGROUND_MAX,
        };
        let sizes = ResponseBounds::from_config(&config::ResponsesSection::default());
        for (limit, expected) in [
            (BackgroundLimit::NumberOfHolder, "500"),
            (BackgroundLimit::BytesOfHolder, "per_key_size"),
            (BackgroundLimit::Number, "20000"),
            (BackgroundLimit::Bytes, "responses.size"),
        ] {
            let failure = over(limit, bounds, sizes);
            assert_eq!(failure.kind, ErrorKind::TooMany);
            let message = failure.body.error.message.replace(',', "");
            assert!(message.contains(expected), "{message}");
            assert!(failure.retry().is_some());
        }
    }
}
