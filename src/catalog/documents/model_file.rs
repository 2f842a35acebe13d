//! The structure of a model file: RayLLM v0.5's sections plus `pool_config`. Defines only keys and types; `entry` interprets and
//! checks the values.

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
use config::DeviceKind;
use config::{IdleProbe, KeepHot, Length, MaxTurn, MinResident, UnknownFields};

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Defines a section of optional keys, after those in brackets, which are required. Absent keys are left out when written.
macro_rules! optional_keys {
    ($(#[$doc:meta])* $name:ident {
        $([$required:ident: $required_type:ty])* $($(#[$attribute:meta])* $key:ident: $type:ty,)*
    }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            $(pub $required: $required_type,)*
            $($(#[$attribute])* #[serde(default, skip_serializing_if = "is_default")] pub $key: $type,)*
        }
    };
}

optional_keys! {
    /// A model file. Absent keys stay absent when it is written again.
    ModelDocument {
        [engine_config: EngineConfig]
        pool_config: PoolConfig,
        scaling_config: ScalingConfig,
        deployment_config: DeploymentConfig,
        enabled: Option<bool>,
        lora_config: LoraConfig,
        /// RayLLM's section for one key of `lora_config`.
        multiplex_config: MultiplexConfig,
    }
}

optional_keys! {
    /// Adapters found by name when a request names them.
    LoraConfig {
        /// A folder, or a bucket address.
        dynamic_lora_loading_path: Option<String>,
        max_num_adapters_per_replica: Option<i64>,
        /// The highest allowed rank.
        max_lora_rank: Option<i64>,
        /// Maximum size of one adapter's files.
        max_adapter_gib: Option<f64>,
        /// Maximum size of all adapters downloaded from buckets.
        cache_gib: Option<f64>,
        /// Additional names for the base model in adapters' configurations.
        base_models: Vec<String>,
        download_timeout_s: Option<f64>,
        max_download_tries: Option<i64>,
    }
}

optional_keys! {
    /// RayLLM's section.
    MultiplexConfig {
        max_num_models_per_replica: Option<i64>,
        max_num_adapters_per_replica: Option<i64>,
        download_timeout_s: Option<f64>,
        max_download_tries: Option<i64>,
    }
}

optional_keys! {
    /// The program that runs the model, and its settings.
    EngineConfig {
        [model_id: String]
        #[serde(rename = "type")]
        engine: Option<String>,
        hf_model_id: Option<String>,
        model_path: Option<String>,
        /// CandleEngine: the model's file in the repository `hf_model_id`.
        gguf_file: Option<String>,
        max_total_tokens: Option<i64>,
        /// The engine's own options, which differ between engines.
        engine_kwargs: Map<String, Value>,
        env: BTreeMap<String, Secret>,

        // For engines that are separate programs.
        program: Option<String>,
        command_prefix: Option<Vec<String>>,
        revision: Option<String>,
        /// LoRA adapters that the engine serves along with the model.
        lora_adapters: Vec<LoraAdapter>,
        /// The component that downloads weights that are not local.
        fetch: Option<Fetcher>,
        /// If true, `model_path` is the pool's download folder.
        #[serde(skip)]
        is_fetched: bool,
        // For CommandEngine only.
        command: Option<Vec<String>>,
        listen: Option<Listen>,
        ready_path: Option<String>,
        served_model_name: Option<String>,
        working_dir: Option<String>,
        /// Command that puts the engine to sleep, with programs such as cuda-checkpoint or criu.
        sleep_command: Option<Vec<String>>,
        wake_command: Option<Vec<String>>,

        // For RemoteEngine only.
        url: Option<String>,
        api_key_env: Option<String>,
        api_key_file: Option<String>,
        health_path: Option<String>,
        headers: BTreeMap<String, Secret>,

        // For RayServeEngine only.
        // Ray's dashboard, if it differs from that of `cluster.ray`.
        address: Option<String>,
        /// The file that contains Ray's token.
        token_file: Option<String>,
        /// Serve's HTTP proxy.
        proxy: Option<String>,
        accelerator_type: Option<String>,
        /// A custom application that replaces `ray.serve.llm`.
        import_path: Option<String>,
        args: Map<String, Value>,
        deployments: Vec<Value>,

        // RayLLM's keys, accepted for compatibility with its files, without effect.
        model_type: Option<Value>,
        tokenizer_id: Option<Value>,
        s3_mirror_config: Option<Value>,
        gcs_mirror_config: Option<Value>,
        /// The artifact in an OCI registry that has the weights: `oci://registry/repository:tag`.
        oci_artifact: Option<String>,
        runtime_env: Option<RuntimeEnv>,
        /// Variables of the pool's environment to pass to the engine.
        env_vars_to_propogate: Option<Vec<String>>,
        model_url: Option<Value>,
        model_description: Option<Value>,
        generation: Option<Value>,
    }
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

/// A LoRA adapter: its name for users, and its folder or bucket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoraAdapter {
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bucket_uri: Option<String>,
    /// Prompt format, defaults and stops that replace the base model's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<Value>,
}

optional_keys! {
    /// The settings of model-pool itself.
    PoolConfig {
        priority: Option<i64>,
        keep_hot: Option<KeepHot>,
        preload: Option<bool>,
        aliases: Vec<String>,
        /// Memory of one replica, on all its devices together.
        memory_gib: Option<f64>,
        min_resident: Option<MinResident>,
        max_turn: Option<MaxTurn>,
        queue_limit: Option<i64>,
        queue_timeout: Option<Length>,
        labels: BTreeMap<String, String>,
        gpus_per_replica: Option<i64>,
        /// Nodes of one replica, with the same number of devices on each.
        nodes: Option<i64>,
        /// RayServeEngine: maximum simultaneous applications.
        max_replicas: Option<i64>,
        /// Restricts the devices of its replicas.
        devices: Option<DeviceConstraint>,
        /// The maker of the devices that its engine computes on: `nvidia`, `amd`, `intel`, `other`, or `host` for the CPU.
        accelerator: Option<DeviceKind>,
        stop_grace: Option<Length>,
        load_deadline: Option<Length>,
        stall_after: Option<Length>,
        first_token_after: Option<Length>,
        idle_probe: Option<IdleProbe>,
        /// The implementation whose output a prompt format reproduces.
        prompt_compat: PromptCompat,
        sleep: Sleep,
        /// Handling of request fields that the engine is not known to support; defaults to `pool.unknown_fields`.
        unknown_fields: Option<UnknownFields>,
        /// Passes non-streaming requests to the engine without `stream`; the default depends on the engine's kind.
        plain_requests: Option<bool>,
        /// Conditions that the text of users must meet.
        validation: Option<ValidationSection>,
    }
}

optional_keys! {
    /// Devices per replica.
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
    /// Numbers of requests and replicas.
    DeploymentConfig {
        autoscaling_config: Option<AutoscalingConfig>,
        max_ongoing_requests: Option<i64>,
        /// The former name of `max_ongoing_requests`.
        max_concurrent_queries: Option<i64>,
        ray_actor_options: Option<Value>,
    }
}

optional_keys! {
    /// Ray Serve's section, including its old names. Some keys have no effect.
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
