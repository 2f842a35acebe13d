//! Renders a request's messages with the model's chat template.

use crate::api_error::ApiError;
use crate::calendar;
use crate::error::{EngineError, one_line};
use crate::files::ModelFiles;
use crate::tools::Family;
use dialect::without_generation_tags;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{Environment, Error, Value, context};
use serde_json::{Map, Value as Json};
use std::collections::BTreeSet;

mod dialect;
mod json;
#[cfg(test)]
mod vectors;

const NAME: &str = "chat";
/// Name of the separate template for requests with tools, which some models have.
const TOOLS_NAME: &str = "tool_use";

/// A compiled template in Hugging Face's dialect of Jinja.
pub(crate) struct ChatTemplate {
    environment: Environment<'static>,
    /// The source text of all templates.
    source: String,
    /// The variables they read.
    variables: BTreeSet<String>,
    bos_token: String,
    eos_token: String,
}

impl ChatTemplate {
    /// Compiles the templates of a model. Returns `None` if it has none.
    ///
    /// # Errors
    /// If a template cannot be read or compiled.
    pub fn load(
        files: &ModelFiles,
        bos_token: Option<&str>,
        eos_token: Option<&str>,
    ) -> Result<Option<Self>, EngineError> {
        let Some(templates) = files.templates()? else {
            return Ok(None);
        };
        Self::compile(
            templates.main,
            templates.with_tools,
            bos_token,
            eos_token,
            calendar::unix_seconds,
        )
        .map(Some)
        .map_err(|error| {
            EngineError::model(
                templates.file,
                format!("its chat template is invalid ({error:#})"),
                "correct the template or remove it",
            )
        })
    }

    fn compile(
        source: String,
        with_tools: Option<String>,
        bos_token: Option<&str>,
        eos_token: Option<&str>,
        now: fn() -> u64,
    ) -> Result<Self, Error> {
        let mut environment = Environment::new();
        // Like Hugging Face: a line that contains only a block tag leaves no trace in the output.
        environment.set_syntax(
            SyntaxConfig::builder()
                .trim_blocks(true)
                .lstrip_blocks(true)
                .build()?,
        );
        dialect::add_to(&mut environment);
        environment.add_function("strftime_now", move |pattern: String| {
            calendar::strftime(&pattern, now())
        });
        let mut all = source.clone();
        environment.add_template_owned(NAME, without_generation_tags(&source))?;
        if let Some(source) = with_tools {
            all += &source;
            environment.add_template_owned(TOOLS_NAME, without_generation_tags(&source))?;
        }
        let owned = |token: Option<&str>| token.unwrap_or_default().to_owned();
        let mut variables = BTreeSet::new();
        for name in [NAME, TOOLS_NAME] {
            if let Ok(template) = environment.get_template(name) {
                variables.extend(template.undeclared_variables(false));
            }
        }
        Ok(Self {
            environment,
            source: all,
            variables,
            bos_token: owned(bos_token),
            eos_token: owned(eos_token),
        })
    }

    /// Returns true if a template mentions a name anywhere.
    pub fn mentions(&self, name: &str) -> bool {
        self.source.contains(name)
    }

    /// Returns true if a template reads a variable of this name.
    pub fn reads(&self, name: &str) -> bool {
        self.variables.contains(name)
    }

    /// The format of the model's tool calls.
    pub fn family(&self) -> Family {
        Family::new(&self.source)
    }

    /// Renders the prompt for `messages`, ending where the assistant's message begins, or after the last message. `switches` are
    /// additional variables.
    ///
    /// # Errors
    /// 400 if the template rejects the messages.
    pub fn render(
        &self,
        messages: &[Json],
        tools: &[&Json],
        switches: &Map<String, Json>,
        begins_response: bool,
    ) -> Result<String, ApiError> {
        self.text_of(messages, tools, switches, begins_response)
    }

    /// Renders messages of any roles, without tools.
    ///
    /// # Errors
    /// 400 if the template rejects the messages.
    pub fn render_as(
        &self,
        messages: &[Json],
        add_generation_prompt: bool,
    ) -> Result<String, ApiError> {
        self.text_of(messages, &[], &Map::new(), add_generation_prompt)
    }

