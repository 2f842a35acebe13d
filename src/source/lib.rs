//! Fetches weights to this machine from the Hugging Face hub, S3, Google Cloud Storage, OCI registries or other machines of the
//! pool, into the hub's own cache layout, where other programs find them too. Downloads run in parallel, resume after interruptions, are verified,
//! and become visible only when complete. The caller decides what to fetch and when.
//!
//! ```text
//! fetch ─▶ list ─▶ select ─▶ room on the disk? ─▶ bring each file ─▶ publish: links, then the manifest
//!           │hub               │                     │ lock, resume, retry, digest, rename
//!           │bucket, registry  └ refused with numbers└ <blob>.incomplete survives every failure
//! ```

mod adapter;
mod adapter_cache;
#[cfg_attr(not(feature = "s3"), path = "no_bucket.rs")]
mod bucket;
mod cache;
mod credentials;
mod disk;
mod error;
#[cfg_attr(not(feature = "s3"), path = "no_file_bucket.rs")]
mod file_bucket;
mod file_bucket_error;
mod file_stream;
mod file_system;
#[doc(hidden)]
pub mod fuzzing;
mod http_status;
mod hub;
mod listing;
mod lock;
mod oci;
mod part;
mod part_writer;
mod peer;
mod peer_fetch;
mod progress;
mod quantization;
mod search;
mod select;
mod transfer;

use std::sync::Arc;
use std::time::Duration;

use futures_util::{FutureExt, StreamExt, TryStreamExt, stream};
use tokio::sync::{OnceCell, Semaphore};

use catalog::{Bucket, BucketUri, ExtraFiles, Fetch, Origin};

pub use adapter::{ADAPTER_FILES_MAX, ListedAdapter};
pub use credentials::NO_TOKEN;
pub use error::SourceError;
pub use file_bucket::{FileBucket, FileBuckets};
pub use file_bucket_error::FileBucketError;
pub use file_stream::FileStream;
pub use file_system::{SharedFileSystem, shared_file_system, shared_file_system_of};
pub use peer::{Peer, PeerError, PeerFile};
pub use progress::Progress;
pub use search::HubModel;

use cache::Layout;
use disk::Rooms;
use listing::{Listing, Origins};
use part::{CONNECT_MAX, Part, STALL_MAX};

/// The error for weights that this program can never fetch, because a feature was not built in.
pub fn not_built(wanted: &Fetch) -> Option<SourceError> {
    let uri = match &wanted.origin {
        Origin::Bucket(bucket) => Some(&bucket.uri),
        Origin::Hub { .. } | Origin::Oci(_) => wanted.extra_files.first().map(|extra| &extra.uri),
    };
    let uri = uri.filter(|_| !cfg!(feature = "s3"))?.to_string();
    Some(SourceError::NotBuilt { uri })
}

/// The error for a bucket of files that this program can never use, because a feature was not built in.
pub fn bucket_not_built(uri: &BucketUri) -> Option<FileBucketError> {
    let uri = uri.to_string();
    (!cfg!(feature = "s3")).then_some(FileBucketError::NotBuilt { uri })
}

/// Time limit for requesting a model's description before it is fetched.
const DESCRIBE_MAX: Duration = Duration::from_secs(20);
const CONFIG: &str = "config.json";
const CONFIG_BYTES_MAX: u64 = 1 << 20;
/// Extensions of weight files.
const WEIGHTS: [&str; 5] = [".safetensors", ".gguf", ".bin", ".pt", ".pth"];

/// The administrator's settings.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The hub's address, without a trailing slash.
    pub hub: String,
    /// Make no network requests and use only the cache.
    pub offline: bool,
    /// Files of one model to fetch simultaneously.
    pub files_at_once: usize,
    /// Models that may use all their parallel downloads simultaneously.
    pub models_at_once: usize,
    /// Bytes to keep free on the disk of the cache.
    pub keep_free: u64,
    /// The first pause before an interrupted download resumes; it doubles each time.
    pub pause: Duration,
}

/// All fetches of one process.
#[derive(Debug)]
pub struct Sources {
    settings: Settings,
    http: OnceCell<reqwest::Client>,
    rooms: Rooms,
    /// Permits for parallel file downloads, for all models.
    files: Semaphore,
}

impl Sources {
    pub fn new(settings: Settings) -> Sources {
        Sources {
            files: Semaphore::new(settings.models_at_once.max(1) * settings.files_at_once.max(1)),
            http: OnceCell::new(),
            rooms: Rooms::default(),
            settings,
        }
    }

