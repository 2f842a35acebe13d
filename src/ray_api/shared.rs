//! What the writers of one process share, whatever Ray they write to. One Ray may have two addresses that no text shows to be
//! the same, and so two writers: neither may take the other's applications for left over.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;

use super::doubt::{DOUBT, Doubts};
use super::ledger::Ledger;

/// How long a write waits for the one before it. A Ray that hangs must not keep the others from being written.
const TURN_MAX: Duration = Duration::from_secs(10);

/// Of one process.
#[derive(Debug)]
pub struct ServeShared {
    names: Mutex<Names>,
    pub(super) doubts: Doubts,
    turn: tokio::sync::Mutex<()>,
    pub(super) ledger: Ledger,
    /// A Ray has answered that had not since the start.
    heard: Notify,
}

/// As long as this lives, nothing is deployed at its address: what earlier processes have left there has been judged, and is
/// adopted or given up now.
#[derive(Debug)]
pub struct Hold {
    shared: Arc<ServeShared>,
    address: String,
}

/// As long as this lives, an application of this name is left to the load that waits to deploy it.
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

/// Applications of the pool, in any Ray. Their names have the numbers of replicas, so that each is there once.
#[derive(Debug, Default)]
struct Names {
    /// This process wants them.
    alive: BTreeSet<String>,
    /// Loads that deploy once it is known what runs in their Rays. With a new database, an application of an earlier process may
    /// have the name of one.
    waiting: BTreeSet<String>,
    /// Addresses that have not answered since the start. What earlier processes have deployed there is not known yet, and
    /// stays.
    unanswered: BTreeSet<String>,
    /// Addresses with a [`Hold`], and how many.
    held: BTreeMap<String, u32>,
    /// What this process has wanted while there were such addresses, and what is not gone for certain.
    own: BTreeSet<String>,
    /// Those of earlier processes that stay for now.
    spared: BTreeMap<String, Spared>,
}

/// Why an application stays though no replica of this process is it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Spared {
    /// Its model is in the Ray of this address, which has not answered yet and may be the same one.
    UntilAnswer(String),
    /// An earlier process may still stream through it.
    Streams,
}

