//! Weights on this node: fetches the weights of a launch before its engine starts, and tracks the complete models.
//!
//! ```text
//! order ─▶ readable at the controller's place? ─▶ use them there, on NFS and the like
//!            │ no
//!            ├─▶ complete in this node's cache? ─▶ use them
//!            └─▶ from nodes that have them, then from the hub or the mirror ─▶ use them
//! ```

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use catalog::{Fetch, WeightsListing, complete_below};
use engine::{ExitReport, Failure, Program};
use node_link::WeightsForm;
use pool::{Bytes, Remedy};
use source::{Peer, Progress, SharedFileSystem, SourceError, Sources, shared_file_system};

use super::peer_client::PeerNode;

/// Interval at which a fetch reports its progress.
const REPORT_EVERY: Duration = Duration::from_secs(1);

/// Settings for weights on a node.
#[derive(Clone, Debug)]
pub struct WeightsSettings {
    pub sources: source::Settings,
    /// The hub's cache on this machine; `None` if it has no place.
    pub cache: Option<PathBuf>,
    /// Maximum number of files sent to other nodes simultaneously.
    pub peers_at_once: u32,
    /// Copies weights even if they can be read at the controller's path.
    pub copy_shared: bool,
}

pub(super) struct Weights {
    sources: Sources,
    cache: Option<PathBuf>,
    /// Absolute path of a folder that only this node uses.
    notes: PathBuf,
    copy_shared: bool,
    /// Models complete in the cache.
    complete: Mutex<Vec<String>>,
    /// Models that could be read at the controller's path.
    readable: Mutex<BTreeSet<String>>,
}

/// A folder that replaces the controller's in a launch.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct MovedFolder {
    pub from: PathBuf,
    pub to: PathBuf,
}

/// The reason weights could not be fetched.
#[derive(Debug, thiserror::Error)]
pub(super) enum WeightsError {
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error(
        "this node has no place for weights: neither HF_HUB_CACHE, HF_HOME nor HOME is set; set sources.cache_dir in its configuration"
    )]
    NoCache,
}

impl Weights {
    pub fn new(settings: WeightsSettings, notes: PathBuf) -> Weights {
        Weights {
            sources: Sources::new(settings.sources),
            cache: settings.cache,
            notes,
            copy_shared: settings.copy_shared,
            complete: Mutex::default(),
            readable: Mutex::default(),
        }
    }

    /// The models complete here, as of the latest check.
    pub fn complete(&self) -> Vec<String> {
        let complete = self.complete.lock();
        complete.unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn readable(&self) -> Vec<String> {
        let readable = self.readable.lock();
        let readable = readable.unwrap_or_else(PoisonError::into_inner);
        readable.iter().cloned().collect()
    }

    fn note_readable(&self, id: String, so: bool) {
        let readable = self.readable.lock();
        let mut readable = readable.unwrap_or_else(PoisonError::into_inner);
        if so {
            readable.insert(id)
        } else {
            readable.remove(&id)
        };
    }

    /// Updates the list of complete models.
    pub async fn look(&self) {
        let notes = self.notes.clone();
        if let Ok(found) = tokio::task::spawn_blocking(move || complete_below(&notes)).await {
            *self.complete.lock().unwrap_or_else(PoisonError::into_inner) = found;
        }
    }

    /// Fetches the weights, unless they can be read at the controller's path (`None`). Calls `report` now and then with the origin
    /// and the percentage.
    pub async fn bring(
        &self,
        model: &str,
        form: WeightsForm,
        mut report: impl FnMut(String, Option<u8>) + Send,
    ) -> Result<Option<MovedFolder>, WeightsError> {
        let WeightsForm {
            fetch,
            listing,
            peers,
        } = form;
        let from = fetch.folder();
        let readable = if self.copy_shared {
            None
        } else {
            readable_on(&listing, &from).await
        };
        self.note_readable(listing.id(), readable.is_some());
        if let Some(kind) = readable {
            tracing::info!("{model}: its weights are used where they are, on {kind}");
            return Ok(None);
        }
        let cache = self.cache.as_deref().ok_or(WeightsError::NoCache)?;
        let wanted = fetch.moved(cache, &self.notes, &listing);
        let moved = MovedFolder {
            from,
            to: wanted.folder(),
        };
        if is_here(&wanted, &listing).await {
            return Ok(Some(moved));
        }
        let origin = wanted.describe();
        let peers = peers
            .iter()
            .filter_map(|form| PeerNode::new(form, &listing.name));
        let peers: Vec<Box<dyn Peer>> = peers.map(|peer| Box::new(peer) as Box<dyn Peer>).collect();
        let nodes: Vec<String> = peers
            .iter()
            .map(|peer| format!("node {}", peer.node()))
            .collect();
        tracing::info!(
            "{model}: fetching {} of weights from {}",
            Bytes(listing.bytes()),
            if nodes.is_empty() {
                origin.clone()
            } else {
                format!("{}, else from {origin}", nodes.join(" and "))
            }
        );
        let progress = Arc::new(Progress::default());
        let fetching = self
            .sources
            .fetch_with_peers(&wanted, &listing, peers, &progress);
        let mut fetching = std::pin::pin!(fetching);
        let mut last = None;
        loop {
            tokio::select! {
                biased;
                fetched = &mut fetching => break fetched?,
                () = tokio::time::sleep(REPORT_EVERY) => {
                    let now = (stage(&progress.stage(), &origin), progress.percent());
                    if last.as_ref() != Some(&now) {
                        report(now.0.clone(), now.1);
                        last = Some(now);
                    }
                }
            }
        }
        self.look().await;
        Ok(Some(moved))
    }
}

/// The stage of a fetch as text, with the origin of the weights.
fn stage(stage: &str, origin: &str) -> String {
    if stage.starts_with("fetching from") {
        stage.to_owned()
    } else {
        format!("fetching from {origin}")
    }
}

/// The kind of file system on which all files of the listing can be read, or `None` if some cannot.
async fn readable_on(listing: &WeightsListing, folder: &Path) -> Option<&'static str> {
    let (listing, folder) = (listing.clone(), folder.to_owned());
    let look = move || {
        let kind = listing.is_in(&folder).then(|| shared_file_system(&folder));
        kind.map(|kind| kind.map_or("a disk of this machine", SharedFileSystem::name))
    };
    tokio::task::spawn_blocking(look).await.ok().flatten()
}