    /// Fetches everything in `wanted` to this machine and makes it visible. Dropping the future cancels the fetch; partial files
    /// are kept for the next one. Errors give advice; none contains a token.
    pub async fn fetch(&self, wanted: &Fetch, progress: &Arc<Progress>) -> Result<(), SourceError> {
        progress.set_stage("listing the files");
        let layout = Layout::new(wanted);
        let listing = match self.list(wanted).await {
            Ok(listing) => listing,
            // If the remote side cannot be reached, use the cached files.
            Err(error) if error.is_of_the_network() => {
                let found = layout.cached(wanted).await?;
                return found.ok_or(error);
            }
            Err(error) => return Err(error),
        };
        let mut listings = vec![select::select(listing, wanted)?];
        for extra in &wanted.extra_files {
            let listing = self.list_extra(wanted, extra).await?;
            select::check_names(&listing)?;
            listings.push(listing);
        }
        self.bring_all(wanted, &layout, &mut listings, progress)
            .await?;
        progress.set_stage("publishing the files");
        let mut own = listings.remove(0);
        let mut outside = Vec::new();
        for (extra, listing) in wanted.extra_files.iter().zip(listings) {
            for mut part in listing.parts {
                if extra.destination.is_absolute() {
                    outside.push((extra.destination.join(&part.path), part))
                } else {
                    // A file below the model's folder belongs to the model.
                    part.path = select::below(&extra.destination, &part.path);
                    own.parts.retain(|other| other.path != part.path);
                    own.parts.push(part);
                }
            }
        }
        layout.publish(wanted, &own, outside).await
    }

    /// Checks that `wanted` exists in a form that its engine reads, without fetching it. Returns the number of bytes to fetch.
    pub async fn look(&self, wanted: &Fetch) -> Result<u64, SourceError> {
        let listing = match self.list(wanted).await {
            Ok(listing) => select::select(listing, wanted)?,
            // The local snapshot may be private. Only the hub knows who may read it.
            Err(error)
                if error.is_of_the_network()
                    && !credentials::is_public(wanted)
                    && wanted.snapshot_of_others().is_some() =>
            {
                return Ok(0);
            }
            Err(error) => return Err(error),
        };
        Ok(listing.parts.iter().map(|part| part.size).sum())
    }

    /// Records the size of a hub model before it is fetched: the size of its weights from the hub's listing, and its `config.json`.
    /// Returns the number of bytes to fetch.
    ///
    /// # Errors
    /// If the hub does not have the model, or cannot be reached.
    pub async fn describe(&self, wanted: &Fetch) -> Result<u64, SourceError> {
        let described_in_time = tokio::time::timeout(DESCRIBE_MAX, self.described(wanted)).await;
        described_in_time.unwrap_or_else(|_| {
            Err(SourceError::NoHub {
                what: wanted.describe(),
                why: format!(
                    "it did not report the size within {} s",
                    DESCRIBE_MAX.as_secs()
                ),
            })
        })
    }

    async fn described(&self, wanted: &Fetch) -> Result<u64, SourceError> {
        let listing = match self.list(wanted).await {
            Ok(listing) => select::select(listing, wanted)?,
            Err(error) if error.is_of_the_network() && wanted.snapshot_of_others().is_some() => {
                return Ok(0);
            }
            Err(error) => return Err(error),
        };
        let all = listing.parts.iter().map(|part| part.size).sum();
        let is_weights = |part: &&Part| {
            let name = part.path.to_lowercase();
            WEIGHTS.iter().any(|ending| name.ends_with(ending))
        };
        let bytes: u64 = listing
            .parts
            .iter()
            .filter(is_weights)
            .map(|part| part.size)
            .sum();
        let config = listing.parts.iter().find(|part| part.path == CONFIG);
        let (Some(config), true) = (config, bytes > 0) else {
            return Ok(all);
        };
        let config = match transfer::small(config, &listing.origins, CONFIG_BYTES_MAX).await {
            Ok(config) => config,
            // The model exists anyway; the fetch will show whether it can be read.
            Err(error) => {
                tracing::info!(model = wanted.id, %error, "the size is estimated until the weights are fetched");
                return Ok(all);
            }
        };
        let folder = wanted.description();
        let place = folder.clone();
        let write = move || {
            std::fs::create_dir_all(&folder)?;
            std::fs::write(folder.join(CONFIG), config)?;
            // Written last, because it marks the description as complete.
            std::fs::write(folder.join("bytes"), bytes.to_string())
        };
        let written = tokio::task::spawn_blocking(write).await;
        let written = written.map_err(std::io::Error::other).flatten();
        written.map_err(SourceError::disk(&place))?;
        Ok(all)
    }

    /// Up to `limit` models on the hub whose names contain all the words, most downloaded first. Uses the hub and token for
    /// fetching `like`.
    ///
    /// # Errors
    /// If the hub cannot be reached, does not support searching, or refuses.
    pub async fn search(
        &self,
        words: &str,
        limit: usize,
        like: &Fetch,
    ) -> Result<Vec<HubModel>, SourceError> {
        if self.settings.offline {
            return Err(SourceError::OfflineSearch);
        }
        self.hub(like).await?.search(words, limit).await
    }

