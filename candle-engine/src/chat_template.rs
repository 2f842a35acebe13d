//! Owns the chat template of a model: from messages to the prompt's text. Never tokenises.

use crate::api_error::ApiError;
use crate::calendar;
use crate::error::{EngineError, one_line};
use crate::files::{ModelFiles, read_json};
use crate::tools::Family;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Serde};
use minijinja::{Environment, Error, ErrorKind, Value, context};
use serde::Serialize;
use serde_json::Value as Json;
use serde_json::ser::Formatter;
use std::io::{self, Write};

const NAME: &str = "chat";
/// The template for requests with tools, where a model has one of its own.
const TOOLS_NAME: &str = "tool_use";

/// A compiled template; Hugging Face's dialect of Jinja.
pub(crate) struct ChatTemplate {
    environment: Environment<'static>,
    /// The text of all templates.
    source: String,
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
        files: &ModelFiles,
        bos_token: Option<&str>,
        eos_token: Option<&str>,
    ) -> Result<Option<Self>, EngineError> {
        let folder = files.folder();
        let own_file = folder.join("chat_template.jinja");
        let settings_file = folder.join("tokenizer_config.json");
        let (file, source, with_tools) = if own_file.exists() {
            let source = std::fs::read_to_string(&own_file);
            let source = source.map_err(|error| {
                EngineError::model(&own_file, error, "make it readable UTF-8 text")
            })?;
            (own_file, Some(source), None)
        } else {
            let settings = read_json(&settings_file)?.unwrap_or_default();
            let template = &settings["chat_template"];
            (
                settings_file,
                template_of(template),
                named(template, TOOLS_NAME),
            )
        };
        let Some(source) = source else {
            return Ok(None);
        };
        Self::compile(source, with_tools, bos_token, eos_token)
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
        with_tools: Option<String>,
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
        environment.add_filter("tojson", to_json);
        let mut all = source.clone();
        environment.add_template_owned(NAME, source)?;
        if let Some(source) = with_tools {
            all += &source;
            environment.add_template_owned(TOOLS_NAME, source)?;
        }
        let owned = |token: Option<&str>| token.unwrap_or_default().to_owned();
        Ok(Self {
            environment,
            source: all,
            bos_token: owned(bos_token),
            eos_token: owned(eos_token),
        })
    }

    /// Whether a template uses a name at all.
    pub fn mentions(&self, name: &str) -> bool {
        self.source.contains(name)
    }

    /// How the model writes tool calls.
    pub fn family(&self) -> Family {
        Family::of(&self.source)
    }

    /// The prompt for `messages`, ending where the assistant's answer begins.
    ///
    /// # Errors
    /// 400 when the template refuses the messages.
    pub fn render(&self, messages: &[Json], tools: &[&Json]) -> Result<String, ApiError> {
        // As Hugging Face does: without tools the name is there and means nothing.
        let with_tools = match tools {
            [] => Value::from(()),
            tools => Value::from(Serde(tools)),
        };
        let own = self.environment.get_template(TOOLS_NAME);
        let name = match own.is_ok() && !tools.is_empty() {
            true => TOOLS_NAME,
            false => NAME,
        };
        let variables = context! {
            messages => Value::from(Serde(messages)),
            tools => with_tools,
            add_generation_prompt => true,
            bos_token => self.bos_token.clone(),
            eos_token => self.eos_token.clone(),
        };
        let rendered = self
            .environment
            .get_template(name)
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
    let text = |template: &Json| template["template"].as_str().map(str::to_owned);
    match value {
        Json::String(template) => Some(template.clone()),
        Json::Array(templates) => {
            named(value, "default").or_else(|| templates.first().and_then(text))
        }
        _ => None,
    }
}

/// One of a list of named templates.
fn named(templates: &Json, name: &str) -> Option<String> {
    let mut templates = templates.as_array()?.iter();
    let template = templates.find(|template| template["name"] == name)?;
    template["template"].as_str().map(str::to_owned)
}

/// Python's `json.dumps`, which Hugging Face's filter is: a space after commas and colons, and no letter escaped for HTML.
fn to_json(value: Value, options: Kwargs) -> Result<String, Error> {
    let indent: Option<usize> = options.get("indent")?;
    // The other options of Python's function change nothing here.
    for other in ["ensure_ascii", "separators", "sort_keys"] {
        let _: Option<Value> = options.get(other)?;
    }
    options.assert_all_used()?;
    let mut written = Vec::new();
    let spaces = " ".repeat(indent.unwrap_or_default().min(16));
    let failed =
        |error: serde_json::Error| Error::new(ErrorKind::BadSerialization, error.to_string());
    match indent {
        Some(_) => {
            let pretty = serde_json::ser::PrettyFormatter::with_indent(spaces.as_bytes());
            let mut writer = serde_json::Serializer::with_formatter(&mut written, pretty);
            value.serialize(&mut writer).map_err(failed)?;
        }
        None => {
            let mut writer = serde_json::Serializer::with_formatter(&mut written, Spaced);
            value.serialize(&mut writer).map_err(failed)?;
        }
    }
    String::from_utf8(written)
        .map_err(|error| Error::new(ErrorKind::BadSerialization, error.to_string()))
}

/// JSON in one line with a space after commas and colons.
struct Spaced;

impl Formatter for Spaced {
    fn begin_array_value<W: Write + ?Sized>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        out.write_all(if first { b"" } else { b", " })
    }

    fn begin_object_key<W: Write + ?Sized>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        out.write_all(if first { b"" } else { b", " })
    }

    fn begin_object_value<W: Write + ?Sized>(&mut self, out: &mut W) -> io::Result<()> {
        out.write_all(b": ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn render(source: &str, messages: &Json) -> Result<String, ApiError> {
        let template = ChatTemplate::compile(source.to_owned(), None, Some("<s>"), Some("</s>"))
            .expect("the template compiles");
        template.render(messages.as_array().expect("a list"), &[])
    }

    #[test]
    fn tools_are_written_as_python_writes_them() {
        let source = "{% if tools %}{{ tools | tojson }}|{{ tools[0] | tojson(indent=2) }}{% else %}none{% endif %}";
        let template =
            ChatTemplate::compile(source.to_owned(), None, None, None).expect("compiles");
        let tool = json!({"name": "<é>", "list": [1, true]});
        assert_eq!(
            template.render(&[], &[&tool]).expect("renders"),
            "[{\"name\": \"<é>\", \"list\": [1, true]}]|{\n  \"name\": \"<é>\",\n  \"list\": [\n    1,\n    true\n  ]\n}"
        );
        assert_eq!(template.render(&[], &[]).expect("renders"), "none");
        let two =
            ChatTemplate::compile("a".to_owned(), Some("b{{ tools }}".to_owned()), None, None);
        let two = two.expect("compiles");
        assert_eq!(two.render(&[], &[]).expect("renders"), "a");
        assert!(two.render(&[], &[&tool]).expect("renders").starts_with('b'));
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
