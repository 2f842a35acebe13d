//! Translates LiteLLM's fallbacks to virtual models. A virtual model takes the name that clients use, and its first member, the model
//! of that name, gets another one.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::Reader;
use crate::fields::{Fields, scalar};
use crate::notes::Problem;
use config::{FallbackCause, VirtualModelSection};

/// The keys of fallbacks with the causes for which they apply.
const KEYS: [(&str, &str, &[FallbackCause]); 4] = [
    ("litellm_settings", "fallbacks", &GENERAL),
    ("router_settings", "fallbacks", &GENERAL),
    ("litellm_settings", "context_window_fallbacks", &CONTEXT),
    ("router_settings", "context_window_fallbacks", &CONTEXT),
];
const GENERAL: [FallbackCause; 3] = [
    FallbackCause::Refused,
    FallbackCause::Failed,
    FallbackCause::Remote,
];
const CONTEXT: [FallbackCause; 1] = [FallbackCause::Context];

/// The fallbacks of a name in LiteLLM.
#[derive(Default)]
struct Wanted {
    /// The first key that names it.
    key: String,
    /// LiteLLM's names of the next models.
    next: Vec<String>,
    on: BTreeSet<FallbackCause>,
}

impl Reader<'_> {
    pub(super) fn fallbacks(&mut self, root: &Fields<'_>) -> Result<(), Problem> {
        let wanted = self.wanted(root)?;
        // All models are renamed before any list names them.
        let renamed: BTreeMap<String, String> = wanted
            .iter()
            .filter_map(|(name, wanted)| Some((name.clone(), self.rename(&wanted.key, name)?)))
            .collect();
        for (name, wanted) in &wanted {
            let Some(own) = renamed.get(name) else {
                continue;
            };
            let mut members = vec![own.clone()];
            members.extend(wanted.next.iter().filter_map(|next| self.name_of(next)));
            let model = VirtualModelSection {
                fallback: Some(members),
                on: (wanted.on.len() < FallbackCause::ALL.len()).then(|| wanted.on.clone()),
                ..VirtualModelSection::default()
            };
            self.notes.warn(
                &wanted.key,
                format!("{name} is a virtual model here, and its own model is {own}; keys with a list of models need {own} and the other members"),
            );
            let names = self.take_aliases(name);
            let outside = self.outside.get(name).cloned();
            let outside = outside.unwrap_or_else(|| name.clone());
            for name in names.into_iter().chain([outside]) {
                self.virtual_models
                    .add(&wanted.key, &name, model.clone(), self.notes);
            }
        }
        Ok(())
    }

    /// The fallbacks by LiteLLM's name, as far as they name imported models.
    fn wanted(&mut self, root: &Fields<'_>) -> Result<BTreeMap<String, Wanted>, Problem> {
        let mut all: BTreeMap<String, Wanted> = BTreeMap::new();
        for (section, list, causes) in KEYS {
            let fields = Fields::from_path(section, root.get(section))?;
            let path = fields.path(list);
            for (nth, entry) in fields.list(list)?.iter().enumerate() {
                let key = format!("{path}[{nth}]");
                let entry = Fields::from_path(&key, Some(entry))?;
                for name in entry.keys() {
                    let key = entry.path(name);
                    if !self.first.contains_key(name) {
                        let message = "was left out: it names no model that was imported";
                        self.notes.warn(&key, message);
                        continue;
                    }
                    let mut next = Vec::new();
                    for value in entry.list(name)? {
                        match scalar(value.get("model").unwrap_or(value)) {
                            Some(other) if self.first.contains_key(&other) && other != name => {
                                next.push(other);
                            }
                            other => self.notes.warn(
                                &key,
                                format!(
                                    "{} was left out: it names no other model that was imported",
                                    other.unwrap_or_else(|| value.to_string())
                                ),
                            ),
                        }
                    }
                    if next.is_empty() {
                        continue;
                    }
                    let wanted = all.entry(name.to_owned()).or_default();
                    if wanted.key.is_empty() {
                        wanted.key = key;
                    }
                    let known = wanted.next.clone();
                    wanted
                        .next
                        .extend(next.into_iter().filter(|next| !known.contains(next)));
                    wanted.on.extend(causes);
                }
            }
        }
        Ok(all)
    }

    /// Gives the model of this name another name. Returns it.
    fn rename(&mut self, key: &str, wanted: &str) -> Option<String> {
        let model = self.models.get_mut(*self.first.get(wanted)?)?;
        if model.name.contains(':') {
            let message = format!(
                "was left out: the name {} has a tag, and names of virtual models have none",
                model.name
            );
            self.notes.warn(key, message);
            return None;
        }
        let own = self.names.take(&format!("{}-only", model.name));
        let old = std::mem::replace(&mut model.name, own.clone());
        let engine = &mut model.document["engine_config"];
        if engine["served_model_name"].is_null() {
            engine["served_model_name"] = Value::from(old.as_str());
        }
        engine["model_id"] = Value::from(own.as_str());
        if let Some(limit) = self.limits.remove(&old) {
            self.limits.insert(own.clone(), limit);
        }
        self.outside.insert(wanted.to_owned(), old);
        Some(own)
    }

    /// The name here for a name in LiteLLM.
    fn name_of(&self, wanted: &str) -> Option<String> {
        let model = self.models.get(*self.first.get(wanted)?)?;
        Some(model.name.clone())
    }

    /// Takes the aliases from the model of this name: they become names of its virtual model.
    fn take_aliases(&mut self, wanted: &str) -> Vec<String> {
        let model = self
            .first
            .get(wanted)
            .and_then(|nth| self.models.get_mut(*nth));
        let pool = model.and_then(|model| model.document.get_mut("pool_config"));
        let aliases = pool.and_then(|pool| pool.as_object_mut()?.remove("aliases"));
        let aliases = aliases.as_ref().and_then(Value::as_array);
        let aliases = aliases.into_iter().flatten().filter_map(Value::as_str);
        aliases.map(str::to_owned).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use serde_json::json;

    const MODELS: &str = "model_list:
  - {model_name: big, litellm_params: {model: openai/gpt-4o, rpm: 5}}
  - {model_name: small, litellm_params: {model: openai/gpt-4o-mini}}
  - {model_name: long, litellm_params: {model: openai/gpt-long}}
";

    fn import(more: &str) -> crate::Import {
        let text = format!("{MODELS}{more}");
        let none = BTreeMap::new();
        crate::litellm(Path::new("litellm.yaml"), &text, &none).expect("an import")
    }

    #[test]
    fn fallbacks_become_a_virtual_model_of_the_name_that_clients_use() {
        let imported = import(
            "litellm_settings: {fallbacks: [{big: [small]}], context_window_fallbacks: [{small: [long]}, {big: [long]}]}\nrouter_settings: {model_group_alias: {best: big}}\n",
        );
        let names: Vec<&str> = imported.models.iter().map(|model| &*model.name).collect();
        assert_eq!(names, ["big-only", "small-only", "long"]);
        let engine = &imported.models[0].document["engine_config"];
        assert_eq!(engine["model_id"], "big-only");
        assert_eq!(engine["served_model_name"], "gpt-4o");
        let big = json!({"fallback": ["big-only", "small-only", "long"]});
        let small = json!({"fallback": ["small-only", "long"], "on": ["context"]});
        assert_eq!(
            imported.settings["virtual_models"],
            json!({"best": big, "big": big, "small": small})
        );
        assert_eq!(
            imported.settings["limits"]["models"],
            json!({"big-only": {"requests_per_minute": 5}})
        );
        let notes = format!("{:?}", imported.warnings);
        assert!(notes.contains("big is a virtual model here"), "{notes}");
    }

    #[test]
    fn a_fallback_to_a_model_that_was_not_imported_is_left_out_with_a_note() {
        let imported = import("router_settings: {fallbacks: [{big: [gone]}, {none: [small]}]}\n");
        assert_eq!(imported.settings.get("virtual_models"), None);
        assert_eq!(imported.models[0].name, "big");
        let notes = format!("{:?}", imported.warnings);
        assert!(notes.contains("gone was left out"), "{notes}");
        assert!(
            notes.contains("router_settings.fallbacks[1].none"),
            "{notes}"
        );
    }
}
