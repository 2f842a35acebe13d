//! Batches of all keys: readers list them, and administrators pause, order and cancel them.

use axum::Json;
use axum::extract::State;
use utoipa::{IntoParams, ToSchema};

use api_types::dto::{AdminBatch, AdminBatchList};
use api_types::error::Failure;
use gateway::auth::sight::{ANOTHER_KEY, Sight};
use gateway::auth::{Admin, Reader};
use gateway::fields::{Body, Fields, Nothing, OrderFields, Params, Strict};
use gateway::openapi::AdminErrors;
use gateway::state::App;
use pool::KeyId;

const LIMIT: u32 = 100;
const LIMIT_MAX: u32 = 1_000;
/// Allowed ranks.
const RANKS: std::ops::RangeInclusive<i64> = -1_000_000..=1_000_000;

#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct PageQuery {
    /// The largest number of batches on the page. The default is 100.
    #[param(minimum = 1, maximum = 1000, example = 100)]
    limit: Option<u32>,
    /// Only batches after the batch with this id.
    #[param(min_length = 1)]
    after: Option<String>,
}

impl Strict for PageQuery {
    fn read(fields: &mut Fields) -> Result<PageQuery, Failure> {
        Ok(PageQuery {
            limit: fields.integer("limit", 1..=LIMIT_MAX)?,
            after: fields.text("after")?,
        })
    }
}

#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct BatchIdQuery {
    /// The id of a batch, as in the list.
    #[param(min_length = 1, example = "batch_5c1f8e")]
    id: String,
}

impl Strict for BatchIdQuery {
    fn read(fields: &mut Fields) -> Result<BatchIdQuery, Failure> {
        let id = fields.needed_text("id", "?id=batch_…; GET /admin/batches lists them")?;
        Ok(BatchIdQuery { id })
    }
}

/// Request to change a batch.
#[derive(Clone, Debug, PartialEq, Eq, ToSchema)]
#[schema(example = json!({"paused": true}))]
pub(crate) struct ChangeBatchRequest {
    /// Starts no more requests of the batch. Requests that run may end.
    #[schema(example = true)]
    pub paused: Option<bool>,
    /// Among the batches for a model, the batch with the highest rank runs first.
    #[schema(minimum = -1_000_000, maximum = 1_000_000, example = 0)]
    pub rank: Option<i64>,
}

impl Strict for ChangeBatchRequest {
    fn read(fields: &mut Fields) -> Result<ChangeBatchRequest, Failure> {
        let request = ChangeBatchRequest {
            paused: fields.flag("paused")?,
            rank: fields.integer("rank", RANKS)?,
        };
        if request.paused.is_none() && request.rank.is_none() {
            let message = "the body has no change; send `paused`, `rank` or both";
            return Err(Failure::invalid(None, message));
        }
        Ok(request)
    }
}

/// List the batches of all keys
///
/// The latest come first, with their holders, models and progress. A key whose group restricts its models does not see the names of
/// keys of other groups.
///
/// Administrators and viewers only.
#[utoipa::path(
    get, path = "/admin/batches", tag = "admin: pool", operation_id = "list_batches_of_all_keys", security(("admin_key" = [])),
    params(PageQuery),
    responses(
        (status = 200, description = "A page of batches", body = AdminBatchList, example = json!({"batches": [{
            "id": "batch_5c1f8e", "object": "batch", "endpoint": "/v1/chat/completions",
            "input_file_id": "file-0d4fa7", "completion_window": "24h", "status": "in_progress",
            "created_at": 1764000000_u64, "in_progress_at": 1764000000_u64,
            "expires_at": 1764086400_u64,
            "request_counts": {"total": 1000, "completed": 250, "failed": 2},
            "model_pool": {"paused": false, "in_flight": 8, "expected_seconds": 1200, "will_hold": true},
            "holder": "k3 (course 4711)", "group": "lab/course", "models": [{"model": "tiny-chat", "requests": 1000}], "rank": 0
        }], "next_after": null})),
        AdminErrors,
    )
)]
pub(crate) async fn list(
    State(app): State<App>,
    reader: Reader,
    Params(query): Params<PageQuery>,
) -> Result<Json<AdminBatchList>, Failure> {
    let limit = query.limit.unwrap_or(LIMIT);
    let page = app.batches.page(query.after.as_deref(), limit).await;
    let (mut batches, has_more) = page?;
    let last = batches.last().map(|batch| batch.batch.id.clone());
    name_holders(&mut batches, &app, &reader.sight);
    Ok(Json(AdminBatchList {
        batches,
        next_after: last.filter(|_| has_more),
    }))
}