    fn text_of(
        &self,
        messages: &[Json],
        tools: &[&Json],
        switches: &Map<String, Json>,
        add_generation_prompt: bool,
    ) -> Result<String, ApiError> {
        // Like Hugging Face: null fields of a message count as absent.
        let messages: Vec<Json> = messages.iter().map(without_nulls).collect();
        // Without tools, the variable is defined but null.
        let with_tools = match tools {
            [] => Value::from(()),
            tools => Value::from(Serde(tools)),
        };
        let own = self.environment.get_template(TOOLS_NAME);
        let name = if own.is_ok() && !tools.is_empty() {
            TOOLS_NAME
        } else {
            NAME
        };
        let variables = context! {
            messages => Value::from(Serde(&messages)),
            tools => with_tools,
            documents => Value::from(()),
            add_generation_prompt,
            bos_token => self.bos_token.clone(),
            eos_token => self.eos_token.clone(),
            ..Value::from(Serde(switches))
        };
        let rendered = self
            .environment
            .get_template(name)
            .and_then(|template| template.render(variables));
        rendered.map_err(|error| {
            let reason = error.detail().map_or_else(|| one_line(&error), one_line);
            ApiError::field(
                "messages",
                format!("the model's chat template rejects these messages: {reason}"),
            )
        })
    }
}

fn without_nulls(message: &Json) -> Json {
    let mut message = message.clone();
    if let Json::Object(fields) = &mut message {
        fields.retain(|_, value| !value.is_null());
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn render(source: &str, messages: &Json) -> Result<String, ApiError> {
        let template = ChatTemplate::compile(
            source.to_owned(),
            None,
            Some("<s>"),
            Some("</s>"),
            calendar::unix_seconds,
        )
        .expect("the template compiles");
        template.render(messages.as_array().expect("a list"), &[], &Map::new(), true)
    }

    #[test]
    fn tools_are_written_as_python_writes_them() {
        let source = "{% if tools %}{{ tools | tojson }}|{{ tools[0] | tojson(indent=2) }}{% else %}none{% endif %}";
        let template =
            ChatTemplate::compile(source.to_owned(), None, None, None, calendar::unix_seconds)
                .expect("compiles");
        let tool = json!({"name": "<é>", "list": [1, true]});
        assert_eq!(
            template
                .render(&[], &[&tool], &Map::new(), true)
                .expect("renders"),
            "[{\"name\": \"<é>\", \"list\": [1, true]}]|{\n  \"name\": \"<é>\",\n  \"list\": [\n    1,\n    true\n  ]\n}"
        );
        let none = template.render(&[], &[], &Map::new(), true);
        assert_eq!(none.expect("renders"), "none");
        let two = ChatTemplate::compile(
            "a".to_owned(),
            Some("b{{ tools }}".to_owned()),
            None,
            None,
            || 0,
        );
        let two = two.expect("compiles");
        let render = |tools: &[&Json]| two.render(&[], tools, &Map::new(), true);
        assert_eq!(render(&[]).expect("renders"), "a");
        assert!(render(&[&tool]).expect("renders").starts_with('b'));
        assert!(two.mentions("tools"));
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
    fn a_template_reads_only_the_variables_it_names() {
        let source = "{{ '<think>' if enable_thinking is not defined or enable_thinking }}{% for message in messages %}{{ message.thinking }}{% endfor %}";
        let template =
            ChatTemplate::compile(source.to_owned(), None, None, None, calendar::unix_seconds);
        let template = template.expect("compiles");
        assert!(template.reads("enable_thinking") && !template.reads("thinking"));
        for (switches, rendered) in [
            (json!({}), "<think>"),
            (json!({"enable_thinking": true}), "<think>"),
            (json!({"enable_thinking": false, "bos_token": "x"}), ""),
        ] {
            let switches = switches.as_object().expect("an object").clone();
            let text = template.render(&[], &[], &switches, true);
            assert_eq!(text.expect("renders"), rendered);
        }
    }

    #[test]
    fn templates_can_format_the_current_date() {
        let year = render("{{ strftime_now('%Y') }}", &json!([])).expect("renders");
        assert!(year.parse::<u32>().is_ok_and(|year| year >= 2024), "{year}");
    }
}
