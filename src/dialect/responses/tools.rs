//! Translates the tools of a response: functions stay, custom and namespaced tools become functions, and server-side tools are left
//! out. Keeps the mapping from functions to the client's tools for the response.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::super::custom::{self, CustomTools};
use crate::fields::RequestFields;
use api_types::error::Failure;
use reading::IgnoredFields;

/// Types of tools that run on the model's server or in OpenAI's own programs. Some have a date suffix.
const OF_A_SERVER: [&str; 12] = [
    "apply_patch",
    "code_interpreter",
    "computer",
    "computer_use",
    "computer_use_preview",
    "file_search",
    "image_generation",
    "local_shell",
    "mcp",
    "shell",
    "tool_search",
    "web_search",
];

/// The type of a server-side tool, without its date.
fn of_a_server(kind: &str) -> Option<&'static str> {
    let dated = |known: &str| {
        let rest = kind.strip_prefix(known);
        rest.is_some_and(|rest| {
            rest.is_empty() || rest.starts_with("_preview") || rest.starts_with("_20")
        })
    };
    OF_A_SERVER.into_iter().find(|known| dated(known))
}

/// A tool as the client knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ClientTool {
    pub name: String,
    pub namespace: Option<String>,
    pub is_custom: bool,
}

/// Mapping for tools that the client and the model know by different names.
#[derive(Clone, Debug, Default)]
pub(super) struct ToolNames(Arc<Names>);

#[derive(Debug, Default)]
struct Names {
    of_client: BTreeMap<String, ClientTool>,
    of_model: BTreeMap<(Option<String>, String), String>,
}

impl ToolNames {
    /// The client's tool for a function of the model; `None` for a function of the same name.
    pub fn of_client(&self, function: &str) -> Option<&ClientTool> {
        self.0.of_client.get(function)
    }

    /// The model's function for a tool of the client.
    pub fn of_model(&self, namespace: Option<String>, name: &str) -> String {
        let known = self.0.of_model.get(&(namespace, name.to_owned()));
        known.map_or_else(|| name.to_owned(), String::clone)
    }
}

/// The tools of one request.
#[derive(Debug, Default)]
pub(super) struct Tools {
    /// Functions in a chat's form.
    pub functions: Vec<Value>,
    /// Tools that the response repeats.
    pub echo: Vec<Value>,
    pub names: ToolNames,
}

impl Tools {
    pub fn read(list: Vec<Value>, ignored: &mut IgnoredFields) -> Result<Tools, Failure> {
        let mut reader = Reader::default();
        // Tools outside namespaces keep their names.
        for tool in &list {
            let in_namespace = tool["type"] == "namespace";
            if let Some(name) = tool["name"].as_str().filter(|_| !in_namespace) {
                reader.taken.insert(name.to_owned());
            }
        }
        for (nth, tool) in list.into_iter().enumerate() {
            let repeated = tool.clone();
            if reader.tool(
                RequestFields::new(format!("tools[{nth}]"), tool)?,
                None,
                ignored,
            )? {
                reader.tools.echo.push(repeated);
            }
        }
        reader.tools.names = ToolNames(Arc::new(reader.names));
        Ok(reader.tools)
    }

    /// Reads `tool_choice`, and writes it and the tools into the chat. Returns the choice that the response repeats.
    pub fn choose(
        &mut self,
        request: &mut RequestFields,
        chat: &mut Map<String, Value>,
        ignored: &mut IgnoredFields,
    ) -> Result<Value, Failure> {
        let choice_in = request.take("tool_choice");
        let choice = match &choice_in {
            None => None,
            Some(Value::String(word)) if ["auto", "none", "required"].contains(&word.as_str()) => {
                Some(json!(word))
            }
            Some(choice_in) => self.chosen(
                RequestFields::new("tool_choice", choice_in.clone())?,
                ignored,
            )?,
        };
        let repeated = choice_in.unwrap_or_else(|| json!("auto"));
        if self.functions.is_empty() {
            let is_idle = choice.is_none_or(|choice| choice == "auto" || choice == "none");
            return if is_idle {
                Ok(repeated)
            } else {
                Err(request.not_here(
                    "tool_choice",
                    "there are no `tools` to choose from that the model can call",
                ))
            };
        }
        chat.insert("tools".to_owned(), json!(self.functions));
        chat.extend(choice.map(|choice| ("tool_choice".to_owned(), choice)));
        Ok(repeated)
    }

