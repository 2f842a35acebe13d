//! Tests of grammars over the vocabulary of a demo model: accepted texts, refusals and caching.

mod hostile;

use super::*;
use crate::detokenize::DecodeTokens;
use crate::files::ModelFiles;
use crate::tools::{Family, Tool, offered};
use std::path::Path;

fn demo() -> ModelTokenizer {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../demo/models/tiny-chat");
    let files = ModelFiles::open(&folder).expect("a model");
    ModelTokenizer::load(&files).expect("a tokenizer")
}

fn schema(schema: Value) -> Grammar {
    Grammar::Json {
        schema,
        lenient: false,
    }
}

/// Returns true if the complete text satisfies the grammar.
fn takes(grammar: &Grammar, text: &str) -> bool {
    let (tokenizer, grammars) = (demo(), Grammars::new(None));
    let constraint = grammars.constraint(grammar, &tokenizer, "guided_json");
    let mut constraint = constraint.expect("compiles");
    let end = 2;
    for token in tokenizer.encode(text, false).expect("encodes") {
        let mut logits = vec![0.0; tokenizer.vocabulary];
        constraint.mask(&mut logits, &[end]).expect("a mask");
        if logits[token as usize] != 0.0 {
            return false;
        }
        constraint.accept(token).expect("is allowed");
    }
    let mut logits = vec![0.0; tokenizer.vocabulary];
    constraint.mask(&mut logits, &[end]).expect("a mask");
    logits[end as usize] == 0.0
}

