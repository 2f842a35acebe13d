//! Tests of reading calls: each family, in pieces and cut off.

use super::*;

fn call(name: &str, arguments: &str) -> Part {
    Part::Call(ToolCall {
        name: name.to_owned(),
        arguments: arguments.to_owned(),
    })
}

fn text_part(text: &str) -> Part {
    Part::Text(text.to_owned())
}

/// Parses the text in pieces of several sizes, which must all give the same parts; adjacent texts are joined.
fn read(family: Family, parallel: bool, written: &str) -> Vec<Part> {
    let names = || BTreeSet::from(["weather".to_owned(), "time".to_owned()]);
    let mut all = Vec::new();
    for size in [1, 3, usize::MAX] {
        let mut reader = ToolReader::new(family, names(), parallel);
        let mut parts: Vec<Part> = Vec::new();
        let letters: Vec<char> = written.chars().collect();
        for piece in letters.chunks(size.min(letters.len().max(1))) {
            parts.extend(reader.push(&piece.iter().collect::<String>()));
        }
        parts.extend(reader.finish(false));
        let mut joined: Vec<Part> = Vec::new();
        for part in parts {
            match (joined.last_mut(), part) {
                (Some(Part::Text(known)), Part::Text(more)) => known.push_str(&more),
                (_, part) => joined.push(part),
            }
        }
        all.push(joined);
    }
    assert!(all.iter().all(|parts| *parts == all[0]), "{all:?}");
    all.remove(0)
}

#[test]
fn tool_calls_of_each_family_are_parsed() {
    let paris = call("weather", r#"{"city":"Paris"}"#);
    let now = call("time", "{}");
    let hermes = "Let me see.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Paris\"}}\n</tool_call>\n\
                  <tool_call>{\"name\": \"time\"}</tool_call>\n";
    assert_eq!(
        read(Family::Hermes, true, hermes),
        [text_part("Let me see."), paris.clone(), now.clone()]
    );
    assert_eq!(
        read(Family::Hermes, false, hermes),
        [text_part("Let me see."), paris.clone()]
    );
    let llama = r#"{"name": "weather", "parameters": {"city": "Paris"}}"#;
    for written in [
        llama.to_owned(),
        format!("<|python_tag|>{llama}"),
        format!("\n{llama}"),
    ] {
        assert_eq!(
            read(Family::Llama, true, &written),
            std::slice::from_ref(&paris)
        );
    }
    let two = format!("{llama}; {{\"name\": \"time\", \"parameters\": {{}}}}");
    assert_eq!(
        read(Family::Llama, true, &two),
        [paris.clone(), now.clone()]
    );
    let list = r#"[{"name": "weather", "arguments": {"city": "Paris"}}, {"name": "time", "arguments": {}}]"#;
    for written in [list.to_owned(), format!("[TOOL_CALLS] {list}")] {
        assert_eq!(
            read(Family::Mistral, true, &written),
            [paris.clone(), now.clone()]
        );
    }
    let newer = r#"[TOOL_CALLS]weather[ARGS]{"city": "Paris"}"#;
    assert_eq!(
        read(Family::Mistral, true, newer),
        std::slice::from_ref(&paris)
    );
    let nested = r#"{"type": "function", "function": {"name": "weather", "arguments": "{\"city\":\"Paris\"}"}}"#;
    assert_eq!(read(Family::Json, true, nested), [paris]);
}

#[test]
fn text_that_is_not_a_call_stays_text() {
    for family in [Family::Hermes, Family::Llama, Family::Mistral, Family::Json] {
        for written in [
            "",
            "hello world",
            "  two spaces  ",
            "{\"answer\": 42}",
            "[1, 2, 3]",
            "a < b and [TOOL",
            "{\"name\": \"somebody\", \"arguments\": {}}",
            "{\"name\": \"weather\", \"arguments\": {",
            "{\"name\": \"weather\", \"arguments\": 5}",
        ] {
            let wanted = match written {
                "" => Vec::new(),
                text => vec![text_part(text)],
            };
            assert_eq!(read(family, true, written), wanted, "{family:?}");
        }
    }
    let broken = "<tool_call>{\"name\": }</tool_call>";
    assert_eq!(read(Family::Hermes, true, broken), [text_part(broken)]);
    let mentioned = "<tool_call> is a tag";
    assert_eq!(
        read(Family::Hermes, true, mentioned),
        [text_part(mentioned)]
    );
    let open = "<tool_call>{\"name\": \"weather\"}";
    assert_eq!(read(Family::Hermes, true, open), [call("weather", "{}")]);
}

/// Truncates a call of each family after every character: markers never become text, and the arguments only grow.
#[test]
fn a_truncated_call_never_becomes_text_and_keeps_the_arguments_received() {
    for (family, opening, call, closing) in [
        (
            Family::Hermes,
            "<tool_call>",
            r#"{"name": "weather", "arguments": {"city": "Rome"}}"#,
            "\n</tool_call>",
        ),
        (
            Family::Mistral,
            "[TOOL_CALLS]",
            r#" [{"name": "weather", "arguments": {"city": "Rome"}}"#,
            "]",
        ),
        (
            Family::Mistral,
            "[TOOL_CALLS]",
            r#"weather[ARGS]{"city": "Rome"}"#,
            "",
        ),
        (
            Family::Llama,
            "<|python_tag|>",
            r#"{"name": "weather", "parameters": {"city": "Rome"}}"#,
            "",
        ),
    ] {
        let written = format!("{opening}{call}{closing}");
        let mut arguments = String::new();
        for end in 1..=written.len() {
            let names = BTreeSet::from(["weather".to_owned()]);
            let mut reader = ToolReader::new(family, names, true);
            let mut parts = reader.push(&written[..end]);
            parts.extend(reader.finish(true));
            let cut = &written[..end];
            match parts.as_slice() {
                [] => assert_eq!(arguments, "", "{cut}"),
                [Part::Call(call)] => {
                    let is_more =
                        call.arguments.len() >= arguments.len() || arguments.contains("Rome\"");
                    assert!(call.name == "weather" && is_more, "{cut}");
                    arguments.clone_from(&call.arguments);
                }
                other => panic!("{cut}: {other:?}"),
            }
        }
        assert_eq!(arguments, r#"{"city":"Rome"}"#, "{written}");
    }
    let written = r#"{"name": "weather", "parameters": {"ci"#;
    let mut reader = ToolReader::new(Family::Llama, BTreeSet::from(["weather".to_owned()]), true);
    assert_eq!(reader.push(written), []);
    assert_eq!(reader.finish(true), [call("weather", r#"{"ci"#)]);
}

#[test]
fn possible_tool_call_tags_are_held_back_only_as_long_as_needed() {
    let mut reader = ToolReader::new(Family::Hermes, BTreeSet::new(), true);
    assert_eq!(reader.push("hello "), [text_part("hello")]);
    assert_eq!(reader.push("w<b"), [text_part(" w<b")]);
    assert_eq!(reader.push("<tool"), []);
    assert_eq!(reader.push("s"), [text_part("<tools")]);
}
