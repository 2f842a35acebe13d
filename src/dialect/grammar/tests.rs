//! Tests of grammars as expressions: matches, omissions and refusals.

use super::*;

fn expression(definition: &str) -> Result<Expression, GrammarError> {
    super::expression(definition, &mut { OF_ONE })
}

/// A grammar for patches, as coding agents send it.
const PATCH: &str = r#"
start: head change+ tail
head: "*** Begin Patch" LF
tail: "*** End Patch" LF?
change: added | removed | edited
added: "*** Add File: " path LF new_line+
removed: "*** Delete File: " path LF
edited: "*** Update File: " path LF moved? hunk?
moved: "*** Move to: " path LF
hunk: (place | line)+ last?
place: ("@@" | "@@ " /(.+)/) LF
line: ("+" | "-" | " ") /(.*)/ LF
new_line: "+" /(.*)/ LF -> added_line
last: "*** End of File" LF
path: /(.+)/

%import common.LF
"#;

fn matches(expression: &str, text: &str) -> bool {
    // Both parsers accept the same syntax. The standard syntax's automaton is small enough to walk.
    let hir = regex_syntax::parse(&format!("^({expression})$")).expect("an expression");
    walk(&hir, text.as_bytes(), 0).contains(&text.len())
}

/// All positions where a match of `hir` from `at` may end.
fn walk(hir: &regex_syntax::hir::Hir, text: &[u8], at: usize) -> Vec<usize> {
    use regex_syntax::hir::{Class, HirKind, Look};
    let mut ends = match hir.kind() {
        HirKind::Empty => vec![at],
        HirKind::Literal(literal) => {
            if text[at..].starts_with(&literal.0) {
                vec![at + literal.0.len()]
            } else {
                Vec::new()
            }
        }
        HirKind::Class(class) => {
            let rest = std::str::from_utf8(&text[at..]).expect("a text");
            let next = rest.chars().next();
            let is_in = |letter: char| match class {
                Class::Unicode(class) => class
                    .iter()
                    .any(|range| (range.start()..=range.end()).contains(&letter)),
                Class::Bytes(class) => class
                    .iter()
                    .any(|range| (range.start()..=range.end()).contains(&(letter as u8))),
            };
            next.filter(|letter| is_in(*letter))
                .map(|letter| at + letter.len_utf8())
                .into_iter()
                .collect()
        }
        HirKind::Look(Look::Start) => (at == 0).then_some(at).into_iter().collect(),
        HirKind::Look(_) => (at == text.len()).then_some(at).into_iter().collect(),
        HirKind::Capture(capture) => walk(&capture.sub, text, at),
        HirKind::Concat(parts) => parts.iter().fold(vec![at], |places, part| {
            places
                .into_iter()
                .flat_map(|at| walk(part, text, at))
                .collect()
        }),
        HirKind::Alternation(parts) => parts.iter().flat_map(|part| walk(part, text, at)).collect(),
        HirKind::Repetition(repetition) => {
            let mut places = vec![at];
            let mut ends = if repetition.min == 0 {
                vec![at]
            } else {
                Vec::new()
            };
            for count in 1..=repetition.max.unwrap_or(u32::MAX) {
                places = places
                    .into_iter()
                    .flat_map(|at| walk(&repetition.sub, text, at))
                    .collect();
                places.sort_unstable();
                places.dedup();
                if count >= repetition.min {
                    places.retain(|place| !ends.contains(place));
                    ends.extend(&places);
                }
                if places.is_empty() {
                    break;
                }
            }
            ends
        }
    };
    ends.sort_unstable();
    ends.dedup();
    ends
}

#[test]
fn the_grammar_of_patches_holds_patches_and_nothing_else() {
    let Expression { text, nested } = expression(PATCH).unwrap();
    let expression = text;
    assert!(
        !expression.contains("(?") && nested.is_none(),
        "{expression}"
    );
    let patch = "*** Begin Patch\n*** Update File: a.txt\n@@ fn\n-old\n+new\n*** End Patch\n";
    assert!(matches(&expression, patch));
    assert!(matches(
        &expression,
        "*** Begin Patch\n*** Add File: b\n+x\n*** End Patch"
    ));
    for wrong in [
        "",
        "apply this",
        "*** Begin Patch\n*** End Patch\n",
        "*** Begin Patch\n*** Add File: b\nx\n*** End Patch\n",
    ] {
        assert!(!matches(&expression, wrong), "{wrong:?}");
    }
}

