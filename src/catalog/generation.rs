//! What a model's file says of its answers: the prompt format, values for parameters that a request leaves out,
//! and texts and tokens that end an answer (`engine_config.generation`). Here they are checked and put into the
//! words that the model's engine takes; requests are changed elsewhere.

use serde_json::{Map, Number, Value};

use super::CatalogError;
use super::diagnostics::Diagnostics;
use super::engine_kind::EngineKind;
use super::engine_options::kind_of_words;
use super::prompt::{self, Prompt, PromptCompat};
use super::recipe::Recipe;

/// RayLLM's bound on a model's and a request's stops together.
pub const STOPS_MAX: usize = 8;

/// Why a temperature beside `do_sample: false` is not used.
const COLD: &str = "has no effect: `do_sample: false` takes the likeliest token";

/// What is added to the requests for a model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Generation {
    pub prompt: Prompt,
    /// Fields that count where a request has none.
    pub defaults: Map<String, Value>,
    pub stops: Vec<String>,
    /// Ids that end an answer, or lists of them in a row; only for engines that take `stop_token_ids`.
    pub stop_tokens: Vec<Value>,
}

/// A group of parameters of Hugging Face's `generate`, and which engines take it under which name.
struct Parameter {
    /// Its names in model files.
    names: &'static str,
    range: (f64, f64),
    is_whole: bool,
    /// The field of a request, by engine; empty: those that are not named.
    fields: &'static [(&'static [Family], &'static str)],
}

/// Engines that take the same fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    Candle,
    /// vLLM and what follows it: SGLang, TensorRT-LLM.
    Vllm,
    LlamaCpp,
    /// OpenAI's own fields alone.
    Plain,
}

use Family::{Candle, LlamaCpp, Plain, Vllm};

const ALL: &[Family] = &[Candle, Vllm, LlamaCpp, Plain];

const PARAMETERS: &[Parameter] = &[
    number("temperature", (0.0, 2.0), &[(ALL, "temperature")]),
    number("top_p", (1e-6, 1.0), &[(ALL, "top_p")]),
    number(
        "presence_penalty",
        (-2.0, 2.0),
        &[(ALL, "presence_penalty")],
    ),
    number(
        "frequency_penalty",
        (-2.0, 2.0),
        &[(ALL, "frequency_penalty")],
    ),
    whole("seed", (-9.3e18, 9.3e18), &[(ALL, "seed")]),
    whole(
        "max_new_tokens max_tokens",
        (1.0, 1e9),
        &[(ALL, "max_tokens")],
    ),
    whole(
        "min_new_tokens min_tokens",
        (0.0, 1e9),
        &[(&[Candle, Vllm], "min_tokens")],
    ),
    whole(
        "top_k",
        (-1.0, 4e9),
        &[(&[Candle, Vllm, LlamaCpp], "top_k")],
    ),
    number("min_p", (0.0, 1.0), &[(&[Candle, Vllm, LlamaCpp], "min_p")]),
    number(
        "typical_p",
        (0.0, 1.0),
        &[(&[Candle, LlamaCpp], "typical_p")],
    ),
    number(
        "repetition_penalty repeat_penalty",
        (0.01, 10.0),
        &[
            (&[Candle, Vllm], "repetition_penalty"),
            (&[LlamaCpp], "repeat_penalty"),
        ],
    ),
];

/// Switches, and the field that turns them on.
const SWITCHES: &[Parameter] = &[
    number(
        "ignore_eos_token ignore_eos",
        (0.0, 1.0),
        &[(&[Candle, Vllm, LlamaCpp], "ignore_eos")],
    ),
    number(
        "skip_special_tokens",
        (0.0, 1.0),
        &[(&[Vllm], "skip_special_tokens")],
    ),
];

/// What asks for nothing with these values; any other value has no effect, and that is said.
const IDLE: &[(&str, &str, &str)] = &[
    ("num_beams", "1", "answers are sampled, not searched for"),
    (
        "num_return_sequences",
        "1",
        "a request asks for several answers with n",
    ),
    ("return_token_type_ids", "false", "it is the tokenizer's"),
    ("use_cache", "true", "engines always keep a cache"),
    (
        "early_stopping",
        "false",
        "there is no search that could stop early",
    ),
    (
        "return_full_text",
        "false",
        "a request asks for its prompt with echo",
    ),
    ("watermark", "false", "answers have no watermark"),
];

