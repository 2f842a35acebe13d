//! Plans of changes for clients that show the effect first and then order exactly that: loads, unloads, settings and the cleanup.
//! Nothing changes here; the order is given to the admin route with the planned effect.

use serde_json::{Map, Value, json};

use super::load::{check_load, not_served, order_of, refused, unload_command};
use super::load_requests::{LoadRequest, UnloadRequest};
use super::models::{self, ModelPatch};
use super::upkeep::{CleanupRequest, cleanup_command};
use api_types::dto::{self, CleanupResponse, EveningView, PlanView, WhatIfView};
use api_types::error::Failure;
use controller::Assumptions;
use gateway::auth::sight::{ANOTHER, Sight};
use gateway::auth::{Admin, Manager};
use gateway::fields::{Fields, read};
use gateway::inference::understood;
use gateway::known_model::known;
use gateway::state::App;
use pool::{Command, OrderEffect, Outcome, Plan, Refusal};

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
    if let Some(most) = admin.priority_max() {
        let command = Command::Load(order.clone());
        let checked = app.handle.planned_effect(command, Some(most)).await?;
        if let Err(refusal) = checked
            && is_above_group(&refusal)
        {
            return Err(order_refused(app, name, refusal));
        }
    }
    let force = order.force;
    let planned = app.handle.plan(order).await?;
    let Some((plan, expected)) = planned else {
        return Err(not_served(name));
    };
    let effect = OrderEffect::from_preview(&plan);
    let sight = admin.of_group().map(|admin| &admin.user.sight);
    let plan = hide_refusal(plan, sight);
    let now = app.handle.clock().now();
    let mut view = PlanView::from_plan(&plan, expected, force, now, &app.handle.snapshot());
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
    let effect = app
        .handle
        .planned_effect(command, admin.priority_max())
        .await?;
    let effect = effect.map_err(|refusal| order_refused(app, &name, refusal))?;
    Ok(PlannedChange {
        view: json!({
            "model": name,
            "replicas": leaving(app, effect.as_ref())?,
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
    let effect = app.handle.planned_effect(command, None).await?;
    let effect = effect.map_err(|refusal| order_refused(app, name, refusal))?;
    let before = models::view(app, name)?;
    let consequences = match patch.priority {
        Some(priority) => {
            let assumptions = Assumptions {
                priorities: vec![(route.model, priority)],
                ..Assumptions::default()
            };
            let what_if = app.handle.what_if(assumptions).await?;
            let now = app.handle.clock().now();
            value(&WhatIfView::new(&what_if, now, &app.handle.snapshot()))?
        }
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
    let effect = app.handle.planned_effect(command, None).await?;
    let effect = effect.map_err(|refusal| order_refused(app, "the cleanup", refusal))?;
    let now = dto::moment(app.handle.clock().now());
    let reopen_at = EveningView::from_config(&app.config(), true, now).next_reopen_at;
    Ok(PlannedChange {
        view: json!({
            "replicas": leaving(app, effect.as_ref())?,
            "reopen_at": reopen_at,
        }),
        effect,
    })
}

/// The replicas that the order ends, as the response to a cleanup lists them.
fn leaving(app: &App, effect: Option<&OrderEffect>) -> Result<Value, Failure> {
    match effect {
        Some(OrderEffect::Leaving(replicas)) => {
            value(&CleanupResponse::done(replicas, &app.handle.snapshot(), None).replicas)
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
