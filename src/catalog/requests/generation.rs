//! Reads a model's settings for its responses (`engine_config.generation`): the prompt format, defaults for omitted parameters, and
//! texts and tokens that end a response. They are checked and translated to the engine's fields here; `http` applies them to
//! requests.

use serde_json::{Map, Number, Value};

use super::sampling::{
    Candle, Family, IDLE, LlamaCpp, PARAMETERS, Plain, SWITCHES, Tgi, Vllm, checked, family_of,
    who_takes,
};
use crate::documents::{CatalogError, Diagnostics, Prompt, PromptCompat, prompt};
use crate::recipes::Recipe;

/// RayLLM's limit for a model's and a request's stops together.
pub const STOPS_MAX: usize = 8;

/// The reason why a temperature next to `do_sample: false` is not used.
const COLD: &str = "has no effect: `do_sample: false` takes the likeliest token";

/// Settings that are added to the requests for a model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Generation {
    pub prompt: Prompt,
    /// Values for fields that a request omits.
    pub defaults: Map<String, Value>,
    /// Replaces `defaults` where the engine renders the prompt of a chat itself.
    pub in_chats: Map<String, Value>,
    pub stops: Vec<String>,
    /// Token ids, or sequences of ids, that end a response; only for engines with `stop_token_ids`.
    pub stop_tokens: Vec<Value>,
}

impl Generation {
    /// An adapter's settings: keys missing in its section come from the base model.
    pub(crate) fn over(mut self, base: &Generation, section: &Value) -> Generation {
        let has = |key: &str| section.get(key).is_some();
        if !has("prompt_format") {
            self.prompt = base.prompt.clone();
        }
        if !has("generate_kwargs") {
            self.defaults = base.defaults.clone();
            self.in_chats = base.in_chats.clone();
        }
        if !has("stopping_sequences") && !has("stopping_tokens") {
            self.stops = base.stops.clone();
            self.stop_tokens = base.stop_tokens.clone();
        }
        self
    }
}

const FIELD: &str = "engine_config.generation";

/// The keys of the section.
pub(crate) const KEYS: &[&str] = &[
    "prompt_format",
    "generate_kwargs",
    "stopping_sequences",
    "stopping_tokens",
];

/// Reads the section. Without it, the engine's own defaults apply.
pub(crate) fn read(
    section: Option<&Value>,
    compat: PromptCompat,
    recipe: &Recipe,
    notes: &mut Diagnostics,
) -> Result<Generation, CatalogError> {
    match section {
        Some(section) => read_at(FIELD, section, compat, recipe, notes),
        None => Ok(Generation::default()),
    }
}

/// Reads the section at another path: an adapter's.
pub(crate) fn read_at(
    at: &str,
    section: &Value,
    compat: PromptCompat,
    recipe: &Recipe,
    notes: &mut Diagnostics,
) -> Result<Generation, CatalogError> {
    let mut generation = Generation::default();
    let Value::Object(section) = section else {
        return Err(notes.refuse(at, "keys with values are expected here"));
    };
    let family = family_of(recipe);
    for (key, value) in section {
        let field = format!("{at}.{key}");
        match (key.as_str(), value) {
            ("prompt_format", value) => {
                generation.prompt = prompt::read(value, &field, compat, notes)?;
            }
            ("generate_kwargs", Value::Object(kwargs)) => {
                for (key, value) in kwargs.iter().filter(|(_, value)| !value.is_null()) {
                    let field = format!("{field}.{key}");
                    default(
                        &mut generation.defaults,
                        family,
                        (key, &field),
                        value,
                        notes,
                    )?;
                }
            }
            ("stopping_sequences", Value::Array(stops)) => {
                for (nth, stop) in stops.iter().enumerate() {
                    let field = format!("{field}[{nth}]");
                    ending(&mut generation, stop, &field, notes)?;
                }
            }
            ("generate_kwargs" | "stopping_sequences", Value::Null) => {}
            ("generate_kwargs", _) => {
                return Err(notes.refuse(&field, "keys with values are expected here"));
            }
            ("stopping_sequences", _) => {
                return Err(notes.refuse(&field, "a list of texts and token ids is expected here"));
            }
            ("stopping_tokens", Value::Array(stops)) => {
                for (nth, stop) in stops.iter().enumerate() {
                    let field = format!("{field}[{nth}]");
                    if stop.is_string() {
                        return Err(notes.refuse(
                            &field,
                            "is a text; texts go into stopping_sequences, and token ids here",
                        ));
                    }
                    ending(&mut generation, stop, &field, notes)?;
                }
            }
            ("stopping_tokens", Value::Null) => {}
            ("stopping_tokens", _) => {
                return Err(notes.refuse(&field, "a list of token ids is expected here"));
            }
            (unknown, _) => {
                let near = reading::nearest(unknown, KEYS.iter().copied());
                let hint = near.map_or_else(
                    || format!("known here: {}", KEYS.join(", ")),
                    |near| format!("did you mean `{near}`?"),
                );
                return Err(notes.refuse(&field, format!("is not known; {hint}")));
            }
        }
    }
    drop_stop_tokens(&mut generation, family, at, notes);
    if family == Tgi {
        penalise_in_chats(&mut generation, at, notes);
    }
    Ok(generation)
}

