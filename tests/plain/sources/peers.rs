//! Weights from other nodes: the hub is only used if a peer does not send the right files.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream;
use model_pool::catalog::{Fetch, WeightsListing};
use model_pool::source::{Peer, PeerError, PeerFile, Progress, Sources};
use support::hub::{COMMIT, hex};

use super::{Lab, WEIGHTS, incomplete, weights};

/// The size of one piece of a body.
const PIECE: usize = 50_000;

/// A node with files, by content name.
#[derive(Clone, Default)]
struct FakePeer {
    files: BTreeMap<String, Vec<u8>>,
    /// Each body ends there, and then the node disappears.
    vanishes_after: Option<usize>,
    is_busy: bool,
    opened: Arc<AtomicUsize>,
}

impl Peer for FakePeer {
    fn node(&self) -> &str {
        "lab-3"
    }

    fn open<'a>(
        &'a self,
        blob: &'a str,
        offset: u64,
    ) -> Pin<Box<dyn Future<Output = Result<PeerFile, PeerError>> + Send + 'a>> {
        let times = self.opened.fetch_add(1, Ordering::Relaxed);
        let content = self.files.get(blob).cloned();
        Box::pin(async move {
            if self.is_busy {
                return Err(PeerError::Busy);
            }
            if self.vanishes_after.is_some() && times > 0 {
                return Err(PeerError::Failed("connection refused".to_owned()));
            }
            let content = content.ok_or(PeerError::Failed("not there".to_owned()))?;
            let from = usize::try_from(offset).unwrap();
            let rest = &content[from..];
            let sent = &rest[..self.vanishes_after.unwrap_or(rest.len()).min(rest.len())];
            let pieces = sent
                .chunks(PIECE)
                .map(|chunk| Ok(Bytes::copy_from_slice(chunk)));
            let mut pieces: Vec<Result<Bytes, String>> = pieces.collect();
            if sent.len() < rest.len() {
                pieces.push(Err("the connection broke".to_owned()));
            }
            Ok(PeerFile {
                offset,
                body: stream::iter(pieces).boxed(),
            })
        })
    }
}

/// A machine without the weights, and the controller's description of them.
struct Node {
    lab: Lab,
    wanted: Fetch,
    known: WeightsListing,
    peer: FakePeer,
}

impl Node {
    /// The controller has downloaded the model; this node has a separate cache.
    async fn new() -> Node {
        let lab = Lab::new();
        let of_controller = lab.wanted();
        lab.fetch(&of_controller).await.unwrap();
        let known = of_controller.listing().expect("it is complete");
        assert_eq!((known.commit.as_str(), known.files.len()), (COMMIT, 3));
        let blobs = lab.cache.path().join("models--lab--model/blobs");
        let content = |blob: &String| std::fs::read(blobs.join(blob)).unwrap();
        let files = known.files.iter();
        let files = files.map(|file| (file.blob.clone(), content(&file.blob)));
        let peer = FakePeer {
            files: files.collect(),
            ..FakePeer::default()
        };
        let own = lab.cache.path().join("node");
        let wanted = of_controller.moved(&own.join("cache"), &own.join("notes"), &known);
        assert!(!wanted.is_here());
        Node {
            lab,
            wanted,
            known,
            peer,
        }
    }

    async fn fetch(&self, peer: &FakePeer) -> Arc<Progress> {
        let progress = Arc::new(Progress::default());
        let peers: Vec<Box<dyn Peer>> = vec![Box::new(peer.clone())];
        let sources = Sources::new(self.lab.settings());
        let fetched = sources.fetch_with_peers(&self.wanted, &self.known, peers, &progress);
        let fetched = tokio::time::timeout(super::PATIENCE, fetched).await;
        fetched.expect("it ends").expect("it is fetched");
        let content = std::fs::read(self.wanted.folder().join("model.safetensors"));
        assert_eq!(content.unwrap(), weights(0));
        assert!(self.wanted.is_here());
        let own = self.wanted.listing().expect("it is complete");
        assert!(own.is_same(&self.known), "{own:?}");
        progress
    }

