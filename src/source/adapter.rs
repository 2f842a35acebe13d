//! Downloads a LoRA adapter from a bucket: lists it, downloads its description for the caller to check, and then the other files.
//! It becomes visible under its final name once it is complete.
//!
//! ```text
//! CACHE/NAME-DIGEST-STATE           the files of a complete adapter
//!      /NAME-DIGEST-STATE.partial   during the download; DIGEST is derived from the address, STATE from its files there
//! ```

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::{FutureExt, StreamExt, TryStreamExt, stream};
use sha1::Digest as _;

use super::Sources;
use super::adapter_cache;
use super::error::SourceError;
use super::listing::Listing;
use super::part::Part;
use super::part_writer::hex;
use super::progress::Progress;
use super::select;
use super::transfer;
use catalog::{AdapterBucket, Origin};
use pool::Bytes;

/// Maximum files of one adapter.
pub const ADAPTER_FILES_MAX: usize = 1000;
/// Maximum length of the readable part of a name.
const READABLE_MAX: usize = 100;
/// Length of a digest.
const DIGEST_MAX: usize = 16;

/// An adapter in a bucket, with its listing.
#[derive(Clone, Debug)]
pub struct ListedAdapter {
    listing: Listing,
    /// The final folder of the complete adapter.
    folder: PathBuf,
}

impl ListedAdapter {
    /// Total size of its files.
    pub fn bytes(&self) -> Bytes {
        let parts = self.listing.parts.iter();
        Bytes(parts.fold(0, |sum, part| sum.saturating_add(part.size)))
    }

    pub fn files(&self) -> usize {
        self.listing.parts.len()
    }

    /// The local folder, if the adapter is complete there. Counts as a use of the adapter. Blocking.
    pub fn here(&self) -> Option<PathBuf> {
        let is_right = |part: &Part| {
            let found = std::fs::metadata(self.folder.join(&part.path));
            found.is_ok_and(|found| found.len() == part.size)
        };
        let is_whole = self.listing.parts.iter().all(is_right);
        is_whole.then(|| {
            adapter_cache::touch(&self.folder);
            self.folder.clone()
        })
    }

    fn partial(&self) -> PathBuf {
        let mut name = self.folder.file_name().unwrap_or_default().to_owned();
        name.push(".partial");
        self.folder.with_file_name(name)
    }
}

/// The common prefix of the folders of all states of an adapter.
fn stem(bucket: &AdapterBucket, name: &str) -> String {
    let uri = match bucket.fetch(name).origin {
        Origin::Bucket(bucket) => bucket.uri.to_string(),
        Origin::Hub { .. } | Origin::Oci(_) => String::new(),
    };
    let plain = |letter: char| match letter {
        letter if letter.is_ascii_alphanumeric() || "-_".contains(letter) => letter,
        _ => '-',
    };
    let readable: String = name.chars().map(plain).take(READABLE_MAX).collect();
    let digest = hex(&sha2::Sha256::digest(uri.as_bytes()));
    format!("{readable}-{}-", &digest[..DIGEST_MAX])
}

