//! Owns the chat template of a model: from messages to the prompt's text. Never tokenises.

use crate::api_error::ApiError;
use crate::calendar;
use crate::error::{EngineError, one_line};
use crate::model_config::read_json;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{Environment, Error, ErrorKind, Value, context};
use serde_json::Value as Json;
use std::path::Path;

const NAME: &str = "chat";

/// A compiled template; Hugging Face's dialect of Jinja.
pub(crate) struct ChatTemplate {
    environment: Environment<'static>,
    bos_token: String,
    eos_token: String,
}

impl ChatTemplate {
    /// Reads `chat_template.jinja`, or `chat_template` of `tokenizer_config.json`: a string, or a list of named templates of
    /// which `default` or else the first is taken. `None` where the model has none.
    ///
    /// # Errors
    /// A template that cannot be read or compiled.
    pub fn load(
        folder: &Path,
        bos_token: Option<&str>,
        eos_token: Option<&str>,
    ) -> Result<Option<Self>, EngineError> {
        let own_file = folder.join("chat_template.jinja");
        let settings_file = folder.join("tokenizer_config.json");
        let (file, source) = if own_file.exists() {
            let source = std::fs::read_to_string(&own_file);
            let source = source.map_err(|error| {
                EngineError::model(&own_file, error, "make it readable UTF-8 text")
            })?;
            (own_file, Some(source))
        } else {
            let settings = read_json(&settings_file)?.unwrap_or_default();
            (settings_file, template_of(&settings["chat_template"]))
        };
        let Some(source) = source else {
            return Ok(None);
        };
        Self::compile(source, bos_token, eos_token)
            .map(Some)
            .map_err(|error| {
                EngineError::model(
                    file,
                    format!("its chat template is wrong ({error:#})"),
                    "correct the template or remove it",
                )
            })
    }

    fn compile(
        source: String,
        bos_token: Option<&str>,
        eos_token: Option<&str>,
    ) -> Result<Self, Error> {
        let mut environment = Environment::new();
        // As Hugging Face renders: a block's own line leaves no trace.
        environment.set_syntax(
            SyntaxConfig::builder()
                .trim_blocks(true)
                .lstrip_blocks(true)
                .build()?,
        );
        environment
            .set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_function(
            "raise_exception",
            |message: String| -> Result<String, Error> {
                Err(Error::new(ErrorKind::InvalidOperation, message))
            },
        );
        environment.add_function("strftime_now", |pattern: String| {
            calendar::strftime(&pattern, calendar::unix_seconds())
        });
        environment.add_template_owned(NAME, source)?;
        let owned = |token: Option<&str>| token.unwrap_or_default().to_owned();
        Ok(Self {
            environment,
            bos_token: owned(bos_token),
            eos_token: owned(eos_token),
        })
    }

    /// The prompt for `messages`, ending where the assistant's answer begins.
    ///
    /// # Errors
    /// 400 when the template refuses the messages.
    pub fn render(&self, messages: &[Json]) -> Result<String, ApiError> {
        let variables = context! {
            messages => Value::from(Serde(messages)),
            add_generation_prompt => true,
            bos_token => self.bos_token.clone(),
            eos_token => self.eos_token.clone(),
        };
        let rendered = self
            .environment
            .get_template(NAME)
            .and_then(|template| template.render(variables));
        rendered.map_err(|error| {
            let reason = error.detail().map_or_else(|| one_line(&error), one_line);
            ApiError::field(
                "messages",
                format!("the model's chat template refuses these messages: {reason}"),
            )
        })
    }
}

fn template_of(value: &Json) -> Option<String> {
    let named = |template: &Json| template["template"].as_str().map(str::to_owned);
    match value {
        Json::String(template) => Some(template.clone()),
        Json::Array(templates) => templates
            .iter()
            .find(|template| template["name"] == "default")
            .or(templates.first())
            .and_then(named),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn render(source: &str, messages: &Json) -> Result<String, ApiError> {
        let template = ChatTemplate::compile(source.to_owned(), Some("<s>"), Some("</s>"))
            .expect("the template compiles");
        template.render(messages.as_array().expect("a list"))
    }

    #[test]
    fn a_template_in_the_python_dialect_renders() {
        let source = "{{ bos_token }}{% for m in messages %}\n    {% if m['role'].startswith('u') %}\n[{{ m.content.strip() }}]\n\
            {% else %}{{ m['content'] + eos_token }}{% endif %}{% endfor %}{% if add_generation_prompt %}>{% endif %}";
        let messages =
            json!([{"role": "user", "content": " hi "}, {"role": "assistant", "content": "yes"}]);
        assert_eq!(
            render(source, &messages).expect("renders"),
            "<s>[hi]\nyes</s>>"
        );
    }

    #[test]
    fn an_exception_of_the_template_is_the_clients_error() {
        let error = render("{{ raise_exception('roles must alternate') }}", &json!([]))
            .expect_err("raises");
        assert_eq!(error.status, 400);
        assert!(
            error.message.contains("roles must alternate"),
            "{}",
            error.message
        );
    }

    #[test]
    fn dates_are_available() {
        let year = render("{{ strftime_now('%Y') }}", &json!([])).expect("renders");
        assert!(year.parse::<u32>().is_ok_and(|year| year >= 2024), "{year}");
    }

    #[test]
    fn of_several_templates_the_default_is_taken() {
        let list =
            json!([{"name": "tools", "template": "a"}, {"name": "default", "template": "b"}]);
        assert_eq!(template_of(&list), Some("b".to_owned()));
        assert_eq!(
            template_of(&json!([{"name": "rag", "template": "c"}])),
            Some("c".to_owned())
        );
        assert_eq!(template_of(&json!(null)), None);
    }
}
