//! Fetches weights from other machines of the pool, and missing files from their usual source. The caller provides the list of
//! files with their digests, which means that peers need not be trusted.
//!
//! ```text
//! known files ─▶ each from a peer, resumed and verified ─▶ all right? publish
//!                        │ gone, slow, busy, damaged          │ no
//!                        └ the other peer takes its files     └▶ the usual fetch, which continues with the partial files
//! ```

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::join_all;

use super::Sources;
use super::cache::Layout;
use super::error::SourceError;
use super::listing::{Listing, Origins};
use super::part::{Check, Part};
use super::peer::{Peer, PeerSource};
use super::progress::Progress;
use super::{select, transfer};
use catalog::{Fetch, ListedFile, WeightsListing};

/// A larger number would take connections from others for little gain.
const PEERS_MAX: usize = 2;

/// Files that no peer is sending yet.
type Queue = Mutex<VecDeque<Part>>;

impl Sources {
    /// Fetches the files of `known` from the first two peers, and missing ones from their usual source. Files that the cache
    /// already has, for example on a shared file system, are not transferred. `wanted` names the same revision of the model.
    /// Dropping the future cancels the fetch; partial files are kept.
    ///
    /// # Errors
    /// The errors of the usual source. A peer's faults are only logged, because other sources replace it.
    pub async fn fetch_with_peers(
        &self,
        wanted: &Fetch,
        known: &WeightsListing,
        peers: Vec<Box<dyn Peer>>,
        progress: &Arc<Progress>,
    ) -> Result<(), SourceError> {
        let layout = Layout::new(wanted);
        if let Some(listing) = self
            .copied_from_peers(&layout, known, peers, progress)
            .await?
        {
            progress.set_stage("publishing the files");
            return layout.publish(wanted, &listing, Vec::new()).await;
        }
        self.fetch(wanted, progress).await
    }

    /// Copies from peers and returns all files of the model. `None`: some are missing.
    async fn copied_from_peers(
        &self,
        layout: &Layout,
        known: &WeightsListing,
        peers: Vec<Box<dyn Peer>>,
        progress: &Arc<Progress>,
    ) -> Result<Option<Listing>, SourceError> {
        let peers = peers.into_iter().take(PEERS_MAX);
        let peers: Vec<Arc<PeerSource>> =
            peers.map(|peer| Arc::new(PeerSource::new(peer))).collect();
        let is_blob = |file: &ListedFile| {
            let is_hex = file.blob.bytes().all(|byte| byte.is_ascii_hexdigit());
            is_hex && matches!(file.blob.len(), 40 | 64)
        };
        // Other names could lead out of the cache.
        if !known.files.iter().all(is_blob) {
            return Ok(None);
        }
        let first = peers.first().map(Arc::clone);
        let first = first.unwrap_or_else(|| Arc::new(PeerSource::none()));
        let mut listing = Listing {
            commit: known.commit.clone(),
            parts: known.files.iter().map(part).collect(),
            origins: Origins::Peer(first),
        };
        select::check_names(&listing)?;
        let there = transfer::count(&mut listing.parts, layout).await;
        progress.begins(known.bytes(), there);
        let keep = self.settings.keep_free;
        let _room = self.rooms.take(layout.root(), keep, progress)?;
        let (mut parts, mut is_verifiable) = (Vec::new(), true);
        for part in &listing.parts {
            if transfer::is_there(&layout.blob(part), part).await {
                continue;
            }
            match part.check {
                // Copies that cannot be verified are not accepted.
                Check::Size => is_verifiable = false,
                _ => parts.push(part.clone()),
            }
        }
        let is_news = !parts.is_empty();
        // Download large files first, which keeps the last download short.
        parts.sort_by_key(|part| std::cmp::Reverse(part.size));
        let queue = Mutex::new(VecDeque::from(parts));
        let workers = peers
            .iter()
            .map(|peer| self.empty(&queue, peer, layout, progress));
        for ended in join_all(workers).await {
            ended?;
        }
        let is_complete = take(&queue).is_none() && is_verifiable;
        if is_complete && is_news {
            let nodes: Vec<&str> = peers.iter().map(|peer| peer.node()).collect();
            let nodes = nodes.join(", ");
            tracing::info!(
                model = known.name,
                bytes = known.bytes(),
                nodes,
                "weights fetched from nodes"
            );
        }
        Ok(is_complete.then_some(listing))
    }

    /// Takes files from the queue until it is empty or the peer fails, which returns its file to the queue. Fails only on local
    /// errors.
    async fn empty(
        &self,
        queue: &Queue,
        peer: &Arc<PeerSource>,
        layout: &Layout,
        progress: &Arc<Progress>,
    ) -> Result<(), SourceError> {
        let origins = Origins::Peer(Arc::clone(peer));
        while let Some(part) = take(queue) {
            progress.set_stage(&format!("fetching from node {}", peer.node()));
            let (path, lock) = (layout.blob(&part), layout.lock_of(&part));
            match transfer::bring(&part, &path, &lock, &origins, self, progress).await {
                Ok(()) => {}
                Err(error @ (SourceError::Peer { .. } | SourceError::BrokenOff { .. })) => {
                    tracing::warn!("{error}");
                    // Count the partial file again.
                    let mut again = [part];
                    transfer::count(&mut again, layout).await;
                    lock_queue(queue).extend(again);
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn take(queue: &Queue) -> Option<Part> {
    lock_queue(queue).pop_front()
}

fn lock_queue(queue: &Queue) -> std::sync::MutexGuard<'_, VecDeque<Part>> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

fn part(file: &ListedFile) -> Part {
    Part {
        path: file.path.clone(),
        size: file.bytes,
        blob: file.blob.clone(),
        check: file
            .digest
            .as_deref()
            .and_then(Check::parse)
            .unwrap_or(Check::Size),
        counted: 0,
        etag: None,
    }
}
