//! Load, unload and plan. An accepted order continues when its client disconnects.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use utoipa::ToSchema;

use api_types::dto::{LoadResponse, PlanView, UnloadResponse};
use api_types::error::Failure;
use controller::Route;
use gateway::auth::{Admin, Reader};
use gateway::fields::{Body, Fields, OrderFields, Strict};
use gateway::inference::request::hub_registration;
use gateway::known_model::known;
use gateway::openapi::AdminErrors;
use gateway::state::App;
use pool::{Command, LoadOrder, Outcome, Plan, Priority, Refusal, ReplicaId, Span};

/// Largest number of replicas per order.
const REPLICAS_MAX: u32 = 64;
/// Largest number of devices per replica.
const DEVICES_MAX: u32 = 1024;

/// Request to load a model, or to plan a load.
#[derive(Clone, Debug, PartialEq, Eq, ToSchema)]
#[schema(example = json!({"model": "tiny-chat", "priority": 1, "keep_hot": "30m"}))]
pub struct LoadRequest {
    /// Name or alias of the model.
    #[schema(min_length = 1, example = "tiny-chat")]
    pub model: String,
    /// Sets the model's priority as an override (P1). The override is permanent unless `lease` is set.
    #[schema(value_type = Option<u32>, minimum = 0, maximum = 1_000_000)]
    pub priority: Option<Priority>,
    /// Desired number of replicas. Defaults to the current number, and at least one.
    #[schema(minimum = 1, maximum = 64)]
    pub replicas: Option<u32>,
    /// Number of devices per new replica, instead of the catalogue's value (M5).
    #[schema(minimum = 1, maximum = 1024)]
    pub gpus: Option<u32>,
    /// Time that a replica stays after its last request (L2), `1s` to `365d`. An override that is permanent unless `lease` is set.
    #[schema(value_type = Option<String>, pattern = "^([1-9][0-9]{0,2}(s|m|h)|([1-9][0-9]?|[12][0-9]{2})d)( [1-9][0-9]?(s|m|h)){0,2}$", example = "30m")]
    pub keep_hot: Option<Span>,
    /// Lifetime of the overrides, `1s` to `365d` from now. Keep-hot does not unload the model during the lease.
    #[schema(value_type = Option<String>, pattern = "^([1-9][0-9]{0,2}(s|m|h)|([1-9][0-9]?|[12][0-9]{2})d)( [1-9][0-9]?(s|m|h)){0,2}$", example = "2h")]
    pub lease: Option<Span>,
    /// Permits evicting replicas of equal priority and always-hot models (P4).
    #[schema(value_type = Option<bool>, default = false)]
    pub force: bool,
    /// Responds after the load has finished (true), or as soon as the order is stored (false).
    #[schema(value_type = Option<bool>, default = true)]
    pub wait: bool,
}

impl Strict for LoadRequest {
    fn read(fields: &mut Fields) -> Result<LoadRequest, Failure> {
        Ok(LoadRequest {
            model: fields.needed_text("model", "\"tiny-chat\"; GET /admin/models lists them")?,
            priority: fields
                .integer("priority", 0..=Priority::MAX.0)?
                .map(Priority),
            replicas: fields.integer("replicas", 1..=REPLICAS_MAX)?,
            gpus: fields.integer("gpus", 1..=DEVICES_MAX)?,
            keep_hot: fields.length("keep_hot")?,
            lease: fields.length("lease")?,
            force: fields.flag("force")?.unwrap_or(false),
            wait: fields.flag("wait")?.unwrap_or(true),
        })
    }
}

/// Request to unload a model or a replica.
#[derive(Clone, Debug, PartialEq, Eq, ToSchema)]
#[schema(example = json!({"model": "tiny-chat"}))]
pub struct UnloadRequest {
    #[schema(min_length = 1, example = "tiny-chat")]
    pub model: String,
    /// Id of a single replica, such as `r3`. Defaults to all replicas.
    #[schema(value_type = Option<String>, pattern = "^r[0-9]{1,18}$", example = "r3")]
    pub replica: Option<ReplicaId>,
    /// Cuts requests in flight instead of waiting for them.
    #[schema(value_type = Option<bool>, default = false)]
    pub now: bool,
}

impl Strict for UnloadRequest {
    fn read(fields: &mut Fields) -> Result<UnloadRequest, Failure> {
        Ok(UnloadRequest {
            model: fields.needed_text("model", "\"tiny-chat\"")?,
            replica: fields.replica("replica")?,
            now: fields.flag("now")?.unwrap_or(false),
        })
    }
}

