//! Load, unload and plan. An accepted order continues when its client disconnects.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

pub use super::load_requests::{LoadRequest, UnloadRequest};
use super::order_origin::OrderOrigin;
use super::order_wait::{outcome, still_draining};
use api_types::dto::{LoadResponse, PlanView, UnloadResponse};
use api_types::error::Failure;
use controller::Route;
use gateway::auth::sight::{ANOTHER, Sight};
use gateway::auth::{Manager, Reader};
use gateway::fields::Body;
use gateway::inference::request::hub_registration;
use gateway::inference::understood;
use gateway::known_model::known;
use gateway::openapi::AdminErrors;
use gateway::state::App;
use gateway::virtual_models::preview;
use pool::{Command, LoadOrder, LoadResult, Outcome, Plan, Refusal, ReplicaId};

/// Load a model
///
/// Starts replicas of the model and evicts others as far as the rules allow. The order survives restarts. The response is sent when
/// the load has ended, or with `wait: false` as soon as it has begun. A refused load gets a 409 with the plan and its reasons. With
/// `wait: false` that applies to every load whose plan is not feasible now.
///
/// Administrators of a group may load the models of their group, and set `priority` up to the group's `priority_max`, `keep_hot`,
/// `lease` and `wait`. A model that has a higher priority than that gets a 403.
///
/// Administrators, and administrators of a group.
#[utoipa::path(
    post, path = "/admin/load", tag = "admin: loading", operation_id = "load_model", security(("admin_key" = [])),
    request_body(content = LoadRequest, examples(
        ("simple" = (summary = "Load and wait", value = json!({"model": "tiny-chat"}))),
        ("for an evening" = (summary = "Above others for two hours", value = json!({
            "model": "tiny-chat", "priority": 1, "keep_hot": "30m", "lease": "2h", "wait": false
        }))),
    )),
    responses(
        (status = 200, description = "The load has ended", body = LoadResponse, example = json!({
            "model": "tiny-chat", "status": "ready", "wanted_replicas": 1,
            "ready_replicas": [{"replica": "r3", "devices": [{"device": "gpu0", "bytes": 17179869184_u64}]}],
            "evicted": [{"replica": "r1", "model": "tiny-code", "priority": 0, "bytes": 17179869184_u64,
                "reason": "preempted by tiny-chat: priority 1 over 0 (P2)"}],
            "shortfall": null, "fits_when_empty": null, "order": "o5", "took_ms": 8200
        })),
        (status = 202, description = "The load is kept and has begun (`wait` is false)", body = LoadResponse,
            example = json!({
            "model": "tiny-chat", "status": "started", "wanted_replicas": 1, "ready_replicas": [],
            "evicted": [], "shortfall": null, "fits_when_empty": null, "order": "o5", "took_ms": 3
        })),
        AdminErrors,
    )
)]
pub async fn load(
    State(app): State<App>,
    admin: Manager,
    origin: OrderOrigin,
    Body(request): Body<LoadRequest>,
) -> Result<Response, Failure> {
    let since = app.handle.clock().now();
    check_load(&admin, &request)?;
    let route = match &admin {
        Manager::Group(admin) => understood::known(&app, &admin.user, &request.model)?,
        Manager::Pool(_) => match app.handle.route(&request.model) {
            Some(route) => route,
            None => hub_registration::of_administrator(&app, &request.model).await?,
        },
    };
    let order = order_of(&app, &route, &request).await?;
    let name = route.entry.name.clone();
    let replicas = order.replicas;
    let force = order.force;
    let command = Command::Load(order);
    let by_mcp = origin.by_mcp;
    let terms = origin.terms(admin.id(), admin.priority_max());
    let mut ordered = app.handle.order_on(command, terms)?;
    let id = ordered.order;
    tracing::info!(admin = admin.name(), model = name, order = %id, replicas, force, "load ordered");
    let ended = if request.wait {
        outcome(by_mcp, &mut ordered).await?
    } else {
        ordered.accepted().await?;
        ordered.try_settled()
    };
    let Some(outcome) = ended else {
        let snapshot = app.handle.snapshot();
        let begun = snapshot.pool.orders.iter().find(|order| order.order == id);
        let wanted = begun
            .and_then(|order| order.replicas)
            .or(replicas)
            .unwrap_or(1);
        let took = app.handle.clock().now().since(since);
        let response = LoadResponse::started(&name, wanted, id, took);
        return Ok((StatusCode::ACCEPTED, Json(response)).into_response());
    };
    let snapshot = app.handle.snapshot();
    let outcome = match admin.of_group() {
        Some(admin) => hide(outcome, &admin.user.sight),
        None => outcome,
    };
    match outcome {
        Outcome::Loaded(result) => {
            let took = app.handle.clock().now().since(since);
            Ok(Json(LoadResponse::new(&name, &result, id, took, &snapshot)).into_response())
        }
        other => Err(refused(&app, &name, other, force)),
    }
}

