//! S3 and Google Cloud Storage, through `object_store`: lists the objects under an address, and reads objects from an offset on.
//! Server messages are shortened before they are displayed, because they may quote keys.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt};
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::path::Path;
use object_store::{
    ClientOptions, Error, GetOptions, GetRange, ObjectStore, ObjectStoreExt, RetryConfig,
};
use sha1::Digest as _;
use wildmatch::WildMatch;

use super::credentials;
use super::error::{SourceError, root_of};
use super::part::{CONNECT_MAX, Check, ListedParts, OpenedPart, Part, PartProblem, STALL_MAX};
use super::part_writer::hex;
use catalog::{Bucket, BucketUri, Fetch, Scheme};

/// The commit to assume if the weights have no file `hash`.
const NO_HASH: &str = "0000000000000000000000000000000000000000";
const HASH_MAX: usize = 64;
const HASH_FILE_MAX: u64 = 1024;
/// A longer listing is not a model.
const LISTING_MAX: usize = 20_000;
/// The library's own retries, in addition to this crate's.
const RETRIES: usize = 2;
const RETRY_TIME: Duration = Duration::from_secs(15);

#[derive(Clone)]
pub(super) struct Store {
    objects: Arc<dyn ObjectStore>,
    pub uri: BucketUri,
    filters: Vec<(bool, String)>,
}

/// The library's own output would show keys.
impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("uri", &self.uri)
            .finish_non_exhaustive()
    }
}

/// Opens a bucket. Sends no request, except for credentials.
pub(super) async fn open(
    bucket: &Bucket,
    wanted: &Fetch,
    http: &reqwest::Client,
) -> Result<Store, SourceError> {
    let mut variables: BTreeMap<String, String> = wanted
        .env
        .iter()
        .map(|(name, value)| (name.clone(), value.0.clone()))
        .collect();
    if let Some(credentials_url) = &bucket.credentials {
        variables.extend(credentials::by_url(credentials_url, wanted, http).await?);
    }
    let objects = connect(bucket, &variables)?;
    Ok(Store {
        objects,
        uri: bucket.uri.clone(),
        filters: bucket.filters.clone(),
    })
}

/// The object store of a bucket. `variables` take precedence over the environment of the process. Sends no request.
pub(super) fn connect(
    bucket: &Bucket,
    variables: &BTreeMap<String, String>,
) -> Result<Arc<dyn ObjectStore>, SourceError> {
    let retry = RetryConfig {
        max_retries: RETRIES,
        retry_timeout: RETRY_TIME,
        ..RetryConfig::default()
    };
    let options = |allow_http: bool| {
        ClientOptions::new()
            .with_timeout_disabled()
            .with_connect_timeout(CONNECT_MAX)
            .with_read_timeout(STALL_MAX)
            .with_allow_http(allow_http)
    };
    let made: Result<Arc<dyn ObjectStore>, Error> = match bucket.uri.scheme {
        Scheme::S3 => {
            let named = ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"];
            let endpoint = bucket.endpoint.clone().or_else(|| {
                let own = |name: &&str| variables.get(*name).cloned();
                let general = |name: &&str| std::env::var(name).ok();
                named
                    .iter()
                    .find_map(own)
                    .or_else(|| named.iter().find_map(general))
            });
            // Keys of two accounts must not be mixed.
            let pairs = [
                "AWS_ACCESS_KEY_ID",
                "AWS_SECRET_ACCESS_KEY",
                "AWS_SESSION_TOKEN",
            ];
            let own_keys = variables.contains_key(pairs[0]);
            let mut builder = AmazonS3Builder::new();
            let general = std::env::vars_os().filter_map(|(name, value)| {
                Some((name.into_string().ok()?, value.into_string().ok()?))
            });
            let general = general
                .filter(|(name, value)| !value.is_empty() && !variables.contains_key(name))
                .filter(|(name, _)| !(own_keys && pairs.contains(&name.as_str())));
            let all: Vec<(String, String)> = general.chain(variables.clone()).collect();
            for (name, value) in &all {
                let Ok(key) = name.to_lowercase().parse::<AmazonS3ConfigKey>() else {
                    continue;
                };
                if name.starts_with("AWS_") {
                    builder = builder.with_config(key, value);
                }
            }
            let is_plain = endpoint
                .as_deref()
                .is_some_and(|address| address.starts_with("http://"));
            builder = builder
                .with_client_options(options(is_plain))
                .with_retry(retry)
                .with_bucket_name(&bucket.uri.bucket)
                // Some servers support no deletion of several objects.
                .with_disable_bulk_delete(true);
            if let Some(endpoint) = endpoint {
                // Otherwise the variable specific to S3 would take precedence.
                builder = builder.with_config(AmazonS3ConfigKey::S3Endpoint, endpoint);
            }
            if let Some(region) = &bucket.region {
                builder = builder.with_region(region);
            }
            if bucket.unsigned {
                builder = builder.with_skip_signature(true);
            }
            builder.build().map(|store| Arc::new(store) as _)
        }
        Scheme::Gs => {
            let mut builder = GoogleCloudStorageBuilder::from_env();
            for (name, value) in variables {
                let Ok(key) = name.to_lowercase().parse::<GoogleConfigKey>() else {
                    continue;
                };
                if name.starts_with("GOOGLE_") {
                    builder = builder.with_config(key, value);
                }
            }
            let base = variables.get("GOOGLE_BASE_URL").cloned();
            let base = base.or_else(|| std::env::var("GOOGLE_BASE_URL").ok());
            let is_plain = base
                .as_deref()
                .is_some_and(|address| address.starts_with("http://"));
            builder = builder
                .with_client_options(options(is_plain))
                .with_retry(retry)
                .with_bucket_name(&bucket.uri.bucket);
            if bucket.unsigned {
                builder = builder.with_skip_signature(true);
            }
            builder.build().map(|store| Arc::new(store) as _)
        }
    };
    made.map_err(|error| source_error(&error, &bucket.uri))
}