/// Load a model
///
/// Starts replicas of the model and evicts others as far as the rules allow. The order survives restarts. The response is sent when
/// the load has ended, or with `wait: false` as soon as it has begun. A refused load gets a 409 with the plan and its reasons. With
/// `wait: false` that applies to every load whose plan is not feasible now.
///
/// Administrators only.
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
    admin: Admin,
    Body(request): Body<LoadRequest>,
) -> Result<Response, Failure> {
    let since = app.handle.clock().now();
    admin.check_priority(request.priority)?;
    let route = match app.handle.route(&request.model) {
        Some(route) => route,
        None => hub_registration::of_administrator(&app, &request.model).await?,
    };
    let order = order_of(&app, &route, &request).await?;
    let name = route.entry.name.clone();
    let replicas = order.replicas;
    let force = order.force;
    let mut ordered = app.handle.order(Command::Load(order), Some(admin.by))?;
    let id = ordered.order;
    tracing::info!(admin = admin.name, model = name, order = %id, replicas, force, "load ordered");
    let outcome = if request.wait {
        ordered.settled().await?
    } else {
        ordered.accepted().await?;
        match ordered.try_settled() {
            Some(outcome) => outcome,
            None => {
                let snapshot = app.handle.snapshot();
                let begun = snapshot.pool.orders.iter().find(|order| order.order == id);
                let wanted = begun
                    .and_then(|order| order.replicas)
                    .or(replicas)
                    .unwrap_or(1);
                let took = app.handle.clock().now().since(since);
                let response = LoadResponse::started(&name, wanted, id, took);
                return Ok((StatusCode::ACCEPTED, Json(response)).into_response());
            }
        }
    };
    let snapshot = app.handle.snapshot();
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
/// The decision that a load would get now: placement, evictions and reasons. Nothing changes.
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
    let route = known(&app, &request.model)?;
    let order = order_of(&app, &route, &request).await?;
    let force = order.force;
    let Some((plan, expected)) = app.handle.plan(order).await? else {
        return Err(not_served(&route.entry.name));
    };
    let now = app.handle.clock().now();
    Ok(Json(PlanView::from_plan(
        &plan,
        expected,
        force,
        now,
        &app.handle.snapshot(),
    )))
}

/// Unload a model
///
/// Drains and stops all replicas of the model, or a single replica. The response is sent when they are gone.
///
/// Administrators only.
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
    admin: Admin,
    Body(request): Body<UnloadRequest>,
) -> Result<Json<UnloadResponse>, Failure> {
    let since = app.handle.clock().now();
    let route = known(&app, &request.model)?;
    let name = route.entry.name.clone();
    let UnloadRequest { replica, now, .. } = request;
    let command = Command::Unload {
        model: route.model,
        replica,
        now,
    };
    let ordered = app.handle.order(command, Some(admin.by))?;
    tracing::info!(admin = admin.name, model = name, order = %ordered.order, now, "unload ordered");
    match ordered.settled().await? {
        Outcome::Unloaded { replicas } => {
            let took_ms = app.handle.clock().now().since(since).0;
            let unloaded = replicas.iter().map(ReplicaId::to_string).collect();
            Ok(Json(UnloadResponse {
                model: name,
                unloaded,
                took_ms,
            }))
        }
        other => Err(refused(&app, &name, other, false)),
    }
}

/// Builds the order for a load.
async fn order_of(app: &App, route: &Route, request: &LoadRequest) -> Result<LoadOrder, Failure> {
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

/// Waits for an order that unloads replicas, and returns them.
pub(crate) async fn gone(
    app: &App,
    admin: &Admin,
    command: Command,
    what: &str,
) -> Result<Vec<ReplicaId>, Failure> {
    let ordered = app.handle.order(command, Some(admin.by))?;
    match ordered.settled().await? {
        Outcome::Cleaned { replicas } => Ok(replicas),
        other => Err(refused(app, what, other, false)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(json: &str) -> Result<LoadRequest, Failure> {
        LoadRequest::read(&mut Fields::parse(json.as_bytes())?)
    }

    #[test]
    fn a_load_waits_and_does_not_force_by_default() {
        let request = load(r#"{"model":"m"}"#).unwrap();
        assert!(request.wait && !request.force);
        assert_eq!(
            (request.replicas, request.gpus, request.priority),
            (None, None, None)
        );
    }

    #[test]
    fn the_limits_of_load_fields_are_enforced() {
        let at_most =
            r#"{"model":"m","replicas":64,"gpus":1024,"priority":1000000,"keep_hot":"365d"}"#;
        assert!(load(at_most).is_ok());
        for field in [
            "\"replicas\":65",
            "\"replicas\":0",
            "\"gpus\":1025",
            "\"gpus\":0",
            "\"priority\":1000001",
        ] {
            let failure = load(&format!("{{\"model\":\"m\",{field}}}")).expect_err(field);
            let param = failure.body.error.param.unwrap();
            assert!(field.contains(&param), "{field} blamed on {param}");
        }
        assert_eq!(
            load("{}")
                .expect_err("no model")
                .body
                .error
                .param
                .as_deref(),
            Some("model")
        );
    }

    #[test]
    fn a_replica_is_named_in_the_form_of_responses() {
        let unload = |json: &str| UnloadRequest::read(&mut Fields::parse(json.as_bytes()).unwrap());
        assert_eq!(
            unload(r#"{"model":"m","replica":"r3"}"#).unwrap().replica,
            Some(ReplicaId(3))
        );
        for wrong in ["3", "rr3", "r", "r-1", "r99999999999999999999"] {
            let failure =
                unload(&format!(r#"{{"model":"m","replica":"{wrong}"}}"#)).expect_err(wrong);
            assert_eq!(failure.body.error.param.as_deref(), Some("replica"));
        }
    }
}
