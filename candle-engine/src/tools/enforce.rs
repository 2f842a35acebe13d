//! Owns the grammar of an answer that must call a tool. Never compiles it.

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
    let more = |separator: &str, call: &str| match parallel {
        true => format!(" ({} {call}){{0,{}}}", quoted(separator), CALLS_MAX - 1),
        false => String::new(),
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
    Grammar::Lark(lark)
}
