//! The values that keys of a model file take: one of a few words, or a secret.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What the embedded engine computes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ComputeDevice {
    #[default]
    Cpu,
    Cuda,
    Metal,
}

impl ComputeDevice {
    pub fn as_str(self) -> &'static str {
        match self {
            ComputeDevice::Cpu => "cpu",
            ComputeDevice::Cuda => "cuda",
            ComputeDevice::Metal => "metal",
        }
    }
}

/// The form in which the embedded engine writes wide weights anew while it loads them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Quantization {
    /// 8.5 bits a number.
    #[serde(rename = "q8_0")]
    Q8_0,
    /// 4.5 bits a number.
    #[serde(rename = "q4_k")]
    Q4K,
}

impl Quantization {
    pub fn as_str(self) -> &'static str {
        match self {
            Quantization::Q8_0 => "q8_0",
            Quantization::Q4K => "q4_k",
        }
    }
}

/// Types of numbers of the embedded engine on the CPU; on GPUs they follow the weights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NumberTypes {
    /// What matrices of BF16 are multiplied in.
    #[serde(default)]
    pub products: ProductType,
    /// What keys and values are kept in.
    #[serde(default)]
    pub kv_cache: CacheType,
}

/// What the embedded engine multiplies matrices of BF16 in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProductType {
    /// F32.
    #[default]
    #[serde(rename = "auto")]
    Auto,
    #[serde(rename = "bfloat16")]
    Bf16,
    #[serde(rename = "float32")]
    F32,
}

impl ProductType {
    pub fn as_str(self) -> &'static str {
        match self {
            ProductType::Auto => "auto",
            ProductType::Bf16 => "bfloat16",
            ProductType::F32 => "float32",
        }
    }
}

/// What the embedded engine keeps keys and values in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum CacheType {
    /// Four bytes a number.
    #[default]
    #[serde(rename = "auto")]
    Auto,
    #[serde(rename = "float16")]
    F16,
    #[serde(rename = "bfloat16")]
    Bf16,
    #[serde(rename = "float32")]
    F32,
}

impl CacheType {
    pub fn as_str(self) -> &'static str {
        match self {
            CacheType::Auto => "auto",
            CacheType::F16 => "float16",
            CacheType::Bf16 => "bfloat16",
            CacheType::F32 => "float32",
        }
    }
}

/// What the embedded engine serves a model for, where the model's files do not say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Task {
    Generate,
    Embed,
    Rerank,
}

impl Task {
    pub fn as_str(self) -> &'static str {
        match self {
            Task::Generate => "generate",
            Task::Embed => "embed",
            Task::Rerank => "rerank",
        }
    }
}

/// Who fetches a model's weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fetcher {
    /// The pool, before any GPU memory is taken.
    Pool,
    /// The engine itself, while it starts.
    Engine,
}

/// How deeply an idle model sleeps instead of being unloaded, where its engine can.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Sleep {
    #[default]
    Off,
    /// The weights wait in the host's memory.
    Weights,
    /// The weights are dropped and read again; the process and what it has compiled stay.
    Discard,
}

impl Sleep {
    pub fn as_str(self) -> &'static str {
        match self {
            Sleep::Off => "off",
            Sleep::Weights => "weights",
            Sleep::Discard => "discard",
        }
    }
}

/// Where a command listens: a loopback port or a Unix socket that the pool picks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Listen {
    #[default]
    Port,
    Socket,
}

/// A value of an engine's environment. It may be a token, so it is never printed. Numbers and switches are
/// texts here: `PORT: 8080`.
#[derive(Clone, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Secret(pub String);

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Secret, D::Error> {
        struct Visitor;

        impl serde::de::Visitor<'_> for Visitor {
            type Value = Secret;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text")
            }

            fn visit_str<E>(self, text: &str) -> Result<Secret, E> {
                Ok(Secret(text.to_owned()))
            }

            fn visit_bool<E>(self, value: bool) -> Result<Secret, E> {
                Ok(Secret(value.to_string()))
            }

            fn visit_i64<E>(self, value: i64) -> Result<Secret, E> {
                Ok(Secret(value.to_string()))
            }

            fn visit_u64<E>(self, value: u64) -> Result<Secret, E> {
                Ok(Secret(value.to_string()))
            }

            fn visit_f64<E>(self, value: f64) -> Result<Secret, E> {
                Ok(Secret(value.to_string()))
            }
        }

        // The text itself where there is one: `010` is no 8 and `yes` no switch.
        deserializer.deserialize_str(Visitor)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"…\"")
    }
}

/// What happens to a field that is on no list of the model's engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UnknownFields {
    /// 400, with its name.
    #[default]
    Refuse,
    /// Left out, and named in a header of the answer.
    Drop,
    /// The engine decides.
    Pass,
}
