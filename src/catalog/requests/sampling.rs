//! The sampling parameters of Hugging Face's `generate`, and each engine's fields for them. Reads no requests.

use serde_json::Number;

use crate::engines::EngineKind;
use crate::recipes::Recipe;
use crate::recipes::engine_options::kind_of_command;

/// A group of parameters of Hugging Face's `generate`, with the engines that support it and their names for it.
pub(crate) struct Parameter {
    /// Names in model files.
    pub names: &'static str,
    pub range: (f64, f64),
    pub is_integer: bool,
    /// The request field by engine family; an empty list of families means all others.
    pub fields: &'static [(&'static [Family], &'static str)],
}

/// Engines with the same fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    Candle,
    /// vLLM and similar engines: SGLang, TensorRT-LLM.
    Vllm,
    LlamaCpp,
    /// Text Generation Inference, which has no minimum number of tokens and no token ids as stops.
    Tgi,
    /// OpenAI's own fields only.
    Plain,
}

pub(crate) use Family::{Candle, LlamaCpp, Plain, Tgi, Vllm};

pub(crate) const ALL: &[Family] = &[Candle, Vllm, LlamaCpp, Tgi, Plain];

pub(super) const PARAMETERS: &[Parameter] = &[
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
            (&[Candle, Vllm, Tgi], "repetition_penalty"),
            (&[LlamaCpp], "repeat_penalty"),
        ],
    ),
];

/// Switches, and the fields that enable them.
pub(super) const SWITCHES: &[Parameter] = &[
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

/// Parameters whose given value is the default behaviour; other values have no effect and cause a warning.
pub(crate) const IDLE: &[(&str, &str, &str)] = &[
    (
        "num_beams",
        "1",
        "responses are sampled, without beam search",
    ),
    (
        "num_return_sequences",
        "1",
        "requests get several responses with n",
    ),
    ("return_token_type_ids", "false", "the tokenizer defines it"),
    ("use_cache", "true", "engines always keep a cache"),
    (
        "early_stopping",
        "false",
        "there is no beam search that could stop early",
    ),
    (
        "return_full_text",
        "false",
        "requests get their prompt with echo",
    ),
    ("watermark", "false", "responses have no watermark"),
];

pub(crate) const fn number(
    names: &'static str,
    range: (f64, f64),
    fields: &'static [(&'static [Family], &'static str)],
) -> Parameter {
    Parameter {
        names,
        range,
        is_integer: false,
        fields,
    }
}

pub(crate) const fn whole(
    names: &'static str,
    range: (f64, f64),
    fields: &'static [(&'static [Family], &'static str)],
) -> Parameter {
    Parameter {
        is_integer: true,
        ..number(names, range, fields)
    }
}

impl Parameter {
    pub fn is(&self, name: &str) -> bool {
        self.names.split(' ').any(|known| known == name)
    }

    pub fn field(&self, family: Family) -> Option<&'static str> {
        let mut fields = self.fields.iter();
        let found = fields.find(|(families, _)| families.contains(&family));
        found.map(|(_, field)| *field)
    }

    pub fn allowed(&self) -> String {
        let (least, most) = self.range;
        let kind = if self.is_integer {
            "whole numbers"
        } else {
            "numbers"
        };
        format!("allowed: {kind} from {least} to {most}")
    }
}

pub(super) fn family_of(recipe: &Recipe) -> Family {
    let of_kind = |kind: EngineKind| match kind {
        EngineKind::Vllm | EngineKind::Sglang | EngineKind::TrtLlm => Vllm,
        EngineKind::LlamaCpp => LlamaCpp,
        EngineKind::Tgi => Tgi,
        EngineKind::Tei | EngineKind::Other => Plain,
    };
    match recipe {
        Recipe::Candle(_) => Candle,
        Recipe::Server(server) => of_kind(server.engine.kind),
        Recipe::Command(command) => of_kind(kind_of_command(&command.command)),
        Recipe::Remote(_) | Recipe::RayServe(_) => Plain,
    }
}

impl Recipe {
    /// The engine's field for this sampling parameter, if it is known to support it.
    pub fn sampling_field(&self, name: &str) -> Option<&'static str> {
        let parameter = PARAMETERS.iter().find(|parameter| parameter.is(name))?;
        parameter.field(family_of(self))
    }
}

/// The engines that support the parameter.
pub(super) fn who_takes(parameter: &Parameter) -> String {
    let names = [
        (Candle, "CandleEngine"),
        (Vllm, "VLLMEngine, SGLangEngine and TRTLLMEngine"),
        (LlamaCpp, "LlamaCppEngine"),
        (Tgi, "TextGenerationInferenceEngine"),
    ];
    let takes = names
        .into_iter()
        .filter(|(family, _)| parameter.field(*family).is_some());
    let takes: Vec<&str> = takes.map(|(_, name)| name).collect();
    if takes.is_empty() {
        String::new()
    } else {
        format!("; {} do", takes.join(", "))
    }
}

/// The number in the form that engines require: `512.0` becomes an integer.
pub(crate) fn checked(parameter: &Parameter, number: &Number) -> Option<Number> {
    let value = number.as_f64()?;
    let (least, most) = parameter.range;
    if !(least..=most).contains(&value) {
        return None;
    }
    match (parameter.is_integer, number.is_f64()) {
        (true, true) if value.fract() == 0.0 => Some(Number::from(value as i64)),
        (true, true) => None,
        _ => Some(number.clone()),
    }
}
