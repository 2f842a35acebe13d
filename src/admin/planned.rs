//! Plans of changes for clients that show the effect first and then order exactly that: loads, unloads, settings and the cleanup.
//! Nothing changes here; the order is given to the admin route with the planned effect.

use serde_json::{Map, Value, json};

use super::load::{check_load, not_served, order_of, refused, unload_command};
use super::load_requests::{LoadRequest, UnloadRequest};
use super::models::{self, ModelPatch};
use super::upkeep::{CleanupRequest, cleanup_command};
use api_types::dto::{self, CleanupResponse, EveningView, PlanView, WhatIfView};
use api_types::error::Failure;
use controller::{Assumptions, PlannedLoad, PlannedOrder, Snapshot};
use gateway::auth::sight::{ANOTHER, Sight};
use gateway::auth::{Admin, Manager};
use gateway::fields::{Fields, read};
use gateway::inference::understood;
use gateway::known_model::known;
use gateway::state::App;
use pool::{LoadPreview, OrderEffect, Outcome, Plan, Refusal};

/// A change that has been planned.
#[derive(Debug)]
pub struct PlannedChange {
    /// The effect for the client.
    pub view: Value,
    /// `None` if the change cannot be made now. The view has the reason.
    pub effect: Option<OrderEffect>,
}

/// Plans a load from the fields of a request to load a model.
pub async fn load(
    app: &App,
    admin: &Manager,
    fields: Map<String, Value>,
) -> Result<PlannedChange, Failure> {
    let request: LoadRequest = read(Fields::from(fields))?;
    check_load(admin, &request)?;
    let route = match admin {
        Manager::Group(admin) => understood::known(app, &admin.user, &request.model)?,
        Manager::Pool(_) => known(app, &request.model)?,
    };
    let name = &route.entry.name;
    let order = order_of(app, &route, &request).await?;
    let force = order.force;
    let PlannedLoad {
        refusal,
        preview,
        before,
    } = app.handle.planned_load(order, admin.priority_max()).await?;
    if let Some(refusal) = refusal.filter(is_above_group) {
        return Err(order_refused(app, name, refusal));
    }
    let Some((LoadPreview { plan, effect }, expected)) = preview else {
        return Err(not_served(name));
    };
    let sight = admin.of_group().map(|admin| &admin.user.sight);
    let plan = hide_refusal(plan, sight);
    let mut view = PlanView::from_plan(&plan, expected, force, before.pool.now, &before);
    hide_models(&mut view, sight);
    Ok(PlannedChange {
        view: value(&view)?,
        effect,
    })
}

/// Plans an unload from the fields of a request to unload a model.
pub async fn unload(
    app: &App,
    admin: &Manager,
    fields: Map<String, Value>,
) -> Result<PlannedChange, Failure> {
    let request: UnloadRequest = read(Fields::from(fields))?;
    let (name, command) = unload_command(app, admin, &request)?;
    let order = app
        .handle
        .planned_order(command, admin.priority_max(), None);
    let PlannedOrder { effect, before, .. } = order.await?;
    let effect = effect.map_err(|refusal| order_refused(app, &name, refusal))?;
    Ok(PlannedChange {
        view: json!({
            "model": name,
            "replicas": leaving(&before, effect.as_ref())?,
            "now": request.now,
        }),
        effect,
    })
}

/// Plans a change of a model's priority, keep-hot time or lease from the fields of the change.
pub async fn set(
    app: &App,
    admin: &Admin,
    model: &str,
    fields: Map<String, Value>,
) -> Result<PlannedChange, Failure> {
    let change = Value::Object(fields.clone());
    let patch: ModelPatch = read(Fields::from(fields))?;
    admin.check_priority(patch.priority.flatten())?;
    let route = known(app, model)?;
    let name = &route.entry.name;
    let command = models::set_command(app, &route, &patch);
    let assumptions = patch.priority.map(|priority| Assumptions {
        priorities: vec![(route.model, priority)],
        ..Assumptions::default()
    });
    let PlannedOrder {
        effect,
        what_if,
        before: snapshot,
    } = app.handle.planned_order(command, None, assumptions).await?;
    let effect = effect.map_err(|refusal| order_refused(app, name, refusal))?;
    let before = dto::find(&snapshot, name).ok_or_else(|| not_served(name))?;
    let consequences = match what_if {
        Some(what_if) => value(&WhatIfView::new(&what_if, snapshot.pool.now, &snapshot))?,
        None => Value::Null,
    };
    Ok(PlannedChange {
        view: json!({
            "model": name,
            "before": {
                "priority": before.priority,
                "keep_hot_ms": before.keep_hot_ms,
                "override": value(&before.over)?,
            },
            "change": change,
            "consequences": consequences,
        }),
        effect,
    })
}

/// Plans a cleanup from the fields of a request to clean up.
pub async fn cleanup(
    app: &App,
    _: &Admin,
    fields: Map<String, Value>,
) -> Result<PlannedChange, Failure> {
    let request: CleanupRequest = read(Fields::from(fields))?;
    let command = cleanup_command(app, &request);
    let order = app.handle.planned_order(command, None, None);
    let PlannedOrder { effect, before, .. } = order.await?;
    let effect = effect.map_err(|refusal| order_refused(app, "the cleanup", refusal))?;
    let now = dto::moment(app.handle.clock().now());
    let reopen_at = EveningView::from_config(&app.config(), true, now).next_reopen_at;
    Ok(PlannedChange {
        view: json!({
            "replicas": leaving(&before, effect.as_ref())?,
            "reopen_at": reopen_at,
        }),
        effect,
    })
}

/// The replicas that the order ends, as the response to a cleanup lists them.
fn leaving(before: &Snapshot, effect: Option<&OrderEffect>) -> Result<Value, Failure> {
    match effect {
        Some(OrderEffect::Leaving(replicas)) => {
            value(&CleanupResponse::done(replicas, before, None).replicas)
        }
        _ => Ok(Value::Array(Vec::new())),
    }
}

fn is_above_group(refusal: &Refusal) -> bool {
    matches!(
        refusal,
        Refusal::AboveGroup { .. } | Refusal::RequestAboveGroup { .. }
    )
}

fn order_refused(app: &App, name: &str, refusal: Refusal) -> Failure {
    let outcome = Outcome::Refused {
        refusal,
        plan: None,
    };
    refused(app, name, outcome, false)
}

/// Removes the names of models that the caller may not see from the reason.
fn hide_refusal(mut plan: Plan, sight: Option<&Sight>) -> Plan {
    if let Some(sight) = sight.filter(|sight| sight.is_bounded()) {
        plan.refusal = plan.refusal.map(|refusal| sight.refusal(refusal));
    }
    plan
}

/// Removes the names of models that the caller may not see, and the texts that may have them.
fn hide_models(view: &mut PlanView, sight: Option<&Sight>) {
    let Some(sight) = sight.filter(|sight| sight.is_bounded()) else {
        return;
    };
    view.waits_for.clear();
    view.candidates.clear();
    for victim in &mut view.victims {
        if !sight.has(&victim.model) {
            ANOTHER.clone_into(&mut victim.model);
        }
    }
}

fn value(view: &impl serde::Serialize) -> Result<Value, Failure> {
    serde_json::to_value(view)
        .map_err(|error| Failure::internal(format!("a plan cannot be written as JSON: {error}")))
}
