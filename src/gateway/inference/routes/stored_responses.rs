//! Stored and background responses of OpenAI's Responses API: shown, listed item by item, cancelled and deleted. Each is visible to
//! its own key only.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use utoipa::IntoParams;

use crate::auth::User;
use crate::inference::background::accept::streamed;
use crate::inference::background::service::{self, Ended};
use crate::openapi::{ModelErrors, StoredErrors};
use crate::path_params::Path;
use crate::state::App;
use api_types::error::{ErrorKind, Failure};
use api_types::schemas::responses_events::ResponseEvent;
use api_types::schemas::responses_response::ResponseObject;
use api_types::schemas::responses_stored::{DeletedResponse, ResponseItemList};
use dialect::responses::{last_event, shown, shown_response};
use dialect::stored::unreadable;
use pool::Span;
use store::{StoredItem, StoredResponse};

const SEALED: &str = "reasoning.encrypted_content";
const LIMIT: usize = 20;
const LIMIT_MAX: usize = 100;

#[derive(Debug, Default, IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "describes the query for the document")]
pub(crate) struct ShowQuery {
    /// Additional output: `reasoning.encrypted_content`. Other values have no effect.
    #[param(example = "reasoning.encrypted_content")]
    include: Option<String>,
    /// `true`: the events of a background response created with `stream`, from the first or from `starting_after` on. After its end
    /// only the last event.
    stream: Option<bool>,
    /// With `stream=true`, only events after the event with this sequence number.
    #[param(minimum = 0)]
    starting_after: Option<u64>,
}

#[derive(Debug, Default, IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "describes the query for the document")]
pub(crate) struct ItemsQuery {
    /// The largest number of items on the page. The default is 20.
    #[param(minimum = 1, maximum = 100, example = 20)]
    limit: Option<u32>,
    /// `desc`, the default, begins with the last item; `asc` begins with the first.
    #[param(pattern = "^(asc|desc)$", example = "asc")]
    order: Option<String>,
    /// Only items after the item with this id.
    after: Option<String>,
    /// Additional output: `reasoning.encrypted_content`. Other values have no effect.
    #[param(example = "reasoning.encrypted_content")]
    include: Option<String>,
}

/// The query. Clients repeat lists as `include=…` or `include[]=…`.
pub(super) type QueryPairs = Query<Vec<(String, String)>>;

pub(super) fn includes_sealed(query: &QueryPairs) -> bool {
    let included = |(name, value): &(String, String)| {
        ["include", "include[]"].contains(&name.as_str()) && value == SEALED
    };
    query.0.iter().any(included)
}

pub(super) fn value<'a>(query: &'a QueryPairs, name: &str) -> Option<&'a str> {
    let found = query.0.iter().find(|(known, _)| known == name);
    found.map(|(_, value)| value.as_str())
}

/// Show a stored response (OpenAI's Responses)
///
/// A response is stored if its request says `"store": true`, and for a short time if the request does not say `store`. Only the key
/// that created it can see it. docs/guides/clients.md says how long it is kept. A background response is shown while it waits and
/// runs.
///
/// Every key may call this.
#[utoipa::path(get, path = "/v1/responses/{id}", tag = "chat", operation_id = "get_response",
    security(("user_key" = [])),
    params(("id" = String, Path, description = "The id of a response.", example = "resp_01"), ShowQuery),
    responses((status = 200, description = "The response, or with `stream=true` its events", content(
        (ResponseObject = "application/json", example = json!({
            "id": "resp_0198f6", "object": "response", "created_at": 1764000000, "status": "completed", "store": true,
            "model": "tiny-guide", "error": null, "incomplete_details": null, "previous_response_id": null,
            "output": [{"type": "message", "id": "msg_0198f6", "status": "completed", "role": "assistant",
                "content": [{"type": "output_text", "text": "A priority is a number.", "annotations": [], "logprobs": []}]}],
            "usage": {"input_tokens": 12, "output_tokens": 6, "total_tokens": 18}
        })),
        (ResponseEvent = "text/event-stream", example = json!("event: response.completed\ndata: {\"type\":\"response.completed\",\"sequence_number\":9}\n\n")),
    )), StoredErrors))]
