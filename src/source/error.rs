//! Errors of fetching weights, with numbers and advice; never with a token.

use std::error::Error;
use std::io;
use std::path::PathBuf;

use super::http_status::is_transient_code;
use pool::{Bytes, Remedy};

#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    #[error("{endpoint} cannot be reached: {why}; check this machine's network, or set sources.offline and copy the files into {}", cache.display())]
    Unreachable {
        endpoint: String,
        why: String,
        cache: PathBuf,
    },
    #[error("{id} is not complete in {}, and network access is off (sources.offline, HF_HUB_OFFLINE); copy it there, or allow the network", cache.display())]
    Offline { id: String, cache: PathBuf },
    #[error(
        "the hub is not searched, because network access is off (sources.offline, HF_HUB_OFFLINE)"
    )]
    OfflineSearch,
    #[error("{id} is gated: accept its licence at {endpoint}/{id} with the account of the token, and set the token as HF_TOKEN in the pool's environment or in runtime_env.env_vars (the hub says GatedRepo{})", token_note(*has_token))]
    Gated {
        id: String,
        endpoint: String,
        has_token: bool,
    },
    #[error("there is no {id} at {endpoint}, or it is private{}; check the name in engine_config.hf_model_id, and set HF_TOKEN to a token that may read it", token_note(*has_token))]
    NoRepository {
        id: String,
        endpoint: String,
        has_token: bool,
    },
    #[error("{id} has no revision {revision} at {endpoint}; check engine_config.revision")]
    NoRevision {
        id: String,
        revision: String,
        endpoint: String,
    },
    #[error("{endpoint} does not accept the token; check HF_TOKEN")]
    BadToken { endpoint: String },
    #[error("{what} answers {status}{}{}", detail(message), advice(*status))]
    Refused {
        what: String,
        status: u16,
        message: String,
    },
    #[error("{what} does not respond like a hub: {why}; check sources.hub or HF_ENDPOINT")]
    NoHub { what: String, why: String },
    #[error("cannot read {uri}: {why}; {advice}")]
    Bucket {
        uri: String,
        why: String,
        advice: &'static str,
        lasting: bool,
    },
    #[error(
        "{uri} cannot be read by this program, which is built without support for buckets: build it without `--no-default-features`, or add `--features s3`"
    )]
    NotBuilt { uri: String },
    #[error("{uri} is empty; check bucket_uri, which must be a folder, not an object")]
    Empty { uri: String },
    #[error("{url} returned no credentials for the bucket: {why}; check s3_aws_credentials")]
    Credentials {
        url: String,
        why: String,
        lasting: bool,
    },
    #[error(
        "{where_} has its weights only as pickles ({files}), and loading a pickle runs the code in it; the embedded engine reads safetensors: convert them, or use another engine"
    )]
    Pickle { where_: String, files: String },
    #[error("{where_} has no weights that can be loaded; its files: {files}")]
    NoWeights { where_: String, files: String },
    #[error(
        "{where_} has a file {name:?}, which would be outside the model's folder or cannot be written; nothing was fetched"
    )]
    UnsafeName { where_: String, name: String },
    #[error(
        "the GGUF file of {where_} is not specified or does not exist; {hint}set engine_config.gguf_file to one of these: {files}"
    )]
    GgufChoice {
        where_: String,
        /// Advice on choosing a quantization, if the files have any.
        hint: String,
        files: String,
    },
    #[error("{where_}, has no GGUF file of the quantization {wanted}; {known}")]
    NoQuantization {
        where_: String,
        wanted: String,
        known: String,
    },
    #[error(
        "{where_}, has several models of the quantization {wanted}; set engine_config.gguf_file to one of these: {files}"
    )]
    ManyOfQuantization {
        where_: String,
        wanted: String,
        files: String,
    },
    #[error(
        "{where_} has no config.json, so no engine can identify its weights; its files: {files}"
    )]
    NoConfig { where_: String, files: String },
    #[error("needs {} more on the disk of {}, which has {} free, of which {} must stay free (sources.keep_free); make room, or set sources.cache_dir", Bytes(*needs), path.display(), Bytes(*free), Bytes(*keep))]
    NoRoom {
        needs: u64,
        free: u64,
        keep: u64,
        path: PathBuf,
    },
    #[error("needs {} for fetched adapters, but {} are allowed (lora_config.cache_gib), and {} have been used recently; retry later, or raise the limit", Bytes(*needs), Bytes(*most), Bytes(*in_use))]
    AdaptersFull { needs: u64, in_use: u64, most: u64 },
    #[error(
        "{file} is damaged at the source: expected {expected}, got {got} twice; the copy was not kept"
    )]
    Mismatch {
        file: String,
        expected: String,
        got: String,
    },
    #[error(
        "the download of {file} failed {tries} times in a row without a byte: {why}; what has arrived is kept, and the next attempt continues from there"
    )]
    BrokenOff {
        file: String,
        tries: u32,
        why: String,
    },
    #[error("node {node} does not send the weights: {why}; fetching them from another source")]
    Peer { node: String, why: String },
    #[error("{}: {source}; check that it is writable and has space, or set sources.cache_dir", path.display())]
    Disk {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("no connection can be made: {why}; install ca-certificates, or set SSL_CERT_FILE")]
    NoClient { why: String },
}

