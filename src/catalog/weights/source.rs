//! The source of weights that are not in a local folder, and whether they have been fetched. Downloads
//! nothing itself; a download leaves a manifest, and every file that it lists must exist.
//! One file because an origin, its manifest and the test of completeness name the same files.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::hub_cache;
use super::oci::OciReference;
use crate::documents::Secret;
use config::BucketUri;

/// Maximum length of a readable name; file systems allow 255.
const KEY_MAX: usize = 160;

/// Describes what to fetch for a model, and its local destination. A controller sends it to its nodes, including secret variables.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fetch {
    pub origin: Origin,
    /// The model's name in the cache: `organisation/name`, or a plain name.
    pub id: String,
    /// Absolute path of the root of the hub's cache.
    pub cache: PathBuf,
    /// Absolute path of the folder for the pool's records of fetched models.
    pub notes: PathBuf,
    pub extra_files: Vec<ExtraFiles>,
    /// Access settings for the buckets of extra files.
    pub extra_by: Option<Bucket>,
    /// The engine can load pickle files.
    pub pickles: bool,
    /// Also fetch `consolidated*` weights, the form in which Mistral publishes its models.
    pub consolidated: bool,
    /// GGUF files that the engine reads.
    pub gguf: GgufFiles,
    /// The engine's own variables, which take precedence over the pool's.
    pub env: BTreeMap<String, Secret>,
}

/// The GGUF files that an engine reads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum GgufFiles {
    #[default]
    None,
    /// The only model of a repository without other weights.
    OnlyOne,
    /// This file, or the multi-part model that it belongs to; a path in the repository.
    Named(String),
    /// The only model with this quantization, such as `Q4_K_M`; in upper case.
    Quantization(String),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Origin {
    /// The Hugging Face hub, at a branch, tag or commit.
    Hub {
        revision: String,
    },
    Bucket(Bucket),
    /// An artifact in an OCI registry.
    Oci(OciReference),
}

/// A bucket with its access settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bucket {
    pub uri: BucketUri,
    /// Patterns that include (true) or exclude files; the last match wins.
    pub filters: Vec<(bool, String)>,
    /// Access without credentials.
    pub unsigned: bool,
    pub endpoint: Option<String>,
    pub region: Option<String>,
    pub credentials: Option<CredentialsUrl>,
}

/// An address that provides credentials for a bucket.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CredentialsUrl {
    pub url: String,
    /// The variable whose value is sent as the bearer token.
    pub token_variable: Option<String>,
}

impl CredentialsUrl {
    /// The address without query and user, which may contain keys.
    pub fn shown(&self) -> String {
        let plain = self.url.split(['?', '#']).next().unwrap_or_default();
        match plain.split_once("://") {
            Some((scheme, rest)) => {
                let host = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
                format!("{scheme}://{host}")
            }
            None => plain.to_owned(),
        }
    }
}

impl fmt::Debug for CredentialsUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CredentialsUrl")
            .field("url", &self.shown())
            .field("token_variable", &self.token_variable)
            .finish()
    }
}

/// A bucket folder with a separate destination.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExtraFiles {
    pub uri: BucketUri,
    /// An absolute path, or relative to the model's folder.
    pub destination: PathBuf,
}

/// The record of a completed download.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// A description for display.
    pub origin: String,
    /// Identifies everything that was requested.
    pub fingerprint: String,
    pub commit: String,
    pub files: Vec<ManifestFile>,
    /// Extra files, by absolute path.
    #[serde(default, rename = "elsewhere")]
    pub outside: Vec<ManifestFile>,
    /// Files of another program that have not been verified against their source.
    #[serde(default)]
    pub is_adopted: bool,
    /// A load with these files has failed.
    #[serde(default)]
    pub is_doubted: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestFile {
    pub path: String,
    pub bytes: u64,
    /// The verified digest, such as `sha256:…`. `None`: only the size was compared, or an older version wrote this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
}

impl Fetch {
    /// The model's folder in the hub's cache.
    pub fn root(&self) -> PathBuf {
        let name = self.id.replace('/', "--");
        self.cache.join(format!("models--{name}"))
    }

