//! Opens a model's files: from a path on disk to the description of the model, its mapped tensors and the tokens that end its
//! answers. Files are not trusted: a contradiction is an error before a byte of a tensor is used. The headers of safetensors
//! and GGUF files are read by `model_files`.
//!
//! [`ModelFiles::open`] reads descriptions and headers alone. [`ModelFiles::load`] reads the tensors: ahead, in the order of
//! the files, and where it is asked for checked and quantised.

mod config;
mod convert;
mod expected;
mod folder;
mod generation;
mod gguf;
mod json;
mod load;
mod mapped;
mod names;
mod own_names;
mod safetensors;
mod table;
#[cfg(test)]
mod tests;
mod tokenizer_files;
mod verify;

pub(crate) use config::Kind;
pub(crate) use expected::expected;
pub(crate) use expected::{Expected, POSITIONS, Role};
pub(crate) use json::read_json;
pub(crate) use load::LoadPlan;
pub(crate) use mapped::MappedFile;
pub(crate) use own_names::OwnNames;
pub(crate) use tokenizer_files::{TokenizerFile, read_tokenizer};

use crate::error::EngineError;
use crate::sampling::SamplingSettings;
use crate::spec::Spec;
use crate::stored::Stored;
use folder::{GGUF_POOLING, REMEDY};
use generation::Generation;
use gguf::{Gguf, GgufVocabulary};
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
    /// The file that describes the model, which errors are about: `config.json`, or the GGUF file.
    description: PathBuf,
    kind: Kind,
    /// Of a decoder.
    spec: Option<Spec>,
    config: Value,
    table: Table,
    /// Tensors that are not used as they lie in their files.
    replaced: BTreeMap<String, Stored>,
    generation: Generation,
    /// The vocabulary of a GGUF.
    vocabulary: Option<GgufVocabulary>,
    /// A decoder that was saved without the head that its description has, as some of those are that embed.
    lacks_head: bool,
}

impl ModelFiles {
    /// Opens a Hugging Face folder, a GGUF file, or a folder with one GGUF.
    ///
    /// # Errors
    /// Files that are missing, damaged, or contradict each other; an architecture that is not known.
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

    /// The files that are mapped.
    pub fn mapped(&self) -> &[Arc<MappedFile>] {
        &self.table.files
    }

