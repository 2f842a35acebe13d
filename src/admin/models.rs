//! The registry: list, register, change and remove models.
//! One file because the four methods of one route share how a model is shown and refused.

use axum::Json;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::load::{not_served, refused};
use super::order_origin::OrderOrigin;
use api_types::dto::{self, ModelList, ModelView, RemoveResponse};
use api_types::error::Failure;
use catalog::{CatalogError, Source};
use config::{KeepHot, Length};
use controller::{ChangeError, Route, Snapshot};
use dialect::shape::may_be_a_tree;
use gateway::auth::{Admin, Reader};
use gateway::fields::{Body, Fields, OrderFields, Params, Strict, read_body};
use gateway::inference::request::hub_registration;
use gateway::known_model::known;
use gateway::openapi::AdminErrors;
use gateway::state::App;
use gateway::virtual_models::preview;
use pool::{Command, Outcome, OverrideChange, Priority, Span, Time};
use reading::UniqueEntries;

#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListQuery {
    /// Only this model, by its name or an alias.
    #[param(min_length = 1)]
    model: Option<String>,
}

impl Strict for ListQuery {
    fn read(fields: &mut Fields) -> Result<ListQuery, Failure> {
        Ok(ListQuery {
            model: fields.text("model")?,
        })
    }
}

#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct OneQuery {
    /// The model's name or an alias.
    #[param(min_length = 1, example = "tiny-chat")]
    pub model: String,
}

#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct RegisterQuery {
    /// Instead of a body: the name of a model on the hub, optionally with the quantization of a GGUF file, such as
    /// `org/small-GGUF:Q4_K_M`.
    model: Option<String>,
}

impl Strict for RegisterQuery {
    fn read(fields: &mut Fields) -> Result<RegisterQuery, Failure> {
        Ok(RegisterQuery {
            model: fields.text("model")?,
        })
    }
}

impl Strict for OneQuery {
    fn read(fields: &mut Fields) -> Result<OneQuery, Failure> {
        Ok(OneQuery {
            model: fields.needed_text("model", "?model=tiny-chat")?,
        })
    }
}

/// Request to change a model. Absent fields stay, and null clears a field.
#[derive(Clone, Debug, Default, PartialEq, Eq, ToSchema)]
#[schema(min_properties = 1, example = json!({"priority": 2, "lease": "2h"}))]
pub(crate) struct ModelPatch {
    /// 0 to 1000000; null for the catalogue's value.
    #[schema(value_type = Option<u32>, minimum = 0, maximum = 1_000_000)]
    pub priority: Option<Option<Priority>>,
    /// `1s` to `365d`; null for the catalogue's value.
    #[schema(value_type = Option<String>, pattern = "^([1-9][0-9]{0,2}(s|m|h)|([1-9][0-9]?|[12][0-9]{2})d)( [1-9][0-9]?(s|m|h)){0,2}$", example = "10m")]
    pub keep_hot: Option<Option<Span>>,
    /// Lifetime of the override, `1s` to `365d` from now; null for no expiry.
    #[schema(value_type = Option<String>, pattern = "^([1-9][0-9]{0,2}(s|m|h)|([1-9][0-9]?|[12][0-9]{2})d)( [1-9][0-9]?(s|m|h)){0,2}$", example = "2h")]
    pub lease: Option<Option<Span>>,
}

impl Strict for ModelPatch {
    fn read(fields: &mut Fields) -> Result<ModelPatch, Failure> {
        let priority = |fields: &mut Fields, name| {
            Ok(fields.integer(name, 0..=Priority::MAX.0)?.map(Priority))
        };
        let patch = ModelPatch {
            priority: fields.clearable("priority", priority)?,
            keep_hot: fields.clearable("keep_hot", OrderFields::length)?,
            lease: fields.clearable("lease", OrderFields::length)?,
        };
        if patch == ModelPatch::default() && fields.unknown().is_empty() {
            Err(Failure::invalid(
                None,
                "nothing to change; set priority, keep_hot or lease",
            ))
        } else {
            Ok(patch)
        }
    }
}

