//! A caller's own data, readable with any key: models, waiting and running requests, usage, and the key. Hidden models are not
//! named.

use axum::Json;
use axum::extract::{FromRequestParts, State};
use axum::http::request::Parts;
use utoipa::IntoParams;

use crate::session::role_of;
use api_types::dto::{
    self, KeyView, MeView, MyDeviceTime, MyGroup, MyModel, MyRunningRequest, MyUsage,
    MyWaitingRequest, WaitingView,
};
use api_types::error::Failure;
use gateway::auth::User;
use gateway::auth::credential::{Credential, Sent};
use gateway::fields::{Fields, Nothing, Params, Strict};
use gateway::groups_view;
use gateway::openapi::ListingErrors;
use gateway::state::App;
use pool::{KeyId, ReplicaState};
use store::{KeyRecord, Role};

/// Number of days that the store keeps.
const DAYS_MAX: u32 = 100;
const DAYS: u32 = 30;
/// Largest number of rows in a response.
const ROWS_MAX: u32 = 10_000;

/// The caller, with the key or name.
pub(crate) struct Myself {
    user: User,
    key: Option<Box<KeyRecord>>,
    name: String,
    role: &'static str,
}

impl FromRequestParts<App> for Myself {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Myself, Failure> {
        let Sent { credential, .. } = Sent::new(parts, app).await?;
        let (key, name, role) = match &credential {
            Credential::Key(key) => (Some(key.clone()), key.name.clone(), key.role.name()),
            Credential::Person(person) => {
                let identity = &person.identity;
                (None, identity.name.clone(), role_of(identity).1.name())
            }
            _ => (None, "anonymous".to_owned(), Role::User.name()),
        };
        Ok(Myself {
            user: User::new(credential, parts, app)?,
            key,
            name,
            role,
        })
    }
}

/// Show your key, models and requests
///
/// Your key with its limits and expiry, the models that you may use with their states, and your own requests: waiting ones with
/// model and waiting time, and those in progress. Nothing is loaded for this.
///
/// Every key may call this.
#[utoipa::path(get, path = "/me", tag = "session", operation_id = "show_me", security(("user_key" = [])),
    responses((status = 200, description = "The caller, with models and requests", body = MeView, example = json!({
        "name": "course 4711", "role": "user", "key": {"id": "k3", "name": "course 4711", "role": "user", "group": "lab", "prefix": "mp-Ab3xY9",
            "created_at": "2026-01-10T08:00:00.000Z", "last_used_at": "2026-01-31T20:14:59.000Z",
            "expires_at": "2026-07-09T08:00:00.000Z", "models": ["tiny-*"], "routes": [], "limits": null, "log_prompts": false},
        "limits": {"requests_per_minute": 60, "tokens_per_minute": null, "concurrent_requests": 4, "tokens_per_day": null},
        "group": {"path": "physics/lab", "share_now": 0.5, "class_max": "default", "priority_max": null,
            "quotas": [{"gpu_hours": 100.0, "tokens": null, "at_end": "lowest", "used_ratio": 0.31}],
            "month_ends_at": "2026-01-31T23:00:00.000Z"},
        "models": [{"model": "tiny-chat", "aliases": [], "state": "loading", "priority": 1, "ready_replicas": 0,
            "load_ms_expected": 6100, "remote": false}],
        "waiting": [{"ticket": "t17", "model": "tiny-chat", "position": 1, "waited_ms": 2100, "expected_ms": 4000,
            "expected_ms_min": null, "expected_ms_max": null, "stage": "loading"}],
        "running": []
    })), ListingErrors))]
