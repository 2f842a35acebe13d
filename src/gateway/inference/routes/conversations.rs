//! OpenAI's conversations: created, changed and deleted by clients, with items that `/v1/responses` reads and extends. Each is
//! visible to its own key only.

mod given;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::Request;
use serde_json::{Value, json};

use super::stored_responses::{ItemsQuery, QueryPairs, includes_sealed, limit, order, value};
use crate::auth::User;
use crate::openapi::{ConversationErrors, StoredErrors};
use crate::path_params::Path;
use crate::state::App;
use api_types::error::{ErrorKind, Failure};
use api_types::schemas::conversations::{
    ConversationItems, ConversationMetadata, ConversationObject, ConversationRequest,
    DeletedConversation,
};
use api_types::schemas::responses_items::InputItem;
use api_types::schemas::responses_stored::ResponseItemList;
use dialect::responses::shown;
use dialect::stored::{no_conversation, not_stored, unreadable};
use given::given;
use pool::Span;
use store::{AddedItems, ItemPage, NamedConversation, ResponseBounds, StoreError, StoredItem};

/// `Retry-After` while conversations cannot be stored.
const RETRY: Span = Span::from_secs(10);

/// Create a conversation (OpenAI's Conversations)
///
/// `POST /v1/responses` with its id in `conversation` reads its items before `input`, and adds the items of the request and of the
/// response. docs/guides/clients.md says how long it is kept.
///
/// Every key may call this.
#[utoipa::path(post, path = "/v1/conversations", tag = "chat", operation_id = "create_conversation",
    security(("user_key" = [])),
    request_body(content = Option<ConversationRequest>, example = json!({"metadata": {"topic": "pool"}})),
    responses((status = 200, description = "The conversation", body = ConversationObject, example = json!({
        "id": "conv_0198f6", "object": "conversation", "created_at": 1764000000, "metadata": {"topic": "pool"}
    })), ConversationErrors))]
pub(crate) async fn create(
    State(app): State<App>,
    user: User,
    request: Request<Body>,
) -> Result<Json<Value>, Failure> {
    is_on(&app)?;
    let given = given(&app, &user, request, &["items", "metadata"]).await?;
    let new = NamedConversation {
        id: format!("conv_{}", uuid::Uuid::now_v7().simple()),
        holder: user.account.id(),
        created: app.handle.clock().now(),
        bytes: 0,
        metadata: json!(given.metadata.unwrap_or_default()).to_string(),
    };
    let items = given.items.unwrap_or_default();
    let bounds = bounds(&app);
    let added = app.handle.store().add_conversation(&new, &items, bounds);
    match added.await.map_err(unwritable)? {
        AddedItems::Added => Ok(Json(object(&new))),
        AddedItems::TooLarge | AddedItems::NoRoom => Err(no_room(bounds)),
    }
}

/// Show a conversation (OpenAI's Conversations)
///
/// Only the key that created it can see it.
///
/// Every key may call this.
#[utoipa::path(get, path = "/v1/conversations/{id}", tag = "chat", operation_id = "get_conversation",
    security(("user_key" = [])),
    params(("id" = String, Path, description = "The id of a conversation.", example = "conv_01")),
    responses((status = 200, description = "The conversation", body = ConversationObject, example = json!({
        "id": "conv_0198f6", "object": "conversation", "created_at": 1764000000, "metadata": {}
    })), StoredErrors))]
pub(crate) async fn get(
    State(app): State<App>,
    user: User,
    Path(id): Path<String>,
) -> Result<Json<Value>, Failure> {
    Ok(Json(object(&find(&app, &user.account.id(), &id).await?)))
}

/// Change the metadata of a conversation (OpenAI's Conversations)
///
/// The new metadata replaces the present one.
///
/// Every key may call this.
#[utoipa::path(post, path = "/v1/conversations/{id}", tag = "chat", operation_id = "update_conversation",
    security(("user_key" = [])),
    params(("id" = String, Path, description = "The id of a conversation.", example = "conv_01")),
    request_body(content = ConversationMetadata, example = json!({"metadata": {"topic": "pool"}})),
    responses((status = 200, description = "The conversation", body = ConversationObject, example = json!({
        "id": "conv_0198f6", "object": "conversation", "created_at": 1764000000, "metadata": {"topic": "pool"}
    })), ConversationErrors))]
pub(crate) async fn update(
    State(app): State<App>,
    user: User,
    Path(id): Path<String>,
    request: Request<Body>,
) -> Result<Json<Value>, Failure> {
    is_on(&app)?;
    let given = given(&app, &user, request, &["metadata"]).await?;
    let metadata = given.metadata.ok_or_else(|| missing("metadata"))?;
    let metadata = json!(metadata).to_string();
    let holder = user.account.id();
    let store = app.handle.store();
    let (conversation, now) = ((holder.as_str(), id.as_str()), app.handle.clock().now());
    let changed = store.set_conversation_metadata(conversation, &metadata, now, bounds(&app));
    let changed = changed.await.map_err(unwritable)?;
    changed
        .map(|changed| Json(object(&changed)))
        .ok_or_else(|| no_conversation(&id))
}

