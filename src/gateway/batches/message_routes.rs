//! Anthropic's routes for batches of messages: created from a body with all requests, shown, listed, cancelled and deleted.

use std::sync::Arc;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::Request;
use http_body_util::BodyExt;
use tokio::sync::mpsc;
use utoipa::IntoParams;

use super::message_upload::{self, BodyRefusal};
use super::owner::{holder, person, user_of};
use super::upload::{self, Begun, SILENT_MAX};
use super::upload_refusal;
use crate::auth::User;
use crate::fields::{Fields, Params, Strict};
use crate::open_batches::{
    ApiForm, BatchPerson, BatchRecord, BatchState, FILES_OF_BATCH, HolderTotals, MESSAGES,
    PlacedObject, Reservation, Running, SpaceError, read, store_failed,
};
use crate::openapi::MessageBatchErrors;
use crate::path_params::Path;
use crate::state::App;
use crate::to_its_end::to_its_end;
use api_types::dto::{DeletedMessageBatch, MessageBatch, MessageBatchList, MessageBatchRequest};
use api_types::error::Failure;
use batch::{Endpoint, RequestFileSummary, Upload, UploadError};
use pool::{Bytes as ByteCount, Span};
use store::{BatchPage, StoredFile};

const LIMIT: u32 = 20;
const LIMIT_MAX: u32 = 1_000;
/// Pieces between the network and the disk.
const PIECES_MAX: usize = 8;
/// The completion window of Anthropic's batches.
const WINDOW: Span = Span::from_secs(24 * 3_600);

#[derive(Debug, Default, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct MessageBatchQuery {
    /// The largest number of batches on the page. The default is 20.
    #[param(minimum = 1, maximum = 1_000, example = 20)]
    limit: Option<u32>,
    /// Only batches after the batch with this id, which are older.
    #[param(min_length = 1)]
    after_id: Option<String>,
}

impl Strict for MessageBatchQuery {
    fn read(fields: &mut Fields) -> Result<MessageBatchQuery, Failure> {
        Ok(MessageBatchQuery {
            limit: fields.integer("limit", 1..=LIMIT_MAX)?,
            after_id: fields.text("after_id")?,
        })
    }
}

/// Create a batch of messages (Anthropic's Message Batches)
///
/// Runs the requests in free seats and memory, below priority 0, within 24 hours. Each gets exactly one result.
///
/// Every key may call this.
#[utoipa::path(post, path = "/v1/messages/batches", tag = "batches", operation_id = "create_message_batch",
    security(("user_key" = [])),
    request_body(content = MessageBatchRequest, example = json!({"requests": [{"custom_id": "1", "params": {
        "model": "tiny-guide", "max_tokens": 16, "messages": [{"role": "user", "content": "What is a priority?"}]
    }}]})),
    responses((status = 200, description = "The batch", body = MessageBatch, example = json!({
        "id": "msgbatch_5c1f8e", "type": "message_batch", "processing_status": "in_progress",
        "request_counts": {"processing": 1, "succeeded": 0, "errored": 0, "canceled": 0, "expired": 0},
        "created_at": "2026-01-31T20:15:00Z", "expires_at": "2026-02-01T20:15:00Z"
    })), MessageBatchErrors))]
pub(crate) async fn create(
    State(app): State<App>,
    user: User,
    request: Request<Body>,
) -> Result<Json<MessageBatch>, Failure> {
    let holder = holder(&user);
    let person = person(&user);
    user_of(&holder, person.as_ref(), Endpoint::Messages.path(), &app)
        .map_err(|why| Failure::forbidden("route_not_allowed", why))?;
    let space = HolderTotals {
        files: 1 + FILES_OF_BATCH,
        open_batches: 1,
        ..HolderTotals::default()
    };
    let begun = upload::begin(&app, &holder, space, SpaceError::for_batch).await?;
    to_its_end("an upload", async move {
        let Begun { slot: _slot, space } = begun;
        created(&app, (holder, person), request, space).await
    })
    .await
}

