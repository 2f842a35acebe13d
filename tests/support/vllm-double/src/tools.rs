//! Responses that a request determines: a demanded tool call, or the only permitted text, in which the tool call parser may find a
//! call.

use serde_json::{Map, Value, json};

use crate::flags::Flags;

/// The output instead of the usual text.
pub enum SpecialOutput {
    Text(String),
    Call(Call),
}

/// A call, with its arguments as a string.
pub struct Call {
    name: String,
    arguments: String,
    kind: Kind,
}

/// Reason for a call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Named,
    Required,
    Found,
}

impl SpecialOutput {
    /// The output that guided decoding would force.
    pub fn new(flags: &Flags, is_chat: bool, request: &Value) -> Option<SpecialOutput> {
        if is_chat && let Some(call) = Call::demanded(request) {
            return Some(SpecialOutput::Call(call));
        }
        let text = request["structured_outputs"]["choice"][0].as_str()?;
        let is_read = is_chat && has_tools(request) && request["tool_choice"] != "none";
        let reads_hermes = is_read && flags.tool_parser.as_deref() == Some("hermes");
        let call = reads_hermes.then(|| Call::of_hermes(text)).flatten();
        Some(call.map_or_else(|| SpecialOutput::Text(text.to_owned()), SpecialOutput::Call))
    }

    /// Its pieces in a stream.
    pub fn tokens(&self) -> u64 {
        match self {
            SpecialOutput::Text(_) => 1,
            SpecialOutput::Call(_) => 2,
        }
    }
}

impl Call {
    /// The call of the tool that a request names, or of the first tool with `required`. vLLM enforces the schema of `strict` tools.
    fn demanded(request: &Value) -> Option<Call> {
        let tools = request["tools"].as_array()?;
        let choice = &request["tool_choice"];
        let named = choice["function"]["name"].as_str();
        let tool = match named {
            Some(name) => tools.iter().find(|tool| tool["function"]["name"] == name),
            None if choice == "required" => tools.first(),
            None => None,
        };
        let function = &tool?["function"];
        Some(Call {
            name: function["name"].as_str()?.to_owned(),
            arguments: example(&function["parameters"]).to_string(),
            kind: match named {
                Some(_) => Kind::Named,
                None => Kind::Required,
            },
        })
    }

    /// The call in a text in Hermes format.
    fn of_hermes(text: &str) -> Option<Call> {
        let (_, rest) = text.split_once("<tool_call>")?;
        let (inner, _) = rest.split_once("</tool_call>")?;
        let call: Value = serde_json::from_str(inner).ok()?;
        Some(Call {
            name: call["name"].as_str()?.to_owned(),
            arguments: call.get("arguments")?.to_string(),
            kind: Kind::Found,
        })
    }

    /// As in OpenAI's API, the call of a named tool is a normal stop.
    pub fn finish(&self) -> &'static str {
        match self.kind {
            Kind::Named => "stop",
            Kind::Required | Kind::Found => "tool_calls",
        }
    }

    pub fn message(&self) -> Value {
        let function = json!({"name": self.name, "arguments": self.arguments});
        let call = json!({"id": "chatcmpl-tool-double", "type": "function", "function": function});
        // As in vLLM: empty with a demanded call, and null with a call found in the text.
        let content = (self.kind != Kind::Found).then_some("");
        json!({"role": "assistant", "content": content, "refusal": null, "tool_calls": [call]})
    }

    /// The name first, then the arguments.
    pub fn piece(&self, token: u64) -> Value {
        let call = match token {
            0 => {
                json!({"index": 0, "id": "chatcmpl-tool-double", "type": "function", "function": {"name": self.name}})
            }
            _ => json!({"index": 0, "function": {"arguments": self.arguments}}),
        };
        json!({"tool_calls": [call]})
    }
}

pub fn has_tools(request: &Value) -> bool {
    request["tools"]
        .as_array()
        .is_some_and(|tools| !tools.is_empty())
}

/// A value that matches a simple schema.
fn example(schema: &Value) -> Value {
    if let Some(first) = schema["enum"].get(0) {
        return first.clone();
    }
    match schema["type"].as_str() {
        Some("object") => {
            let properties = schema["properties"].as_object();
            let each = properties.into_iter().flatten();
            let values: Map<String, Value> = each
                .map(|(name, schema)| (name.clone(), example(schema)))
                .collect();
            Value::Object(values)
        }
        Some("array") => json!([]),
        Some("string") => json!("Hello"),
        Some("integer") => json!(1),
        Some("number") => json!(0.5),
        Some("boolean") => json!(true),
        _ => Value::Null,
    }
}