/// Pause, resume or order a batch
///
/// A paused batch starts no more requests, and its completion window continues to run. Among the batches for a model, the batch with
/// the highest rank runs first, then the oldest. A missing field stays as it is.
///
/// Administrators only.
#[utoipa::path(
    patch, path = "/admin/batches", tag = "admin: pool", operation_id = "change_batch", security(("admin_key" = [])),
    params(BatchIdQuery),
    request_body(content = ChangeBatchRequest, example = json!({"paused": true})),
    responses(
        (status = 200, description = "The batch as it is now", body = AdminBatch, example = json!({
            "id": "batch_5c1f8e", "object": "batch", "endpoint": "/v1/chat/completions",
            "input_file_id": "file-0d4fa7", "completion_window": "24h", "status": "in_progress",
            "created_at": 1764000000_u64, "in_progress_at": 1764000000_u64,
            "expires_at": 1764086400_u64,
            "request_counts": {"total": 1000, "completed": 250, "failed": 2},
            "model_pool": {"paused": true, "in_flight": 8, "expected_seconds": 1200, "will_hold": true},
            "holder": "k3 (course 4711)", "group": "lab/course", "models": [{"model": "tiny-chat", "requests": 1000}], "rank": 0
        })),
        AdminErrors,
    )
)]
pub(crate) async fn change(
    State(app): State<App>,
    admin: Admin,
    Params(BatchIdQuery { id }): Params<BatchIdQuery>,
    Body(request): Body<ChangeBatchRequest>,
) -> Result<Json<AdminBatch>, Failure> {
    let (paused, rank) = (request.paused, request.rank);
    let changed = app.batches.set(&id, paused, rank).await?;
    tracing::info!(
        admin = admin.name,
        batch = id,
        ?paused,
        ?rank,
        "batch changed"
    );
    Ok(named(changed, &app))
}

/// Cancel a batch of any key
///
/// Requests that run may end; others do not begin. The holder can read the results so far.
///
/// Administrators only.
#[utoipa::path(
    post, path = "/admin/batches/cancel", tag = "admin: pool", operation_id = "cancel_batch_of_any_key",
    security(("admin_key" = [])),
    params(BatchIdQuery),
    responses(
        (status = 200, description = "The batch as it is now", body = AdminBatch, example = json!({
            "id": "batch_5c1f8e", "object": "batch", "endpoint": "/v1/chat/completions",
            "input_file_id": "file-0d4fa7", "completion_window": "24h", "status": "cancelling",
            "created_at": 1764000000_u64, "in_progress_at": 1764000000_u64,
            "expires_at": 1764086400_u64,
            "cancelling_at": 1764000300_u64, "request_counts": {"total": 1000, "completed": 250, "failed": 2},
            "model_pool": {"paused": false, "in_flight": 8},
            "holder": "k3 (course 4711)", "group": "lab/course", "models": [{"model": "tiny-chat", "requests": 1000}], "rank": 0
        })),
        AdminErrors,
    )
)]
pub(crate) async fn cancel(
    State(app): State<App>,
    admin: Admin,
    Params(BatchIdQuery { id }): Params<BatchIdQuery>,
    _: Body<Nothing>,
) -> Result<Json<AdminBatch>, Failure> {
    let cancelled = app.batches.cancel(&id).await?;
    tracing::info!(admin = admin.name, batch = id, "batch cancelled");
    Ok(named(cancelled, &app))
}

fn named(mut batch: AdminBatch, app: &App) -> Json<AdminBatch> {
    name_holders(std::slice::from_mut(&mut batch), app, &Sight::default());
    Json(batch)
}

/// Replaces the ids of holders, such as `key:3`, with ids and names, and adds their groups, as far as the reader may see them.
fn name_holders(batches: &mut [AdminBatch], app: &App, sight: &Sight) {
    let keys = app.keys.all();
    let caller = |holder: &str| key_of(holder).or(person_of(holder).map(|(id, _)| id));
    let ids = batches.iter().filter_map(|batch| caller(&batch.holder));
    let paths = app.keys.groups().paths_of(ids);
    for shown in batches {
        let id = caller(&shown.holder);
        let path = id.and_then(|id| paths.get(&id));
        if !sight.has_members_of(path.map(|path| &**path)) {
            ANOTHER_KEY.clone_into(&mut shown.holder);
            shown.batch.metadata = None;
            continue;
        }
        shown.group = path.map(ToString::to_string);
        if let Some((_, name)) = person_of(&shown.holder) {
            shown.holder = format!("{name} (signed on)");
            continue;
        }
        let name = id.and_then(|id| keys.iter().find(|key| key.id == id));
        shown.holder = match (id, name) {
            (Some(id), Some(key)) => format!("{id} ({})", key.name),
            (Some(id), None) => id.to_string(),
            (None, _) => {
                let address = shown.holder.strip_prefix("address:");
                format!("{} (without a key)", address.unwrap_or(&shown.holder))
            }
        };
    }
}

/// The key in the id of a holder; `None` for an address.
fn key_of(holder: &str) -> Option<KeyId> {
    holder.strip_prefix("key:")?.parse().ok().map(KeyId)
}

/// The id and the name of a person in the id of a holder, as in `person:1f Ada`.
fn person_of(holder: &str) -> Option<(KeyId, &str)> {
    let (id, name) = holder.strip_prefix("person:")?.split_once(' ')?;
    let id = u64::from_str_radix(id, 16).ok()?;
    Some((KeyId(id), name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<ChangeBatchRequest, Failure> {
        ChangeBatchRequest::read(&mut Fields::parse(json.as_bytes())?)
    }

    #[test]
    fn a_change_sets_at_least_one_value_within_its_range() {
        let request = read(r#"{"paused":false,"rank":-3}"#).expect("a change");
        assert_eq!((request.paused, request.rank), (Some(false), Some(-3)));
        for wrong in ["{}", r#"{"rank":1000001}"#, r#"{"paused":"yes"}"#] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn only_keys_and_people_have_an_id() {
        assert_eq!(key_of("key:3"), Some(KeyId(3)));
        assert_eq!(key_of("address:10.0.0.7"), None);
        assert_eq!(key_of("key:"), None);
        assert_eq!(person_of("person:1f Ada L."), Some((KeyId(31), "Ada L.")));
        assert_eq!(person_of("key:3"), None);
    }
}
