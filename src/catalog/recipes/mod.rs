//! Recipes for starting an engine, and how `engine_config` becomes one.

mod adapters;
mod candle_checks;
pub(crate) mod candle_config;
pub(crate) mod candle_models;
mod command_line;
pub(crate) mod dynamic_adapters;
pub(crate) mod engine_config;
mod engine_fields;
pub(crate) mod engine_names;
pub(crate) mod engine_options;
mod llama_contradictions;
pub(crate) mod llama_offload;
pub(crate) mod ray_serve;
mod ray_serve_llm;
pub(crate) mod recipe;
pub(crate) mod remote;
mod remote_url;
mod server_config;
mod speculation;
mod tensor_override;
pub(crate) mod weights_config;

pub use candle_models::ModelTask;
pub(crate) use engine_fields::CANDLE;
pub use engine_options::EngineOptions;
pub(crate) use llama_offload::{Offload, SplitMode};
pub use ray_serve::{RayPlace, RayServeRecipe, ServeApplication};
pub use recipe::{
    CacheType, CandleRecipe, CommandRecipe, ComputeDevice, JoiningRule, LaunchValues, Listen,
    LoopbackAddress, NumberTypes, ProductType, Quantization, Recipe, RenderedCommand, Secret,
    Sleep, SleepCommands, Speculation, Task, TemplateError, TokenBudgets,
};
pub use remote::{KeySource, RemoteRecipe};
pub use remote_url::RemoteUrl;
pub(crate) use server_config::EntryContext;
pub(crate) use tensor_override::{Pattern, Target};
pub use weights_config::cache_dir;
