//! Collects the names of request fields that have no effect, for a response header.

/// Maximum number of names; a client can send any number of fields.
const NAMES_MAX: usize = 64;
const NAME_BYTES_MAX: usize = 64;

/// Distinct field names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IgnoredFields(Vec<String>);

impl IgnoredFields {
    pub fn add(&mut self, name: impl AsRef<str> + Into<String>) {
        if self.0.len() < NAMES_MAX && !self.0.iter().any(|known| known == name.as_ref()) {
            self.0.push(name.into());
        }
    }

    /// Adds a field name chosen by the client. Names that a header cannot carry are dropped.
    pub fn add_unknown(&mut self, place: &str, name: &str) {
        let is_plain =
            |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
        if name.len() <= NAME_BYTES_MAX && name.bytes().all(is_plain) {
            let separator = if place.is_empty() { "" } else { "." };
            self.add(format!("{place}{separator}{name}"));
        }
    }

    pub fn names(self) -> Vec<String> {
        self.0
    }

    /// The names as one header value.
    pub fn joined(&self) -> String {
        self.0.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_listed_once_and_bounded() {
        let mut ignored = IgnoredFields::default();
        ignored.add("tools");
        ignored.add("tools");
        ignored.add_unknown("messages", "parsed");
        ignored.add_unknown("messages", "a b\r\nx: y");
        ignored.add_unknown("messages", &"x".repeat(65));
        assert_eq!(ignored.joined(), "tools, messages.parsed");
        for nth in 0..1000 {
            ignored.add_unknown("", &format!("field{nth}"));
        }
        assert_eq!(ignored.names().len(), NAMES_MAX);
    }
}
