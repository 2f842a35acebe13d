//! Grammars designed to be expensive: each is refused or accepted quickly, potentially expensive ones are tried in another process,
//! and none delays a cheap grammar.

use super::*;
use crate::grammar::compiling::{GrammarModel, compile};
use axum::http::StatusCode;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Not a test: the program that these tests start for a trial.
#[test]
fn grammar_trial_entry_point() {
    try_grammar().expect("the order is read");
}

/// The demo model without its network.
struct Texts {
    grammars: Grammars,
    tokenizer: ModelTokenizer,
}

impl GrammarModel for Texts {
    fn grammars(&self) -> &Grammars {
        &self.grammars
    }

    fn tokenizer(&self) -> &ModelTokenizer {
        &self.tokenizer
    }
}

fn model() -> Arc<Texts> {
    let trial = TrialProgram {
        program: std::env::current_exe().expect("a test has a program"),
        arguments: [
            "grammar::tests::hostile::grammar_trial_entry_point",
            "--exact",
            "--nocapture",
            "--test-threads=1",
        ]
        .map(str::to_owned)
        .to_vec(),
    };
    Arc::new(Texts {
        grammars: Grammars::new(Some(trial)),
        tokenizer: demo(),
    })
}

/// Each additional expression doubles the number of states in a single step, within which no limit is checked. A different `least`
/// gives another grammar of the same cost.
fn patterns(count: u8, least: u8) -> Grammar {
    let one = |nth: u8| {
        let letter = char::from(b'a' + nth);
        json!({"type": "string", "pattern": format!(".*{letter}.{{{}}}", nth + least)})
    };
    schema(json!({"allOf": (0..count).map(one).collect::<Vec<_>>()}))
}

/// Alternatives without constraints, each of which receives a copy of all sibling keywords.
fn copies() -> Grammar {
    let properties = (0..1200).map(|nth| (format!("a{nth}"), json!({})));
    let properties: serde_json::Map<String, Value> = properties.collect();
    schema(json!({
        "allOf": [{"type": "object", "properties": properties}], "anyOf": vec![true; 8000]
    }))
}

#[tokio::test]
async fn an_endless_grammar_is_stopped_in_its_trial_and_refused_immediately_afterwards() {
    let model = model();
    let (endless, copies) = (patterns(24, 5), copies());
    let (one, other) = tokio::join!(
        compile(&model, &endless, "guided_json"),
        compile(&model, &copies, "guided_json"),
    );
    for refused in [one, other] {
        let error = refused.err().expect("is refused");
        assert_eq!(error.status, StatusCode::BAD_REQUEST, "{}", error.message);
        let is_measured = error.message.contains("s to compile")
            || error.message.contains("MiB of memory to compile");
        assert!(is_measured, "{}", error.message);
    }
    let tried = model.grammars.turns.tried.load(Relaxed);
    assert_eq!(tried, 2);
    let again = compile(&model, &endless, "other_field").await;
    let again = again.err().expect("is refused");
    assert_eq!(again.param.as_deref(), Some("other_field"));
    assert_eq!(model.grammars.turns.tried.load(Relaxed), tried);
}

#[tokio::test]
async fn a_cheap_grammar_does_not_wait_for_grammars_on_trial() {
    let model = model();
    let dear: Vec<Grammar> = (5..13).map(|least| patterns(24, least)).collect();
    let all = dear.iter().map(|grammar| compile(&model, grammar, "x"));
    let mut all = pin!(futures_util::future::join_all(all));
    let plain = schema(json!({"type": "object", "properties": {"a": {"type": "integer"}}}));
    let choice = Grammar::Choice(vec!["yes".to_owned()]);
    let cheap = async {
        // The expensive compilations have started: they were polled first.
        for grammar in [&plain, &choice] {
            assert!(compile(&model, grammar, "x").await.is_ok());
        }
    };
    tokio::select! {
        biased;
        _ = &mut all => panic!("the dear ones ended first"),
        () = cheap => {}
    }
    let tried = model.grammars.turns.tried.load(Relaxed);
    assert!((1..8).contains(&tried), "{tried}");
    let text = model.grammars.text();
    let gauge = "candle_engine_grammars_compiling 0";
    assert!(text.lines().any(|line| line == gauge), "{text}");
}

