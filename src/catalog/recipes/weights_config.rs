//! Reads the source of weights from `engine_config`: the hub, a mirror in a bucket, or an OCI artifact. Every
//! error names its key; no network access.
//! One file because the keys exclude each other, and one function reads them all.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use config::Config;

use super::adapters;
use crate::documents::fields::fields_of;
use crate::documents::{CatalogError, Diagnostics, EngineConfig, Fetcher, Secret};
use crate::weights::{
    Bucket, BucketUri, CredentialsUrl, ExtraFiles, Fetch, GgufFiles, ID, ID_MAX, OciReference,
    Origin, Scheme, hub_cache, hub_name,
};

const S3: &str = "engine_config.s3_mirror_config";
const GCS: &str = "engine_config.gcs_mirror_config";
const OCI: &str = "engine_config.oci_artifact";

/// An engine's options for getting weights.
pub(crate) struct Engine {
    /// The engine's name in files.
    pub name: &'static str,
    pub able: Downloader,
    /// The engine can load pickle files.
    pub pickles: bool,
}

/// The components that can download for an engine.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Downloader {
    /// The engine only reads folders.
    PoolOnly,
    /// Both can; the pool does by default.
    PoolFirst,
    /// Both can; the engine does by default.
    EngineFirst,
    /// The engine reads a single file in a form that the pool does not fetch.
    EngineOnly,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct S3Mirror {
    bucket_uri: Option<String>,
    #[serde(default)]
    s3_sync_args: Option<Vec<String>>,
    s3_aws_credentials: Option<AwsCredentials>,
    #[serde(default)]
    extra_files: Option<Vec<ExtraFile>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AwsCredentials {
    create_aws_credentials_url: String,
    auth_token_env_variable: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GcsMirror {
    bucket_uri: String,
    #[serde(default)]
    extra_files: Option<Vec<ExtraFile>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExtraFile {
    bucket_uri: String,
    destination_path: String,
}

/// The keys of the mirror sections.
pub(crate) struct MirrorKeys {
    pub s3: &'static [&'static str],
    pub gcs: &'static [&'static str],
    pub credentials: &'static [&'static str],
    pub extra_file: &'static [&'static str],
}

pub(crate) fn keys() -> MirrorKeys {
    MirrorKeys {
        s3: fields_of::<S3Mirror>(),
        gcs: fields_of::<GcsMirror>(),
        credentials: fields_of::<AwsCredentials>(),
        extra_file: fields_of::<ExtraFile>(),
    }
}

