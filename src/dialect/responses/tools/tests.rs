//! Tests of `tools.rs`.

use super::*;

fn read(tools: Value) -> Result<(Tools, Vec<String>), Failure> {
    let mut ignored = IgnoredFields::default();
    let tools = Tools::read(tools.as_array().unwrap().clone(), &mut ignored)?;
    Ok((tools, ignored.names()))
}

fn function_names(tools: &Tools) -> Vec<&str> {
    let names = tools.functions.iter();
    names
        .map(|function| function["function"]["name"].as_str().unwrap())
        .collect()
}

#[test]
fn server_side_tools_are_dropped_and_reported_and_others_become_functions() {
    let (tools, ignored) = read(json!([
        {"type": "function", "name": "f", "parameters": {"type": "object"}},
        {"type": "custom", "name": "edit", "description": "d"},
        {"type": "web_search_preview_2025_03_11", "search_context_size": "low"},
        {"type": "web_search", "external_web_access": true},
        {"type": "tool_search", "execution": "client", "parameters": {}},
        {"type": "mcp", "server_url": "http://x"},
    ]))
    .unwrap();
    assert_eq!(function_names(&tools), ["f", "edit"]);
    assert_eq!(
        ignored,
        ["tools.web_search", "tools.tool_search", "tools.mcp"]
    );
    assert_eq!(tools.echo.len(), 2);
    assert!(tools.names.of_client("edit").unwrap().is_custom);
    assert_eq!(tools.names.of_client("f"), None);
}

#[test]
fn namespaced_tools_keep_their_names_unless_they_collide() {
    let inner = |name: &str| json!({"type": "function", "name": name});
    let (tools, _) = read(json!([
        {"type": "namespace", "name": "agents", "tools": [inner("wait"), inner("list")]},
        {"type": "namespace", "name": "jobs", "tools": [inner("wait")]},
        inner("list"),
    ]))
    .unwrap();
    assert_eq!(
        function_names(&tools),
        ["wait", "agents__list", "jobs__wait", "list"]
    );
    let tool = tools.names.of_client("agents__list").unwrap();
    assert_eq!(
        (tool.name.as_str(), tool.namespace.as_deref()),
        ("list", Some("agents"))
    );
    let name = |namespace: Option<&str>| tools.names.of_model(namespace.map(str::to_owned), "wait");
    assert_eq!(name(Some("jobs")), "jobs__wait");
    assert_eq!(name(Some("agents")), "wait");
}

#[test]
fn an_allowed_tools_choice_removes_the_others() {
    let (mut tools, _) = read(json!([
        {"type": "function", "name": "a"}, {"type": "custom", "name": "b"},
        {"type": "function", "name": "c"}, {"type": "web_search"},
    ]))
    .unwrap();
    let choice = json!({"type": "allowed_tools", "mode": "required", "tools": [
        {"type": "custom", "name": "b"}, {"type": "web_search"}]});
    let mut request = RequestFields::new("", json!({"tool_choice": choice})).unwrap();
    let mut chat = Map::new();
    let chosen = tools.choose(&mut request, &mut chat, &mut IgnoredFields::default());
    assert_eq!(chosen.unwrap(), choice);
    assert_eq!(function_names(&tools), ["b"]);
    assert_eq!(chat["tool_choice"], "required");
}

#[test]
fn a_choice_of_a_server_side_tool_is_refused() {
    for (tools, choice, field) in [
        (json!([]), json!("required"), "tool_choice"),
        (
            json!([{"type": "web_search"}]),
            json!("required"),
            "tool_choice",
        ),
        (
            json!([{"type": "web_search"}]),
            json!({"type": "web_search"}),
            "tool_choice.type",
        ),
        (json!([]), json!({"type": "some"}), "tool_choice.type"),
        (
            json!([]),
            json!({"type": "allowed_tools"}),
            "tool_choice.tools",
        ),
    ] {
        let (mut tools, _) = read(tools).unwrap();
        let mut request = RequestFields::new("", json!({"tool_choice": choice})).unwrap();
        let mut ignored = IgnoredFields::default();
        let chosen = tools.choose(&mut request, &mut Map::new(), &mut ignored);
        let failure = chosen.unwrap_err();
        assert_eq!(failure.body.error.param.as_deref(), Some(field));
    }
    for (tool, field) in [
        (json!({"type": "function"}), "tools[0].name"),
        (json!({"type": "retrieval"}), "tools[0].type"),
        (
            json!({"type": "namespace", "name": "a", "tools": [{"type": "namespace"}]}),
            "tools[0].tools[0].type",
        ),
    ] {
        let failure = read(json!([tool])).unwrap_err();
        assert_eq!(failure.body.error.param.as_deref(), Some(field));
    }
}
