//! Renders a conversation by the model's chat template: the tools that it gets, the calls of earlier turns, and the prompt.

use crate::api::TemplateSwitches;
use crate::api_error::ApiError;
use crate::chat_template::ChatTemplate;
use crate::ignored::Ignored;
use crate::loading::LoadedModel;
use crate::tools::Tools;
use serde_json::{Value, json};

/// The template of a model that converses.
pub(crate) fn template_of(model: &LoadedModel) -> Result<&ChatTemplate, ApiError> {
    let template = model.template.as_ref();
    template
        .ok_or_else(|| ApiError::invalid("this model has no chat template; use /v1/completions"))
}

/// The tools that the model gets: none if its template has no place for tools and no call is demanded.
///
/// # Errors
/// 400 when a call is demanded of a model whose template has no place for tools.
pub(crate) fn tools_of(
    template: &ChatTemplate,
    mut tools: Tools,
    ignored: &mut Ignored,
) -> Result<Tools, ApiError> {
    if tools.list.is_empty() || template.mentions("tools") {
        return Ok(tools);
    }
    if tools.demanded().is_some() {
        return Err(ApiError::field(
            "tool_choice",
            "`tool_choice` demands a call, and this model's chat template has no place for `tools`; use a model that was trained to call tools",
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

/// The prompt of a conversation. A template that has no place for calls of tools leaves them out.
///
/// # Errors
/// 400 when the template refuses it.
pub(crate) fn render(
    template: &ChatTemplate,
    messages: &[Value],
    tools: &Tools,
    switches: &TemplateSwitches,
    begins_answer: bool,
) -> Result<String, ApiError> {
    let offered: Vec<&Value> = tools
        .offered()
        .iter()
        .map(|tool| &tool.definition)
        .collect();
    let render =
        |messages: &[Value]| template.render(messages, &offered, &switches.values, begins_answer);
    let refusal = match render(messages) {
        Ok(text) => return Ok(text),
        Err(refusal) => refusal,
    };
    // A template that goes through the arguments one by one cannot render a text.
    match with_named_arguments(messages) {
        Some(named) => render(&named).map_err(|_| refusal),
        None => Err(refusal),
    }
}

/// The messages with each call whose arguments are not a JSON object taking them as one text named `arguments`. `None`
/// where all arguments are objects.
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
