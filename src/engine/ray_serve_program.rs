//! What runs a replica in Ray Serve: the recipe, and the one writer of this process to that Ray.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use ray_api::{Ledger, RayAccess, ServeShared, ServeWriter, UsedRay};
use tokio::time::sleep;

use catalog::{RayPlace, RayServeRecipe};

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
    shared: Arc<ServeShared>,
    writers: Mutex<BTreeMap<Key, Arc<ServeWriter>>>,
}

/// The address, and what the names of applications begin with.
type Key = (String, String);

impl ServeWriters {
    /// `file`: where the Rays are remembered that may have applications of this pool. Blocks.
    pub fn open(file: PathBuf) -> ServeWriters {
        ServeWriters {
            shared: Arc::new(ServeShared::new(Ledger::open(file))),
            writers: Mutex::default(),
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
            match place.prefix() == used.prefix {
                true => places.push(place),
                false => self.watch_former(used, &place),
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

    /// Removes what is left over in any Ray, and tries again where that fails, as long as it is polled.
    pub async fn keep_clean(&self) {
        loop {
            sleep(SWEEP_EVERY).await;
            let writers: Vec<Arc<ServeWriter>> = self.lock().values().cloned().collect();
            join_all(writers.iter().map(|it| it.sweep_if_due())).await;
        }
    }

    /// How many applications may hold GPUs though their replicas have ended.
    pub fn left_over(&self) -> usize {
        self.lock().values().map(|it| it.left_over().len()).sum()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, Arc<ServeWriter>>> {
        self.writers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn section(is_of_model: bool) -> &'static str {
    match is_of_model {
        true => OF_MODEL,
        false => OF_CONFIG,
    }
}
