//! Decides about each field of a request on its way to an engine: it is passed on, dropped, or refused. Templates, URLs, files and
//! tensors are never passed on, at any depth of the request.

use std::fmt::Display;
use std::sync::LazyLock;

use memchr::memmem::Finder;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::inference::request::hints;
use crate::inference::request::ignored;
use crate::inference::request::media;
use crate::inference::request::strategies::Strategy;
use api_types::error::Failure;
use catalog::{Ask, Entry, TEMPLATE_SWITCHES, is_hint_of_another_service, never};
use config::UnknownFields;
use dialect::ReasoningRequest;
use dialect::shape::may_be_a_tree;
use reading::has_effect;
use reading::nearest;

/// The decision about a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Goes,
    /// Dropped, and named in a header if it had an effect.
    Ignored,
    /// A reasoning option, to be translated into the engine's own fields.
    Reasoning,
}

/// Decides by the engine's table of fields and the policy of the model's file.
pub(crate) fn fate(entry: &Entry, ask: Ask, name: &str, value: &RawValue) -> Result<Fate, Failure> {
    let passes = entry.unknown_fields == UnknownFields::Pass;
    // Null means absent.
    if value.get() == "null" && !(passes && never(name).is_none()) {
        return Ok(Fate::Ignored);
    }
    if let Some(why) = never(name) {
        return Err(refused(
            name,
            &format!("`{name}` is never passed to an engine: {why}"),
        ));
    }
    // The order of requests is the pool's.
    if name == "priority" {
        return Ok(Fate::Ignored);
    }
    if name == "chat_template_kwargs" {
        switches(value)?;
    }
    hints::check(name, value)?;
    if ask == Ask::Chat && ReasoningRequest::is_of_chats(name) {
        let goes = match name {
            // OpenAI's field. An unknown engine may have its own levels.
            "reasoning_effort" => !entry.recipe.knows_reasoning(),
            _ => passes || entry.recipe.takes(ask, name),
        };
        return Ok(if goes { Fate::Goes } else { Fate::Reasoning });
    }
    if carries_media(name) && may_name_something(value.get()) {
        media::check(name, value)?;
    }
    if entry.recipe.ignores(name) {
        return Ok(Fate::Ignored);
    }
    if entry.recipe.takes(ask, name) {
        return Ok(Fate::Goes);
    }
    // Sampling with another strategy would return a wrong result.
    if !passes && let Some(strategy) = Strategy::of_field(name, value) {
        let message = format!(
            "`{name}`: the engine of {} ({}) does not support this search: {}",
            entry.name,
            entry.recipe.engine(),
            strategy.engines()
        );
        return Err(refused(name, &message));
    }
    let is_hint = is_hint_of_another_service(name) || !ignored::may_have_effect(name, value);
    fate_of_unknown(entry, &ask, name, is_hint, || {
        entry.recipe.known_fields(ask)
    })
}

/// Decides about a field that the model's engine is not known to accept. `is_hint`: it may be dropped. `known`: candidates for a
/// suggestion.
pub(crate) fn fate_of_unknown(
    entry: &Entry,
    ask: &dyn Display,
    name: &str,
    is_hint: bool,
    known: impl FnOnce() -> Vec<&'static str>,
) -> Result<Fate, Failure> {
    match entry.unknown_fields {
        UnknownFields::Pass => Ok(Fate::Goes),
        UnknownFields::Drop => Ok(Fate::Ignored),
        UnknownFields::Refuse if is_hint => Ok(Fate::Ignored),
        UnknownFields::Refuse => {
            let engine = entry.recipe.engine();
            let known = known();
            let hint = nearest(name, known.iter().copied());
            let hint = hint.map_or_else(String::new, |near| format!("; did you mean {near}?"));
            let shown: String = name.chars().take(100).collect();
            let message = format!(
                "`{shown}` is not a field of {ask} that the engine of {} ({engine}) accepts{hint}",
                entry.name
            );
            let mut failure = refused(name, &message);
            failure.body.error.code = Some("unknown_parameter");
            Err(failure)
        }
    }
}

fn refused(name: &str, message: &str) -> Failure {
    let name: String = name.chars().take(100).collect();
    Failure::invalid(name, message)
}

