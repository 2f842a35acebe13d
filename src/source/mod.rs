//! Brings weights to this machine: from the Hugging Face hub, from S3 or from Google's storage, into the
//! hub's own cache layout, so that every other program finds them too. It owns downloads: several at a
//! time, taken up again where they were broken off, checked, and visible to others only when complete.
//! It never decides what is fetched or when, and it never reads a model.
//!
//! ```text
//! fetch ─▶ list ─▶ select ─▶ room on the disk? ─▶ bring each file ─▶ publish: links, then the manifest
//!           │hub               │                     │ lock, resume, retry, digest, rename
//!           │bucket            └ refused with numbers└ <blob>.incomplete survives whatever happens
//! ```

mod bucket;
mod cache;
mod credentials;
mod disk;
mod fault;
mod hub;
mod lock;
mod part;
mod progress;
mod select;
mod transfer;
mod write;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{FutureExt, StreamExt, TryStreamExt, stream};
use tokio::sync::{OnceCell, Semaphore};

use crate::catalog::{Fetch, Origin};

pub use fault::SourceFault;
pub use progress::Progress;

use cache::Layout;
use disk::Rooms;
use part::{Listing, Origins, Part};

/// Connecting takes two round trips; a server that sends nothing for so long has stalled.
const CONNECT_MAX: Duration = Duration::from_secs(10);
const STALL_MAX: Duration = Duration::from_secs(30);

/// What an administrator sets.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The hub's address, without a slash at its end.
    pub hub: String,
    /// Nothing is asked over the network; what the cache holds is used.
    pub offline: bool,
    /// Files of one model that are fetched at once.
    pub files_at_once: usize,
    /// Models that are fetched at once.
    pub models_at_once: usize,
    /// Bytes that stay free on the disk of the cache.
    pub keep_free: u64,
    /// The first pause before a broken download is taken up again; doubles each time.
    pub pause: Duration,
}

/// All fetches of one process.
#[derive(Debug)]
pub struct Sources {
    settings: Settings,
    http: OnceCell<reqwest::Client>,
    rooms: Rooms,
    slots: Semaphore,
}

impl Sources {
    pub fn new(settings: Settings) -> Sources {
        Sources {
            slots: Semaphore::new(settings.models_at_once.max(1)),
            http: OnceCell::new(),
            rooms: Rooms::default(),
            settings,
        }
    }

    /// Brings all that `wanted` names to this machine and makes it visible. Dropping the future ends it;
    /// what has come is kept for the next one. Errors say what to do; none holds a token.
    pub async fn fetch(&self, wanted: &Fetch, progress: &Arc<Progress>) -> Result<(), SourceFault> {
        let _slot = self.slots.acquire().await.expect("it is never closed");
        progress.says("asking what there is");
        let layout = Layout::of(wanted);
        let listed = match &wanted.origin {
            Origin::Hub { .. } if self.settings.offline => Err(SourceFault::Offline {
                id: wanted.id.clone(),
                cache: wanted.cache.clone(),
            }),
            Origin::Hub { revision } => self.hub(wanted).await?.list(&wanted.id, revision).await,
            Origin::Bucket(bucket) => {
                let store = bucket::open(bucket, wanted, &self.http().await?).await?;
                bucket::list(&store, &bucket.uri).await
            }
        };
        let listing = match listed {
            Ok(listing) => listing,
            // What is here is as good as what cannot be asked for.
            Err(fault) if fault.is_of_the_network() => {
                let found = layout.cached(wanted).await?;
                return found.ok_or(fault);
            }
            Err(fault) => return Err(fault),
        };
        let listing = select::select(listing, wanted)?;
        self.bring_all(wanted, &layout, &listing, progress).await?;
        for extra in &wanted.extra_files {
            self.bring_extra(wanted, extra, &layout, &listing, progress)
                .await?;
        }
        progress.says("making it visible");
        layout.publish(wanted, &listing).await
    }

