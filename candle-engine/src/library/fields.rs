//! Reads the fields of `config.json` that several of the library's families have.

use super::library_model::Sizes;
use crate::files::ConfigFields;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Upper bounds; larger values are corrupt.
pub(super) const LAYERS_MAX: usize = 4096;
pub(super) const HIDDEN_MAX: usize = 1 << 20;

/// The shape of a decoder with attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    pub vocabulary: usize,
    pub hidden: usize,
    pub layers: usize,
    pub heads: usize,
    /// Width of one head.
    pub head: usize,
}

/// Reads the shape. Each field may have several names.
///
/// # Errors
/// If a field is missing or out of bounds, or the hidden size does not divide into heads.
pub(super) fn shape(
    config: ConfigFields<'_>,
    hidden: &[&str],
    layers: &[&str],
    heads: &[&str],
) -> Result<Shape, String> {
    let vocabulary = needed(config, &["vocab_size"])?;
    let (hidden_name, hidden) = (hidden[0], needed(config, hidden)?);
    let layers = needed(config, layers)?;
    let heads = needed(config, heads)?;
    if layers > LAYERS_MAX || hidden > HIDDEN_MAX {
        return Err(format!(
            "{layers} layers of {hidden} numbers are more than {LAYERS_MAX} layers or {HIDDEN_MAX} numbers"
        ));
    }
    if !hidden.is_multiple_of(heads) || !(hidden / heads).is_multiple_of(2) {
        return Err(format!(
            "{hidden_name} {hidden} does not divide into {heads} heads of even width"
        ));
    }
    Ok(Shape {
        vocabulary,
        hidden,
        layers,
        heads,
        head: hidden / heads,
    })
}

/// A count that must be present, under the first of its names that is.
///
/// # Errors
/// If it is missing, or not a positive integer.
pub(super) fn needed(config: ConfigFields<'_>, names: &[&str]) -> Result<usize, String> {
    maybe(config, names)?.ok_or_else(|| format!("{} is missing", names[0]))
}

/// A count that may be absent, under the first of its names that is present.
///
/// # Errors
/// If it is not a positive integer.
pub(super) fn maybe(config: ConfigFields<'_>, names: &[&str]) -> Result<Option<usize>, String> {
    for name in names {
        if let Some(count) = config.maybe_count(name)? {
            return Ok(Some(count));
        }
    }
    Ok(None)
}

/// Number of key-value heads, which must divide the heads.
///
/// # Errors
/// If it does not.
pub(super) fn key_value_heads(config: ConfigFields<'_>, heads: usize) -> Result<usize, String> {
    let count = config.count("num_key_value_heads", heads)?;
    if heads.is_multiple_of(count) {
        Ok(count)
    } else {
        Err(format!(
            "{heads} attention heads do not divide into {count} key-value heads"
        ))
    }
}

/// Requires a flag to be `value`, which is its default.
///
/// # Errors
/// If it differs.
pub(super) fn only(config: ConfigFields<'_>, name: &str, value: bool) -> Result<(), String> {
    if config.flag(name, value)? == value {
        Ok(())
    } else {
        Err(format!(
            "{name} is {}, which this engine does not compute for this family",
            !value
        ))
    }
}

/// Requires a text to be among `known`, or absent.
///
/// # Errors
/// If it is not.
pub(super) fn one_of<'a>(
    config: ConfigFields<'a>,
    name: &str,
    known: &[&'a str],
) -> Result<&'a str, String> {
    match config.text(name)? {
        None => Ok(known[0]),
        Some(found) if known.contains(&found) => Ok(found),
        Some(found) => Err(format!(
            "{name} is {found}; for this family this engine supports {}",
            known.join(", ")
        )),
    }
}

/// A plain rotary embedding.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct PlainRope {
    pub theta: f64,
    /// Part of each head that is rotated.
    pub share: f64,
}

/// Reads a rotary embedding from `rope_parameters`, or from the fields of older files.
///
/// # Errors
/// If it is scaled, or a number is out of bounds.
pub(super) fn rope(config: ConfigFields<'_>, share: f64) -> Result<PlainRope, String> {
    rope_or(config, 10_000.0, share)
}

