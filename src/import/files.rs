//! Checks documents as the catalogue does, and writes the files of an import: either all or none.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use catalog::{Entry, Reference, Source};
use config::Config;
use serde_json::{Value, json};

use crate::names::file_names;
use crate::notes::Note;
use crate::outcome::{Import, ImportedModel};

const CONFIG: &str = "model-pool.yaml";
const MODELS: &str = "models";
/// Prefix of problems that depend on the current state of the machine and must not be written to the file.
const NOT_YET: &str = "cannot be loaded yet";

/// The files of an import.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportedFiles {
    pub config: PathBuf,
    /// Paths in the order of the models.
    pub models: Vec<PathBuf>,
}

/// The reason why writing failed.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    #[error("{} exists; name another folder with --into, or replace the files with --force", path.display())]
    Exists { path: PathBuf },
    #[error("cannot write {}: {source}; name another folder with --into", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("cannot write {} as YAML: {problem}", path.display())]
    Form { path: PathBuf, problem: String },
}

/// Checks a document with the catalogue. `Err`: the catalogue refuses it. `Ok(Some)`: it is accepted, but cannot be loaded yet,
/// with the reason.
pub fn check(document: &Value) -> Result<Option<String>, String> {
    let config = Config::default();
    let origin = "it";
    let source = Source::File(PathBuf::from(origin));
    match Entry::from_document(document, source, &config, &Reference::default()) {
        Ok((entry, _)) if entry.recipe.is_remote() => Ok(None),
        Ok((entry, _)) => Ok(entry
            .spec(&config, None)
            .err()
            .map(|problem| format!("{NOT_YET}: {problem}"))),
        Err(error) => {
            let text = error.to_string();
            let text = text.strip_prefix(&format!("{origin}: ")).unwrap_or(&text);
            Err(text.to_owned())
        }
    }
}

impl Import {
    /// Writes `model-pool.yaml` and a file for each model below `folder`.
    ///
    /// # Errors
    /// [`WriteError`] names the file. If one exists and `replace` is false, nothing is written.
    pub fn write(&self, folder: &Path, replace: bool) -> Result<ImportedFiles, WriteError> {
        let models_dir = folder.join(MODELS);
        let names = file_names(self.models.iter().map(|model| model.name.as_str()));
        let written = ImportedFiles {
            config: folder.join(CONFIG),
            models: names.iter().map(|name| models_dir.join(name)).collect(),
        };
        let mut texts = vec![self.config_text(&written.config, &models_dir)?];
        for (model, path) in self.models.iter().zip(&written.models) {
            texts.push(self.model_text(model, path)?);
        }
        let paths = || std::iter::once(&written.config).chain(&written.models);
        if let Some(path) = paths().find(|path| !replace && path.exists()) {
            return Err(WriteError::Exists { path: path.clone() });
        }
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| WriteError::Write { path, source }
        };
        std::fs::create_dir_all(&models_dir).map_err(failed(&models_dir))?;
        for (path, text) in paths().zip(&texts) {
            let mut options = OpenOptions::new();
            let options = if replace {
                options.write(true).create(true).truncate(true)
            } else {
                options.write(true).create_new(true)
            };
            options
                .open(path)
                .and_then(|mut file| file.write_all(text.as_bytes()))
                .map_err(failed(path))?;
        }
        Ok(written)
    }

    fn config_text(&self, path: &Path, models_dir: &Path) -> Result<String, WriteError> {
        let absolute = std::path::absolute(models_dir).unwrap_or_else(|_| models_dir.to_owned());
        let mut settings = self.settings.clone();
        settings.insert("catalog".to_owned(), json!({"models_dir": absolute}));
        let head = format!(
            "# Configuration of model-pool, from {} of {}. Keys that are not here have their\n# defaults: docs/reference/configuration.md.\n",
            self.source.display(),
            self.program
        );
        with_yaml(path, head, &Value::Object(settings))
    }

    fn model_text(&self, model: &ImportedModel, path: &Path) -> Result<String, WriteError> {
        let mut head = format!(
            "# From {} of {}, {}. docs/guides/models.md explains every key.\n",
            one_line(&self.source.display().to_string()),
            self.program,
            one_line(&model.key),
        );
        for note in self.warnings.iter().filter(|note| is_of(note, model)) {
            let key = note.key.strip_prefix(&model.key).unwrap_or(&note.key);
            let key = key.trim_start_matches('.');
            head += &format!("# {}: {}\n", one_line(key), one_line(&note.message));
        }
        with_yaml(path, head, &model.document)
    }
}

