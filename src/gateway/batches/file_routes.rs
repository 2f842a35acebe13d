//! OpenAI's routes for files: uploads of requests, and the results of batches. Each file is visible to its own key only.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{Request, header};
use axum::response::{IntoResponse, Response};
use utoipa::IntoParams;

use super::content;
use super::owner::holder;
use super::upload::{self, Begun};
use crate::auth::User;
use crate::fields::{Fields, Params, Strict};
use crate::open_batches::{HolderTotals, MESSAGES, PlacedObject, SpaceError, store_failed};
use crate::openapi::{BatchChangeErrors, BatchErrors, UploadErrors};
use crate::path_params::Path;
use crate::state::App;
use crate::to_its_end::to_its_end;
use api_types::dto::{DeletedFile, FileList, FileObject, UploadForm};
use api_types::error::Failure;
use pool::Bytes;
use store::{FilePage, StoredFile};

const LIMIT: u32 = 10_000;

#[derive(Debug, Default, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct FileQuery {
    /// Only files with this purpose: `batch` or `batch_output`.
    #[param(min_length = 1, example = "batch")]
    purpose: Option<String>,
    /// The largest number of files on the page. The default is 10000.
    #[param(minimum = 1, maximum = 10_000, example = 100)]
    limit: Option<u32>,
    /// `desc`, the default, begins with the latest file; `asc` begins with the oldest.
    #[param(pattern = "^(asc|desc)$", example = "desc")]
    order: Option<String>,
    /// Only files after the file with this id.
    #[param(min_length = 1)]
    after: Option<String>,
}

impl Strict for FileQuery {
    fn read(fields: &mut Fields) -> Result<FileQuery, Failure> {
        Ok(FileQuery {
            purpose: fields.text("purpose")?,
            limit: fields.integer("limit", 1..=LIMIT)?,
            order: fields.text("order")?,
            after: fields.text("after")?,
        })
    }
}

fn shown(file: &StoredFile) -> FileObject {
    FileObject {
        id: file.id.clone(),
        object: "file",
        bytes: file.bytes.0,
        created_at: file.created.0 / 1_000,
        expires_at: file.expires.map(|at| at.0 / 1_000),
        filename: file.name.clone(),
        purpose: file.purpose.clone(),
        status: "processed",
    }
}

/// The error for a file that does not exist or belongs to another key.
pub(super) fn no_file(id: &str) -> Failure {
    let id: String = id.chars().take(100).collect();
    Failure::not_found(format!(
        "no file of this key has the id {id}; GET /v1/files lists them"
    ))
}

/// The file of this user.
async fn find(app: &App, user: &User, id: &str) -> Result<StoredFile, Failure> {
    let file = app.batches.store.file(&holder(user), id).await;
    let file = file.map_err(store_failed)?;
    let file = file.filter(|file| file.purpose != MESSAGES);
    file.ok_or_else(|| no_file(id))
}

/// Upload a file of requests
///
/// Each line is a request: `{"custom_id": "1", "method": "POST", "url": "/v1/chat/completions", "body": {"model": …}}`. Errors name lines
/// by number.
///
/// Every key may call this.
#[utoipa::path(post, path = "/v1/files", tag = "batches", operation_id = "create_file",
    security(("user_key" = [])),
    request_body(content = UploadForm, content_type = "multipart/form-data", example = json!({
        "purpose": "batch", "file": "(lines of JSON)"
    })),
    responses((status = 200, description = "The stored file", body = FileObject, example = json!({
        "id": "file-0d4fa7", "object": "file", "bytes": 120000, "created_at": 1764000000_u64,
        "expires_at": 1766592000_u64, "filename": "prompts.jsonl", "purpose": "batch", "status": "processed"
    })), UploadErrors))]
pub(crate) async fn create(
    State(app): State<App>,
    user: User,
    request: Request<Body>,
) -> Result<Json<FileObject>, Failure> {
    let holder = holder(&user);
    let file = HolderTotals {
        files: 1,
        ..HolderTotals::default()
    };
    let begun = upload::begin(&app, &holder, file, SpaceError::for_upload).await?;
    to_its_end("an upload", async move {
        let Begun {
            slot: _slot,
            mut space,
        } = begun;
        let batches = &app.batches;
        let id = format!("file-{}", uuid::Uuid::new_v4().simple());
        let received = upload::receive(&app, &id, request, &mut space).await?;
        let placed = match batches.objects.put_upload(&id).await {
            Ok(placed) => placed,
            Err(error) => {
                batches.remove(&id).await;
                return Err(error.for_upload());
            }
        };
        let now = app.handle.clock().wall();
        let keep = app.config().batch.keep.0;
        let file = StoredFile {
            stored_as: id.clone(),
            id,
            holder,
            purpose: "batch".to_owned(),
            name: received.name,
            bytes: Bytes(received.summary.bytes),
            created: now,
            expires: Some(now + received.expires_after.unwrap_or(keep)),
            // Plain data with text keys is always valid JSON.
            summary: serde_json::to_string(&received.summary).ok(),
            bucket: placed.as_ref().map(PlacedObject::bucket),
        };
        if let Err(fault) = space.store(batches.store.add_file(&file)).await {
            batches.remove(&file.stored_as).await;
            batches.objects.give_up_placed(placed).await;
            return Err(store_failed(fault));
        }
        Ok(Json(shown(&file)))
    })
    .await
}

