//! Owns models in GGUF files: one file, or several that were split. Never computes with a tensor.

mod describe;
mod header;
mod names;
mod tokenizer;
mod value;
mod words;

pub(super) use words::Words;

use super::mapped::MappedFile;
use super::table::{Place, Table};
use crate::error::EngineError;
use crate::spec::Spec;
use header::Header;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A model of GGUF files.
pub(super) struct Gguf {
    pub spec: Spec,
    /// The `config.json` that says the same.
    pub config: Value,
    pub table: Table,
    pub words: Words,
}

/// The file of a folder that a model begins in; `None` where it has no GGUF.
///
/// # Errors
/// When it has several models.
pub(super) fn only_file_of(folder: &Path) -> Result<Option<PathBuf>, EngineError> {
    let files: Vec<PathBuf> = super::folder::files_with_extension(folder, "gguf")
        .into_iter()
        // What makes a model see lies beside it.
        .filter(|path| !file_name(path).starts_with("mmproj"))
        .filter(|path| Split::of(path).is_none_or(|split| split.number == 1))
        .collect();
    match &files[..] {
        [] => Ok(None),
        [only] => Ok(Some(only.clone())),
        several => {
            let names: Vec<String> = several.iter().map(|path| file_name(path)).collect();
            Err(EngineError::model(
                folder,
                format!(
                    "it has {} GGUF models ({})",
                    several.len(),
                    names.join(", ")
                ),
                "give the path of one of them",
            ))
        }
    }
}

fn file_name(path: &Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

impl Gguf {
    /// Maps the files of a model and reads what they say.
    ///
    /// # Errors
    /// Files that are missing or damaged, and what this engine does not compute.
    pub fn open(path: &Path) -> Result<Self, EngineError> {
        let mut table = Table {
            told_by: path.to_owned(),
            ..Table::default()
        };
        let mut tensors: BTreeMap<String, Place> = BTreeMap::new();
        let mut metadata = None;
        let paths = match Split::of(path) {
            None => vec![path.to_owned()],
            Some(split) => split.all(path)?,
        };
        for path in paths {
            let index = table.files.len();
            let file = Arc::new(MappedFile::open(&path)?);
            let header = Header::read((*file).as_ref(), &path, index)?;
            table.files.push(file);
            for (name, place) in header.tensors {
                if tensors.insert(name.clone(), place).is_some() {
                    return Err(EngineError::model(
                        path,
                        format!("the tensor {name} is in another file, too"),
                        super::folder::REMEDY,
                    ));
                }
            }
            metadata.get_or_insert(header.metadata);
        }
        let metadata = metadata.unwrap_or_default();
        let wrong = |problem: String| {
            EngineError::model(
                path,
                problem,
                "serve another file of the model, or its safetensors",
            )
        };
        let bytes = |place: &Place| {
            let file = &table.files[place.file];
            (**file).as_ref()[place.range.clone()].to_vec()
        };
        let (spec, config) = describe::spec(&metadata, &tensors, &bytes).map_err(wrong)?;
        let words = Words::new(&metadata, &spec).map_err(wrong)?;
        table.places = names::renamed(&spec, tensors);
        Ok(Self {
            spec,
            config,
            table,
            words,
        })
    }
}

/// A part of a model that was split: `name-00002-of-00005.gguf`.
struct Split {
    stem: String,
    number: usize,
    count: usize,
}

/// No model is split into more files.
const SPLITS_MAX: usize = 999;

impl Split {
    fn of(path: &Path) -> Option<Self> {
        let name = file_name(path);
        let (rest, count) = name.strip_suffix(".gguf")?.rsplit_once("-of-")?;
        let (stem, number) = rest.rsplit_once('-')?;
        let digits = |text: &str| {
            let digits = text.len() == 5 && text.bytes().all(|byte| byte.is_ascii_digit());
            digits.then(|| text.parse::<usize>().ok()).flatten()
        };
        let (number, count) = (digits(number)?, digits(count)?);
        (1..=count).contains(&number).then(|| Self {
            stem: stem.to_owned(),
            number,
            count,
        })
    }

    /// All parts, of which the first says what the model is.
    fn all(&self, path: &Path) -> Result<Vec<PathBuf>, EngineError> {
        if self.number != 1 {
            return Err(EngineError::model(
                path,
                format!("it is part {} of {}", self.number, self.count),
                "give the path of the first part, or of the folder",
            ));
        }
        if self.count > SPLITS_MAX {
            return Err(EngineError::model(
                path,
                format!("it claims to be one of {} parts", self.count),
                "rename it, if it is none",
            ));
        }
        Ok((1..=self.count)
            .map(|number| {
                path.with_file_name(format!(
                    "{}-{number:05}-of-{:05}.gguf",
                    self.stem, self.count
                ))
            })
            .collect())
    }
}
