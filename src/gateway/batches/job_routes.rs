//! OpenAI's routes for batches: created from an uploaded file, shown, listed and cancelled. Each is visible to its own key only.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde_json::Value;
use utoipa::IntoParams;
use uuid::Uuid;

use super::file_routes::no_file;
use super::outlook;
use super::owner::{holder, person, user_of};
use super::upload::EXPIRY;
use crate::auth::User;
use crate::fields::{Body, Fields, Params, Strict};
use crate::open_batches::{
    ApiForm, BatchRecord, BatchState, FILES_OF_BATCH, HolderTotals, Reservation, Running,
    SpaceError, Status, read, store_failed,
};
use crate::openapi::{BatchChangeErrors, BatchErrors, UploadErrors};
use crate::path_params::Path;
use crate::state::App;
use crate::to_its_end::to_its_end;
use api_types::dto::{BatchList, BatchObject, BatchRequest, ExpiresAfter};
use api_types::error::Failure;
use batch::{Endpoint, RequestFileSummary};
use config::Length;
use pool::{Span, Time};
use store::BatchPage;

const LIMIT: u32 = 20;
const LIMIT_MAX: u32 = 100;
const METADATA_MAX: usize = 16;
const METADATA_NAME_MAX: usize = 64;
const METADATA_VALUE_MAX: usize = 512;
/// The allowed completion windows.
const WINDOW: std::ops::RangeInclusive<Span> =
    Span::from_secs(1)..=Span::from_secs(30 * 24 * 3_600);

#[derive(Debug, Default, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct BatchQuery {
    /// The largest number of batches on the page. The default is 20.
    #[param(minimum = 1, maximum = 100, example = 20)]
    limit: Option<u32>,
    /// Only batches after the batch with this id.
    #[param(min_length = 1)]
    after: Option<String>,
}

impl Strict for BatchQuery {
    fn read(fields: &mut Fields) -> Result<BatchQuery, Failure> {
        Ok(BatchQuery {
            limit: fields.integer("limit", 1..=LIMIT_MAX)?,
            after: fields.text("after")?,
        })
    }
}

impl Strict for BatchRequest {
    fn read(fields: &mut Fields) -> Result<BatchRequest, Failure> {
        Ok(BatchRequest {
            input_file_id: fields.need_text("input_file_id")?,
            endpoint: fields.need_text("endpoint")?,
            completion_window: fields.need_text("completion_window")?,
            metadata: metadata(fields)?,
            output_expires_after: expires_after(fields)?,
        })
    }
}

fn metadata(fields: &mut Fields) -> Result<Option<BTreeMap<String, String>>, Failure> {
    let wrong = || {
        let message = format!(
            "`metadata` must have at most {METADATA_MAX} texts, with names up to {METADATA_NAME_MAX} and values up to {METADATA_VALUE_MAX} characters"
        );
        Failure::invalid("metadata".to_owned(), message)
    };
    let Some(values) = fields.map("metadata")? else {
        return Ok(None);
    };
    let pairs = values.into_iter().map(|(name, value)| match value {
        Value::String(text)
            if name.chars().count() <= METADATA_NAME_MAX
                && text.chars().count() <= METADATA_VALUE_MAX =>
        {
            Ok((name, text))
        }
        _ => Err(wrong()),
    });
    let pairs: BTreeMap<String, String> = pairs.collect::<Result<_, _>>()?;
    if pairs.len() > METADATA_MAX {
        return Err(wrong());
    }
    Ok(Some(pairs))
}

fn expires_after(fields: &mut Fields) -> Result<Option<ExpiresAfter>, Failure> {
    let Some(mut object) = fields.object("output_expires_after")? else {
        return Ok(None);
    };
    let anchor = object.need_text("anchor")?;
    if anchor != "created_at" {
        let message = "`output_expires_after.anchor` must be created_at";
        return Err(Failure::invalid(object.path("anchor"), message));
    }
    let seconds = object.integer("seconds", EXPIRY)?;
    let seconds = seconds.ok_or_else(|| object.missing("seconds"))?;
    object.finish()?;
    Ok(Some(ExpiresAfter { anchor, seconds }))
}

