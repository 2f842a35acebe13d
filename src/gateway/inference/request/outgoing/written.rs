//! Writes the fields of a request for an engine.

use serde_json::Value;
use serde_json::value::RawValue;

use dialect::body::write_json;

use super::STREAM;

/// A JSON object under construction.
pub(super) struct Written(pub Vec<u8>);

impl Written {
    pub fn new(near: usize) -> Written {
        let mut text = Vec::with_capacity(near + 128);
        text.push(b'{');
        Written(text)
    }

    pub fn name(&mut self, name: &str) {
        write_json(&mut self.0, name);
        self.0.push(b':');
    }

    pub fn raw(&mut self, name: &str, value: &RawValue) {
        self.name(name);
        self.0.extend_from_slice(value.get().as_bytes());
        self.0.push(b',');
    }

    pub fn value(&mut self, name: &str, value: &Value) {
        self.name(name);
        self.0.extend_from_slice(value.to_string().as_bytes());
        self.0.push(b',');
    }

    pub fn finish(mut self, model: &str, is_continuous: bool) -> Vec<u8> {
        self.name("model");
        write_json(&mut self.0, model);
        self.0.extend_from_slice(STREAM.as_bytes());
        if is_continuous {
            self.0
                .extend_from_slice(b",\"continuous_usage_stats\":true");
        }
        self.0.extend_from_slice(b"}}");
        self.0
    }

    pub fn finish_plain(mut self, model: &str) -> Vec<u8> {
        self.name("model");
        write_json(&mut self.0, model);
        self.0.push(b'}');
        self.0
    }
}
