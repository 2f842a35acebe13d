//! Opens a model's files: from a path to the description of the model, its mapped tensors and its end tokens. Files are not
//! trusted: contradictions are reported before a byte of a tensor is used. `model_files` reads the headers of safetensors and GGUF
//! files.
//!
//! [`ModelFiles::open`] reads only descriptions and headers. [`ModelFiles::load`] reads the tensors in file order, and optionally
//! checks and quantises them.

mod config;
mod convert;
mod folder;
mod generation;
mod gguf;
mod json;
mod legacy_names;
mod load;
mod mapped_file;
mod names;
mod required_tensors;
mod safetensors;
mod table;
#[cfg(test)]
pub(crate) mod tests;
mod tokenizer_files;
mod verify;

pub(crate) use config::{Fields as ConfigFields, Kind};
pub(crate) use json::read_json;
pub(crate) use legacy_names::LegacyNames;
pub(crate) use load::LoadPlan;
pub(crate) use mapped_file::MappedFile;
pub(crate) use required_tensors::expected;
pub(crate) use required_tensors::{POSITIONS, RequiredTensor, Role};
pub(crate) use tokenizer_files::{TokenizerFile, read_tokenizer};

use crate::error::EngineError;
use crate::sampling::SamplingSettings;
use crate::spec::Spec;
use crate::stored_tensor::StoredTensor;
use folder::{GGUF_POOLING, REMEDY};
use generation::Generation;
use gguf::{Gguf, GgufVocabulary};
use model_files::families::LibraryFamily;
use model_files::gguf_of;
use model_files::safetensors::has_weights;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use table::Table;

pub(crate) const EMBEDDING: &str = "model.embed_tokens.weight";
pub(crate) const HEAD: &str = "lm_head.weight";
/// A model's files: described, checked against each other, and mapped.
#[derive(Debug)]
pub(crate) struct ModelFiles {
    /// The file that describes the model and is named in errors: `config.json`, or the GGUF file.
    description: PathBuf,
    kind: Kind,
    /// Present for decoders, except those in `library`.
    spec: Option<Spec>,
    /// The family of a decoder that the library computes.
    library: Option<LibraryFamily>,
    config: Value,
    table: Table,
    /// Converted tensors, which replace those in the files.
    replaced: BTreeMap<String, StoredTensor>,
    generation: Generation,
    /// Present for GGUF files.
    vocabulary: Option<GgufVocabulary>,
    /// The decoder was saved without the head in its description, as some embedding models are.
    lacks_head: bool,
}

impl ModelFiles {
    /// Opens a Hugging Face folder, a GGUF file, or a folder with one GGUF file.
    ///
    /// # Errors
    /// If files are missing, corrupt or contradictory, or the architecture is unknown.
    pub fn open(path: &Path) -> Result<Self, EngineError> {
        if !path.exists() {
            return Err(EngineError::model(
                path,
                "there is no such folder or file",
                "give the folder of a Hugging Face model, or a GGUF file",
            ));
        }
        if !path.is_dir() {
            return Self::open_gguf(path);
        }
        if has_weights(path) {
            return Self::open_folder(path);
        }
        match gguf_of(path)? {
            Some(file) => Self::open_gguf(&file),
            None => Self::open_folder(path),
        }
    }

    /// The mapped files.
    pub fn mapped(&self) -> &[Arc<MappedFile>] {
        &self.table.files
    }

    /// Opens a folder that contains only tensors, such as a dense layer after an encoder.
    ///
    /// # Errors
    /// If files are missing or corrupt.
    pub fn open_tensors(folder: &Path) -> Result<Self, EngineError> {
        Ok(Self {
            description: folder.join("config.json"),
            kind: Kind::Encoder,
            spec: None,
            library: None,
            config: Value::Null,
            table: safetensors::table(folder)?,
            replaced: BTreeMap::new(),
            generation: Generation::default(),
            vocabulary: None,
            lacks_head: false,
        })
    }

    fn open_gguf(file: &Path) -> Result<Self, EngineError> {
        let Gguf {
            mut spec,
            config,
            table,
            vocabulary,
        } = Gguf::open(file)?;
        untie_what_differs(&mut spec, &table)?;
        check(&spec, &table, file)?;
        Ok(Self {
            description: file.to_owned(),
            kind: Kind::Decoder,
            spec: Some(spec),
            library: None,
            config,
            table,
            replaced: BTreeMap::new(),
            generation: vocabulary.generation(),
            vocabulary: Some(vocabulary),
            lacks_head: false,
        })
    }