    /// The folder where engines find the model once it is fetched; the same for every revision.
    pub fn folder(&self) -> PathBuf {
        self.notes.join(self.key())
    }

    /// The folder for the hub's description of a model before it is fetched: its `config.json`, and the size of its weights in
    /// `bytes`.
    pub fn description(&self) -> PathBuf {
        self.notes.join("described").join(self.fingerprint())
    }

    /// The description, if it exists and the model has not been fetched.
    pub(crate) fn described(&self) -> Option<(PathBuf, u64)> {
        let folder = self.description();
        let bytes = std::fs::read_to_string(folder.join("bytes")).ok()?;
        let bytes = bytes.trim().parse().ok()?;
        Some((folder, bytes)).filter(|_| !self.is_here())
    }

    /// Returns true if the hub should be queried for the model's size. Blocking.
    pub fn is_unknown(&self) -> bool {
        matches!(self.origin, Origin::Hub { .. })
            && !self.is_here()
            && !self.description().join("bytes").is_file()
    }

    pub fn manifest_path(&self) -> PathBuf {
        let mut name = self.key();
        name.push_str(".json");
        self.notes.join(name)
    }

    /// A unique name for the source: readable characters, plus a digest if those are ambiguous.
    fn key(&self) -> String {
        let (text, filters) = match &self.origin {
            Origin::Hub { revision } => (format!("{}/{revision}", self.id), ""),
            Origin::Bucket(bucket) => (
                format!("{}/{}", self.id, bucket.uri),
                &*format!("{:?}", bucket.filters),
            ),
            Origin::Oci(reference) => (format!("{}/{reference}", self.id), ""),
        };
        let (text, filters) = match &self.gguf {
            GgufFiles::Named(file) => (format!("{text}/{file}"), format!("{filters} {file}")),
            GgufFiles::Quantization(name) => (format!("{text}:{name}"), filters.to_owned()),
            GgufFiles::None | GgufFiles::OnlyOne => (text, filters.to_owned()),
        };
        let plain = |letter: char| match letter {
            letter if letter.is_ascii_alphanumeric() || "-_.".contains(letter) => letter,
            _ => '-',
        };
        let readable: String = text.chars().map(plain).take(KEY_MAX).collect();
        let cache = self.cache.display();
        format!(
            "{readable}-{}",
            short_digest(&format!("{text} {filters} {cache}"))
        )
    }

    /// The path for the engine: the model's folder, or the named file in it.
    pub fn model_path(&self) -> PathBuf {
        match &self.gguf {
            GgufFiles::Named(file) => self.folder().join(file),
            // The folder contains only this model.
            GgufFiles::None | GgufFiles::OnlyOne | GgufFiles::Quantization(_) => self.folder(),
        }
    }

    /// Identifies everything that is requested; a different fingerprint causes a new download.
    pub fn fingerprint(&self) -> String {
        let parts = format!(
            "{} {:?} {}",
            self.key(),
            self.extra_files,
            self.consolidated
        );
        short_digest(&parts)
    }

    /// A description for display.
    pub fn describe(&self) -> String {
        match &self.origin {
            Origin::Hub { revision } => format!("the hub's {}, revision {revision}", self.id),
            Origin::Bucket(bucket) => bucket.uri.to_string(),
            Origin::Oci(reference) => reference.to_string(),
        }
    }

    /// Returns true if every file of the manifest exists. Blocking: accesses each file.
    pub fn is_here(&self) -> bool {
        self.manifest().is_some_and(|manifest| {
            let folder = self.folder();
            let right = |path: PathBuf, bytes: u64| {
                std::fs::metadata(path).is_ok_and(|found| found.len() == bytes)
            };
            let own = |file: &ManifestFile| right(folder.join(&file.path), file.bytes);
            let other = |file: &ManifestFile| right(PathBuf::from(&file.path), file.bytes);
            manifest.fingerprint == self.fingerprint()
                && !manifest.is_doubted
                && !manifest.files.is_empty()
                && manifest.files.iter().all(own)
                && manifest.outside.iter().all(other)
        })
    }

