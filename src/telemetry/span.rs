//! A finished span, as OpenTelemetry models it.

use std::borrow::Cow;
use std::sync::Arc;

use crate::context::{SpanId, TraceId};

#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Text(String),
    Texts(Vec<String>),
    Integer(i64),
    Float(f64),
    Bool(bool),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Attribute {
    pub key: &'static str,
    pub value: Value,
}

pub fn attribute(key: &'static str, value: impl Into<Value>) -> Attribute {
    let value = value.into();
    Attribute { key, value }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        Value::Text(text)
    }
}

impl From<Vec<String>> for Value {
    fn from(texts: Vec<String>) -> Value {
        Value::Texts(texts)
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Value {
        Value::Integer(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<f64> for Value {
    fn from(number: f64) -> Value {
        Value::Float(number)
    }
}

impl From<bool> for Value {
    fn from(is: bool) -> Value {
        Value::Bool(is)
    }
}

/// The numbers of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    Internal = 1,
    Server = 2,
    Client = 3,
}

/// An event within a span.
#[derive(Clone, Debug, PartialEq)]
pub struct SpanEvent {
    pub name: Cow<'static, str>,
    pub at_unix_nanos: u64,
    pub attributes: Vec<Attribute>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    pub trace: TraceId,
    pub id: SpanId,
    pub parent: Option<SpanId>,
    /// True if the parent is a span of another program.
    pub has_remote_parent: bool,
    pub state: Option<Arc<str>>,
    pub name: Cow<'static, str>,
    pub kind: SpanKind,
    pub start_unix_nanos: u64,
    pub end_unix_nanos: u64,
    pub attributes: Vec<Attribute>,
    pub events: Vec<SpanEvent>,
    /// The error message, if the operation failed.
    pub error: Option<String>,
}

impl Span {
    /// Sampled, with the known bit for a remote parent.
    pub(crate) fn flags(&self) -> u32 {
        0x101 | u32::from(self.has_remote_parent) << 9
    }
}