/// Preview a load
///
/// The decision that a load would get now: placement, evictions and reasons. For a virtual model, that of the member which the next
/// request would get. Nothing changes.
///
/// Administrators only.
#[utoipa::path(
    post, path = "/admin/plan", tag = "admin: loading", operation_id = "plan_load", security(("admin_key" = [])),
    request_body(content = LoadRequest, example = json!({"model": "tiny-chat", "priority": 1})),
    responses(
        (status = 200, description = "The plan, feasible or not", body = PlanView, example = json!({
            "model": "tiny-chat", "priority": 1, "feasible": true, "already_loaded": false, "loading": null,
            "reason": "fits after evicting 1 replica",
            "needs": {"devices": 1, "bytes_per_device": 17179869184_u64, "source": "measured"},
            "placement": [{"device": "gpu0", "bytes": 17179869184_u64}],
            "victims": [{"replica": "r1", "model": "tiny-code", "priority": 0, "busy": false,
                "bytes": 17179869184_u64, "reload_ms": 6100,
                "reason": "preempted by tiny-chat: priority 1 over 0 (P2)"}],
            "waits_for": ["the end of tiny-code (r1)"],
            "cost": {"highest_victim_priority": 0, "busy_victims": 0, "expected_reload_ms": 6100,
                "evicted_bytes": 17179869184_u64},
            "candidates": [{"place": "gpu0", "verdict": "chosen: evicts tiny-code (r1), 16.0 GiB in all"}],
            "expected_seconds": 8.2, "wakes": null
        })),
        AdminErrors,
    )
)]
pub(crate) async fn plan(
    State(app): State<App>,
    _: Reader,
    Body(request): Body<LoadRequest>,
) -> Result<Json<PlanView>, Failure> {
    let (route, choice) = match preview::named(&app, &request.model) {
        Some(chosen) => chosen.map(|(route, choice)| (route, Some(choice)))?,
        None => (known(&app, &request.model)?, None),
    };
    let order = order_of(&app, &route, &request).await?;
    let force = order.force;
    let Some((plan, expected)) = app.handle.plan(order).await? else {
        return Err(not_served(&route.entry.name));
    };
    let now = app.handle.clock().now();
    let mut view = PlanView::from_plan(&plan, expected, force, now, &app.handle.snapshot());
    view.virtual_choice = choice;
    Ok(Json(view))
}

/// Unload a model
///
/// Drains and stops all replicas of the model, or a single replica. The response is sent when they are gone.
///
/// Administrators of a group may unload the models of their group whose priority is at most the group's `priority_max`. Such an unload
/// waits for all requests in flight, without a limit.
///
/// Administrators, and administrators of a group.
#[utoipa::path(
    post, path = "/admin/unload", tag = "admin: loading", operation_id = "unload_model", security(("admin_key" = [])),
    request_body(content = UnloadRequest, example = json!({"model": "tiny-chat", "now": false})),
    responses(
        (status = 200, description = "The replicas are gone", body = UnloadResponse,
            example = json!({"model": "tiny-chat", "unloaded": ["r3"], "took_ms": 420})),
        AdminErrors,
    )
)]
pub async fn unload(
    State(app): State<App>,
    admin: Manager,
    origin: OrderOrigin,
    Body(request): Body<UnloadRequest>,
) -> Result<Response, Failure> {
    let since = app.handle.clock().now();
    let now = request.now;
    let (name, command) = unload_command(&app, &admin, &request)?;
    let by_mcp = origin.by_mcp;
    let terms = origin.terms(admin.id(), admin.priority_max());
    let mut ordered = app.handle.order_on(command, terms)?;
    tracing::info!(admin = admin.name(), model = name, order = %ordered.order, now, "unload ordered");
    let Some(outcome) = outcome(by_mcp, &mut ordered).await? else {
        let snapshot = app.handle.snapshot();
        let is_it = |model: &pool::ModelView| model.name == name;
        return Ok(still_draining(ordered.order, &snapshot, is_it));
    };
    match outcome {
        Outcome::Unloaded { replicas } => {
            let took_ms = app.handle.clock().now().since(since).0;
            let unloaded = replicas.iter().map(ReplicaId::to_string).collect();
            let response = UnloadResponse {
                model: name,
                unloaded,
                took_ms,
            };
            Ok(Json(response).into_response())
        }
        other => Err(refused(&app, &name, other, false)),
    }
}

