//! Types for the values in a model file: choices between a few words, and secrets.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The processor for the embedded engine.
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

/// The form that the embedded engine converts wide weights to at load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Quantization {
    /// 8.5 bits per number.
    #[serde(rename = "q8_0")]
    Q8_0,
    /// 4.5 bits per number.
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

/// Number types of the embedded engine on the CPU; on GPUs they follow the weights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NumberTypes {
    /// Number type for multiplying BF16 matrices.
    #[serde(default)]
    pub products: ProductType,
    /// Number type of keys and values.
    #[serde(default)]
    pub kv_cache: CacheType,
}

/// Number type in which the embedded engine multiplies BF16 matrices.
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

/// Number type of the embedded engine's keys and values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum CacheType {
    /// Four bytes per number.
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

/// The task that the embedded engine serves a model for, if the model's files do not say.
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

/// The component that downloads a model's weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fetcher {
    /// The pool, before it reserves GPU memory.
    Pool,
    /// The engine, while it starts.
    Engine,
}

/// The sleep depth of an idle model that is not unloaded, if its engine supports it.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Sleep {
    #[default]
    Off,
    /// The weights stay in host memory.
    Weights,
    /// The weights are dropped and read again on waking; the process and its compiled code stay.
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

/// The address of a command: a loopback port or Unix socket that the pool picks, or a fixed address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Listen {
    #[default]
    Port,
    Socket,
    At(LoopbackAddress),
}

/// A loopback address, written `127.0.0.2` or `127.0.0.2:9030`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoopbackAddress {
    pub address: Ipv4Addr,
    /// `None` lets the pool pick a port.
    pub port: Option<u16>,
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Listen::Port => f.write_str("port"),
            Listen::Socket => f.write_str("socket"),
            Listen::At(LoopbackAddress {
                address,
                port: None,
            }) => address.fmt(f),
            Listen::At(LoopbackAddress {
                address,
                port: Some(port),
            }) => write!(f, "{address}:{port}"),
        }
    }
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Listen, String> {
        let (host, port) = match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        };
        let port = port.map(|port| port.parse::<u16>().ok().filter(|port| *port > 0));
        match (text, host.parse::<Ipv4Addr>(), port) {
            ("port", _, _) => Ok(Listen::Port),
            ("socket", _, _) => Ok(Listen::Socket),
            (_, Ok(address), None | Some(Some(_))) if address.is_loopback() => {
                let port = port.flatten();
                Ok(Listen::At(LoopbackAddress { address, port }))
            }
            _ => Err(format!(
                "`{text}` is not a place to listen; allowed: port, socket, or an address of the loopback interface such as 127.0.0.2 or 127.0.0.1:9030"
            )),
        }
    }
}

impl Serialize for Listen {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Listen {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Listen, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// A value of an engine's environment. It may be a token and is therefore never printed. Numbers and switches are read as text:
/// `PORT: 8080`.
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

        // Keep the text as written: `010` is not 8, and `yes` is not a boolean.
        deserializer.deserialize_str(Visitor)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"…\"")
    }
}
