//! What runs a replica in Ray Serve: the recipe, and the one writer of this process to that Ray.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use ray_api::{RayAccess, ServeWriter};

use catalog::{RayPlace, RayServeRecipe};

/// An application, and the writer of the Ray that has it.
#[derive(Clone, Debug)]
pub struct ServeProgram {
    pub recipe: Box<RayServeRecipe>,
    pub writer: Arc<ServeWriter>,
}

/// The writers of this process, one for each Ray.
#[derive(Debug, Default)]
pub struct ServeWriters(Mutex<BTreeMap<String, Arc<ServeWriter>>>);

impl ServeWriters {
    pub fn of(&self, place: &RayPlace) -> Arc<ServeWriter> {
        let mut writers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || {
            let access = RayAccess {
                address: place.address.clone(),
                token_file: place.token_file.clone(),
                timeout: place.timeout,
                section: match place.is_of_model {
                    true => "engine_config",
                    false => "cluster.ray",
                },
            };
            Arc::new(ServeWriter::new(&access, &place.prefix()))
        };
        Arc::clone(writers.entry(place.address.clone()).or_insert_with(new))
    }
}
