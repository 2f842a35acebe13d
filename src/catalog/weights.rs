//! Where a model's weights come from when they are not a folder of this machine, and whether they are
//! here. It fetches nothing; the download leaves a manifest, and what that names must be there.
//! One file because an origin, its manifest and the test of completeness name the same files.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::hub_cache;
use super::model_file::Secret;

/// Letters of a name for people; file systems allow 255.
const KEY_MAX: usize = 160;

/// What has to be fetched for a model, and where it then lies. A controller sends it to its nodes, with the secrets of its
/// variables.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fetch {
    pub origin: Origin,
    /// `organisation/name`, or a name alone: what the model is called in the cache.
    pub id: String,
    /// The root of the hub's cache; absolute.
    pub cache: PathBuf,
    /// Where the pool keeps what it knows of fetched models; absolute.
    pub notes: PathBuf,
    pub extra_files: Vec<ExtraFiles>,
    /// How the buckets of extra files are asked.
    pub extra_by: Option<Bucket>,
    /// Its engine may load pickles.
    pub pickles: bool,
    /// The same weights in the form in which they were published.
    pub consolidated: bool,
    /// What it reads of GGUF files.
    pub gguf: GgufFiles,
    /// The engine's own variables, which go before those of the pool.
    pub env: BTreeMap<String, Secret>,
}

/// Which GGUF files an engine reads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum GgufFiles {
    #[default]
    None,
    /// The only model of a repository without other weights.
    OnlyOne,
    /// This one, or the model in parts of which this is one; its path in the repository.
    Named(String),
    /// The only model of this quantization, such as `Q4_K_M`; in upper case.
    Quantization(String),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Origin {
    /// The Hugging Face hub: a branch, a tag or a commit.
    Hub {
        revision: String,
    },
    Bucket(Bucket),
}

/// A bucket, and how it is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bucket {
    pub uri: BucketUri,
    /// Whether each pattern includes or excludes; the last one that matches counts.
    pub filters: Vec<(bool, String)>,
    /// Without credentials.
    pub unsigned: bool,
    pub endpoint: Option<String>,
    pub region: Option<String>,
    pub credentials: Option<CredentialsUrl>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Scheme {
    S3,
    Gs,
}

/// `s3://bucket/prefix` or `gs://bucket/prefix`; the prefix has no slash at its ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BucketUri {
    pub scheme: Scheme,
    pub bucket: String,
    pub prefix: String,
}

impl fmt::Display for BucketUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.scheme {
            Scheme::S3 => "s3",
            Scheme::Gs => "gs",
        };
        write!(f, "{scheme}://{}", self.bucket)?;
        match self.prefix.as_str() {
            "" => Ok(()),
            prefix => write!(f, "/{prefix}"),
        }
    }
}

impl BucketUri {
    /// Errors say what is wrong with the text.
    pub(super) fn parse(text: &str, schemes: &[Scheme]) -> Result<BucketUri, String> {
        let known = [("s3://", Scheme::S3), ("gs://", Scheme::Gs)];
        let allowed: Vec<&str> = known
            .iter()
            .filter(|(_, scheme)| schemes.contains(scheme))
            .map(|(name, _)| *name)
            .collect();
        let found = known
            .iter()
            .filter(|(_, scheme)| schemes.contains(scheme))
            .find_map(|(name, scheme)| Some((*scheme, text.strip_prefix(name)?)));
        let Some((scheme, rest)) = found else {
            let text = text.escape_debug();
            return Err(format!("`{text}` must begin with {}", allowed.join(" or ")));
        };
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let prefix = prefix.trim_matches('/');
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if bucket.is_empty() || !bucket.bytes().all(is_name) {
            return Err(format!("`{text}` names no bucket: s3://bucket/folder"));
        }
        let is_plain = |part: &str| !part.is_empty() && part != "." && part != "..";
        let plain = prefix.is_empty() || prefix.split('/').all(is_plain);
        if !plain || prefix.chars().any(char::is_control) {
            return Err(format!("`{text}` has a folder that is none"));
        }
        Ok(BucketUri {
            scheme,
            bucket: bucket.to_owned(),
            prefix: prefix.to_owned(),
        })
    }
}

/// An address that gives credentials for a bucket.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CredentialsUrl {
    pub url: String,
    /// Whose value is sent as the bearer token.
    pub token_variable: Option<String>,
}

impl CredentialsUrl {
    /// Without its query and user, which may be keys.
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

/// A folder of a bucket that is stored in a place of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExtraFiles {
    pub uri: BucketUri,
    /// Absolute, or below the model's folder.
    pub destination: PathBuf,
}

/// What a download wrote down when it was complete.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// For people.
    pub origin: String,
    /// Stands for all that was asked for.
    pub fingerprint: String,
    pub commit: String,
    pub files: Vec<ManifestFile>,
    /// Extra files, by their absolute paths.
    #[serde(default, rename = "elsewhere")]
    pub outside: Vec<ManifestFile>,
    /// Another program's files, which have not been compared with their source.
    #[serde(default)]
    pub is_adopted: bool,
    /// A load failed with them.
    #[serde(default)]
    pub is_doubted: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestFile {
    pub path: String,
    pub bytes: u64,
    /// What its content was compared with, such as `sha256:…`; `None`: its size alone, or an older version wrote this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
}

impl Fetch {
    /// The model's folder in the hub's cache.
    pub fn root(&self) -> PathBuf {
        let name = self.id.replace('/', "--");
        self.cache.join(format!("models--{name}"))
    }

