//! Previews of cordoned devices and changed priorities. Nothing changes.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use utoipa::ToSchema;
use utoipa::openapi::schema::{Object, ObjectBuilder, SchemaType, Type};

use super::cordons::device;
use api_types::dto::WhatIfView;
use api_types::error::Failure;
use controller::Assumptions;
use gateway::auth::Reader;
use gateway::fields::{Body, Fields, Strict};
use gateway::known_model::known;
use gateway::openapi::AdminErrors;
use gateway::state::App;
use pool::Priority;

/// Largest number of devices and of models per request.
const MOST: usize = 64;

/// Assumptions of the simulation.
#[derive(Clone, Debug, Default, PartialEq, Eq, ToSchema)]
#[schema(example = json!({"cordoned": ["gpu1"], "priorities": {"tiny-chat": 2}}))]
pub(crate) struct WhatIfRequest {
    /// Devices out of service, by name, UUID or index.
    #[schema(value_type = Option<Vec<String>>, max_items = 64, example = json!(["gpu1"]))]
    pub cordoned: Vec<String>,
    /// Priorities of models, by name or alias; null for the catalogue's value.
    #[schema(schema_with = priorities_schema)]
    pub priorities: BTreeMap<String, Option<Priority>>,
}

/// A map from names to a priority or null.
fn priorities_schema() -> Object {
    let priority = ObjectBuilder::new()
        .schema_type(SchemaType::from_iter([Type::Integer, Type::Null]))
        .minimum(Some(0))
        .maximum(Some(1_000_000));
    ObjectBuilder::new()
        .schema_type(Type::Object)
        .additional_properties(Some(priority))
        .examples([serde_json::json!({"tiny-chat": 2})])
        .build()
}

impl Strict for WhatIfRequest {
    fn read(fields: &mut Fields) -> Result<WhatIfRequest, Failure> {
        let wrong = |field: &str, problem: String| {
            Failure::invalid(Some(field.to_owned()), format!("{field}: {problem}"))
        };
        let cordoned = fields.texts("cordoned")?;
        let mut priorities = BTreeMap::new();
        if let Some(object) = fields.map("priorities")? {
            for (model, value) in object {
                let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
                let number = number.filter(|number| *number <= Priority::MAX.0);
                if number.is_none() && !value.is_null() {
                    let problem = format!(
                        "{value} is not a priority; use a whole number from 0 to {}, or null for the catalogue's",
                        Priority::MAX
                    );
                    return Err(wrong("priorities", problem));
                }
                priorities.insert(model, number.map(Priority));
            }
        }
        for (field, count) in [
            ("cordoned", cordoned.len()),
            ("priorities", priorities.len()),
        ] {
            if count > MOST {
                let problem = format!("has {count} entries; allowed: at most {MOST}");
                return Err(wrong(field, problem));
            }
        }
        if cordoned.is_empty() && priorities.is_empty() {
            let problem = "the request assumes no change; name devices in `cordoned` or models in `priorities`";
            return Err(wrong("cordoned", problem.to_owned()));
        }
        Ok(WhatIfRequest {
            cordoned,
            priorities,
        })
    }
}

/// Preview a cordon or a priority
///
/// The decisions that the pool would make if these devices were out of service and these models had other priorities: replicas that
/// would leave, loads that would begin, and the result of the next request for a model without a replica. Computed by the pool's
/// own rules on a copy of its state. Nothing changes.
///
/// Administrators and viewers only.
#[utoipa::path(
    post, path = "/admin/what-if", tag = "admin: loading", operation_id = "preview_what_if", security(("admin_key" = [])),
    request_body(content = WhatIfRequest, example = json!({"cordoned": ["gpu1"], "priorities": {"tiny-chat": 2}})),
    responses(
        (status = 200, description = "What would happen", body = WhatIfView, example = json!({
            "leaving": [{"replica": "r1", "model": "tiny-code", "priority": 0, "devices": [{"device": "gpu1", "bytes": 17179869184_u64}],
                "in_flight": 0, "reason": "device gpu1 is cordoned (M7): what if"}],
            "loads": [], "next": []
        })),
        AdminErrors,
    )
)]
pub(crate) async fn preview(
    State(app): State<App>,
    _: Reader,
    Body(request): Body<WhatIfRequest>,
) -> Result<Json<WhatIfView>, Failure> {
    let snapshot = app.handle.snapshot();
    let mut assumptions = Assumptions::default();
    let of = |field: &str, mut failure: Failure| {
        failure.body.error.param = Some(field.to_owned());
        failure
    };
    for name in &request.cordoned {
        let found = device(&snapshot, name).map_err(|failure| of("cordoned", failure))?;
        if !assumptions.cordoned.contains(&found) {
            assumptions.cordoned.push(found);
        }
    }
    for (name, priority) in request.priorities {
        let route = known(&app, &name).map_err(|failure| of("priorities", failure))?;
        assumptions.priorities.push((route.model, priority));
    }
    let response = app.handle.what_if(assumptions).await?;
    let now = app.handle.clock().now();
    Ok(Json(WhatIfView::new(
        &response,
        now,
        &app.handle.snapshot(),
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assumptions_of_a_what_if_are_validated_strictly() {
        let read = |json: &str| WhatIfRequest::read(&mut Fields::parse(json.as_bytes()).unwrap());
        let good = read(r#"{"cordoned":["gpu1"],"priorities":{"m":2}}"#).unwrap();
        assert_eq!(good.priorities["m"], Some(Priority(2)));
        let cleared = read(r#"{"priorities":{"m":null}}"#).unwrap();
        assert_eq!(cleared.priorities["m"], None);
        for (json, field) in [
            ("{}", "cordoned"),
            (r#"{"cordoned":"gpu1"}"#, "cordoned"),
            (r#"{"priorities":{"m":-1}}"#, "priorities"),
            (r#"{"priorities":{"m":1000001}}"#, "priorities"),
            (r#"{"priorities":["m"]}"#, "priorities"),
        ] {
            let failure = read(json).expect_err(json);
            assert_eq!(failure.body.error.param.as_deref(), Some(field), "{json}");
        }
    }
}
