//! Background responses for the routes: found, cancelled and deleted, in this process or on disk.

use serde_json::{Value, json};

use crate::open_background::{BACKGROUND_MAX, Entry};
use crate::state::App;
use api_types::error::Failure;
use dialect::responses::{ended, input_items, last_event};
use dialect::stored::unreadable;
use pool::Time;
use store::{
    BackgroundBounds, BackgroundResponse, ResponseBounds, StoreError, StoredItem, StoredResponse,
};

/// The outcome of a cancellation or deletion.
#[derive(Debug)]
pub(crate) enum Ended {
    Now(Value),
    /// It ended before, or does not exist.
    Before,
}

/// The limits of a holder's responses.
pub(super) fn bounds(app: &App) -> BackgroundBounds {
    let config = app.config();
    let responses = &config.state.responses;
    BackgroundBounds {
        number_per_holder: u64::from(responses.background_per_key),
        bytes_per_holder: responses.per_key_size.0,
        number: BACKGROUND_MAX,
        bytes: responses.size.0,
    }
}

/// The object of a background response of this holder that has not ended.
///
/// # Errors
/// The store cannot be read.
pub(crate) async fn find(app: &App, holder: &str, id: &str) -> Result<Option<Value>, Failure> {
    let found = app.handle.store().background(holder, id).await;
    let found = found.map_err(unreadable)?;
    Ok(found.map(|found| {
        let entry = app.backgrounds.entry(holder, id);
        let mut response = object(&found);
        if entry.is_some_and(|entry| entry.has_seat()) {
            response["status"] = json!("in_progress");
        }
        response
    }))
}

/// Cancels a response of this holder. Waits for a response that is ending.
///
/// # Errors
/// The store cannot be read or written.
pub(crate) async fn cancel(app: &App, holder: &str, id: &str) -> Result<Ended, Failure> {
    let entry = app.backgrounds.entry(holder, id);
    let store = app.handle.store();
    let Some(found) = store.background(holder, id).await.map_err(unreadable)? else {
        return Ok(Ended::Before);
    };
    let response = ended(object(&found), "cancelled", None);
    match end(app, entry.as_ref(), &found, response).await {
        Ok(Some(response)) => Ok(Ended::Now(response)),
        Ok(None) => {
            if let Some(entry) = entry {
                tokio::select! {
                    () = entry.ended.cancelled() => {}
                    () = app.ending.cancelled() => {}
                }
            }
            Ok(Ended::Before)
        }
        Err(fault) => {
            tracing::error!(%fault, "a background response cannot be cancelled");
            Err(Failure::internal(
                "the response cannot be cancelled now; see the server log",
            ))
        }
    }
}

/// Deletes a response of this holder that has not ended. Returns false if it has.
///
/// # Errors
/// The store cannot be written.
pub(crate) async fn delete(app: &App, holder: &str, id: &str) -> Result<bool, Failure> {
    let entry = app.backgrounds.entry(holder, id);
    if entry
        .as_ref()
        .is_some_and(|entry| !entry.settlement.claim())
    {
        return Ok(false);
    }
    match app.handle.store().delete_background(holder, id).await {
        Ok(deleted) => {
            app.backgrounds.with(|entries| entries.remove(id));
            Ok(deleted)
        }
        Err(fault) => {
            if let Some(entry) = entry {
                entry.settlement.withdraw();
            }
            tracing::error!(%fault, "a background response cannot be deleted");
            Err(Failure::internal(
                "the response cannot be deleted now; see the server log",
            ))
        }
    }
}

/// The queued object.
fn object(found: &BackgroundResponse) -> Value {
    serde_json::from_str(&found.response).unwrap_or_default()
}

/// Ends a response with this object instead of a result, unless it ends otherwise. Returns the object as stored.
pub(super) async fn end(
    app: &App,
    entry: Option<&Entry>,
    found: &BackgroundResponse,
    mut response: Value,
) -> Result<Option<Value>, StoreError> {
    if entry.is_some_and(|entry| !entry.settlement.claim()) {
        return Ok(None);
    }
    let shown = response.clone();
    let output = response["output"].take();
    response["output"] = json!([]);
    let result = StoredResponse {
        id: found.id.clone(),
        holder: found.holder.clone(),
        previous: response["previous_response_id"].as_str().map(str::to_owned),
        conversation: None,
        response: response.to_string(),
        input: input_items(found.request.as_bytes()),
        output: items(output),
    };
    let config = app.config();
    let bounds = ResponseBounds::from_config(&config.state.responses);
    let now: Time = app.handle.clock().now();
    match app
        .handle
        .store()
        .end_background(&result, now, bounds)
        .await
    {
        Ok(is_ended) => {
            if let Some(events) = entry.and_then(|entry| entry.events.as_ref()) {
                let number = events.next_number();
                events.push(number, last_event(&shown, number).into());
            }
            app.backgrounds.with(|entries| entries.remove(&found.id));
            Ok(is_ended.then_some(shown))
        }
        Err(fault) => {
            if let Some(entry) = entry {
                entry.settlement.withdraw();
            }
            Err(fault)
        }
    }
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
