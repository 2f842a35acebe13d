//! Parses the fields that constrain a completion, with their bounds: `response_format`, `structured_outputs` and the `guided_`
//! fields.

use crate::api_error::ApiError;
use crate::fields::{Fields, expected};
use crate::grammar::Grammar;
use serde_json::{Value, json};

pub(super) const SCHEMA_BYTES_MAX: usize = 64 * 1024;
/// Maximum length of an expression; compilation time grows faster than the length.
const EXPRESSION_BYTES_MAX: usize = 16 * 1024;
const GRAMMAR_BYTES_MAX: usize = 32 * 1024;
const DEPTH_MAX: usize = 40;
const CHOICES_MAX: usize = 256;
const NAME_LETTERS_MAX: usize = 64;

/// Takes the grammar of a request, and the name of its field. At most one field may specify a grammar.
pub(super) fn take_grammar(
    fields: &mut Fields,
) -> Result<Option<(Grammar, &'static str)>, ApiError> {
    let mut found = take_structured_outputs(fields)?;
    for name in [
        "response_format",
        "guided_json",
        "guided_regex",
        "guided_choice",
        "guided_grammar",
    ] {
        let Some(value) = fields.take(name) else {
            continue;
        };
        let grammar = match name {
            "response_format" => parse_format(value)?,
            "guided_json" => Some(parse_json(name, value)?),
            "guided_choice" => Some(parse_choice(name, value)?),
            "guided_regex" => Some(Grammar::Regex(text(name, value, EXPRESSION_BYTES_MAX)?)),
            _ => Some(Grammar::Lark(text(name, value, GRAMMAR_BYTES_MAX)?)),
        };
        if let (Some((_, other)), Some(_)) = (&found, &grammar) {
            return Err(ApiError::field(
                name,
                format!("`{name}` and `{other}` cannot be combined"),
            ));
        }
        found = grammar.map(|grammar| (grammar, name)).or(found);
    }
    Ok(found)
}

