//! RayServeEngine: a model as a Ray Serve application, placed by the Ray cluster. Reads the keys for the application and the
//! cluster, and refuses keys without meaning there: the pool does not see its memory. Opens no connections and reads no token.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Map, Value};

use config::Config;
use pool::Scaling;

use super::engine_fields::{refuse_engine_keys, refuse_keys};
use super::remote::KeySource;
use super::remote_url::RemoteUrl;
use super::server_config::EntryContext;
use super::{ray_serve_llm as llm, remote};
use crate::documents::{
    CONTEXT_MAX, CatalogError, Diagnostics, EngineConfig, ModelDocument, Secret, Source, limits,
};

pub(crate) const RAY_SERVE: &str = "RayServeEngine";
/// Keys for local programs and weights: the pool starts no program, and the weights are not on its machine.
const KEYS_OF_ENGINES: &str = "url command listen program command_prefix revision fetch s3_mirror_config gcs_mirror_config oci_artifact \
    lora_adapters sleep_command wake_command ready_path working_dir";
/// Simultaneous requests per replica, unless the file sets them.
pub(crate) const RAY_SERVE_SEATS: u32 = 32;
/// Maximum applications of one model, each with separate GPUs.
const REPLICAS_MAX: u32 = 64;
/// Characters allowed in accelerator names in addition to letters and digits.
const NAME_CHARACTERS: &str = "-._:";

/// Settings for running one application per replica, and the route of its requests.
#[derive(Clone, Debug, PartialEq)]
pub struct RayServeRecipe {
    pub place: RayPlace,
    /// The machine that runs the dashboard.
    pub head: RemoteUrl,
    pub application: ServeApplication,
    /// Environment variables of its programs. Everyone with access to Ray's dashboard can read them.
    pub env: BTreeMap<String, Secret>,
    /// Other settings of the Ray runtime environment, such as `working_dir`.
    pub runtime_env: Map<String, Value>,
    /// Serve's HTTP proxy; `None`: on the dashboard's machine, at the port from Serve's own options.
    pub proxy: Option<RemoteUrl>,
    /// The model's name in the application; `None`: the same name.
    pub served_model_name: Option<String>,
    /// `None`: the application requires no key.
    pub key: Option<KeySource>,
    pub headers: BTreeMap<String, Secret>,
    /// A path below the application's OpenAI routes; a 2xx response means ready.
    pub health_path: String,
    pub context: Option<u32>,
    /// Maximum simultaneous applications.
    pub replicas_max: u32,
}

/// The Ray cluster, and the pool's name in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RayPlace {
    /// The dashboard's address, normalised by `config::ray_address`.
    pub address: String,
    pub token_file: Option<PathBuf>,
    pub timeout: Duration,
    /// The keys are in the model file, not in `cluster.ray`.
    pub is_of_model: bool,
    /// `cluster.name`: applications are named `model-pool.NAME.rN`.
    pub pool: String,
}

/// The application that Serve builds.
#[derive(Clone, Debug, PartialEq)]
pub enum ServeApplication {
    /// `ray.serve.llm:build_openai_app`, with one model.
    Llm {
        /// A model on the hub, or a folder on Ray's machines.
        source: String,
        engine_kwargs: Map<String, Value>,
        accelerator_type: Option<String>,
        seats: u32,
    },
    /// Any application with an OpenAI API.
    Own {
        import_path: String,
        args: Map<String, Value>,
        deployments: Vec<Value>,
    },
}

impl RayPlace {
    /// The cluster from the configuration, if set.
    pub fn of_config(config: &Config) -> Option<RayPlace> {
        let ray = &config.cluster.ray;
        let address = ray.address.as_deref()?;
        Some(RayPlace {
            // A configuration with an invalid address has already been refused.
            address: config::ray_address(address).unwrap_or_else(|_| address.to_owned()),
            token_file: ray.token_file.clone(),
            timeout: ray.timeout.duration(),
            is_of_model: false,
            pool: config.cluster.name.clone(),
        })
    }

