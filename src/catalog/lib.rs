//! The catalogue of all models that the pool can run, from model files, `model_reference.json` and registrations. Finds models by
//! name. It does not track which models are loaded, and does not watch the files.

mod adapter_bases;
mod adapter_file;
mod adapter_names;
mod adapters;
mod arguments;
mod broken_models;
mod candle_activations;
mod candle_checks;
mod candle_config;
mod candle_models;
mod candle_need;
mod constraint;
mod diagnostics;
mod document;
mod dynamic_adapters;
mod engine_config;
mod engine_fields;
mod engine_kind;
mod engine_names;
mod engine_options;
mod engines;
mod entry;
mod entry_source;
mod error;
mod estimate;
mod every_error;
mod export;
mod fields;
mod files;
mod files_mark;
mod findings;
mod forms;
mod generation;
mod hub_cache;
mod hub_name;
mod installed_version;
mod layouts;
mod limits;
mod model_card;
mod model_file;
mod model_kind;
mod models;
mod need;
mod need_source;
mod plain_requests;
mod program_search;
mod prompt;
mod ray_serve;
mod ray_serve_keys;
mod ray_serve_llm;
mod reading_files;
mod reasoning;
mod recipe;
mod reference;
mod relative_paths;
mod remote;
mod remote_url;
mod request_fields;
mod response_room;
mod sampling;
mod scaling;
mod server_config;
mod speculation;
mod template_forms;
mod template_problem;
mod token_counter;
mod unused_keys;
mod validation;
mod weights;
mod weights_config;
mod weights_listing;

pub use adapter_names::{AdapterBucket, AdapterPlace, AdapterRoom, DynamicAdapters};
pub use broken_models::BrokenModel;
pub use candle_models::ModelTask;
pub use constraint::{DeviceConstraint, DeviceFacts, UnknownDevice};
pub use engine_kind::{CANDLE_CPU_OVERHEAD, EngineKind, GPU_OVERHEAD};
pub use engine_options::EngineOptions;
pub use engines::{
    ADAPTER_ROUTES, AdapterRoutes, ArgumentContext, Call, CheckedFlags, ChosenParser, ENGINES,
    Effort, EffortField, Engine, EngineAddress, ExtraRoute, Failure, FailureClass, FlagError,
    Flags, LaunchContext, Metrics, NeedsWeightSize, OptionFate, Parking, PlacedDevice,
    PythonPackage, ReasoningFields, ReasoningSwitch, ReasoningWish, RerankApi, ServerCommand,
    ServerRecipe, Stage, TemplateForms, ThinkForm, TokenApi, ToolForm, WishPart, barred_variable,
    find as find_engine,
};
pub use entry::{Entry, PriorityFrom};
pub use entry_source::Source;
pub use error::{CatalogError, Warning};
pub use estimate::EstimateError;
pub use findings::Finding;
pub use generation::{Generation, STOPS_MAX};
pub use layouts::{Demand, DeviceShare, Layout};
pub use limits::{DEVICES_MAX, MODEL_ID_MAX, model_id_problem};
pub use model_card::ModelCard;
pub use model_file::ModelDocument;
pub use model_files::adapter::{AdapterConfig, AdapterFiles};
pub use model_files::{
    Architecture, CONFIG_TOLERANCE_PER_CENT, CacheLoad, FileError, LayerCache, LayerGroup,
    ModelFiles, NumberWidth, Parameters, Split, Weights, damage, parameters_by_config,
    weights_by_config, weights_of,
};
pub use model_kind::ModelKind;
pub use models::{Catalog, Changes};
pub use need_source::{MeasuredNeed, NeedSource};
pub use plain_requests::CANDLE_METRICS;
pub use program_search::find_program;
pub use prompt::{Prompt, PromptCompat, PromptError, PromptFormat};
pub use ray_serve::{RayPlace, RayServeRecipe, ServeApplication};
pub use recipe::{
    CacheType, CandleRecipe, CommandRecipe, ComputeDevice, JoiningRule, LaunchValues, Listen,
    LoopbackAddress, NumberTypes, ProductType, Quantization, Recipe, RenderedCommand, Secret,
    Sleep, SleepCommands, Speculation, Task, TemplateError, TokenBudgets,
};
pub use reference::{Reference, ReferenceEntry};
pub use remote::{KeySource, RemoteRecipe};
pub use remote_url::RemoteUrl;
pub use request_fields::{
    Ask, TEMPLATE_SWITCHES, fields_of_all_engines, is_hint_of_another_service, never,
};
pub use token_counter::{CountError, TokenCount, TokenCounter};
pub use unused_keys::table_of_keys_without_effect;
pub use validation::{AllowedCharacters, OnViolation, Range, Validation};
pub use weights::{
    Bucket, BucketUri, CredentialsUrl, ExtraFiles, Fetch, GgufFiles, Manifest, ManifestFile,
    Origin, Scheme,
};
pub use weights_config::cache_dir;
pub use weights_listing::{ListedFile, WeightsListing, complete_below};