    /// Content name of the weights.
    fn blob(&self) -> String {
        let mut files = self.known.files.iter();
        let file = files.find(|file| file.path == "model.safetensors");
        file.expect("it has weights").blob.clone()
    }
}

#[tokio::test]
async fn a_peer_with_all_files_makes_the_hub_unnecessary() {
    let node = Node::new().await;
    let (listed, files) = (node.lab.hub.listed(), node.lab.hub.asked().len());
    let progress = node.fetch(&node.peer).await;
    assert_eq!(node.lab.hub.listed(), listed);
    assert_eq!(node.lab.hub.asked().len(), files);
    assert_eq!(progress.percent(), Some(100));
    // Local files need neither the peer nor the hub.
    let opened = node.peer.opened.load(Ordering::Relaxed);
    node.fetch(&node.peer).await;
    assert_eq!(node.peer.opened.load(Ordering::Relaxed), opened);
    assert_eq!(node.lab.hub.asked().len(), files);
}

#[tokio::test]
async fn a_download_continues_from_the_hub_where_a_peer_disconnected() {
    let node = Node::new().await;
    let half = WEIGHTS / 2;
    let peer = FakePeer {
        vanishes_after: Some(half),
        ..node.peer.clone()
    };
    node.fetch(&peer).await;
    let mut last = node.lab.hub.asked().into_iter();
    let last = last
        .rfind(|request| request.path == "model.safetensors")
        .unwrap();
    assert_eq!(last.from, half, "it restarted from the beginning");
    assert!(incomplete(&node.lab).is_empty());
}

#[tokio::test]
async fn a_damaged_copy_from_a_peer_is_refused_and_the_file_is_fetched_from_the_hub() {
    let node = Node::new().await;
    let mut peer = node.peer.clone();
    let content = peer.files.get_mut(&node.blob()).expect("it has weights");
    content[WEIGHTS / 2] ^= 1;
    node.fetch(&peer).await;
    let mut last = node.lab.hub.asked().into_iter();
    let last = last
        .rfind(|request| request.path == "model.safetensors")
        .unwrap();
    assert_eq!(last.from, 0, "the damaged copy was discarded");
    let opened = peer.opened.load(Ordering::Relaxed);
    assert_eq!(opened, 1, "it is not used for other files");
}

#[tokio::test]
async fn no_file_is_taken_without_a_digest_or_from_a_busy_peer() {
    let mut node = Node::new().await;
    let files = node.lab.hub.asked().len();
    let busy = FakePeer {
        is_busy: true,
        ..node.peer.clone()
    };
    tokio::time::timeout(Duration::from_secs(20), node.fetch(&busy))
        .await
        .expect("a busy peer is given up soon");
    assert_eq!(node.lab.hub.asked().len(), files + 3);
    std::fs::remove_dir_all(node.lab.cache.path().join("node")).unwrap();
    for file in &mut node.known.files {
        file.digest = None;
    }
    node.fetch(&node.peer).await;
    assert_eq!(
        node.peer.opened.load(Ordering::Relaxed),
        5,
        "the busy one's"
    );
    assert_eq!(node.lab.hub.asked().len(), files + 6);
}

#[tokio::test]
async fn the_listing_contains_the_digests_of_the_hub() {
    let node = Node::new().await;
    let digest = |path: &str| {
        let file = node.known.files.iter().find(|file| file.path == path);
        file.and_then(|file| file.digest.clone()).unwrap()
    };
    let sha256 = {
        use sha2::Digest as _;
        hex(&sha2::Sha256::digest(weights(0)))
    };
    assert_eq!(digest("model.safetensors"), format!("sha256:{sha256}"));
    assert!(digest("config.json").starts_with("git:"));
}
