//! Aviary's prompt: a text, a flag for the model's prompt format, and parameters named as in Hugging Face's `generate`.

use serde_json::{Map, Value, json};

use api_types::error::Failure;
use catalog::Entry;
use dialect::{CHAT, COMPLETIONS};
use gateway::fields::{Fields, OrderFields, Strict};

#[derive(Debug)]
pub(super) struct Prompt {
    text: String,
    has_format: bool,
    parameters: Map<String, Value>,
}

impl Strict for Prompt {
    fn read(fields: &mut Fields) -> Result<Prompt, Failure> {
        let mut parameters = fields.map("parameters")?.unwrap_or_default();
        let stops = fields.texts("stopping_sequences")?;
        // Aviary accepted both places; the parameters take precedence.
        if !stops.is_empty() {
            let own = parameters.entry("stopping_sequences");
            own.or_insert_with(|| json!(stops));
        }
        Ok(Prompt {
            text: fields.needed_text("prompt", "\"What is a priority?\"")?,
            has_format: fields.flag("use_prompt_format")?.unwrap_or(true),
            parameters,
        })
    }
}

/// Reads the prompts of a batch.
pub(super) fn several(body: &[u8], most: usize) -> Result<Vec<Prompt>, Failure> {
    let wrong = |message: String| Failure::invalid(None, message);
    let parts: Vec<&serde_json::value::RawValue> = serde_json::from_slice(body).map_err(|_| {
        wrong("the body must be a list of prompts such as [{\"prompt\": \"…\"}]".to_owned())
    })?;
    if parts.is_empty() || parts.len() > most {
        let count = parts.len();
        return Err(wrong(format!(
            "the body has {count} prompts; allowed: 1 to {most}"
        )));
    }
    let one = |(nth, part): (usize, &serde_json::value::RawValue)| {
        let mut fields = Fields::parse(part.get().as_bytes())?;
        let read = Prompt::read(&mut fields).and_then(|parsed| fields.finish().map(|()| parsed));
        read.map_err(|mut failure| {
            let error = &mut failure.body.error;
            error.message = format!("[{nth}].{}", error.message);
            failure
        })
    };
    parts.into_iter().enumerate().map(one).collect()
}

impl Prompt {
    /// The current route and the body for it.
    pub fn into_request(
        self,
        name: &str,
        entry: &Entry,
        is_stream: bool,
    ) -> Result<(&'static str, Value), Failure> {
        let completes = matches!(entry.generation_of(name).prompt, catalog::Prompt::Disabled);
        let (path, mut body) = if self.has_format && !completes {
            (
                CHAT,
                json!({"model": name, "messages": [{"role": "user", "content": self.text}]}),
            )
        } else {
            (COMPLETIONS, json!({"model": name, "prompt": self.text}))
        };
        for (key, value) in self
            .parameters
            .into_iter()
            .filter(|(_, value)| !value.is_null())
        {
            let (field, value) = parameter(&key, value, entry)?;
            if let Some(field) = field {
                body[field] = value;
            }
        }
        if is_stream {
            body["stream"] = json!(true);
            body["stream_options"] = json!({"include_usage": true});
        }
        Ok((path, body))
    }
}

/// Translates a parameter into a request field and its value. `None` if the value has no effect.
fn parameter(
    key: &str,
    value: Value,
    entry: &Entry,
) -> Result<(Option<&'static str>, Value), Failure> {
    let wrong = |message: String| Failure::invalid(format!("parameters.{key}"), message);
    match (key, &value) {
        ("stopping_sequences", Value::Array(stops)) if stops.iter().all(Value::is_string) => {
            Ok((Some("stop"), value))
        }
        ("stopping_sequences", _) => {
            Err(wrong(format!("parameters.{key}: must be a list of texts")))
        }
        ("do_sample", Value::Bool(true)) => Ok((None, value)),
        ("do_sample", Value::Bool(false)) => Ok((Some("temperature"), json!(0))),
        // 0 means no limit.
        ("top_k", Value::Number(count)) if count.as_f64() == Some(0.0) => Ok((None, value)),
        _ => match entry.recipe.sampling_field(key) {
            Some(field) => Ok((Some(field), value)),
            None => Err(wrong(format!(
                "parameters.{key}: the model's engine does not accept it; it accepts temperature, top_p, max_new_tokens, stopping_sequences and parameters specific to the engine"
            ))),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &str) -> Result<Vec<Prompt>, String> {
        several(body.as_bytes(), 2).map_err(|failure| failure.body.error.message.clone())
    }

    #[test]
    fn a_batch_is_a_list_of_prompts_and_errors_name_the_invalid_one() {
        let prompts = read(r#"[{"prompt": "a"}, {"prompt": "b", "use_prompt_format": false}]"#);
        let prompts = prompts.expect("two prompts");
        assert_eq!(
            (prompts[0].has_format, prompts[1].has_format),
            (true, false)
        );
        for (body, part) in [
            ("{}", "must be a list"),
            ("[]", "0 prompts"),
            (
                r#"[{"prompt": "a"}, {"prompt": "b"}, {"prompt": "c"}]"#,
                "3 prompts; allowed: 1 to 2",
            ),
            (r#"[{"prompt": "a"}, {"promt": "b"}]"#, "[1]."),
            (r#"[{"prompt": 1}]"#, "[0]."),
        ] {
            let error = read(body).expect_err(body);
            assert!(error.contains(part), "`{part}` is missing in {error}");
        }
    }
}
