//! Model files that cannot be used: the model each one probably describes, the error, and whether the last good version is still
//! served.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::documents::{CatalogError, Source, limits};

/// A model whose file or registration cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokenModel {
    /// The model's name if the file states it and no other model has it; otherwise the file's name.
    pub name: String,
    pub source: Source,
    /// The error, with file, line and field.
    pub error: String,
    /// The model is still served from the last usable version of its file.
    pub serves_last_good: bool,
}

impl BrokenModel {
    /// Returns true if a request for `name` probably means this model: the name matches the model's name, or the file's name with
    /// or without extension.
    pub fn is_called(&self, name: &str) -> bool {
        let stem = |path: &Path| path.file_stem().is_some_and(|stem| stem == name);
        let is_file_name = |path: &Path| path.file_name().is_some_and(|file| file == &*self.name);
        match &self.source {
            _ if self.name == name => true,
            Source::File(path) => is_file_name(path) && stem(path),
            Source::Registered => false,
        }
    }
}

/// A file, a part of a file, or a folder that cannot be used.
#[derive(Debug)]
pub(crate) struct UnusableItem {
    pub path: PathBuf,
    /// The name, if it can be read.
    pub name: Option<String>,
    /// The file describes several models, and only this one failed.
    pub is_part: bool,
    pub error: Box<CatalogError>,
    /// Models that are still served from the previous version.
    pub kept: Vec<String>,
}

impl UnusableItem {
    pub fn of_file(path: &Path, name: Option<String>, error: CatalogError) -> UnusableItem {
        UnusableItem {
            path: path.to_owned(),
            name,
            is_part: false,
            error: Box::new(error),
            kept: Vec::new(),
        }
    }

    /// Returns true if the last usable version of this file described the model.
    pub fn described(&self, name: &str, source: &Source) -> bool {
        let Source::File(path) = source else {
            return false;
        };
        let is_named = match (&self.name, self.is_part) {
            (Some(own), true) => own == name,
            _ => true,
        };
        is_named && path.starts_with(&self.path)
    }

    /// The file's name, or its full path if another model is listed under that name.
    pub fn file_name(&self, is_taken: impl Fn(&str) -> bool) -> String {
        let full_path = || self.path.display().to_string();
        let file = self.path.file_name();
        let file = file.map(|name| name.to_string_lossy().into_owned());
        file.filter(|name| !is_taken(name))
            .unwrap_or_else(full_path)
    }
}

/// The model's name in a document of any known form.
pub(super) fn name_in(document: &Value) -> Option<String> {
    let sections = ["engine_config", "model_config", "model_loading_config"];
    let inner = sections
        .iter()
        .find_map(|section| document.get(section)?.get("model_id"));
    sound(inner.or_else(|| document.get("model_id"))?.as_str()?)
}

/// The name in a text that cannot be parsed: the value of its only `model_id` key.
pub(super) fn name_in_text(text: &str) -> Option<String> {
    const KEY: &str = "model_id";
    let value_at = |at: usize| {
        let (before, after) = (&text[..at], &text[at + KEY.len()..]);
        let line = before.rsplit('\n').next().unwrap_or_default();
        let is_within_a_word =
            before.ends_with(|letter: char| letter.is_alphanumeric() || letter == '_');
        if is_within_a_word || line.contains('#') {
            return None;
        }
        let value = after
            .trim_start_matches(['"', '\''])
            .trim_start_matches(' ');
        let value = value.strip_prefix(':')?.lines().next()?;
        let end = value.find([',', '}', '#']).unwrap_or(value.len());
        sound(value[..end].trim().trim_matches(['"', '\'']))
    };
    let mut found = text.match_indices(KEY).filter_map(|(at, _)| value_at(at));
    let only = found.next()?;
    found.next().is_none().then_some(only)
}

fn sound(name: &str) -> Option<String> {
    let is_sound = limits::model_id_problem(name).is_none();
    is_sound.then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_model_name_is_found_in_documents_of_every_form() {
        for document in [
            json!({"engine_config": {"model_id": "org/m"}}),
            json!({"model_config": {"model_id": "org/m"}}),
            json!({"model_loading_config": {"model_id": "org/m"}}),
            json!({"base_model_id": "b", "model_id": "org/m"}),
        ] {
            assert_eq!(name_in(&document).as_deref(), Some("org/m"), "{document}");
        }
        assert_eq!(
            name_in(&json!({"engine_config": {"model_id": "../m"}})),
            None
        );
        assert_eq!(name_in(&json!([1])), None);
    }

    #[test]
    fn the_model_name_is_found_in_a_truncated_text() {
        for text in [
            "engine_config:\n  model_id: org/m   # ours\n  type: [",
            "engine_config: {model_id: org/m, type: VLLMEngine\n",
            "{\"engine_config\": {\n  \"model_id\": \"org/m\",\n",
            "{\"engine_config\":{\"model_id\":\"org/m\",\"type\":",
            "# model_id: another\nengine_config:\n  model_id: org/m\n  hf_model_id: org/n\n :",
            "engine_config:\n\tmodel_id: 'org/m'\n",
        ] {
            assert_eq!(name_in_text(text).as_deref(), Some("org/m"), "{text}");
        }
        for text in [
            "",
            "engine_config: [",
            "a:\n  model_id: one\nb:\n  model_id: two\n",
            "base_model_id: m",
            "model_id: no name at all",
        ] {
            assert_eq!(name_in_text(text), None, "{text}");
        }
    }

    #[test]
    fn a_request_may_name_the_file_without_its_extension() {
        let broken = |name: &str| BrokenModel {
            name: name.to_owned(),
            source: Source::File("models/team/bert.yaml".into()),
            error: String::new(),
            serves_last_good: false,
        };
        assert!(broken("bert.yaml").is_called("bert"));
        assert!(broken("bert.yaml").is_called("bert.yaml"));
        assert!(broken("org/bert").is_called("org/bert"));
        assert!(!broken("org/bert").is_called("bert"));
    }
}