async fn created(
    app: &App,
    (holder, person): (String, Option<BatchPerson>),
    request: Request<Body>,
    mut space: Reservation,
) -> Result<Json<MessageBatch>, Failure> {
    let batches = &app.batches;
    let number = uuid::Uuid::new_v4();
    let id = format!("{}{}", ApiForm::Anthropic.id_prefix(), number.simple());
    // The name of the requests on disk differs from the names of the results.
    let stored_as = format!("{id}-requests");
    let received = async {
        let summary = receive(app, &stored_as, request, &mut space).await?;
        let models = HolderTotals {
            open_models: summary.models.len(),
            ..HolderTotals::default()
        };
        let grown = space.grow(models).await;
        grown.map_err(SpaceError::for_batch)?;
        let placed = batches.objects.put_upload(&stored_as).await;
        let placed = placed.map_err(|error| error.for_upload())?;
        Ok((summary, placed))
    };
    let (summary, placed) = match received.await {
        Ok(received) => received,
        Err(failure) => {
            batches.remove(&stored_as).await;
            return Err(failure);
        }
    };
    let now = app.handle.clock().wall();
    let file = StoredFile {
        id: stored_as.clone(),
        holder: holder.clone(),
        purpose: MESSAGES.to_owned(),
        name: stored_as.clone(),
        stored_as: stored_as.clone(),
        bytes: ByteCount(summary.bytes),
        created: now,
        expires: Some(now + app.config().batch.keep.0),
        summary: None,
        bucket: placed.as_ref().map(PlacedObject::bucket),
    };
    let state = BatchState {
        form: ApiForm::Anthropic,
        endpoint: Endpoint::Messages.path().to_owned(),
        input_file: file.id.clone(),
        input_stored_as: stored_as.clone(),
        completion_window: "24h".to_owned(),
        deadline: (now + WINDOW).0,
        person,
        ..BatchState::new(summary, number, now)
    };
    let record = BatchRecord {
        id,
        holder,
        created: now,
        state,
    };
    let response = record.shown_as_messages(app.base());
    let stored = async {
        batches.store.add_file(&file).await?;
        batches.add(record, Running::default()).await
    };
    if let Err(fault) = space.store(stored).await {
        // A record without a batch would count for its holder.
        let _ = batches.delete(&file).await;
        batches.objects.give_up_placed(placed).await;
        return Err(store_failed(fault));
    }
    Ok(Json(response))
}

/// Writes the requests of a body to disk while it arrives.
async fn receive(
    app: &App,
    stored_as: &str,
    request: Request<Body>,
    space: &mut Reservation,
) -> Result<RequestFileSummary, Failure> {
    // A line has the route in addition to its request, which is longer.
    let bytes_max = upload::announced(request.headers()).map(|bytes| bytes.saturating_mul(2));
    let limits = upload::limits(app, space, bytes_max).await?;
    let mut body = request.into_body();
    let (pieces, received) = mpsc::channel::<Bytes>(PIECES_MAX);
    let (batches, name) = (Arc::clone(&app.batches), stored_as.to_owned());
    let written = tokio::task::spawn_blocking(move || {
        let upload = batches
            .dir()
            .and_then(|dir| Upload::create(dir, &name, limits));
        let upload = upload.map_err(|error| BodyRefusal::Upload(UploadError::Io(error)))?;
        message_upload::write(upload, received, limits.line_bytes_max)
    });
    let mut is_complete = true;
    loop {
        let frame = tokio::time::timeout(SILENT_MAX, body.frame()).await;
        let Ok(frame) = frame else {
            return Err(upload::too_slow());
        };
        let Some(frame) = frame else { break };
        let Ok(frame) = frame else {
            is_complete = false;
            break;
        };
        let piece = frame.into_data().unwrap_or_default();
        // A writer that has ended has found an error.
        if !piece.is_empty() && pieces.send(piece).await.is_err() {
            break;
        }
    }
    if is_complete {
        // An empty piece marks the end.
        let _ = pieces.send(Bytes::new()).await;
    }
    drop(pieces);
    match written.await {
        Ok(Ok(summary)) => Ok(summary),
        Ok(Err(BodyRefusal::Upload(error))) => {
            Err(upload_refusal::refusal(&error, limits, "requests"))
        }
        Ok(Err(BodyRefusal::Form(message))) => Err(Failure::invalid(
            "requests".to_owned(),
            format!("the body is not a list of requests: {message}"),
        )),
        Err(error) => {
            tracing::error!(%error, "a batch of messages could not be written");
            let message = "the requests could not be written; see the server log";
            Err(Failure::internal(message))
        }
    }
}

/// The batch of this holder.
pub(super) async fn find(app: &App, user: &User, id: &str) -> Result<BatchRecord, Failure> {
    let holder = holder(user);
    let found = app.batches.find(id).await.map_err(store_failed)?;
    let found = found.map(|(record, _)| record);
    let found =
        found.filter(|record| record.holder == holder && record.state.form == ApiForm::Anthropic);
    found.ok_or_else(|| {
        let id: String = id.chars().take(100).collect();
        Failure::not_found(format!(
            "no batch of messages of this key has the id {id}; GET /v1/messages/batches lists them"
        ))
    })
}

/// Show a batch of messages (Anthropic's Message Batches)
///
/// Every key may call this.
#[utoipa::path(get, path = "/v1/messages/batches/{id}", tag = "batches", operation_id = "get_message_batch",
    security(("user_key" = [])),
    params(("id" = String, Path, description = "The id of a batch.", example = "msgbatch_5c1f8e")),
    responses((status = 200, description = "The batch", body = MessageBatch, example = json!({
        "id": "msgbatch_5c1f8e", "type": "message_batch", "processing_status": "ended",
        "request_counts": {"processing": 0, "succeeded": 1, "errored": 0, "canceled": 0, "expired": 0},
        "created_at": "2026-01-31T20:15:00Z", "expires_at": "2026-02-01T20:15:00Z", "ended_at": "2026-01-31T20:16:00Z",
        "results_url": "/v1/messages/batches/msgbatch_5c1f8e/results"
    })), MessageBatchErrors))]
