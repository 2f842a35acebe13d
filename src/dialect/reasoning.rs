//! Reads the reasoning options of a request in any API's form. Remembers the client's name of each option to report ignored options
//! under that name.

use catalog::{Effort, ReasoningWish, WishPart};
use serde_json::Value;

use crate::fields::RequestFields;
use api_types::error::Failure;
use reading::IgnoredFields;

/// Reasoning options with the client's field names.
#[derive(Clone, Debug, Default)]
pub struct ReasoningRequest {
    pub wish: ReasoningWish,
    thinks: &'static str,
    effort: &'static str,
    budget: &'static str,
    /// Fields with unknown values.
    unknown: Option<Box<IgnoredFields>>,
}

const CHAT_EFFORT: &str = "reasoning_effort";
/// Chat fields for reasoning: OpenAI's and common extensions.
const OF_CHATS: [&str; 5] = [
    CHAT_EFFORT,
    "enable_thinking",
    "reasoning",
    "thinking",
    "thinking_budget",
];

impl ReasoningRequest {
    /// Sets the effort. Efforts are hints, so an unknown word has no effect.
    pub(crate) fn set_effort(&mut self, field: &'static str, value: &Value) -> Result<(), Failure> {
        let Some(word) = value.as_str() else {
            let efforts = Effort::ALL.map(Effort::word).join(", ");
            return Err(wrong(field, &format!("one of {efforts}")));
        };
        match Effort::parse(word) {
            Some(effort) => {
                self.wish.effort = Some(effort);
                self.effort = field;
            }
            None => self.unknown().add(field),
        }
        Ok(())
    }

    pub(crate) fn set_thinks(&mut self, field: &'static str, thinks: bool) {
        self.wish.thinks = Some(thinks);
        self.thinks = field;
    }

    pub(crate) fn set_budget(&mut self, field: &'static str, value: &Value) -> Result<(), Failure> {
        let tokens = value.as_u64().filter(|tokens| *tokens > 0);
        let tokens = tokens.ok_or_else(|| wrong(field, "a whole number of tokens from 1"))?;
        self.wish.budget_tokens = Some(tokens);
        self.budget = field;
        Ok(())
    }

    /// Reads Anthropic's `thinking`, which other services also accept. Returns true if the client wants the text.
    pub(crate) fn set_thinking(&mut self, mut thinking: RequestFields) -> Result<bool, Failure> {
        let kinds = ["enabled", "adaptive", "auto", "disabled"];
        if !thinking.has("type") {
            return Err(thinking.missing("type"));
        }
        if let Some(kind) = thinking.hint("type", &kinds, self.unknown())? {
            self.set_thinks("thinking", kind != "disabled");
        }
        if let Some(tokens) = thinking.take("budget_tokens") {
            self.set_budget("thinking.budget_tokens", &tokens)?;
        }
        let displays = ["summarized", "omitted"];
        let display = thinking.hint("display", &displays, self.unknown())?;
        thinking.drop_rest(self.unknown());
        Ok(display != Some("omitted"))
    }

    /// Returns true if a chat field controls reasoning.
    pub fn is_of_chats(name: &str) -> bool {
        OF_CHATS.contains(&name)
    }

    /// Reads a chat field that controls reasoning.
    pub fn set_chat(&mut self, name: &str, value: Value) -> Result<(), Failure> {
        match name {
            _ if value.is_null() => Ok(()),
            CHAT_EFFORT => self.set_effort(CHAT_EFFORT, &value),
            "enable_thinking" => match value.as_bool() {
                Some(thinks) => {
                    self.set_thinks("enable_thinking", thinks);
                    Ok(())
                }
                None => Err(wrong("enable_thinking", "true or false")),
            },
            "thinking_budget" => self.set_budget("thinking_budget", &value),
            "thinking" => self
                .set_thinking(RequestFields::new("thinking", value)?)
                .map(drop),
            _ => {
                let mut reasoning = RequestFields::new("reasoning", value)?;
                if let Some(effort) = reasoning.take("effort") {
                    self.set_effort("reasoning.effort", &effort)?;
                }
                if let Some(tokens) = reasoning.take("max_tokens") {
                    self.set_budget("reasoning.max_tokens", &tokens)?;
                }
                if let Some(thinks) = reasoning.flag("enabled")? {
                    self.set_thinks("reasoning.enabled", thinks);
                }
                // Visibility options. Reasoning is always shown here, in a separate field.
                reasoning.flag("exclude")?;
                reasoning.text("summary")?;
                reasoning.drop_rest(self.unknown());
                Ok(())
            }
        }
    }