/// Only some engines support stop token ids.
fn drop_stop_tokens(
    generation: &mut Generation,
    family: Family,
    at: &str,
    notes: &mut Diagnostics,
) {
    let field = format!("{at}.stopping_sequences");
    let takes = |value: &Value| match family {
        Candle => true,
        Vllm => value.is_u64(),
        LlamaCpp | Tgi | Plain => false,
    };
    let before = generation.stop_tokens.len();
    generation.stop_tokens.retain(takes);
    if generation.stop_tokens.len() < before {
        notes.warn(
            &field,
            match family {
                Vllm => "lists of token ids have no effect: this engine only supports single ids as stops; write the text they stand for",
                _ => "token ids have no effect: this engine only supports texts as stops, and the model's own end tokens; write the texts they stand for",
            },
        );
    }
}

fn default(
    defaults: &mut Map<String, Value>,
    family: Family,
    (key, field): (&str, &str),
    value: &Value,
    notes: &mut Diagnostics,
) -> Result<(), CatalogError> {
    // Names another key in the same section.
    let beside = |other: &str| format!("{}{other}", &field[..field.len() - key.len()]);
    if key == "do_sample" {
        match value {
            // Greedy decoding, whatever temperature is set.
            Value::Bool(false) => {
                let before = defaults.insert("temperature".to_owned(), Value::from(0));
                if before.is_some_and(|value| value.as_f64() != Some(0.0)) {
                    notes.warn(&beside("temperature"), COLD);
                }
            }
            Value::Bool(true) => {}
            _ => return Err(notes.refuse(field, "is a switch; write true or false")),
        }
        return Ok(());
    }
    if let Some((_, idle, instead)) = IDLE.iter().find(|(name, ..)| *name == key) {
        if *value != idle_value(idle) {
            notes.warn(field, format!("has no effect: {instead}"));
        }
        return Ok(());
    }
    let switch = SWITCHES.iter().find(|switch| switch.is(key));
    let Some(parameter) = switch.or(PARAMETERS.iter().find(|parameter| parameter.is(key))) else {
        let all = PARAMETERS.iter().chain(SWITCHES);
        let known = all
            .flat_map(|parameter| parameter.names.split(' '))
            .chain(["do_sample"]);
        let hint = reading::nearest(key, known)
            .map(|near| format!("; did you mean `{near}`?"))
            .unwrap_or_default();
        notes.warn(field, format!("has no effect: no engine takes it{hint}"));
        return Ok(());
    };
    let value = match (switch.is_some(), value) {
        (true, Value::Bool(_)) => value.clone(),
        (true, _) => return Err(notes.refuse(field, "is a switch; write true or false")),
        (false, Value::Number(number)) => match checked(parameter, number) {
            Some(number) => Value::Number(number),
            None => {
                let problem = format!("{number} is not allowed; {}", parameter.allowed());
                return Err(notes.refuse(field, problem));
            }
        },
        (false, _) => return Err(notes.refuse(field, "a number is expected here")),
    };
    // These values set no limit.
    let is_idle = value == Value::Bool(false) && parameter.is("ignore_eos")
        || parameter.is("top_k") && value.as_i64().is_some_and(|count| count <= 0)
        || parameter.is("min_tokens") && value == 0;
    match parameter.field(family) {
        _ if is_idle => {}
        // Only `do_sample: false` can have set it earlier.
        Some(name) if name == "temperature" && defaults.contains_key(name) => {
            if value.as_f64() != Some(0.0) {
                notes.warn(field, COLD);
            }
        }
        Some(name) => {
            let before = defaults.insert(name.to_owned(), value.clone());
            if let Some(before) = before.filter(|before| *before != value) {
                let other = format!(
                    "is used instead of {before}, which another name for the same parameter sets"
                );
                notes.warn(field, other);
            }
        }
        None => notes.warn(
            field,
            format!(
                "has no effect: this engine does not take it{}",
                who_takes(parameter)
            ),
        ),
    }
    Ok(())
}