    fn open_folder(folder: &Path) -> Result<Self, EngineError> {
        let description = folder.join("config.json");
        let config = read_json(&description)?.ok_or_else(|| {
            EngineError::model(&description, "the file is missing", "download the model's folder completely: config.json, tokenizer.json, *.safetensors")
        })?;
        let wrong = |problem: String| {
            EngineError::model(
                &description,
                problem,
                "correct the file, or serve another model",
            )
        };
        let kind = Kind::new(&config::architectures(&config)).map_err(wrong)?;
        let library = config::library(&config).map_err(wrong)?;
        let mut spec = match kind {
            Kind::Decoder if library.is_some() => None,
            Kind::Decoder => Some(config::spec(&config).map_err(wrong)?),
            Kind::Encoder | Kind::CrossEncoder => None,
        };
        let mut table = safetensors::table(folder)?;
        let mut lacks_head = false;
        if let Some(spec) = &mut spec {
            let is_bare = safetensors::name_as_decoder(&mut table, &spec.architecture);
            lacks_head = is_bare && !spec.ties_head && !table.places.contains_key(HEAD);
            // A model without a head needs no logits.
            spec.ties_head |= lacks_head;
            spec.head_bias &= !lacks_head;
            untie_what_differs(spec, &table)?;
            check(spec, &table, &description)?;
        }
        let generation = Generation::of_folder(folder, &config)?;
        Ok(Self {
            description,
            kind,
            spec,
            library,
            config,
            table,
            replaced: BTreeMap::new(),
            generation,
            vocabulary: None,
            lacks_head,
        })
    }

    #[cfg(test)]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The complete `config.json`, or the equivalent of a GGUF file's metadata.
    pub fn config(&self) -> &Value {
        &self.config
    }

    /// The file that describes the model, for error messages.
    pub fn description(&self) -> &Path {
        &self.description
    }

    /// The pooling type of a GGUF file, as numbered by llama.cpp. `None` for folders and unset types.
    pub fn gguf_pooling(&self) -> Option<u64> {
        self.vocabulary.as_ref()?;
        self.config[GGUF_POOLING].as_u64()
    }

    /// Returns true if a decoder's folder lacks the head in its description.
    pub fn lacks_head(&self) -> bool {
        self.lacks_head
    }

    /// Returns true for GGUF models.
    pub fn is_gguf(&self) -> bool {
        self.vocabulary.is_some()
    }

    /// The folder of the model's files.
    pub fn folder(&self) -> &Path {
        self.description.parent().unwrap_or(Path::new("."))
    }

    /// The family of a decoder that the library computes.
    pub fn library(&self) -> Option<LibraryFamily> {
        self.library
    }

    /// The description of the decoder.
    ///
    /// # Errors
    /// If the model is not a decoder, or the library computes it.
    pub fn spec(&self) -> Result<&Spec, EngineError> {
        self.spec.as_ref().ok_or_else(|| match self.library {
            Some(family) => EngineError::model(
                &self.description,
                format!("models of the family {family:?} only generate text in this engine"),
                "serve it for completions, or another model for embeddings and scores",
            ),
            None => EngineError::model(
                &self.description,
                format!(
                    "the model is of kind {:?}, which does not generate text",
                    self.kind
                ),
                "use it for embeddings or scores, or serve a decoder",
            ),
        })
    }

    /// Rows of the embedding. Models that read images may describe their text in `text_config`.
    pub fn vocabulary(&self) -> usize {
        let described = || {
            let parts = [&self.config, &self.config["text_config"]];
            let sizes = parts.map(|part| part["vocab_size"].as_u64());
            sizes.into_iter().flatten().next().unwrap_or(0) as usize
        };
        let spec = self.spec.as_ref();
        spec.map_or_else(described, |spec| spec.vocabulary)
    }

