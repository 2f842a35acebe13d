//! Compares chat templates with `transformers`' output, stored in `tests/vectors/chat`.

use super::ChatTemplate;
use serde_json::Value;
use std::path::PathBuf;

/// Constructs that Python accepts and this crate rejects; no known template uses them.
const NOT_KNOWN: [&str; 9] = [
    "{{ '%s is %d' % ('x', 3) }}",
    "{{ '%s' | format('a') }}{{ '%05.2f|%x|%r' % (1.5, 255, 'a') }}{{ '%(k)s' % {'k': 1} }}",
    "{{ 'abc'.index('c') }}",
    "{{ [1, 2].index(2) }}",
    "{{ 'ab'.ljust(4) }}|{{ 'ab'.center(4) }}|{{ '7'.zfill(3) }}",
    "{{ 'a'.encode() }}",
    "{{ 'a' is callable }}",
    "{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.current }}",
    "{{ 'wordwrap me' | wordcount }}{{ 'ab' | center(6) }}",
];

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/vectors/chat")
}

fn json(file: &str) -> Value {
    let text = std::fs::read_to_string(folder().join(file)).expect("the vectors are kept");
    serde_json::from_str(&text).expect("JSON")
}

/// The time at which `transformers` rendered the vectors: 2025-03-07 14:05:09.
fn now() -> u64 {
    1_741_356_309
}

/// The rendered text, or the message of the error.
fn rendered(
    source: &str,
    messages: &Value,
    tools: &[&Value],
    prompts: bool,
) -> Result<String, String> {
    let template = ChatTemplate::compile(source.to_owned(), None, Some("<s>"), Some("</s>"), now);
    let template = template.map_err(|error| format!("does not compile: {error}"))?;
    let messages = messages.as_array().expect("a list");
    template
        .text_of(messages, tools, &serde_json::Map::new(), prompts)
        .map_err(|error| error.message)
}

/// Describes a difference; `None` if there is none.
fn difference(ours: &Result<String, String>, expected: &Value) -> Option<String> {
    match (ours, expected.as_str(), expected["refused"].as_str()) {
        (Ok(ours), Some(text), _) if ours == text => None,
        (Err(_), None, None) => None,
        // The template's own error message reaches the client.
        (Err(ours), None, Some(reason)) if ours.contains(reason) => None,
        _ => Some(format!("  ours     {ours:?}\n  expected {expected}")),
    }
}

#[test]
fn templates_of_all_families_render_as_in_transformers() {
    let (cases, expected) = (json("cases.json"), json("rendered.json"));
    assert_eq!(expected["now"], now());
    let tools: Vec<&Value> = cases["tools"].as_array().expect("a list").iter().collect();
    let mut wrong = Vec::new();
    let mut compared = 0;
    for (family, conversations) in expected["templates"].as_object().expect("an object") {
        let source = std::fs::read_to_string(folder().join(format!("{family}.jinja")))
            .expect("the template is kept");
        for (name, texts) in conversations.as_object().expect("an object") {
            let messages = &cases["conversations"][name];
            for (index, text) in texts.as_array().expect("a list").iter().enumerate() {
                let tools: &[&Value] = if index < 2 { &[] } else { &tools };
                let ours = rendered(&source, messages, tools, index % 2 == 1);
                let difference = difference(&ours, text);
                wrong.extend(difference.map(|words| format!("{family}: {name}, {index}\n{words}")));
                compared += 1;
            }
        }
    }
    assert!(compared >= 600, "{compared}");
    assert!(
        wrong.is_empty(),
        "{} of {compared} differ:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

#[test]
fn constructs_of_the_dialect_render_as_transformers_renders_them_or_are_refused() {
    let (cases, expected) = (json("cases.json"), json("rendered.json"));
    let constructs = json("constructs.json");
    let constructs = constructs.as_array().expect("a list");
    let expected = expected["constructs"].as_array().expect("a list");
    assert_eq!(constructs.len(), expected.len());
    let messages = &cases["conversations"]["calls and results"];
    let mut wrong = Vec::new();
    for (source, text) in constructs.iter().zip(expected) {
        let source = source.as_str().expect("a text");
        let ours = rendered(source, messages, &[], true);
        let known = !NOT_KNOWN.contains(&source);
        match difference(&ours, text) {
            Some(words) if known => wrong.push(format!("{source}\n{words}")),
            None if !known => {
                wrong.push(format!("{source}\n  is rendered now; take it off the list"))
            }
            Some(words) if ours.is_ok() => wrong.push(format!("{source}\n{words}")),
            _ => {}
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {} differ:\n{}",
        wrong.len(),
        constructs.len(),
        wrong.join("\n")
    );
}
