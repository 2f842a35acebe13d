//! A batch to send: spans of one service, and the attributes of the service.

use std::sync::LazyLock;

use crate::context::Ids;
use crate::span::{Attribute, Span, attribute};

pub(crate) const SCOPE: &str = "model-pool";
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The version of the semantic conventions for the attributes.
pub(crate) const CONVENTIONS: &str = "https://opentelemetry.io/schemas/1.37.0";

/// Identifies this process among all that report under the same name: a random UUID.
static INSTANCE: LazyLock<String> = LazyLock::new(|| {
    const VERSION_4: u128 = 4 << 76;
    const VARIANT_1: u128 = 2 << 62;
    let random = u128::from_be_bytes(Ids::default().trace().0);
    let id = random & !(0xf << 76) & !(0x3 << 62) | VERSION_4 | VARIANT_1;
    let digits = format!("{id:032x}");
    let part = |from: usize, until: usize| &digits[from..until];
    format!(
        "{}-{}-{}-{}-{}",
        part(0, 8),
        part(8, 12),
        part(12, 16),
        part(16, 20),
        part(20, 32)
    )
});

/// The source of the spans and metrics.
#[derive(Clone, Debug)]
pub(crate) struct Resource(pub Vec<Attribute>);

impl Resource {
    pub fn new(service_name: &str) -> Resource {
        let mut attributes = vec![
            attribute("service.name", service_name),
            attribute("service.version", VERSION),
            attribute("service.instance.id", INSTANCE.as_str()),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_instance_is_a_random_uuid_of_version_4() {
        let parts: Vec<&str> = INSTANCE.split('-').collect();
        let lengths: Vec<usize> = parts.iter().map(|part| part.len()).collect();
        assert_eq!(lengths, [8, 4, 4, 4, 12], "{}", *INSTANCE);
        assert!(parts[2].starts_with('4'), "{}", *INSTANCE);
        assert!(parts[3].starts_with(['8', '9', 'a', 'b']), "{}", *INSTANCE);
        let [first, second] = [Resource::new("a"), Resource::new("b")];
        assert_eq!(first.0[2], second.0[2]);
    }
}
