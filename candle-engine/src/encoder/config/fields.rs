//! Reads single fields of an encoder's `config.json`, with errors that name the field.

use crate::encoder::spec::Activation;
use serde_json::Value;

/// Upper bound for sizes: larger values are mistakes or attacks, and must not reach an allocation.
const SIZE_MAX: usize = 1 << 26;
const LAYERS_MAX: usize = 4096;

/// The fields of one `config.json`.
pub(super) struct Fields<'a> {
    pub json: &'a Value,
}

impl Fields<'_> {
    pub fn value(&self, name: &str) -> Option<&Value> {
        self.json.get(name).filter(|value| !value.is_null())
    }

    /// Reads a required positive integer.
    pub fn size(&self, name: &str) -> Result<usize, String> {
        match self.value(name) {
            Some(value) => size_of(name, value),
            None => Err(format!("{name} is missing")),
        }
    }

    pub fn size_or(&self, name: &str, default: usize) -> Result<usize, String> {
        self.value(name)
            .map_or(Ok(default), |value| size_of(name, value))
    }

    pub fn number_or(&self, name: &str, default: f64) -> Result<f64, String> {
        match self.value(name) {
            None => Ok(default),
            Some(value) => value
                .as_f64()
                .ok_or_else(|| format!("{name} is {value}, which is not a number")),
        }
    }

    pub fn flag_or(&self, name: &str, default: bool) -> Result<bool, String> {
        match self.value(name) {
            None => Ok(default),
            Some(value) => value
                .as_bool()
                .ok_or_else(|| format!("{name} is {value}, which is neither true nor false")),
        }
    }

    pub fn activation(&self, name: &str, default: &str) -> Result<Activation, String> {
        let word = self.value(name).map_or(Some(default), Value::as_str);
        match word {
            Some("gelu" | "geglu") => Ok(Activation::Gelu),
            Some("gelu_new" | "gelu_fast" | "gelu_pytorch_tanh") => Ok(Activation::GeluTanh),
            Some("relu") => Ok(Activation::Relu),
            Some("silu" | "swish" | "swiglu") => Ok(Activation::Silu),
            Some("tanh") => Ok(Activation::Tanh),
            _ => Err(format!(
                "{name} is {}; this engine computes gelu, gelu_new, relu, silu and tanh",
                self.json[name]
            )),
        }
    }

    pub fn padding(&self, default: u32) -> Result<u32, String> {
        match self.value("pad_token_id") {
            None => Ok(default),
            Some(value) => value
                .as_u64()
                .and_then(|id| u32::try_from(id).ok())
                .ok_or_else(|| format!("pad_token_id is {value}, which is not a token id")),
        }
    }

    pub fn layers(&self, name: &str) -> Result<usize, String> {
        let count = self.size(name)?;
        if count > LAYERS_MAX {
            return Err(format!("{name} is {count}, more than {LAYERS_MAX}"));
        }
        Ok(count)
    }

    /// Reads a count that may be zero, such as the number of embedding rows.
    pub fn count_or(&self, name: &str, default: usize) -> Result<usize, String> {
        match self.value(name) {
            Some(value) if *value == 0 => Ok(0),
            Some(value) => size_of(name, value),
            None => Ok(default),
        }
    }

    pub fn with_bert_names(&self, words: &[(&str, &str)]) -> Value {
        let mut renamed = self.json.clone();
        if let Some(fields) = renamed.as_object_mut() {
            for (theirs, common) in words {
                if let Some(value) = self.value(theirs) {
                    fields.insert((*common).to_owned(), value.clone());
                }
            }
        }
        renamed
    }
}

fn size_of(name: &str, value: &Value) -> Result<usize, String> {
    let size = value.as_u64().and_then(|size| usize::try_from(size).ok());
    size.filter(|size| (1..=SIZE_MAX).contains(size))
        .ok_or_else(|| format!("{name} is {value}, which is not between 1 and {SIZE_MAX}"))
}
