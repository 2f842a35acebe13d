//! The admin routes of NCSA's LLM Serving, with their bodies and responses, mapped onto load, unload, reload, reset and the
//! configuration. Refusals have their real status; the old service always returned 200.

use axum::Json;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::keyed::Keyed;
use admin::load::{LoadRequest, UnloadRequest};
use admin::order_origin::OrderOrigin;
use admin::{load, upkeep};
use api_types::dto::DeviceList;
use api_types::error::Failure;
use api_types::schemas::older_systems::{
    DeleteModelRequest, GetModelRequest, KeyRequest, LoadModelRequest, PoolNumbers,
    ReferenceRequest,
};
use dialect::body::Scanned;
use gateway::auth::Admin;
use gateway::fields::{self, Fields, Nothing, OrderFields, Params, Strict, read_body};
use gateway::known_model::known;
use gateway::openapi::AdminErrors;
use gateway::state::App;
use pool::Priority;

const REPLICAS_MAX: u32 = 64;
const DEVICES_MAX: u32 = 1024;
/// Far larger than the response to any order.
const ANSWER_MAX: usize = 16 << 20;
/// The model types of the old service. Now a model's file sets its engine.
const TYPES: [(&str, ()); 4] = [
    ("empty", ()),
    ("vllm_raw", ()),
    ("vllm_openai", ()),
    ("embedding", ()),
];

/// All routes except `reset`, whose path is also a current route.
pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(get_model))
        .routes(routes!(delete_model))
        .routes(routes!(load_model))
        .routes(routes!(info))
        .routes(routes!(dump_config))
        .routes(routes!(load_model_reference))
}

struct GetModel {
    model: String,
    replicas: Option<u32>,
    devices: Option<u32>,
    priority: Option<Priority>,
}

impl Strict for GetModel {
    fn read(fields: &mut Fields) -> Result<GetModel, Failure> {
        let model = model_name(fields)?;
        if fields.choice("model_type", &TYPES)?.is_none() {
            return Err(Failure::invalid(
                "model_type".to_owned(),
                "model_type: is missing; allowed: empty, vllm_raw, vllm_openai, embedding",
            ));
        }
        if fields.text("hf_key")?.is_some() {
            return Err(Failure::invalid(
                "hf_key".to_owned(),
                "hf_key: is not accepted, because it would open the model to everyone; set HF_TOKEN in the model's file or in the service's environment",
            ));
        }
        Ok(GetModel {
            model,
            replicas: fields.integer("num_replicas", 0..=REPLICAS_MAX)?,
            devices: fields.integer("gpus_per_replica", 1..=DEVICES_MAX)?,
            priority: fields
                .integer("priority", 0..=Priority::MAX.0)?
                .map(Priority),
        })
    }
}

struct DeleteModel {
    model: String,
}

impl Strict for DeleteModel {
    fn read(fields: &mut Fields) -> Result<DeleteModel, Failure> {
        let model = model_name(fields)?;
        Ok(DeleteModel { model })
    }
}

struct LoadModel {
    model: String,
    replicas: u32,
}

impl Strict for LoadModel {
    fn read(fields: &mut Fields) -> Result<LoadModel, Failure> {
        let model = model_name(fields)?;
        let replicas = fields.integer("num_replicas", 0..=REPLICAS_MAX)?;
        let missing = || {
            let message = format!("num_replicas: is missing; allowed: 0 to {REPLICAS_MAX}");
            Failure::invalid("num_replicas".to_owned(), message)
        };
        Ok(LoadModel {
            model,
            replicas: replicas.ok_or_else(missing)?,
        })
    }
}

struct Reference {
    path: String,
}

impl Strict for Reference {
    fn read(fields: &mut Fields) -> Result<Reference, Failure> {
        let path = fields.needed_text("model_reference_path", "\"model_reference.json\"")?;
        Ok(Reference { path })
    }
}

fn model_name(fields: &mut Fields) -> Result<String, Failure> {
    fields.needed_text("model_name", "\"org/model\"; GET /v1/models lists them")
}

/// Load a model and wait (LLM Serving)
///
/// A model that is loaded stays as it is. The same as `load`.
///
/// Administrators only. The key is in the body or in the header.
#[utoipa::path(post, path = "/admin/get_model", tag = "older systems", operation_id = "old_get_model", security(("admin_key" = []), ()),
    request_body(content = GetModelRequest, example = json!({"model_name": "tiny-chat", "model_type": "vllm_openai"})),
    responses((status = 200, description = "Done", body = String, content_type = "application/json", example = json!("Model tiny-chat endpoint: /llm")), AdminErrors))]