/// Decides about a field that OpenAI's audio routes do not have. Files and URLs are never passed to an engine.
pub(crate) fn fate_in_audio(
    entry: &Entry,
    name: &str,
    value: &Value,
    known: &[&'static str],
) -> Result<Fate, Failure> {
    if let Some(why) = never(name) {
        let message = format!("`{name}` is never passed to an engine: {why}");
        return Err(refused(name, &message));
    }
    let is_hint = !has_effect(value);
    let fate = fate_of_unknown(entry, &"audio requests", name, is_hint, || known.to_vec())?;
    if fate == Fate::Goes && names_a_file(value) {
        let message = format!(
            "`{name}` names a file or a URL, which is never passed to an engine: send the data itself"
        );
        return Err(refused(name, &message));
    }
    Ok(fate)
}

/// Returns true if a text in the value consists of nothing but a path or a URL.
pub(crate) fn names_a_file(value: &Value) -> bool {
    match value {
        Value::String(text) => is_path_or_url(text.trim()),
        Value::Array(list) => list.iter().any(names_a_file),
        Value::Object(fields) => fields.values().any(names_a_file),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

fn is_path_or_url(text: &str) -> bool {
    // No system opens a longer path, and base64 of audio and images may begin with slashes.
    const PATH_BYTES_MAX: usize = 4096;
    // URL parsers ignore control characters.
    let letters = text.chars().filter(|letter| !letter.is_control());
    let letters = letters.skip_while(|letter| letter.is_whitespace());
    let begin = letters.take(256).collect::<String>().to_ascii_lowercase();
    let scheme = begin.split_once("://").map_or("", |(scheme, _)| scheme);
    let is_scheme = !scheme.is_empty()
        && scheme
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'));
    let drive = begin.as_bytes().get(..3);
    let has_drive = drive.is_some_and(|text| text[1] == b':' && matches!(text[2], b'/' | b'\\'));
    let begins = ["/", "\\", "~", "./", "../"];
    let is_path = has_drive || begins.iter().any(|prefix| begin.starts_with(prefix));
    is_scheme || begin.starts_with("file:") || (is_path && text.len() <= PATH_BYTES_MAX)
}

/// Accepts only scalar values of known names: others could change how a template is rendered.
fn switches(value: &RawValue) -> Result<(), Failure> {
    let name = "chat_template_kwargs";
    may_be_a_tree(value.get().as_bytes())?;
    let parsed: Value = serde_json::from_str(value.get()).unwrap_or_default();
    let entries = match &parsed {
        Value::Null => return Ok(()),
        Value::Object(entries) => entries,
        _ => return Err(refused(name, "`chat_template_kwargs` must be an object")),
    };
    let is_plain = |value: &Value| !value.is_object() && !value.is_array();
    match entries
        .iter()
        .find(|(key, value)| !TEMPLATE_SWITCHES.contains(&key.as_str()) || !is_plain(value))
    {
        None => Ok(()),
        Some((key, _)) => Err(refused(
            name,
            &format!(
                "`chat_template_kwargs.{key}` is never passed to an engine; allowed are plain values of {}",
                TEMPLATE_SWITCHES.join(", ")
            ),
        )),
    }
}

fn carries_media(name: &str) -> bool {
    matches!(
        name,
        "messages"
            | "input"
            | "documents"
            | "query"
            | "queries"
            | "text_1"
            | "text_2"
            | "items"
            | "data_1"
            | "data_2"
    )
}

/// A cheap check that is almost always false.
fn may_name_something(text: &str) -> bool {
    static MARKS: LazyLock<[Finder<'static>; 4]> =
        LazyLock::new(|| ["_url", "_embeds", "\"file", "\\u"].map(Finder::new));
    MARKS
        .iter()
        .any(|mark| mark.find(text.as_bytes()).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of_media(value: Value) -> Option<String> {
        let value = serde_json::value::to_raw_value(&value).unwrap();
        let failure = media::check("messages", &value).err()?;
        failure.body.error.param
    }

    #[test]
    fn contents_that_reference_files_or_urls_are_refused_and_inline_data_passes() {
        let part = |part: Value| json!([{"role": "user", "content": [{"type": "text", "text": "x"}, part]}]);
        let image = |url: &str| part(json!({"type": "image_url", "image_url": {"url": url}}));
        assert_eq!(of_media(image("data:image/png;base64,AA")), None);
        for wrong in [
            "http://169.254.169.254/",
            "file:///etc/passwd",
            "",
            "DATA:x",
        ] {
            assert_eq!(
                of_media(image(wrong)).as_deref(),
                Some("messages[0].content[1].image_url"),
                "{wrong}"
            );
        }
        assert!(of_media(part(json!({"type": "image_embeds", "image_embeds": "AA"}))).is_some());
        assert!(of_media(part(json!({"type": "file", "file": {"file_id": "f"}}))).is_some());
        assert_eq!(
            of_media(part(
                json!({"type": "file", "file": {"file_data": "data:x"}})
            )),
            None
        );
        assert!(may_name_something(&image("http://x").to_string()));
        assert!(!may_name_something(
            &json!([{"role": "user", "content": "Hello"}]).to_string()
        ));
    }

    #[test]
    fn a_path_or_url_is_found_at_any_depth() {
        for named in [
            json!("http://169.254.169.254/x"),
            json!("file:///etc/passwd"),
            json!("/etc/passwd"),
            json!("../../key"),
            json!("C:\\key"),
            json!({"a": [1, {"b": " S3://bucket/x"}]}),
            json!("\u{1}http://x"),
            json!("ht\ttp://x"),
            json!("FILE:/etc/passwd"),
        ] {
            assert!(names_a_file(&named), "{named}");
        }
        for plain in [
            json!("a"),
            json!(true),
            json!("as in https://example.org, say"),
            json!({"boost": 2, "words": ["Pool", "a/b"]}),
            json!("data:audio/wav;base64,AA=="),
            json!(format!("/9j/4AAQ{}", "A".repeat(5000))),
        ] {
            assert!(!names_a_file(&plain), "{plain}");
        }
    }

    #[test]
    fn chat_template_kwargs_accept_only_plain_values_of_known_names() {
        let parsed = |value: Value| {
            let text = serde_json::value::to_raw_value(&value).unwrap();
            switches(&text).map_err(|failure| failure.body.error.message)
        };
        assert_eq!(parsed(json!({"enable_thinking": false})), Ok(()));
        assert_eq!(parsed(json!(null)), Ok(()));
        for wrong in [
            json!({"chat_template": "{{ x }}"}),
            json!({"enable_thinking": {}}),
            json!({"tokenize": false}),
            json!(3),
        ] {
            assert!(parsed(wrong.clone()).is_err(), "{wrong}");
        }
    }
}
