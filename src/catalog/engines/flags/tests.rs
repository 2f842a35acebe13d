//! Tests of `flags.rs`.

use serde_json::json;

use super::*;

const FLAGS: Flags = Flags {
    groups: &[
        group(Kind::Switch, "eager cached"),
        group(Kind::On, "metrics"),
        group(Kind::Integer(0, 10), "seed"),
        group(Kind::Count(1), "batch_tokens"),
        group(Kind::Float(0.0, 1.0), "ratio"),
        group(Kind::Text, "parser"),
        group(Kind::List, "sizes"),
        group(Kind::Json, "config"),
        group(Kind::OneOf("auto half"), "dtype"),
    ],
    barred: &[reason("port", "is chosen by the pool")],
    warned: &[reason("eager", "is slow")],
    spelling: Spelling::HYPHENS,
};

fn check(kwargs: Value) -> Result<Vec<String>, String> {
    let words = FLAGS.check(kwargs.as_object().expect("an object"));
    words
        .map(|words| words.all().cloned().collect())
        .map_err(|flaw| format!("{}: {}", flaw.key, flaw.problem))
}

#[test]
fn every_value_type_is_written_in_the_engines_syntax() {
    let words = check(json!({
        "eager": true, "cached": false, "metrics": false, "seed": 3, "batch-tokens": "8k",
        "ratio": 0.5, "parser": "-x", "sizes": [1, 2], "config": {"a": 1}, "dtype": "half",
    }));
    let expected = "--eager --no-cached --seed 3 --batch-tokens 8k --ratio 0.5 --parser=-x --sizes 1 2 --config {\"a\":1} --dtype half";
    assert_eq!(words.unwrap().join(" "), expected);
}

#[test]
fn an_invalid_flag_value_is_refused_with_the_allowed_values() {
    for (kwargs, expected) in [
        (json!({"eager": "yes"}), "eager: is a switch"),
        (
            json!({"seed": 11}),
            "seed: 11 is not allowed; allowed: 0 to 10",
        ),
        (json!({"seed": "1"}), "seed: is not a whole number"),
        (json!({"batch_tokens": "many"}), "8k or 8K"),
        (json!({"ratio": 1.5}), "allowed: 0 to 1"),
        (json!({"dtype": "haf"}), "did you mean `half`?"),
        (json!({"sizes": []}), "empty list"),
        (json!({"config": "{"}), "is not JSON"),
        (json!({"port": 1}), "port: is chosen by the pool"),
        (json!({"sede": 1}), "did you mean `seed`?"),
        (json!({"zzzzzzzz": 1}), "CommandEngine"),
        (json!({"batch_tokens": 1, "batch-tokens": 1}), "given twice"),
    ] {
        let problem = check(kwargs.clone()).expect_err(&kwargs.to_string());
        assert!(
            problem.contains(expected),
            "{problem:?} has no {expected:?}"
        );
    }
}
