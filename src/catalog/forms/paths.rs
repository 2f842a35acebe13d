//! Takes, inserts and moves keys of a document by path, such as `engine_config.generation`.

use serde_json::{Map, Value};

use super::dropped_keys::{self, DroppedKeys};
use crate::documents::Diagnostics;

/// A document being converted, with its warnings.
pub(super) struct Draft<'a> {
    pub value: &'a mut Value,
    pub notes: &'a mut Diagnostics,
}

impl Draft<'_> {
    pub fn get(&self, path: &str) -> Option<&Value> {
        path.split('.')
            .try_fold(&*self.value, |value, key| value.get(key))
            .filter(|value| !value.is_null())
    }

    pub fn text(&self, path: &str) -> Option<&str> {
        self.get(path).and_then(Value::as_str)
    }

    /// Removes a key and returns its value. Null counts as absent.
    pub fn take(&mut self, path: &str) -> Option<Value> {
        let (above, key) = path.rsplit_once('.').unwrap_or(("", path));
        let above = self.object(above, false)?;
        above.shift_remove(key).filter(|value| !value.is_null())
    }

    /// Inserts a value unless the key exists. Returns false, without a change, if it does.
    pub fn put(&mut self, path: &str, value: Value) -> bool {
        let (above, key) = path.rsplit_once('.').unwrap_or(("", path));
        match self.object(above, true) {
            Some(above) if above.get(key).is_none_or(Value::is_null) => {
                above.insert(key.to_owned(), value);
                true
            }
            _ => false,
        }
    }

    /// Moves a key. If the new key exists, the old one is dropped with a warning.
    pub fn rename(&mut self, old: &str, new: &str) {
        // Null is meaningful for a prompt format.
        let (above, key) = old.rsplit_once('.').unwrap_or(("", old));
        let Some(value) = self
            .object(above, false)
            .and_then(|above| above.shift_remove(key))
        else {
            return;
        };
        if self.put(new, value) {
            self.notes.moved(new, old);
        } else {
            self.notes.warn(
                old,
                format!("has no effect: {new} is also set and takes precedence"),
            );
        }
    }

    /// Removes a key without effect and warns with its replacement.
    pub fn drop_key(&mut self, path: &str, instead: &str) {
        if self.take(path).is_some() {
            self.notes.warn(path, format!("has no effect: {instead}"));
        }
    }

    /// Removes the keys of a section that have no effect.
    pub fn drop_table(&mut self, table: &[DroppedKeys], section: &str) {
        for (key, instead) in dropped_keys::keys_of(table, section) {
            match section {
                "" => self.drop_key(key, instead),
                section => self.drop_key(&format!("{section}.{key}"), instead),
            }
        }
    }

    /// Removes a section and warns about its remaining keys as unknown. `known` lists the section's keys.
    pub fn finish(&mut self, path: &str, known: &str) {
        let Some(rest) = self.take(path) else { return };
        match rest {
            Value::Object(rest) => {
                for key in rest.keys() {
                    self.notes
                        .unknown_key(&format!("{path}.{key}"), known.split_ascii_whitespace());
                }
            }
            _ => self
                .notes
                .warn(path, "has no effect: keys with values are expected here"),
        }
    }

    fn object(&mut self, path: &str, make: bool) -> Option<&mut Map<String, Value>> {
        let mut at = self.value.as_object_mut()?;
        for key in path.split('.').filter(|key| !key.is_empty()) {
            if make && at.get(key).is_none_or(Value::is_null) {
                at.insert(key.to_owned(), Value::Object(Map::new()));
            }
            at = at.get_mut(key)?.as_object_mut()?;
        }
        Some(at)
    }
}
