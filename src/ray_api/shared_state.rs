//! State shared by all Ray writers in this process. One Ray may have two addresses, and so two writers, without any way to
//! recognize it. Neither writer may treat the other's applications as left over.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;

use super::ledger::Ledger;
use super::uncertain_writes::{DOUBT, UncertainWrites};

/// Time for which a write waits for the previous one. A Ray that hangs must not block writes to others.
const TURN_MAX: Duration = Duration::from_secs(10);

/// State shared by all Ray writers in this process.
#[derive(Debug)]
pub struct ServeShared {
    names: Mutex<Names>,
    pub(super) doubts: UncertainWrites,
    turn: tokio::sync::Mutex<()>,
    pub(super) ledger: Ledger,
    /// Notified when a Ray responds for the first time since the start.
    heard: Notify,
}

/// Prevents deployments at its address until it is dropped. The applications of earlier processes there are known, and are being
/// adopted or given up.
#[derive(Debug)]
pub struct Hold {
    shared: Arc<ServeShared>,
    address: String,
}

/// Reserves the application of this name for a load that waits to deploy it, until it is dropped.
#[derive(Debug)]
pub struct WaitingLoad<'a> {
    shared: &'a ServeShared,
    name: &'a str,
}

impl Drop for WaitingLoad<'_> {
    fn drop(&mut self) {
        self.shared.lock().waiting.remove(self.name);
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut names = self.shared.lock();
        if let Some(count) = names.held.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                names.held.remove(&self.address);
            }
        }
    }
}

/// Applications of the pool in any Ray. Their names contain the replica's number, so each name is unique.
#[derive(Debug, Default)]
struct Names {
    /// Applications that this process wants.
    alive: BTreeSet<String>,
    /// Loads that wait for the state of their Ray before they deploy. With a new database, an application of an earlier process may
    /// have the name of such a load.
    waiting: BTreeSet<String>,
    /// Addresses that have not responded since the start. The applications of earlier processes there are not known yet, and stay.
    without_response: BTreeSet<String>,
    /// The number of [`Hold`]s per address.
    held: BTreeMap<String, u32>,
    /// Applications that this process wanted while an address was unanswered, and that are not certainly gone.
    own: BTreeSet<String>,
    /// Applications of earlier processes that stay for the time being.
    spared: BTreeMap<String, SparedReason>,
}

/// The reason that an application without a replica in this process stays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SparedReason {
    /// Its model is in the Ray at this address, which has not responded yet and may be the same Ray.
    UntilResponse(String),
    /// An earlier process may still stream through it.
    Streams,
}

/// The applications of the pool to keep at one address, as of one time.
#[derive(Debug, Default)]
pub(super) struct KeptApplications {
    pub alive: BTreeSet<String>,
    pub spared: BTreeSet<String>,
    /// If set, all applications stay except these.
    pub all_but: Option<BTreeSet<String>>,
}

impl Default for ServeShared {
    fn default() -> ServeShared {
        ServeShared::new(Ledger::default())
    }
}

impl ServeShared {
    pub fn new(ledger: Ledger) -> ServeShared {
        ServeShared {
            names: Mutex::default(),
            doubts: UncertainWrites::new(DOUBT),
            turn: tokio::sync::Mutex::new(()),
            ledger,
            heard: Notify::new(),
        }
    }

    /// For tests, which cannot wait that long.
    #[cfg(test)]
    pub(super) fn with_doubt(lasts: Duration) -> ServeShared {
        ServeShared {
            doubts: UncertainWrites::new(lasts),
            ..ServeShared::default()
        }
    }

    /// The Rays that this process and earlier ones have used.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Keeps the applications of earlier processes at this address until [`ServeShared::record_response`]. Returns true if that is new.
    pub fn expect_response(&self, address: &str) -> bool {
        self.lock().without_response.insert(address.to_owned())
    }

    /// Records that the address has responded and its applications have been assessed. Applications that stayed only for that
    /// reason are left over from now on.
    pub fn record_response(&self, address: &str) {
        let mut names = self.lock();
        names.without_response.remove(address);
        if names.without_response.is_empty() {
            names.own.clear();
        }
        let is_over =
            |why: &SparedReason| matches!(why, SparedReason::UntilResponse(of) if of == address);
        names.spared.retain(|_, why| !is_over(why));
    }

    pub fn has_no_response(&self, address: &str) -> bool {
        self.lock().without_response.contains(address)
    }

    /// Prevents deployments at this address while the result lives.
    #[must_use]
    pub fn hold(self: &Arc<ServeShared>, address: &str) -> Hold {
        *self.lock().held.entry(address.to_owned()).or_default() += 1;
        Hold {
            shared: Arc::clone(self),
            address: address.to_owned(),
        }
    }

    /// Returns true if nothing may be deployed at the address yet, because an application of an earlier process may be the one
    /// needed.
    pub fn is_held(&self, address: &str) -> bool {
        let names = self.lock();
        names.without_response.contains(address) || names.held.contains_key(address)
    }

    /// Reserves the name for a load until its application may be deployed.
    pub(super) fn wait<'a>(&'a self, name: &'a str) -> WaitingLoad<'a> {
        self.lock().waiting.insert(name.to_owned());
        WaitingLoad { shared: self, name }
    }