/// Delete a conversation (OpenAI's Conversations)
///
/// Its items are deleted too. Responses that were stored stay.
///
/// Every key may call this.
#[utoipa::path(delete, path = "/v1/conversations/{id}", tag = "chat", operation_id = "delete_conversation",
    security(("user_key" = [])),
    params(("id" = String, Path, description = "The id of a conversation.", example = "conv_01")),
    responses((status = 200, description = "It is deleted", body = DeletedConversation,
        example = json!({"id": "conv_01", "object": "conversation.deleted", "deleted": true})), StoredErrors))]
pub(crate) async fn delete(
    State(app): State<App>,
    user: User,
    Path(id): Path<String>,
) -> Result<Json<Value>, Failure> {
    is_on(&app)?;
    let holder = user.account.id();
    let deleted = app.handle.store().delete_conversation(&holder, &id).await;
    if deleted.map_err(unwritable)? {
        Ok(Json(
            json!({"id": id, "object": "conversation.deleted", "deleted": true}),
        ))
    } else {
        Err(no_conversation(&id))
    }
}

/// List the items of a conversation (OpenAI's Conversations)
///
/// The items that were added, and the items of responses with this conversation.
///
/// Every key may call this.
#[utoipa::path(get, path = "/v1/conversations/{id}/items", tag = "chat", operation_id = "list_conversation_items",
    security(("user_key" = [])),
    params(("id" = String, Path, description = "The id of a conversation.", example = "conv_01"), ItemsQuery),
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
    let holder = user.account.id();
    find(&app, &holder, &id).await?;
    let (store, conversation) = (app.handle.store(), (holder.as_str(), id.as_str()));
    let after = value(&query, "after");
    if let Some(after) = after {
        let known = store.conversation_item(conversation, after).await;
        if known.map_err(unreadable)?.is_none() {
            let message = "`after` must be the id of an item of this conversation";
            return Err(Failure::invalid("after".to_owned(), message));
        }
    }
    let page = ItemPage {
        is_rising,
        after,
        limit: u32::try_from(limit + 1).unwrap_or(u32::MAX),
    };
    let items = store.conversation_items(conversation, page).await;
    let mut items = items.map_err(unreadable)?;
    let has_more = items.len() > limit;
    items.truncate(limit);
    list(&app, items, has_more, includes_sealed(&query)).await
}

/// Add items to a conversation (OpenAI's Conversations)
///
/// At most 20 items, in their order. An item whose id the conversation has already is left out.
///
/// Every key may call this.
#[utoipa::path(post, path = "/v1/conversations/{id}/items", tag = "chat", operation_id = "create_conversation_items",
    security(("user_key" = [])),
    params(("id" = String, Path, description = "The id of a conversation.", example = "conv_01")),
    request_body(content = ConversationItems, example = json!({"items": [{"role": "user", "content": "What is a priority?"}]})),
    responses((status = 200, description = "The new items", body = ResponseItemList, example = json!({
        "object": "list", "first_id": "msg_0198f6", "last_id": "msg_0198f6", "has_more": false,
        "data": [{"type": "message", "id": "msg_0198f6", "status": "completed", "role": "user",
            "content": [{"type": "input_text", "text": "What is a priority?"}]}]
    })), ConversationErrors))]
pub(crate) async fn add_items(
    State(app): State<App>,
    user: User,
    Path(id): Path<String>,
    query: QueryPairs,
    request: Request<Body>,
) -> Result<Json<Value>, Failure> {
    is_on(&app)?;
    let given = given(&app, &user, request, &["items"]).await?;
    let items = given.items.filter(|items| !items.is_empty());
    let items = items.ok_or_else(|| missing("items"))?;
    // New items follow the items of responses that have ended.
    app.responses.write_all().await;
    let holder = user.account.id();
    let most = app.config().server.body_limit.0.0;
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let now = app.handle.clock().now();
    let conversation = (holder.as_str(), id.as_str());
    let store = app.handle.store();
    let added = store.add_conversation_items(conversation, &items, now, most, bounds(&app));
    match added.await.map_err(unwritable)? {
        Some(AddedItems::Added) => list(&app, items, false, includes_sealed(&query)).await,
        Some(AddedItems::TooLarge) => {
            let message = format!(
                "the conversation would have more than {most} bytes, the limit of a request (server.body_limit); delete items, or create another conversation"
            );
            Err(Failure::invalid("items".to_owned(), message))
        }
        Some(AddedItems::NoRoom) => Err(no_room(bounds(&app))),
        None => Err(no_conversation(&id)),
    }
}

