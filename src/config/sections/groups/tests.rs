//! Groups as they are written, merged and shown.

use super::*;

fn section(text: &str) -> GroupsSection {
    reading::yaml(text).expect("groups")
}

fn found(text: &str) -> Vec<String> {
    let problems = problems(&section(text)).into_iter();
    problems
        .map(|problem| format!("{}: {}", problem.key, problem.message))
        .collect()
}

#[test]
fn groups_that_cannot_be_used_are_named_with_their_key() {
    for (text, expected) in [
        (
            "lab: {weight: 0}",
            "groups.lab.weight: is 0; allowed: 1 to 1000",
        ),
        ("lab: {parent: nobody}", "groups.lab.parent: is `nobody`"),
        (
            "a: {parent: b}\nb: {parent: a}",
            "groups contain each other",
        ),
        (
            "a: {keys: [k1]}\nb: {keys: [k1]}",
            "groups.b.keys[0]: is `k1`, which already belongs to a",
        ),
        ("a: {claims: [x]}\nb: {claims: [x]}", "groups.b.claims[0]"),
        (
            "a: {reserved_permille: 600}\nb: {reserved_permille: 401}",
            "groups.b.reserved_permille: cannot be used",
        ),
        (
            "a: {priority_max: 1000001}",
            "groups.a.priority_max: is 1000001; allowed: 0 to 1000000",
        ),
        ("a: {models: []}", "groups.a.models: is empty"),
        ("'a b': {}", "groups.a b: is not a name"),
        ("\"a\\n{}\": {}", "is not a name"),
        (
            "a: {limits: {requests_per_minute: 0}}",
            "groups.a.limits.requests_per_minute",
        ),
        (
            "a: {quota: {gpu_hours: -1}}",
            "groups.a.quota.gpu_hours: is -1; allowed: more than 0",
        ),
        (
            "a: {quota: {gpu_hours: .nan}}",
            "groups.a.quota.gpu_hours: is NaN",
        ),
        (
            "a: {quota: {at_end: refuse}}",
            "groups.a.quota: limits nothing",
        ),
    ] {
        let found = found(text);
        assert_eq!(found.len(), 1, "{text}: {found:?}");
        assert!(found[0].contains(expected), "{text}: {found:?}");
    }
    assert!(found("a: {}\nb: {parent: a, weight: 3, keys: [k1, course]}").is_empty());
    assert!(found("a: {quota: {tokens: 10M, gpu_hours: 0.5, at_end: lowest}}").is_empty());
    let negative = reading::yaml::<GroupsSection>("a: {quota: {tokens: -1}}");
    let error = negative.expect_err("negative").to_string();
    assert!(error.contains("is -1; allowed: 1 to 1000T"), "{error}");
}

#[test]
fn a_group_set_with_the_api_that_does_not_fit_the_configuration_is_left_out_with_the_reason() {
    let kept = section(
        "lab: {keys: [k1]}\ncourse: {parent: lab, keys: [k2]}\nold: {keys: [k3]}\nlost: {parent: gone}\nbelow: {parent: lost}",
    );
    let (all, warnings) = merged(&section("top: {keys: [k3]}\nold: {}"), &kept);
    let names: Vec<&str> = all.keys().map(String::as_str).collect();
    assert_eq!(names, ["course", "lab", "old", "top"]);
    assert!(all["old"].keys.is_empty(), "the configuration's");
    assert_eq!(warnings.len(), 3, "{warnings:?}");
    assert!(
        warnings[0].contains("old") && warnings[0].contains("of this name"),
        "{warnings:?}"
    );
    let (all, warnings) = merged(&section("top: {keys: [k2]}\ngone: {}"), &kept);
    assert!(
        all.contains_key("below") && !all.contains_key("course"),
        "{all:?}"
    );
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("already belongs to"), "{warnings:?}");
    let (all, warnings) = merged(&GroupsSection::new(), &section("a: {}"));
    assert_eq!((all.len(), warnings.len()), (1, 0));
}

#[test]
fn claims_without_a_sign_on_are_named() {
    let of = |text: &str| notice(&section(text));
    assert_eq!(of("a: {keys: [k1]}"), None);
    let one = of("a: {keys: [k1]}\nb: {claims: [x]}").unwrap();
    assert_eq!(one, "groups.b.claims has no effect without auth.oidc");
    let two = of("a: {claims: [y]}\nb: {claims: [x]}").unwrap();
    assert!(
        two.starts_with("groups.a.claims (and of 1 other groups)"),
        "{two}"
    );
}

#[test]
fn the_class_of_a_group_comes_from_the_nearest_group_that_sets_it() {
    let groups = section(
        "top: {reserved_permille: 100}\nlab: {parent: top}\ncourse: {parent: lab, class_max: flex}\nguests: {}",
    );
    let class = |name: &str| class_max(&groups, name);
    assert_eq!(class("lab"), ServiceClass::Priority);
    assert_eq!(class("course"), ServiceClass::Flex);
    assert_eq!(class("guests"), ServiceClass::Default);
}

#[test]
fn the_smallest_priority_on_the_path_counts() {
    let groups = section(
        "top: {priority_max: 3}\nlab: {parent: top, priority_max: 5}\ncourse: {parent: lab, priority_max: 0}\nteam: {parent: lab}\nfree: {}",
    );
    let most = |name: &'static str| priority_max(&groups, name);
    assert_eq!(most("top"), Some(("top", Priority(3))));
    assert_eq!(most("lab"), Some(("top", Priority(3))));
    assert_eq!(most("team"), Some(("top", Priority(3))));
    assert_eq!(most("course"), Some(("course", Priority(0))));
    assert_eq!(most("free"), None);
}

#[test]
fn the_tree_shows_each_group_below_its_parent() {
    let groups = section(
        "physics: {weight: 2, reserved_permille: 50, priority_max: 2}\nlab: {parent: physics, keys: [k1, k2]}\nchemistry: {claims: [chem]}",
    );
    assert_eq!(
        tree(&groups),
        [
            "chemistry: weight 1 of 3, 1 claims",
            "physics: weight 2 of 3, 50‰ reserved, priority up to 2",
            "  lab: weight 1 of 1, priority up to 2, 2 keys",
        ]
    );
}