/// List the catalogue
///
/// All models with their replicas, priorities and states, or a single model. A model whose file cannot be used is `broken`, with
/// the error in `file_error`. If its last good version is served, it has its own state and the error.
///
/// Administrators only.
#[utoipa::path(
    get, path = "/admin/models", tag = "admin: models", operation_id = "list_catalogue", security(("admin_key" = [])),
    params(ListQuery),
    responses(
        (status = 200, description = "The models by name", body = ModelList, example = json!({"models": [{
            "model": "tiny-chat", "aliases": ["chat"], "engine": "candle",
            "source": "config/models/tiny-chat.yaml", "state": "ready", "priority": 1,
            "priority_from": "override", "always_hot": false, "keep_hot_ms": 600000,
            "override": {"priority": 1, "expires_at": "2026-01-31T22:00:00.000Z"}, "wished_replicas": 1,
            "replicas": [{"replica": "r3", "state": "ready", "stage": null, "percent": null,
                "devices": [{"device": "gpu0", "bytes": 17179869184_u64}], "in_flight": 2,
                "ready_at": "2026-01-31T20:00:08.200Z", "expires_at": null,
                "leased_until_at": "2026-01-31T22:00:00.000Z", "measured_bytes": 15032385536_u64,
                "pid": 4711, "reason": "order o5"}],
            "waiting": 0, "needs": {"devices": 1, "bytes_per_device": 17179869184_u64, "source": "measured"}, "estimated_bytes_per_device": 17179869184_u64,
            "learned": [{"kind": "NVIDIA H100 80GB HBM3", "bytes_per_device": 16106127360_u64}],
            "load_times": [{"source": "disk", "ms": 8200}],
            "failures": 0, "last_failure": null, "cooling_until_at": null, "load_ms_expected": 8200,
            "requests_total": 128, "last_used_at": "2026-01-31T20:14:59.000Z"
        }]})),
        AdminErrors,
    )
)]
pub(crate) async fn list(
    State(app): State<App>,
    _: Reader,
    Params(query): Params<ListQuery>,
) -> Result<Json<ModelList>, Failure> {
    let Some(name) = query.model else {
        return Ok(Json(all(&app, &app.handle.snapshot())));
    };
    let found = match app.handle.broken_model(&name) {
        Some(broken) => ModelView::of_broken(&broken),
        None => view(&app, &known(&app, &name)?.entry.name)?,
    };
    Ok(Json(ModelList {
        models: vec![found],
    }))
}

/// Export a model as a file
///
/// A model file that describes the same model when placed in the folder of models, including values of the reference and of
/// administrators. Values that may be secrets are replaced by `FILL_IN`. To clone a model, change `model_id`.
///
/// Administrators only.
#[utoipa::path(
    get, path = "/admin/models/file", tag = "admin: models", operation_id = "show_model_file", security(("admin_key" = [])),
    params(OneQuery),
    responses(
        (status = 200, description = "The file", body = BTreeMap<String, serde_json::Value>, content_type = "application/yaml",
            example = json!({"engine_config": {"model_id": "tiny-chat", "type": "CandleEngine"}})),
        AdminErrors,
    )
)]
pub(crate) async fn file(
    State(app): State<App>,
    _: Admin,
    Params(OneQuery { model }): Params<OneQuery>,
) -> Result<Response, Failure> {
    let route = known(&app, &model)?;
    let snapshot = app.handle.snapshot();
    let over = snapshot.model(&route.entry.name);
    let over = over.map(|model| model.over.clone()).unwrap_or_default();
    let keep_hot = over.keep_hot.map(|time| KeepHot::For(Length(time)));
    let text = route.entry.as_file(over.priority, keep_hot);
    let kind = HeaderValue::from_static("application/yaml; charset=utf-8");
    Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
}

/// All models, including those with broken files.
pub(crate) fn all(app: &App, snapshot: &Snapshot) -> ModelList {
    let list = ModelList::from_snapshot(snapshot);
    let mut list = list.with_broken(&app.handle.broken(), &served_by(app));
    name_adapters(app, &mut list.models);
    list
}

/// Largest number of adapters listed per model.
const ADAPTERS_NAMED: usize = 100;

fn name_adapters(app: &App, models: &mut [ModelView]) {
    for model in models {
        let Some(route) = app.handle.route(&model.model) else {
            continue;
        };
        let mut adapters = route.entry.adapters.clone();
        if route.entry.dynamic_adapters.is_some() {
            adapters.extend(app.handle.known_adapters(&route));
        }
        adapters.truncate(ADAPTERS_NAMED);
        model.adapters = Some(adapters).filter(|adapters| !adapters.is_empty());
    }
}

