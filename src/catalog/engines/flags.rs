//! Tables of an engine's flags, and the check of `engine_kwargs` against them: every key known, every value of the right type, no
//! flag that the pool sets itself.

use serde_json::{Map, Value};

/// The type of a flag's value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// `--name`; false is written `--no-name`.
    Switch,
    /// `--name`; false leaves it out.
    On,
    /// An integer in this inclusive range.
    Integer(i64, i64),
    /// An integer of at least this value, plain or as engines write it: `32k`, `1M`.
    Count(i64),
    /// A number in this inclusive range.
    Float(f64, f64),
    Text,
    /// A local file or folder; relative paths are based on the pool's working directory.
    Path,
    /// Several arguments after the flag.
    List,
    /// Several values in one argument, separated by commas.
    Commas,
    /// A value passed as JSON text.
    Json,
    /// A choice from these words, separated by spaces.
    OneOf(&'static str),
}

/// Flags of one type: their keys, separated by spaces, as written in `engine_kwargs` (with underscores).
#[derive(Clone, Copy, Debug)]
pub struct Group {
    pub kind: Kind,
    pub names: &'static str,
}

/// Flags that the user must not set, or that deserve a warning, with the reason as a predicate that follows the key.
#[derive(Clone, Copy, Debug)]
pub struct FlagReason {
    pub names: &'static str,
    pub why: &'static str,
}

/// The reason why keys, certificates and origins are not options of an engine.
pub const GATEWAY_ALONE: &str = "is the gateway's business: only this machine reaches engines, keys are created with \
                                 `admin-client keys`, and certificates are set in the section `server` of the configuration";

pub const fn group(kind: Kind, names: &'static str) -> Group {
    Group { kind, names }
}

pub const fn reason(names: &'static str, why: &'static str) -> FlagReason {
    FlagReason { names, why }
}

/// The spelling of an engine's flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spelling {
    /// The separator between the words of a flag: `-`, or `_` for TensorRT-LLM.
    pub joint: char,
    /// The engine accepts `--name=value`, which values that begin with `-` require.
    pub equals: bool,
}

impl Spelling {
    pub const HYPHENS: Spelling = Spelling {
        joint: '-',
        equals: true,
    };

    fn flag(self, key: &str) -> String {
        format!("--{}", key.replace('_', &self.joint.to_string()))
    }
}

/// The flag tables of one engine.
#[derive(Clone, Copy, Debug)]
pub struct Flags {
    pub groups: &'static [Group],
    /// Flags set by the pool, or refused for another reason.
    pub barred: &'static [FlagReason],
    /// Flags that are accepted, with a warning unless they are false.
    pub warned: &'static [FlagReason],
    pub spelling: Spelling,
}

/// An error in one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlagError {
    pub key: String,
    pub problem: String,
}

/// The checked arguments of `engine_kwargs`, by key in the user's order.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct CheckedFlags {
    pub of_key: Vec<(String, Vec<String>)>,
    /// Pairs of key and warning.
    pub warnings: Vec<(String, String)>,
}

impl CheckedFlags {
    /// The arguments in command-line order.
    pub fn all(&self) -> impl Iterator<Item = &String> {
        self.of_key.iter().flat_map(|(_, words)| words)
    }

    /// The last argument of a key: the value of a flag that takes one, else the flag.
    pub fn value(&self, key: &str) -> Option<&str> {
        let found = self.of_key.iter().find(|(known, _)| known == key)?;
        found.1.last().map(String::as_str)
    }

    pub fn has(&self, key: &str) -> bool {
        self.of_key.iter().any(|(known, _)| known == key)
    }
}

fn names(text: &'static str) -> impl Iterator<Item = &'static str> {
    text.split_ascii_whitespace()
}

/// The decision on an option from a file written for an earlier version of the engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OptionFate {
    Taken,
    /// The reason, as a predicate that follows `it`.
    Refused(String),
    /// The engine has no such option.
    Unknown,
}