    fn chosen(
        &mut self,
        mut choice: RequestFields,
        ignored: &mut IgnoredFields,
    ) -> Result<Option<Value>, Failure> {
        let kind = choice.need_text("type")?;
        match kind.as_str() {
            "function" | "custom" => {
                let name = choice.need_text("name")?;
                let namespace = choice.text("namespace")?;
                choice.drop_rest(ignored);
                let name = self.names.of_model(namespace, &name);
                Ok(Some(json!({"type": "function", "function": {"name": name}})))
            }
            "allowed_tools" => {
                let mode = choice.one_of("mode", &["auto", "required"])?;
                let list = choice.list("tools")?;
                let list = list.ok_or_else(|| choice.missing("tools"))?;
                choice.drop_rest(ignored);
                let mut allowed = BTreeSet::new();
                for (nth, tool) in list.into_iter().enumerate() {
                    let mut tool = RequestFields::new(format!("tool_choice.tools[{nth}]"), tool)?;
                    // Server-side tools are not among the functions.
                    if let Some(name) = tool.text("name")? {
                        let namespace = tool.text("namespace")?;
                        allowed.insert(self.names.of_model(namespace, &name));
                    }
                }
                let is_allowed = |function: &Value| {
                    let name = function.pointer("/function/name").and_then(Value::as_str);
                    name.is_some_and(|name| allowed.contains(name))
                };
                self.functions.retain(is_allowed);
                Ok(mode.map(|mode| json!(mode)))
            }
            _ if of_a_server(&kind).is_some() => Err(choice.not_here(
                "type",
                "a server would run that tool, and this one runs none: choose a function, or leave the choice to the model",
            )),
            _ => Err(choice.wrong(
                "type",
                "function, custom or allowed_tools; or `tool_choice` itself auto, none or required",
            )),
        }
    }
}

#[derive(Default)]
struct Reader {
    tools: Tools,
    names: Names,
    /// Function names in use.
    taken: BTreeSet<String>,
    custom: CustomTools,
}

impl Reader {
    /// Adds a tool. Returns true if the model receives it.
    fn tool(
        &mut self,
        mut tool: RequestFields,
        namespace: Option<&str>,
        ignored: &mut IgnoredFields,
    ) -> Result<bool, Failure> {
        let kind = tool.need_text("type")?;
        match kind.as_str() {
            "function" => {
                let name = tool.need_text("name")?;
                let function = self.function(&mut tool, name, namespace, ignored)?;
                self.tools.functions.push(function);
            }
            "custom" => {
                let name = tool.need_text("name")?;
                let known = self.name(name, namespace, true);
                let made = custom::function(&mut tool, &known, &mut self.custom)?;
                if made.is_unheld {
                    ignored.add("tools.format");
                }
                defer(&mut tool, ignored)?;
                let function = json!({"type": "function", "function": made.function});
                self.tools.functions.push(function);
            }
            "namespace" if namespace.is_none() => {
                let name = tool.need_text("name")?;
                tool.text("description")?;
                let at = tool.path("tools");
                let inner = tool.list("tools")?;
                for (nth, inner) in inner.unwrap_or_default().into_iter().enumerate() {
                    let inner = RequestFields::new(format!("{at}[{nth}]"), inner)?;
                    self.tool(inner, Some(&name), ignored)?;
                }
            }
            other => {
                let Some(known) = of_a_server(other) else {
                    return Err(tool.wrong(
                        "type",
                        "function, custom or namespace, or a tool that a server runs, which is left out",
                    ));
                };
                ignored.add(format!("tools.{known}"));
                // Its settings are for the server that runs it.
                return Ok(false);
            }
        }
        tool.drop_rest(ignored);
        Ok(true)
    }

    fn function(
        &mut self,
        tool: &mut RequestFields,
        name: String,
        namespace: Option<&str>,
        ignored: &mut IgnoredFields,
    ) -> Result<Value, Failure> {
        let description = tool.text("description")?;
        let strict = tool.flag("strict")?;
        let parameters = tool.take("parameters");
        if parameters
            .as_ref()
            .is_some_and(|parameters| !parameters.is_object())
        {
            return Err(tool.wrong("parameters", "an object, a JSON schema"));
        }
        defer(tool, ignored)?;
        let mut function = Map::new();
        function.insert("name".to_owned(), json!(self.name(name, namespace, false)));
        for (name, value) in [
            ("description", description.map(Value::String)),
            ("parameters", parameters),
            ("strict", strict.map(Value::Bool)),
        ] {
            function.extend(value.map(|value| (name.to_owned(), value)));
        }
        Ok(json!({"type": "function", "function": function}))
    }

    /// Chooses the function name for a tool.
    fn name(&mut self, name: String, namespace: Option<&str>, is_custom: bool) -> String {
        let mut function = name.clone();
        if let Some(namespace) = namespace {
            if self.taken.contains(&function) {
                function = format!("{namespace}__{name}");
            }
            self.taken.insert(function.clone());
        }
        if namespace.is_some() || is_custom {
            let namespace = namespace.map(str::to_owned);
            self.names
                .of_model
                .insert((namespace.clone(), name.clone()), function.clone());
            let tool = ClientTool {
                name,
                namespace,
                is_custom,
            };
            self.names.of_client.insert(function.clone(), tool);
        }
        function
    }
}

/// Notes a deferred tool, which tool search would find. Without tool search the model receives it from the start.
fn defer(tool: &mut RequestFields, ignored: &mut IgnoredFields) -> Result<(), Failure> {
    if tool.flag("defer_loading")? == Some(true) {
        ignored.add("tools.defer_loading");
    }
    Ok(())
}

#[cfg(test)]
mod tests;
