//! Tests that every tool has a complete schema from the document of the routes.

use std::collections::BTreeSet;

use super::*;
use admin::{routes, service_routes};

fn tools() -> Vec<PoolTool> {
    let document = routes().merge(service_routes()).into_openapi();
    all(&Schemas::new(&document))
}

fn arguments(name: &str) -> BTreeSet<String> {
    let tools = tools();
    let tool = tools.iter().find(|tool| tool.tool.name == name);
    tool.expect(name).arguments.iter().cloned().collect()
}

fn names(list: &[&str]) -> BTreeSet<String> {
    list.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn every_route_of_a_tool_is_in_the_document() {
    let document = routes().merge(service_routes()).into_openapi();
    let document = serde_json::to_value(document).unwrap();
    for row in ROWS {
        let (method, path) = match row.work {
            Work::Get(path) => ("get", path),
            Work::Post(path) => ("post", path),
            Work::Apply => continue,
            Work::PlanLoad => ("post", LOAD),
            Work::PlanUnload => ("post", UNLOAD),
            Work::PlanSet => ("patch", MODELS),
            Work::PlanCleanup => ("post", CLEANUP),
        };
        assert!(
            document["paths"][path][method].is_object(),
            "{method} {path}"
        );
    }
}

#[test]
fn the_arguments_of_tools_are_those_of_their_routes() {
    assert_eq!(arguments("models"), names(&["model"]));
    assert_eq!(arguments("devices"), names(&[]));
    assert_eq!(arguments("why"), names(&["event", "model"]));
    assert_eq!(arguments("report"), names(&["from", "to"]));
    assert_eq!(
        arguments("usage"),
        names(&["month", "group", "model", "of", "charts"])
    );
    assert_eq!(
        arguments("plan_load"),
        names(&[
            "model", "priority", "gpus", "keep_hot", "lease", "force", "wait"
        ])
    );
    assert_eq!(
        arguments("plan_unload"),
        names(&["model", "replica", "now"])
    );
    assert_eq!(
        arguments("plan_set"),
        names(&["model", "priority", "keep_hot", "lease"])
    );
    assert_eq!(arguments("plan_cleanup"), names(&["mode"]));
    assert_eq!(arguments("apply"), names(&["token"]));
    let events = arguments("events");
    assert!(
        events.contains("since") && !events.contains("follow"),
        "{events:?}"
    );
}

#[test]
fn schemas_are_closed_objects_without_references() {
    for tool in tools() {
        let schema = serde_json::to_value(&tool.tool.input_schema).unwrap();
        let name = &tool.tool.name;
        assert_eq!(schema["type"], "object", "{name}: {schema}");
        assert_eq!(schema["additionalProperties"], false, "{name}: {schema}");
        assert!(!schema.to_string().contains("$ref"), "{name}: {schema}");
        for (argument, described) in schema["properties"].as_object().unwrap() {
            assert!(
                described.get("type").is_some()
                    || described.get("enum").is_some()
                    || described.get("oneOf").is_some(),
                "{name}.{argument}: {described}"
            );
        }
    }
}

#[test]
fn required_arguments_are_those_of_the_routes() {
    for tool in tools() {
        let schema = serde_json::to_value(&tool.tool.input_schema).unwrap();
        let required = schema.get("required").cloned().unwrap_or_default();
        let expected = match tool.tool.name.as_ref() {
            "plan" | "plan_load" | "plan_unload" | "plan_set" => json!(["model"]),
            "apply" => json!(["token"]),
            _ => continue,
        };
        assert_eq!(required, expected, "{}", tool.tool.name);
    }
}

#[test]
fn only_apply_is_not_read_only_and_users_see_only_their_own_data() {
    for tool in tools() {
        let annotations = tool.tool.annotations.as_ref().unwrap();
        let is_apply = tool.tool.name == "apply";
        assert_eq!(annotations.read_only_hint, Some(!is_apply));
        assert_eq!(annotations.destructive_hint, Some(is_apply));
        assert!(tool.levels.contains(&Level::Admin));
    }
    let of_users = ROWS.iter().filter(|row| row.levels.contains(&Level::User));
    let of_users: Vec<_> = of_users.map(|row| row.name).collect();
    assert_eq!(of_users, ["me", "my_usage"]);
}

#[test]
fn an_unknown_argument_is_refused_by_its_name() {
    let tools = tools();
    let models = tools
        .iter()
        .find(|tool| tool.tool.name == "models")
        .unwrap();
    let arguments = json!({"modle": "x"});
    let failure = models
        .check_names(arguments.as_object().unwrap())
        .unwrap_err();
    assert_eq!(failure.body.error.param.as_deref(), Some("modle"));
    assert!(failure.body.error.message.contains("known here: model"));
}

#[test]
fn null_is_the_same_as_no_argument_except_for_the_tool_that_clears_settings() {
    for tool in tools() {
        let name = tool.tool.name.as_ref();
        let given = tool
            .arguments
            .iter()
            .map(|name| (name.clone(), Value::Null));
        let mut arguments: Map<String, Value> = given.collect();
        tool.check_names(&arguments).unwrap();
        tool.omit_nulls(&mut arguments);
        let kept: BTreeSet<String> = arguments.into_iter().map(|(name, _)| name).collect();
        let expected = match name {
            "plan_set" => names(&["model", "priority", "keep_hot", "lease"]),
            _ => names(&[]),
        };
        assert_eq!(kept, expected, "{name}");
    }
}

#[test]
fn the_schema_of_a_load_has_the_default_of_the_tool() {
    let tools = tools();
    let of = |name: &str| {
        let tool = tools.iter().find(|tool| tool.tool.name == name);
        let schema = serde_json::to_value(&tool.expect(name).tool.input_schema).unwrap();
        schema["properties"]["wait"]["default"].clone()
    };
    assert_eq!(of("plan_load"), LOAD_WAITS);
    // Without an effect on a plan, it keeps the default of its route.
    assert_eq!(of("plan"), true);
}

#[test]
fn values_other_than_null_are_kept() {
    for tool in tools() {
        let values = [json!(false), json!(0), json!(""), json!([])];
        for value in values {
            let given = tool
                .arguments
                .iter()
                .map(|name| (name.clone(), value.clone()));
            let arguments: Map<String, Value> = given.collect();
            let mut kept = arguments.clone();
            tool.omit_nulls(&mut kept);
            assert_eq!(kept, arguments, "{}", tool.tool.name);
        }
    }
}