#[tokio::test]
async fn ordinary_grammars_pass_their_trial_and_are_followed() {
    let model = model();
    let email = schema(
        json!({"type": "object", "required": ["mail"], "properties": {
            "mail": {"type": "string", "format": "email", "maxLength": 80},
            "code": {"type": "string", "pattern": "^[A-Z]{2}[0-9]{4}$"},
            "step": {"type": "integer", "multipleOf": 5, "minimum": 0}
        }}),
    );
    let lark = Grammar::Lark("start: \"a\" (\",\" \"a\")*".to_owned());
    for grammar in [email, lark, patterns(3, 5)] {
        let made = compile(&model, &grammar, "x").await;
        assert!(made.is_ok(), "{grammar:?} {:?}", made.err());
    }
    assert_eq!(model.grammars.turns.tried.load(Relaxed), 3);
}

#[test]
fn expensive_schema_keywords_cost_little_or_are_refused() {
    let (tokenizer, grammars) = (demo(), Grammars::new(None));
    let string = |more: Value| {
        let mut schema = json!({"type": "string"});
        for (word, value) in more.as_object().expect("an object") {
            schema[word] = value.clone();
        }
        schema
    };
    let options = |level: usize| {
        let one = |nth: usize| {
            let name = format!("p{level}_{nth}");
            json!({"type": "object", "properties": {(name.as_str()): {"type": "integer"}}, "required": [name]})
        };
        json!({"anyOf": (0..4).map(one).collect::<Vec<_>>()})
    };
    let of_patterns: serde_json::Map<String, Value> = (0..60)
        .map(|nth| (format!("^a{nth}.*b{nth}$"), json!({"type": "integer"})))
        .collect();
    for (name, hostile, taken) in [
        (
            "multiple",
            json!({"type": "integer", "multipleOf": 999_983}),
            Some(false),
        ),
        (
            "small multiple",
            json!({"type": "integer", "multipleOf": 1009}),
            Some(true),
        ),
        (
            "products of options",
            json!({"allOf": (0..6).map(options).collect::<Vec<_>>()}),
            Some(false),
        ),
        (
            "least items",
            json!({"type": "array", "items": {"type": "integer"}, "minItems": 1_000_000_000}),
            None,
        ),
        (
            "most items",
            json!({"type": "array", "items": {"type": "integer"}, "maxItems": 1_000_000_000}),
            None,
        ),
        (
            "least letters",
            string(json!({"minLength": 1_000_000_000})),
            None,
        ),
        (
            "most letters",
            string(json!({"maxLength": 1_000_000_000})),
            None,
        ),
        (
            "most letters of a pattern",
            string(json!({"pattern": "^[a-z ]*$", "maxLength": 100_000})),
            None,
        ),
        (
            "patterns of names",
            json!({"type": "object", "patternProperties": of_patterns, "additionalProperties": false}),
            None,
        ),
        (
            "many constants",
            json!({"enum": (0..9000).collect::<Vec<_>>()}),
            None,
        ),
        (
            "a long constant",
            json!({"const": "x".repeat(16_000)}),
            None,
        ),
        (
            "a wide range",
            json!({"type": "number", "minimum": -1e300, "maximum": 1e300}),
            None,
        ),
        (
            "a long range",
            json!({"type": "integer", "minimum": 1e299, "maximum": 9e299}),
            None,
        ),
        (
            "a class",
            string(json!({"pattern": "^([\\w\\p{L}]{1,900}-){90}$"})),
            None,
        ),
    ] {
        let begun = std::time::SystemTime::now();
        let made = grammars.constraint(&schema(hostile), &tokenizer, "x");
        let spent = begun.elapsed().unwrap_or_default();
        let reason = made.as_ref().err().map(|error| error.message.as_str());
        assert!(spent.as_secs() < 30, "{name} took {spent:?}");
        assert!(
            taken.is_none_or(|taken| taken == made.is_ok()),
            "{name}: {reason:?}"
        );
        let reason = reason.unwrap_or_default();
        for inside in ["panic", "backtrace", "limits.", "assertion"] {
            assert!(!reason.contains(inside), "{name}: {reason}");
        }
    }
    assert!(grammars.kept().bytes() <= GrammarCache::bytes_max());
}

#[test]
fn mask_computation_after_the_first_byte_is_bounded() {
    let (tokenizer, grammars) = (demo(), Grammars::new(None));
    // The first alternative shows immediately that a text exists; the states after an `x` are extremely many.
    let endless = "start: T\nT: /y/ | (/x.*a.{30}/ & /x.*b.{30}/)\n";
    let begun = std::time::SystemTime::now();
    let made = grammars.constraint(&Grammar::Lark(endless.to_owned()), &tokenizer, "x");
    let spent = begun.elapsed().unwrap_or_default();
    if let Err(error) = made {
        assert!(error.message.contains("too complex"), "{}", error.message);
    }
    assert!(spent.as_secs() < 10, "{spent:?}");
}