/// Show an item of a conversation (OpenAI's Conversations)
///
/// Only the key that created the conversation can see it.
///
/// Every key may call this.
#[utoipa::path(get, path = "/v1/conversations/{id}/items/{item}", tag = "chat", operation_id = "get_conversation_item",
    security(("user_key" = [])),
    params(("id" = String, Path, description = "The id of a conversation.", example = "conv_01"),
        ("item" = String, Path, description = "The id of an item.", example = "msg_01")),
    responses((status = 200, description = "The item", body = InputItem, example = json!({
        "type": "message", "id": "msg_0198f6", "status": "completed", "role": "user",
        "content": [{"type": "input_text", "text": "What is a priority?"}]
    })), StoredErrors))]
pub(crate) async fn item(
    State(app): State<App>,
    user: User,
    Path((id, item)): Path<(String, String)>,
    query: QueryPairs,
) -> Result<Json<Value>, Failure> {
    let holder = user.account.id();
    find(&app, &holder, &id).await?;
    let conversation = (holder.as_str(), id.as_str());
    let found = app.handle.store().conversation_item(conversation, &item);
    let found = found.await.map_err(unreadable)?;
    let found = found.ok_or_else(|| no_item(&item))?;
    Ok(Json(shown(&found, includes_sealed(&query))))
}

/// Delete an item of a conversation (OpenAI's Conversations)
///
/// Returns the conversation.
///
/// Every key may call this.
#[utoipa::path(delete, path = "/v1/conversations/{id}/items/{item}", tag = "chat", operation_id = "delete_conversation_item",
    security(("user_key" = [])),
    params(("id" = String, Path, description = "The id of a conversation.", example = "conv_01"),
        ("item" = String, Path, description = "The id of an item.", example = "msg_01")),
    responses((status = 200, description = "The conversation", body = ConversationObject, example = json!({
        "id": "conv_0198f6", "object": "conversation", "created_at": 1764000000, "metadata": {}
    })), StoredErrors))]
pub(crate) async fn delete_item(
    State(app): State<App>,
    user: User,
    Path((id, item)): Path<(String, String)>,
) -> Result<Json<Value>, Failure> {
    let holder = user.account.id();
    let found = find(&app, &holder, &id).await?;
    let conversation = (holder.as_str(), id.as_str());
    let store = app.handle.store();
    let deleted = store.delete_conversation_item(conversation, &item).await;
    if deleted.map_err(unwritable)? {
        Ok(Json(object(&found)))
    } else {
        Err(no_item(&item))
    }
}

fn is_on(app: &App) -> Result<(), Failure> {
    if app.responses.is_on() {
        Ok(())
    } else {
        Err(not_stored("conversation"))
    }
}

fn no_room(bounds: ResponseBounds) -> Failure {
    let message = format!(
        "the conversation and the background responses of this key that have not ended would have more than {} (state.responses.per_key_size); wait for some responses, or cancel them",
        bounds.bytes_per_holder
    );
    Failure::new(ErrorKind::TooMany, "no_room_for_conversation", message).again_in(RETRY)
}

fn bounds(app: &App) -> ResponseBounds {
    ResponseBounds::from_config(&app.config().state.responses)
}

/// A conversation of this holder, after the responses that have ended.
async fn find(app: &App, holder: &str, id: &str) -> Result<NamedConversation, Failure> {
    is_on(app)?;
    app.responses.write_all().await;
    let found = app.handle.store().named_conversation(holder, id).await;
    let found = found.map_err(unreadable)?;
    found.ok_or_else(|| no_conversation(id))
}

fn object(conversation: &NamedConversation) -> Value {
    let metadata: Value = serde_json::from_str(&conversation.metadata).unwrap_or_default();
    json!({
        "id": conversation.id, "object": "conversation",
        "created_at": conversation.created.0 / 1000, "metadata": metadata,
    })
}

async fn list(
    app: &App,
    items: Vec<StoredItem>,
    has_more: bool,
    is_sealed_shown: bool,
) -> Result<Json<Value>, Failure> {
    let bytes = items.iter().map(|item| item.item.len()).sum();
    let list = move || {
        let data: Vec<Value> = items
            .iter()
            .map(|item| shown(item, is_sealed_shown))
            .collect();
        let id = |item: Option<&StoredItem>| item.map(|item| item.id.clone());
        Ok(Json(json!({
            "object": "list", "data": data, "first_id": id(items.first()), "last_id": id(items.last()),
            "has_more": has_more,
        })))
    };
    app.reading.run(bytes, list).await
}

fn missing(field: &str) -> Failure {
    Failure::invalid(field.to_owned(), format!("`{field}` is missing or empty"))
}

fn no_item(id: &str) -> Failure {
    let id: String = id.chars().take(80).collect();
    Failure::not_found(format!("the conversation has no item {id}"))
}

fn unwritable(fault: StoreError) -> Failure {
    tracing::error!(%fault, "a conversation cannot be written");
    let message = "conversations cannot be stored now; see the server log";
    Failure::new(ErrorKind::Unavailable, "not_saved", message).again_in(RETRY)
}
