//! A batch to send: spans of one service.

use crate::span::{Attribute, Span, attribute};

pub(crate) const SCOPE: &str = "model-pool";
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The version of the semantic conventions for the attributes.
pub(crate) const CONVENTIONS: &str = "https://opentelemetry.io/schemas/1.37.0";

/// The source of the spans.
#[derive(Clone, Debug)]
pub(crate) struct Resource(pub Vec<Attribute>);

impl Resource {
    pub fn new(service_name: &str) -> Resource {
        let mut attributes = vec![
            attribute("service.name", service_name),
            attribute("service.version", VERSION),
            attribute("process.pid", u64::from(std::process::id())),
        ];
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let host = host.trim();
        if !host.is_empty() {
            attributes.push(attribute("host.name", host));
        }
        Resource(attributes)
    }
}

pub(crate) struct Batch<'a> {
    pub resource: &'a Resource,
    pub spans: &'a [Span],
}