const fn number(
    names: &'static str,
    range: (f64, f64),
    fields: &'static [(&'static [Family], &'static str)],
) -> Parameter {
    Parameter {
        names,
        range,
        is_whole: false,
        fields,
    }
}

const fn whole(
    names: &'static str,
    range: (f64, f64),
    fields: &'static [(&'static [Family], &'static str)],
) -> Parameter {
    Parameter {
        is_whole: true,
        ..number(names, range, fields)
    }
}

impl Parameter {
    fn is(&self, name: &str) -> bool {
        self.names.split(' ').any(|known| known == name)
    }

    fn field(&self, family: Family) -> Option<&'static str> {
        let mut fields = self.fields.iter();
        let found = fields.find(|(families, _)| families.contains(&family));
        found.map(|(_, field)| *field)
    }

    fn allowed(&self) -> String {
        let (least, most) = self.range;
        let kind = if self.is_whole {
            "whole numbers"
        } else {
            "numbers"
        };
        format!("allowed: {kind} from {least} to {most}")
    }
}

const FIELD: &str = "engine_config.generation";

/// Reads the section. Without it the engine's own way counts.
pub(super) fn read(
    section: Option<&Value>,
    compat: PromptCompat,
    recipe: &Recipe,
    notes: &mut Diagnostics,
) -> Result<Generation, CatalogError> {
    let mut generation = Generation::default();
    let Some(section) = section else {
        return Ok(generation);
    };
    let Value::Object(section) = section else {
        return Err(notes.refuse(FIELD, "keys with values are expected here"));
    };
    let family = family_of(recipe);
    for (key, value) in section {
        let field = format!("{FIELD}.{key}");
        match (key.as_str(), value) {
            ("prompt_format", value) => {
                generation.prompt = prompt::read(value, &field, compat, notes)?;
            }
            ("generate_kwargs", Value::Object(kwargs)) => {
                for (key, value) in kwargs.iter().filter(|(_, value)| !value.is_null()) {
                    default(&mut generation.defaults, family, key, value, notes)?;
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
            (unknown, _) => {
                let known = ["prompt_format", "generate_kwargs", "stopping_sequences"];
                let near = reading::nearest(unknown, known.into_iter());
                let hint = near.map_or_else(
                    || format!("known here: {}", known.join(", ")),
                    |near| format!("did you mean `{near}`?"),
                );
                return Err(notes.refuse(&field, format!("is not known; {hint}")));
            }
        }
    }
    drop_stop_tokens(&mut generation, family, notes);
    Ok(generation)
}

/// Only some engines take ids.
fn drop_stop_tokens(generation: &mut Generation, family: Family, notes: &mut Diagnostics) {
    let field = format!("{FIELD}.stopping_sequences");
    let takes = |value: &Value| match family {
        Candle => true,
        Vllm => value.is_u64(),
        LlamaCpp | Plain => false,
    };
    let before = generation.stop_tokens.len();
    generation.stop_tokens.retain(takes);
    if generation.stop_tokens.len() < before {
        notes.warn(
            &field,
            match family {
                Vllm => "lists of token ids have no effect: this engine ends an answer at single ones; write the text that they are",
                _ => "token ids have no effect: this engine ends an answer at texts alone, and at the end tokens of the model; write the texts that they are",
            },
        );
    }
}

fn family_of(recipe: &Recipe) -> Family {
    let of_kind = |kind: EngineKind| match kind {
        EngineKind::Vllm | EngineKind::Sglang | EngineKind::TrtLlm => Vllm,
        EngineKind::LlamaCpp => LlamaCpp,
        EngineKind::Tgi | EngineKind::Tei | EngineKind::Other => Plain,
    };
    match recipe {
        Recipe::Candle(_) => Candle,
        Recipe::Server(server) => of_kind(server.engine.kind),
        Recipe::Command(command) => of_kind(kind_of_words(&command.command)),
        Recipe::Remote(_) => Plain,
    }
}

impl Recipe {
    /// The field by which the model's engine takes a sampling parameter of this name, if it is known to take it.
    pub fn sampling_field(&self, name: &str) -> Option<&'static str> {
        let parameter = PARAMETERS.iter().find(|it| it.is(name))?;
        parameter.field(family_of(self))
    }
}

fn default(
    defaults: &mut Map<String, Value>,
    family: Family,
    key: &str,
    value: &Value,
    notes: &mut Diagnostics,
) -> Result<(), CatalogError> {
    let field = format!("{FIELD}.generate_kwargs.{key}");
    if key == "do_sample" {
        match value {
            // The likeliest token, whatever the temperature is said to be.
            Value::Bool(false) => {
                let before = defaults.insert("temperature".to_owned(), Value::from(0));
                if before.is_some_and(|value| value.as_f64() != Some(0.0)) {
                    notes.warn(&format!("{FIELD}.generate_kwargs.temperature"), COLD);
                }
            }
            Value::Bool(true) => {}
            _ => return Err(notes.refuse(&field, "is a switch; write true or false")),
        }
        return Ok(());
    }
    if let Some((_, idle, instead)) = IDLE.iter().find(|(name, ..)| *name == key) {
        if *value != idle_value(idle) {
            notes.warn(&field, format!("has no effect: {instead}"));
        }
        return Ok(());
    }
    let switch = SWITCHES.iter().find(|it| it.is(key));
    let Some(parameter) = switch.or(PARAMETERS.iter().find(|it| it.is(key))) else {
        let all = PARAMETERS.iter().chain(SWITCHES);
        let known = all.flat_map(|it| it.names.split(' ')).chain(["do_sample"]);
        let hint = reading::nearest(key, known)
            .map(|near| format!("; did you mean `{near}`?"))
            .unwrap_or_default();
        notes.warn(&field, format!("has no effect: no engine takes it{hint}"));
        return Ok(());
    };
    let value = match (switch.is_some(), value) {
        (true, Value::Bool(_)) => value.clone(),
        (true, _) => return Err(notes.refuse(&field, "is a switch; write true or false")),
        (false, Value::Number(number)) => match checked(parameter, number) {
            Some(number) => Value::Number(number),
            None => {
                let problem = format!("{number} is not allowed; {}", parameter.allowed());
                return Err(notes.refuse(&field, problem));
            }
        },
        (false, _) => return Err(notes.refuse(&field, "a number is expected here")),
    };
    // Neither bounds anything.
    let is_idle = value == Value::Bool(false) && parameter.is("ignore_eos")
        || parameter.is("top_k") && value.as_i64().is_some_and(|count| count <= 0)
        || parameter.is("min_tokens") && value == 0;
    match parameter.field(family) {
        _ if is_idle => {}
        // Nothing but `do_sample: false` can have said it before.
        Some(name) if name == "temperature" && defaults.contains_key(name) => {
            if value.as_f64() != Some(0.0) {
                notes.warn(&field, COLD);
            }
        }
        Some(name) => {
            let before = defaults.insert(name.to_owned(), value.clone());
            if let Some(before) = before.filter(|before| *before != value) {
                let other = format!("counts, and not the {before} of another name for the same");
                notes.warn(&field, other);
            }
        }
        None => notes.warn(&field, "has no effect: this engine does not take it"),
    }
    Ok(())
}

fn idle_value(text: &str) -> Value {
    match text {
        "true" => Value::Bool(true),
        "false" => Value::Bool(false),
        number => Value::from(number.parse::<u64>().unwrap_or_default()),
    }
}

/// The number as engines want it: `512.0` is a whole one.
fn checked(parameter: &Parameter, number: &Number) -> Option<Number> {
    let value = number.as_f64()?;
    let (least, most) = parameter.range;
    if !(least..=most).contains(&value) {
        return None;
    }
    match (parameter.is_whole, number.is_f64()) {
        (true, true) if value.fract() == 0.0 => Some(Number::from(value as i64)),
        (true, true) => None,
        _ => Some(number.clone()),
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
            return Err(notes.refuse(field, "is empty, and would end every answer; remove it"));
        }
        // RayLLM took a text of digits for an id.
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