pub async fn get(
    State(app): State<App>,
    user: User,
    Path(id): Path<String>,
    query: QueryPairs,
) -> Result<Response, Failure> {
    let is_stream = match value(&query, "stream") {
        None | Some("false") => false,
        Some("true") => true,
        Some(_) => return Err(invalid("stream", "`stream` must be true or false")),
    };
    let after = match value(&query, "starting_after") {
        None => None,
        Some(_) if !is_stream => {
            let message = "`starting_after` needs `stream=true`";
            return Err(invalid("starting_after", message));
        }
        Some(text) => Some(text.parse::<u64>().map_err(|_| {
            let message = "`starting_after` must be the sequence number of an event";
            invalid("starting_after", message)
        })?),
    };
    let holder = user.account.id();
    if is_stream {
        return events(&app, &user, &id, after).await;
    }
    if app.backgrounds.has(&holder, &id)
        && let Some(response) = service::find(&app, &holder, &id).await?
    {
        return Ok(Json(response).into_response());
    }
    let found = app.responses.find(&holder, &id).await;
    let Some(found) = found.map_err(unreadable)? else {
        // Another process has accepted it, or this one has not read it yet.
        let response = service::find(&app, &holder, &id).await?;
        let response = response.ok_or_else(|| not_found(&app, &id))?;
        return Ok(Json(response).into_response());
    };
    let (bytes, is_sealed_shown) = (found.bytes(), includes_sealed(&query));
    let show = move || Ok(Json(shown_response(&found, is_sealed_shown)).into_response());
    app.reading.run(bytes, show).await
}

fn invalid(field: &str, message: &str) -> Failure {
    Failure::invalid(field.to_owned(), message)
}

/// The events of a background response that are kept while it runs, or the last event after its end.
async fn events(app: &App, user: &User, id: &str, after: Option<u64>) -> Result<Response, Failure> {
    let holder = user.account.id();
    let not_kept = || {
        let message = "`stream`: the events of this response are not kept, because it was not created with `background` and `stream`; remove it to get the complete response";
        invalid("stream", message)
    };
    if let Some(kept) = app.backgrounds.events(&holder, id) {
        let kept = kept.ok_or_else(not_kept)?;
        let silence = app.config().server.keep_alive_comment.duration();
        return Ok(streamed(kept.body(after, silence, app.ending.clone())));
    }
    let found = app.responses.find(&holder, id).await.map_err(unreadable)?;
    let Some(found) = found else {
        // Another process has accepted it, or this one has not read it yet.
        let waits = service::find(app, &holder, id).await?;
        return Err(waits.map_or_else(|| not_found(app, id), |_| not_read()));
    };
    let bytes = found.bytes();
    let last = move || {
        let response = shown_response(&found, false);
        if response["background"] != json!(true) {
            return Err(not_kept());
        }
        let next = after.map_or(0, |after| after.saturating_add(1));
        let number = found.last_event.unwrap_or(next);
        // A client that has the last event gets an empty stream.
        let event = (number >= next).then(|| last_event(&response, number));
        Ok(streamed(Body::from(event.unwrap_or_default())))
    };
    app.reading.run(bytes, last).await
}

/// Cancel a background response (OpenAI's Responses)
///
/// The response ends with status `cancelled`. A second cancellation returns the same response. A response that has ended otherwise,
/// or that does not run in the background, is refused with a 400.
///
/// Every key may call this.
#[utoipa::path(post, path = "/v1/responses/{id}/cancel", tag = "chat", operation_id = "cancel_response",
    security(("user_key" = [])),
    params(("id" = String, Path, description = "The id of a response.", example = "resp_01")),
    responses((status = 200, description = "It is cancelled", body = ResponseObject, example = json!({
        "id": "resp_0198f6", "object": "response", "created_at": 1764000000, "status": "cancelled", "store": true,
        "model": "tiny-guide", "error": null, "incomplete_details": null, "background": true, "output": []
    })), StoredErrors))]
pub(crate) async fn cancel(
    State(app): State<App>,
    user: User,
    Path(id): Path<String>,
) -> Result<Json<Value>, Failure> {
    if let Ended::Now(response) = service::cancel(&app, &user.account.id(), &id).await? {
        return Ok(Json(response));
    }
    let found = find(&app, &user, &id).await?;
    let bytes = found.bytes();
    let ended = move || {
        let response = shown_response(&found, false);
        if response["background"] != json!(true) {
            let message = "only a response that was created with `background` can be cancelled; to end another one, close its connection";
            return Err(invalid("id", message));
        }
        match response["status"].as_str() {
            Some("cancelled") => Ok(Json(response)),
            status => Err(invalid(
                "id",
                &format!(
                    "the response cannot be cancelled: it is {}",
                    status.unwrap_or("completed")
                ),
            )),
        }
    };
    app.reading.run(bytes, ended).await
}

/// List the input items of a stored response (OpenAI's Responses)
///
/// The items of the request's `input`, each with an id, including items of earlier responses that it continues.
///
/// Every key may call this.
#[utoipa::path(get, path = "/v1/responses/{id}/input_items", tag = "chat", operation_id = "list_response_items",
    security(("user_key" = [])),
    params(("id" = String, Path, description = "The id of a response.", example = "resp_01"), ItemsQuery),
    responses((status = 200, description = "A page", body = ResponseItemList, example = json!({
        "object": "list", "first_id": "msg_0198f6", "last_id": "msg_0198f6", "has_more": false,
        "data": [{"type": "message", "id": "msg_0198f6", "status": "completed", "role": "user",
            "content": [{"type": "input_text", "text": "What is a priority?"}]}]
    })), StoredErrors))]
