//! Reads the text of a model's chat template from its folder, without rendering it.

use std::path::Path;

use serde_json::Value;

use super::python_json::without_bare_words;
use super::safetensors::read_text;

/// Templates take a few kilobytes; `tokenizer_config.json` also lists added tokens.
const TEMPLATE_BYTES_MAX: u64 = 1 << 20;
const CONFIG_BYTES_MAX: u64 = 16 << 20;

/// The chat template of the model in this folder; `None` if it is missing or unreadable. If there are several, prefers the template
/// for tools, which contains more.
pub fn chat_template(folder: &Path) -> Option<String> {
    let own = read_text(&folder.join("chat_template.jinja"), TEMPLATE_BYTES_MAX);
    own.ok().or_else(|| {
        ["chat_template.json", "tokenizer_config.json"]
            .into_iter()
            .find_map(|name| in_config(&folder.join(name)))
    })
}

fn in_config(path: &Path) -> Option<String> {
    let text = read_text(path, CONFIG_BYTES_MAX).ok()?;
    let config: Value = reading::json(&without_bare_words(&text)).ok()?;
    match config.get("chat_template")? {
        Value::String(template) => Some(template.clone()),
        Value::Array(named) => ["tool_use", "default"].into_iter().find_map(|name| {
            let found = named.iter().find(|template| template["name"] == name)?;
            found["template"].as_str().map(str::to_owned)
        }),
        _ => None,
    }
}