    /// Returns a tensor by its Hugging Face name.
    ///
    /// # Errors
    /// If the model has no tensor of that name, or this engine does not support its encoding.
    pub fn tensor(&self, name: &str) -> Result<StoredTensor, EngineError> {
        self.maybe_tensor(name)?.ok_or_else(|| {
            EngineError::model(
                self.table.path_of(name),
                format!("the tensor {name} is missing"),
                REMEDY,
            )
        })
    }

    /// Returns an optional tensor.
    ///
    /// # Errors
    /// If this engine does not support its encoding.
    pub fn maybe_tensor(&self, name: &str) -> Result<Option<StoredTensor>, EngineError> {
        if let Some(stored) = self.replaced.get(name) {
            return Ok(Some(stored.clone()));
        }
        let place = self.table.places.get(name);
        place
            .map(|place| self.table.stored(name, place))
            .transpose()
    }

    /// The names of all tensors.
    pub fn tensor_names(&self) -> impl Iterator<Item = &str> {
        self.table.places.keys().map(String::as_str)
    }

    /// Size of the tensors as used, in mapped files and in memory.
    pub fn weights_bytes(&self) -> u64 {
        self.used()
            .map(|name| match self.replaced.get(name) {
                Some(stored) => stored.bytes().len() as u64,
                None => self.table.places[name].range.len() as u64,
            })
            .sum()
    }

    /// The part of [`Self::weights_bytes`] that is not in files, which the kernel cannot evict.
    pub fn held_bytes(&self) -> u64 {
        self.replaced
            .values()
            .map(|stored| stored.bytes().len() as u64)
            .sum()
    }

    /// The tensors that a decoder computes with, in order of use.
    ///
    /// # Errors
    /// If the model is not a decoder.
    pub fn expected(&self) -> Result<Vec<RequiredTensor>, EngineError> {
        Ok(required_tensors::expected(self.spec()?))
    }

    /// The names of tensors that the model computes with.
    fn used(&self) -> impl Iterator<Item = &str> {
        let expected: Option<BTreeSet<String>> = self.spec.as_ref().map(|spec| {
            let all = required_tensors::expected(spec).into_iter();
            all.map(|expected| expected.name).collect()
        });
        self.tensor_names()
            .filter(move |name| expected.as_ref().is_none_or(|all| all.contains(*name)))
    }

    /// Tokens that end a completion.
    pub fn end_tokens(&self) -> &BTreeSet<u32> {
        &self.generation.end_tokens
    }

    /// Default sampling settings from the model's files.
    pub fn sampling_defaults(&self) -> &SamplingSettings {
        &self.generation.sampling
    }
}

/// A file may declare a tied head and still contain a separate one. The head then counts as tied only if it equals the embedding,
/// as in `transformers` 5.
fn untie_what_differs(spec: &mut Spec, table: &Table) -> Result<(), EngineError> {
    if let (true, Some(embedding), Some(head)) = (
        spec.ties_head,
        table.places.get(EMBEDDING),
        table.places.get(HEAD),
    ) && embedding.shape == head.shape
    {
        let (embedding, head) = (
            table.stored(EMBEDDING, embedding)?,
            table.stored(HEAD, head)?,
        );
        spec.ties_head = embedding.encoding == head.encoding && embedding.bytes() == head.bytes();
    }
    Ok(())
}

/// Checks the tensors against the description, before any of their bytes are used.
fn check(spec: &Spec, table: &Table, description: &Path) -> Result<(), EngineError> {
    let named_by = description
        .file_name()
        .map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    for RequiredTensor { name, shape, .. } in required_tensors::expected(spec) {
        let wrong = |problem| EngineError::model(table.path_of(&name), problem, REMEDY);
        let own = legacy_names::own(&spec.architecture, &name);
        let place = table
            .places
            .get(&name)
            .ok_or_else(|| wrong(format!("the tensor {own} is missing")))?;
        if place.shape != shape {
            let as_written = |shape: &[usize]| {
                if place.transposed {
                    shape.iter().rev().copied().collect()
                } else {
                    shape.to_vec()
                }
            };
            return Err(wrong(format!(
                "the tensor {own} has shape {:?}, {named_by} says {:?}",
                as_written(&place.shape),
                as_written(&shape)
            )));
        }
        if let table::FileEncoding::Foreign(kind) = &place.written {
            return Err(wrong(table::foreign(&own, kind)));
        }
    }
    Ok(())
}