/// List files
///
/// The files of the key, and the results of its batches.
///
/// Every key may call this.
#[utoipa::path(get, path = "/v1/files", tag = "batches", operation_id = "list_files",
    security(("user_key" = [])), params(FileQuery),
    responses((status = 200, description = "A page of files", body = FileList, example = json!({
        "object": "list", "data": [], "first_id": null, "last_id": null, "has_more": false
    })), BatchErrors))]
pub(crate) async fn list(
    State(app): State<App>,
    user: User,
    Params(query): Params<FileQuery>,
) -> Result<Json<FileList>, Failure> {
    let holder = holder(&user);
    let limit = query.limit.unwrap_or(LIMIT);
    let is_ascending = match query.order.as_deref() {
        None | Some("desc") => false,
        Some("asc") => true,
        Some(_) => {
            let message = "`order` must be asc or desc";
            return Err(Failure::invalid("order".to_owned(), message));
        }
    };
    let page = FilePage {
        purpose: query.purpose.as_deref(),
        hidden_purpose: MESSAGES,
        after: query.after.as_deref(),
        is_ascending,
        limit: limit + 1,
    };
    let mut files = app
        .batches
        .store
        .files(&holder, page)
        .await
        .map_err(store_failed)?;
    let has_more = files.len() > limit as usize;
    files.truncate(limit as usize);
    Ok(Json(FileList {
        object: "list",
        first_id: files.first().map(|file| file.id.clone()),
        last_id: files.last().map(|file| file.id.clone()),
        data: files.iter().map(shown).collect(),
        has_more,
    }))
}

/// Show a file
///
/// Every key may call this.
#[utoipa::path(get, path = "/v1/files/{id}", tag = "batches", operation_id = "get_file",
    security(("user_key" = [])),
    params(("id" = String, Path, description = "The id of a file.", example = "file-0d4fa7")),
    responses((status = 200, description = "The file", body = FileObject, example = json!({
        "id": "file-0d4fa7", "object": "file", "bytes": 120000, "created_at": 1764000000_u64,
        "expires_at": 1766592000_u64, "filename": "prompts.jsonl", "purpose": "batch", "status": "processed"
    })), BatchErrors))]
pub(crate) async fn get(
    State(app): State<App>,
    user: User,
    Path(id): Path<String>,
) -> Result<Json<FileObject>, Failure> {
    let file = find(&app, &user, &id).await?;
    Ok(Json(shown(&file)))
}

/// Download a file
///
/// The lines of an upload, or the results of a batch.
///
/// Every key may call this.
#[utoipa::path(get, path = "/v1/files/{id}/content", tag = "batches", operation_id = "download_file",
    security(("user_key" = [])),
    params(("id" = String, Path, description = "The id of a file.", example = "file-0d4fa7")),
    responses((status = 200, description = "The lines", body = String, content_type = "application/jsonl",
        example = json!("{\"custom_id\": \"1\"}\n")), BatchErrors))]
pub(crate) async fn content(
    State(app): State<App>,
    user: User,
    Path(id): Path<String>,
) -> Result<Response, Failure> {
    let file = find(&app, &user, &id).await?;
    let body = content::open(&app, &file).await?.into_body();
    let headers = [
        (header::CONTENT_TYPE, "application/jsonl".to_owned()),
        (header::CONTENT_LENGTH, file.bytes.0.to_string()),
    ];
    Ok((headers, body).into_response())
}

/// Delete a file
///
/// A file that an unfinished batch reads cannot be deleted; cancel the batch first.
///
/// Every key may call this.
#[utoipa::path(delete, path = "/v1/files/{id}", tag = "batches", operation_id = "delete_file",
    security(("user_key" = [])),
    params(("id" = String, Path, description = "The id of a file.", example = "file-0d4fa7")),
    responses((status = 200, description = "The file is gone", body = DeletedFile, example = json!({
        "id": "file-0d4fa7", "object": "file", "deleted": true
    })), BatchChangeErrors))]
pub(crate) async fn delete(
    State(app): State<App>,
    user: User,
    Path(id): Path<String>,
) -> Result<Json<DeletedFile>, Failure> {
    let batches = Arc::clone(&app.batches);
    let file = find(&app, &user, &id).await?;
    if batches.reads(&file.id) {
        let message = format!(
            "a batch reads the file {id}; cancel it with POST /v1/batches/ID/cancel, or wait until it has ended"
        );
        return Err(Failure::conflict("file_in_use", message));
    }
    batches.delete(&file).await.map_err(store_failed)?;
    Ok(Json(DeletedFile {
        id,
        object: "file",
        deleted: true,
    }))
}
