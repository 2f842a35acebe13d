//! The form of a model file: RayLLM v0.5's sections, and `pool_config` beside them. Keys and
//! types alone; what the values mean and whether they are allowed is decided in `entry`.

mod values;

pub use values::{
    CacheType, ComputeDevice, Fetcher, Listen, LoopbackAddress, NumberTypes, ProductType,
    Quantization, Secret, Sleep, Task,
};

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::constraint::DeviceConstraint;
use super::prompt::PromptCompat;
use super::validation::ValidationSection;
use config::{IdleProbe, KeepHot, Length, MaxTurn, MinResident, UnknownFields};

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// One model file. What is absent stays absent when it is written again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelDocument {
    pub engine_config: EngineConfig,
    #[serde(default, skip_serializing_if = "is_default")]
    pub pool_config: PoolConfig,
    #[serde(default, skip_serializing_if = "is_default")]
    pub scaling_config: ScalingConfig,
    #[serde(default, skip_serializing_if = "is_default")]
    pub deployment_config: DeploymentConfig,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub lora_config: LoraConfig,
    /// RayLLM's name of one key of `lora_config`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub multiplex_config: MultiplexConfig,
}

/// A section whose keys are all optional: absent ones are left out when written.
macro_rules! optional_keys {
    ($(#[$doc:meta])* $name:ident { $($(#[$attribute:meta])* $key:ident: $type:ty,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct $name {
            $($(#[$attribute])* #[serde(skip_serializing_if = "is_default")] pub $key: $type,)*
        }
    };
}

optional_keys! {
    /// Adapters that are looked for by their names when a request names them.
    LoraConfig {
        /// A folder, or an address in a bucket.
        dynamic_lora_loading_path: Option<String>,
        max_num_adapters_per_replica: Option<i64>,
        /// The highest rank.
        max_lora_rank: Option<i64>,
        /// The most that the files of one adapter take.
        max_adapter_gib: Option<f64>,
        /// The most that all adapters take that were brought from a bucket.
        cache_gib: Option<f64>,
        /// Other names that adapters may give for the model that they were trained for.
        base_models: Vec<String>,
        download_timeout_s: Option<f64>,
        max_download_tries: Option<i64>,
    }
}

optional_keys! {
    /// As RayLLM had it.
    MultiplexConfig {
        max_num_models_per_replica: Option<i64>,
        max_num_adapters_per_replica: Option<i64>,
        download_timeout_s: Option<f64>,
        max_download_tries: Option<i64>,
    }
}

/// Which program runs the model, and how.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EngineConfig {
    pub model_id: String,
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hf_model_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_path: Option<String>,
    /// Of CandleEngine: which file of `hf_model_id` is the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gguf_file: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_total_tokens: Option<i64>,
    #[serde(default, skip_serializing_if = "is_default")]
    /// The engine's own options; which ones there are depends on the engine.
    pub engine_kwargs: Map<String, Value>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub env: BTreeMap<String, Secret>,

    // Of the engines that are programs of their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command_prefix: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// Small weights that the engine serves beside the model's own.
    #[serde(default, skip_serializing_if = "is_default")]
    pub lora_adapters: Vec<LoraAdapter>,
    /// Who brings weights that are not a folder of this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fetch: Option<Fetcher>,
    /// `model_path` is where the pool fetches to.
    #[serde(skip)]
    pub is_fetched: bool,
    // Of CommandEngine alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listen: Option<Listen>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_path: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub served_model_name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub working_dir: Option<String>,
    /// Puts the engine to sleep, and wakes it: programs such as cuda-checkpoint or criu.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sleep_command: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wake_command: Option<Vec<String>>,

    // Of RemoteEngine alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key_env: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key_file: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health_path: Option<String>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub headers: BTreeMap<String, Secret>,

    // Of RayServeEngine alone.
    /// Ray's dashboard, where it is not that of `cluster.ray`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The file with Ray's token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_file: Option<String>,
    /// Serve's HTTP proxy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accelerator_type: Option<String>,
    /// An application of the site's own, instead of `ray.serve.llm`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub import_path: Option<String>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub args: Map<String, Value>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub deployments: Vec<Value>,

    // RayLLM's, read so that its files load, without effect here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_type: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokenizer_id: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub s3_mirror_config: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gcs_mirror_config: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime_env: Option<RuntimeEnv>,
    /// Variables of the pool's own environment that the engine gets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env_vars_to_propogate: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_url: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_description: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<Value>,
}

/// Ray's environment of a worker. Values may be tokens.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RuntimeEnv {
    #[serde(skip_serializing_if = "is_default")]
    pub env_vars: BTreeMap<String, Secret>,
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

impl fmt::Debug for RuntimeEnv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&String> = self.env_vars.keys().collect();
        f.debug_struct("RuntimeEnv")
            .field("env_vars", &names)
            .field("rest", &self.rest.keys())
            .finish()
    }
}