    /// Records that a load failed with files that another program had fetched; they no longer count as complete. Blocking.
    pub fn doubt_adopted(&self) {
        let Some(mut manifest) = self
            .manifest()
            .filter(|manifest| manifest.is_adopted && !manifest.is_doubted)
        else {
            return;
        };
        manifest.is_doubted = true;
        if let Ok(text) = serde_json::to_vec_pretty(&manifest) {
            let _ = std::fs::write(self.manifest_path(), text);
        }
    }

    /// The fetched commit, if only other settings have changed since: a branch is resolved once.
    pub fn pinned(&self) -> Option<String> {
        let manifest = self.manifest().filter(|manifest| !manifest.is_doubted)?;
        let is_commit = manifest.commit.len() == 40
            && manifest.commit.bytes().all(|byte| byte.is_ascii_hexdigit());
        (is_commit && manifest.fingerprint != self.fingerprint()).then_some(manifest.commit)
    }

    pub fn manifest(&self) -> Option<Manifest> {
        let text = std::fs::read(self.manifest_path()).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// A complete copy of this model and revision that another program has fetched.
    pub fn snapshot_of_others(&self) -> Option<PathBuf> {
        let Origin::Hub { revision } = &self.origin else {
            return None;
        };
        // The files are unverified, or a load has failed with them.
        let is_doubted = self.manifest().is_some_and(|manifest| manifest.is_doubted);
        let is_named = matches!(self.gguf, GgufFiles::Named(_) | GgufFiles::Quantization(_));
        if is_doubted || is_named || !self.extra_files.is_empty() {
            return None;
        }
        hub_cache::at_revision(&self.root(), revision).filter(|folder| is_complete(folder))
    }

    /// The files fetched so far, for estimating the size.
    pub(crate) fn found(&self) -> Option<PathBuf> {
        if self.folder().exists() {
            Some(self.model_path())
        } else {
            self.snapshot_of_others()
        }
    }

    /// A variable of the engine, or else of the pool's environment; empty values count as unset.
    pub fn variable(&self, name: &str) -> Option<String> {
        let own = self.env.get(name).map(|value| value.0.clone());
        own.or_else(|| std::env::var(name).ok())
            .filter(|value| !value.trim().is_empty())
    }

    /// A variable of the engine alone; empty values count as unset.
    pub fn own_variable(&self, name: &str) -> Option<String> {
        let own = self.env.get(name).map(|value| value.0.clone());
        own.filter(|value| !value.trim().is_empty())
    }

    /// The folder where `huggingface-cli login` stores its token.
    pub fn hub_home(&self) -> Option<PathBuf> {
        hub_cache::home(&|name| self.variable(name).map(PathBuf::from))
    }
}

impl Bucket {
    /// A bucket with default access settings.
    pub fn at(uri: BucketUri) -> Bucket {
        Bucket {
            uri,
            filters: Vec::new(),
            unsigned: false,
            endpoint: None,
            region: None,
            credentials: None,
        }
    }
}

pub(crate) fn short_digest(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    digest
        .iter()
        .take(6)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// Requires weights, including every file of a shard index, because other programs publish files one by one.
fn is_complete(folder: &Path) -> bool {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return false;
    };
    let mut weights = false;
    for entry in entries.flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        // A link to a file that is still being downloaded.
        if !path.exists() {
            return false;
        }
        weights |= name.ends_with(".safetensors") || name.ends_with(".bin");
        if name.ends_with(".index.json") && !shards_are_there(folder, &path) {
            return false;
        }
    }
    let has = |name: &str| folder.join(name).exists();
    let tokenizers = [
        "tokenizer.json",
        "tokenizer.model",
        "vocab.json",
        "vocab.txt",
        "spiece.model",
        "tekken.json",
    ];
    weights && has("config.json") && tokenizers.into_iter().any(has)
}

#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

fn shards_are_there(folder: &Path, index: &Path) -> bool {
    let read = std::fs::read(index).ok();
    let index: Option<Index> = read.and_then(|text| serde_json::from_slice(&text).ok());
    index.is_some_and(|index| {
        let mut shards: Vec<String> = index.weight_map.into_values().collect();
        shards.sort_unstable();
        shards.dedup();
        shards.iter().all(|shard| folder.join(shard).exists())
    })
}
