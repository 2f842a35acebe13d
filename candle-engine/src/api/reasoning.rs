//! Parses the reasoning settings of a request: `reasoning_effort`, and the plain values of `chat_template_kwargs`.

use crate::api_error::ApiError;
use crate::fields::{Fields, expected};
use reading::IgnoredFields;
use serde_json::{Map, Value};

/// Levels of OpenAI and of other services. Other values have no effect.
const EFFORTS: [&str; 7] = ["none", "minimal", "low", "medium", "high", "xhigh", "max"];
/// Variables that clients may pass to templates; others could change unrelated output.
const SWITCHES: [&str; 4] = [
    "enable_thinking",
    "thinking",
    "reasoning_effort",
    "thinking_budget",
];
/// Two names of the same switch.
const THINKING: [&str; 2] = ["enable_thinking", "thinking"];
const EFFORT: &str = "reasoning_effort";
const KWARGS: &str = "chat_template_kwargs";

/// Reasoning variables for the template, and the fields that set them.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct TemplateSwitches {
    pub values: Map<String, Value>,
    /// The request had `reasoning_effort`.
    has_effort: bool,
    /// The request had a non-empty `chat_template_kwargs`.
    has_kwargs: bool,
}

impl TemplateSwitches {
    /// Returns the fields that do not affect a template, given the variables it reads.
    pub fn without_effect(&self, reads: impl Fn(&str) -> bool) -> Vec<&'static str> {
        let mut names = Vec::new();
        let switches_off = self
            .values
            .get(EFFORT)
            .is_some_and(|effort| effort == "none")
            && THINKING.into_iter().any(&reads);
        if self.has_effort && !reads(EFFORT) && !switches_off {
            names.push(EFFORT);
        }
        if self.has_kwargs && !self.values.keys().any(|name| reads(name)) {
            names.push(KWARGS);
        }
        names
    }
}

/// Takes the reasoning fields of a request.
pub(crate) fn take_switches(
    fields: &mut Fields,
    ignored: &mut IgnoredFields,
) -> Result<TemplateSwitches, ApiError> {
    let mut values = Map::new();
    let effort = fields.text(EFFORT)?;
    let is_known = |effort: &&String| EFFORTS.contains(&effort.as_str());
    let known = effort.as_ref().filter(is_known);
    if effort.is_some() && known.is_none() {
        ignored.add(EFFORT);
    }
    if let Some(known) = known {
        // Templates read this switch by either name.
        for name in THINKING {
            values.insert(name.to_owned(), Value::Bool(known.as_str() != "none"));
        }
        values.insert(EFFORT.to_owned(), Value::from(known.as_str()));
    }
    let kwargs = match fields.take(KWARGS) {
        None => Map::new(),
        Some(Value::Object(kwargs)) => kwargs,
        Some(other) => return Err(expected(KWARGS, "an object", &other)),
    };
    let has_kwargs = !kwargs.is_empty();
    for (name, value) in kwargs {
        if !SWITCHES.contains(&name.as_str()) || value.is_object() || value.is_array() {
            let shown: String = name.chars().take(100).collect();
            return Err(ApiError::field(
                format!("{KWARGS}.{shown}"),
                format!(
                    "`{KWARGS}.{shown}` is not allowed; allowed are plain values of {}",
                    SWITCHES.join(", ")
                ),
            ));
        }
        values.insert(name, value);
    }
    Ok(TemplateSwitches {
        values,
        has_effort: known.is_some(),
        has_kwargs,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn take(body: Value) -> Result<TemplateSwitches, ApiError> {
        let mut fields = Fields::parse(body.to_string().as_bytes()).expect("an object");
        take_switches(&mut fields, &mut IgnoredFields::default())
    }

    #[test]
    fn an_effort_turns_thinking_on_or_off_unless_template_kwargs_say_otherwise() {
        let high = take(json!({"reasoning_effort": "high"})).expect("is taken");
        assert_eq!(high.values["enable_thinking"], true);
        assert_eq!(high.values["reasoning_effort"], "high");
        let none = take(json!({"reasoning_effort": "none"})).expect("is taken");
        assert_eq!(none.values["thinking"], false);
        let both =
            json!({"reasoning_effort": "high", "chat_template_kwargs": {"enable_thinking": false}});
        assert_eq!(
            take(both).expect("is taken").values["enable_thinking"],
            false
        );
    }

    #[test]
    fn reasoning_settings_the_template_does_not_read_are_reported() {
        let reads = |known: &'static str| move |name: &str| name == known;
        let high = take(json!({"reasoning_effort": "high"})).expect("is taken");
        assert_eq!(
            high.without_effect(reads("reasoning_effort")),
            [] as [&str; 0]
        );
        assert_eq!(
            high.without_effect(reads("enable_thinking")),
            ["reasoning_effort"]
        );
        let none = take(json!({"reasoning_effort": "none"})).expect("is taken");
        assert_eq!(none.without_effect(reads("thinking")), [] as [&str; 0]);
        let off = take(json!({"chat_template_kwargs": {"enable_thinking": false}}));
        let off = off.expect("is taken");
        assert_eq!(
            off.without_effect(reads("messages")),
            ["chat_template_kwargs"]
        );
    }

    #[test]
    fn an_unknown_effort_is_ignored_and_reported() {
        let body = json!({"reasoning_effort": "ultra"}).to_string();
        let mut fields = Fields::parse(body.as_bytes()).expect("an object");
        let mut ignored = IgnoredFields::default();
        let switches = take_switches(&mut fields, &mut ignored).expect("is taken");
        assert_eq!(switches, TemplateSwitches::default());
        assert_eq!(ignored.joined(), "reasoning_effort");
    }

    #[test]
    fn invalid_reasoning_settings_are_refused_by_field() {
        for (body, field) in [
            (json!({"reasoning_effort": 3}), "reasoning_effort"),
            (json!({"chat_template_kwargs": []}), "chat_template_kwargs"),
            (
                json!({"chat_template_kwargs": {"messages": "x"}}),
                "chat_template_kwargs.messages",
            ),
            (
                json!({"chat_template_kwargs": {"thinking": {}}}),
                "chat_template_kwargs.thinking",
            ),
        ] {
            let error = take(body).expect_err("must be refused");
            assert_eq!(error.param.as_deref(), Some(field), "{}", error.message);
        }
    }
}