/// A LoRA adapter: the name that users write, and its folder or bucket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoraAdapter {
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bucket_uri: Option<String>,
    /// Its own prompt format, defaults and stops, instead of the base model's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<Value>,
}

optional_keys! {
    /// Our own section.
    PoolConfig {
        priority: Option<i64>,
        keep_hot: Option<KeepHot>,
        preload: Option<bool>,
        aliases: Vec<String>,
        /// What one replica needs, on all its devices together.
        memory_gib: Option<f64>,
        min_resident: Option<MinResident>,
        max_turn: Option<MaxTurn>,
        queue_limit: Option<i64>,
        queue_timeout: Option<Length>,
        labels: BTreeMap<String, String>,
        gpus_per_replica: Option<i64>,
        /// Of RayServeEngine: the most applications at once.
        max_replicas: Option<i64>,
        /// The only devices that its replicas may use.
        devices: Option<DeviceConstraint>,
        stop_grace: Option<Length>,
        load_deadline: Option<Length>,
        stall_after: Option<Length>,
        first_token_after: Option<Length>,
        idle_probe: Option<IdleProbe>,
        /// Whose output a prompt format gives.
        prompt_compat: PromptCompat,
        sleep: Sleep,
        /// Handling of request fields that the engine is not known to support; absent is `pool.unknown_fields`.
        unknown_fields: Option<UnknownFields>,
        /// Sends requests without `stream` to the engine without `stream`; absent is what the engine's kind takes.
        plain_requests: Option<bool>,
        /// What texts of users must be before the model is asked.
        validation: Option<ValidationSection>,
    }
}

optional_keys! {
    /// How many devices a replica takes.
    ScalingConfig {
        num_workers: Option<i64>,
        num_gpus_per_worker: Option<f64>,
        num_cpus_per_worker: Option<Value>,
        placement_strategy: Option<Value>,
        resources_per_worker: Option<Value>,
        pg_timeout_s: Option<Value>,
    }
}

optional_keys! {
    /// How many requests and replicas.
    DeploymentConfig {
        autoscaling_config: Option<AutoscalingConfig>,
        max_ongoing_requests: Option<i64>,
        /// The old name of `max_ongoing_requests`.
        max_concurrent_queries: Option<i64>,
        ray_actor_options: Option<Value>,
    }
}

optional_keys! {
    /// Ray Serve's, with the old names. Without effect here.
    AutoscalingConfig {
        min_replicas: Option<i64>,
        initial_replicas: Option<i64>,
        max_replicas: Option<i64>,
        target_ongoing_requests: Option<f64>,
        target_num_ongoing_requests_per_replica: Option<f64>,
        metrics_interval_s: Option<f64>,
        look_back_period_s: Option<f64>,
        smoothing_factor: Option<f64>,
        upscale_smoothing_factor: Option<f64>,
        downscale_smoothing_factor: Option<f64>,
        upscaling_factor: Option<f64>,
        downscaling_factor: Option<f64>,
        upscale_delay_s: Option<f64>,
        downscale_delay_s: Option<f64>,
        downscale_to_zero_delay_s: Option<f64>,
    }
}