/// Reads what to fetch for the model. `None`: nothing, or its engine downloads it.
pub(crate) fn read(
    engine: &EngineConfig,
    kind: &Engine,
    config: &Config,
    notes: &mut Diagnostics,
) -> Result<Option<Fetch>, CatalogError> {
    let mirror = mirror(engine, config, notes)?;
    let artifact = artifact(engine, notes)?;
    let is_mirrored = mirror.is_some() || artifact.is_some();
    if engine.model_path.is_some() {
        if engine.gguf_file.is_some() {
            notes.warn(
                "engine_config.gguf_file",
                "has no effect: engine_config.model_path is used",
            );
        }
        if is_mirrored {
            notes.warn(
                mirror_key(engine),
                "has no effect: engine_config.model_path is used",
            );
        }
        return Ok(None);
    }
    let fetcher = match (engine.fetch, kind.able) {
        (Some(Fetcher::Engine), Downloader::PoolOnly) => {
            return Err(notes.refuse(
                "engine_config.fetch",
                format!(
                    "is engine, but {} does not download weights itself; write pool, or remove it",
                    kind.name
                ),
            ));
        }
        (Some(Fetcher::Pool), Downloader::EngineOnly) => {
            return Err(notes.refuse(
                "engine_config.fetch",
                format!("is pool, and {} reads one GGUF file, which the pool does not fetch; write engine, or name the file in engine_config.model_path", kind.name),
            ));
        }
        (Some(stated), _) => stated,
        (None, Downloader::PoolOnly | Downloader::PoolFirst) => Fetcher::Pool,
        (None, Downloader::EngineFirst) if is_mirrored => Fetcher::Pool,
        (None, Downloader::EngineFirst | Downloader::EngineOnly) => Fetcher::Engine,
    };
    if fetcher == Fetcher::Engine {
        return if is_mirrored {
            Err(notes.refuse(
            mirror_key(engine),
            format!("can only be fetched by the pool, but {} downloads its own weights here; set engine_config.fetch: pool if it reads a folder, or copy the files into a folder and set engine_config.model_path to it", kind.name),
        ))
        } else {
            Ok(None)
        };
    }
    let Some(id) = engine.hf_model_id.as_deref() else {
        return if is_mirrored {
            Err(notes.refuse(
                ID,
                "is missing; set it to the name of the mirrored model in the cache: organisation/name",
            ))
        } else {
            Ok(None)
        };
    };
    // A local folder.
    if !is_mirrored && notes.is_local(id) {
        return Ok(None);
    }
    let around = hub_name::HubNameContext {
        engine: kind.name,
        reads_one_gguf: kind.able == Downloader::PoolOnly,
        is_mirrored,
        has_gguf_file: engine.gguf_file.is_some(),
    };
    let (id, quantization) = hub_name::read(id, &around, notes)?;
    let revision = engine.revision.clone().unwrap_or_else(|| "main".to_owned());
    if revision.trim().is_empty() {
        return Err(notes.refuse("engine_config.revision", "is empty; name it or remove it"));
    }
    let is_revision = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte);
    let parts = || revision.split('/');
    if revision.len() > ID_MAX
        || !revision.bytes().all(is_revision)
        || parts().any(|part| part.is_empty() || part.starts_with('.'))
    {
        return Err(notes.refuse(
            "engine_config.revision",
            "is not a branch, tag or commit: at most 96 letters, digits and `-_./`",
        ));
    }
    let Some(cache) = cache_of(config, &engine.env) else {
        return Err(notes.refuse(ID, "no folder to fetch it to: HF_HUB_CACHE, HF_HOME and HOME are not set; set sources.cache_dir"));
    };
    let Mirror {
        bucket,
        mut extra_files,
        extra_by,
    } = mirror.unwrap_or_default();
    extra_files.extend(adapters::to_fetch(engine, notes)?);
    let notes_folder = std::path::absolute(config.state.dir.join("weights"));
    let Ok(notes_folder) = notes_folder else {
        return Err(notes.refuse(ID, "state.dir is not a usable path"));
    };
    let format = engine
        .engine_kwargs
        .get("load_format")
        .and_then(Value::as_str);
    if bucket.is_some() && engine.revision.is_some() {
        notes.warn(
            "engine_config.revision",
            "has no effect: the mirror's `hash` file identifies its state",
        );
    }
    if artifact.is_some() && engine.revision.is_some() {
        notes.warn(
            "engine_config.revision",
            "has no effect: the tag or digest of oci_artifact identifies the weights",
        );
    }
    Ok(Some(Fetch {
        origin: match (bucket, artifact) {
            (Some(bucket), _) => Origin::Bucket(bucket),
            (None, Some(reference)) => Origin::Oci(reference),
            (None, None) => Origin::Hub { revision },
        },
        id: id.to_owned(),
        cache,
        notes: notes_folder,
        extra_files,
        extra_by,
        pickles: kind.pickles,
        consolidated: format == Some("mistral"),
        gguf: match quantization {
            Some(name) => GgufFiles::Quantization(name),
            None => gguf_files(engine, kind, notes)?,
        },
        env: engine.env.clone(),
    }))
}

/// The folder for fetched weights on this machine: `sources.cache_dir`, or the default cache of Hugging Face's tools.
pub fn cache_dir(config: &Config) -> Option<PathBuf> {
    cache_of(config, &BTreeMap::new())
}

fn cache_of(config: &Config, env: &BTreeMap<String, Secret>) -> Option<PathBuf> {
    let folder = match &config.sources.cache_dir {
        Some(folder) => Some(folder.clone()),
        None => hub_cache::root(env),
    };
    folder.and_then(|folder| std::path::absolute(folder).ok())
}

fn gguf_files(
    engine: &EngineConfig,
    kind: &Engine,
    notes: &Diagnostics,
) -> Result<GgufFiles, CatalogError> {
    let Some(file) = engine.gguf_file.as_deref() else {
        return Ok(match kind.able {
            Downloader::PoolOnly => GgufFiles::OnlyOne,
            Downloader::PoolFirst | Downloader::EngineFirst | Downloader::EngineOnly => {
                GgufFiles::None
            }
        });
    };
    let is_plain = |part: &str| !part.is_empty() && !part.starts_with('.');
    if file.len() <= 512
        && file.to_lowercase().ends_with(".gguf")
        && file.split('/').all(is_plain)
        && !file.contains(['\\', '\0'])
    {
        return Ok(GgufFiles::Named(file.to_owned()));
    }
    Err(notes.refuse(
        "engine_config.gguf_file",
        format!(
            "`{}` is not a GGUF file of a repository; write its path in the repository, such as model-Q4_K_M.gguf",
            file.escape_debug()
        ),
    ))
}

