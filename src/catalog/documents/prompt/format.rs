//! Reads and checks the keys of `generation.prompt_format`. `render` implements the algorithm.

use serde::Deserialize;
use serde_json::Value;

use super::Prompt;
use super::template::Template;
use crate::documents::diagnostics::Diagnostics;
use crate::documents::error::CatalogError;
use crate::documents::fields::fields_of;

/// The implementation whose output is reproduced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, Deserialize)]
pub enum PromptCompat {
    /// RayLLM's algorithm with its bugs fixed.
    #[default]
    #[serde(rename = "none")]
    None,
    /// Exactly as RayLLM 0.5.
    #[serde(rename = "rayllm-0.5")]
    RayLlm05,
}

/// A checked prompt format.
#[derive(Clone, Debug, PartialEq)]
pub struct PromptFormat {
    pub(super) bos: String,
    pub(super) system: Template,
    pub(super) user: Template,
    pub(super) assistant: Template,
    pub(super) trailing_assistant: String,
    pub(super) default_system_message: String,
    /// The message that contains the system text.
    pub(super) system_in: SystemIn,
    pub(super) tags_for_empty_system: bool,
    pub(super) strips: bool,
    pub(super) is_compatible: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SystemIn {
    OwnMessage,
    FirstUser,
    LastUser,
}

/// The keys as written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    system: Option<String>,
    user: Option<String>,
    assistant: Option<String>,
    trailing_assistant: Option<String>,
    default_system_message: Option<String>,
    system_in_user: Option<bool>,
    add_system_tags_even_if_message_is_empty: Option<bool>,
    strip_whitespace: Option<bool>,
    // A key of the form after RayLLM 0.5.
    bos: Option<String>,
    system_in_last_user: Option<bool>,
    tool: Option<Value>,
    tool_calls: Option<Value>,
    tools_list: Option<Value>,
    tools_list_in_user: Option<Value>,
    tools_list_in_last_user: Option<Value>,
    /// Read separately, before the others.
    #[expect(dead_code, reason = "it is among the keys that a format may have")]
    use_hugging_face_chat_template: Option<Value>,
}

/// The key of the form after RayLLM 0.5 that asks for the tokenizer's own template.
const OF_TOKENIZER: &str = "use_hugging_face_chat_template";

/// The keys allowed in a format.
pub fn keys() -> &'static [&'static str] {
    fields_of::<Keys>()
}

/// The default template for a format that is a single text: only the user's template adds text.
const BARE: &str = "{instruction}";

/// Reads `generation.prompt_format` from the file.
pub fn read(
    value: &Value,
    field: &str,
    compat: PromptCompat,
    notes: &mut Diagnostics,
) -> Result<Prompt, CatalogError> {
    let is_compatible = compat == PromptCompat::RayLlm05;
    let format = match value {
        Value::Null => return Ok(Prompt::Disabled),
        Value::Object(keys) if keys.contains_key(OF_TOKENIZER) => {
            let field = format!("{field}.{OF_TOKENIZER}");
            return match &keys[OF_TOKENIZER] {
                Value::Bool(true) if keys.len() == 1 => Ok(Prompt::ChatTemplate),
                Value::Bool(true) => Err(notes.refuse(&field, "is true, and templates are given too; remove one of them")),
                _ => Err(notes.refuse(&field, "is true or absent; without it, write the templates system, user, assistant and trailing_assistant")),
            };
        }
        Value::String(text) => one_text(text, field, is_compatible, notes)?,
        value => {
            let keys: Keys = reading::value_at(value.clone()).map_err(|(path, problem)| {
                let unknown = problem.strip_prefix("unknown key `");
                let key = unknown.and_then(|rest| Some(rest.split_once('`')?.0.to_owned()));
                let at = match (key, path.as_str()) {
                    (Some(key), _) => format!("{field}.{key}"),
                    (None, ".") => field.to_owned(),
                    (None, path) => format!("{field}.{path}"),
                };
                notes.refuse(&at, problem)
            })?;
            keys.check(field, is_compatible, notes)?
        }
    };
    Ok(Prompt::Format(Box::new(format)))
}