pub(crate) async fn show(State(app): State<App>, me: Myself, _: Params<Nothing>) -> Json<MeView> {
    let key = me.user.key;
    let is_counted = key != KeyId(0);
    let snapshot = app.handle.snapshot();
    let now = app.handle.clock().now();
    let sight = &me.user.sight;
    let models = snapshot.pool.models.iter().filter_map(|view| {
        let entry = &snapshot.models.get(&view.model)?.entry;
        let ready = view.replicas.iter();
        let ready = ready
            .filter(|replica| replica.state == ReplicaState::Ready)
            .count();
        let aliases = entry.aliases.iter().filter(|name| sight.has(name));
        sight.may_use_base(entry).then(|| MyModel {
            model: view.name.clone(),
            aliases: aliases.cloned().collect(),
            state: view.state.name(),
            priority: view.priority.0,
            ready_replicas: u32::try_from(ready).unwrap_or(u32::MAX),
            load_ms_expected: view.reload.0,
            remote: entry.recipe.is_remote(),
        })
    });
    let mut models: Vec<MyModel> = models.collect();
    models.sort_by(|one, other| one.model.cmp(&other.model));
    let waiting = if is_counted {
        WaitingView::of_key(&snapshot, key)
    } else {
        Vec::new()
    };
    let waiting = waiting.into_iter().map(|waiter| MyWaitingRequest {
        ticket: waiter.ticket,
        model: waiter.model,
        position: waiter.position,
        waited_ms: waiter.waited_ms,
        expected_ms: waiter.expected_ms,
        expected_ms_min: waiter.expected_ms_min,
        expected_ms_max: waiter.expected_ms_max,
        stage: waiter.stage,
    });
    let running = app.usages.running(key).into_iter();
    let running = running.map(|request| MyRunningRequest {
        model: request.model.to_string(),
        waited_ms: request.seated_at.since(request.arrived_at).0,
        running_ms: now.since(request.seated_at).0,
    });
    let group = me.user.group.as_ref();
    let group = group.and_then(|group| MyGroup::new(&groups_view::list(&app), &group.name));
    Json(MeView {
        name: me.name,
        role: me.role,
        key: me.key.as_deref().map(|key| {
            let group = me.user.group.as_ref().map(|group| group.name.to_string());
            KeyView::new(key, group)
        }),
        limits: me.user.account.limit,
        group,
        models,
        waiting: waiting.collect(),
        running: running.collect(),
    })
}

#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct UsageQuery {
    /// Number of days, including the current one. The default is 30.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 100, example = 30)]
    days: u32,
}

impl Strict for UsageQuery {
    fn read(fields: &mut Fields) -> Result<UsageQuery, Failure> {
        let days = fields.integer("days", 1..=DAYS_MAX)?;
        Ok(UsageQuery {
            days: days.unwrap_or(DAYS),
        })
    }
}

/// Show your usage
///
/// Requests and tokens of your key, by day and model, as counted by the engines, and the device time that is charged to it. A
/// hundred days are kept. Days begin at midnight in
/// the pool's time zone.
///
/// Every key may call this.
#[utoipa::path(get, path = "/me/usage", tag = "session", operation_id = "show_my_usage", security(("user_key" = [])),
    params(UsageQuery),
    responses((status = 200, description = "The days in which there were requests", body = MyUsage, example = json!({
        "today": "2026-01-31", "days": [{"day": "2026-01-31", "models": [
            {"model": "tiny-chat", "requests": 12, "prompt_tokens": 4800, "completion_tokens": 2100,
                "batches": {"requests": 2, "prompt_tokens": 800, "completion_tokens": 350}}]}],
        "device_time": [{"model": "tiny-chat",
            "seconds": {"used": 360.0, "used_by_batches": 60.0, "idle": 60.0, "loading": 1.5, "asleep": 0.0, "foreign": 0.0, "cordoned": 0.0, "free": 0.0, "not_known": 0.0},
            "byte_seconds": 3.6e12, "energy_joules": null, "energy_known_seconds": 0.0, "cost": null}]
    })), ListingErrors))]
pub(crate) async fn usage(
    State(app): State<App>,
    me: Myself,
    Params(query): Params<UsageQuery>,
) -> Result<Json<MyUsage>, Failure> {
    let used = app.usages.of_key(me.user.key, query.days, ROWS_MAX).await;
    let (rows, today) = used.map_err(|fault| {
        tracing::error!(%fault, "the usage of a key cannot be read");
        Failure::internal("your usage cannot be read now; see the server log")
    })?;
    let first = today - i64::from(query.days) + 1;
    let store = app.handle.store();
    let key = me.user.key;
    // Requests without a key share an account that is not the caller's.
    let days = (key != KeyId(0)).then_some(first..=today);
    let days = days.into_iter().flatten();
    let sums = store.ledger_of_payer(&key.to_string(), days).await;
    let sums = sums.map_err(|fault| {
        tracing::error!(%fault, "the ledger of a key cannot be read");
        Failure::internal("your usage cannot be read now; see the server log")
    })?;
    let time = MyDeviceTime::all(&sums, &app.config().usage.prices);
    Ok(Json(dto::MyUsage::new(rows, today, time)))
}
