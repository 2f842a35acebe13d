//! Documents that describe models: their keys, limits and values, and diagnostics with the position of each problem.

mod constraint;
mod diagnostics;
mod error;
pub(crate) mod every_error;
pub(crate) mod fields;
pub(crate) mod limits;
mod model_file;
pub(crate) mod prompt;
mod relative_paths;
mod source;
pub(crate) mod template_problem;
mod token_counter;
pub(crate) mod validation;

pub use constraint::{DeviceConstraint, DeviceFacts, UnknownDevice};
pub(crate) use diagnostics::Diagnostics;
pub use error::{CatalogError, Warning};
pub(crate) use limits::{CONTEXT_MAX, SEATS_MAX};
pub use limits::{DEVICES_MAX, MODEL_ID_MAX, model_id_problem};
pub(crate) use model_file::{
    AutoscalingConfig, DeploymentConfig, EngineConfig, Fetcher, LoraAdapter, LoraConfig,
    MultiplexConfig, PoolConfig, ScalingConfig,
};
pub use model_file::{
    CacheType, ComputeDevice, Listen, LoopbackAddress, ModelDocument, NumberTypes, ProductType,
    Quantization, Secret, Sleep, Task,
};
pub use prompt::{Prompt, PromptCompat, PromptError, PromptFormat};
pub use source::Source;
pub use token_counter::{CountError, TokenCount, TokenCounter};
pub use validation::{AllowedCharacters, OnViolation, Range, Validation};