/// RayLLM 0.0's form: one text with the prompt in it; an empty text means the prompt alone.
fn one_text(
    text: &str,
    field: &str,
    is_compatible: bool,
    notes: &Diagnostics,
) -> Result<PromptFormat, CatalogError> {
    let user = if text.is_empty() { BARE } else { text };
    Ok(PromptFormat {
        bos: String::new(),
        system: Template::read("{instruction}\n"),
        user: with_instruction(user, field, notes)?,
        assistant: Template::read(BARE),
        trailing_assistant: String::new(),
        default_system_message: String::new(),
        system_in: SystemIn::OwnMessage,
        tags_for_empty_system: false,
        strips: false,
        is_compatible,
    })
}

fn with_instruction(
    text: &str,
    field: &str,
    notes: &Diagnostics,
) -> Result<Template, CatalogError> {
    let template = Template::read(text);
    if template.has_instruction() {
        Ok(template)
    } else {
        Err(notes.refuse(
            field,
            "has no {instruction}, so the text of the message cannot be inserted; write {instruction} in its place",
        ))
    }
}

impl Keys {
    fn check(
        self,
        field: &str,
        is_compatible: bool,
        notes: &mut Diagnostics,
    ) -> Result<PromptFormat, CatalogError> {
        let template = |key: &str, text: Option<&String>| {
            match text {
            Some(text) => with_instruction(text, &format!("{field}.{key}"), notes),
            None => Err(notes.refuse(
                &format!("{field}.{key}"),
                "is missing; system, user, assistant and trailing_assistant are needed, or `prompt_format: null` for a model that only completes",
            )),
        }
        };
        let system = template("system", self.system.as_ref())?;
        let user = template("user", self.user.as_ref())?;
        let assistant = template("assistant", self.assistant.as_ref())?;
        let Some(trailing_assistant) = self.trailing_assistant else {
            return Err(notes.refuse(
                &format!("{field}.trailing_assistant"),
                "is missing; it ends every prompt, and may be \"\"",
            ));
        };
        let in_user = self.system_in_user.unwrap_or(false);
        let in_last = self.system_in_last_user.unwrap_or(false);
        let system_in = match (in_user, in_last) {
            // The form after RayLLM 0.5 requires both keys; the second one selects the message.
            (_, true) => SystemIn::LastUser,
            (true, false) => SystemIn::FirstUser,
            (false, false) => SystemIn::OwnMessage,
        };
        match (system_in, user.has_system()) {
            (SystemIn::OwnMessage, true) => notes.warn(
                &format!("{field}.user"),
                "holds {system}, which stays empty: system_in_user is false, and the system text has a separate template",
            ),
            (SystemIn::FirstUser | SystemIn::LastUser, false) => {
                return Err(notes.refuse(
                    &format!("{field}.user"),
                    "has no {system}, but the system text must be inserted there; write {system} in its place, or set system_in_user to false",
                ));
            }
            _ => {}
        }
        let tools = [
            ("tool", &self.tool),
            ("tool_calls", &self.tool_calls),
            ("tools_list", &self.tools_list),
            ("tools_list_in_user", &self.tools_list_in_user),
            ("tools_list_in_last_user", &self.tools_list_in_last_user),
        ];
        for (key, value) in tools {
            let is_present = value
                .as_ref()
                .is_some_and(|value| !value.is_null() && *value != Value::Bool(false));
            if is_present {
                notes.warn(
                    &format!("{field}.{key}"),
                    "has no effect: conversations with tools use the chat template of the model's tokenizer; remove prompt_format to use it",
                );
            }
        }
        Ok(PromptFormat {
            bos: self.bos.unwrap_or_default(),
            system,
            user,
            assistant,
            trailing_assistant,
            default_system_message: self.default_system_message.unwrap_or_default(),
            system_in,
            tags_for_empty_system: self
                .add_system_tags_even_if_message_is_empty
                .unwrap_or(false),
            strips: self.strip_whitespace.unwrap_or(true),
            is_compatible,
        })
    }
}
