//! The journal of running engines: one small file per engine, written before the start and removed after the end, from which a
//! later controller finds the engine again.
//!
//! A file is replaced atomically, so a killed controller leaves either the old file or the new one. It is not
//! synced to disk: engines do not survive a crash of the machine, and files from an earlier boot are recognised
//! by `boot` and ignored.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize};

use crate::connection::Endpoint;
use crate::failures::failure::is_full;
use crate::health::{LivenessLimits, Watch};
use crate::launch::Launch;
use catalog::GangMember;
use guardian::protocol::ProcessId;
use pool::{Bytes, ReplicaId};

const VERSION: u32 = 1;

/// Facts of a launch kept for a later controller, in addition to the driver's.
#[derive(Clone, Debug, Default)]
pub struct LaunchFacts {
    /// Devices by their names in the store, with the bytes on each.
    pub placement: Vec<(String, Bytes)>,
    /// Summary of the engine's arguments: a different summary means a different engine.
    pub arguments: String,
    /// The model's name in the engine, if it differs.
    pub served_model_name: Option<String>,
    /// Time between SIGTERM and SIGKILL if no controller takes over.
    pub stop_grace: Duration,
    /// Set on nodes, which have no catalogue to look it up in.
    pub watch: Option<RecordedWatch>,
}

/// The inputs for watching an engine of a node, for a later process of that node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedWatch {
    pub limits: LivenessLimits,
    /// The model's name in the engine.
    pub model_name: String,
    /// The name of the metric of running requests, which identifies the engine's metrics.
    pub metrics: Option<String>,
    /// Set for a process of a replica that spans several nodes.
    pub member: Option<GangMember>,
}

impl RecordedWatch {
    pub fn new(launch: &Launch) -> RecordedWatch {
        RecordedWatch {
            limits: launch.watch.limits.clone(),
            model_name: launch.watch.model_name.clone(),
            metrics: launch
                .watch
                .metrics
                .map(|metrics| metrics.running.to_owned()),
            member: launch.member.clone(),
        }
    }

    pub fn watch(&self) -> Watch {
        Watch {
            activity: Arc::default(),
            limits: self.limits.clone(),
            model_name: self.model_name.clone(),
            metrics: self.metrics.as_deref().and_then(catalog::metrics_named),
        }
    }

    /// Returns true if the process takes no requests: the leader of its replica is on another node.
    pub fn follows(&self) -> bool {
        self.member.as_ref().is_some_and(GangMember::follows)
    }
}

/// One engine. Unknown fields, written by another version, are ignored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    pub version: u32,
    pub replica: u64,
    pub model: String,
    /// The guardian's token, also in its environment.
    pub token: String,
    /// Set in the environment of the engine and all its descendants.
    pub tag: String,
    pub boot: String,
    /// The engine's control group, if one could be created.
    #[serde(default)]
    pub cgroup: Option<PathBuf>,
    pub guardian: ProcessId,
    /// Set once the engine has been started.
    pub engine: Option<ProcessId>,
    pub endpoint: StoredEndpoint,
    pub ready_path: String,
    /// The command that removes the container; empty if there is none.
    #[serde(default)]
    pub cleanup: Vec<String>,
    pub placement: Vec<JournalShare>,
    pub arguments: String,
    pub served_model_name: Option<String>,
    pub stop_grace_ms: u64,
    /// The engine was put to sleep and has not woken: it responds to health probes but serves no requests.
    #[serde(default)]
    pub asleep: bool,
    /// Unix time at which it became ready.
    pub ready_at_ms: Option<u64>,
    pub log_file: Option<PathBuf>,
    /// `None` also if another version wrote it in a form that this one cannot read.
    #[serde(
        default,
        deserialize_with = "watch_if_readable",
        skip_serializing_if = "Option::is_none"
    )]
    pub watch: Option<RecordedWatch>,
}

