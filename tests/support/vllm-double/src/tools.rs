//! Answers that a request determines: a call of a tool that it demands, or a text that is the only choice, in which the
//! parser of tool calls finds a call or does not.

use serde_json::{Map, Value, json};

use crate::flags::Flags;

/// What an answer has instead of the usual words.
pub enum Special {
    Text(String),
    Call(Call),
}

/// A call, with its arguments as the text that they are.
pub struct Call {
    name: String,
    arguments: String,
    kind: Kind,
}

/// Why there is a call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Named,
    Required,
    Found,
}

impl Special {
    /// What vLLM would be made to write by guided decoding.
    pub fn of(flags: &Flags, is_chat: bool, request: &Value) -> Option<Special> {
        if is_chat && let Some(call) = Call::demanded(request) {
            return Some(Special::Call(call));
        }
        let text = request["structured_outputs"]["choice"][0].as_str()?;
        let is_read = is_chat && has_tools(request) && request["tool_choice"] != "none";
        let reads_hermes = is_read && flags.tool_parser.as_deref() == Some("hermes");
        let call = reads_hermes.then(|| Call::of_hermes(text)).flatten();
        Some(call.map_or_else(|| Special::Text(text.to_owned()), Special::Call))
    }

    /// Its pieces in a stream.
    pub fn tokens(&self) -> u64 {
        match self {
            Special::Text(_) => 1,
            Special::Call(_) => 2,
        }
    }
}

impl Call {
    /// The call of the tool that a request names, or with `required` of its first one. vLLM holds arguments to their schema
    /// where the tool is `strict`.
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

    /// The call in a text, in the form of Hermes.
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

    /// As in OpenAI's API, the call of a named tool is a usual end.
    pub fn finish(&self) -> &'static str {
        match self.kind {
            Kind::Named => "stop",
            Kind::Required | Kind::Found => "tool_calls",
        }
    }

    pub fn message(&self) -> Value {
        let function = json!({"name": self.name, "arguments": self.arguments});
        let call = json!({"id": "chatcmpl-tool-double", "type": "function", "function": function});
        // As vLLM has it: empty beside a demanded call, and null beside one that was found.
        let content = (self.kind != Kind::Found).then_some("");
        json!({"role": "assistant", "content": content, "refusal": null, "tool_calls": [call]})
    }

    /// First the name, then the arguments.
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

/// A value that fits a schema of the simple kinds.
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
