//! A replica in Ray Serve: its recipe, and this process's only writer to that Ray cluster.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use ray_api::{Hold, Ledger, RayAccess, ServeShared, ServeWriter, SparedReason, UsedRay};
use tokio::time::{Instant, sleep};

use super::silence::WithoutResponse;
use super::unadopted_engine::UnadoptedEngine;
use catalog::{RayPlace, RayServeRecipe};
use pool::ReplicaId;

/// Interval at which writers are checked for removals.
const SWEEP_EVERY: Duration = Duration::from_secs(1);
/// The sections that name a Ray cluster, for errors.
const OF_MODEL: &str = "engine_config";
const OF_CONFIG: &str = "cluster.ray";

/// An application, and the writer of the Ray cluster that runs it.
#[derive(Clone, Debug)]
pub struct ServeProgram {
    pub recipe: Box<RayServeRecipe>,
    pub writer: Arc<ServeWriter>,
}

/// The writers of this process, one for each address of a Ray cluster and each name of the pool there.
#[derive(Debug, Default)]
pub struct ServeWriters {
    pub(crate) shared: Arc<ServeShared>,
    writers: Mutex<BTreeMap<Key, Arc<ServeWriter>>>,
    /// Ray clusters that have not responded since the start.
    without_response: Mutex<WithoutResponse>,
    awaiting: Mutex<Vec<PendingApplication>>,
    streaming: Mutex<Vec<Streaming>>,
}

/// An application whose model is in a Ray cluster that has not responded yet, which may be the cluster that runs it.
#[derive(Debug)]
pub(crate) struct PendingApplication {
    /// Address of the cluster that has not responded.
    pub address: String,
    pub since: Instant,
    pub model: String,
    pub arguments: String,
    pub writer: Arc<ServeWriter>,
    pub name: String,
    pub replica: ReplicaId,
}

/// An application that no model needs, and through which an earlier process may still stream.
#[derive(Debug)]
pub(crate) struct Streaming {
    pub writer: Arc<ServeWriter>,
    pub name: String,
    pub replica: ReplicaId,
    /// The record of its removal.
    pub found: UnadoptedEngine,
}

/// The address, and the prefix of the applications' names.
type Key = (String, String);

impl ServeWriters {
    /// `ledger` holds the Ray clusters that may have applications of this pool.
    pub fn new(ledger: Ledger) -> ServeWriters {
        ServeWriters {
            shared: Arc::new(ServeShared::new(ledger)),
            ..ServeWriters::default()
        }
    }

    pub fn writer_for(&self, place: &RayPlace) -> Arc<ServeWriter> {
        let prefix = place.prefix();
        let new = || {
            let access = RayAccess {
                address: place.address.clone(),
                token_file: place.token_file.clone(),
                timeout: place.timeout,
                section: section(place.is_of_model),
            };
            let shared = Arc::clone(&self.shared);
            Arc::new(ServeWriter::new(&access, &prefix, shared))
        };
        let key = (place.address.clone(), prefix.clone());
        let mut writers = self.lock();
        Arc::clone(writers.entry(key).or_insert_with(new))
    }

    /// The Ray clusters that may have applications of earlier runs, whatever the model files say now. `pool` is the pool's current
    /// name. Leftovers under another name are only reported.
    pub fn remembered(&self, pool: &str) -> Vec<RayPlace> {
        let mut places = Vec::new();
        for used in self.shared.ledger().all() {
            let place = RayPlace {
                address: used.address.clone(),
                token_file: used.token_file.clone(),
                timeout: Duration::from_millis(used.timeout_ms),
                is_of_model: used.section == OF_MODEL,
                pool: pool.to_owned(),
            };
            if place.prefix() == used.prefix {
                places.push(place)
            } else {
                self.watch_former(used, &place)
            }
        }
        places
    }

    fn watch_former(&self, used: UsedRay, place: &RayPlace) {
        let access = RayAccess {
            address: used.address,
            token_file: used.token_file,
            timeout: place.timeout,
            section: section(place.is_of_model),
        };
        let writer = ServeWriter::new(&access, &used.prefix, Arc::clone(&self.shared));
        let writer = Arc::new(writer.of_former_name());
        writer.expect_late_writes(false);
        self.lock().insert((access.address, used.prefix), writer);
    }