    async fn list(&self, wanted: &Fetch) -> Result<Listing, SourceError> {
        match &wanted.origin {
            _ if self.settings.offline => Err(SourceError::Offline {
                id: wanted.id.clone(),
                cache: wanted.cache.clone(),
            }),
            Origin::Hub { revision } => {
                let pinned = wanted.pinned();
                let revision = pinned.as_ref().unwrap_or(revision);
                let hub = self.hub(wanted).await?;
                let listed = hub.list(&wanted.id, revision).await?;
                Ok(Listing::of_hub(hub, &wanted.id, listed))
            }
            Origin::Bucket(bucket) => {
                let store = bucket::open(bucket, wanted, &self.http().await?).await?;
                let listed = bucket::list(&store, &bucket.uri).await?;
                Ok(Listing::new(listed, Origins::Bucket(store)))
            }
            Origin::Oci(reference) => {
                let registry = oci::Registry::new(reference, wanted, self.http().await?);
                let listed = registry.list().await?;
                Ok(Listing::new(listed, Origins::Registry(Arc::new(registry))))
            }
        }
    }

    async fn list_extra(&self, wanted: &Fetch, extra: &ExtraFiles) -> Result<Listing, SourceError> {
        let by = wanted.extra_by.clone();
        let bucket = Bucket {
            uri: extra.uri.clone(),
            ..by.unwrap_or_else(|| Bucket::at(extra.uri.clone()))
        };
        let store = bucket::open(&bucket, wanted, &self.http().await?).await?;
        let listed = bucket::list(&store, &extra.uri).await?;
        Ok(Listing::new(listed, Origins::Bucket(store)))
    }

    /// Downloads every file of every listing into the model's blobs.
    async fn bring_all(
        &self,
        wanted: &Fetch,
        layout: &Layout,
        listings: &mut [Listing],
        progress: &Arc<Progress>,
    ) -> Result<(), SourceError> {
        let (mut total, mut there) = (0, 0);
        for listing in listings.iter_mut() {
            there += transfer::count(&mut listing.parts, layout).await;
            total += listing.parts.iter().map(|part| part.size).sum::<u64>();
        }
        progress.begins(total, there);
        let keep = self.settings.keep_free;
        let _room = self.rooms.take(layout.root(), keep, progress)?;
        for listing in listings.iter_mut() {
            let is_left = listing.parts.iter().any(|part| part.counted < part.size);
            if is_left && matches!(listing.origins, Origins::Bucket(_)) {
                let Listing { parts, origins, .. } = listing;
                transfer::learn_digests(parts, origins, progress).await?;
            }
        }
        progress.set_stage("fetching");
        let parts = listings.iter();
        let parts =
            parts.flat_map(|listing| listing.parts.iter().map(|part| (part, &listing.origins)));
        let mut parts: Vec<(&Part, &Origins)> = parts.collect();
        // Download large files first, which keeps the last download short.
        parts.sort_by_key(|(part, _)| std::cmp::Reverse(part.size));
        let mut jobs = Vec::with_capacity(parts.len());
        for (part, origins) in parts {
            jobs.push(self.bring_one(part, layout, origins, progress).boxed());
        }
        stream::iter(jobs)
            .buffer_unordered(self.settings.files_at_once.max(1))
            .try_for_each(|()| std::future::ready(Ok(())))
            .await?;
        tracing::info!(model = wanted.id, bytes = total, "weights fetched");
        Ok(())
    }

    async fn bring_one(
        &self,
        part: &Part,
        layout: &Layout,
        origins: &Origins,
        progress: &Arc<Progress>,
    ) -> Result<(), SourceError> {
        let (path, lock) = (layout.blob(part), layout.lock_of(part));
        transfer::bring(part, &path, &lock, origins, self, progress).await
    }

    async fn hub(&self, wanted: &Fetch) -> Result<hub::Hub, SourceError> {
        let named = wanted.variable("HF_ENDPOINT");
        let endpoint = named
            .as_deref()
            .map(|endpoint| endpoint.trim_end_matches('/'));
        let endpoint = endpoint.unwrap_or(&self.settings.hub).to_owned();
        if !endpoint.starts_with("http://") && !endpoint.starts_with("https://") {
            return Err(SourceError::NoHub {
                what: "HF_ENDPOINT".to_owned(),
                why: "it is not a URL such as https://huggingface.co".to_owned(),
            });
        }
        Ok(hub::Hub {
            http: self.http().await?,
            endpoint,
            token: credentials::hub_token(wanted).await,
            cache: wanted.cache.clone(),
        })
    }

    /// Created on first use: a machine without certificate authorities can still serve cached models.
    async fn http(&self) -> Result<reqwest::Client, SourceError> {
        let client = self.http.get_or_try_init(|| async {
            // An earlier call has installed the same provider.
            let _ = tokio_rustls::rustls::crypto::ring::default_provider().install_default();
            reqwest::Client::builder()
                .connect_timeout(CONNECT_MAX)
                .read_timeout(STALL_MAX)
                .referer(false)
                .user_agent(concat!("model-pool/", env!("CARGO_PKG_VERSION")))
                .build()
        });
        let client = client.await.map_err(|error| SourceError::NoClient {
            why: error::root_of(&error),
        })?;
        Ok(client.clone())
    }
}
