//! Background responses for the routes: found, cancelled and deleted, in this process or on disk. The transaction that
//! deletes the row in the store ends the response. Cancellations and deletions are completed even if the client disconnects, which
//! keeps memory and store consistent.

use std::sync::Arc;

use axum::body::Bytes;
use serde_json::{Value, json};

use crate::open_background::{BACKGROUND_MAX, Entry};
use crate::state::App;
use crate::to_its_end::to_its_end;
use api_types::error::{ErrorKind, Failure};
use dialect::responses::{BackgroundRun, ended, input_items, last_event};
use dialect::stored::unreadable;
use edge::record;
use pool::Span;
use store::{BackgroundBounds, BackgroundResponse, ResponseBounds, StoredItem, StoredResponse};

/// `Retry-After` while the end of a response cannot be stored.
const RETRY: Span = Span::from_secs(10);

/// The outcome of a cancellation.
#[derive(Debug)]
pub(crate) enum Ended {
    Now(Value),
    /// It ended before, or does not exist.
    Before,
}

/// The limits of a holder's responses.
pub(super) fn bounds(app: &App) -> (BackgroundBounds, ResponseBounds) {
    let config = app.config();
    let responses = &config.state.responses;
    let bounds = BackgroundBounds {
        number_per_holder: u64::from(responses.background_per_key),
        number: BACKGROUND_MAX,
    };
    (bounds, ResponseBounds::from_config(responses))
}

/// The object of a background response of this holder that has not ended.
///
/// # Errors
/// The store cannot be read.
pub(crate) async fn find(app: &App, holder: &str, id: &str) -> Result<Option<Value>, Failure> {
    let found = app.handle.store().background(holder, id).await;
    let Some(found) = found.map_err(unreadable)? else {
        return Ok(None);
    };
    // A run keeps its record until its result is on disk.
    let entry = app.backgrounds.entry(holder, id);
    let runs = entry.is_some_and(|entry| entry.has_seat());
    let bytes = found_bytes(&found);
    let object = move || {
        let mut response = object(&found);
        if runs {
            response["status"] = json!("in_progress");
        }
        Ok(response)
    };
    app.reading.run(bytes, object).await.map(Some)
}

/// Cancels a response of this holder.
///
/// # Errors
/// The store cannot be read or written.
pub(crate) async fn cancel(app: &App, holder: &str, id: &str) -> Result<Ended, Failure> {
    let found = app.handle.store().background(holder, id).await;
    let Some(found) = found.map_err(unreadable)? else {
        return Ok(Ended::Before);
    };
    let (app, record) = (app.clone(), record::current());
    let work = async move {
        let entry = app.backgrounds.entry(&found.holder, &found.id);
        let cancelled = |response| ended(response, "cancelled", None);
        let response = end(&app, entry.as_ref(), Arc::new(found), cancelled).await?;
        Ok(response.map_or(Ended::Before, Ended::Now))
    };
    to_its_end("the cancellation", async move {
        match record {
            Some(record) => record::within(record, work).await,
            None => work.await,
        }
    })
    .await
}

/// Deletes a response of this holder that has not ended. Returns false if it has.
///
/// # Errors
/// The store cannot be written.
pub(crate) async fn delete(app: &App, holder: &str, id: &str) -> Result<bool, Failure> {
    let (app, holder, id) = (app.clone(), holder.to_owned(), id.to_owned());
    to_its_end("the deletion", async move {
        match app.handle.store().delete_background(&holder, &id).await {
            Ok(false) => Ok(false),
            Ok(true) => {
                app.backgrounds.with(|entries| entries.remove(&id));
                Ok(true)
            }
            Err(fault) => {
                tracing::error!(%fault, "a background response cannot be deleted");
                Err(not_saved("the response cannot be deleted now"))
            }
        }
    })
    .await
}

/// The error for a change that cannot be stored.
fn not_saved(what: &str) -> Failure {
    let message = format!("{what}; see the server log");
    Failure::new(ErrorKind::Unavailable, "not_saved", message).again_in(RETRY)
}

/// The queued object.
pub(super) fn object(found: &BackgroundResponse) -> Value {
    serde_json::from_str(&found.response).unwrap_or_default()
}

