//! Renders a conversation with the model's chat template: its tools, earlier calls, and the prompt.

use crate::api::TemplateSwitches;
use crate::api_error::ApiError;
use crate::chat_template::ChatTemplate;
use crate::loading::LoadedModel;
use crate::tools::Tools;
use reading::IgnoredFields;
use serde_json::{Value, json};

/// Returns the model's chat template.
pub(crate) fn template_of(model: &LoadedModel) -> Result<&ChatTemplate, ApiError> {
    let template = model.template.as_ref();
    template
        .ok_or_else(|| ApiError::invalid("this model has no chat template; use /v1/completions"))
}

/// Returns the text of a conversation with a single user message, for a model that encodes a text and has no chat template.
///
/// # Errors
/// 400 if there are other messages. Leaving them out would lose text that the client expects the model to read.
pub(crate) fn source_of(messages: &[Value]) -> Result<&str, ApiError> {
    match messages {
        [only] if only["role"] == "user" => Ok(only["content"].as_str().unwrap_or_default()),
        _ => Err(ApiError::field(
            "messages",
            format!(
                "`messages` has {} messages; this model reads one text and has no chat template: send one message with the role user, without system or earlier messages",
                messages.len()
            ),
        )),
    }
}

/// Returns the tools offered to the model: none if its template does not support tools, unless a call is forced.
///
/// # Errors
/// 400 if a call is forced and the model's template does not support tools.
pub(crate) fn tools_of(
    template: &ChatTemplate,
    mut tools: Tools,
    ignored: &mut IgnoredFields,
) -> Result<Tools, ApiError> {
    if tools.list.is_empty() || template.mentions("tools") {
        return Ok(tools);
    }
    if tools.demanded().is_some() {
        return Err(ApiError::field(
            "tool_choice",
            "`tool_choice` requires a call, but this model's chat template does not support `tools`; use a model that was trained to call tools",
        ));
    }
    ignored.add("tools");
    tools.list.clear();
    Ok(tools)
}

pub(crate) fn has_calls(messages: &[Value]) -> bool {
    let mut messages = messages.iter();
    messages.any(|message| message.get("tool_calls").is_some())
}

/// Renders the prompt of a conversation. Templates without support for tool calls omit them.
///
/// # Errors
/// 400 if the template rejects the conversation.
pub(crate) fn render(
    template: &ChatTemplate,
    messages: &[Value],
    tools: &Tools,
    switches: &TemplateSwitches,
    begins_response: bool,
) -> Result<String, ApiError> {
    let offered: Vec<&Value> = tools
        .offered()
        .iter()
        .map(|tool| &tool.definition)
        .collect();
    let render =
        |messages: &[Value]| template.render(messages, &offered, &switches.values, begins_response);
    let refusal = match render(messages) {
        Ok(text) => return Ok(text),
        Err(refusal) => refusal,
    };
    // Templates that iterate over the arguments cannot render a string.
    match with_named_arguments(messages) {
        Some(named) => render(&named).map_err(|_| refusal),
        None => Err(refusal),
    }
}

/// Wraps call arguments that are not a JSON object into an object with the field `arguments`. Returns `None` if there are none.
fn with_named_arguments(messages: &[Value]) -> Option<Vec<Value>> {
    let mut named = messages.to_vec();
    let mut is_changed = false;
    for message in &mut named {
        let calls = message.get_mut("tool_calls").and_then(Value::as_array_mut);
        for call in calls.into_iter().flatten() {
            let arguments = &mut call["function"]["arguments"];
            if arguments.is_string() {
                *arguments = json!({"arguments": arguments.take()});
                is_changed = true;
            }
        }
    }
    is_changed.then_some(named)
}