    /// Takes the names of fields with unknown values.
    pub fn take_unknown(&mut self) -> Vec<String> {
        let unknown = self.unknown.take();
        unknown.map_or_else(Vec::new, |unknown| unknown.names())
    }

    /// Boxed because it is rare and every request's future contains it.
    fn unknown(&mut self) -> &mut IgnoredFields {
        self.unknown.get_or_insert_default()
    }

    /// The client's field name for an option.
    pub fn name(&self, part: WishPart) -> &'static str {
        match part {
            WishPart::Thinks => self.thinks,
            WishPart::Effort => self.effort,
            WishPart::Budget => self.budget,
        }
    }

    /// The client's name for a field that was sent to an engine for this option and that the engine reports as ignored.
    pub fn name_of_sent(&self, field: &str) -> Option<&'static str> {
        match field {
            CHAT_EFFORT if self.wish.effort.is_some() => Some(self.effort),
            "chat_template_kwargs" if self.wish.thinks.is_some() => Some(self.thinks),
            "chat_template_kwargs" if self.wish.effort.is_some() => Some(self.effort),
            _ => None,
        }
    }
}

fn wrong(field: &str, wanted: &str) -> Failure {
    Failure::invalid(field.to_owned(), format!("`{field}` must be {wanted}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn request(name: &str, value: Value) -> Result<ReasoningRequest, Failure> {
        let mut request = ReasoningRequest::default();
        request.set_chat(name, value)?;
        Ok(request)
    }

    #[test]
    fn the_reasoning_fields_of_all_services_parse_to_the_same_settings() {
        let wish = |name: &str, value: Value| request(name, value).unwrap().wish;
        assert_eq!(
            wish("reasoning_effort", json!("low")).effort,
            Some(Effort::Low)
        );
        assert_eq!(
            wish("reasoning", json!({"effort": "low"})).effort,
            Some(Effort::Low)
        );
        assert_eq!(wish("enable_thinking", json!(false)).thinks, Some(false));
        assert_eq!(
            wish("thinking", json!({"type": "disabled"})).thinks,
            Some(false)
        );
        let both = wish("thinking", json!({"type": "enabled", "budget_tokens": 9}));
        assert_eq!((both.thinks, both.budget_tokens), (Some(true), Some(9)));
        assert_eq!(wish("reasoning", Value::Null), ReasoningWish::default());
    }

    #[test]
    fn invalid_reasoning_settings_are_refused_with_the_field_and_the_allowed_values() {
        for (name, value, field, allowed) in [
            (
                "reasoning_effort",
                json!(3),
                "reasoning_effort",
                "none, minimal, low",
            ),
            ("reasoning", json!("high"), "reasoning", "an object"),
            (
                "thinking",
                json!({"type": "enabled", "budget_tokens": -1}),
                "thinking.budget_tokens",
                "from 1",
            ),
            ("thinking", json!({}), "thinking.type", "required"),
            (
                "enable_thinking",
                json!("yes"),
                "enable_thinking",
                "true or false",
            ),
        ] {
            let error = request(name, value).unwrap_err().body.error;
            assert_eq!(error.param.as_deref(), Some(field));
            assert!(error.message.contains(allowed), "{}", error.message);
        }
    }

    #[test]
    fn unknown_effort_values_are_ignored_and_reported() {
        for (name, value, named) in [
            ("reasoning_effort", json!("ultra"), "reasoning_effort"),
            ("reasoning", json!({"effort": "ultra"}), "reasoning.effort"),
            ("reasoning", json!({"mode": "deep"}), "reasoning.mode"),
            ("thinking", json!({"type": "interleaved"}), "thinking.type"),
            (
                "thinking",
                json!({"type": "enabled", "display": "updates"}),
                "thinking.display",
            ),
            (
                "thinking",
                json!({"type": "enabled", "keep": "all"}),
                "thinking.keep",
            ),
        ] {
            let mut request = request(name, value).unwrap();
            assert_eq!(request.wish.effort, None);
            assert_eq!(request.take_unknown(), [named]);
        }
    }

    #[test]
    fn a_reasoning_field_the_engine_ignores_is_reported_under_the_clients_name() {
        let thinking = request("thinking", json!({"type": "enabled"})).unwrap();
        assert_eq!(
            thinking.name_of_sent("chat_template_kwargs"),
            Some("thinking")
        );
        assert_eq!(thinking.name_of_sent("reasoning_effort"), None);
        let reasoning = request("reasoning", json!({"effort": "high"})).unwrap();
        assert_eq!(
            reasoning.name_of_sent("reasoning_effort"),
            Some("reasoning.effort")
        );
    }
}
