//! The grammars of answers that must call a tool, and of those that may.

use super::{Family, Tool};
use crate::grammar::{Grammar, quoted, with_options};
use serde_json::json;
use std::fmt::Write;

/// Calls of one answer; a model that cannot stop calling is stopped.
const CALLS_MAX: usize = 8;

/// An answer that consists of calls of these tools in the form of the family. `special` tells the id of a special token.
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
        // These have no form for several calls that all their models know.
        Family::Llama | Family::Json => "start: call\n".to_owned(),
    };
    add_calls(&mut lark, family, tools);
    Grammar::Lark(lark)
}

/// An answer in words and calls as the model likes, in which every call is one of these tools with arguments of its schema.
/// `None` for families in which a call can begin like any other text.
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
        // No text can have these.
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

/// The rule `call`: one of these tools, with arguments of its schema.
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
