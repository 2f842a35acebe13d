//! Reads the options of a command line with the types from an engine's table. Options that the table does not contain are errors,
//! because the command is then not understood.

use std::collections::BTreeMap;

use catalog::Engine;
use serde_json::{Map, Value, json};

/// Options that are handled specially: the pool sets them, or they have no meaning behind it.
pub struct SpecialOptions {
    /// Options with a value, which the caller interprets.
    pub values: &'static [&'static str],
    /// Options without a value.
    pub switches: &'static [&'static str],
    /// Other spellings, with the key.
    pub short: &'static [(&'static str, &'static str)],
}

/// A parsed command line.
pub struct ParsedOptions {
    /// Values of the specially handled options, each at most once.
    pub own: BTreeMap<&'static str, String>,
    pub kwargs: Map<String, Value>,
    /// Arguments that belong to no option.
    pub rest: Vec<String>,
}

/// Parses a command line. `Err`: the reason why an option is not understood.
pub fn read(
    engine: &Engine,
    own: &SpecialOptions,
    argv: &[String],
) -> Result<ParsedOptions, String> {
    let mut read = ParsedOptions {
        own: BTreeMap::new(),
        kwargs: Map::new(),
        rest: Vec::new(),
    };
    let mut at = 0;
    while let Some(word) = argv.get(at) {
        at += 1;
        if !is_option(word) {
            read.rest.push(word.clone());
            continue;
        }
        let (name, joined) = match word.split_once('=') {
            Some((name, value)) if name.starts_with("--") => (name, Some(value.to_owned())),
            _ => (word.as_str(), None),
        };
        let short = own.short.iter().find(|(spelling, _)| *spelling == name);
        let key = match short {
            Some((_, key)) => (*key).to_owned(),
            None if name.starts_with("--") => name[2..].replace('-', "_"),
            None => return Err(format!("`{name}` is an unknown option")),
        };
        if let Some(switch) = own.switches.iter().find(|name| **name == key) {
            read.own.insert(switch, String::new());
            continue;
        }
        let next = argv.get(at).filter(|next| !is_option(next));
        let value = joined.clone().or_else(|| next.cloned());
        let takes = usize::from(joined.is_none() && value.is_some());
        let is_twice = read.kwargs.contains_key(&key);
        if let Some(own) = own.values.iter().find(|name| **name == key) {
            let value = value.ok_or_else(|| format!("`{name}` has no value"))?;
            if read.own.insert(own, value).is_some() {
                return Err(format!("`{name}` is given twice"));
            }
            at += takes;
            continue;
        }
        if is_twice {
            return Err(format!("`{name}` is given twice"));
        }
        let (key, value, uses_text) = typed(engine, &key, value.as_deref())?;
        read.kwargs.insert(key, value);
        at += if uses_text { takes } else { 0 };
    }
    Ok(read)
}

/// Converts a value to the key's type in the engine's table. The flag is true if the value came from `text`.
fn typed(engine: &Engine, key: &str, text: Option<&str>) -> Result<(String, Value, bool), String> {
    let check = |key: &str, value: &Value| {
        let kwargs: Map<String, Value> = [(key.to_owned(), value.clone())].into_iter().collect();
        engine.flags.check(&kwargs)
    };
    let mut problem = None;
    if let Some(text) = text {
        let number = serde_json::from_str::<Value>(text)
            .ok()
            .filter(Value::is_number);
        let written = number.as_ref().map(Value::to_string);
        let is_plain = written.as_deref() == Some(text);
        let mut candidates = vec![json!(text)];
        if let Some(number) = number {
            candidates.insert(usize::from(!is_plain), number);
        }
        // Older versions wrote it as a plain flag.
        if key == "flash_attn" && matches!(text, "1" | "0") {
            candidates.insert(0, json!(if text == "1" { "on" } else { "off" }));
        }
        for value in candidates {
            match check(key, &value) {
                Ok(_) => return Ok((key.to_owned(), value, true)),
                Err(flaw) => problem = problem.or(Some(flaw.problem)),
            }
        }
    }
    if key == "flash_attn" {
        return Ok((key.to_owned(), json!("on"), false));
    }
    match check(key, &Value::Bool(true)) {
        Ok(_) => return Ok((key.to_owned(), Value::Bool(true), false)),
        Err(flaw) => problem = problem.or(Some(flaw.problem)),
    }
    if let Some(positive) = key.strip_prefix("no_")
        && check(positive, &Value::Bool(false)).is_ok()
    {
        return Ok((positive.to_owned(), Value::Bool(false), false));
    }
    let flag = key.replace('_', "-");
    Err(format!("--{flag} {}", problem.unwrap_or_default()))
}

/// Returns true for an option; `-1` is a value.
fn is_option(word: &str) -> bool {
    word.len() > 1 && word.starts_with('-') && word.parse::<f64>().is_err()
}