impl Sources {
    /// Lists the adapter in the bucket's folder with this name. `None`: the folder is empty or missing.
    ///
    /// # Errors
    /// If the bucket cannot be read, or has names that cannot be written.
    pub async fn list_adapter(
        &self,
        bucket: &AdapterBucket,
        name: &str,
    ) -> Result<Option<ListedAdapter>, SourceError> {
        let mut listing = match self.list(&bucket.fetch(name)).await {
            Ok(listing) => listing,
            Err(SourceError::Empty { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        // Subfolders are training checkpoints, which engines do not read.
        let is_own = |path: &str| !path.contains('/') && !path.starts_with('.');
        listing.parts.retain(|part| is_own(&part.path));
        if listing.parts.is_empty() {
            return Ok(None);
        }
        select::check_names(&listing)?;
        listing
            .parts
            .sort_by(|one, other| one.path.cmp(&other.path));
        let mut state = sha2::Sha256::new();
        for part in &listing.parts {
            state.update(&part.blob);
        }
        let state = hex(&state.finalize());
        let folder = format!("{}{}", stem(bucket, name), &state[..DIGEST_MAX]);
        Ok(Some(ListedAdapter {
            listing,
            folder: bucket.fetch.cache.join(folder),
        }))
    }

    /// Downloads one file of the adapter. Returns the folder that contains the file; other files may be missing there.
    ///
    /// # Errors
    /// If the file cannot be read or written.
    pub async fn bring_file_of_adapter(
        &self,
        listed: &ListedAdapter,
        file: &str,
    ) -> Result<PathBuf, SourceError> {
        let partial = listed.partial();
        let part = listed.listing.parts.iter().find(|part| part.path == file);
        if let Some(part) = part {
            let progress = Arc::new(Progress::default());
            self.bring_part(listed, part, &partial, &progress).await?;
        }
        Ok(partial)
    }

    /// Downloads the complete adapter and makes it visible. Removes the least recently used adapters to make room.
    ///
    /// # Errors
    /// If files cannot be read or written, or the cache has no room.
    pub async fn bring_adapter(
        &self,
        bucket: &AdapterBucket,
        listed: &ListedAdapter,
    ) -> Result<PathBuf, SourceError> {
        let partial = listed.partial();
        let (cache, most) = (bucket.fetch.cache.clone(), bucket.cache_bytes_max);
        let (own, needed) = (partial.clone(), listed.bytes());
        blocking(&cache, {
            let cache = cache.clone();
            move || adapter_cache::make_room(&cache, &own, needed, most)
        })
        .await?
        .map_err(|in_use| SourceError::AdaptersFull {
            needs: needed.0,
            in_use: in_use.0,
            most: most.0,
        })?;
        let mut listing = listed.listing.clone();
        let progress = Arc::new(Progress::default());
        progress.begins(needed.0, 0);
        let _room = self
            .rooms
            .take(&partial, self.settings.keep_free, &progress)?;
        let Listing { parts, origins, .. } = &mut listing;
        transfer::learn_digests(parts, origins, &progress).await?;
        let mut jobs = Vec::with_capacity(listing.parts.len());
        for part in &listing.parts {
            jobs.push(self.bring_part(listed, part, &partial, &progress).boxed());
        }
        stream::iter(jobs)
            .buffer_unordered(self.settings.files_at_once.max(1))
            .try_for_each(|()| std::future::ready(Ok(())))
            .await?;
        let folder = listed.folder.clone();
        blocking(&cache, move || adapter_cache::publish(&partial, &folder)).await?;
        tracing::info!(folder = %listed.folder.display(), bytes = needed.0, "adapter fetched");
        Ok(listed.folder.clone())
    }

    /// Removes a partial download.
    pub async fn discard_adapter(&self, listed: &ListedAdapter) {
        let partial = listed.partial();
        let removed = tokio::task::spawn_blocking(move || std::fs::remove_dir_all(partial)).await;
        if let Ok(Err(error)) = removed
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%error, "a partially downloaded adapter could not be removed");
        }
    }

    /// The most recently downloaded state of an adapter, for use when its bucket cannot be read.
    pub async fn adapter_brought_before(
        &self,
        bucket: &AdapterBucket,
        name: &str,
    ) -> Option<PathBuf> {
        let (cache, stem) = (bucket.fetch.cache.clone(), stem(bucket, name));
        let newest = tokio::task::spawn_blocking(move || {
            adapter_cache::newest(&cache, &stem).inspect(|folder| adapter_cache::touch(folder))
        });
        newest.await.ok().flatten()
    }

    async fn bring_part(
        &self,
        listed: &ListedAdapter,
        part: &Part,
        partial: &Path,
        progress: &Arc<Progress>,
    ) -> Result<(), SourceError> {
        let path = partial.join(&part.path);
        // In the same folder as the files, to be removed with them.
        let lock = partial.join(adapter_cache::LOCKS).join(&part.path);
        let origins = &listed.listing.origins;
        transfer::bring(part, &path, &lock, origins, self, progress).await
    }
}

async fn blocking<T: Send + 'static>(
    at: &Path,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, SourceError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(io::Error::other)
        .flatten()
        .map_err(SourceError::disk(at))
}