/// The size of the texts of a response.
pub(super) fn found_bytes(found: &BackgroundResponse) -> usize {
    found.request.len() + found.response.len()
}

/// Ends a response with an object that `change` makes of the queued one. Returns the object, or `None` if the response has ended
/// otherwise.
///
/// # Errors
/// The end cannot be stored.
pub(super) async fn end(
    app: &App,
    entry: Option<&Entry>,
    found: Arc<BackgroundResponse>,
    change: impl FnOnce(Value) -> Value + Send + 'static,
) -> Result<Option<Value>, Failure> {
    let id = found.id.clone();
    let log = entry.and_then(|entry| entry.events.as_ref());
    let number = log.map(|log| log.hold(BackgroundRun::first_event_after(found.runs)));
    let release = || {
        if let Some(log) = log {
            log.release();
        }
    };
    let bytes = found_bytes(&found);
    let make = move || Ok(result(&found, change(object(&found)), number));
    let ended = match app.reading.run(bytes, make).await {
        Ok((result, shown, event)) => {
            let is_ended = app.responses.end_background(&result).await;
            is_ended.map(|is_ended| is_ended.then_some((shown, event)))
        }
        Err(failure) => {
            release();
            return Err(failure);
        }
    };
    match ended {
        Ok(Some((shown, event))) => {
            if let (Some(log), Some(number)) = (log, number) {
                log.finish(number, event);
            }
            app.backgrounds.with(|entries| entries.remove(&id));
            Ok(Some(shown))
        }
        Ok(None) => {
            release();
            // A run that has stored its result removes the entry itself, after its last event.
            app.backgrounds.with(|entries| entries.remove_waiting(&id));
            Ok(None)
        }
        Err(fault) => {
            release();
            tracing::error!(%fault, "the end of a background response cannot be stored");
            Err(not_saved("the end of the response cannot be stored now"))
        }
    }
}

/// The stored response, its object, and its last event with this number.
fn result(
    found: &BackgroundResponse,
    shown: Value,
    number: Option<u64>,
) -> (StoredResponse, Value, Bytes) {
    let event = number.map(|number| last_event(&shown, number));
    let mut response = shown.clone();
    let output = response["output"].take();
    response["output"] = json!([]);
    let result = StoredResponse {
        id: found.id.clone(),
        holder: found.holder.clone(),
        previous: response["previous_response_id"].as_str().map(str::to_owned),
        conversation: None,
        last_event: number,
        response: response.to_string(),
        input: input_items(found.request.as_bytes()),
        output: items(output),
    };
    (result, shown, event.unwrap_or_default().into())
}

fn items(output: Value) -> Vec<StoredItem> {
    let Value::Array(output) = output else {
        return Vec::new();
    };
    let item = |item: Value| {
        let id = item.get("id")?.as_str()?.to_owned();
        Some(StoredItem {
            id,
            item: item.to_string(),
        })
    };
    output.into_iter().filter_map(item).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use pool::Time;

    #[test]
    fn an_end_is_stored_and_shown_with_the_same_number_and_output() {
        let found = BackgroundResponse {
            id: "resp_1".to_owned(),
            holder: "key:1".to_owned(),
            person: None,
            created: Time(1),
            runs: 0,
            cuts: 0,
            is_streamed: true,
            request: json!({"input": "One"}).to_string(),
            response: json!({"id": "resp_1", "status": "queued", "previous_response_id": "resp_0", "output": []})
                .to_string(),
        };
        let mut failed = ended(object(&found), "failed", Some(("server_error", "no")));
        failed["output"] = json!([{"id": "msg_1", "type": "message"}]);
        let (stored, shown, event) = result(&found, failed.clone(), Some(7));
        assert_eq!(shown, failed);
        assert_eq!(stored.last_event, Some(7));
        assert_eq!(stored.previous.as_deref(), Some("resp_0"));
        assert_eq!((stored.input.len(), stored.output.len()), (1, 1));
        let event = String::from_utf8(event.to_vec()).expect("a text");
        assert!(event.starts_with("event: response.failed\n"), "{event}");
        assert!(event.contains("\"sequence_number\":7"), "{event}");
    }
}