pub(crate) async fn get(
    State(app): State<App>,
    user: User,
    Path(id): Path<String>,
) -> Result<Json<MessageBatch>, Failure> {
    let record = find(&app, &user, &id).await?;
    Ok(Json(record.shown_as_messages(app.base())))
}

/// List batches of messages (Anthropic's Message Batches)
///
/// The batches of the key, latest first.
///
/// Every key may call this.
#[utoipa::path(get, path = "/v1/messages/batches", tag = "batches", operation_id = "list_message_batches",
    security(("user_key" = [])), params(MessageBatchQuery),
    responses((status = 200, description = "A page of batches", body = MessageBatchList, example = json!({
        "data": [], "first_id": null, "last_id": null, "has_more": false
    })), MessageBatchErrors))]
pub(crate) async fn list(
    State(app): State<App>,
    user: User,
    Params(query): Params<MessageBatchQuery>,
) -> Result<Json<MessageBatchList>, Failure> {
    let holder = holder(&user);
    let limit = query.limit.unwrap_or(LIMIT);
    let page = BatchPage {
        holder: Some(&holder),
        id_prefix: Some(ApiForm::Anthropic.id_prefix()),
        after: query.after_id.as_deref(),
        limit: limit + 1,
    };
    let stored = app.batches.store.batches(page).await;
    let stored = stored.map_err(store_failed)?;
    let has_more = stored.len() > limit as usize;
    let records = stored.into_iter().take(limit as usize).filter_map(read);
    let data: Vec<MessageBatch> = records
        .map(|record| {
            let present = app.batches.present(record);
            present.shown_as_messages(app.base())
        })
        .collect();
    Ok(Json(MessageBatchList {
        first_id: data.first().map(|batch| batch.id.clone()),
        last_id: data.last().map(|batch| batch.id.clone()),
        data,
        has_more,
    }))
}

/// Cancel a batch of messages (Anthropic's Message Batches)
///
/// Requests that run may end; others do not begin and get the result `canceled`.
///
/// Every key may call this.
#[utoipa::path(post, path = "/v1/messages/batches/{id}/cancel", tag = "batches", operation_id = "cancel_message_batch",
    security(("user_key" = [])),
    params(("id" = String, Path, description = "The id of a batch.", example = "msgbatch_5c1f8e")),
    responses((status = 200, description = "The batch", body = MessageBatch, example = json!({
        "id": "msgbatch_5c1f8e", "type": "message_batch", "processing_status": "canceling",
        "request_counts": {"processing": 1, "succeeded": 0, "errored": 0, "canceled": 0, "expired": 0},
        "created_at": "2026-01-31T20:15:00Z", "expires_at": "2026-02-01T20:15:00Z",
        "cancel_initiated_at": "2026-01-31T20:15:30Z"
    })), MessageBatchErrors))]
pub(crate) async fn cancel(
    State(app): State<App>,
    user: User,
    Path(id): Path<String>,
) -> Result<Json<MessageBatch>, Failure> {
    let record = find(&app, &user, &id).await?;
    app.batches.begin_cancel(&record.id).await?;
    let record = find(&app, &user, &id).await?;
    Ok(Json(record.shown_as_messages(app.base())))
}

/// Delete a batch of messages (Anthropic's Message Batches)
///
/// The batch must have ended. Its results are deleted with it.
///
/// Every key may call this.
#[utoipa::path(delete, path = "/v1/messages/batches/{id}", tag = "batches", operation_id = "delete_message_batch",
    security(("user_key" = [])),
    params(("id" = String, Path, description = "The id of a batch.", example = "msgbatch_5c1f8e")),
    responses((status = 200, description = "The batch is gone", body = DeletedMessageBatch, example = json!({
        "id": "msgbatch_5c1f8e", "type": "message_batch_deleted"
    })), MessageBatchErrors))]
pub(crate) async fn delete(
    State(app): State<App>,
    user: User,
    Path(id): Path<String>,
) -> Result<Json<DeletedMessageBatch>, Failure> {
    let record = find(&app, &user, &id).await?;
    if record.state.status.is_open() {
        let message = format!("the batch {id} has not ended; cancel it first");
        return Err(Failure::invalid(None, message));
    }
    let batches = &app.batches;
    let state = &record.state;
    let files = [
        Some(&state.input_file),
        state.output_file.as_ref(),
        state.error_file.as_ref(),
    ];
    for file in files.into_iter().flatten() {
        let stored = batches.store.file(&record.holder, file).await;
        if let Some(stored) = stored.map_err(store_failed)? {
            batches.delete(&stored).await.map_err(store_failed)?;
        }
    }
    let deleted = batches.store.delete_batch(&record.id).await;
    deleted.map_err(store_failed)?;
    Ok(Json(DeletedMessageBatch {
        id,
        kind: "message_batch_deleted",
    }))
}