/// Register a model
///
/// The body is the content of a model file, as JSON. The model survives restarts until it is removed. It replaces a model of the
/// same name that was registered before. A model that comes from a file cannot be replaced.
///
/// With `model` and no body, the model is looked up on the hub and registered, unless it is registered already. Its engine is set
/// by `model_reference.json` or `catalog.unknown_engine`.
///
/// Administrators only.
#[utoipa::path(
    put, path = "/admin/models", tag = "admin: models", operation_id = "register_model", security(("admin_key" = [])),
    params(RegisterQuery),
    request_body(content = Option<Object>, description = "The model's document, in the form of the model files",
        example = json!({
        "engine_config": {"model_id": "org/my-model", "type": "CommandEngine",
            "command": ["vllm", "serve", "org/my-model", "--port", "{{ port }}"]},
        "pool_config": {"priority": 0, "gpus_per_replica": 1, "memory_gib": 16}
    })),
    responses(
        (status = 200, description = "The model as it is now", body = ModelView, example = json!({
            "model": "org/my-model", "aliases": [], "engine": "command", "source": "registered", "state": "cold",
            "priority": 0, "priority_from": "file", "always_hot": false, "keep_hot_ms": 600000, "override": null,
            "wished_replicas": 0, "replicas": [], "waiting": 0,
            "needs": {"devices": 1, "bytes_per_device": 17179869184_u64, "source": "file"}, "estimated_bytes_per_device": 17179869184_u64,
            "learned": [{"kind": "NVIDIA H100 80GB HBM3", "bytes_per_device": 16106127360_u64}],
            "load_times": [{"source": "disk", "ms": 8200}],
            "failures": 0, "last_failure": null, "cooling_until_at": null, "load_ms_expected": 20000,
            "requests_total": 0, "last_used_at": null
        })),
        AdminErrors,
    )
)]
pub(crate) async fn register(
    State(app): State<App>,
    admin: Admin,
    Params(query): Params<RegisterQuery>,
    request: Request,
) -> Result<Json<ModelView>, Failure> {
    hub_registration::may_register(&app)?;
    let body = read_body(request, &app).await?;
    if let Some(name) = query
        .model
        .as_ref()
        .filter(|_| body.trim_ascii().is_empty())
    {
        let route = match app.handle.route(name) {
            Some(route) => route,
            None => hub_registration::of_administrator(&app, name).await?,
        };
        tracing::info!(
            admin = admin.name,
            model = name.as_str(),
            "model of the hub registered"
        );
        return view(&app, &route.entry.name).map(Json);
    }
    let document = app.reading.run(body.len(), move || document(&body)).await?;
    admin.check_priority(priority_of(&document))?;
    let name = document
        .pointer("/engine_config/model_id")
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned();
    if let Some(other) = query.model.filter(|other| *other != name) {
        let message = format!(
            "the document in the body describes `{name}`, but `model` is `{other}`: use the same name, or omit `model`"
        );
        return Err(Failure::invalid("model".to_owned(), &message));
    }
    let warnings = app
        .handle
        .register(document)
        .await
        .map_err(register_failure)?;
    tracing::info!(admin = admin.name, model = name, "model registered");
    let mut view = view(&app, &name)?;
    view.warnings
        .extend(warnings.iter().map(ToString::to_string));
    view.warnings.extend(preview::hidden_by(&app, &name));
    Ok(Json(view))
}

/// Change a model's priority, keep-hot time or lease
///
/// A missing field stays as it is; null clears it. A lease keeps a loaded model loaded until it ends (L2); clearing the last
/// setting that depends on it also ends it. The change survives restarts once the response is sent.
///
/// Administrators only.
#[utoipa::path(
    patch, path = "/admin/models", tag = "admin: models", operation_id = "change_model", security(("admin_key" = [])),
    params(OneQuery),
    request_body(content = ModelPatch, examples(
        ("lease" = (summary = "Always-hot for two hours", value = json!({"priority": 2, "lease": "2h"}))),
        ("clear" = (summary = "Back to the catalogue's priority", value = json!({"priority": null}))),
    )),
    responses(
        (status = 200, description = "The model as it is now", body = ModelView, example = json!({
            "model": "tiny-chat", "aliases": [], "engine": "candle", "source": "config/models/tiny-chat.yaml",
            "state": "cold", "priority": 2, "priority_from": "override", "always_hot": true, "keep_hot_ms": 600000,
            "override": {"priority": 2, "expires_at": "2026-01-31T22:00:00.000Z"}, "wished_replicas": 0,
            "replicas": [], "waiting": 0,
            "needs": {"devices": 1, "bytes_per_device": 17179869184_u64, "source": "estimate"}, "estimated_bytes_per_device": 17179869184_u64,
            "learned": [{"kind": "NVIDIA H100 80GB HBM3", "bytes_per_device": 16106127360_u64}],
            "load_times": [{"source": "disk", "ms": 8200}],
            "failures": 0, "last_failure": null, "cooling_until_at": null, "load_ms_expected": 8200,
            "requests_total": 0, "last_used_at": null
        })),
        AdminErrors,
    )
)]
pub(crate) async fn change(
    State(app): State<App>,
    admin: Admin,
    origin: OrderOrigin,
    Params(query): Params<OneQuery>,
    Body(patch): Body<ModelPatch>,
) -> Result<Json<ModelView>, Failure> {
    admin.check_priority(patch.priority.flatten())?;
    let route = known(&app, &query.model)?;
    let name = &route.entry.name;
    let command = set_command(&app, &route, &patch);
    let ordered = app.handle.order_on(command, origin.terms(admin.by, None))?;
    tracing::info!(admin = admin.name, model = name, order = %ordered.order, "model changed");
    match ordered.settled().await? {
        Outcome::Set => view(&app, name).map(Json),
        other => Err(refused(&app, name, other, false)),
    }
}

