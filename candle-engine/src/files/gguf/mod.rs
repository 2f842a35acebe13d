//! Opens a model of one or more GGUF files: its description, vocabulary and mapped tensors. `model_files` reads the headers.

mod description;
mod names;
mod tensors;
mod tokenizer;
mod vocabulary;

pub(super) use vocabulary::GgufVocabulary;

use super::mapped_file::MappedFile;
use super::table::{Table, TensorLocation};
use crate::error::EngineError;
use crate::spec::Spec;
use model_files::gguf::{Detail, Header, parts_of};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// A model stored in GGUF files.
pub(super) struct Gguf {
    pub spec: Spec,
    /// The equivalent `config.json`.
    pub config: Value,
    pub table: Table,
    pub vocabulary: GgufVocabulary,
}

impl Gguf {
    /// Maps the files of a model and reads their metadata.
    ///
    /// # Errors
    /// If files are missing or corrupt, or require something this engine does not compute.
    pub fn open(path: &Path) -> Result<Self, EngineError> {
        let mut table = Table {
            described_by: path.to_owned(),
            ..Table::default()
        };
        let mut places: BTreeMap<String, TensorLocation> = BTreeMap::new();
        let mut metadata = None;
        for path in parts_of(path)? {
            let index = table.files.len();
            let header = Header::read(&path, Detail::Everything)?;
            let file = Arc::new(MappedFile::open(&path)?);
            let file_bytes = (*file).as_ref().len();
            table.files.push(file);
            for entry in &header.tensors {
                let wrong = |problem| EngineError::model(&path, problem, super::folder::REMEDY);
                let place = tensors::place(entry, index, file_bytes).map_err(wrong)?;
                if places.insert(entry.name.clone(), place).is_some() {
                    return Err(wrong(format!(
                        "the tensor {} is in another file, too",
                        entry.name
                    )));
                }
            }
            metadata.get_or_insert(header.values);
        }
        let metadata = metadata.unwrap_or_default();
        let wrong = |problem: String| {
            EngineError::model(
                path,
                problem,
                "serve another file of the model, or its safetensors",
            )
        };
        let bytes = |place: &TensorLocation| {
            let file = &table.files[place.file];
            (**file).as_ref()[place.range.clone()].to_vec()
        };
        let (spec, config) = description::spec(&metadata, &places, &bytes).map_err(wrong)?;
        let vocabulary = GgufVocabulary::new(&metadata, &spec).map_err(wrong)?;
        table.places = names::renamed(&spec, places);
        Ok(Self {
            spec,
            config,
            table,
            vocabulary,
        })
    }
}