/// Create a batch
///
/// Runs the requests of an uploaded file in free seats and memory, below priority 0. Each request gets exactly one result:
/// `output_file_id` names the file of responses, `error_file_id` the file of errors.
///
/// Every key may call this.
#[utoipa::path(post, path = "/v1/batches", tag = "batches", operation_id = "create_batch",
    security(("user_key" = [])),
    request_body(content = BatchRequest, example = json!({
        "input_file_id": "file-0d4fa7", "endpoint": "/v1/chat/completions", "completion_window": "24h"
    })),
    responses((status = 200, description = "The batch", body = BatchObject, example = json!({
        "id": "batch_5c1f8e", "object": "batch", "endpoint": "/v1/chat/completions",
        "input_file_id": "file-0d4fa7", "completion_window": "24h", "status": "in_progress",
        "created_at": 1764000000_u64, "in_progress_at": 1764000000_u64,
        "expires_at": 1764086400_u64,
        "request_counts": {"total": 1000, "completed": 0, "failed": 0},
        "model_pool": {"paused": false, "in_flight": 0, "expected_seconds": 4800, "will_hold": true}
    })), UploadErrors))]
pub(crate) async fn create(
    State(app): State<App>,
    user: User,
    Body(request): Body<BatchRequest>,
) -> Result<Json<BatchObject>, Failure> {
    let holder = holder(&user);
    let batches = Arc::clone(&app.batches);
    let wrong = |field: &str, message: String| Failure::invalid(field.to_owned(), message);
    let endpoint = Endpoint::parse(&request.endpoint).ok_or_else(|| {
        let message = "`endpoint` must be /v1/chat/completions, /v1/completions, /v1/embeddings, /v1/responses or /v1/messages";
        wrong("endpoint", message.to_owned())
    })?;
    let window = request.completion_window.parse::<Length>().ok();
    let window = window.filter(|window| WINDOW.contains(&window.0));
    let window = window.ok_or_else(|| {
        let message =
            "`completion_window` must be a duration such as 24h or 90m, from 1s to 30 days";
        wrong("completion_window", message.to_owned())
    })?;
    let file = batches.store.file(&holder, &request.input_file_id).await;
    let file = file.map_err(store_failed)?;
    let file = file.ok_or_else(|| no_file(&request.input_file_id))?;
    let summary = file.summary.as_deref();
    let summary = summary.map(serde_json::from_str::<RequestFileSummary>);
    let Some(Ok(summary)) = summary else {
        let message = format!("`input_file_id`: the purpose of {} is not batch", file.id);
        return Err(wrong("input_file_id", message));
    };
    check_endpoint(&summary, endpoint)?;
    let space = HolderTotals {
        files: FILES_OF_BATCH,
        open_batches: 1,
        open_models: summary.models.len(),
        ..HolderTotals::default()
    };
    let space = Reservation::new(&batches, &holder, space).await;
    let space = space.map_err(SpaceError::for_batch)?;
    let person = person(&user);
    user_of(&holder, person.as_ref(), endpoint.path(), &app)
        .map_err(|why| Failure::forbidden("route_not_allowed", why))?;
    let now = app.handle.clock().wall();
    let number = Uuid::new_v4();
    let expiry = request.output_expires_after;
    let state = BatchState {
        endpoint: request.endpoint,
        input_file: file.id,
        input_stored_as: file.stored_as,
        completion_window: request.completion_window,
        deadline: (now + window.0).0,
        output_expires_after: expiry.map(|expiry| Span::from_secs(expiry.seconds).0),
        metadata: request.metadata,
        person,
        ..BatchState::new(summary, number, now)
    };
    let record = BatchRecord {
        id: format!("{}{}", ApiForm::OpenAi.id_prefix(), number.simple()),
        holder,
        created: now,
        state,
    };
    let forecast = outlook::of_new(&app, &record).await;
    let running = Running {
        forecast,
        ..Running::default()
    };
    let response = record.shown(running.clone(), now);
    to_its_end("a new batch", async move {
        let added = space.store(batches.add(record, running)).await;
        added.map_err(store_failed)?;
        Ok(Json(response))
    })
    .await
}

/// Refuses a file with requests for another route.
fn check_endpoint(summary: &RequestFileSummary, endpoint: Endpoint) -> Result<(), Failure> {
    let mut others = summary.endpoints.iter();
    match others.find(|(known, _)| *known != endpoint) {
        None => Ok(()),
        Some((other, count)) => {
            let message = format!(
                "`endpoint` is {}, but {count} requests of the file are for {}; create a file for each route",
                endpoint.path(),
                other.path()
            );
            Err(Failure::invalid("endpoint".to_owned(), message))
        }
    }
}

/// The batch of this holder, with the runner's figures.
async fn find(app: &App, user: &User, id: &str) -> Result<(BatchRecord, Running), Failure> {
    let holder = holder(user);
    let found = app.batches.find(id).await.map_err(store_failed)?;
    let found =
        found.filter(|(record, _)| record.holder == holder && record.state.form == ApiForm::OpenAi);
    found.ok_or_else(|| {
        let id: String = id.chars().take(100).collect();
        Failure::not_found(format!(
            "no batch of this key has the id {id}; GET /v1/batches lists them"
        ))
    })
}

