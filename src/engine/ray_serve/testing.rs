//! Models in Ray Serve, for the tests of this crate.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Map;

use catalog::{RayPlace, RayServeRecipe, RemoteUrl, ServeApplication};

/// A place for a pool called `lab`.
pub(crate) fn place(address: &str) -> RayPlace {
    RayPlace {
        address: address.to_owned(),
        token_file: None,
        timeout: Duration::from_secs(5),
        is_of_model: true,
        pool: "lab".to_owned(),
    }
}

pub(crate) fn recipe(place: &RayPlace) -> RayServeRecipe {
    RayServeRecipe {
        place: place.clone(),
        head: RemoteUrl {
            https: false,
            host: "127.0.0.1".to_owned(),
            port: 8265,
            prefix: String::new(),
        },
        application: ServeApplication::Own {
            import_path: "lab.app:build".to_owned(),
            args: Map::new(),
            deployments: Vec::new(),
        },
        env: BTreeMap::new(),
        runtime_env: Map::new(),
        proxy: None,
        served_model_name: None,
        key: None,
        headers: BTreeMap::new(),
        health_path: "/models".to_owned(),
        context: None,
        replicas_max: 1,
    }
}