#[test]
fn a_schema_accepts_only_matching_json() {
    let person = schema(json!({
        "type": "object", "required": ["name", "age"], "additionalProperties": false,
        "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}}
    }));
    assert!(takes(&person, r#"{"name": "Ada", "age": 36}"#));
    assert!(takes(&person, "{\n  \"name\": \"日本\",\n  \"age\": 3\n}"));
    assert!(!takes(&person, r#"{"name": "Ada"}"#));
    assert!(!takes(&person, r#"{"name": "Ada", "age": -1}"#));
    assert!(!takes(&person, "hello"));
}

#[test]
fn regexes_choices_and_lark_grammars_constrain_the_text() {
    let regex = Grammar::Regex(r"\d{4}-\d{2}/(a|b)".to_owned());
    assert!(takes(&regex, "2024-11/a") && !takes(&regex, "2024-1/a"));
    let choice = Grammar::Choice(vec!["yes".to_owned(), "no \"thanks\"\u{7f}".to_owned()]);
    assert!(takes(&choice, "yes") && takes(&choice, "no \"thanks\"\u{7f}"));
    assert!(!takes(&choice, "no"));
    let lark = Grammar::Lark("start: \"a\" (\",\" \"a\")*".to_owned());
    assert!(takes(&lark, "a,a,a") && !takes(&lark, "a,"));
}

#[test]
fn a_grammar_that_cannot_be_compiled_or_satisfied_is_refused_with_the_reason() {
    let (tokenizer, grammars) = (demo(), Grammars::new(None));
    for grammar in [
        schema(json!({"type": "wizard"})),
        schema(json!({"enum": []})),
        schema(json!(false)),
        schema(json!({"type": "integer", "minimum": 5, "maximum": 3})),
        schema(json!({"$ref": "http://127.0.0.1:1/schema.json"})),
        schema(json!({"$ref": "file:///etc/passwd"})),
        schema(json!({"$ref": "#"})),
        schema(json!({"$ref": "#/nowhere"})),
        schema(json!({"type": "string", "pattern": "("})),
        schema(json!({"not": {"type": "string"}})),
        Grammar::Regex("(".to_owned()),
        Grammar::Lark("start: other".to_owned()),
        Grammar::Lark("".to_owned()),
    ] {
        let shown = format!("{grammar:?}");
        let error = grammars.constraint(&grammar, &tokenizer, "guided_json");
        let error = error.err().unwrap_or_else(|| panic!("{shown} is taken"));
        assert_eq!(error.status, 400, "{shown}: {}", error.message);
        assert!(error.message.len() < 500, "{shown}: {}", error.message);
    }
    let lenient = Grammar::Json {
        schema: json!({"type": "string", "not": {"const": "x"}}),
        lenient: true,
    };
    assert!(grammars.constraint(&lenient, &tokenizer, "x").is_ok());
}

#[test]
fn a_schema_with_thousands_of_properties_is_enforced_to_the_last_one() {
    for count in [100, 1500, 2100] {
        for required in [false, true] {
            let names: Vec<String> = (0..count).map(|nth| format!("p{nth}")).collect();
            let properties: serde_json::Map<String, Value> = names
                .iter()
                .map(|name| (name.clone(), json!({"type": "integer"})))
                .collect();
            let wanted = if required { names.clone() } else { Vec::new() };
            let wide = schema(json!({
                "type": "object", "properties": properties, "required": wanted, "additionalProperties": false
            }));
            let values = if required {
                names
                    .iter()
                    .map(|name| format!("\"{name}\": 1"))
                    .collect::<Vec<_>>()
            } else {
                [0, count / 2, count - 1]
                    .map(|nth| format!("\"p{nth}\": 1"))
                    .to_vec()
            };
            // The complete text of a large object would take long and test nothing more.
            if !required || count <= 100 {
                let text = format!("{{{}}}", values.join(", "));
                assert!(takes(&wide, &text), "{count} {required}");
            }
            let (tokenizer, grammars) = (demo(), Grammars::new(None));
            assert!(
                grammars.constraint(&wide, &tokenizer, "x").is_ok(),
                "{count} {required}"
            );
        }
    }
}

#[test]
fn compiled_grammars_are_kept_within_a_bound_on_their_memory() {
    let (tokenizer, grammars) = (demo(), Grammars::new(None));
    let choice = |text: &str| Grammar::Choice(vec![text.to_owned()]);
    for _ in 0..2 {
        assert!(grammars.constraint(&choice("a"), &tokenizer, "x").is_ok());
        assert_eq!(grammars.kept().count(), 1);
    }
    let text = KeyedGrammar::new(&choice("a")).expect("is written").text;
    let matcher = grammars.kept().find(&text).expect("is kept");
    let matcher = matcher.expect("was compiled");
    let bytes = GrammarCache::bytes_max() / 3;
    for nth in 0..5 {
        let matcher = matcher.clone();
        let compiled = compiler::CompiledGrammar { matcher, bytes };
        grammars.kept().keep(format!("large {nth}"), compiled);
        assert!(grammars.kept().bytes() <= GrammarCache::bytes_max());
    }
    assert_eq!(grammars.kept().count(), 2);
    assert!(grammars.kept().find("large 4").is_some());
    assert!(grammars.kept().find("large 2").is_none());
    assert!(grammars.kept().find(&text).is_none());
}

#[test]
fn a_refusal_is_cached_until_the_grammar_compiles() {
    let (tokenizer, grammars) = (demo(), Grammars::new(None));
    let choice = Grammar::Choice(vec!["a".to_owned()]);
    let text = KeyedGrammar::new(&choice).expect("is written").text;
    grammars.kept().refuse(text.clone(), "too slow".to_owned());
    let refused = grammars.constraint(&choice, &tokenizer, "x");
    let refused = refused.err().expect("is refused");
    assert_eq!(refused.message, "`x` cannot be followed: too slow");
    let factory = grammars.factory(&tokenizer).expect("a factory");
    let form = KeyedGrammar::new(&choice).expect("is written").form;
    let compiled = compiler::compile(factory, form).expect("compiles");
    grammars.kept().keep(text, compiled);
    assert!(grammars.constraint(&choice, &tokenizer, "x").is_ok());
}

#[test]
fn a_complete_response_can_only_end() {
    let (tokenizer, grammars) = (demo(), Grammars::new(None));
    let choice = Grammar::Choice(vec!["yes".to_owned()]);
    let mut constraint = grammars
        .constraint(&choice, &tokenizer, "x")
        .expect("compiles");
    for token in tokenizer.encode("yes", false).expect("encodes") {
        assert!(!constraint.is_complete());
        constraint.accept(token).expect("is allowed");
    }
    let mut logits = vec![0.0; tokenizer.vocabulary];
    assert_eq!(constraint.mask(&mut logits, &[2]), Ok(false));
    let left: Vec<u32> = (0..logits.len() as u32)
        .filter(|token| logits[*token as usize] == 0.0)
        .collect();
    assert_eq!(tokenizer.decode(&left).as_deref(), Ok(""));
    assert_eq!(left, [2]);
}

#[test]
fn a_tool_call_follows_its_schema_at_any_position_in_the_response() {
    let tool = |name: &str, parameters: Value| Tool {
        name: name.to_owned(),
        parameters: Some(parameters),
        strict: true,
        definition: Value::Null,
    };
    let input = json!({"type": "string", "pattern": "^(ab|c[0-9])!$"});
    let edit = tool(
        "edit",
        json!({"type": "object", "properties": {"input": input}, "required": ["input"], "additionalProperties": false}),
    );
    let grammar =
        |parallel| offered(Family::Hermes, &[&edit], parallel, |_| None).expect("a grammar");
    let call = |input: &str| {
        format!(
            "<tool_call>\n{{\"name\": \"edit\", \"arguments\": {{\"input\": \"{input}\"}}}}\n</tool_call>"
        )
    };
    for text in [
        "Hello, who is < there?".to_owned(),
        call("ab!"),
        format!("I edit.\n{}", call("c7!")),
        format!("{}\n{}\nDone.", call("ab!"), call("c1!")),
    ] {
        assert!(takes(&grammar(true), &text), "{text}");
    }
    for text in [
        call("b!"),
        format!("I edit. {}", call("ab")),
        "<tool_call>\n{\"name\": \"other\", \"arguments\": {}}\n</tool_call>".to_owned(),
        "I call <tool_call> nothing".to_owned(),
    ] {
        assert!(!takes(&grammar(true), &text), "{text}");
    }
    let two = format!("{}{}", call("ab!"), call("ab!"));
    assert!(takes(&grammar(true), &two) && !takes(&grammar(false), &two));
    assert_eq!(offered(Family::Llama, &[&edit], true, |_| None), None);
}
