//! Parses the tool fields of a request.

use super::format::{NAME_WANTED, SCHEMA_BYTES_MAX, checked_schema, is_name};
use crate::api_error::ApiError;
use crate::fields::{Fields, expected};
use crate::tools::{Tool, ToolChoice, Tools};
use reading::IgnoredFields;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// The fields of a function.
const FUNCTION: [&str; 4] = ["name", "description", "parameters", "strict"];
/// OpenAI's limit.
const TOOLS_MAX: usize = 128;
/// Maximum size of all tools together; a forced call compiles all their schemas.
const TOOLS_BYTES_MAX: usize = 4 * SCHEMA_BYTES_MAX;

/// Takes the tools of a request and the tool choice. Unknown fields of tools are dropped and reported as ignored.
pub(crate) fn take_tools(
    fields: &mut Fields,
    ignored: &mut IgnoredFields,
) -> Result<Tools, ApiError> {
    let list = match fields.take("tools") {
        None => Vec::new(),
        Some(Value::Array(list)) if list.len() <= TOOLS_MAX => {
            let tools = list.into_iter().enumerate();
            tools
                .map(|(index, tool)| parse_tool(index, tool, ignored))
                .collect::<Result<_, _>>()?
        }
        Some(other) => {
            let wanted = format!("a list of at most {TOOLS_MAX} tools");
            return Err(expected("tools", wanted, &other));
        }
    };
    let bytes = |tool: &Tool| tool.definition.to_string().len();
    let bytes: usize = list.iter().map(bytes).sum();
    if bytes > TOOLS_BYTES_MAX {
        return Err(ApiError::field(
            "tools",
            format!("`tools` has {bytes} bytes; at most {TOOLS_BYTES_MAX} are allowed"),
        ));
    }
    let mut names = BTreeSet::new();
    if let Some(twice) = list.iter().find(|tool| !names.insert(&tool.name)) {
        return Err(ApiError::field(
            "tools",
            format!("`tools` has the function {:?} twice", twice.name),
        ));
    }
    let choice = match fields.take("tool_choice") {
        None => ToolChoice::Auto,
        Some(value) => parse_choice(&value)?,
    };
    match &choice {
        ToolChoice::Named(name) if !names.contains(name) => {
            return Err(ApiError::field(
                "tool_choice",
                format!("`tool_choice` names the function {name:?}, which is not in `tools`"),
            ));
        }
        ToolChoice::Required if list.is_empty() => {
            return Err(ApiError::field(
                "tool_choice",
                "`tool_choice` requires a call, but there are no `tools`",
            ));
        }
        _ => {}
    }
    Ok(Tools {
        list,
        choice,
        parallel: fields.flag("parallel_tool_calls")?.unwrap_or(true),
    })
}

fn parse_tool(
    index: usize,
    definition: Value,
    ignored: &mut IgnoredFields,
) -> Result<Tool, ApiError> {
    let place = format!("tools[{index}]");
    let parts = definition
        .as_object()
        .filter(|tool| tool.get("type").is_some_and(|kind| kind == "function"));
    let function = parts.and_then(|tool| tool.get("function")?.as_object());
    let (Some(parts), Some(function)) = (parts, function) else {
        let wanted = "an object with `type` \"function\" and an object `function`";
        return Err(expected(&place, wanted, &definition));
    };
    let mut rest = Fields::at("tools", parts.clone());
    rest.take("type");
    rest.take("function");
    rest.drop_rest(ignored);
    let mut fields = Fields::at(format!("{place}.function"), function.clone());
    let name = fields.take("name").unwrap_or_default();
    let Some(name) = name.as_str().filter(|name| is_name(name)) else {
        return Err(expected(&fields.path("name"), NAME_WANTED, &name));
    };
    fields.text("description")?;
    let parameters = match fields.take("parameters") {
        None => None,
        Some(schema) => Some(checked_schema(&fields.path("parameters"), schema)?),
    };
    let strict = fields.flag("strict")?.unwrap_or(false);
    fields.drop_rest(ignored);
    let known = |(key, _): &(&String, &Value)| FUNCTION.contains(&key.as_str());
    let function: Map<String, Value> = function
        .iter()
        .filter(known)
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    Ok(Tool {
        name: name.to_owned(),
        parameters,
        strict,
        definition: json!({"type": "function", "function": function}),
    })
}