async fn get_model(
    State(app): State<App>,
    Keyed { admin, body: order }: Keyed<GetModel>,
) -> Result<Json<String>, Failure> {
    let model = order.model.clone();
    if order.replicas == Some(0) {
        known(&app, &model)?;
    } else {
        let request = LoadRequest {
            replicas: order.replicas.filter(|count| *count > 1),
            // The old client sends 1 by default.
            gpus: order.devices.filter(|count| *count > 1),
            priority: order.priority,
            ..load_of(order.model)
        };
        load::load(
            State(app.clone()),
            admin.into(),
            OrderOrigin::default(),
            fields::Body(request),
        )
        .await?;
    }
    let base = app.base();
    Ok(Json(format!("Model {model} endpoint: {base}")))
}

/// Unload a model (LLM Serving)
///
/// The model stays in the catalogue, and the next request loads it again. The same as `unload`.
///
/// Administrators only. The key is in the body or in the header.
#[utoipa::path(post, path = "/admin/delete_model", tag = "older systems", operation_id = "old_delete_model", security(("admin_key" = []), ()),
    request_body(content = DeleteModelRequest, example = json!({"model_name": "tiny-chat"})),
    responses((status = 200, description = "Done", body = String, content_type = "application/json", example = json!("Model tiny-chat deleted.")), AdminErrors))]
async fn delete_model(
    State(app): State<App>,
    Keyed { admin, body: order }: Keyed<DeleteModel>,
) -> Result<Json<String>, Failure> {
    let message = format!("Model {} deleted.", order.model);
    unload(app, admin, order.model).await?;
    Ok(Json(message))
}

/// Set the number of replicas (LLM Serving)
///
/// The same as `load`, or `unload` for 0 replicas.
///
/// Administrators only. The key is in the body or in the header.
#[utoipa::path(post, path = "/admin/load_model", tag = "older systems", operation_id = "old_load_model", security(("admin_key" = []), ()),
    request_body(content = LoadModelRequest, example = json!({"model_name": "tiny-chat", "num_replicas": 1})),
    responses((status = 200, description = "Done", body = String, content_type = "application/json", example = json!("Model tiny-chat active replicas set to 1.")), AdminErrors))]
async fn load_model(
    State(app): State<App>,
    Keyed { admin, body: order }: Keyed<LoadModel>,
) -> Result<Json<String>, Failure> {
    let LoadModel { model, replicas } = order;
    let name = known(&app, &model)?.entry.name.clone();
    let snapshot = app.handle.snapshot();
    let ready = |view: &pool::ModelView| {
        let ready = view
            .replicas
            .iter()
            .filter(|replica| replica.state == pool::ReplicaState::Ready);
        ready.count()
    };
    let before = snapshot.model(&name).map_or(0, ready);
    let already = format!("Model {model} already has {replicas} replicas.");
    if replicas == 0 {
        return match unload(app, admin, model.clone()).await {
            Ok(()) => Ok(Json(format!("Model {model} active replicas set to 0."))),
            Err(failure) if failure.body.error.code == Some("not_loaded") => Ok(Json(already)),
            Err(failure) => Err(failure),
        };
    }
    let request = LoadRequest {
        replicas: Some(replicas),
        ..load_of(model.clone())
    };
    let response = load::load(
        State(app),
        admin.into(),
        OrderOrigin::default(),
        fields::Body(request),
    )
    .await?;
    let response = read(response).await?;
    Ok(Json(match response["shortfall"].as_str() {
        Some(why) => {
            let has = response["ready_replicas"].as_array().map_or(0, Vec::len);
            format!("Model {model} active replicas set to {has} of {replicas}: {why}")
        }
        None if before == replicas as usize => already,
        None => format!("Model {model} active replicas set to {replicas}."),
    }))
}

/// Show the numbers of devices and models (LLM Serving)
///
/// The numbers of free devices and of models with replicas.
///
/// Administrators only. The key is in the body or in the header.
#[utoipa::path(post, path = "/admin/info", tag = "older systems", operation_id = "old_info", security(("admin_key" = []), ()),
    request_body(content = KeyRequest, example = json!({})),
    responses((status = 200, description = "Done", body = PoolNumbers, example = json!({"autoscaler_enabled": false, "last_autoscaler_failed_time": 0, "num_total_gpus": 4, "num_available_gpus:": 1, "num_available_gpus": 1, "num_served_models": 3})), AdminErrors))]
async fn info(State(app): State<App>, _: Keyed<Nothing>) -> Json<Value> {
    let snapshot = app.handle.snapshot();
    let devices = DeviceList::from_snapshot(&snapshot).devices;
    let is_free = |owners: usize, cordoned: bool| owners == 0 && !cordoned;
    let free = devices
        .iter()
        .filter(|device| is_free(device.owners.len(), device.cordon.is_some()))
        .count();
    let models = snapshot.pool.models.iter();
    let served = models.filter(|model| !model.replicas.is_empty()).count();
    Json(json!({
        "autoscaler_enabled": false,
        "last_autoscaler_failed_time": 0,
        "num_total_gpus": devices.len(),
        // The old service wrote the name with the colon, and its clients read it.
        "num_available_gpus:": free,
        "num_available_gpus": free,
        "num_served_models": served,
    }))
}

