//! Hints of OpenAI's requests that most engines ignore. Invalid values are refused regardless of the engine, so clients notice
//! mistakes with any model.

use serde_json::value::RawValue;

use api_types::error::Failure;

/// The type of a hint.
#[derive(Clone, Copy)]
enum Kind {
    Text,
    Flag,
    Object,
}

/// The hints and their types.
const HINTS: [(&str, Kind); 11] = [
    ("metadata", Kind::Object),
    ("parallel_tool_calls", Kind::Flag),
    ("prediction", Kind::Object),
    ("prompt_cache_key", Kind::Text),
    ("prompt_cache_retention", Kind::Text),
    ("safety_identifier", Kind::Text),
    ("service_tier", Kind::Text),
    ("store", Kind::Flag),
    ("user", Kind::Text),
    ("verbosity", Kind::Text),
    ("web_search_options", Kind::Object),
];

/// Refuses a hint of the wrong type. Accepts any string, because other services have additional values.
pub(crate) fn check(name: &str, value: &RawValue) -> Result<(), Failure> {
    let Some((_, kind)) = HINTS.iter().find(|(known, _)| *known == name) else {
        return Ok(());
    };
    let text = value.get();
    let (is_right, wanted) = match kind {
        Kind::Text => (text.starts_with('"'), "a string"),
        Kind::Flag => (text == "true" || text == "false", "true or false"),
        Kind::Object => (text.starts_with('{'), "an object"),
    };
    if is_right || text == "null" {
        Ok(())
    } else {
        Err(Failure::invalid(
            name.to_owned(),
            format!("`{name}` must be {wanted}"),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(name: &str, text: &str) -> Option<String> {
        let value = RawValue::from_string(text.to_owned()).unwrap();
        let failure = check(name, &value).err()?;
        Some(failure.body.error.message)
    }

    #[test]
    fn a_hint_of_a_wrong_type_is_refused() {
        for (name, right, bad) in [
            ("store", "true", "\"yes\""),
            ("metadata", "{}", "[]"),
            ("prompt_cache_key", "\"k\"", "3"),
            ("service_tier", "\"flex\"", "{}"),
            ("verbosity", "\"extreme\"", "[]"),
            ("verbosity", "null", "3"),
            ("user", "\"u\"", "5"),
        ] {
            assert_eq!(wrong(name, right), None, "{name}");
            let message = wrong(name, bad).unwrap();
            assert!(
                message.contains(name) && message.contains("must be"),
                "{message}"
            );
        }
        assert_eq!(wrong("temperature", "\"warm\""), None, "no hint");
    }
}