    /// Reports that a Ray responds whose applications have not been assessed.
    pub(super) fn hear(&self) {
        self.heard.notify_one();
    }

    /// Waits until a load has found that a Ray responds whose applications have not been assessed.
    pub async fn until_heard(&self) {
        self.heard.notified().await;
    }

    /// Returns true if this process wants the application.
    pub fn is_alive(&self, name: &str) -> bool {
        self.lock().alive.contains(name)
    }

    /// Returns true if the application is, or recently was, this process's own.
    pub fn is_own(&self, name: &str) -> bool {
        let names = self.lock();
        let all = [&names.alive, &names.own, &names.waiting];
        all.iter().any(|names| names.contains(name))
    }

    /// Returns true if the application stays because an earlier process may still stream through it.
    pub fn is_streaming(&self, name: &str) -> bool {
        self.lock().spared.get(name) == Some(&SparedReason::Streams)
    }

    /// Keeps the application for the time being.
    pub fn spare(&self, name: &str, why: SparedReason) {
        self.lock().spared.insert(name.to_owned(), why);
    }

    /// Treats the application as left over from now on.
    pub fn release(&self, name: &str) {
        self.lock().spared.remove(name);
    }

    pub(super) fn keep(&self, name: &str) {
        let mut names = self.lock();
        names.alive.insert(name.to_owned());
        if !names.without_response.is_empty() {
            names.own.insert(name.to_owned());
        }
    }

    pub(super) fn let_go(&self, name: &str) {
        self.lock().alive.remove(name);
    }

    /// Records that the application is gone and that no write can bring it back. A later application of this name belongs to an
    /// earlier process.
    pub(super) fn gone(&self, name: &str) {
        self.lock().own.remove(name);
    }

    /// `address` is the Ray's; `None` if no response is outstanding.
    pub(super) fn kept_at(&self, address: Option<&str>) -> KeptApplications {
        let names = self.lock();
        let has_no_response =
            address.is_some_and(|address| names.without_response.contains(address));
        KeptApplications {
            alive: names.alive.union(&names.waiting).cloned().collect(),
            spared: names.spared.keys().cloned().collect(),
            all_but: has_no_response.then(|| names.own.clone()),
        }
    }

    /// Excludes other writers of this process, from the last look before a write to the first one after it.
    pub(super) async fn turn(&self) -> Option<tokio::sync::MutexGuard<'_, ()>> {
        timeout(TURN_MAX, self.turn.lock()).await.ok()
    }

    fn lock(&self) -> MutexGuard<'_, Names> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: &str = "http://ray:8265";

    fn names(all: &[&str]) -> BTreeSet<String> {
        all.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn at_a_silent_address_all_applications_stay_except_this_processes_own() {
        let shared = ServeShared::default();
        assert!(shared.kept_at(Some(HERE)).all_but.is_none());
        assert!(shared.expect_response(HERE));
        assert!(!shared.expect_response(HERE), "it was known");
        shared.keep("r2");
        shared.let_go("r2");
        assert_eq!(shared.kept_at(Some(HERE)).all_but, Some(names(&["r2"])));
        assert!(shared.kept_at(Some("http://other:8265")).all_but.is_none());
        assert!(shared.is_own("r2") && !shared.is_own("r1"));
        shared.record_response(HERE);
        assert!(shared.kept_at(Some(HERE)).all_but.is_none());
        assert!(!shared.is_own("r2"));
    }

    #[test]
    fn an_address_is_held_until_its_applications_are_adopted_or_abandoned() {
        let shared: Arc<ServeShared> = Arc::default();
        assert!(!shared.is_held(HERE));
        shared.expect_response(HERE);
        assert!(shared.is_held(HERE), "it is not known what runs there");
        let (one, other) = (shared.hold(HERE), shared.hold(HERE));
        shared.record_response(HERE);
        drop(one);
        assert!(shared.is_held(HERE), "not adopted yet");
        assert!(!shared.is_held("http://other:8265"));
        drop(other);
        assert!(!shared.is_held(HERE));
    }

    #[test]
    fn an_application_named_by_a_waiting_load_is_left_to_that_load() {
        let shared = ServeShared::default();
        let waits = shared.wait("r1");
        assert!(shared.is_own("r1") && !shared.is_alive("r1"));
        assert_eq!(shared.kept_at(None).alive, names(&["r1"]));
        drop(waits);
        assert!(!shared.is_own("r1"));
    }

    #[test]
    fn a_response_releases_only_applications_waiting_for_it() {
        let shared = ServeShared::default();
        shared.expect_response(HERE);
        shared.spare("r1", SparedReason::UntilResponse(HERE.to_owned()));
        shared.spare("r3", SparedReason::Streams);
        assert_eq!(shared.kept_at(None).spared, names(&["r1", "r3"]));
        shared.record_response(HERE);
        assert_eq!(shared.kept_at(None).spared, names(&["r3"]));
        assert!(shared.is_streaming("r3") && !shared.is_streaming("r1"));
        shared.release("r3");
        assert_eq!(shared.kept_at(None).spared, names(&[]));
    }
}
