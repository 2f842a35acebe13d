//! What runs a replica in Ray Serve: the recipe, and the one writer of this process to that Ray.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use ray_api::{Hold, Ledger, RayAccess, ServeShared, ServeWriter, Spared, UsedRay};
use tokio::time::{Instant, sleep};

use super::found::Found;
use super::ray_serve_unanswered::Unanswered;
use catalog::{RayPlace, RayServeRecipe};
use pool::ReplicaId;

/// How often it is looked whether a writer has something to remove.
const SWEEP_EVERY: Duration = Duration::from_secs(1);
/// The sections that name a Ray, in errors.
const OF_MODEL: &str = "engine_config";
const OF_CONFIG: &str = "cluster.ray";

/// An application, and the writer of the Ray that has it.
#[derive(Clone, Debug)]
pub struct ServeProgram {
    pub recipe: Box<RayServeRecipe>,
    pub writer: Arc<ServeWriter>,
}

/// The writers of this process, one for each address of a Ray and each name of the pool there.
#[derive(Debug, Default)]
pub struct ServeWriters {
    pub(super) shared: Arc<ServeShared>,
    writers: Mutex<BTreeMap<Key, Arc<ServeWriter>>>,
    /// Rays that have not answered since the start.
    unanswered: Mutex<Unanswered>,
    awaiting: Mutex<Vec<Awaiting>>,
    streaming: Mutex<Vec<Streaming>>,
}

/// An application whose model is in a Ray that has not answered yet, which may be the one in which it was found.
#[derive(Debug)]
pub(super) struct Awaiting {
    /// Of the Ray that has not answered.
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
pub(super) struct Streaming {
    pub writer: Arc<ServeWriter>,
    pub name: String,
    pub replica: ReplicaId,
    /// What becomes of it then.
    pub found: Found,
}

/// The address, and what the names of applications begin with.
type Key = (String, String);

impl ServeWriters {
    /// `ledger`: the Rays that may have applications of this pool.
    pub fn new(ledger: Ledger) -> ServeWriters {
        ServeWriters {
            shared: Arc::new(ServeShared::new(ledger)),
            ..ServeWriters::default()
        }
    }

    pub fn of(&self, place: &RayPlace) -> Arc<ServeWriter> {
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

    /// The Rays in which there may be applications of earlier runs, whatever model files say now; `pool`: the present name.
    /// Where the pool had another name, what is left is only reported.
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

    /// Rays that have not answered since the start.
    pub fn unanswered(&self) -> Vec<RayPlace> {
        locked(&self.unanswered).places()
    }

    /// Whether one of them answers, and what runs there still changes.
    pub fn is_settling(&self) -> bool {
        locked(&self.unanswered).is_settling()
    }

    /// What earlier processes have deployed there stays until the Ray answers. Returns whether the log is to say so.
    pub(super) fn expect_answer(&self, place: &RayPlace) -> bool {
        self.shared.expect_answer(&place.address);
        locked(&self.unanswered).found_silent(place, now())
    }

    /// A Ray that had not answered does, and not all that runs there is ready. Returns whether that may still change by itself.
    pub(super) fn settles(&self, place: &RayPlace) -> bool {
        locked(&self.unanswered).settles(place, now())
    }

    /// What runs there has been judged. If it had not answered at the start, loads may wait for it: they go on when the result is
    /// dropped.
    pub(super) fn answered(&self, place: &RayPlace) -> Option<Hold> {
        if !self.shared.is_unanswered(&place.address) {
            return None;
        }
        let hold = self.shared.hold(&place.address);
        locked(&self.unanswered).forget(place);
        self.shared.answered(&place.address);
        Some(hold)
    }

    /// Returns once a load has found that a Ray answers that had not.
    pub async fn until_heard(&self) {
        self.shared.until_heard().await;
    }

    /// The application stays until the Ray of its model has answered.
    pub(super) fn spare_until_answer(&self, it: Awaiting) {
        let why = Spared::UntilAnswer(it.address.clone());
        self.shared.spare(&it.name, why);
        let mut awaiting = locked(&self.awaiting);
        if !awaiting.iter().any(|known| known.name == it.name) {
            awaiting.push(it);
        }
    }

    /// Those that stay for an answer and for which `is_over`. The caller says at once what becomes of them.
    pub(super) fn awaited(&self, mut is_over: impl FnMut(&Awaiting) -> bool) -> Vec<Awaiting> {
        let mut awaiting = locked(&self.awaiting);
        awaiting.extract_if(.., |it| is_over(it)).collect()
    }

    /// No model needs the application; it stays as long as an earlier process may stream through it.
    pub(super) fn spare(&self, it: Streaming) {
        tracing::info!(
            "{}; it is removed once no stream of an earlier process can go through it",
            it.found.reason
        );
        self.shared.spare(&it.name, Spared::Streams);
        locked(&self.streaming).push(it);
    }

    /// Has the applications removed that no model needs, once no earlier process streams through them, and returns what becomes
    /// of them.
    pub fn release(&self, is_streaming: impl Fn(ReplicaId) -> bool) -> Vec<Found> {
        let mut streaming = locked(&self.streaming);
        let over = streaming.extract_if(.., |it| !is_streaming(it.replica));
        let release = |it: Streaming| {
            self.shared.release(&it.name);
            it.writer.leave(&it.name);
            it.found
        };
        over.map(release).collect()
    }

    /// Removes what is left over in any Ray, and tries again where that fails, as long as it is polled.
    pub async fn keep_clean(&self) {
        loop {
            sleep(SWEEP_EVERY).await;
            let writers = self.all();
            join_all(writers.iter().map(|it| it.sweep_if_due())).await;
        }
    }

    /// How many applications may hold GPUs though their replicas have ended.
    pub fn left_over(&self) -> usize {
        self.lock().values().map(|it| it.left_over().len()).sum()
    }

    /// How many Rays have not answered since the start, or not been judged.
    pub fn silent_rays(&self) -> usize {
        locked(&self.unanswered).count()
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
pub(super) fn now() -> Instant {
    Instant::now()
}

fn section(is_of_model: bool) -> &'static str {
    if is_of_model { OF_MODEL } else { OF_CONFIG }
}