fn rope_or(config: ConfigFields<'_>, theta: f64, share: f64) -> Result<PlainRope, String> {
    for (object, kind) in [
        ("rope_scaling", "type"),
        ("rope_scaling", "rope_type"),
        ("rope_parameters", "rope_type"),
    ] {
        let scaling = config.object(object)?.and_then(|scaling| scaling.get(kind));
        if let Some(kind) = scaling.and_then(Value::as_str)
            && kind != "default"
        {
            return Err(format!(
                "{object} is of the kind {kind}, which this engine does not compute for this family"
            ));
        }
    }
    let parameters = config.value("rope_parameters").map(ConfigFields::new);
    let number = |name: &str, default: f64| -> Result<f64, String> {
        let inner = parameters.map(|inner| inner.maybe_positive(name));
        match inner.transpose()?.flatten() {
            Some(number) => Ok(number),
            None => config.positive(name, default),
        }
    };
    let rope = PlainRope {
        theta: number("rope_theta", theta)?,
        share: number("partial_rotary_factor", share)?,
    };
    if rope.share > 1.0 {
        return Err(format!(
            "partial_rotary_factor is {}, which is not between 0 and 1",
            rope.share
        ));
    }
    Ok(rope)
}

/// Reads the base of a rotary embedding of complete heads.
///
/// # Errors
/// If it is scaled or partial, or a number is out of bounds.
pub(super) fn full_rope(config: ConfigFields<'_>) -> Result<f64, String> {
    full_rope_or(config, 10_000.0)
}

/// As [`full_rope`], with another default base.
///
/// # Errors
/// See [`full_rope`].
pub(super) fn full_rope_or(config: ConfigFields<'_>, theta: f64) -> Result<f64, String> {
    let rope = rope_or(config, theta, 1.0)?;
    if rope.share == 1.0 {
        Ok(rope.theta)
    } else {
        Err(format!(
            "partial_rotary_factor is {}; for this family this engine computes 1",
            rope.share
        ))
    }
}

/// Requires a count to be `value`, which is its default.
///
/// # Errors
/// If it differs.
pub(super) fn only_count(config: ConfigFields<'_>, name: &str, value: usize) -> Result<(), String> {
    let found = config.count(name, value)?;
    if found == value {
        Ok(())
    } else {
        Err(format!(
            "{name} is {found}; for this family this engine computes {value}"
        ))
    }
}

/// The fields that have the same names in most families.
pub(super) struct UsualFields {
    shape: Shape,
    wide: usize,
    key_value_heads: usize,
    /// Width of one head of keys and values.
    pub head: usize,
    pub context_tokens: usize,
}

impl UsualFields {
    /// # Errors
    /// If a field is missing or out of bounds, or heads do not divide.
    pub fn new(config: ConfigFields<'_>) -> Result<Self, String> {
        let shape = shape(
            config,
            &["hidden_size"],
            &["num_hidden_layers"],
            &["num_attention_heads"],
        )?;
        Ok(Self {
            wide: needed(config, &["intermediate_size"])?,
            key_value_heads: key_value_heads(config, shape.heads)?,
            head: shape.head,
            context_tokens: needed(config, &["max_position_embeddings"])?,
            shape,
        })
    }

    /// The library's configuration for sequences of at most `context` tokens, with `further` fields.
    ///
    /// # Errors
    /// See [`parsed`].
    pub fn library<C: DeserializeOwned>(
        &self,
        context: usize,
        further: Value,
    ) -> Result<C, String> {
        let mut fields = json!({
            "vocab_size": self.shape.vocabulary,
            "hidden_size": self.shape.hidden,
            "intermediate_size": self.wide,
            "num_hidden_layers": self.shape.layers,
            "num_attention_heads": self.shape.heads,
            "num_key_value_heads": self.key_value_heads,
            "max_position_embeddings": context.min(self.context_tokens),
        });
        if let (Value::Object(fields), Value::Object(further)) = (&mut fields, further) {
            fields.extend(further);
        }
        parsed(fields)
    }

    pub fn sizes(&self) -> Sizes {
        Sizes {
            vocabulary: self.shape.vocabulary,
            context_tokens: self.context_tokens,
            cache_numbers: 2 * self.key_value_heads * self.head * self.shape.layers,
        }
    }
}

/// Converts checked fields into the library's configuration.
///
/// # Errors
/// If the library knows a value, such as an activation, under another name.
pub(super) fn parsed<C: DeserializeOwned>(fields: Value) -> Result<C, String> {
    serde_json::from_value(fields)
        .map_err(|error| format!("the library does not accept it ({error})"))
}