    /// The common prefix of the pool's application names.
    pub fn prefix(&self) -> String {
        format!("model-pool.{}.r", self.pool)
    }
}

pub(crate) fn read(
    engine: &EngineConfig,
    around: &EntryContext,
    config: &Config,
    notes: &mut Diagnostics,
) -> Result<RayServeRecipe, CatalogError> {
    refuse_engine_keys(engine, KEYS_OF_ENGINES, notes, |key| {
        let instead = match key {
            "url" => "; engine_config.proxy names Serve's HTTP proxy",
            "command_prefix" => "; a container is engine_config.runtime_env.image_uri",
            "revision" => "; with ray.serve.llm it is engine_config.engine_kwargs.revision",
            "s3_mirror_config" | "gcs_mirror_config" => {
                "; name the model in engine_config.hf_model_id or model_path"
            }
            "ready_path" => "; engine_config.health_path is probed instead",
            "working_dir" => "; code for Ray's machines is engine_config.runtime_env.working_dir",
            _ => "",
        };
        format!(
            "has no meaning for a {RAY_SERVE}: Ray starts it on its own machines; remove it{instead}"
        )
    })?;
    let place = place(engine, config, notes)?;
    let head = RemoteUrl::parse_with(&place.address, "").map_err(|why| {
        let why = if place.is_of_model {
            why
        } else {
            format!("is derived from cluster.ray.address, which {why}")
        };
        notes.refuse("engine_config.address", why)
    })?;
    let proxy = match engine.proxy.as_deref() {
        None => None,
        Some(url) => {
            let url = RemoteUrl::parse_with(url, "");
            Some(url.map_err(|why| notes.refuse("engine_config.proxy", why))?)
        }
    };
    let application = match engine.import_path.as_deref() {
        None => llm::read(engine, around, RAY_SERVE_SEATS, notes)?,
        Some(path) => own(engine, path, around, notes)?,
    };
    let bounded = |value| limits::count(value, CONTEXT_MAX);
    let context = engine
        .max_total_tokens
        .map(|value| notes.check("engine_config.max_total_tokens", value, bounded))
        .transpose()?;
    let rest = engine.runtime_env.as_ref().map(|env| env.rest.clone());
    Ok(RayServeRecipe {
        place,
        head,
        application,
        env: engine.env.clone(),
        runtime_env: rest.unwrap_or_default(),
        proxy,
        served_model_name: remote::served_model_name(engine, notes)?,
        key: remote::key(engine, notes)?,
        headers: remote::headers(&engine.headers, notes)?,
        health_path: remote::health_path(engine, notes)?,
        context,
        replicas_max: 1,
    })
}

fn place(
    engine: &EngineConfig,
    config: &Config,
    notes: &mut Diagnostics,
) -> Result<RayPlace, CatalogError> {
    let Some(address) = engine.address.as_deref() else {
        if engine.token_file.is_some() {
            return Err(notes.refuse(
                "engine_config.token_file",
                "is set without engine_config.address; set both, or cluster.ray.address and cluster.ray.token_file in the configuration",
            ));
        }
        return RayPlace::of_config(config).ok_or_else(|| {
            notes.refuse(
                "engine_config.address",
                "is missing, and so is cluster.ray.address of the configuration; write the address of Ray's dashboard, such as http://ray-head:8265",
            )
        });
    };
    let address =
        config::ray_address(address).map_err(|why| notes.refuse("engine_config.address", why))?;
    let token_file = match engine.token_file.as_deref() {
        None => None,
        Some(path) => Some(notes.path("engine_config.token_file", path)?),
    };
    Ok(RayPlace {
        address,
        token_file,
        timeout: config.cluster.ray.timeout.duration(),
        is_of_model: true,
        pool: config.cluster.name.clone(),
    })
}