pub(crate) async fn items(
    State(app): State<App>,
    user: User,
    Path(id): Path<String>,
    query: QueryPairs,
) -> Result<Json<Value>, Failure> {
    let (limit, is_rising) = (limit(&query)?, order(&query)?);
    if app.backgrounds.has(&user.account.id(), &id) {
        let message = "the response has not ended; its items can be listed afterwards";
        return Err(invalid("id", message));
    }
    let found = find(&app, &user, &id).await?;
    let (after, is_sealed_shown) = (value(&query, "after"), includes_sealed(&query));
    let page = Page {
        is_rising,
        after: after.map(str::to_owned),
        limit,
        is_sealed_shown,
    };
    let bytes = found.bytes();
    app.reading.run(bytes, move || page.select(&found)).await
}

/// The largest number of items on the page.
pub(super) fn limit(query: &QueryPairs) -> Result<usize, Failure> {
    let Some(text) = value(query, "limit") else {
        return Ok(LIMIT);
    };
    let limit = text.parse().ok();
    let limit = limit.filter(|limit| (1..=LIMIT_MAX).contains(limit));
    let allowed = format!("`limit` must be a whole number from 1 to {LIMIT_MAX}");
    limit.ok_or_else(|| Failure::invalid("limit".to_owned(), allowed))
}

/// Returns true if the page begins with the first item.
pub(super) fn order(query: &QueryPairs) -> Result<bool, Failure> {
    match value(query, "order") {
        None | Some("desc") => Ok(false),
        Some("asc") => Ok(true),
        Some(_) => {
            let message = "`order` must be asc or desc";
            Err(Failure::invalid("order".to_owned(), message))
        }
    }
}

/// The requested page of a response's items.
struct Page {
    is_rising: bool,
    after: Option<String>,
    limit: usize,
    is_sealed_shown: bool,
}

impl Page {
    fn select(&self, response: &StoredResponse) -> Result<Json<Value>, Failure> {
        let mut items: Vec<&StoredItem> = response.input.iter().collect();
        if !self.is_rising {
            items.reverse();
        }
        if let Some(after) = &self.after {
            let place = items.iter().position(|item| item.id == *after);
            let place = place.ok_or_else(|| {
                let message = "`after` must be the id of an item of this response";
                Failure::invalid("after".to_owned(), message)
            })?;
            items.drain(..=place);
        }
        let has_more = items.len() > self.limit;
        items.truncate(self.limit);
        let data = items.iter().map(|item| shown(item, self.is_sealed_shown));
        let data: Vec<Value> = data.collect();
        let id = |item: Option<&&StoredItem>| item.map(|item| item.id.clone());
        Ok(Json(json!({
            "object": "list", "data": data, "first_id": id(items.first()), "last_id": id(items.last()),
            "has_more": has_more,
        })))
    }
}

/// Delete a stored response (OpenAI's Responses)
///
/// Conversations that continue this response then end. Only the key that created it can delete it.
///
/// Every key may call this.
#[utoipa::path(delete, path = "/v1/responses/{id}", tag = "chat", operation_id = "delete_response",
    security(("user_key" = [])),
    params(("id" = String, Path, description = "The id of a response.", example = "resp_01")),
    responses((status = 200, description = "It is deleted", body = DeletedResponse,
        example = json!({"id": "resp_01", "object": "response", "deleted": true})), ModelErrors))]
pub async fn delete(
    State(app): State<App>,
    user: User,
    Path(id): Path<String>,
) -> Result<Json<Value>, Failure> {
    let holder = user.account.id();
    let was_waiting = service::delete(&app, &holder, &id).await?;
    let deleted = app.responses.delete(&holder, &id).await;
    if deleted.map_err(unwritable)? || was_waiting {
        Ok(Json(
            json!({"id": id, "object": "response", "deleted": true}),
        ))
    } else {
        Err(not_found(&app, &id))
    }
}

async fn find(app: &App, user: &User, id: &str) -> Result<Arc<StoredResponse>, Failure> {
    let found = app.responses.find(&user.account.id(), id).await;
    found.map_err(unreadable)?.ok_or_else(|| not_found(app, id))
}

fn not_found(app: &App, id: &str) -> Failure {
    let id: String = id.chars().take(80).collect();
    Failure::not_found(if app.responses.is_on() {
        format!(
            "no response {id} is stored for this key: it was deleted, is too old, was not stored (\"store\": true), or belongs to another key"
        )
    } else {
        format!(
            "no response {id}: this server does not store responses (state.responses.store); each response is only returned by its own request"
        )
    })
}

fn not_read() -> Failure {
    let message = "the events of this response have not been read yet, because the server has just started; try again";
    Failure::new(ErrorKind::Unavailable, "not_read", message).again_in(Span::from_secs(1))
}

fn unwritable(fault: store::StoreError) -> Failure {
    tracing::error!(%fault, "a stored response cannot be deleted");
    Failure::internal("the response cannot be deleted now; see the server log")
}
