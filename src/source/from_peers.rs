//! Fetches weights from machines of the same pool that have them, and from their usual source what those do not give: the
//! list of the files and their digests comes from the caller, so that no peer is trusted.
//!
//! ```text
//! known files ─▶ each from a peer, resumed and verified ─▶ all right? publish
//!                        │ gone, slow, busy, damaged          │ no
//!                        └ the other peer takes its files     └▶ the usual fetch, which goes on where they were
//! ```

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::join_all;

use super::Sources;
use super::cache::Layout;
use super::fault::SourceFault;
use super::listing::{Listing, Origins};
use super::part::{Check, Part};
use super::peer::{Peer, PeerSource};
use super::progress::Progress;
use super::{select, transfer};
use catalog::{Fetch, ListedFile, WeightsListing};

/// More would take connections from others and bring little.
const PEERS_MAX: usize = 2;

/// Files that no peer has begun to send.
type Queue = Mutex<VecDeque<Part>>;

impl Sources {
    /// Fetches the files of `known` from the first two peers, and what they do not give from its usual source. What the cache
    /// has already, as one on a shared file system does, needs neither. `wanted` names the same state of the model. Dropping
    /// the future cancels the fetch; what has arrived is kept.
    ///
    /// # Errors
    /// Those of the usual source: what a peer does wrong is logged, and other sources take its place.
    pub async fn fetch_with_peers(
        &self,
        wanted: &Fetch,
        known: &WeightsListing,
        peers: Vec<Box<dyn Peer>>,
        progress: &Arc<Progress>,
    ) -> Result<(), SourceFault> {
        let layout = Layout::of(wanted);
        if let Some(listing) = self
            .copied_from_peers(&layout, known, peers, progress)
            .await?
        {
            progress.set_stage("publishing the files");
            return layout.publish(wanted, &listing, Vec::new()).await;
        }
        self.fetch(wanted, progress).await
    }

    /// All files of the model, once they are here. `None`: some are missing.
    async fn copied_from_peers(
        &self,
        layout: &Layout,
        known: &WeightsListing,
        peers: Vec<Box<dyn Peer>>,
        progress: &Arc<Progress>,
    ) -> Result<Option<Listing>, SourceFault> {
        let peers = peers.into_iter().take(PEERS_MAX);
        let peers: Vec<Arc<PeerSource>> = peers.map(|it| Arc::new(PeerSource::new(it))).collect();
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
                // A copy that nothing can be compared with is not taken.
                Check::Size => is_verifiable = false,
                _ => parts.push(part.clone()),
            }
        }
        let is_news = !parts.is_empty();
        // Large files first, so that the last download is a small one.
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
            let nodes: Vec<&str> = peers.iter().map(|it| it.node()).collect();
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

    /// Takes files from the queue until none is left or the peer fails; its file goes back then. Fails where this machine
    /// does.
    async fn empty(
        &self,
        queue: &Queue,
        peer: &Arc<PeerSource>,
        layout: &Layout,
        progress: &Arc<Progress>,
    ) -> Result<(), SourceFault> {
        let origins = Origins::Peer(Arc::clone(peer));
        while let Some(part) = take(queue) {
            progress.set_stage(&format!("fetching from node {}", peer.node()));
            let (path, lock) = (layout.blob(&part), layout.lock_of(&part));
            match transfer::bring(&part, &path, &lock, &origins, self, progress).await {
                Ok(()) => {}
                Err(fault @ (SourceFault::Peer { .. } | SourceFault::BrokenOff { .. })) => {
                    tracing::warn!("{fault}");
                    // What has arrived of it is counted.
                    let mut again = [part];
                    transfer::count(&mut again, layout).await;
                    lock_queue(queue).extend(again);
                    return Ok(());
                }
                Err(fault) => return Err(fault),
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