/// vLLM's newer form of the `guided_` fields: an object with a single entry.
fn take_structured_outputs(
    fields: &mut Fields,
) -> Result<Option<(Grammar, &'static str)>, ApiError> {
    const NAME: &str = "structured_outputs";
    let Some(mut parts) = fields.object(NAME)? else {
        return Ok(None);
    };
    let mut found: Option<(Grammar, &'static str)> = None;
    for part in ["json", "regex", "choice", "grammar", "json_object"] {
        let Some(value) = parts.take(part) else {
            continue;
        };
        let place = parts.path(part);
        let grammar = match part {
            "json" => parse_json(&place, value)?,
            "choice" => parse_choice(&place, value)?,
            "regex" => Grammar::Regex(text(&place, value, EXPRESSION_BYTES_MAX)?),
            "grammar" => Grammar::Lark(text(&place, value, GRAMMAR_BYTES_MAX)?),
            _ => match value {
                Value::Bool(true) => Grammar::Json {
                    schema: json!({"type": "object"}),
                    lenient: false,
                },
                Value::Bool(false) => continue,
                other => return Err(expected(&place, "true or false", &other)),
            },
        };
        if found.is_some() {
            return Err(ApiError::field(
                NAME,
                format!(
                    "`{NAME}` has more than one of json, regex, choice, grammar and json_object"
                ),
            ));
        }
        found = Some((grammar, NAME));
    }
    parts.finish()?;
    Ok(found)
}

fn parse_format(value: Value) -> Result<Option<Grammar>, ApiError> {
    const NAME: &str = "response_format";
    let mut fields = Fields::new(NAME, value)?;
    let kind = fields.take("type").unwrap_or_default();
    let grammar = match kind.as_str() {
        Some("text") => None,
        Some("json_object") => Some(Grammar::Json {
            schema: json!({"type": "object"}),
            lenient: false,
        }),
        Some("json_schema") => match fields.take("json_schema") {
            Some(Value::Object(object)) => {
                let place = fields.path("json_schema");
                Some(parse_named_schema(Fields::at(place, object))?)
            }
            other => {
                return Err(expected(
                    "response_format.json_schema",
                    "an object with a `name` and a `schema`",
                    &other.unwrap_or_default(),
                ));
            }
        },
        _ => {
            return Err(expected(
                "response_format.type",
                "one of text, json_object, json_schema",
                &kind,
            ));
        }
    };
    fields.finish()?;
    Ok(grammar)
}

fn parse_named_schema(mut fields: Fields) -> Result<Grammar, ApiError> {
    let name = fields.take("name").unwrap_or_default();
    if !name.as_str().is_some_and(is_name) {
        return Err(expected(&fields.path("name"), NAME_WANTED, &name));
    }
    fields.text("description")?;
    let strict = fields.flag("strict")?.unwrap_or(false);
    let schema = fields.take("schema").unwrap_or(json!({"type": "object"}));
    let place = fields.path("schema");
    fields.finish()?;
    Ok(Grammar::Json {
        schema: checked_schema(&place, schema)?,
        // OpenAI promises less without `strict`: keywords that cannot be enforced are ignored.
        lenient: !strict,
    })
}

pub(super) const NAME_WANTED: &str = "1 to 64 letters, digits, underscores and dashes";

/// Returns true for valid names of schemas and functions, by OpenAI's rules.
pub(super) fn is_name(name: &str) -> bool {
    let known = |letter: char| letter.is_ascii_alphanumeric() || "_-".contains(letter);
    (1..=NAME_LETTERS_MAX).contains(&name.len()) && name.chars().all(known)
}

fn parse_json(name: &str, value: Value) -> Result<Grammar, ApiError> {
    let schema = match &value {
        // Other engines also accept the schema as a string.
        Value::String(text) => serde_json::from_str(text).map_err(|error| {
            ApiError::field(
                name,
                format!("`{name}` is a string that is not valid JSON: {error}"),
            )
        })?,
        _ => value,
    };
    Ok(Grammar::Json {
        schema: checked_schema(name, schema)?,
        lenient: false,
    })
}

fn parse_choice(name: &str, value: Value) -> Result<Grammar, ApiError> {
    let texts: Option<Vec<String>> = value
        .as_array()
        .filter(|list| (1..=CHOICES_MAX).contains(&list.len()))
        .and_then(|list| {
            let text = |value: &Value| value.as_str().map(str::to_owned);
            list.iter().map(text).collect()
        });
    let bytes = |texts: &Vec<String>| texts.iter().map(String::len).sum::<usize>();
    texts
        .filter(|texts| texts.iter().all(|text| !text.is_empty()))
        .filter(|texts| bytes(texts) <= SCHEMA_BYTES_MAX)
        .map(Grammar::Choice)
        .ok_or_else(|| {
            let wanted = format!(
                "a list of 1 to {CHOICES_MAX} non-empty strings of at most {SCHEMA_BYTES_MAX} bytes in total"
            );
            expected(name, wanted, &value)
        })
}

fn text(name: &str, value: Value, bytes_max: usize) -> Result<String, ApiError> {
    let text = match value {
        Value::String(text) if !text.trim().is_empty() => text,
        other => return Err(expected(name, "a non-empty string", &other)),
    };
    check_bytes(name, text.len(), bytes_max)?;
    // Grammar parsers recurse once per nesting level.
    let mut depth = 0usize;
    let mut deepest = 0;
    for letter in text.chars() {
        match letter {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    check_depth(name, deepest)?;
    Ok(text)
}

/// Checks a schema's bounds. Compilation detects unsupported keywords later.
pub(super) fn checked_schema(name: &str, schema: Value) -> Result<Value, ApiError> {
    if !schema.is_object() && !schema.is_boolean() {
        return Err(expected(name, "a JSON schema: an object", &schema));
    }
    check_bytes(name, schema.to_string().len(), SCHEMA_BYTES_MAX)?;
    let longest = longest_text(&schema);
    if longest > EXPRESSION_BYTES_MAX {
        return Err(ApiError::field(
            name,
            format!(
                "`{name}` contains a string of {longest} bytes; at most {EXPRESSION_BYTES_MAX} are allowed"
            ),
        ));
    }
    check_depth(name, depth(&schema))?;
    Ok(schema)
}

fn check_bytes(name: &str, bytes: usize, most: usize) -> Result<(), ApiError> {
    if bytes <= most {
        return Ok(());
    }
    Err(ApiError::field(
        name,
        format!("`{name}` has {bytes} bytes; at most {most} are allowed"),
    ))
}

fn check_depth(name: &str, depth: usize) -> Result<(), ApiError> {
    if depth <= DEPTH_MAX {
        return Ok(());
    }
    Err(ApiError::field(
        name,
        format!("`{name}` is {depth} levels deep; at most {DEPTH_MAX} are allowed"),
    ))
}

/// Length of the longest string in a schema, in bytes; it may be an expression.
fn longest_text(value: &Value) -> usize {
    match value {
        Value::Object(map) => map.values().map(longest_text).max().unwrap_or(0),
        Value::Array(list) => list.iter().map(longest_text).max().unwrap_or(0),
        Value::String(text) => text.len(),
        _ => 0,
    }
}

/// Nesting depth of objects and lists. The recursion is bounded, because the body parser limits the depth.
fn depth(value: &Value) -> usize {
    match value {
        Value::Object(map) => 1 + map.values().map(depth).max().unwrap_or(0),
        Value::Array(list) => 1 + list.iter().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(body: Value) -> Result<Option<(Grammar, &'static str)>, ApiError> {
        let mut fields = Fields::parse(body.to_string().as_bytes()).expect("an object");
        let grammar = take_grammar(&mut fields)?;
        fields.finish()?;
        Ok(grammar)
    }

    #[test]
    fn strict_decides_whether_unsupported_schema_keywords_are_refused() {
        for (strict, lenient) in [
            (json!(true), false),
            (json!(false), true),
            (json!(null), true),
        ] {
            let format = json!({"type": "json_schema", "json_schema": {"name": "a", "schema": {}, "strict": strict}});
            let grammar = take(json!({"response_format": format})).expect("is taken");
            let wanted = Grammar::Json {
                schema: json!({}),
                lenient,
            };
            assert_eq!(grammar, Some((wanted, "response_format")));
        }
        assert_eq!(take(json!({"response_format": {"type": "text"}})), Ok(None));
    }

    #[test]
    fn structured_outputs_equal_the_older_guided_fields() {
        for (part, older, value) in [
            ("json", "guided_json", json!({"type": "integer"})),
            ("regex", "guided_regex", json!("a+")),
            ("choice", "guided_choice", json!(["a", "b"])),
            ("grammar", "guided_grammar", json!("start: \"a\"")),
        ] {
            let newer = take(json!({"structured_outputs": {part: value}})).expect("is taken");
            let known = take(json!({older: value})).expect("is taken");
            assert_eq!(newer.unzip().0, known.unzip().0, "{part}");
        }
        let object = take(json!({"structured_outputs": {"json_object": true}}));
        assert!(matches!(
            object,
            Ok(Some((Grammar::Json { .. }, "structured_outputs")))
        ));
        assert_eq!(
            take(json!({"structured_outputs": {"json": null}})),
            Ok(None)
        );
    }

    #[test]
    fn an_invalid_response_format_is_refused_by_field() {
        let mut deep = json!({});
        for _ in 0..45 {
            deep = json!({"items": deep});
        }
        let schema = |schema: Value| json!({"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}});
        for (body, field) in [
            (json!({"response_format": "json"}), "response_format"),
            (json!({"response_format": {}}), "response_format.type"),
            (
                json!({"response_format": {"type": "xml"}}),
                "response_format.type",
            ),
            (
                json!({"response_format": {"type": "text", "a": 1}}),
                "response_format.a",
            ),
            (
                json!({"response_format": {"type": "json_schema"}}),
                "response_format.json_schema",
            ),
            (
                json!({"response_format": {"type": "json_schema", "json_schema": {"schema": {}}}}),
                "response_format.json_schema.name",
            ),
            (schema(json!("x")), "response_format.json_schema.schema"),
            (schema(deep.clone()), "response_format.json_schema.schema"),
            (
                schema(json!({"title": "x".repeat(70_000)})),
                "response_format.json_schema.schema",
            ),
            (json!({"guided_json": "{"}), "guided_json"),
            (json!({"structured_outputs": "a"}), "structured_outputs"),
            (
                json!({"structured_outputs": {"json": "{"}}),
                "structured_outputs.json",
            ),
            (
                json!({"structured_outputs": {"regex": "a", "choice": ["a"]}}),
                "structured_outputs",
            ),
            (
                json!({"structured_outputs": {"colour": "a"}}),
                "structured_outputs.colour",
            ),
            (
                json!({"structured_outputs": {"regex": "a"}, "guided_choice": ["a"]}),
                "guided_choice",
            ),
            (json!({"guided_json": 5}), "guided_json"),
            (json!({"guided_choice": []}), "guided_choice"),
            (json!({"guided_choice": ["a", ""]}), "guided_choice"),
            (json!({"guided_choice": ["a", 1]}), "guided_choice"),
            (json!({"guided_regex": ""}), "guided_regex"),
            (json!({"guided_regex": "(".repeat(100)}), "guided_regex"),
            (json!({"guided_grammar": {"a": 1}}), "guided_grammar"),
            (
                json!({"guided_regex": "a", "guided_choice": ["a"]}),
                "guided_choice",
            ),
            (
                json!({"response_format": {"type": "json_object"}, "guided_regex": "a"}),
                "guided_regex",
            ),
        ] {
            let error = take(body.clone()).expect_err("must be refused");
            let shown: String = body.to_string().chars().take(100).collect();
            assert_eq!(
                error.param.as_deref(),
                Some(field),
                "{shown}: {}",
                error.message
            );
        }
    }
}
