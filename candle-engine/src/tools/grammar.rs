//! The grammars of completions that must or may call tools.

use super::family::Family;
use super::tool::Tool;
use crate::grammar::{Grammar, quoted, with_options};
use serde_json::json;
use std::fmt::Write;

/// Maximum number of calls in a completion; stops models that would call forever.
const CALLS_MAX: usize = 8;

/// A completion that consists of calls to these tools in the family's format. `special` returns the id of a special token.
pub(crate) fn required(
    family: Family,
    tools: &[&Tool],
    parallel: bool,
    special: impl Fn(&str) -> Option<u32>,
) -> Grammar {
    let more = |separator: &str, call: &str| {
        if parallel {
            format!(" ({} {call}){{0,{}}}", quoted(separator), CALLS_MAX - 1)
        } else {
            String::new()
        }
    };
    let mut lark = match family {
        Family::Hermes => format!(
            "start: one{}\none: \"<tool_call>\\n\" call \"\\n</tool_call>\"\n",
            more("\n", "one")
        ),
        Family::Mistral => {
            let opening = match special("[TOOL_CALLS]") {
                Some(id) => format!("<[{id}]>"),
                None => quoted("[TOOL_CALLS] "),
            };
            format!("start: {opening} \"[\" call{} \"]\"\n", more(", ", "call"))
        }
        // These families have no format for several calls that all their models know.
        Family::Llama | Family::Json => "start: call\n".to_owned(),
    };
    add_calls(&mut lark, family, tools);
    Grammar::Lark(lark)
}

/// A completion with any text and calls, in which every call names a tool in `tools` and has arguments that match its schema.
/// `None` for families whose calls can begin like any other text.
pub(crate) fn offered(
    family: Family,
    tools: &[&Tool],
    parallel: bool,
    special: impl Fn(&str) -> Option<u32>,
) -> Option<Grammar> {
    if family != Family::Hermes {
        return None;
    }
    let most = if parallel { CALLS_MAX } else { 1 };
    let (opening, closing) = ("<tool_call>", "</tool_call>");
    let mut lark = match (special(opening), special(closing)) {
        // Ordinary text cannot contain these tokens.
        (Some(opening), Some(closing)) => format!(
            "start: one{{0,{most}}} WORDS?\none: WORDS? <[{opening}]> \"\\n\" call \"\\n\" <[{closing}]>\nWORDS: /(?s:.+)/\n"
        ),
        _ => format!(
            "start: one{{0,{most}}} WORDS?\none: opened \"\\n\" call {}\nopened[suffix={}]: /(?s:.*)/\nWORDS: /(?s:.+)/ & ~/(?s:.*){opening}(?s:.*)/\n",
            quoted(&format!("\n{closing}")),
            quoted(opening),
        ),
    };
    add_calls(&mut lark, family, tools);
    Some(Grammar::Lark(lark))
}

/// Adds the rule `call`: a call to any of the tools, with arguments that match its schema.
fn add_calls(lark: &mut String, family: Family, tools: &[&Tool]) {
    let names: Vec<String> = (0..tools.len()).map(|nth| format!("call{nth}")).collect();
    // Writing to a string cannot fail.
    let _ = writeln!(lark, "call: {}", names.join(" | "));
    for (nth, tool) in tools.iter().enumerate() {
        let name = serde_json::Value::from(tool.name.as_str());
        let before = format!("{{\"name\": {name}, \"{}\": ", family.arguments_key());
        // A tool without parameters takes an empty object.
        let none = json!({"type": "object", "properties": {}, "additionalProperties": false});
        let schema = tool.parameters.clone().unwrap_or(none);
        let _ = writeln!(
            lark,
            "call{nth}: {} arguments{nth} \"}}\"\narguments{nth}: %json {}",
            quoted(&before),
            with_options(schema, !tool.strict)
        );
    }
}