/// A custom application.
fn own(
    engine: &EngineConfig,
    import_path: &str,
    around: &EntryContext,
    notes: &Diagnostics,
) -> Result<ServeApplication, CatalogError> {
    let is_part = |part: &str| {
        let is_fit = |letter: char| letter.is_alphanumeric() || "_.".contains(letter);
        !part.is_empty() && part.chars().all(is_fit)
    };
    let sides = import_path.split_once(':');
    if !sides.is_some_and(|(module, name)| is_part(module) && is_part(name)) {
        return Err(notes.refuse(
            "engine_config.import_path",
            format!("`{import_path}` is not the path of an application; write one like my_package.my_module:build"),
        ));
    }
    let keys = "engine_kwargs accelerator_type hf_model_id model_path";
    refuse_engine_keys(engine, keys, notes, |_| {
        "is read for ray.serve.llm only, without engine_config.import_path; write it into engine_config.args, as the application reads it".to_owned()
    })?;
    if around.devices_in_document > 1 {
        return Err(notes.refuse(
            "pool_config.gpus_per_replica",
            "is read for ray.serve.llm only; an application with engine_config.import_path defines its GPUs itself, or with ray_actor_options in engine_config.deployments",
        ));
    }
    if let Some(nth) = engine.deployments.iter().position(|item| !item.is_object()) {
        return Err(notes.refuse(
            &format!("engine_config.deployments[{nth}]"),
            "is not a map; write one like {name: MyDeployment, ray_actor_options: {num_gpus: 1}}",
        ));
    }
    Ok(ServeApplication::Own {
        import_path: import_path.to_owned(),
        args: engine.args.clone(),
        deployments: engine.deployments.clone(),
    })
}

/// Checks the rest of the document: keys without meaning here, keys that only a file may set, and the number of replicas.
pub(crate) fn check_document(
    recipe: &mut RayServeRecipe,
    document: &ModelDocument,
    source: &Source,
    notes: &Diagnostics,
) -> Result<(), CatalogError> {
    let pool = &document.pool_config;
    refuse_keys(
        "pool_config",
        pool,
        "memory_gib devices idle_probe",
        notes,
        |key| {
            let instead = match key {
                "devices" => "; engine_config.accelerator_type chooses the kind of GPU",
                _ => "",
            };
            format!(
                "has no meaning for a {RAY_SERVE}: Ray places it, and the pool does not see its memory; remove it{instead}"
            )
        },
    )?;
    if *source == Source::Registered {
        // Otherwise Ray's token and the prompts would be sent to any address in the document.
        let engine = &document.engine_config;
        refuse_engine_keys(engine, "address token_file proxy", notes, |_| {
            "is not accepted over the API; write a model file, or set cluster.ray in the configuration".to_owned()
        })?;
    }
    let scaling = document.deployment_config.autoscaling_config.as_ref();
    let of_scaling = scaling.and_then(|scaling| scaling.max_replicas);
    let bounded = |value| limits::count(value, REPLICAS_MAX);
    let own = pool
        .max_replicas
        .map(|value| notes.check("pool_config.max_replicas", value, bounded))
        .transpose()?;
    let of_scaling = of_scaling.and_then(|count| limits::count(count, REPLICAS_MAX).ok());
    // Nothing else limits the GPUs that the model uses in Ray.
    recipe.replicas_max = own.or(of_scaling).unwrap_or(1);
    Ok(())
}

/// Limits scaling to `replicas_max`.
pub(crate) fn bounded(scaling: Scaling, replicas_max: u32) -> Scaling {
    let most = scaling.most.min(replicas_max);
    Scaling {
        least: scaling.least.min(most),
        initial: scaling.initial.min(most),
        most,
        ..scaling
    }
}

/// Returns true if a text has the form of a GPU kind in Ray, such as `H100` or `A100-40G`.
pub(super) fn is_accelerator(text: &str) -> bool {
    let is_fit = |letter: char| letter.is_ascii_alphanumeric() || NAME_CHARACTERS.contains(letter);
    !text.is_empty() && text.chars().all(is_fit)
}
