//! The origin of each value of the configuration in force: a line of the file, or an environment variable. All other values are
//! defaults or derived.

use std::collections::BTreeMap;

use serde_json::Value;

use super::classes::{Applies, applies};
use crate::problems::Origins;

/// The origin of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A line of the configuration file.
    File { line: u64 },
    /// An environment variable.
    Environment { variable: String },
}

/// The origins by key, such as `pool.keep_hot`. Keys with defaults are absent.
#[derive(Clone, Debug, Default)]
pub struct KeyOrigins(BTreeMap<String, Origin>);

/// Configurations with equal values are equal, independent of the origins.
impl PartialEq for KeyOrigins {
    fn eq(&self, _: &KeyOrigins) -> bool {
        true
    }
}

impl KeyOrigins {
    /// `effective` is the configuration with its defaults.
    pub(crate) fn new(effective: &Value, origins: &Origins) -> KeyOrigins {
        let mut found = BTreeMap::new();
        walk("", effective, &mut |key| {
            let origin = match origins.variable(key) {
                Some(variable) => Some(Origin::Environment {
                    variable: variable.to_owned(),
                }),
                None => {
                    let line = origins.positions.own_line(key);
                    line.map(|line| Origin::File { line })
                }
            };
            found.extend(origin.map(|origin| (key.to_owned(), origin)));
        });
        KeyOrigins(found)
    }

    /// The origins after a reload: keys that need a restart keep the value and origin from `self`.
    pub(crate) fn reloaded(&self, newer: &KeyOrigins) -> KeyOrigins {
        let stays = |key: &str| applies(key) == Some(Applies::ByRestart);
        let kept = self.0.iter().filter(|(key, _)| stays(key));
        let taken = newer.0.iter().filter(|(key, _)| !stays(key));
        let all = kept.chain(taken);
        KeyOrigins(
            all.map(|(key, origin)| (key.clone(), origin.clone()))
                .collect(),
        )
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &Origin)> {
        self.0.iter().map(|(key, origin)| (key.as_str(), origin))
    }
}

/// Visits every value. A list counts as one value, as does an empty mapping.
fn walk(path: &str, value: &Value, found: &mut impl FnMut(&str)) {
    match value {
        Value::Object(keys) if !keys.is_empty() => {
            for (key, value) in keys {
                match path {
                    "" => walk(key, value, found),
                    path => walk(&format!("{path}.{key}"), value, found),
                }
            }
        }
        _ => found(path),
    }
}
