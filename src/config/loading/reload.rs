//! Compares a re-read configuration with the one in force, key by key, and applies the changes that need no restart.

use serde_json::{Map, Value};

use super::classes::{Applies, applies};
use super::root::Config;
use super::validate;
use crate::problems::{ConfigError, Origins, Problem};
use crate::values::TimeZone;

/// A key whose value differs from the running service. Like the rest of the configuration, it contains no secrets.
#[derive(Clone, Debug, PartialEq)]
pub struct KeyChange {
    pub key: String,
    pub from: Value,
    pub to: Value,
    pub applies: Applies,
}

/// The differences between a configuration and the one in force.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Comparison {
    /// Changes that the reload applies.
    pub applied: Vec<KeyChange>,
    /// Changes that need a restart.
    pub needs_restart: Vec<KeyChange>,
    /// Number of unchanged keys.
    pub unchanged: usize,
}

impl Config {
    /// Returns the configuration after a reload, and the differences: keys of `newer` that need no restart, and the current values
    /// of all others.
    ///
    /// # Errors
    /// If the combination is invalid; then only a restart helps.
    pub fn reloaded(&self, newer: &Config) -> Result<(Config, Comparison), ConfigError> {
        let (mut document, wanted) = (self.document(), newer.document());
        for (section, keys) in &wanted {
            for (key, value) in keys.as_object().into_iter().flatten() {
                if applies(&format!("{section}.{key}")) != Some(Applies::ByRestart) {
                    document[section][key] = value.clone();
                }
            }
        }
        // Both parts were valid, so the combined document can be read again.
        let read: Result<Config, _> = serde_json::from_value(document.into());
        let config =
            read.map_err(|error| misfit(Problem::new("the configuration", error.to_string())))?;
        // The document does not contain the database's password, and a change of the database needs a restart.
        let mut state = config.state.clone();
        state.database_url.clone_from(&self.state.database_url);
        let config = Config {
            state,
            // A group that is gone must not stay.
            groups: newer.groups.clone(),
            virtual_models: newer.virtual_models.clone(),
            file: newer.file.clone(),
            origins: self.origins.reloaded(&newer.origins),
            local_zone: newer.local_zone.clone(),
            ..config
        };
        if let Some(problem) = validate::problems(&config).into_iter().next() {
            let message = format!(
                "{} (combined with the current values of keys that need a restart; restart the service to change them together)",
                problem.message
            );
            return Err(misfit(Problem::new(problem.key, message)));
        }
        Ok((config, self.compare(newer)))
    }

    /// Compares the displayed form, which includes derived values, key by key.
    fn compare(&self, newer: &Config) -> Comparison {
        let mut comparison = Comparison::default();
        comparison.walk("", &self.effective_json(), &newer.effective_json());
        let is_local = |config: &Config| config.evening.timezone == TimeZone::Local;
        if is_local(self) && is_local(newer) && self.zone() != newer.zone() {
            // The machine's time zone has changed.
            let shown = |config: &Config| Value::from(format!("local ({})", config.zone().name()));
            comparison.applied.push(KeyChange {
                key: "evening.timezone".to_owned(),
                from: shown(self),
                to: shown(newer),
                applies: Applies::AtOnce,
            });
            comparison.unchanged -= 1;
        }
        let (old, new) = (self.database_url(), newer.database_url());
        if old != new && old.to_string() == new.to_string() {
            comparison.needs_restart.push(KeyChange {
                key: "state.database_url".to_owned(),
                from: Value::from(old.to_string()),
                to: Value::from(format!("{new} (another password)")),
                applies: Applies::ByRestart,
            });
            comparison.unchanged -= 1;
        }
        comparison
    }

    pub(crate) fn document(&self) -> Map<String, Value> {
        match serde_json::to_value(self) {
            Ok(Value::Object(document)) => document,
            // Plain data with text keys is always valid JSON.
            _ => Map::new(),
        }
    }
}