#[test]
fn hostile_grammars_finish_within_ten_seconds() {
    let (tokenizer, grammars) = (demo(), Grammars::new(None));
    let definitions = |count: usize, one: &dyn Fn(usize) -> Value| {
        let mut all: serde_json::Map<String, Value> = (0..count)
            .map(|nth| (format!("a{nth}"), one(nth + 1)))
            .collect();
        all.insert(
            format!("a{count}"),
            json!({"type": "object", "properties": {"x": {"type": "integer"}}}),
        );
        json!({"$ref": "#/$defs/a0", "$defs": all})
    };
    let to = |nth: usize| json!({"$ref": format!("#/$defs/a{nth}")});
    let rules = |count: usize| {
        let rules: String = (0..count)
            .map(|nth| format!("a{nth}: a{}\n", nth + 1))
            .collect();
        format!("start: a0\n{rules}a{count}: \"x\"\n")
    };
    for (name, grammar) in [
        ("chain", schema(definitions(1500, &to))),
        (
            "all of",
            schema(definitions(24, &|nth| json!({"allOf": [to(nth), to(nth)]}))),
        ),
        (
            "any of",
            schema(definitions(24, &|nth| json!({"anyOf": [to(nth), to(nth)]}))),
        ),
        (
            "one of",
            schema(definitions(
                24,
                &|nth| json!({"oneOf": [to(nth), {"allOf": [to(nth), {"required": ["x"]}]}]}),
            )),
        ),
        (
            "properties",
            schema(definitions(
                24,
                &|nth| json!({"properties": {"a": to(nth), "b": to(nth)}}),
            )),
        ),
        (
            "pattern",
            schema(json!({"type": "string", "pattern": "(".repeat(20_000)})),
        ),
        (
            "patterns",
            schema(
                json!({"allOf": (0..300).map(|nth| json!({"type": "string", "pattern": format!("^a*b{{{nth}}}.*$")})).collect::<Vec<_>>()}),
            ),
        ),
        ("long", Grammar::Regex("ab".repeat(30_000))),
        (
            "wide",
            Grammar::Regex(
                (0..9000)
                    .map(|nth| format!("x{nth}"))
                    .collect::<Vec<_>>()
                    .join("|"),
            ),
        ),
        (
            "optional",
            Grammar::Regex("a?".repeat(5000) + &"a".repeat(5000)),
        ),
        (
            "stars",
            Grammar::Regex("a".to_owned() + &"*+".repeat(20_000)),
        ),
        (
            "stars of stars",
            Grammar::Regex("(.*a){200}(.*b){200}".to_owned()),
        ),
        ("rules", Grammar::Lark(rules(2500))),
        (
            "nots",
            Grammar::Lark(format!("start: T\nT: {}/a/", "~".repeat(30_000))),
        ),
        (
            "groups",
            Grammar::Lark(format!("start: {}", "\"a\" | ".repeat(8000) + "\"a\"")),
        ),
        (
            "ambiguous",
            Grammar::Lark("start: a a a a a\na: a a | \"x\" |\n".to_owned()),
        ),
    ] {
        let begun = std::time::SystemTime::now();
        let taken = grammars.constraint(&grammar, &tokenizer, "x");
        let spent = begun.elapsed().unwrap_or_default();
        println!(
            "{name}: {spent:?} {:?}",
            taken.as_ref().err().map(|error| &error.message)
        );
        assert!(spent.as_secs() < 10, "{name} took {spent:?}");
        let Ok(mut constraint) = taken else { continue };
        // The steps of a completion run on threads with small stacks.
        let begun = std::time::SystemTime::now();
        for _ in 0..6 {
            let mut logits = vec![0.0; tokenizer.vocabulary];
            let Ok(true) = constraint.mask(&mut logits, &[2]) else {
                break;
            };
            let next = (3..).find(|token: &u32| logits[*token as usize] == 0.0);
            if constraint
                .accept(next.expect("a token is allowed"))
                .is_err()
            {
                break;
            }
        }
        drop(constraint.clone().apart());
        let spent = begun.elapsed().unwrap_or_default();
        assert!(spent.as_secs() < 10, "{name} took {spent:?}");
    }
}
