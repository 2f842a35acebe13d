//! What is said of one document while it is read: warnings, and the refusal that ends it, each with the key
//! as it stands in the file and the line where that is. It decides nothing.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use config::positions::Positions;

use super::{CatalogError, Warning};

/// Collects warnings, and makes refusals, of one document.
#[derive(Debug, Default)]
pub(super) struct Diagnostics {
    origin: String,
    positions: Arc<Positions>,
    /// From a key of today's form to the one that it was read from.
    moved: BTreeMap<String, String>,
    /// Where in the file the document stands, if it is not the whole.
    below: Option<String>,
    pub warnings: Vec<Warning>,
}

impl Diagnostics {
    pub fn new(origin: impl Into<String>) -> Diagnostics {
        Diagnostics {
            origin: origin.into(),
            ..Diagnostics::default()
        }
    }

    /// Of a text whose keys have lines.
    pub fn of_text(origin: impl Into<String>, positions: Arc<Positions>) -> Diagnostics {
        Diagnostics {
            positions,
            ..Diagnostics::new(origin)
        }
    }

    pub fn refuse(&self, field: &str, problem: impl Into<String>) -> CatalogError {
        let field = self.as_written(field);
        CatalogError::Field {
            origin: self.origin.clone(),
            line: self.positions.line(&field),
            field,
            problem: problem.into(),
        }
    }

    pub fn warn(&mut self, key: &str, message: impl Into<String>) {
        let key = self.as_written(key);
        self.warnings.push(Warning {
            origin: self.origin.clone(),
            line: self.positions.line(&key),
            key: Some(key),
            message: message.into(),
        });
    }

    /// The checked value, or a refusal with the key, the value and what is allowed.
    pub fn check<T: Copy + fmt::Display, U>(
        &self,
        field: &str,
        value: T,
        check: impl FnOnce(T) -> Result<U, String>,
    ) -> Result<U, CatalogError> {
        check(value)
            .map_err(|allowed| self.refuse(field, format!("{value} is not allowed; {allowed}")))
    }

    /// From now on the key `new` is spoken of as `old`, as the file has it.
    pub fn moved(&mut self, new: &str, old: &str) {
        let old = self.as_written(old);
        self.moved.insert(new.to_owned(), old);
    }

    /// The whole document is a part of the file.
    pub fn lies_below(&mut self, path: &str) {
        self.below = Some(path.to_owned());
    }

    /// The key as the file has it; what stands below one that moved has moved with it.
    fn as_written(&self, key: &str) -> String {
        let mut above = key;
        loop {
            if let Some(old) = self.moved.get(above) {
                return format!("{old}{}", &key[above.len()..]);
            }
            match above.rfind(['.', '[']) {
                Some(end) => above = &above[..end],
                None => break,
            }
        }
        match &self.below {
            Some(below) if !key.starts_with(below.as_str()) => format!("{below}.{key}"),
            _ => key.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_moved_is_spoken_of_as_the_file_has_it_with_its_line() {
        let positions = Positions::of("model_config:\n  generation:\n    stops: [a, 3]\n");
        let mut notes = Diagnostics::of_text("m.yaml", Arc::new(positions));
        notes.moved("engine_config.generation", "model_config.generation");
        notes.warn("engine_config.generation.stops[1]", "no");
        assert_eq!(
            notes.warnings[0].to_string(),
            "m.yaml: line 3: model_config.generation.stops[1]: no"
        );
        let error = notes.refuse("pool_config.priority", "is not allowed");
        assert_eq!(
            error.to_string(),
            "m.yaml: pool_config.priority: is not allowed"
        );
    }
}