#[test]
fn every_form_of_an_item_is_written() {
    for (grammar, right, wrong) in [
        ("start: \"a\" \"b\"?", "ab", "abb"),
        ("start: (\"a\" | \"bc\")~2..3", "abcbc", "a"),
        ("start: \"a\"~2", "aa", "a"),
        ("start: \"yes\"i", "yEs", "ye"),
        ("start: \"0\"..\"9\"", "7", "x"),
        ("start: [\"a\"] B\nB: /x+/", "xx", "aa"),
        (
            "start: NUMBER \" \" WORD\n%import common.NUMBER\n%import common (WORD, INT)",
            "1.5 km",
            "km",
        ),
        ("start: A\n%import common.INT -> A", "12", "a"),
        ("?start: a | \n!a.2: \"(\" \"\\n\" // a comment", "(\n", "("),
        ("start: a*\na: \"x\" -> name\n  | \"y\"", "xyx", "z"),
    ] {
        let expression = expression(grammar).unwrap().text;
        assert!(
            matches(&expression, right),
            "{grammar}: {expression} {right:?}"
        );
        assert!(
            !matches(&expression, wrong),
            "{grammar}: {expression} {wrong:?}"
        );
    }
}

#[test]
fn what_an_expression_cannot_say_is_told_apart_from_what_is_wrong() {
    for grammar in [
        "start: \"(\" start \")\"",
        "start: \"a\" \"b\"\n%ignore \" \"",
        "start: a{\"x\"}\na{p}: p",
        "start: /(?=a)b/",
        "start: /a/i",
        "start: A\n%import other.A",
    ] {
        assert_eq!(
            expression(grammar),
            Err(GrammarError::NotRegular),
            "{grammar}"
        );
    }
    for grammar in [
        "",
        "a: \"x\"",
        "start: b",
        "start: \"a",
        "start: (\"a\"",
        "start: /(/",
        "start \"a\"",
    ] {
        let error = expression(grammar).unwrap_err();
        assert!(
            matches!(error, GrammarError::Wrong(_)),
            "{grammar}: {error:?}"
        );
    }
    assert_eq!(checked("^(?:a|b)$"), Ok("(a|b)".to_owned()));
    assert_eq!(checked(r"a\b"), Err(GrammarError::NotRegular));
}

#[test]
fn a_rule_that_uses_itself_is_written_as_often_as_fits_and_never_says_more_than_the_grammar() {
    let calls =
        "start: value\nvalue: WORD | \"(\" (value (\",\" value)*)? \")\"\n%import common.WORD";
    let held = expression(calls).unwrap();
    let nested = held.nested.expect("it uses itself");
    assert!(nested >= 2, "{nested}");
    for right in ["a", "()", "(a,b)", "((a),b)"] {
        assert!(matches(&held.text, right), "{right}");
    }
    for wrong in ["", "(", "(a", "a)", "(a,)", "((a)"] {
        assert!(!matches(&held.text, wrong), "{wrong}");
    }
    let too_deep = format!("{}a{}", "(".repeat(nested + 1), ")".repeat(nested + 1));
    assert!(!matches(&held.text, &too_deep));
    let list = expression("start: item | start \";\" item\nitem: \"x\"").unwrap();
    assert!(matches(&list.text, "x;x;x") && !matches(&list.text, "x;"));
    let sum = expression("start: start \"+\" start | start \"*\" start | /[0-9]/").unwrap();
    assert!(matches(&sum.text, "1+2") && !matches(&sum.text, "1+"));
    // Two mutually recursive rules.
    let pair = expression("start: a\na: \"a\" b?\nb: \"b\" a?").unwrap();
    assert!(matches(&pair.text, "abab") && !matches(&pair.text, "aa"));
}

#[test]
fn a_grammar_that_grows_without_end_is_left_alone() {
    let mut doubling = "start: r40\nr0: \"xxxxxxxx\"\n".to_owned();
    for nth in 1..=40 {
        doubling += &format!("r{nth}: r{} r{}\n", nth - 1, nth - 1);
    }
    assert_eq!(expression(&doubling), Err(GrammarError::NotRegular));
    let mut deep = "start: r999\nr0: \"x\"\n".to_owned();
    for nth in 1..1000 {
        deep += &format!("r{nth}: r{}\n", nth - 1);
    }
    assert_eq!(expression(&deep), Err(GrammarError::NotRegular));
    let nested = format!("start: {}\"a\"{}", "(".repeat(500), ")".repeat(500));
    assert_eq!(expression(&nested), Err(GrammarError::NotRegular));
    let long = format!("start: \"{}\"", "x".repeat(1 << 20));
    assert_eq!(expression(&long), Err(GrammarError::NotRegular));
}

#[test]
fn what_is_written_again_and_again_is_bounded() {
    let mut wide = format!(
        "start: {}\na0: \"{}\"\n",
        vec!["a9"; 8000].join("|"),
        "x".repeat(16)
    );
    for nth in 1..=9 {
        wide += &format!("a{nth}: a{0} a{0}\n", nth - 1);
    }
    assert_eq!(expression(&wide), Err(GrammarError::NotRegular));
}