fn misfit(problem: Problem) -> ConfigError {
    ConfigError::Invalid {
        problems: vec![Origins::default().place(problem)],
    }
}

impl Comparison {
    /// Descends while both values have the same keys, to report the smallest possible change.
    fn walk(&mut self, path: &str, from: &Value, to: &Value) {
        if let (Value::Object(old), Value::Object(new)) = (from, to)
            && (path.is_empty() || !old.is_empty())
            && old.keys().eq(new.keys())
        {
            for (key, value) in old {
                let below = match path {
                    "" => key.clone(),
                    path => format!("{path}.{key}"),
                };
                self.walk(&below, value, &new[key]);
            }
            return;
        }
        let Some(applies) = applies(path) else {
            return;
        };
        if from == to {
            self.unchanged += 1;
            return;
        }
        let change = KeyChange {
            key: path.to_owned(),
            from: from.clone(),
            to: to.clone(),
            applies,
        };
        match applies {
            Applies::AtOnce | Applies::ToNewEngines => self.applied.push(change),
            Applies::ByRestart => self.needs_restart.push(change),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(text: &str) -> Config {
        reading::yaml(text).unwrap()
    }

    #[test]
    fn reloading_an_equal_configuration_changes_nothing() {
        let config = Config::default();
        let (reloaded, comparison) = config.reloaded(&Config::default()).unwrap();
        assert_eq!(reloaded, config);
        assert_eq!(
            (comparison.applied, comparison.needs_restart),
            (vec![], vec![])
        );
        assert!(comparison.unchanged > 70);
    }

    #[test]
    fn a_change_is_reported_by_its_innermost_key_and_other_values_are_kept() {
        let old = read(
            "limits: {default: {requests_per_minute: 5, tokens_per_day: 9}}\nserver: {listen: '127.0.0.1:1'}\n",
        );
        let new = read(
            "limits: {default: {requests_per_minute: 6, tokens_per_day: 9}}\nserver: {listen: '127.0.0.1:2', cors: {origins: ['*']}}\nstate: {history: {keep: 1day}}\n",
        );
        let (reloaded, comparison) = old.reloaded(&new).unwrap();
        let keys = |changes: &[KeyChange]| -> Vec<String> {
            let mut keys: Vec<String> = changes.iter().map(|change| change.key.clone()).collect();
            keys.sort();
            keys
        };
        assert_eq!(
            keys(&comparison.applied),
            [
                "limits.default.requests_per_minute",
                "server.cors",
                "state.history.keep"
            ]
        );
        let limit = comparison
            .applied
            .iter()
            .find(|change| change.from == json!(5));
        assert_eq!(limit.unwrap().to, json!(6));
        assert_eq!(keys(&comparison.needs_restart), ["server.listen"]);
        assert_eq!(reloaded.server.listen, old.server.listen);
        assert_eq!(reloaded.limits, new.limits);
        assert_eq!(reloaded.server.cors, new.server.cors);
    }

    #[test]
    fn reloaded_values_that_conflict_with_unreloadable_ones_are_refused() {
        let old = Config::default();
        let new = read("server: {body_limit: 500MiB, bodies_memory: 2GiB}\n");
        let written_out = old.reloaded(&new).unwrap_err().to_string();
        assert!(
            written_out.contains("server.bodies_memory") && written_out.contains("restart"),
            "{written_out}"
        );
    }

    #[test]
    fn a_changed_local_time_zone_is_reported_as_a_change() {
        let mut moved = Config::default();
        moved.local_zone.zone = chrono_tz::Tz::Europe__Berlin;
        let (reloaded, comparison) = Config::default().reloaded(&moved).unwrap();
        assert_eq!(reloaded.zone(), chrono_tz::Tz::Europe__Berlin);
        assert_eq!(comparison.applied[0].to, json!("local (Europe/Berlin)"));
    }
}