impl Flags {
    /// Decides on an option from an earlier version.
    pub fn fate(&self, written: &str, value: &Value) -> OptionFate {
        let key = written.trim_start_matches('-').replace('-', "_");
        let mut barred = self.barred.iter();
        if let Some(reason) = barred.find(|reason| names(reason.names).any(|name| name == key)) {
            return OptionFate::Refused(reason.why.to_owned());
        }
        match self.kind_of(&key) {
            None => OptionFate::Unknown,
            // Values that have been removed, such as forms of quantization.
            Some(Kind::OneOf(words)) if !value.is_null() => match text(Kind::OneOf(words), value) {
                Ok(_) => OptionFate::Taken,
                Err(_) => OptionFate::Refused(one_of(words, value)),
            },
            Some(_) => OptionFate::Taken,
        }
    }

    /// Every accepted key.
    pub fn keys(&self) -> impl Iterator<Item = &'static str> {
        self.groups.iter().flat_map(|group| names(group.names))
    }

    /// The flag of a key in this engine's spelling.
    pub fn flag(&self, key: &str) -> String {
        self.spelling.flag(key)
    }

    fn kind_of(&self, key: &str) -> Option<Kind> {
        let mut groups = self.groups.iter();
        let found = groups.find(|group| names(group.names).any(|name| name == key));
        found.map(|group| group.kind)
    }

    /// Checks `engine_kwargs` and converts it to arguments.
    pub fn check(&self, kwargs: &Map<String, Value>) -> Result<CheckedFlags, FlagError> {
        let mut all = CheckedFlags::default();
        for (written, value) in kwargs {
            let flaw = |problem: String| FlagError {
                key: written.clone(),
                problem,
            };
            let key = written.trim_start_matches('-').replace('-', "_");
            if all.has(&key) {
                return Err(flaw("is given twice, with `-` and with `_`".to_owned()));
            }
            let why = |reason: &[FlagReason]| {
                let mut reason = reason.iter();
                let found = reason.find(|reason| names(reason.names).any(|name| name == key));
                found.map(|reason| reason.why)
            };
            if let Some(why) = why(self.barred) {
                return Err(flaw(why.to_owned()));
            }
            let Some(kind) = self.kind_of(&key) else {
                return Err(flaw(self.unknown(&key)));
            };
            if value.is_null() {
                // Treat null as absent: RayLLM's files write defaults out like this.
                continue;
            }
            let words = self.arguments(&key, kind, value).map_err(flaw)?;
            if let Some(why) = why(self.warned).filter(|_| *value != Value::Bool(false)) {
                all.warnings.push((key.clone(), why.to_owned()));
            }
            all.of_key.push((key, words));
        }
        Ok(all)
    }

    fn unknown(&self, key: &str) -> String {
        let barred = self.barred.iter().flat_map(|reason| names(reason.names));
        match reading::nearest(key, self.keys().chain(barred)) {
            Some(near) => format!("is not an option of this engine; did you mean `{near}`?"),
            None => {
                "is not an option of this engine; use type: CommandEngine for a program that has it"
                    .to_owned()
            }
        }
    }

    fn arguments(&self, key: &str, kind: Kind, value: &Value) -> Result<Vec<String>, String> {
        let flag = self.spelling.flag(key);
        if matches!(kind, Kind::Switch | Kind::On) {
            let no = format!("--no{}{}", self.spelling.joint, &flag[2..]);
            return match (value, kind) {
                (Value::Bool(true), _) => Ok(vec![flag]),
                (Value::Bool(false), Kind::Switch) => Ok(vec![no]),
                (Value::Bool(false), _) => Ok(Vec::new()),
                _ => Err("is a switch; write true or false".to_owned()),
            };
        }
        if kind == Kind::List {
            let mut words = vec![flag];
            words.extend(list(value)?);
            return Ok(words);
        }
        let text = text(kind, value)?;
        if text.contains('\0') {
            return Err("contains a NUL byte, which cannot be passed to a program".to_owned());
        }
        Ok(if text.starts_with('-') && self.spelling.equals {
            vec![format!("{flag}={text}")]
        } else {
            vec![flag, text]
        })
    }
}

