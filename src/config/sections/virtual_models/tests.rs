//! Tests of the section of virtual models: each rule is read, and problems name their model and field.

use super::*;

fn section(text: &str) -> VirtualModelsSection {
    reading::yaml(text).expect("virtual models")
}

fn first(text: &str) -> String {
    let found = problems(&section(text));
    found.first().map(ToString::to_string).unwrap_or_default()
}

#[test]
fn all_four_rules_are_read_and_name_their_members() {
    let read = section(
        "a: {any_of: [m, org/n]}\nb: {split: {m: 9, n: 0.5}}\nc: {fallback: [m, n], after: 30s, on: [refused, context]}\nd: {by: [{vision: true, model: v}, {tools: true, context_above: 32k, model: t}, {model: m}]}\n",
    );
    assert_eq!(problems(&read), []);
    let members = |name: &str| -> Vec<String> {
        let members = read[name].members().into_iter();
        members.map(|(key, name)| format!("{key}={name}")).collect()
    };
    assert_eq!(members("a"), ["any_of[0]=m", "any_of[1]=org/n"]);
    assert_eq!(members("b"), ["split.m=m", "split.n=n"]);
    assert_eq!(members("c"), ["fallback[0]=m", "fallback[1]=n"]);
    assert_eq!(
        members("d"),
        ["by[0].model=v", "by[1].model=t", "by[2].model=m"]
    );
    let kinds: Vec<&str> = read.values().map(VirtualModelSection::kind).collect();
    assert_eq!(kinds, ["any_of", "split", "fallback", "by"]);
    let written = serde_json::to_string(&read).unwrap();
    assert_eq!(
        serde_json::from_str::<VirtualModelsSection>(&written).unwrap(),
        read
    );
}

#[test]
fn a_wrong_virtual_model_is_refused_with_its_key_and_the_remedy() {
    let many: Vec<String> = (0..10_000).map(|nth| format!("m{nth}")).collect();
    let many = format!("a: {{any_of: [{}]}}", many.join(", "));
    for (text, message) in [
        ("a: {}", "virtual_models.a has no rule"),
        ("a: {any_of: []}", "virtual_models.a.any_of is empty"),
        ("a: {by: []}", "virtual_models.a.by is empty"),
        (
            "a: {any_of: [m], split: {m: 1}}",
            "virtual_models.a.split is set in addition to any_of",
        ),
        (
            "a: {any_of: [m, a]}",
            "virtual_models.a.any_of[1] is `a`, the virtual model itself",
        ),
        (
            "a: {any_of: [m]}\nb: {fallback: [m, a]}",
            "virtual_models.b.fallback[1] is `a`, which is a virtual model",
        ),
        (
            "a: {fallback: [m, m]}",
            "virtual_models.a.fallback[1] is `m`, which is listed before",
        ),
        ("a: {any_of: ['']}", "virtual_models.a.any_of[0] is empty"),
        (
            "a: {split: {m: 0}}",
            "virtual_models.a.split.m is 0; allowed",
        ),
        (
            "a: {split: {m: -1}}",
            "virtual_models.a.split.m is -1; allowed",
        ),
        (
            "a: {any_of: [m], after: 3s}",
            "virtual_models.a.after applies",
        ),
        (
            "a: {fallback: [m], after: 0s}",
            "virtual_models.a.after is 0",
        ),
        (
            "a: {fallback: [m, n], on: []}",
            "virtual_models.a.on is empty",
        ),
        (
            "a: {by: [{model: m}, {vision: true, model: n}]}",
            "virtual_models.a.by[0] has no condition",
        ),
        (
            &many,
            "virtual_models.a.any_of has 10000 members; allowed: at most 16",
        ),
    ] {
        let found = first(text);
        assert!(found.starts_with(message), "{text:.80}: {found}");
    }
}

#[test]
fn a_name_has_the_form_of_a_models_name() {
    for name in ["coder", "lab/coder", "gpt-4.1", "a_b"] {
        let section = VirtualModelsSection::from([(name.to_owned(), one("m"))]);
        assert_eq!(problems(&section), [], "{name}");
    }
    let long = "a".repeat(257);
    for name in ["", "a b", "a/b/c", "/a", "a:b", "ä", "a\nb", "../a", &long] {
        let section = VirtualModelsSection::from([(name.to_owned(), one("m"))]);
        let found = problems(&section);
        assert!(
            found[0]
                .message
                .contains("is not a name for a virtual model"),
            "{name:?}: {found:?}"
        );
    }
}

fn one(member: &str) -> VirtualModelSection {
    VirtualModelSection {
        any_of: Some(vec![member.to_owned()]),
        ..VirtualModelSection::default()
    }
}

#[test]
fn kept_virtual_models_replace_configured_ones_and_are_left_out_if_they_do_not_fit() {
    let configured = section("a: {any_of: [m]}\nb: {any_of: [m, n]}");
    let kept = section("a: {split: {m: 1, n: 2}}\nc: {any_of: [b]}\nd: {any_of: [n]}");
    let (all, warnings) = merged(&configured, &kept);
    let names: Vec<&str> = all.keys().map(String::as_str).collect();
    assert_eq!(names, ["a", "b", "d"]);
    assert_eq!(all["a"].kind(), "split");
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(
        warnings[0].starts_with("the virtual model c,"),
        "{warnings:?}"
    );
    let (all, warnings) = merged(&configured, &VirtualModelsSection::new());
    assert_eq!((all, warnings), (configured, Vec::new()));
}