    async fn bring_all(
        &self,
        wanted: &Fetch,
        layout: &Layout,
        listing: &Listing,
        progress: &Arc<Progress>,
    ) -> Result<(), SourceFault> {
        let mut parts = listing.parts.clone();
        let there = transfer::count(&mut parts, layout).await;
        let total = parts.iter().map(|part| part.size).sum();
        progress.begins(total, there);
        let _room = self
            .rooms
            .take(layout.root(), self.settings.keep_free, progress)?;
        if let Origins::Bucket(_) = &listing.origins {
            transfer::learn_digests(&mut parts, listing, layout, self, progress).await?;
        }
        progress.says("fetching");
        let at_once = self.settings.files_at_once.max(1);
        // Large ones first: the last one to end is then a small one.
        parts.sort_by_key(|part| std::cmp::Reverse(part.size));
        let mut jobs = Vec::with_capacity(parts.len());
        for part in &parts {
            let path = layout.blob(part);
            jobs.push(
                self.bring_one(part, path, layout, &listing.origins, progress)
                    .boxed(),
            );
        }
        stream::iter(jobs)
            .buffer_unordered(at_once)
            .try_for_each(|()| std::future::ready(Ok(())))
            .await?;
        tracing::info!(model = wanted.id, bytes = total, "weights fetched");
        Ok(())
    }

    async fn bring_one(
        &self,
        part: &Part,
        path: PathBuf,
        layout: &Layout,
        origins: &Origins,
        progress: &Progress,
    ) -> Result<(), SourceFault> {
        let lock = layout.lock_of(part);
        transfer::bring(part, &path, &lock, origins, self, progress).await
    }

    /// Files that the model's file wants elsewhere, from a bucket as well.
    async fn bring_extra(
        &self,
        wanted: &Fetch,
        extra: &crate::catalog::ExtraFiles,
        layout: &Layout,
        listing: &Listing,
        progress: &Arc<Progress>,
    ) -> Result<(), SourceFault> {
        let folder = match extra.destination.is_absolute() {
            true => extra.destination.clone(),
            false => layout.snapshot(&listing.commit).join(&extra.destination),
        };
        let bucket = crate::catalog::Bucket {
            uri: extra.uri.clone(),
            ..wanted.bucket_for_extras()
        };
        let store = bucket::open(&bucket, wanted, &self.http().await?).await?;
        let listed = bucket::list(&store, &extra.uri).await?;
        select::check_names(&listed)?;
        progress.says(&format!("fetching extra files into {}", folder.display()));
        for part in &listed.parts {
            let path = folder.join(&part.path);
            progress.more(part.size);
            self.bring_one(part, path, layout, &listed.origins, progress)
                .await?;
        }
        Ok(())
    }

    async fn hub(&self, wanted: &Fetch) -> Result<hub::Hub, SourceFault> {
        Ok(hub::Hub {
            http: self.http().await?,
            endpoint: wanted.variable("HF_ENDPOINT").map_or_else(
                || self.settings.hub.clone(),
                |it| it.trim_end_matches('/').to_owned(),
            ),
            token: credentials::hub_token(wanted).await,
            cache: wanted.cache.clone(),
        })
    }

    /// Made when it is first needed: a machine without authorities serves what it has.
    async fn http(&self) -> Result<reqwest::Client, SourceFault> {
        let client = self.http.get_or_try_init(|| async {
            // Whoever was first has set the very same.
            let _ = tokio_rustls::rustls::crypto::ring::default_provider().install_default();
            reqwest::Client::builder()
                .connect_timeout(CONNECT_MAX)
                .read_timeout(STALL_MAX)
                .referer(false)
                .user_agent(concat!("model-pool/", env!("CARGO_PKG_VERSION")))
                .build()
        });
        let client = client.await.map_err(|error| SourceFault::NoClient {
            why: fault::root_of(&error),
        })?;
        Ok(client.clone())
    }
}
