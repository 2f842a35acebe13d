//! Tests of custom tools as functions, and of their calls.

use super::*;

fn parse(tool: Value) -> Result<CustomFunction, Failure> {
    let mut tool = RequestFields::new("tools[0]", tool)?;
    let made = function(&mut tool, "edit", &mut CustomTools::default())?;
    tool.finish()?;
    Ok(made)
}

/// Decodes the arguments cut at every position; the result is always the same.
fn decoded(arguments: &str) -> String {
    let whole = input_of(arguments);
    let letters: Vec<char> = arguments.chars().collect();
    for size in [1, 2, 5] {
        let mut text = InputText::default();
        let mut all = String::new();
        for piece in letters.chunks(size) {
            all += &text.push(&piece.iter().collect::<String>());
        }
        all += &text.finish();
        assert_eq!(all, whole, "{arguments} in pieces of {size}");
    }
    whole
}

#[test]
fn the_input_of_a_call_is_decoded_complete_and_in_pieces() {
    for text in [
        "",
        "a",
        "*** Begin Patch\n+\"é\"\t\\ \u{1f600}\n",
        "{\"input\": 1}",
    ] {
        assert_eq!(decoded(&arguments(text)), text);
    }
    let escaped = "{ \"input\" : \"\\u0041\\ud83d\\ude00\\/\\ud83d.\\u00e9\" } ";
    assert_eq!(decoded(escaped), "A\u{1f600}/\u{fffd}.é");
}

#[test]
fn a_call_of_another_form_falls_back_to_its_text() {
    for (arguments, text) in [
        ("{\"patch\": \"a\"}", "a"),
        ("{\"patch\": \"a\", \"input\": \"b\"}", "b"),
        ("{\"a\": 1, \"b\": 2}", "{\"a\": 1, \"b\": 2}"),
        ("*** Begin Patch", "*** Begin Patch"),
        ("\"a\"", "a"),
        ("{}", ""),
        // Cut off by the token limit.
        ("{\"input\": \"a\\u00", "a"),
    ] {
        assert_eq!(decoded(arguments), text, "{arguments}");
    }
}

#[test]
fn a_custom_tool_becomes_a_function_with_one_text_argument() {
    let made = parse(json!({"description": "Edits."})).unwrap();
    assert_eq!(made.function["parameters"]["required"], json!(["input"]));
    let about = made.function["description"].as_str().unwrap();
    assert!(
        about.starts_with("Edits.") && about.contains("`input`"),
        "{about}"
    );
    let grammar = json!({"type": "grammar", "syntax": "regex", "definition": "a+"});
    let made = parse(json!({"format": grammar})).unwrap();
    let input = &made.function["parameters"]["properties"]["input"];
    assert_eq!(
        (&input["pattern"], made.is_unheld),
        (&json!("^(a+)$"), false)
    );
    assert_eq!(made.function["strict"], true);
    for grammar in [
        json!({"syntax": "lark", "definition": "start: \"a\"+"}),
        json!({"syntax": "regex", "definition": "(?=a)a"}),
    ] {
        let made = parse(json!({"format": {"type": "grammar", "grammar": grammar}})).unwrap();
        let input = &made.function["parameters"]["properties"]["input"];
        assert!(made.is_unheld && input.get("pattern").is_none());
        assert_eq!(made.function["strict"], false);
        let about = made.function["description"].as_str().unwrap();
        let definition = grammar["definition"].as_str().unwrap();
        assert!(about.contains(definition), "{about}");
    }
}

#[test]
fn a_request_has_a_bounded_number_of_custom_tools() {
    let mut tools = CustomTools::default();
    let mut add = || {
        let mut tool = RequestFields::new("tools[0]", json!({})).unwrap();
        function(&mut tool, "edit", &mut tools)
    };
    assert!((0..TOOLS_MAX).all(|_| add().is_ok()));
    let failure = add().unwrap_err();
    assert_eq!(failure.body.error.param.as_deref(), Some("tools"));
}

#[test]
fn the_patterns_of_a_request_have_a_bounded_length() {
    let mut tools = CustomTools::default();
    let format = json!({"type": "grammar", "syntax": "regex", "definition": "a".repeat(10_000)});
    let mut is_unheld = || {
        let mut tool = RequestFields::new("tools[0]", json!({"format": format})).unwrap();
        function(&mut tool, "edit", &mut tools).unwrap().is_unheld
    };
    let held = (0..100).filter(|_| !is_unheld()).count();
    assert_eq!(held, PATTERN_BYTES_MAX / 10_000);
}

#[test]
fn an_invalid_custom_tool_format_is_refused_by_name() {
    for (format, field) in [
        (json!({"type": "xml"}), "tools[0].format.type"),
        (
            json!({"type": "grammar", "definition": "a"}),
            "tools[0].format.syntax",
        ),
        (
            json!({"type": "grammar", "syntax": "lark"}),
            "tools[0].format.definition",
        ),
        (
            json!({"type": "grammar", "syntax": "regex", "definition": "("}),
            "tools[0].format.definition",
        ),
    ] {
        let failure = parse(json!({"format": format})).unwrap_err();
        assert_eq!(failure.body.error.param.as_deref(), Some(field));
    }
}