fn mirror_key(engine: &EngineConfig) -> &'static str {
    match (&engine.s3_mirror_config, &engine.gcs_mirror_config) {
        (Some(_), _) => S3,
        (None, Some(_)) => GCS,
        (None, None) => OCI,
    }
}

/// The artifact in a registry that has the weights.
fn artifact(
    engine: &EngineConfig,
    notes: &Diagnostics,
) -> Result<Option<OciReference>, CatalogError> {
    let Some(text) = &engine.oci_artifact else {
        return Ok(None);
    };
    if engine.s3_mirror_config.is_some() || engine.gcs_mirror_config.is_some() {
        return Err(notes.refuse(
            OCI,
            "and a mirror in a bucket are both given; weights come from one of them",
        ));
    }
    let parsed = OciReference::parse(text);
    parsed
        .map(Some)
        .map_err(|problem| notes.refuse(OCI, problem))
}

#[derive(Default)]
struct Mirror {
    bucket: Option<Bucket>,
    extra_files: Vec<ExtraFiles>,
    extra_by: Option<Bucket>,
}

fn mirror(
    engine: &EngineConfig,
    config: &Config,
    notes: &mut Diagnostics,
) -> Result<Option<Mirror>, CatalogError> {
    let (schemes, parsed) = match (&engine.s3_mirror_config, &engine.gcs_mirror_config) {
        (Some(_), Some(_)) => {
            return Err(notes.refuse(
                GCS,
                "and s3_mirror_config are both given; weights come from one of them",
            ));
        }
        (Some(value), None) => (Scheme::S3, typed::<S3Mirror>(S3, value, notes)?),
        (None, Some(value)) => {
            let gcs = typed::<GcsMirror>(GCS, value, notes)?;
            let mirror = S3Mirror {
                bucket_uri: Some(gcs.bucket_uri),
                s3_sync_args: None,
                s3_aws_credentials: None,
                extra_files: gcs.extra_files,
            };
            (Scheme::Gs, mirror)
        }
        (None, None) => return Ok(None),
    };
    let key = mirror_key(engine);
    let mut plain = Bucket::at(BucketUri {
        scheme: schemes,
        bucket: String::new(),
        prefix: String::new(),
    });
    if let Some(inline) = parsed.s3_aws_credentials {
        let url = inline.create_aws_credentials_url;
        if !url.starts_with("https://") && !is_on_this_machine(&url) {
            let field = format!("{key}.s3_aws_credentials.create_aws_credentials_url");
            return Err(notes.refuse(
                &field,
                "must begin with https://, or be on this machine: the response contains keys",
            ));
        }
        plain.credentials = Some(CredentialsUrl {
            url,
            token_variable: inline.auth_token_env_variable,
        });
    }
    let field = format!("{key}.s3_sync_args");
    let words = parsed.s3_sync_args.unwrap_or_default();
    sync_arguments(&words, &mut plain, &field, notes)?;
    let uri = |field: &str, text: &str| {
        BucketUri::parse(text, &[schemes]).map_err(|problem| notes.refuse(field, problem))
    };
    let bucket = match &parsed.bucket_uri {
        Some(text) => Some(Bucket {
            uri: uri(&format!("{key}.bucket_uri"), text)?,
            ..plain.clone()
        }),
        None => None,
    };
    let mut extra_files = Vec::new();
    for (nth, extra) in parsed.extra_files.iter().flatten().enumerate() {
        let field = format!("{key}.extra_files[{nth}]");
        let from = uri(&format!("{field}.bucket_uri"), &extra.bucket_uri)?;
        let field = format!("{field}.destination_path");
        let destination = destination(&extra.destination_path, config)
            .map_err(|problem| notes.refuse(&field, problem))?;
        extra_files.push(ExtraFiles {
            uri: from,
            destination,
        });
    }
    if bucket.is_none() && extra_files.is_empty() {
        notes.warn(
            key,
            "has no effect: it has neither bucket_uri nor extra_files",
        );
    }
    plain.filters.clear();
    Ok(Some(Mirror {
        bucket,
        extra_files,
        extra_by: Some(plain),
    }))
}