    /// Opens a folder that has tensors and nothing else, such as a dense layer after an encoder.
    ///
    /// # Errors
    /// Files that are missing or damaged.
    pub fn open_tensors(folder: &Path) -> Result<Self, EngineError> {
        Ok(Self {
            description: folder.join("config.json"),
            kind: Kind::Encoder,
            spec: None,
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
        let kind = Kind::of(&config::architectures(&config)).map_err(wrong)?;
        let mut spec = match kind {
            Kind::Decoder => Some(config::spec(&config).map_err(wrong)?),
            Kind::Encoder | Kind::CrossEncoder => None,
        };
        let mut table = safetensors::table(folder)?;
        let mut lacks_head = false;
        if let Some(spec) = &mut spec {
            let is_bare = safetensors::name_as_decoder(&mut table, &spec.architecture);
            lacks_head = is_bare && !spec.ties_head && !table.places.contains_key(HEAD);
            // Its logits are not needed.
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

    /// The whole `config.json`; of a GGUF, the one that says the same.
    pub fn config(&self) -> &Value {
        &self.config
    }

    /// The file that describes the model, for errors about it.
    pub fn description(&self) -> &Path {
        &self.description
    }

    /// The way in which a GGUF makes one vector of a text, by llama.cpp's number for it. `None` for a folder too.
    pub fn gguf_pooling(&self) -> Option<u64> {
        self.vocabulary.as_ref()?;
        self.config[GGUF_POOLING].as_u64()
    }

    /// Whether a decoder's folder has no head although its description has one.
    pub fn lacks_head(&self) -> bool {
        self.lacks_head
    }

    /// Whether the model is a GGUF.
    pub fn is_gguf(&self) -> bool {
        self.vocabulary.is_some()
    }

    /// The folder that the model's files lie in.
    pub fn folder(&self) -> &Path {
        self.description.parent().unwrap_or(Path::new("."))
    }

    /// The description of the decoder.
    ///
    /// # Errors
    /// When the model is none.
    pub fn spec(&self) -> Result<&Spec, EngineError> {
        self.spec.as_ref().ok_or_else(|| {
            EngineError::model(
                &self.description,
                format!(
                    "the model is of the kind {:?}, which continues no texts",
                    self.kind
                ),
                "ask it for embeddings or scores, or serve a decoder",
            )
        })
    }

    /// Rows of the embedding.
    pub fn vocabulary(&self) -> usize {
        self.spec.as_ref().map_or_else(
            || self.config["vocab_size"].as_u64().unwrap_or(0) as usize,
            |spec| spec.vocabulary,
        )
    }

    /// A tensor by its name in Hugging Face's form.
    ///
    /// # Errors
    /// When the model has none of that name, or its numbers are written in a way that this engine does not read.
    pub fn tensor(&self, name: &str) -> Result<Stored, EngineError> {
        self.maybe_tensor(name)?.ok_or_else(|| {
            EngineError::model(
                self.table.path_of(name),
                format!("the tensor {name} is missing"),
                REMEDY,
            )
        })
    }

    /// A tensor that not every model has.
    ///
    /// # Errors
    /// When its numbers are written in a way that this engine does not read.
    pub fn maybe_tensor(&self, name: &str) -> Result<Option<Stored>, EngineError> {
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

    /// Bytes of the tensors as they are used, mapped and held ones together.
    pub fn weights_bytes(&self) -> u64 {
        self.used()
            .map(|name| match self.replaced.get(name) {
                Some(stored) => stored.bytes().len() as u64,
                None => self.table.places[name].range.len() as u64,
            })
            .sum()
    }

    /// Of [`Self::weights_bytes`], those that are no part of a file: memory that the system cannot drop.
    pub fn held_bytes(&self) -> u64 {
        self.replaced
            .values()
            .map(|stored| stored.bytes().len() as u64)
            .sum()
    }

    /// The names of the tensors that a decoder computes with, in the order in which it does.
    ///
    /// # Errors
    /// When the model is no decoder.
    pub fn expected(&self) -> Result<Vec<Expected>, EngineError> {
        Ok(expected::expected(self.spec()?))
    }

    /// The tensors that the model computes with.
    fn used(&self) -> impl Iterator<Item = &str> {
        let expected: Option<BTreeSet<String>> = self.spec.as_ref().map(|spec| {
            let all = expected::expected(spec).into_iter();
            all.map(|expected| expected.name).collect()
        });
        self.tensor_names()
            .filter(move |name| expected.as_ref().is_none_or(|all| all.contains(*name)))
    }

    /// Tokens that end an answer.
    pub fn end_tokens(&self) -> &BTreeSet<u32> {
        &self.generation.end_tokens
    }

    /// How the model's makers want tokens chosen when a request does not say.
    pub fn sampling_defaults(&self) -> &SamplingSettings {
        &self.generation.sampling
    }
}

/// Where a head of its own lies beside the embedding that the file declares it to be, the two are one only if they are the same: so does
/// `transformers` 5.
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

/// Holds the tensors against the description, before a byte of one is used.
fn check(spec: &Spec, table: &Table, description: &Path) -> Result<(), EngineError> {
    let named_by = description
        .file_name()
        .map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    for Expected { name, shape, .. } in expected::expected(spec) {
        let wrong = |problem| EngineError::model(table.path_of(&name), problem, REMEDY);
        let own = own_names::own(&spec.architecture, &name);
        let place = table
            .places
            .get(&name)
            .ok_or_else(|| wrong(format!("the tensor {own} is missing")))?;
        if place.shape != shape {
            let as_written = |shape: &[usize]| match place.transposed {
                true => shape.iter().rev().copied().collect(),
                false => shape.to_vec(),
            };
            return Err(wrong(format!(
                "the tensor {own} has shape {:?}, {named_by} says {:?}",
                as_written(&place.shape),
                as_written(&shape)
            )));
        }
        if let table::Written::Foreign(kind) = &place.written {
            return Err(wrong(table::foreign(&own, kind)));
        }
    }
    Ok(())
}