/// Which applications of the pool are to be kept at one address, at one moment.
#[derive(Debug, Default)]
pub(super) struct Kept {
    pub alive: BTreeSet<String>,
    pub spared: BTreeSet<String>,
    /// If set, every application stays but for these.
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
            doubts: Doubts::new(DOUBT),
            turn: tokio::sync::Mutex::new(()),
            ledger,
            heard: Notify::new(),
        }
    }

    /// For tests, which cannot wait so long.
    #[cfg(test)]
    pub(super) fn with_doubt(lasts: Duration) -> ServeShared {
        ServeShared {
            doubts: Doubts::new(lasts),
            ..ServeShared::default()
        }
    }

    /// The Rays that were used, by earlier processes too.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Nothing that earlier processes have deployed there is removed before [`ServeShared::answered`]. Returns whether that is
    /// new.
    pub fn expect_answer(&self, address: &str) -> bool {
        self.lock().unanswered.insert(address.to_owned())
    }

    /// It has answered, and what runs there has been judged. What has stayed for that alone is left over from now on.
    pub fn answered(&self, address: &str) {
        let mut names = self.lock();
        names.unanswered.remove(address);
        if names.unanswered.is_empty() {
            names.own.clear();
        }
        let is_over = |it: &Spared| matches!(it, Spared::UntilAnswer(of) if of == address);
        names.spared.retain(|_, why| !is_over(why));
    }

    pub fn is_unanswered(&self, address: &str) -> bool {
        self.lock().unanswered.contains(address)
    }

    /// Nothing is deployed there as long as the result lives.
    #[must_use]
    pub fn hold(self: &Arc<ServeShared>, address: &str) -> Hold {
        *self.lock().held.entry(address.to_owned()).or_default() += 1;
        Hold {
            shared: Arc::clone(self),
            address: address.to_owned(),
        }
    }

    /// Whether nothing is to be deployed there yet: an application of an earlier process may be what is needed.
    pub fn is_held(&self, address: &str) -> bool {
        let names = self.lock();
        names.unanswered.contains(address) || names.held.contains_key(address)
    }

    /// The load of this name waits until its application may be deployed.
    pub(super) fn wait<'a>(&'a self, name: &'a str) -> WaitingLoad<'a> {
        self.lock().waiting.insert(name.to_owned());
        WaitingLoad { shared: self, name }
    }

    /// A Ray answers that is to be judged.
    pub(super) fn hear(&self) {
        self.heard.notify_one();
    }

    /// Returns once a load has found that a Ray answers, which has not been judged yet.
    pub async fn until_heard(&self) {
        self.heard.notified().await;
    }

    /// Whether this process wants the application.
    pub fn is_alive(&self, name: &str) -> bool {
        self.lock().alive.contains(name)
    }

    /// Whether it is, or was lately, an application of this process itself.
    pub fn is_own(&self, name: &str) -> bool {
        let names = self.lock();
        let all = [&names.alive, &names.own, &names.waiting];
        all.iter().any(|it| it.contains(name))
    }

    /// Whether it stays because an earlier process may still stream through it.
    pub fn is_streaming(&self, name: &str) -> bool {
        self.lock().spared.get(name) == Some(&Spared::Streams)
    }

    /// The application stays for now.
    pub fn spare(&self, name: &str, why: Spared) {
        self.lock().spared.insert(name.to_owned(), why);
    }

    /// It is left over like any other from now on.
    pub fn release(&self, name: &str) {
        self.lock().spared.remove(name);
    }

    pub(super) fn keep(&self, name: &str) {
        let mut names = self.lock();
        names.alive.insert(name.to_owned());
        if !names.unanswered.is_empty() {
            names.own.insert(name.to_owned());
        }
    }

    pub(super) fn let_go(&self, name: &str) {
        self.lock().alive.remove(name);
    }

    /// The application is nowhere, and no write can bring it: one of this name would be an earlier process's.
    pub(super) fn gone(&self, name: &str) {
        self.lock().own.remove(name);
    }

    /// `address`: of the Ray; `None` where nothing has to answer first.
    pub(super) fn kept_at(&self, address: Option<&str>) -> Kept {
        let names = self.lock();
        let is_unanswered = address.is_some_and(|it| names.unanswered.contains(it));
        Kept {
            alive: names.alive.union(&names.waiting).cloned().collect(),
            spared: names.spared.keys().cloned().collect(),
            all_but: is_unanswered.then(|| names.own.clone()),
        }
    }

    /// From the last look before a write to the first one after it, no other writer of this process writes.
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
        all.iter().map(|it| (*it).to_owned()).collect()
    }

    #[test]
    fn all_stays_at_an_address_without_an_answer_but_what_this_process_has_deployed() {
        let shared = ServeShared::default();
        assert!(shared.kept_at(Some(HERE)).all_but.is_none());
        assert!(shared.expect_answer(HERE));
        assert!(!shared.expect_answer(HERE), "it was known");
        shared.keep("r2");
        shared.let_go("r2");
        assert_eq!(shared.kept_at(Some(HERE)).all_but, Some(names(&["r2"])));
        assert!(shared.kept_at(Some("http://other:8265")).all_but.is_none());
        assert!(shared.is_own("r2") && !shared.is_own("r1"));
        shared.answered(HERE);
        assert!(shared.kept_at(Some(HERE)).all_but.is_none());
        assert!(!shared.is_own("r2"));
    }

    #[test]
    fn nothing_is_deployed_at_an_address_before_what_runs_there_is_adopted_or_given_up() {
        let shared: Arc<ServeShared> = Arc::default();
        assert!(!shared.is_held(HERE));
        shared.expect_answer(HERE);
        assert!(shared.is_held(HERE), "it is not known what runs there");
        let (one, other) = (shared.hold(HERE), shared.hold(HERE));
        shared.answered(HERE);
        drop(one);
        assert!(shared.is_held(HERE), "not adopted yet");
        assert!(!shared.is_held("http://other:8265"));
        drop(other);
        assert!(!shared.is_held(HERE));
    }

    #[test]
    fn an_application_with_the_name_of_a_load_that_waits_is_left_to_it() {
        let shared = ServeShared::default();
        let waits = shared.wait("r1");
        assert!(shared.is_own("r1") && !shared.is_alive("r1"));
        assert_eq!(shared.kept_at(None).alive, names(&["r1"]));
        drop(waits);
        assert!(!shared.is_own("r1"));
    }

    #[test]
    fn what_stays_for_an_answer_is_named_by_it_and_streams_are_ended_by_none() {
        let shared = ServeShared::default();
        shared.expect_answer(HERE);
        shared.spare("r1", Spared::UntilAnswer(HERE.to_owned()));
        shared.spare("r3", Spared::Streams);
        assert_eq!(shared.kept_at(None).spared, names(&["r1", "r3"]));
        shared.answered(HERE);
        assert_eq!(shared.kept_at(None).spared, names(&["r3"]));
        assert!(shared.is_streaming("r3") && !shared.is_streaming("r1"));
        shared.release("r3");
        assert_eq!(shared.kept_at(None).spared, names(&[]));
    }
}
