//! Virtual models: their members, and the changes of administrators.

use axum::Json;
use axum::extract::{Request, State};

use super::models::OneQuery;
use api_types::dto::{RemovedVirtualModel, VirtualModelList, VirtualModelView};
use api_types::error::Failure;
use config::VirtualModelSection;
use gateway::auth::{Admin, Reader};
use gateway::fields::{Body, Nothing, Params, read_body};
use gateway::openapi::AdminErrors;
use gateway::state::App;
use gateway::virtual_models::{changes, preview};

/// List the virtual models
///
/// Names that stand for several models, with the member that the next request would get.
///
/// Administrators and viewers only.
#[utoipa::path(
    get, path = "/admin/virtual_models", tag = "admin: models", operation_id = "list_virtual_models", security(("admin_key" = [])),
    responses(
        (status = 200, description = "The virtual models", body = VirtualModelList, example = json!({
            "virtual_models": [{"name": "coder", "kind": "any_of",
                "members": [{"model": "tiny-guide", "state": "ready"}, {"model": "tiny-chat", "state": "cold"}],
                "rule": {"any_of": ["tiny-guide", "tiny-chat"]}, "source": "configuration",
                "next": {"name": "coder", "kind": "any_of", "member": "tiny-guide", "reason": "it is the first ready member with a free seat"},
                "warnings": []}]
        })),
        AdminErrors,
    )
)]
pub(crate) async fn list(
    State(app): State<App>,
    _: Reader,
    _: Params<Nothing>,
) -> Json<VirtualModelList> {
    Json(preview::list(&app))
}

/// Set a virtual model
///
/// Creates the virtual model, or replaces it, even if the configuration file has it. It is kept over restarts, and applies to the next
/// request.
///
/// Administrators only.
#[utoipa::path(
    put, path = "/admin/virtual_models", tag = "admin: models", operation_id = "set_virtual_model", security(("admin_key" = [])),
    params(("model" = String, Query, min_length = 1, description = "Its name.", example = "coder")),
    request_body(content = Option<Object>, description = "A virtual model, in the form of the section `virtual_models` of the configuration",
        example = json!({"any_of": ["tiny-guide", "tiny-chat"]})),
    responses(
        (status = 200, description = "The virtual model is in force", body = VirtualModelView, example = json!({
            "name": "coder", "kind": "any_of",
            "members": [{"model": "tiny-guide", "state": "ready"}, {"model": "tiny-chat", "state": "cold"}],
            "rule": {"any_of": ["tiny-guide", "tiny-chat"]}, "source": "api",
            "next": {"name": "coder", "kind": "any_of", "member": "tiny-guide", "reason": "it is the first ready member with a free seat"},
            "warnings": []
        })),
        AdminErrors,
    )
)]
pub(crate) async fn set(
    State(app): State<App>,
    admin: Admin,
    Params(query): Params<OneQuery>,
    request: Request,
) -> Result<Json<VirtualModelView>, Failure> {
    let body = read_body(request, &app).await?;
    let section: VirtualModelSection = app
        .reading
        .run(body.len(), move || {
            let text = std::str::from_utf8(&body);
            let text = text.map_err(|_| Failure::invalid(None, "the body is not UTF-8"))?;
            // A list would be read as the fields in their order.
            if !text.trim_start().starts_with('{') {
                let message = "the body must be a JSON object with the fields of a virtual model, such as {\"any_of\": [\"a\", \"b\"]}";
                return Err(Failure::invalid(None, message));
            }
            reading::json(text).map_err(|error| Failure::invalid(None, error.to_string()))
        })
        .await?;
    let name = query.model;
    changes::change(&app, &name, Some(section)).await?;
    tracing::info!(
        admin = admin.name,
        virtual_model = name,
        "virtual model set"
    );
    let model = app.virtual_models.named(&app.config(), &name);
    let model = model.ok_or_else(|| {
        Failure::conflict(
            "virtual_model_changed",
            format!("{name} was set, but a reload has left it out since; see the server log"),
        )
    })?;
    Ok(Json(preview::view(&app, &model, "api")))
}

/// Remove a virtual model
///
/// Removes a virtual model that was set with this API. The configuration file applies to its name again.
///
/// Administrators only.
#[utoipa::path(
    delete, path = "/admin/virtual_models", tag = "admin: models", operation_id = "remove_virtual_model", security(("admin_key" = [])),
    params(("model" = String, Query, min_length = 1, description = "Its name.", example = "coder")),
    responses(
        (status = 200, description = "The virtual model is removed", body = RemovedVirtualModel,
            example = json!({"name": "coder", "is_in_configuration": false})),
        AdminErrors,
    )
)]
pub(crate) async fn remove(
    State(app): State<App>,
    admin: Admin,
    Params(query): Params<OneQuery>,
    _: Body<Nothing>,
) -> Result<Json<RemovedVirtualModel>, Failure> {
    let name = query.model;
    changes::change(&app, &name, None).await?;
    tracing::info!(
        admin = admin.name,
        virtual_model = name,
        "virtual model removed"
    );
    let is_in_configuration = app.config().virtual_models.contains_key(&name);
    Ok(Json(RemovedVirtualModel {
        name,
        is_in_configuration,
    }))
}