/// Show the configuration (LLM Serving)
///
/// The configuration in force, with its defaults and without secrets.
///
/// Administrators only. The key is in the body or in the header.
#[utoipa::path(post, path = "/admin/dump_config", tag = "older systems", operation_id = "old_dump_config", security(("admin_key" = []), ()),
    request_body(content = KeyRequest, example = json!({})),
    responses((status = 200, description = "Done", body = Object, example = json!({"server": {"listen": "127.0.0.1:8080", "base_path": "/llm"}})), AdminErrors))]
async fn dump_config(State(app): State<App>, Keyed { admin, .. }: Keyed<Nothing>) -> Json<Value> {
    upkeep::config(State(app), admin.into(), Params(Nothing)).await
}

/// Reload the reference (LLM Serving)
///
/// Reads the file set in the configuration, never a path from a client. The same as `reload`.
///
/// Administrators only. The key is in the body or in the header.
#[utoipa::path(post, path = "/admin/load_model_reference", tag = "older systems", operation_id = "old_load_model_reference", security(("admin_key" = []), ()),
    request_body(content = ReferenceRequest, example = json!({"model_reference_path": "model_reference.json"})),
    responses((status = 200, description = "Done", body = String, content_type = "application/json", example = json!("Function load_model_reference() executed.")), AdminErrors))]
async fn load_model_reference(
    State(app): State<App>,
    Keyed { admin, body: order }: Keyed<Reference>,
) -> Result<Json<&'static str>, Failure> {
    let own = app.config().catalog.model_reference.clone();
    if std::path::Path::new(&order.path).file_name() != own.file_name() {
        let message = format!(
            "model_reference_path: the reference is {} (catalog.model_reference), and no other file is read; change that file, and send its path",
            own.display()
        );
        return Err(Failure::invalid("model_reference_path".to_owned(), message));
    }
    let reloaded = upkeep::reload(State(app), admin, fields::Body(Nothing)).await;
    reloaded.map(|_| Json("Function load_model_reference() executed."))
}

/// Wraps the current `reset` route: accepts the key in the body and then responds in the old form.
pub(super) async fn reset(State(app): State<App>, request: Request, next: Next) -> Response {
    if request.method() != Method::POST || request.uri().path() != "/admin/reset" {
        return next.run(request).await;
    }
    match reset_keyed(app, request, next).await {
        Ok(response) => response,
        Err(failure) => failure.into_response(),
    }
}

async fn reset_keyed(app: App, request: Request, next: Next) -> Result<Response, Failure> {
    let (mut parts, body) = request.into_parts();
    let body = read_body(Request::new(body), &app).await?;
    let bytes = body.clone();
    let has_key = move || {
        let fields = Scanned::fields(&bytes);
        Ok(fields.is_ok_and(|fields| fields.get("key").is_some()))
    };
    let has_key = app.reading.run(body.len(), has_key).await?;
    if !has_key {
        let request = Request::from_parts(parts, Body::from(body));
        return Ok(next.run(request).await);
    }
    // Refuses other fields. The route itself checks the key, which is now in the header.
    Keyed::<Nothing>::read(&mut parts, &body, &app).await?;
    parts.headers.remove(header::CONTENT_LENGTH);
    let response = next.run(Request::from_parts(parts, Body::from("{}"))).await;
    Ok(if response.status().is_success() {
        Json("LLM service reset.").into_response()
    } else {
        response
    })
}

fn load_of(model: String) -> LoadRequest {
    LoadRequest {
        model,
        priority: None,
        replicas: None,
        gpus: None,
        keep_hot: None,
        lease: None,
        force: false,
        wait: true,
    }
}

async fn unload(app: App, admin: Admin, model: String) -> Result<(), Failure> {
    let request = UnloadRequest {
        model,
        replica: None,
        now: false,
    };
    let unloaded = load::unload(
        State(app),
        admin.into(),
        OrderOrigin::default(),
        fields::Body(request),
    )
    .await;
    unloaded.map(drop)
}

async fn read(response: Response) -> Result<Value, Failure> {
    let unread =
        |problem: String| Failure::internal(format!("the order's response was lost: {problem}"));
    let bytes = to_bytes(response.into_body(), ANSWER_MAX).await;
    let bytes = bytes.map_err(|error| unread(error.to_string()))?;
    serde_json::from_slice(&bytes).map_err(|error| unread(error.to_string()))
}