fn is_of(note: &Note, model: &ImportedModel) -> bool {
    let rest = note.key.strip_prefix(&model.key);
    rest.is_some_and(|rest| rest.starts_with(['.', '['])) && !note.message.starts_with(NOT_YET)
}

/// Joins lines, since a comment ends with its line.
fn one_line(text: &str) -> String {
    text.split(char::is_control).collect::<Vec<_>>().join(" ")
}

/// Appends the value as YAML, after checking that it reads back unchanged.
fn with_yaml(path: &Path, head: String, value: &Value) -> Result<String, WriteError> {
    let failed = |problem: String| WriteError::Form {
        path: path.to_owned(),
        problem,
    };
    let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
    let text = serde_saphyr::to_string_with_options(value, options)
        .map_err(|error| failed(error.to_string()))?;
    let text = head + &text;
    match reading::yaml::<Value>(&text) {
        Ok(read) if read == *value => Ok(text),
        Ok(_) => Err(failed("it would read back as a different value".to_owned())),
        Err(flaw) => Err(failed(flaw.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn import(models: &[&str]) -> Import {
        let model = |name: &&str| ImportedModel {
            name: (*name).to_owned(),
            engine: "CommandEngine".to_owned(),
            key: format!("models.{name}"),
            document: json!({"engine_config": {"model_id": name, "type": "CommandEngine",
                "command": ["x: y", "{{ port }}", "on", "-1", "a\nb # c", ""]}}),
        };
        Import {
            program: "llama-swap",
            source: PathBuf::from("config.yaml"),
            models: models.iter().map(model).collect(),
            settings: json!({"evening": {"cleanup": null}})
                .as_object()
                .cloned()
                .unwrap_or_default(),
            warnings: vec![Note {
                origin: "config.yaml".to_owned(),
                line: Some(3),
                key: format!("models.{}.cmdStop", models[0]),
                message: "has no\ncounterpart: x".to_owned(),
            }],
            left_out: Vec::new(),
        }
    }

    #[test]
    fn written_files_read_back_equal_and_contain_their_notes() {
        let folder = tempfile::tempdir().expect("a folder");
        let import = import(&["org/a.b", "org--a.b"]);
        let written = import.write(folder.path(), false).expect("written");
        let names: Vec<_> = written
            .models
            .iter()
            .filter_map(|path| path.file_name())
            .collect();
        assert_eq!(names, ["org--a.b.yaml", "org--a.b-2.yaml"]);
        let text = std::fs::read_to_string(&written.models[0]).expect("read");
        assert!(
            text.contains("# cmdStop: has no counterpart: x\n"),
            "{text}"
        );
        let read: Value = reading::yaml(&text).expect("yaml");
        assert_eq!(read, import.models[0].document);
        let config = std::fs::read_to_string(&written.config).expect("read");
        assert!(
            config.contains(&format!("{}", folder.path().join("models").display())),
            "{config}"
        );
    }

    #[test]
    fn existing_files_are_replaced_only_with_permission() {
        let folder = tempfile::tempdir().expect("a folder");
        let import = import(&["a"]);
        std::fs::create_dir(folder.path().join("models")).expect("made");
        std::fs::write(folder.path().join("models/a.yaml"), "mine").expect("written");
        let error = import.write(folder.path(), false).expect_err("refused");
        assert!(
            error.to_string().contains("models/a.yaml exists"),
            "{error}"
        );
        assert!(
            !folder.path().join("model-pool.yaml").exists(),
            "all or none"
        );
        import.write(folder.path(), true).expect("replaced");
    }
}