fn parse_choice(value: &Value) -> Result<ToolChoice, ApiError> {
    let named = || {
        let object = value.as_object()?;
        (object.get("type")? == "function").then_some(())?;
        object.get("function")?.get("name")?.as_str()
    };
    match value.as_str() {
        Some("none") => Ok(ToolChoice::None),
        Some("auto") => Ok(ToolChoice::Auto),
        Some("required") => Ok(ToolChoice::Required),
        _ => named()
            .map(|name| ToolChoice::Named(name.to_owned()))
            .ok_or_else(|| {
                let wanted = "one of none, auto, required, or {\"type\": \"function\", \"function\": {\"name\": …}}";
                expected("tool_choice", wanted, value)
            }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(body: Value) -> Result<Tools, ApiError> {
        let mut fields = Fields::parse(body.to_string().as_bytes()).expect("an object");
        take_tools(&mut fields, &mut IgnoredFields::default())
    }

    fn tool(name: &str) -> Value {
        json!({"type": "function", "function": {"name": name, "parameters": {"type": "object"}}})
    }

    #[test]
    fn tools_and_tool_choice_are_parsed() {
        let tools = take(
            json!({"tools": [tool("a"), tool("b")], "tool_choice": {"type": "function", "function": {"name": "b"}}}),
        );
        let tools = tools.expect("is taken");
        assert_eq!(tools.choice, ToolChoice::Named("b".to_owned()));
        let demanded = tools.demanded().expect("one is demanded");
        assert_eq!((demanded.len(), demanded[0].name.as_str()), (1, "b"));
        assert!(tools.parallel && tools.offered().len() == 2);
        let none = take(json!({"tools": [tool("a")], "tool_choice": "none"})).expect("is taken");
        assert!(none.offered().is_empty() && none.demanded().is_none());
        assert_eq!(take(json!({"tools": []})).expect("is taken").list, []);
    }

    #[test]
    fn unknown_tool_fields_do_not_reach_the_template() {
        let tool = json!({"cache_control": {"type": "ephemeral"}, "type": "function",
            "function": {"name": "a", "colour": 1, "strict": null}});
        let body = json!({"tools": [tool]}).to_string();
        let mut fields = Fields::parse(body.as_bytes()).expect("an object");
        let mut ignored = IgnoredFields::default();
        let tools = take_tools(&mut fields, &mut ignored).expect("is taken");
        let definition = json!({"type": "function", "function": {"name": "a", "strict": null}});
        assert_eq!(tools.list[0].definition, definition);
        assert_eq!(
            ignored.joined(),
            "tools.cache_control, tools.function.colour"
        );
    }

    #[test]
    fn invalid_tools_are_refused_by_their_path() {
        for (body, field) in [
            (json!({"tools": {}}), "tools"),
            (json!({"tools": vec![tool("a"); 129]}), "tools"),
            (json!({"tools": [tool("a"), tool("a")]}), "tools"),
            (
                json!({"tools": [tool("a"), {"type": "function"}]}),
                "tools[1]",
            ),
            (json!({"tools": [{"type": "retrieval"}]}), "tools[0]"),
            (json!({"tools": [tool("a b")]}), "tools[0].function.name"),
            (
                json!({"tools": [{"type": "function", "function": {"name": "a", "parameters": []}}]}),
                "tools[0].function.parameters",
            ),
            (json!({"tool_choice": "required"}), "tool_choice"),
            (json!({"tool_choice": "sometimes"}), "tool_choice"),
            (
                json!({"tools": [tool("a")], "tool_choice": {"type": "function", "function": {"name": "b"}}}),
                "tool_choice",
            ),
            (
                json!({"tools": [tool("a")], "parallel_tool_calls": 1}),
                "parallel_tool_calls",
            ),
        ] {
            let error = take(body).expect_err("must be refused");
            assert_eq!(error.param.as_deref(), Some(field), "{}", error.message);
        }
    }
}
