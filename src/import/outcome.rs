//! What an import is made of: its models and settings, and notes on the rest.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::notes::Note;

/// One model, as the file that it becomes.
#[derive(Clone, Debug, PartialEq)]
pub struct ImportedModel {
    /// The name in requests.
    pub name: String,
    /// `engine_config.type`.
    pub engine: String,
    /// Where it stands in the file that was read.
    pub key: String,
    pub document: Value,
}

/// What a file was translated into.
#[derive(Clone, Debug, PartialEq)]
pub struct Import {
    /// The program whose configuration it was, for people.
    pub program: &'static str,
    /// The file that was read.
    pub source: PathBuf,
    pub models: Vec<ImportedModel>,
    /// Sections of the configuration, without `catalog.models_dir`.
    pub settings: Map<String, Value>,
    /// What changed on the way, or has no counterpart.
    pub warnings: Vec<Note>,
    /// Models that could not be translated, each with the reason.
    pub left_out: Vec<Note>,
}

/// What the file that is read may depend on.
#[derive(Clone, Copy, Debug)]
pub struct Around<'a> {
    pub environment: &'a BTreeMap<String, String>,
    /// On a machine without NVIDIA GPUs: the part of its memory that models may use.
    pub host_memory_gib: Option<u64>,
    /// From which relative paths may count.
    pub folders: &'a [&'a Path],
}

/// Why nothing was translated.
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