    /// Where engines find the model, once it is here: the same place for every state of it.
    pub fn folder(&self) -> PathBuf {
        self.notes.join(self.key())
    }

    /// Where what the hub says of the model is kept before it is fetched: its `config.json`, and in `bytes` the size of its
    /// weights.
    pub fn description(&self) -> PathBuf {
        self.notes.join("described").join(self.fingerprint())
    }

    /// The same, if it is there and the model is not.
    pub(super) fn described(&self) -> Option<(PathBuf, u64)> {
        let folder = self.description();
        let bytes = std::fs::read_to_string(folder.join("bytes")).ok()?;
        let bytes = bytes.trim().parse().ok()?;
        Some((folder, bytes)).filter(|_| !self.is_here())
    }

    /// Whether the hub should be asked how large the model is. Blocking.
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

    /// Tells sources apart: readable letters, and a digest where those do not say it all.
    fn key(&self) -> String {
        let (text, filters) = match &self.origin {
            Origin::Hub { revision } => (format!("{}/{revision}", self.id), ""),
            Origin::Bucket(bucket) => (
                format!("{}/{}", self.id, bucket.uri),
                &*format!("{:?}", bucket.filters),
            ),
        };
        let (text, filters) = match &self.gguf {
            GgufFiles::Named(file) => (format!("{text}/{file}"), format!("{filters} {file}")),
            GgufFiles::Quantization(name) => (format!("{text}:{name}"), filters.to_owned()),
            GgufFiles::None | GgufFiles::OnlyOne => (text, filters.to_owned()),
        };
        let plain = |it: char| match it {
            it if it.is_ascii_alphanumeric() || "-_.".contains(it) => it,
            _ => '-',
        };
        let readable: String = text.chars().map(plain).take(KEY_MAX).collect();
        let cache = self.cache.display();
        format!(
            "{readable}-{}",
            short_digest(&format!("{text} {filters} {cache}"))
        )
    }

    /// The path for the engine: the model's folder, or the file of it that was named.
    pub fn model_path(&self) -> PathBuf {
        match &self.gguf {
            GgufFiles::Named(file) => self.folder().join(file),
            // The folder has this one model.
            GgufFiles::None | GgufFiles::OnlyOne | GgufFiles::Quantization(_) => self.folder(),
        }
    }

    /// Stands for all that is asked for; whatever differs is fetched anew.
    pub fn fingerprint(&self) -> String {
        let parts = format!(
            "{} {:?} {}",
            self.key(),
            self.extra_files,
            self.consolidated
        );
        short_digest(&parts)
    }

    /// For people.
    pub fn describe(&self) -> String {
        match &self.origin {
            Origin::Hub { revision } => format!("the hub's {}, revision {revision}", self.id),
            Origin::Bucket(bucket) => bucket.uri.to_string(),
        }
    }

    /// Whether all that the manifest names is there. Blocking: looks at each file.
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

    /// A load failed with what another program had fetched: it is not taken for whole again. Blocking.
    pub fn doubt_adopted(&self) {
        let Some(mut manifest) = self.manifest().filter(|it| it.is_adopted && !it.is_doubted)
        else {
            return;
        };
        manifest.is_doubted = true;
        if let Ok(text) = serde_json::to_vec_pretty(&manifest) {
            let _ = std::fs::write(self.manifest_path(), text);
        }
    }

    /// The commit that is here, where only what lies beside it has changed: a branch is asked once.
    pub fn pinned(&self) -> Option<String> {
        let manifest = self.manifest().filter(|it| !it.is_doubted)?;
        let is_commit = manifest.commit.len() == 40
            && manifest.commit.bytes().all(|byte| byte.is_ascii_hexdigit());
        (is_commit && manifest.fingerprint != self.fingerprint()).then_some(manifest.commit)
    }

    pub fn manifest(&self) -> Option<Manifest> {
        let text = std::fs::read(self.manifest_path()).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// A whole model of this name and revision that another program has fetched.
    pub fn snapshot_of_others(&self) -> Option<PathBuf> {
        let Origin::Hub { revision } = &self.origin else {
            return None;
        };
        // It is unknown whether those are right, or a load has failed with it.
        let is_doubted = self.manifest().is_some_and(|it| it.is_doubted);
        let is_named = matches!(self.gguf, GgufFiles::Named(_) | GgufFiles::Quantization(_));
        if is_doubted || is_named || !self.extra_files.is_empty() {
            return None;
        }
        hub_cache::at_revision(&self.root(), revision).filter(|folder| is_complete(folder))
    }

    /// Its files as far as they are here, to tell how large it is.
    pub(super) fn found(&self) -> Option<PathBuf> {
        match self.folder().exists() {
            true => Some(self.model_path()),
            false => self.snapshot_of_others(),
        }
    }

    /// A variable of the engine's own, or else of the pool's environment; empty ones are not set.
    pub fn variable(&self, name: &str) -> Option<String> {
        let own = self.env.get(name).map(|value| value.0.clone());
        own.or_else(|| std::env::var(name).ok())
            .filter(|value| !value.trim().is_empty())
    }

    /// Where `huggingface-cli login` leaves its token.
    pub fn hub_home(&self) -> Option<PathBuf> {
        hub_cache::home(&|name| self.variable(name).map(PathBuf::from))
    }
}

impl Bucket {
    /// Asked in the usual way.
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

pub(super) fn short_digest(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    digest
        .iter()
        .take(6)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// Weights, and every file that an index of shards names; other programs show files one by one.
fn is_complete(folder: &Path) -> bool {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return false;
    };
    let mut weights = false;
    for entry in entries.flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        // A link to what is still coming.
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
