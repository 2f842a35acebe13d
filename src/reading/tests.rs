//! Tests of `reading`.

use super::*;

#[test]
fn names_are_told_apart_by_their_letters_only_where_a_comparison_would_do_so_too() {
    let names = [
        "temperature",
        "temprature",
        "top_p",
        "top_k",
        "max_tokens",
        "tokens_max",
        "stop",
        "pots",
        "a",
        "",
        "org/model-7b",
        "org/model-70b",
        "größe",
        "grosse",
    ];
    for one in names {
        for other in names {
            let plain = strsim::normalized_damerau_levenshtein(one, other);
            let wanted = (plain >= ALIKE_LEAST).then_some(plain);
            assert_eq!(likeness(one, other), wanted, "{one} {other}");
        }
    }
}

#[test]
fn an_error_has_the_path_of_its_own_place() {
    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code, reason = "only the errors are looked at")]
    struct Section {
        #[serde(default)]
        mode: String,
        #[serde(default)]
        counts: Vec<u8>,
    }
    type Sections = std::collections::BTreeMap<String, Section>;
    for (text, message) in [
        // Without a type, `off` is no text.
        (
            "one: {mode: off}\ntwo: {nmode: x}",
            "two.nmode: unknown key `nmode`; did you mean `mode`?",
        ),
        (
            "one: {mode: off}\ntwo: {counts: [1, x]}",
            "two.counts[1]: a whole number that is not negative is expected here",
        ),
        (
            "one: {mode: off}\ntwo: 3",
            "two: keys with values (`key: value`) are expected here",
        ),
    ] {
        let flaw = yaml_with_path::<Sections>(text).unwrap_err();
        assert_eq!(
            (flaw.line, flaw.message.as_str()),
            (Some(2), message),
            "{text}"
        );
    }
    assert!(yaml_with_path::<Sections>("one: {mode: off}").is_ok());
}

#[test]
fn a_name_as_long_as_a_body_is_compared_with_nothing() {
    let known = ["temperature", "top_p"];
    assert_eq!(
        nearest("temprature", known.into_iter()),
        Some("temperature")
    );
    assert_eq!(
        nearest(&"temperature".repeat(100_000), known.into_iter()),
        None
    );
}