/// Refuses fields of a load that the caller may not set.
pub(crate) fn check_load(admin: &Manager, request: &LoadRequest) -> Result<(), Failure> {
    admin.only_pool("force", request.force)?;
    admin.only_pool("gpus", request.gpus.is_some())?;
    admin.only_pool("replicas", request.replicas.is_some())?;
    admin.check_priority(request.priority)
}

/// The model's name, and the command that unloads it, if the caller may order that.
pub(crate) fn unload_command(
    app: &App,
    admin: &Manager,
    request: &UnloadRequest,
) -> Result<(String, Command), Failure> {
    admin.only_pool("now", request.now)?;
    let route = match admin {
        Manager::Group(admin) => understood::known(app, &admin.user, &request.model)?,
        Manager::Pool(_) => known(app, &request.model)?,
    };
    let command = Command::Unload {
        model: route.model,
        replica: request.replica,
        now: request.now,
    };
    Ok((route.entry.name.clone(), command))
}

/// Removes the names of models that the caller may not see, and the plan, which names models everywhere.
fn hide(outcome: Outcome, sight: &Sight) -> Outcome {
    if !sight.is_bounded() {
        return outcome;
    }
    match outcome {
        Outcome::Loaded(result) => Outcome::Loaded(LoadResult {
            shortfall: result.shortfall.map(|refusal| sight.refusal(refusal)),
            evicted: result
                .evicted
                .into_iter()
                .map(|mut evicted| {
                    if !sight.has(&evicted.model) {
                        ANOTHER.clone_into(&mut evicted.model);
                    }
                    evicted
                })
                .collect(),
            ..result
        }),
        Outcome::Refused { refusal, .. } => Outcome::Refused {
            refusal: sight.refusal(refusal),
            plan: None,
        },
        other => other,
    }
}

/// Builds the order for a load.
pub(crate) async fn order_of(
    app: &App,
    route: &Route,
    request: &LoadRequest,
) -> Result<LoadOrder, Failure> {
    if !route.is_ready() {
        app.handle.look_for_program(route).await;
    }
    let serve = route.entry.recipe.ray_serve();
    if let (Some(serve), Some(replicas)) = (serve, request.replicas)
        && replicas > serve.replicas_max
    {
        return Err(Failure::invalid(
            "replicas".to_owned(),
            format!(
                "replicas: {replicas} exceeds pool_config.max_replicas, which is {}; the pool does not see the memory that they use in Ray, so raise that key first",
                serve.replicas_max
            ),
        ));
    }
    Ok(LoadOrder {
        model: route.model,
        replicas: request.replicas,
        devices: request.gpus,
        priority: request.priority,
        keep_hot: request.keep_hot,
        lease: request.lease,
        force: request.force,
        waits: request.wait,
    })
}

/// The error for an order that did not have the expected outcome.
pub(crate) fn refused(app: &App, name: &str, outcome: Outcome, force: bool) -> Failure {
    let Outcome::Refused { refusal, plan } = outcome else {
        return Failure::internal(format!(
            "{name}: the order ended with the outcome of another kind of order"
        ));
    };
    let snapshot = app.handle.snapshot();
    let now = app.handle.clock().now();
    let shown = |plan: Box<Plan>| {
        serde_json::to_value(PlanView::from_plan(&plan, None, force, now, &snapshot)).ok()
    };
    let failure = Failure::order_refused(name, &refusal, plan.and_then(shown));
    if refusal == Refusal::UnknownModel {
        return not_served(name);
    }
    failure
}

/// The error for a model that is in the catalogue but not in the pool, because its memory needs could not be determined.
pub(crate) fn not_served(name: &str) -> Failure {
    Failure::not_found(format!(
        "{name} is in the catalogue but cannot be served; see the server log, then use POST /admin/reload to read its files again"
    ))
}
