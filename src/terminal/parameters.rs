//! The request parameters that `/set` changes: their names, alternative names in other programs, and types. The server checks their
//! ranges.

use reading::nearest;
use serde_json::{Map, Value, json};

/// The type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Number,
    Integer,
    Texts,
    Word,
}

struct KnownParameter {
    name: &'static str,
    /// Alternative names in other programs.
    others: &'static [&'static str],
    form: Form,
    about: &'static str,
}

const fn known(
    name: &'static str,
    others: &'static [&'static str],
    form: Form,
    about: &'static str,
) -> KnownParameter {
    KnownParameter {
        name,
        others,
        form,
        about,
    }
}

const KNOWN: &[KnownParameter] = &[
    known(
        "temperature",
        &["temp"],
        Form::Number,
        "randomness of the answer; 0 is lowest",
    ),
    known(
        "top_p",
        &[],
        Form::Number,
        "only the likeliest tokens that together have this probability",
    ),
    known(
        "top_k",
        &[],
        Form::Integer,
        "only this number of likeliest tokens",
    ),
    known(
        "min_p",
        &[],
        Form::Number,
        "only tokens with this share of the likeliest token's probability",
    ),
    known(
        "max_tokens",
        &["num_predict", "max_completion_tokens"],
        Form::Integer,
        "maximum length of the answer",
    ),
    known(
        "seed",
        &[],
        Form::Integer,
        "the same seed gives the same answer",
    ),
    known("stop", &[], Form::Texts, "texts that end the answer"),
    known(
        "frequency_penalty",
        &[],
        Form::Number,
        "penalty for frequent tokens",
    ),
    known(
        "presence_penalty",
        &[],
        Form::Number,
        "penalty for tokens that have occurred",
    ),
    known(
        "repetition_penalty",
        &["repeat_penalty"],
        Form::Number,
        "penalty for repetition; 1 is none",
    ),
    known(
        "reasoning_effort",
        &[],
        Form::Word,
        "amount of reasoning: low, medium, high",
    ),
];

/// The parameters that were set, as request fields.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parameters(Map<String, Value>);

impl Parameters {
    /// Sets a parameter from its text; `none` removes it. Returns the name used in requests.
    ///
    /// # Errors
    /// For an unknown name, with the nearest known one, and for a value of the wrong type.
    pub fn set(&mut self, name: &str, value: &str) -> Result<&'static str, String> {
        let lower = name.to_lowercase();
        let is_named =
            |known: &&KnownParameter| known.name == lower || known.others.contains(&lower.as_str());
        let Some(known) = KNOWN.iter().find(is_named) else {
            return Err(unknown(&lower));
        };
        let value = value.trim();
        if value == "none" {
            self.0.remove(known.name);
            return Ok(known.name);
        }
        let wrong = |wanted: &str| Err(format!("{} is {wanted}, or none", known.name));
        let value = match known.form {
            Form::Number => match value.parse::<f64>() {
                Ok(number) if number.is_finite() => json!(number),
                _ => return wrong("a number such as 0.7"),
            },
            Form::Integer => match value.parse::<i64>() {
                Ok(number) => json!(number),
                Err(_) => return wrong("a whole number such as 200"),
            },
            Form::Texts if value.is_empty() => return wrong("a text"),
            // A JSON list, or a single text.
            Form::Texts => match serde_json::from_str::<Vec<String>>(value) {
                Ok(texts) => json!(texts),
                Err(_) => json!([value.trim_matches('"')]),
            },
            Form::Word if value.is_empty() => return wrong("a word"),
            Form::Word => json!(value),
        };
        self.0.insert(known.name.to_owned(), value);
        Ok(known.name)
    }

    pub fn put(&mut self, name: &str, value: impl Into<Value>) {
        self.0.insert(name.to_owned(), value.into());
    }

    pub fn as_map(&self) -> &Map<String, Value> {
        &self.0
    }

    /// Lists all names with their values.
    pub fn describe(&self) -> String {
        let widest = KNOWN
            .iter()
            .map(|known| known.name.len())
            .max()
            .unwrap_or(0);
        let line = |known: &KnownParameter| {
            let now = self
                .0
                .get(known.name)
                .map_or("-".to_owned(), Value::to_string);
            format!("  {:widest$}  {now:<6}  {}", known.name, known.about)
        };
        let lines: Vec<String> = KNOWN.iter().map(line).collect();
        lines.join("\n")
    }
}

fn unknown(name: &str) -> String {
    if name == "num_ctx" {
        return "the context of a model is not set for one request; it is max_total_tokens in the model's file".to_owned();
    }
    let names: Vec<&str> = KNOWN.iter().map(|known| known.name).collect();
    match nearest(name, names.iter().copied()) {
        Some(near) => format!("unknown parameter {name}; did you mean {near}?"),
        None => format!("unknown parameter {name}; known are {}", names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_converted_to_request_fields() {
        let mut parameters = Parameters::default();
        for (name, value) in [
            ("temperature", "0.2"),
            ("num_predict", "200"),
            ("stop", "END"),
            ("reasoning_effort", "low"),
        ] {
            parameters.set(name, value).expect(name);
        }
        let expected = json!({"temperature": 0.2, "max_tokens": 200, "stop": ["END"], "reasoning_effort": "low"});
        assert_eq!(Value::Object(parameters.as_map().clone()), expected);
        parameters.set("stop", r#"["a", "b"]"#).expect("a list");
        assert_eq!(parameters.as_map()["stop"], json!(["a", "b"]));
        parameters.set("Temperature", "none").expect("removed");
        assert!(!parameters.as_map().contains_key("temperature"));
    }

    #[test]
    fn a_misspelled_parameter_gets_a_suggestion_and_an_invalid_value_an_example() {
        let mut parameters = Parameters::default();
        let mut refused = |name: &str, value: &str| parameters.set(name, value).expect_err(name);
        assert!(refused("temprature", "1").contains("did you mean temperature?"));
        assert!(refused("mood", "1").contains("top_p"));
        assert!(refused("num_ctx", "4096").contains("max_total_tokens"));
        for value in ["hot", "", "NaN", "inf"] {
            assert!(refused("temperature", value).contains("0.7"), "{value}");
        }
        assert!(refused("seed", "1.5").contains("whole"));
        assert_eq!(parameters, Parameters::default());
    }
}