/// The items of a list; a single item needs no brackets.
fn list(value: &Value) -> Result<Vec<String>, String> {
    let wanted = "is a list; write [one, two]";
    let word = |value: &Value| match value {
        Value::String(text) if text.contains('\0') || text.starts_with('-') => {
            Err(format!("`{text}` cannot be an entry of this list"))
        }
        Value::String(text) => Ok(text.clone()),
        Value::Number(number) => Ok(number.to_string()),
        Value::Object(_) => Ok(value.to_string()),
        _ => Err(wanted.to_owned()),
    };
    match value {
        Value::Array(entries) if entries.is_empty() => Err("is an empty list; leave it out".into()),
        Value::Array(entries) => entries.iter().map(word).collect(),
        single => Ok(vec![word(single)?]),
    }
}

fn text(kind: Kind, value: &Value) -> Result<String, String> {
    match (kind, value) {
        (Kind::Integer(least, most), Value::Number(number)) => match number.as_i64() {
            Some(whole) if (least..=most).contains(&whole) => Ok(whole.to_string()),
            _ => Err(format!(
                "{number} is not allowed; allowed: {least} to {most}"
            )),
        },
        (Kind::Integer(least, most), _) => {
            Err(format!("is not a whole number; allowed: {least} to {most}"))
        }
        (Kind::Count(least), Value::Number(number)) => match number.as_i64() {
            Some(whole) if whole >= least => Ok(whole.to_string()),
            _ => Err(format!(
                "{number} is not allowed; allowed: {least} and more"
            )),
        },
        (Kind::Count(_), Value::String(text)) if is_count(text) => Ok(text.clone()),
        (Kind::Count(_), _) => Err("is not a number such as 8192, 8k or 8K".to_owned()),
        (Kind::Float(least, most), Value::Number(number)) => match number.as_f64() {
            Some(real) if (least..=most).contains(&real) => Ok(number.to_string()),
            _ => Err(format!(
                "{number} is not allowed; allowed: {least} to {most}"
            )),
        },
        (Kind::Float(least, most), _) => {
            Err(format!("is not a number; allowed: {least} to {most}"))
        }
        (Kind::OneOf(words), value) => {
            let text = scalar(value);
            match text.filter(|text| names(words).any(|word| word == text)) {
                Some(text) => Ok(text),
                None => Err(one_of(words, value)),
            }
        }
        (Kind::Path, Value::String(path)) if !path.is_empty() => std::path::absolute(path)
            .map(|path| path.display().to_string())
            .map_err(|error| format!("`{path}` is not a usable path: {error}")),
        (Kind::Path, _) => Err("is not a path".to_owned()),
        (Kind::Json, Value::String(text)) => match serde_json::from_str::<Value>(text) {
            Ok(_) => Ok(text.clone()),
            Err(error) => Err(format!(
                "is not JSON: {error}; keys and values can also be written directly as YAML"
            )),
        },
        (Kind::Json, value) => Ok(value.to_string()),
        (Kind::Commas, Value::Array(_)) => Ok(list(value)?.join(",")),
        (_, value) => scalar(value)
            .filter(|text| !text.is_empty())
            .ok_or_else(|| "is not a text".to_owned()),
    }
}

fn one_of(words: &'static str, value: &Value) -> String {
    let all: Vec<&str> = names(words).collect();
    let shown = scalar(value).unwrap_or_else(|| "this".to_owned());
    let hint = reading::nearest(&shown, names(words))
        .map(|near| format!("; did you mean `{near}`?"))
        .unwrap_or_default();
    format!(
        "`{shown}` is not allowed{hint}; allowed: {}",
        all.join(", ")
    )
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// Returns true for `8192`, `8k`, `8.5K` and `auto`.
fn is_count(text: &str) -> bool {
    let digits = text.trim_end_matches(['k', 'K', 'm', 'M', 'g', 'G']);
    text == "auto"
        || (text.len() - digits.len() <= 1 && digits.parse::<f64>().is_ok_and(|n| n > 0.0))
}

#[cfg(test)]
mod tests;