/// Lists the objects under the address. A file named `hash` contains the state's name, as in RayLLM's mirrors.
pub(super) async fn list(store: &Store, uri: &BucketUri) -> Result<ListedParts, SourceError> {
    let wrong = |error: Error| source_error(&error, uri);
    let prefix = Path::parse(&uri.prefix).map_err(|error| wrong(error.into()))?;
    let mut objects = store.objects.list(Some(&prefix));
    let mut parts = Vec::new();
    let mut has_hash = false;
    while let Some(object) = objects.try_next().await.map_err(wrong)? {
        let full_path = object.location.as_ref();
        let below = full_path.strip_prefix(prefix.as_ref()).unwrap_or(full_path);
        let path = below.trim_start_matches('/').to_owned();
        has_hash |= path == "hash" && object.size <= HASH_FILE_MAX;
        if parts.len() >= LISTING_MAX {
            return Err(SourceError::Bucket {
                uri: uri.to_string(),
                why: format!("there are more than {LISTING_MAX} objects"),
                advice: "set bucket_uri to the folder of one model",
                lasting: true,
            });
        }
        // The marker object of a folder.
        let is_mark = path.is_empty() || object.size == 0 && !path.contains('.');
        if is_mark || !store.takes(&path) {
            continue;
        }
        let etag = object.e_tag.unwrap_or_default();
        let mut digest = sha2::Sha256::new();
        digest.update(format!("{uri}\n{path}\n{etag}\n{}", object.size));
        parts.push(Part {
            blob: hex(&digest.finalize()),
            path,
            size: object.size,
            check: Check::Size,
            counted: 0,
            etag: Some(etag).filter(|etag| !etag.is_empty()),
        });
    }
    if parts.is_empty() {
        return Err(SourceError::Empty {
            uri: uri.to_string(),
        });
    }
    let commit = if has_hash {
        store.hash().await?
    } else {
        NO_HASH.to_owned()
    };
    Ok(ListedParts { commit, parts })
}

impl Store {
    /// As in `aws s3 sync`, the last matching pattern wins.
    fn takes(&self, path: &str) -> bool {
        let matching = self
            .filters
            .iter()
            .rev()
            .find(|(_, pattern)| WildMatch::new(pattern).matches(path));
        matching.is_none_or(|(includes, _)| *includes)
    }