fn now(app: &App) -> Time {
    app.handle.clock().wall()
}

/// Show a batch
///
/// Every key may call this.
#[utoipa::path(get, path = "/v1/batches/{id}", tag = "batches", operation_id = "get_batch",
    security(("user_key" = [])),
    params(("id" = String, Path, description = "The id of a batch.", example = "batch_5c1f8e")),
    responses((status = 200, description = "The batch", body = BatchObject, example = json!({
        "id": "batch_5c1f8e", "object": "batch", "endpoint": "/v1/chat/completions",
        "input_file_id": "file-0d4fa7", "completion_window": "24h", "status": "in_progress",
        "created_at": 1764000000_u64, "in_progress_at": 1764000000_u64,
        "expires_at": 1764086400_u64,
        "request_counts": {"total": 1000, "completed": 250, "failed": 2},
        "model_pool": {"paused": false, "in_flight": 8, "expected_seconds": 1200, "will_hold": true}
    })), BatchErrors))]
pub(crate) async fn get(
    State(app): State<App>,
    user: User,
    Path(id): Path<String>,
) -> Result<Json<BatchObject>, Failure> {
    let (record, running) = find(&app, &user, &id).await?;
    Ok(Json(record.shown(running, now(&app))))
}

/// List batches
///
/// The batches of the key, latest first.
///
/// Every key may call this.
#[utoipa::path(get, path = "/v1/batches", tag = "batches", operation_id = "list_batches",
    security(("user_key" = [])), params(BatchQuery),
    responses((status = 200, description = "A page of batches", body = BatchList, example = json!({
        "object": "list", "data": [], "first_id": null, "last_id": null, "has_more": false
    })), BatchErrors))]
pub(crate) async fn list(
    State(app): State<App>,
    user: User,
    Params(query): Params<BatchQuery>,
) -> Result<Json<BatchList>, Failure> {
    let holder = holder(&user);
    let limit = query.limit.unwrap_or(LIMIT);
    let page = BatchPage {
        holder: Some(&holder),
        id_prefix: Some(ApiForm::OpenAi.id_prefix()),
        after: query.after.as_deref(),
        limit: limit + 1,
    };
    let stored = app.batches.store.batches(page).await;
    let stored = stored.map_err(store_failed)?;
    let has_more = stored.len() > limit as usize;
    let records = stored.into_iter().take(limit as usize).filter_map(read);
    let now = now(&app);
    let shown = |record: BatchRecord| {
        let (record, running) = app.batches.present_with_figures(record);
        record.shown(running, now)
    };
    let data: Vec<BatchObject> = records.map(shown).collect();
    Ok(Json(BatchList {
        object: "list",
        first_id: data.first().map(|batch| batch.id.clone()),
        last_id: data.last().map(|batch| batch.id.clone()),
        data,
        has_more,
    }))
}

/// Cancel a batch
///
/// Requests that run may end; others do not begin. The results so far stay.
///
/// Every key may call this.
#[utoipa::path(post, path = "/v1/batches/{id}/cancel", tag = "batches", operation_id = "cancel_batch",
    security(("user_key" = [])),
    params(("id" = String, Path, description = "The id of a batch.", example = "batch_5c1f8e")),
    responses((status = 200, description = "The batch", body = BatchObject, example = json!({
        "id": "batch_5c1f8e", "object": "batch", "endpoint": "/v1/chat/completions",
        "input_file_id": "file-0d4fa7", "completion_window": "24h", "status": "cancelling",
        "created_at": 1764000000_u64, "in_progress_at": 1764000000_u64,
        "expires_at": 1764086400_u64,
        "cancelling_at": 1764000300_u64, "request_counts": {"total": 1000, "completed": 250, "failed": 2},
        "model_pool": {"paused": false, "in_flight": 8}
    })), BatchChangeErrors))]
pub(crate) async fn cancel(
    State(app): State<App>,
    user: User,
    Path(id): Path<String>,
) -> Result<Json<BatchObject>, Failure> {
    let (record, _) = find(&app, &user, &id).await?;
    let at = now(&app);
    let is_open = app.batches.begin_cancel(&record.id).await?;
    let (record, running) = find(&app, &user, &id).await?;
    let is_ended = !is_open && record.state.status != Status::Cancelled;
    if is_ended {
        let message = format!("the batch {} has ended already", record.id);
        return Err(Failure::conflict("batch_ended", message));
    }
    Ok(Json(record.shown(running, at)))
}