fn watch_if_readable<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<RecordedWatch>, D::Error> {
    let written = serde_json::Value::deserialize(deserializer)?;
    Ok(serde_json::from_value(written).ok())
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StoredEndpoint {
    Unix(PathBuf),
    Tcp(SocketAddr),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalShare {
    /// The device's UUID or name.
    pub device: String,
    pub bytes: u64,
}

impl From<&Endpoint> for StoredEndpoint {
    fn from(endpoint: &Endpoint) -> StoredEndpoint {
        match endpoint {
            Endpoint::Unix(path) => StoredEndpoint::Unix(path.clone()),
            Endpoint::Tcp(address) => StoredEndpoint::Tcp(*address),
            Endpoint::Remote(_) | Endpoint::Node(_) => {
                unreachable!("what is started listens on this machine")
            }
        }
    }
}

impl From<&StoredEndpoint> for Endpoint {
    fn from(place: &StoredEndpoint) -> Endpoint {
        match place {
            StoredEndpoint::Unix(path) => Endpoint::Unix(path.clone()),
            StoredEndpoint::Tcp(address) => Endpoint::Tcp(*address),
        }
    }
}

impl Record {
    pub fn version() -> u32 {
        VERSION
    }

    pub fn replica(&self) -> ReplicaId {
        ReplicaId(self.replica)
    }
}

/// Spare files reserve disk space for records. Without them, a load on a full disk would evict other models and then fail before
/// its engine starts. One load writes three records. Copy-on-write file systems such as btrfs or ZFS reserve no space this way.
const SPARES: u32 = 24;
/// Larger than any record.
const SPARE_BYTES: usize = 8 << 10;

/// The folder of the journal.
#[derive(Clone, Debug)]
pub(crate) struct Journal {
    folder: PathBuf,
    /// True if spare files are missing. The lock gives each load that finds the disk full its own spare file, and never a file that
    /// is still being written.
    lacks_spares: Arc<Mutex<bool>>,
}

impl Journal {
    pub fn new(folder: PathBuf) -> Journal {
        Journal {
            folder,
            lacks_spares: Arc::default(),
        }
    }

    pub fn path_of(&self, replica: ReplicaId) -> PathBuf {
        self.folder.join(format!("{replica}.json"))
    }

    fn lock(&self) -> MutexGuard<'_, bool> {
        self.lacks_spares
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates the folder if needed. Blocks for some microseconds, and for a few milliseconds if spare files have been used and the
    /// disk has room again.
    pub fn write(&self, record: &Record) -> io::Result<()> {
        private_files::make(&self.folder)?;
        let path = self.path_of(record.replica());
        let half = path.with_extension("json.new");
        let text = serde_json::to_vec_pretty(record)?;
        let mut lacks_spares = self.lock();
        match write_own(&half, &text) {
            Ok(()) if *lacks_spares => *lacks_spares = !self.keep_spares(),
            Ok(()) => {}
            Err(error) if is_full(&error) => {
                let _ = std::fs::remove_file(&half);
                *lacks_spares = true;
                // Reports the first error, which says more than the second.
                self.use_spare(&half, text).map_err(|_| error)?;
            }
            Err(error) => return Err(error),
        }
        // A record that is replaced frees its space, which is used immediately to create the next spare file.
        let frees = *lacks_spares && path.exists();
        std::fs::rename(half, path)?;
        if frees {
            *lacks_spares = !self.keep_spares();
        }
        Ok(())
    }

    /// Creates the spare files, if the disk has room for them. Blocks for some milliseconds.
    pub fn prepare(&self) {
        let mut lacks_spares = self.lock();
        *lacks_spares = !self.keep_spares();
    }

    fn spares(&self) -> PathBuf {
        self.folder.join("spare")
    }

    /// Replaces spare files that are missing or too short. Returns false if the disk has no room for them.
    fn keep_spares(&self) -> bool {
        let folder = self.spares();
        if std::fs::create_dir_all(&folder).is_err() {
            return false;
        }
        for nth in 0..SPARES {
            let spare = folder.join(nth.to_string());
            if !is_spare(&spare) && write_own(&spare, &incompressible()).is_err() {
                let _ = std::fs::remove_file(&spare);
                return false;
            }
        }
        true
    }

    /// Renames a spare file to `to` and overwrites its content with `text`, which needs no space on the disk. Pads with spaces,
    /// which are valid after JSON.
    fn use_spare(&self, to: &Path, mut text: Vec<u8>) -> io::Result<()> {
        if text.len() > SPARE_BYTES {
            return Err(io::ErrorKind::StorageFull.into());
        }
        text.resize(SPARE_BYTES, b' ');
        let spares = std::fs::read_dir(self.spares())?.flatten();
        let mut spares = spares
            .map(|entry| entry.path())
            .filter(|path| is_spare(path));
        // A file that has disappeared was taken by another process.
        let spare = spares.find(|spare| std::fs::rename(spare, to).is_ok());
        let spare = spare.ok_or(io::ErrorKind::StorageFull)?;
        let file = std::fs::File::options().write(true).open(to);
        let written = file.and_then(|mut file| file.write_all(&text));
        if written.is_err() {
            let _ = std::fs::rename(to, spare);
        }
        written
    }

    /// Records whether the engine sleeps. Blocks for some microseconds.
    pub fn note_sleep(&self, replica: ReplicaId, asleep: bool) -> io::Result<()> {
        let record = read(&self.path_of(replica)).map_err(io::Error::other)?;
        self.write(&Record { asleep, ..record })
    }

    pub fn remove(&self, replica: ReplicaId) {
        let mut lacks_spares = self.lock();
        // The file is already gone if the guardian ended without a controller.
        let _ = std::fs::remove_file(self.path_of(replica));
        if *lacks_spares {
            *lacks_spares = !self.keep_spares();
        }
    }

    /// Every file of the folder, parsed or with its error. Removes incomplete files of an interrupted write.
    pub fn read_all(&self) -> Vec<(PathBuf, Result<Record, String>)> {
        let Ok(entries) = std::fs::read_dir(&self.folder) else {
            return Vec::new();
        };
        let mut all = Vec::new();
        for path in entries.flatten().map(|entry| entry.path()) {
            match path.extension().and_then(|extension| extension.to_str()) {
                Some("json") => all.push((path.clone(), read(&path))),
                Some("new") => drop(std::fs::remove_file(&path)),
                _ => {}
            }
        }
        all.sort_by(|(one, _), (other, _)| one.cmp(other));
        all
    }
}

/// The models of all engines in a journal. Changes nothing, so it is safe while the controller that writes the journal runs.
pub fn recorded_models(folder: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    let records = paths.filter(|path| {
        path.extension()
            .is_some_and(|extension| extension == "json")
    });
    records
        .filter_map(|path| Some(read(&path).ok()?.model))
        .collect()
}

fn read(path: &Path) -> Result<Record, String> {
    let text = std::fs::read(path).map_err(|error| error.to_string())?;
    serde_json::from_slice(&text).map_err(|error| error.to_string())
}

/// Creates or truncates a file. A new file is readable by this account only.
fn write_own(path: &Path, bytes: &[u8]) -> io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = std::fs::File::options();
    options.write(true).create(true).truncate(true).mode(0o600);
    options.open(path)?.write_all(bytes)
}

/// Returns true if the file has the full size of a spare file.
fn is_spare(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|file| file.is_file() && file.len() == SPARE_BYTES as u64)
}

/// Random bytes: a compressing file system would reserve less space for equal bytes.
fn incompressible() -> Vec<u8> {
    let mut bytes = vec![0; SPARE_BYTES];
    rand::fill(bytes.as_mut_slice());
    bytes
}

#[cfg(test)]
mod tests;