    /// Ray clusters that have not responded since the start.
    pub fn without_response(&self) -> Vec<RayPlace> {
        locked(&self.without_response).places()
    }

    /// Returns true if such a cluster responds and its applications are still changing.
    pub fn is_settling(&self) -> bool {
        locked(&self.without_response).is_settling()
    }

    /// Keeps applications of earlier processes until the cluster responds. Returns true if the silence should be logged.
    pub(crate) fn expect_response(&self, place: &RayPlace) -> bool {
        self.shared.expect_response(&place.address);
        locked(&self.without_response).found_silent(place, now())
    }

    /// Records that a silent cluster responds and not all of its applications are ready. Returns true if that may still change on
    /// its own.
    pub(crate) fn settles(&self, place: &RayPlace) -> bool {
        locked(&self.without_response).settles(place, now())
    }

    /// Records that the cluster's applications have been judged. If it was silent at the start, loads may wait for it; they
    /// continue when the returned hold is dropped.
    pub(crate) fn take_response(&self, place: &RayPlace) -> Option<Hold> {
        if !self.shared.has_no_response(&place.address) {
            return None;
        }
        let hold = self.shared.hold(&place.address);
        locked(&self.without_response).forget(place);
        self.shared.record_response(&place.address);
        Some(hold)
    }

    /// Returns once a load has found that a silent Ray cluster responds.
    pub async fn until_heard(&self) {
        self.shared.until_heard().await;
    }

    /// Keeps the application until its model's Ray cluster has responded.
    pub(crate) fn spare_until_response(&self, application: PendingApplication) {
        let why = SparedReason::UntilResponse(application.address.clone());
        self.shared.spare(&application.name, why);
        let mut awaiting = locked(&self.awaiting);
        if !awaiting.iter().any(|known| known.name == application.name) {
            awaiting.push(application);
        }
    }

    /// Takes the waiting applications for which `is_over` returns true. The caller must decide their fate immediately.
    pub(crate) fn awaited(
        &self,
        mut is_over: impl FnMut(&PendingApplication) -> bool,
    ) -> Vec<PendingApplication> {
        let mut awaiting = locked(&self.awaiting);
        awaiting
            .extract_if(.., |application| is_over(application))
            .collect()
    }

    /// Keeps an unneeded application for as long as an earlier process may stream through it.
    pub(crate) fn spare(&self, application: Streaming) {
        tracing::info!(
            "{}; it is removed once no stream of an earlier process can go through it",
            application.found.reason
        );
        self.shared.spare(&application.name, SparedReason::Streams);
        locked(&self.streaming).push(application);
    }

    /// Removes the unneeded applications through which no earlier process streams any more, and returns their records.
    pub fn release(&self, is_streaming: impl Fn(ReplicaId) -> bool) -> Vec<UnadoptedEngine> {
        let mut streaming = locked(&self.streaming);
        let over = streaming.extract_if(.., |application| !is_streaming(application.replica));
        let release = |application: Streaming| {
            self.shared.release(&application.name);
            application.writer.leave(&application.name);
            application.found
        };
        over.map(release).collect()
    }

    /// Removes leftovers in all Ray clusters, with retries, for as long as it is polled.
    pub async fn keep_clean(&self) {
        loop {
            sleep(SWEEP_EVERY).await;
            let writers = self.all();
            join_all(writers.iter().map(|writer| writer.sweep_if_due())).await;
        }
    }

    /// The number of applications that may hold GPUs although their replicas have ended.
    pub fn left_over(&self) -> usize {
        self.lock()
            .values()
            .map(|writer| writer.left_over().len())
            .sum()
    }

    /// The number of Ray clusters that have not responded since the start, or whose applications have not been judged.
    pub fn silent_rays(&self) -> usize {
        locked(&self.without_response).count()
    }

    fn all(&self) -> Vec<Arc<ServeWriter>> {
        self.lock().values().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, Arc<ServeWriter>>> {
        locked(&self.writers)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[expect(
    clippy::disallowed_methods,
    reason = "the moment of a Ray's answer, which no event of the loop has"
)]
pub(crate) fn now() -> Instant {
    Instant::now()
}

fn section(is_of_model: bool) -> &'static str {
    if is_of_model { OF_MODEL } else { OF_CONFIG }
}
