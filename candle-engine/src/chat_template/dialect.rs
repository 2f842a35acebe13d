//! Extends minijinja to Hugging Face's dialect of Jinja: methods of Python strings, white space handling, tests, and the tags that
//! mark generated text.

use super::json::{python_float, to_json};
use minijinja::value::{ValueKind, from_args};
use minijinja::{Environment, Error, ErrorKind, State, Value, escape_formatter, filters};
use minijinja_contrib::{globals, pycompat};

/// Adds the dialect to an environment.
pub(super) fn add_to(environment: &mut Environment<'_>) {
    environment.set_unknown_method_callback(method);
    environment.add_function(
        "raise_exception",
        |message: String| -> Result<String, Error> {
            Err(Error::new(ErrorKind::InvalidOperation, message))
        },
    );
    environment.add_function("joiner", globals::joiner);
    environment.add_filter("tojson", to_json);
    environment.add_filter("trim", |text: &Value, letters: Option<String>| {
        stripped(&python_text(text), letters.as_deref(), true, true).to_owned()
    });
    for name in ["length", "count"] {
        environment.add_filter(name, |value: &Value| {
            if value.is_undefined() {
                Ok(0)
            } else {
                filters::length(value)
            }
        });
    }
    environment.add_test("iterable", |value: &Value| {
        !value.is_none() && value.try_iter().is_ok()
    });
    environment.add_test("sequence", |value: &Value| {
        let kind = value.kind();
        matches!(
            kind,
            ValueKind::Seq | ValueKind::Map | ValueKind::String | ValueKind::Undefined
        )
    });
    environment.set_formatter(|out, state, value| match python_float(value) {
        Some(text) => Ok(std::fmt::Write::write_str(out, &text)?),
        None => escape_formatter(out, state, value),
    });
}

fn python_text(value: &Value) -> String {
    python_float(value).unwrap_or_else(|| value.to_string())
}

/// Python also counts the four ASCII separators as white space.
fn is_space(letter: char) -> bool {
    letter.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&letter)
}

fn stripped<'a>(text: &'a str, letters: Option<&str>, start: bool, end: bool) -> &'a str {
    let goes = |letter: char| letters.map_or_else(|| is_space(letter), |all| all.contains(letter));
    let text = if start {
        text.trim_start_matches(goes)
    } else {
        text
    };
    if end {
        text.trim_end_matches(goes)
    } else {
        text
    }
}

/// String methods that minijinja lacks, or that treat white space differently.
fn method(state: &mut State, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    let Some(text) = value.as_str() else {
        return pycompat::unknown_method_callback(state, value, name, args);
    };
    let pair = |found: Option<(&str, &str)>, otherwise: [&str; 3], separator: &str| match found {
        Some((before, after)) => Value::from_iter([before, separator, after]),
        None => Value::from_iter(otherwise),
    };
    Ok(match name {
        "strip" | "lstrip" | "rstrip" => {
            let (letters,): (Option<&str>,) = from_args(args)?;
            Value::from(stripped(text, letters, name != "rstrip", name != "lstrip"))
        }
        "split" if args.is_empty() => {
            let words = text.split(is_space).filter(|word| !word.is_empty());
            Value::from_iter(words)
        }
        "removeprefix" => {
            let (prefix,): (&str,) = from_args(args)?;
            Value::from(text.strip_prefix(prefix).unwrap_or(text))
        }
        "removesuffix" => {
            let (suffix,): (&str,) = from_args(args)?;
            Value::from(text.strip_suffix(suffix).unwrap_or(text))
        }
        "partition" => {
            let (separator,): (&str,) = from_args(args)?;
            pair(text.split_once(separator), [text, "", ""], separator)
        }
        "rpartition" => {
            let (separator,): (&str,) = from_args(args)?;
            pair(text.rsplit_once(separator), ["", "", text], separator)
        }
        "rsplit" if !args.is_empty() && !args[0].is_none() => {
            let (separator, most): (&str, Option<i64>) = from_args(args)?;
            let most = most.and_then(|most| usize::try_from(most).ok());
            let parts = text.rsplitn(
                most.map_or(usize::MAX, |most| most.saturating_add(1)),
                separator,
            );
            let mut parts: Vec<&str> = parts.collect();
            parts.reverse();
            Value::from_iter(parts)
        }
        _ => return pycompat::unknown_method_callback(state, value, name, args),
    })
}

/// Replaces `{% generation %}` and `{% endgeneration %}`, which only mark generated text, by blocks that are always shown.
pub(super) fn without_generation_tags(source: &str) -> String {
    let mut made = String::with_capacity(source.len());
    let mut rest = source;
    let mut raw = false;
    while let Some(start) = rest.find('{') {
        let (before, tag) = rest.split_at(start);
        made += before;
        let end = match tag.as_bytes().get(1) {
            Some(b'#') if !raw => tag.find("#}").map(|end| end + 2),
            Some(b'{') if !raw => end_of_code(tag, "}}"),
            Some(b'%') if raw => tag.find("%}").map(|end| end + 2),
            Some(b'%') => end_of_code(tag, "%}"),
            _ => Some(1),
        };
        let (code, after) = tag.split_at(end.unwrap_or(tag.len()));
        let word = code
            .strip_prefix("{%")
            .and_then(|code| code.strip_suffix("%}"));
        let word = word.map(|word| word.trim_matches(['-', '+']).trim());
        match word {
            Some("raw") => raw = true,
            Some("endraw") => raw = false,
            _ => {}
        }
        match word {
            Some("generation") if !raw => made += &code.replacen("generation", "if true", 1),
            Some("endgeneration") if !raw => made += &code.replacen("endgeneration", "endif", 1),
            _ => made += code,
        }
        rest = after;
    }
    made + rest
}

/// Returns the length of a tag up to and including `end`. Ignores `end` inside string literals.
fn end_of_code(tag: &str, end: &str) -> Option<usize> {
    let mut quote = None;
    let mut letters = tag.char_indices().skip(2);
    while let Some((place, letter)) = letters.next() {
        match quote {
            Some(_) if letter == '\\' => drop(letters.next()),
            Some(open) if letter == open => quote = None,
            Some(_) => {}
            None if letter == '"' || letter == '\'' => quote = Some(letter),
            None if tag[place..].starts_with(end) => return Some(place + end.len()),
            None => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tags_that_mark_generated_text_are_replaced() {
        for (source, expected) in [
            (
                "{%- generation -%}a{% endgeneration %}",
                "{%- if true -%}a{% endif %}",
            ),
            (
                "{{ '{% generation %}' }}{# {% generation %} #}",
                "{{ '{% generation %}' }}{# {% generation %} #}",
            ),
            (
                "{% raw %}{% generation %}{% endraw %}",
                "{% raw %}{% generation %}{% endraw %}",
            ),
            (
                "{% set generation = 1 %}{ generation",
                "{% set generation = 1 %}{ generation",
            ),
            (
                "{{ 'it\\'s }}' }}é{%generation%}",
                "{{ 'it\\'s }}' }}é{%if true%}",
            ),
            ("{% open", "{% open"),
        ] {
            assert_eq!(without_generation_tags(source), expected);
        }
    }
}