/// Returns true if the cache has the files of exactly this listing.
async fn is_here(wanted: &Fetch, listing: &WeightsListing) -> bool {
    let (wanted, listing) = (wanted.clone(), listing.clone());
    let look = move || wanted.listing().is_some_and(|own| own.is_same(&listing));
    tokio::task::spawn_blocking(look).await.unwrap_or(false)
}

/// Changes the launch to read its weights here.
pub(super) fn relocate(program: &mut Program, moved: &MovedFolder) {
    let place = |path: &Path| {
        let below = path.strip_prefix(&moved.from).ok()?;
        // Joining an empty path would leave a trailing slash.
        Some(if below.as_os_str().is_empty() {
            moved.to.clone()
        } else {
            moved.to.join(below)
        })
    };
    match program {
        Program::Candle(candle) => {
            if let Some(path) = place(&candle.model_dir) {
                candle.model_dir = path;
            }
        }
        Program::Command(command) => {
            if let Some(path) = command.model_path.as_deref().and_then(place) {
                command.model_path = Some(path);
            }
        }
        Program::Server(server) => {
            if let Some(path) = place(Path::new(&server.recipe.model)) {
                server.recipe.model = path.to_string_lossy().into_owned();
            }
        }
        Program::Remote(_) | Program::RayServe(_) => {}
    }
}

/// The exit report of a launch whose weights could not be fetched.
pub(super) fn not_fetched(node: &str, error: &WeightsError) -> ExitReport {
    let failure = match error {
        WeightsError::NoCache => Failure::ModelMissing,
        WeightsError::Source(SourceError::Gated { .. }) => Failure::GatedModel,
        WeightsError::Source(SourceError::NoRoom { .. }) => Failure::DiskFull,
        WeightsError::Source(fault) if fault.remedy() == Remedy::Change => Failure::ModelMissing,
        WeightsError::Source(_) => Failure::NotStarted,
    };
    ExitReport {
        requested: false,
        status: "not started".to_owned(),
        last_output: format!("node {node} could not fetch the weights: {error}"),
        oom: None,
        failure,
    }
}

/// The exit report of a launch that was stopped while its weights were fetched.
pub(super) fn fetch_was_ended() -> ExitReport {
    ExitReport {
        requested: true,
        status: "not started".to_owned(),
        last_output:
            "it was ordered to stop while its weights were fetched; what has arrived is kept"
                .to_owned(),
        oom: None,
        failure: Failure::NotStarted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use catalog::ListedFile;
    use engine::{CommandProgram, Listen};
    use std::collections::BTreeMap;

    #[test]
    fn the_fetching_stage_names_the_origin_of_the_weights() {
        let origin = "the hub's lab/small, revision main";
        assert_eq!(
            stage("fetching from node lab-3", origin),
            "fetching from node lab-3"
        );
        assert_eq!(
            stage("listing the files", origin),
            format!("fetching from {origin}")
        );
    }

    #[tokio::test]
    async fn weights_readable_in_place_are_not_copied() {
        let folder = tempfile::tempdir().expect("a folder");
        let listing = WeightsListing {
            name: "models--lab--small".to_owned(),
            commit: "0".repeat(40),
            files: vec![ListedFile {
                path: "model.safetensors".to_owned(),
                bytes: 7,
                blob: "ab".repeat(32),
                digest: None,
            }],
        };
        assert_eq!(readable_on(&listing, folder.path()).await, None);
        let file = folder.path().join("model.safetensors");
        std::fs::write(&file, "weights").expect("written");
        assert!(readable_on(&listing, folder.path()).await.is_some());
        std::fs::write(&file, "weight").expect("written");
        assert_eq!(readable_on(&listing, folder.path()).await, None);
    }

    #[test]
    fn a_launch_uses_the_path_of_the_weights_on_this_node() {
        let moved = MovedFolder {
            from: PathBuf::from("/pool/weights/small"),
            to: PathBuf::from("/node/weights/small"),
        };
        let place = |path: &str| {
            let mut program = Program::Command(CommandProgram {
                argv: vec!["serve".to_owned()],
                env: BTreeMap::new(),
                listen: Listen::Port,
                ready_path: "/health".to_owned(),
                model_path: Some(PathBuf::from(path)),
                served_model_name: None,
                working_dir: None,
                context: None,
            });
            relocate(&mut program, &moved);
            let Program::Command(command) = program else {
                unreachable!("it stays a command");
            };
            command.model_path.expect("it keeps its path")
        };
        assert_eq!(place("/pool/weights/small"), moved.to);
        let file = Path::new("/node/weights/small/q4.gguf");
        assert_eq!(place("/pool/weights/small/q4.gguf"), file);
        let other = Path::new("/pool/weights/small-2");
        assert_eq!(place("/pool/weights/small-2"), other);
    }
}