fn token_note(has_token: bool) -> &'static str {
    if has_token {
        "; a token was sent"
    } else {
        "; no token was sent"
    }
}

fn advice(status: u16) -> &'static str {
    if is_transient_code(status) {
        "; the pool will retry"
    } else {
        "; check sources.hub, HF_ENDPOINT and the token"
    }
}

fn detail(message: &str) -> String {
    match message.trim() {
        "" => String::new(),
        message => format!(": {message}"),
    }
}

impl SourceError {
    /// The appropriate remedy (L3).
    pub fn remedy(&self) -> Remedy {
        match self {
            SourceError::Unreachable { .. }
            | SourceError::NoRoom { .. }
            | SourceError::AdaptersFull { .. }
            | SourceError::Mismatch { .. }
            | SourceError::BrokenOff { .. }
            | SourceError::Peer { .. }
            | SourceError::Disk { .. }
            | SourceError::Credentials { lasting: false, .. }
            | SourceError::NoHub { .. }
            | SourceError::NoClient { .. }
            | SourceError::Bucket { lasting: false, .. } => Remedy::Time,
            SourceError::Refused { status, .. } if is_transient_code(*status) => Remedy::Time,
            SourceError::Refused { .. }
            | SourceError::Offline { .. }
            | SourceError::OfflineSearch
            | SourceError::NotBuilt { .. }
            | SourceError::Gated { .. }
            | SourceError::NoRepository { .. }
            | SourceError::NoRevision { .. }
            | SourceError::BadToken { .. }
            | SourceError::Bucket { .. }
            | SourceError::Credentials { .. }
            | SourceError::Empty { .. }
            | SourceError::Pickle { .. }
            | SourceError::NoWeights { .. }
            | SourceError::NoConfig { .. }
            | SourceError::GgufChoice { .. }
            | SourceError::NoQuantization { .. }
            | SourceError::ManyOfQuantization { .. }
            | SourceError::UnsafeName { .. } => Remedy::Change,
        }
    }

