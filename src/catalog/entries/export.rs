//! Writes a model as a file that describes the same model when placed in the models folder. Settings from the reference and from
//! administrators are included. Values that may be secrets are left out and listed.

use std::fmt::Write as _;

use config::KeepHot;
use pool::{Bytes, Priority};

use super::entry::{Entry, PriorityFrom};
use crate::documents::Secret;
use crate::recipes::{CANDLE, Recipe};

/// Replaces a value that may be a secret.
const FILL_IN: &str = "FILL_IN";

impl Entry {
    /// Returns the text of the file. `priority` and `keep_hot` come from an administrator and override the model's own.
    pub fn as_file(&self, priority: Option<Priority>, keep_hot: Option<KeepHot>) -> String {
        let mut document = self.document().clone();
        let engine = &mut document.engine_config;
        if engine.engine.is_none() {
            engine.engine = match &self.recipe {
                Recipe::Candle(_) => Some(CANDLE.to_owned()),
                Recipe::Server(server) => Some(server.engine.name().to_owned()),
                Recipe::Command(_) | Recipe::Remote(_) | Recipe::RayServe(_) => None,
            };
        }
        let mut hidden = Vec::new();
        let mut hide = |place: &str, name: &str, value: &mut Secret| {
            value.0 = FILL_IN.to_owned();
            hidden.push(format!("{place}.{name}"));
        };
        for (name, value) in &mut engine.env {
            hide("engine_config.env", name, value);
        }
        for (name, value) in &mut engine.headers {
            hide("engine_config.headers", name, value);
        }
        if let Some(runtime) = &mut engine.runtime_env {
            for (name, value) in &mut runtime.env_vars {
                hide("engine_config.runtime_env.env_vars", name, value);
            }
        }
        let pool = &mut document.pool_config;
        let of_reference = (self.priority_from == PriorityFrom::Reference).then_some(self.priority);
        if let Some(priority) = priority.or(of_reference) {
            pool.priority = Some(i64::from(priority.0));
        }
        let scaling = &document.scaling_config;
        let says_devices = pool.gpus_per_replica.is_some()
            || scaling.num_workers.is_some()
            || scaling.num_gpus_per_worker.is_some();
        if !says_devices && self.recipe.devices_in_command().is_none() {
            pool.gpus_per_replica = self.devices_configured.map(i64::from);
        }
        if pool.memory_gib.is_none() {
            pool.memory_gib = self
                .memory
                .map(|memory| memory.0 as f64 / Bytes::GIB as f64);
        }
        if pool.keep_hot.is_none() {
            pool.keep_hot = self.keep_hot;
        }
        if keep_hot.is_some() {
            pool.keep_hot = keep_hot;
        }
        let mut text = format!("# {}: a copy of the model as it is served.\n", self.name);
        if !hidden.is_empty() {
            let _ = writeln!(
                text,
                "# These values are not shown; write them in: {}.",
                hidden.join(", ")
            );
        }
        // Plain data with text keys is always valid YAML.
        text.push_str(&reading::to_yaml(&document).unwrap_or_default());
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documents::Source;
    use crate::entries::reference::Reference;
    use config::{Config, Length};
    use pool::Span;
    use serde_json::{Value, json};

    fn entry(document: &Value, reference: &Reference) -> Entry {
        let read =
            Entry::from_document(document, Source::Registered, &Config::default(), reference);
        read.expect("a model").0
    }

    fn back(text: &str) -> Entry {
        let document: Value = reading::yaml(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        entry(&document, &Reference::default())
    }

    #[test]
    fn an_exported_file_reads_back_to_the_same_model() {
        for document in [
            json!({"engine_config": {"model_id": "org/a", "type": "VLLMEngine", "model_path": "/srv/a",
                "engine_kwargs": {"dtype": "auto"}, "max_total_tokens": 4096},
                "pool_config": {"memory_gib": 10.5, "aliases": ["a", "1e3", "null"], "labels": {"team": "on", "note": "yes: no # %"}}}),
            json!({"engine_config": {"model_id": "b", "type": "CommandEngine", "command": ["serve", "--port", "{{ port }}", "a: b", "- x", "'\"\n"]},
                "pool_config": {"memory_gib": 1, "priority": 2, "keep_hot": "1h 30m"}}),
        ] {
            let first = entry(&document, &Reference::default());
            let text = first.as_file(None, None);
            assert_eq!(back(&text), first, "{text}");
        }
    }

    #[test]
    fn settings_from_the_reference_and_administrators_are_exported() {
        let reference = r#"{"org/a": {"gpus_per_replica": 2, "priority": 1, "memory_gib": 20}}"#;
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("model_reference.json");
        std::fs::write(&path, reference).expect("written");
        let (reference, _) = Reference::load(&path).expect("a reference");
        let document = json!({"engine_config": {"model_id": "org/a", "type": "VLLMEngine", "model_path": "/srv/a"}});
        let first = entry(&document, &reference);
        let read = back(&first.as_file(None, None));
        assert_eq!(
            (read.priority, read.devices_per_replica, read.memory),
            (first.priority, 2, first.memory)
        );
        let kept = KeepHot::For(Length(Span::from_secs(60)));
        let read = back(&first.as_file(Some(Priority(7)), Some(kept)));
        assert_eq!((read.priority, read.keep_hot), (Priority(7), Some(kept)));
    }

    #[test]
    fn secrets_are_named_and_not_shown() {
        let document = json!({"engine_config": {"model_id": "a", "type": "VLLMEngine", "model_path": "/srv/a",
            "env": {"TOKEN": "very-secret"}}, "pool_config": {"memory_gib": 1}});
        let text = entry(&document, &Reference::default()).as_file(None, None);
        assert!(!text.contains("very-secret"), "{text}");
        assert!(text.contains("engine_config.env.TOKEN"), "{text}");
    }
}