    async fn hash(&self) -> Result<String, SourceError> {
        let wrong = |error: Error| source_error(&error, &self.uri);
        let path = self.place("hash").map_err(wrong)?;
        let got = self.objects.get(&path).await.map_err(wrong)?;
        let text = got.bytes().await.map_err(wrong)?;
        let text = String::from_utf8_lossy(&text).trim().to_owned();
        let is_name = !text.is_empty()
            && text.len() <= HASH_MAX
            && !text.starts_with('.')
            && text
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
        if is_name {
            Ok(text)
        } else {
            Err(SourceError::Bucket {
                uri: format!("{}/hash", self.uri),
                why: format!("it must be one word of at most {HASH_MAX} letters and digits"),
                advice: "write the commit of the weights into it, or remove it",
                lasting: true,
            })
        }
    }

    fn place(&self, path: &str) -> Result<Path, Error> {
        let full_path = format!("{}/{path}", self.uri.prefix);
        Ok(Path::parse(full_path.trim_start_matches('/'))?)
    }

    pub async fn open(&self, part: &Part, offset: u64) -> Result<OpenedPart, PartProblem> {
        let lasting = |error: &Error| PartProblem::Lasting(source_error(error, &self.uri));
        let path = self.place(&part.path).map_err(|error| lasting(&error))?;
        let options = GetOptions {
            range: (offset > 0).then_some(GetRange::Offset(offset)),
            if_match: part.etag.clone(),
            ..GetOptions::default()
        };
        match self.objects.get_opts(&path, options).await {
            Ok(got) => Ok(OpenedPart {
                offset,
                body: got
                    .into_stream()
                    .map(|chunk| chunk.map_err(|error| shortened(&error)))
                    .boxed(),
            }),
            // The object changed after it was listed, so a retry does not help.
            Err(error) if is_lasting(&error) || matches!(error, Error::Precondition { .. }) => {
                Err(lasting(&error))
            }
            Err(error) => Err(PartProblem::Passing {
                why: shortened(&error),
                after: None,
            }),
        }
    }
}

fn source_error(error: &Error, uri: &BucketUri) -> SourceError {
    let why = shortened(error);
    let advice = match (error, why.as_str()) {
        (Error::NotFound { .. }, _) | (_, "NoSuchBucket" | "NoSuchKey") => "see bucket_uri",
        (Error::Precondition { .. }, _) => "it changed during the download; load the model again",
        (error, why) if needs_keys(error, why) => KEYS,
        _ => "check the address, the region and the network",
    };
    SourceError::Bucket {
        uri: uri.to_string(),
        lasting: is_lasting(error) || advice == KEYS || advice == "see bucket_uri",
        why,
        advice,
    }
}

/// Returns true if the bucket refuses the credentials. `why` is the shortened error.
pub(super) fn needs_keys(error: &Error, why: &str) -> bool {
    let is_refused = matches!(
        error,
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. }
    );
    let words = [
        "AccessDenied",
        "InvalidAccessKeyId",
        "SignatureDoesNotMatch",
        "SecretAccessKey",
        "AccessKeyId",
        "401",
        "403",
    ];
    is_refused || words.iter().any(|word| why.contains(word))
}

const KEYS: &str = "see AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (GOOGLE_APPLICATION_CREDENTIALS for gs://) in the pool's environment or in runtime_env.env_vars, s3_aws_credentials, or --no-sign-request in s3_sync_args for a public bucket";

fn is_lasting(error: &Error) -> bool {
    matches!(
        error,
        Error::NotFound { .. }
            | Error::InvalidPath { .. }
            | Error::PermissionDenied { .. }
            | Error::Unauthenticated { .. }
            | Error::NotSupported { .. }
            | Error::UnknownConfigurationKey { .. }
    )
}

/// The server's code, the status, or the innermost cause. The complete response may quote keys.
pub(super) fn shortened(error: &Error) -> String {
    let text = error.to_string();
    let between = |from: &str, to: &str| {
        let rest = &text[text.find(from)? + from.len()..];
        Some(rest[..rest.find(to)?].chars().take(80).collect::<String>())
    };
    if let Some(code) = between("<Code>", "</Code>") {
        return code;
    }
    if let Some(at) = text.find("status code: ") {
        let status: String = text[at + 13..]
            .chars()
            .take_while(|letter| *letter != ':' && *letter != '\n')
            .collect();
        return format!("it answers {}", status.trim());
    }
    match error {
        Error::Precondition { .. } => "the object has changed".to_owned(),
        _ => root_of(error).chars().take(200).collect(),
    }
}