fn typed<T: DeserializeOwned>(
    key: &str,
    value: &Value,
    notes: &Diagnostics,
) -> Result<T, CatalogError> {
    reading::value_at(value.clone()).map_err(|(path, problem)| match path.as_str() {
        "." => notes.refuse(key, problem),
        path => notes.refuse(&format!("{key}.{path}"), problem),
    })
}

fn is_on_this_machine(url: &str) -> bool {
    let host = url.strip_prefix("http://").unwrap_or_default();
    let host = host.split('/').next().unwrap_or_default();
    let host = host.rsplit_once(':').map_or(host, |(host, _)| host);
    matches!(host, "127.0.0.1" | "localhost" | "[::1]")
}

/// Reads the supported options of `aws s3 sync`. Options that only change its output are ignored, others are refused.
fn sync_arguments(
    words: &[String],
    bucket: &mut Bucket,
    field: &str,
    notes: &mut Diagnostics,
) -> Result<(), CatalogError> {
    let mut words = words.iter().enumerate();
    while let Some((nth, word)) = words.next() {
        let (name, joined) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (word.as_str(), None),
        };
        let field = format!("{field}[{nth}]");
        let mut value = || {
            let next = joined
                .clone()
                .or_else(|| words.next().map(|(_, word)| word.clone()));
            next.filter(|value| !value.is_empty() && !value.starts_with("--"))
                .ok_or_else(|| notes.refuse(&field, format!("{name} needs a value after it")))
        };
        match name {
            "--include" => bucket.filters.push((true, value()?)),
            "--exclude" => bucket.filters.push((false, value()?)),
            "--endpoint-url" => {
                let address = value()?;
                if !address.starts_with("http://") && !address.starts_with("https://") {
                    return Err(notes.refuse(
                        &field,
                        "--endpoint-url needs an address that begins with https:// or http://",
                    ));
                }
                bucket.endpoint = Some(address);
            }
            "--region" => bucket.region = Some(value()?),
            "--no-sign-request" if joined.is_none() => bucket.unsigned = true,
            "--quiet" | "--only-show-errors" | "--no-progress" | "--exact-timestamps" => {}
            "--size-only" | "--delete" | "--no-follow-symlinks" | "--follow-symlinks" => {
                let message = format!(
                    "{name} has no effect: files are distinguished by size and tag, and a snapshot holds what the bucket holds"
                );
                notes.warn(&field, message);
            }
            other => {
                return Err(notes.refuse(&field, format!("`{other}` is not supported; supported are --include, --exclude, --endpoint-url, --region and --no-sign-request")));
            }
        }
    }
    Ok(())
}

/// Expands variables and `~`. Absolute paths must be inside folders that the pool may write to.
fn destination(text: &str, config: &Config) -> Result<PathBuf, String> {
    let path = config::expanded_here(text).map_err(|error| error.to_string())?;
    let filled = path.to_string_lossy();
    let climbs = path
        .components()
        .any(|part| matches!(part, Component::ParentDir));
    if climbs || filled.is_empty() || filled.chars().any(char::is_control) {
        return Err(format!(
            "`{text}` is not an allowed destination: write a path without `..`"
        ));
    }
    if !path.is_absolute() {
        return Ok(path);
    }
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let mut roots: Vec<PathBuf> = config.sources.extra_roots.clone();
    roots.extend(home.filter(|home| home.parent().is_some()));
    roots.extend(config.sources.cache_dir.clone());
    // A symbolic link may lead outside.
    let real = |path: &Path| {
        let there = path.ancestors().find(|path| path.exists())?;
        let rest = path.strip_prefix(there).ok()?;
        Some(there.canonicalize().ok()?.join(rest))
    };
    let place = real(&path);
    let is_allowed = |root: &PathBuf| {
        let root = real(root);
        place
            .as_ref()
            .zip(root)
            .is_some_and(|(place, root)| place.starts_with(root))
    };
    if roots.iter().any(is_allowed) {
        return Ok(path);
    }
    let shown: Vec<String> = roots
        .iter()
        .map(|root| root.display().to_string())
        .collect();
    Err(format!(
        "{} is outside the folders allowed for extra files: {}; write a path below the model's folder, or add one to sources.extra_roots",
        path.display(),
        shown.join(", ")
    ))
}