/// Remove a registered model
///
/// Its replicas drain and stop. To remove a model that comes from a file, remove the file and reload.
///
/// Administrators only.
#[utoipa::path(
    delete, path = "/admin/models", tag = "admin: models", operation_id = "remove_model", security(("admin_key" = [])),
    params(("model" = String, Query, min_length = 1, description = "The model's name or an alias.", example = "org/my-model")),
    responses(
        (status = 200, description = "The model is removed", body = RemoveResponse,
            example = json!({"model": "org/my-model", "removed": true})),
        AdminErrors,
    )
)]
pub async fn remove(
    State(app): State<App>,
    admin: Admin,
    Params(query): Params<OneQuery>,
) -> Result<Json<RemoveResponse>, Failure> {
    if let Some(broken) = app.handle.broken_model(&query.model)
        && broken.source == Source::Registered
    {
        let model = broken.name;
        app.handle.remove(&model).await?;
        tracing::info!(admin = admin.name, model, "model removed");
        return Ok(Json(RemoveResponse {
            model,
            removed: true,
        }));
    }
    let route = known(&app, &query.model)?;
    let model = route.entry.name.clone();
    if route.entry.adapter(&query.model).is_some() {
        let message = format!(
            "{} is an adapter of {model}; register that model without it, or remove its file and reload",
            query.model
        );
        return Err(Failure::invalid("model".to_owned(), message));
    }
    app.handle.remove(&model).await?;
    tracing::info!(admin = admin.name, model, "model removed");
    Ok(Json(RemoveResponse {
        model,
        removed: true,
    }))
}

pub(crate) fn view(app: &App, name: &str) -> Result<ModelView, Failure> {
    let found = dto::find(&app.handle.snapshot(), name).ok_or_else(|| not_served(name))?;
    let list = ModelList {
        models: vec![found],
    };
    let mut list = list.with_broken(&app.handle.broken(), &served_by(app));
    name_adapters(app, &mut list.models);
    let mut models = list.models.into_iter();
    models
        .find(|model| model.model == name)
        .ok_or_else(|| not_served(name))
}

/// Resolves a name, alias or adapter to its model.
fn served_by(app: &App) -> impl Fn(&str) -> Option<String> {
    move |name: &str| Some(app.handle.route(name)?.entry.name.clone())
}

/// Parses a JSON object and refuses repeated keys.
fn document(bytes: &[u8]) -> Result<Value, Failure> {
    may_be_a_tree(bytes)?;
    let entries: UniqueEntries<Value> = serde_json::from_slice(bytes).map_err(|error| {
        Failure::invalid(
            None,
            format!("the body is not a JSON object, the content of a model file: {error}"),
        )
    })?;
    Ok(Value::Object(entries.0.into_iter().collect()))
}

/// The priority of a model's document. A value that is not a priority is refused where the document is read.
fn priority_of(document: &Value) -> Option<Priority> {
    let number = document.pointer("/pool_config/priority")?.as_u64()?;
    Some(Priority(u32::try_from(number).unwrap_or(u32::MAX)))
}

fn register_failure(error: ChangeError) -> Failure {
    let field = match &error {
        ChangeError::Catalog(CatalogError::Field { field, .. }) => Some(field.clone()),
        ChangeError::Catalog(CatalogError::Collision { .. }) => {
            return Failure::conflict("name_taken", error.to_string());
        }
        _ => None,
    };
    let mut failure = Failure::from(error);
    failure.body.error.param = field.or(failure.body.error.param);
    failure
}

/// The lease starts now.
/// The command for a change. It is applied to the state at the time of execution, not at the time of the request.
pub(crate) fn set_command(app: &App, route: &Route, patch: &ModelPatch) -> Command {
    Command::Set {
        model: route.model,
        change: changed(patch, app.handle.clock().wall()),
    }
}

fn changed(patch: &ModelPatch, now: Time) -> OverrideChange {
    OverrideChange {
        priority: patch.priority,
        keep_hot: patch.keep_hot,
        expires: patch.lease.map(|lease| lease.map(|lease| now + lease)),
    }
}

#[cfg(test)]
mod tests;
