//! Translates llama-swap's `selectors` to virtual models.

use std::collections::BTreeMap;

use serde_json::Value;

use super::Reader;
use crate::fields::Fields;
use crate::notes::Problem;
use crate::outcome::ImportedModel;
use config::VirtualModelSection;

impl Reader<'_> {
    /// `names`: the names of models here, by llama-swap's ids.
    pub(super) fn selectors(
        &mut self,
        root: &Fields<'_>,
        names: &BTreeMap<&str, String>,
    ) -> Result<(), Problem> {
        let selectors = Fields::from_path("selectors", root.get("selectors"))?;
        let known = targets(&self.models, names);
        for id in selectors.keys() {
            let key = selectors.path(id);
            let selector = Fields::from_path(&key, selectors.get(id))?;
            let mut members = Vec::new();
            for target in selector.texts("targets")? {
                match known.get(&target) {
                    Some(name) if members.contains(name) => {}
                    Some(name) => members.push(name.clone()),
                    None => self.notes.warn(
                        &selector.path("targets"),
                        format!("{target} was left out: it names no model that was imported"),
                    ),
                }
            }
            match selector.text("strategy")?.as_deref() {
                Some("warm") => {}
                Some("pin") => members.truncate(1),
                Some("spillover") => self.notes.warn(
                    &selector.path("strategy"),
                    "is any_of here: the first ready model with a free seat serves the request, and no further model is loaded while one is ready",
                ),
                _ => {
                    let message = "was left out: its strategy is not warm, pin or spillover";
                    self.notes.warn(&key, message);
                    continue;
                }
            }
            if members.is_empty() {
                self.notes.warn(&key, "was left out: it has no target here");
                continue;
            }
            if let Err(problem) = self.names.take_alias(id) {
                self.notes.warn(&key, format!("was left out: {problem}"));
                continue;
            }
            let model = VirtualModelSection {
                any_of: Some(members),
                ..VirtualModelSection::default()
            };
            self.virtual_models.add(&key, id, model, self.notes);
        }
        Ok(())
    }
}

/// The names here of everything that a selector may name: models, aliases, and models of peers.
fn targets(models: &[ImportedModel], names: &BTreeMap<&str, String>) -> BTreeMap<String, String> {
    let mut known = BTreeMap::new();
    for model in models {
        let aliases = model.document["pool_config"]["aliases"].as_array();
        let aliases = aliases.into_iter().flatten().filter_map(Value::as_str);
        for alias in aliases {
            known.insert(alias.to_owned(), model.name.clone());
        }
        if let Some(peer) = model.key.strip_prefix("peers.") {
            let served = model.document["engine_config"]["served_model_name"].as_str();
            let served = served.unwrap_or(&model.name);
            let peer = peer.split(".models").next().unwrap_or_default();
            known.insert(format!("{peer}/{served}"), model.name.clone());
            known.insert(served.to_owned(), model.name.clone());
        }
        known.insert(model.name.clone(), model.name.clone());
    }
    for (id, name) in names {
        if models.iter().any(|model| model.name == *name) {
            known.insert((*id).to_owned(), name.clone());
        }
    }
    known
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::outcome::ImportContext;
    use serde_json::json;

    #[test]
    fn selectors_become_virtual_models() {
        let text = r#"
models:
  a: {cmd: "/opt/engine --port ${PORT}", aliases: [first]}
  "b:x y": {cmd: "/opt/engine --port ${PORT}"}
peers:
  far: {proxy: "http://10.0.0.7", models: [org/c]}
selectors:
  coder: {strategy: warm, targets: [first, "b:x y", far/org/c, gone]}
  plan: {strategy: pin, targets: [a, "b:x y"]}
  spread: {strategy: spillover, targets: [a, org/c], settings: {spillover: 4}}
  a: {strategy: warm, targets: [a]}
  odd: {strategy: new, targets: [a]}
"#;
        let around = ImportContext {
            environment: &BTreeMap::new(),
            host_memory_gib: None,
            folders: &[],
        };
        let imported = crate::llama_swap(Path::new("swap.yaml"), text, &around).expect("an import");
        let other = imported.models[1].name.clone();
        assert_eq!(
            imported.settings["virtual_models"],
            json!({
                "coder": {"any_of": ["a", other, "org/c"]},
                "plan": {"any_of": ["a"]},
                "spread": {"any_of": ["a", "org/c"]},
            })
        );
        let notes = format!("{:?}", imported.warnings);
        for part in [
            "gone was left out",
            "selectors.a",
            "selectors.odd",
            "spread.strategy",
        ] {
            assert!(notes.contains(part), "{part}: {notes}");
        }
    }
}