    /// The message for a user of the pool: without local folders, buckets and addresses, which are only in the log.
    pub fn public(&self) -> String {
        match self {
            SourceError::Unreachable { endpoint, why, .. } => {
                format!("{endpoint} cannot be reached: {why}; retry later")
            }
            SourceError::Offline { id, .. } => format!(
                "{id} is not complete on the pool's machine, and its network access is off; ask an administrator"
            ),
            SourceError::NoRoom { needs, free, .. } => format!(
                "the pool's disk is full: {} more are needed, but only {} are free; ask an administrator",
                Bytes(*needs),
                Bytes(*free)
            ),
            SourceError::Bucket { .. }
            | SourceError::NotBuilt { .. }
            | SourceError::Empty { .. }
            | SourceError::Credentials { .. } => {
                "the pool cannot read its bucket; ask an administrator, the service's log says why"
                    .to_owned()
            }
            SourceError::Disk { source, .. } => format!(
                "the pool cannot write to its disk ({}); ask an administrator, the service's log says more",
                source.kind()
            ),
            SourceError::Mismatch { .. } => {
                "a file is damaged at the source; ask an administrator, the service's log says which"
                    .to_owned()
            }
            SourceError::BrokenOff { tries, .. } => format!(
                "a download failed {tries} times in a row without a byte; what has arrived is kept, retry later"
            ),
            SourceError::Peer { .. } => "another node does not send the weights".to_owned(),
            SourceError::NoClient { .. } => {
                "the pool cannot make connections; ask an administrator, the service's log says why"
                    .to_owned()
            }
            SourceError::OfflineSearch
            | SourceError::Gated { .. }
            | SourceError::NoRepository { .. }
            | SourceError::NoRevision { .. }
            | SourceError::BadToken { .. }
            | SourceError::Refused { .. }
            | SourceError::NoHub { .. }
            | SourceError::AdaptersFull { .. }
            | SourceError::Pickle { .. }
            | SourceError::NoWeights { .. }
            | SourceError::NoConfig { .. }
            | SourceError::GgufChoice { .. }
            | SourceError::NoQuantization { .. }
            | SourceError::ManyOfQuantization { .. }
            | SourceError::UnsafeName { .. } => self.to_string(),
        }
    }

    /// Returns true if the remote side could not be reached, which means that local files may be enough.
    pub(super) fn is_of_the_network(&self) -> bool {
        match self {
            SourceError::Unreachable { .. }
            | SourceError::Offline { .. }
            | SourceError::NoClient { .. }
            | SourceError::Bucket { lasting: false, .. } => true,
            SourceError::Refused { status, .. } => is_transient_code(*status),
            _ => false,
        }
    }

    pub(super) fn disk(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> SourceError {
        let path = path.into();
        move |source| SourceError::Disk { path, source }
    }
}

/// The innermost cause of an error, usually the most helpful one.
pub(super) fn root_of(error: &dyn Error) -> String {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_messages_for_users_name_no_folder_or_bucket_of_the_pool() {
        let place = || PathBuf::from("/srv/secret/cache");
        let text = || "s3://secret-bucket/adapters".to_owned();
        let id = || "lab/model".to_owned();
        let why = || "connection refused".to_owned();
        let faults = [
            SourceError::Unreachable {
                endpoint: "https://huggingface.co".to_owned(),
                why: why(),
                cache: place(),
            },
            SourceError::Offline {
                id: id(),
                cache: place(),
            },
            SourceError::NoRoom {
                needs: 1,
                free: 2,
                keep: 3,
                path: place(),
            },
            SourceError::Bucket {
                uri: text(),
                why: text(),
                advice: "check s3_aws_credentials",
                lasting: true,
            },
            SourceError::NotBuilt { uri: text() },
            SourceError::Empty { uri: text() },
            SourceError::Credentials {
                url: "https://secret.example".to_owned(),
                why: why(),
                lasting: false,
            },
            SourceError::Disk {
                path: place(),
                source: io::Error::new(io::ErrorKind::StorageFull, "/srv/secret/cache"),
            },
            SourceError::Mismatch {
                file: "/srv/secret/cache/blob".to_owned(),
                expected: why(),
                got: why(),
            },
            SourceError::BrokenOff {
                file: "/srv/secret/cache/blob".to_owned(),
                tries: 5,
                why: why(),
            },
            SourceError::Peer {
                node: "secret-node".to_owned(),
                why: why(),
            },
            SourceError::NoClient {
                why: "/srv/secret/certificates".to_owned(),
            },
        ];
        for error in faults {
            let public = error.public();
            assert!(!public.contains("secret"), "{error}: {public}");
            assert!(
                !public.contains('/') || !public.contains("/srv"),
                "{public}"
            );
            assert!(error.to_string() != public, "the log says more: {error}");
        }
        let gated = SourceError::Gated {
            id: id(),
            endpoint: "https://huggingface.co".to_owned(),
            has_token: false,
        };
        assert!(
            gated.public().contains("lab/model"),
            "what a user can act on"
        );
    }
}
