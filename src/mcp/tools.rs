//! The tools: names, descriptions, and the admin routes that carry them out. Their arguments are the parameters and fields of those
//! routes, and their schemas come from the OpenAPI document.

use std::sync::Arc;

use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde_json::{Map, Value, json};

use crate::caller::Level;
use crate::schemas::Schemas;

/// The default of `wait` of a load. A call is short: it does not last as long as the load.
pub(crate) const LOAD_WAITS: bool = false;

/// The work of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// Requests the route with the arguments in the query.
    Get(&'static str),
    /// Requests the route with the arguments as the body. Changes nothing.
    Post(&'static str),
    PlanLoad,
    PlanUnload,
    PlanSet,
    PlanCleanup,
    Apply,
}

impl Work {
    /// Returns true if null clears the setting of an argument. For all other tools null is the same as no argument.
    pub fn clears_with_null(self) -> bool {
        self == Work::PlanSet
    }
}

/// The route of the protocol, below the base path.
pub(crate) const MCP: &str = "/mcp";
/// Routes of planned changes.
pub(crate) const LOAD: &str = "/admin/load";
pub(crate) const UNLOAD: &str = "/admin/unload";
pub(crate) const MODELS: &str = "/admin/models";
pub(crate) const CLEANUP: &str = "/admin/cleanup";

#[derive(Clone, Copy, Debug)]
struct ToolRow {
    name: &'static str,
    work: Work,
    /// The roles that the route permits.
    levels: &'static [Level],
    description: &'static str,
}

const ALL: &[Level] = &[Level::User, Level::GroupAdmin, Level::Viewer, Level::Admin];
const READERS: &[Level] = &[Level::Viewer, Level::Admin];
const OVERSEERS: &[Level] = &[Level::GroupAdmin, Level::Viewer, Level::Admin];
const MANAGERS: &[Level] = &[Level::GroupAdmin, Level::Admin];
const ADMINS: &[Level] = &[Level::Admin];

const ROWS: [ToolRow; 15] = [
    ToolRow {
        name: "me",
        work: Work::Get("/me"),
        levels: ALL,
        description: "Your key with its limits, the models that you may use with their states, and your own requests.",
    },
    ToolRow {
        name: "my_usage",
        work: Work::Get("/me/usage"),
        levels: ALL,
        description: "Requests, tokens and device time of your key, by day and model.",
    },
    ToolRow {
        name: "models",
        work: Work::Get(MODELS),
        levels: READERS,
        description: "All models, or one: state, replicas, priority and where it comes from, memory, load times, failures.",
    },
    ToolRow {
        name: "devices",
        work: Work::Get("/admin/devices"),
        levels: READERS,
        description: "Devices with their memory by owner, use and cordons.",
    },
    ToolRow {
        name: "queue",
        work: Work::Get("/admin/queue"),
        levels: READERS,
        description: "Requests that wait for a model, and unfinished orders of administrators.",
    },
    ToolRow {
        name: "events",
        work: Work::Get("/admin/events"),
        levels: READERS,
        description: "The history of decisions with their reasons, oldest first, in pages.",
    },
    ToolRow {
        name: "why",
        work: Work::Get("/admin/why"),
        levels: READERS,
        description: "The decision behind an event, or behind the last load, eviction or refusal of a model.",
    },
    ToolRow {
        name: "report",
        work: Work::Get("/admin/report"),
        levels: READERS,
        description: "Loads, cold starts, evictions, waits, refusals and failures of a period, per model and group.",
    },
    ToolRow {
        name: "usage",
        work: Work::Get("/admin/usage"),
        levels: OVERSEERS,
        description: "Device time, tokens, energy and cost of a month, per key, model and group.",
    },
    ToolRow {
        name: "plan",
        work: Work::Post("/admin/plan"),
        levels: READERS,
        description: "The decision that a load would get now: placement, evictions and reasons. Changes nothing and gives no token.",
    },
    ToolRow {
        name: "plan_load",
        work: Work::PlanLoad,
        levels: MANAGERS,
        description: "Plans a load: what it would evict and why. Changes nothing. Show the plan to the user, then call apply with its token.",
    },
    ToolRow {
        name: "plan_unload",
        work: Work::PlanUnload,
        levels: MANAGERS,
        description: "Plans an unload: the replicas that would end, with their requests in flight. Changes nothing. Show the plan to the user, then call apply with its token.",
    },
    ToolRow {
        name: "plan_set",
        work: Work::PlanSet,
        levels: ADMINS,
        description: "Plans a change of a model's priority, keep-hot time or lease, and what would be loaded or evicted. An omitted setting stays, and null clears it. Changes nothing. Show the plan to the user, then call apply with its token.",
    },
    ToolRow {
        name: "plan_cleanup",
        work: Work::PlanCleanup,
        levels: ADMINS,
        description: "Plans the cleanup that empties the pool: the replicas that would end. Changes nothing. Show the plan to the user, then call apply with its token.",
    },
    ToolRow {
        name: "apply",
        work: Work::Apply,
        levels: MANAGERS,
        description: "Carries out exactly the planned change with this token, or refuses it if the pool has changed since. A token is valid once, for 60 s. Waits at most 10 s: status draining means that the order continues.",
    },
];

/// Arguments that a tool does not have although its route does: streams, other formats, and previews.
fn is_left_out(work: Work, name: &str) -> bool {
    match work {
        Work::Get("/admin/report") => matches!(name, "format" | "by"),
        Work::Get(_) => matches!(name, "format" | "follow"),
        // A plan shows the first replica of a load.
        Work::PlanLoad => name == "replicas",
        Work::PlanCleanup => name == "preview",
        Work::Post(_) | Work::PlanUnload | Work::PlanSet | Work::Apply => false,
    }
}

/// A tool with its schema.
pub(crate) struct PoolTool {
    pub work: Work,
    pub levels: &'static [Level],
    /// The names of its arguments.
    pub arguments: Vec<String>,
    pub tool: Tool,
}

/// All tools. `schemas` is the document of the routes.
pub(crate) fn all(schemas: &Schemas) -> Vec<PoolTool> {
    ROWS.iter().map(|row| row.with_schema(schemas)).collect()
}

impl ToolRow {
    fn with_schema(&self, schemas: &Schemas) -> PoolTool {
        let schema = match self.work {
            Work::Get(path) => schemas.query(path),
            Work::Post(_) | Work::PlanLoad => schemas.component("LoadRequest"),
            Work::PlanUnload => schemas.component("UnloadRequest"),
            Work::PlanSet => with_model(schemas.component("ModelPatch")),
            Work::PlanCleanup => schemas.component("CleanupRequest"),
            Work::Apply => apply_schema(),
        };
        let schema = closed(schema, self.work);
        let properties = schema.get("properties").and_then(Value::as_object);
        let arguments = properties.into_iter().flat_map(Map::keys).cloned();
        let reads = self.work != Work::Apply;
        let annotations = ToolAnnotations::new()
            .read_only(reads)
            .destructive(!reads)
            .open_world(false);
        PoolTool {
            work: self.work,
            levels: self.levels,
            arguments: arguments.collect(),
            tool: Tool::new(self.name, self.description, Arc::new(schema))
                .with_annotations(annotations),
        }
    }
}

fn with_model(mut schema: JsonObject) -> JsonObject {
    let model = json!({"type": "string", "description": "Name or alias of the model."});
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        properties.insert("model".to_owned(), model);
    }
    schema.insert("required".to_owned(), json!(["model"]));
    schema.remove("minProperties");
    schema
}

fn apply_schema() -> JsonObject {
    rmcp::model::object(json!({
        "type": "object",
        "properties": {"token": {"type": "string", "description": "The token of a plan."}},
        "required": ["token"],
    }))
}

/// The schema without the arguments that are left out, and without others.
fn closed(mut schema: JsonObject, work: Work) -> JsonObject {
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        properties.retain(|name, _| !is_left_out(work, name));
        if work == Work::PlanLoad
            && let Some(Value::Object(wait)) = properties.get_mut("wait")
        {
            wait.insert("default".to_owned(), Value::Bool(LOAD_WAITS));
        }
    }
    schema.remove("example");
    schema.remove("examples");
    schema.insert("additionalProperties".to_owned(), Value::Bool(false));
    schema
}

#[cfg(test)]
mod tests;
