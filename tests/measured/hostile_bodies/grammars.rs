//! Custom tools with grammars that expand far beyond their length. They depend only on a length.

/// A rule that refers to itself in eight places and never terminates. Differs by number.
fn of_itself(nth: usize) -> String {
    format!("start: \"a{nth}\" | x\nx: {}", ["x"; 8].join("|"))
}

/// Rules that each contain the preceding rule twice, used as often as fits.
fn doubled(nth: usize) -> String {
    let uses = vec!["a9"; 10_000].join("|");
    let rules = (1..=9).map(|level| format!("a{level}: a{0} a{0}\n", level - 1));
    format!(
        "start: {uses}\na0: \"{nth:016}\"\n{}",
        rules.collect::<String>()
    )
}

/// As many short alternatives as fit.
fn wide(nth: usize) -> String {
    format!("start: {}\nb: \"{nth}\"", vec!["b"; 16_000].join("|"))
}

/// Each rule refers to the next, and the last to itself.
fn deep(nth: usize) -> String {
    let rules = (1..120).map(|rule| format!("r{rule}: r{}\n", rule + 1));
    let rules: String = rules.collect();
    format!(
        "start: r1 | \"{nth}\"\n{rules}r120: {}",
        ["r120"; 8].join("|")
    )
}

/// Nested parentheses.
fn nested(nth: usize) -> String {
    let (open, close) = ("(".repeat(60), ")".repeat(60));
    format!(
        "start: {}",
        vec![format!("{open}\"{nth}\"{close}"); 200].join(" ")
    )
}

/// A short definition that expands to a long text.
fn long(_: usize) -> String {
    format!("start: b~1\nb: {}", vec!["/[a-z]{1,9}/"; 1200].join(" "))
}

/// A tool in the form of the two APIs with custom tools.
fn tool(name: usize, syntax: &str, definition: &str, of_chat: bool) -> String {
    let definition = definition.replace('"', "\\\"").replace('\n', "\\n");
    let grammar = format!(r#""syntax":"{syntax}","definition":"{definition}""#);
    if !of_chat {
        format!(r#"{{"type":"custom","name":"t{name}","format":{{"type":"grammar",{grammar}}}}}"#)
    } else {
        format!(
            r#"{{"type":"custom","custom":{{"name":"t{name}","format":{{"type":"grammar","grammar":{{{grammar}}}}}}}}}"#
        )
    }
}

/// Tools with this total length, with different grammars or all with the same.
fn tools(
    bytes: usize,
    syntax: &str,
    are_equal: bool,
    of_chat: bool,
    grammar: fn(usize) -> String,
) -> String {
    let mut all = String::new();
    for name in 0.. {
        let definition = grammar(if are_equal { 0 } else { name });
        let tool = tool(name, syntax, &definition, of_chat);
        if name > 0 && all.len() + tool.len() > bytes {
            break;
        }
        if name > 0 {
            all.push(',');
        }
        all += &tool;
    }
    format!("\"tools\":[{all}]")
}

/// Name prefix of the tools, syntax, a flag for equal grammars, and the grammar of each by its number.
type Kind = (&'static str, &'static str, bool, fn(usize) -> String);

/// Members of a request.
pub fn members(bytes: usize) -> Vec<(&'static str, String)> {
    let mut members = Vec::new();
    let kinds: [Kind; 9] = [
        ("grammars of themselves", "lark", false, of_itself),
        ("the same grammar of itself", "lark", true, of_itself),
        ("grammars that double", "lark", false, doubled),
        ("wide grammars", "lark", false, wide),
        ("deep grammars", "lark", false, deep),
        ("grammars in each other", "lark", false, nested),
        ("the same long grammar", "lark", true, long),
        ("expressions", "regex", false, |nth| {
            format!("({nth}|[a-z]){{2,9}}x*")
        }),
        ("the same long expression", "regex", true, |_| {
            "(a|[b-d])".repeat(1500)
        }),
    ];
    for (kind, syntax, are_equal, grammar) in kinds {
        for of_chat in [false, true] {
            members.push((kind, tools(bytes, syntax, are_equal, of_chat, grammar)));
        }
    }
    // Fewer than permitted per request, and each of them short.
    let few = bytes.min(48 << 10);
    for of_chat in [false, true] {
        let short = tools(few, "lark", false, of_chat, of_itself);
        members.push(("few grammars of themselves", short));
    }
    members
}
