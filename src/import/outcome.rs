//! The result of an import: its models and settings, and notes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::notes::{Note, Notes, Problem};

/// A model with the document for its file.
#[derive(Clone, Debug, PartialEq)]
pub struct ImportedModel {
    /// The name in requests.
    pub name: String,
    /// `engine_config.type`.
    pub engine: String,
    /// The model's key in the imported file.
    pub key: String,
    pub document: Value,
}

/// The translation of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Import {
    /// The name of the program whose configuration was imported, for display.
    pub program: &'static str,
    /// The imported file.
    pub source: PathBuf,
    pub models: Vec<ImportedModel>,
    /// Sections of the configuration, without `catalog.models_dir`.
    pub settings: Map<String, Value>,
    /// Notes on changes and on keys without a counterpart.
    pub warnings: Vec<Note>,
    /// Models that could not be translated, each with the reason.
    pub left_out: Vec<Note>,
}

/// Models, and sections of the configuration.
pub(crate) type Translation = (Vec<ImportedModel>, Map<String, Value>);

impl Import {
    /// Parses a file and translates it.
    pub(crate) fn read(
        program: &'static str,
        path: &Path,
        text: &str,
        translate: impl FnOnce(&Value, &mut Notes) -> Result<Translation, Problem>,
    ) -> Result<Import, ImportError> {
        let source = path.to_owned();
        let document = match reading::yaml(text) {
            Ok(document) => document,
            Err(flaw) => return Err(ImportError::Parse { path: source, flaw }),
        };
        let mut notes = Notes::from_path(path, text);
        let translated = translate(&document, &mut notes);
        let (models, settings) =
            translated.map_err(|problem| ImportError::Note(notes.note(problem)))?;
        notes.sort();
        Ok(Import {
            program,
            source,
            models,
            settings,
            warnings: notes.warnings,
            left_out: notes.left_out,
        })
    }
}

/// The environment that the imported file may depend on.
#[derive(Clone, Copy, Debug)]
pub struct ImportContext<'a> {
    pub environment: &'a BTreeMap<String, String>,
    /// On a machine without NVIDIA GPUs: the part of its memory that models may use.
    pub host_memory_gib: Option<u64>,
    /// Base folders that relative paths may refer to.
    pub folders: &'a [&'a Path],
}

/// The reason why the import failed.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    #[error("{}: {flaw}", path.display())]
    Parse {
        path: PathBuf,
        flaw: reading::ParseError,
    },
    #[error("{0}")]
    Note(Note),
}
