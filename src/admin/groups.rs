//! Groups of callers: their tree, their shares, and what they have used in the current month.

use axum::Json;
use axum::extract::{Request, State};

use api_types::dto::{ChangedGroup, GroupList};
use api_types::error::Failure;
use config::GroupSection;
use gateway::auth::{Admin, Overseer};
use gateway::fields::{Body, Nothing, Params, read_body};
use gateway::openapi::AdminErrors;
use gateway::path_params::Path;
use gateway::state::App;
use gateway::{group_changes, groups_view};

/// Show the groups of callers
///
/// The tree of groups with weights, present shares, quotas, and the requests, tokens and device time of each group in the current
/// month. Administrators of a group see their group and the groups below it.
///
/// Administrators, viewers and administrators of a group.
#[utoipa::path(
    get, path = "/admin/groups", tag = "admin: pool", operation_id = "list_groups", security(("admin_key" = [])),
    responses(
        (status = 200, description = "The groups", body = GroupList, example = json!({
            "month": "2026-01", "month_ends_at": "2026-01-31T23:00:00.000Z",
            "groups": [{"group": "physics", "path": "physics", "parent": null, "weight": 2, "share_now": 0.667, "reserved_permille": 100,
                "class_max": "priority", "priority_max": 2, "models": ["*"],
                "limits": {"requests_per_minute": null, "tokens_per_minute": null, "concurrent_requests": 32, "tokens_per_day": null},
                "quota": {"gpu_hours": 100.0, "tokens": null, "at_end": "lowest", "used_ratio": 0.31},
                "source": "configuration", "keys": ["k3"], "claims": [], "members": 12, "waiting": 3, "running": 4, "tokens": 48213004, "device_seconds": 111600.0}]
        })),
        AdminErrors,
    )
)]
pub(crate) async fn list(
    State(app): State<App>,
    overseer: Overseer,
    _: Params<Nothing>,
) -> Json<GroupList> {
    let mut list = GroupList::clone(&groups_view::list(&app));
    if let Some(scope) = &overseer.scope {
        list.groups.retain(|group| scope.covers(&group.group));
    }
    Json(list)
}

/// Set a group
///
/// Creates the group, or replaces it completely, with the fields of a group in the configuration. It is kept over restarts, and takes effect
/// immediately: requests that wait or run stay. Groups of the configuration file cannot be changed here.
///
/// Administrators only.
#[utoipa::path(
    put, path = "/admin/groups/{group}", tag = "admin: pool", operation_id = "set_group", security(("admin_key" = [])),
    params(("group" = String, Path, description = "Its name: 1 to 64 letters, digits, `-` and `_`", example = "course")),
    request_body(content = Option<Object>, description = "A group, in the form of the section `groups` of the configuration",
        example = json!({"parent": "lab", "weight": 2, "keys": ["k3"], "quota": {"tokens": "10M", "at_end": "refuse"}})),
    responses(
        (status = 200, description = "The group is in force", body = ChangedGroup,
            example = json!({"group": "course", "warnings": []})),
        AdminErrors,
    )
)]
pub(crate) async fn set(
    State(app): State<App>,
    admin: Admin,
    Path(name): Path<String>,
    _: Params<Nothing>,
    request: Request,
) -> Result<Json<ChangedGroup>, Failure> {
    let body = read_body(request, &app).await?;
    let group: GroupSection = app
        .reading
        .run(body.len(), move || {
            let text = std::str::from_utf8(&body);
            let text = text.map_err(|_| Failure::invalid(None, "the body is not UTF-8"))?;
            // A list would be read as the fields in their order.
            if !text.trim_start().starts_with('{') {
                let message = "the body must be a JSON object with the fields of a group";
                return Err(Failure::invalid(None, message));
            }
            reading::json(text).map_err(|error| Failure::invalid(None, error.to_string()))
        })
        .await?;
    let warnings = group_changes::change(&app, &name, Some(group)).await?;
    tracing::info!(admin = admin.name, group = name, "group set");
    Ok(Json(ChangedGroup {
        group: name,
        warnings,
    }))
}

/// Remove a group
///
/// Removes a group that was set with this API and has no groups below it. Its members count as callers without a group. Their requests
/// that wait or run stay.
///
/// Administrators only.
#[utoipa::path(
    delete, path = "/admin/groups/{group}", tag = "admin: pool", operation_id = "remove_group", security(("admin_key" = [])),
    params(("group" = String, Path, description = "Its name", example = "course")),
    responses(
        (status = 200, description = "The group is removed", body = ChangedGroup,
            example = json!({"group": "course", "warnings": []})),
        AdminErrors,
    )
)]
pub(crate) async fn remove(
    State(app): State<App>,
    admin: Admin,
    Path(name): Path<String>,
    _: Params<Nothing>,
    _: Body<Nothing>,
) -> Result<Json<ChangedGroup>, Failure> {
    let warnings = group_changes::change(&app, &name, None).await?;
    tracing::info!(admin = admin.name, group = name, "group removed");
    Ok(Json(ChangedGroup {
        group: name,
        warnings,
    }))
}