/// TGI's chats have no repetition penalty field: TGI adds 2 to the presence penalty and uses the sum as repetition penalty.
fn penalise_in_chats(generation: &mut Generation, at: &str, notes: &mut Diagnostics) {
    let Some(penalty) = generation.defaults.get("repetition_penalty") else {
        return;
    };
    let shifted = penalty.as_f64().map(|penalty| penalty - 2.0);
    let shifted = shifted.filter(|shifted| (-2.0..=2.0).contains(shifted));
    match shifted.and_then(Number::from_f64) {
        Some(shifted) => {
            if generation.defaults.contains_key("presence_penalty") {
                notes.warn(
                    &format!("{at}.generate_kwargs.presence_penalty"),
                    "has no effect in chats: this engine combines both penalties, and repetition_penalty takes precedence",
                );
            }
            let field = "presence_penalty".to_owned();
            generation.in_chats.insert(field, Value::Number(shifted));
        }
        None => notes.warn(
            &format!("{at}.generate_kwargs.repetition_penalty"),
            "has no effect in chats: this engine only supports values up to 4 there",
        ),
    }
}

fn idle_value(text: &str) -> Value {
    match text {
        "true" => Value::Bool(true),
        "false" => Value::Bool(false),
        number => Value::from(number.parse::<u64>().unwrap_or_default()),
    }
}

fn ending(
    generation: &mut Generation,
    stop: &Value,
    field: &str,
    notes: &Diagnostics,
) -> Result<(), CatalogError> {
    let id = |value: &Value| value.as_u64().filter(|id| *id <= u64::from(u32::MAX));
    match stop {
        Value::String(text) if text.is_empty() => {
            return Err(notes.refuse(field, "is empty and would end every response; remove it"));
        }
        // RayLLM accepted digits in a text as an id.
        Value::String(text) => match text.parse::<u32>() {
            Ok(id) => generation.stop_tokens.push(Value::from(id)),
            Err(_) => generation.stops.push(text.clone()),
        },
        value if id(value).is_some() => generation.stop_tokens.push(value.clone()),
        Value::Array(ids) if !ids.is_empty() && ids.iter().all(|value| id(value).is_some()) => {
            generation.stop_tokens.push(match ids.as_slice() {
                [one] => one.clone(),
                _ => stop.clone(),
            });
        }
        Value::Array(texts) if !texts.is_empty() && texts.iter().all(Value::is_string) => {
            for text in texts {
                ending(generation, text, field, notes)?;
            }
        }
        _ => {
            return Err(notes.refuse(
                field,
                "a text, a token id, or a list of token ids is expected here",
            ));
        }
    }
    Ok(())
}
