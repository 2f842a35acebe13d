//! The catalogue of all models that the pool can run, from model files, `model_reference.json` and registrations. Finds models by
//! name. It does not track which models are loaded, and does not watch the files.

mod documents;
mod engines;
mod entries;
mod estimates;
mod forms;
mod models;
mod recipes;
mod requests;
mod weights;

pub use config::DeviceKind;
pub use documents::{
    AllowedCharacters, CatalogError, CountError, DEVICES_MAX, DeviceConstraint, DeviceFacts,
    MODEL_ID_MAX, ModelDocument, OnViolation, Prompt, PromptCompat, PromptError, PromptFormat,
    Range, Source, TokenCount, TokenCounter, UnknownDevice, Validation, Warning, model_id_problem,
};
pub use engines::{
    ADAPTER_ROUTES, AdapterRoutes, ArgumentContext, Call, CheckedFlags, ChosenParser, ENGINES,
    Effort, EffortField, Engine, EngineAddress, ExtraRoute, Failure, FailureClass, FlagError,
    Flags, GangMember, LaunchContext, Metrics, NeedsWeightSize, OptionFate, Parking, PlacedDevice,
    PythonPackage, ReasoningFields, ReasoningSwitch, ReasoningWish, RerankApi, ServerCommand,
    ServerRecipe, Stage, TemplateForms, ThinkForm, TokenApi, ToolForm, WishPart, barred_variable,
    find as find_engine,
};
pub use engines::{
    CANDLE_CPU_OVERHEAD, EngineKind, GPU_OVERHEAD, LLAMA_CPU_OVERHEAD, find_program,
};
pub use entries::{Entry, Finding, ModelCard, ModelKind, PriorityFrom, Reference, ReferenceEntry};
pub use estimates::{
    Demand, DeviceShare, DeviceSize, EntryFigures, EstimateError, Layout, MeasuredNeed,
    MemorySplit, NeedSource,
};
pub use forms::table_of_keys_without_effect;
pub use model_files::adapter::{AdapterConfig, AdapterFiles};
pub use model_files::{
    Architecture, CONFIG_TOLERANCE_PER_CENT, CacheLoad, FileError, LayerCache, LayerGroup,
    ModelFiles, NumberWidth, Parameters, Split, Weights, damage, parameters_by_config,
    weights_by_config, weights_of,
};
pub use models::{BrokenModel, Catalog, Changes};
pub use recipes::{
    CacheType, CandleRecipe, CommandRecipe, ComputeDevice, EngineOptions, JoiningRule, KeySource,
    LaunchValues, Listen, LoopbackAddress, ModelTask, NumberTypes, ProductType, Quantization,
    RayPlace, RayServeRecipe, Recipe, RemoteRecipe, RemoteUrl, RenderedCommand, Secret,
    ServeApplication, Sleep, SleepCommands, Speculation, Task, TemplateError, TokenBudgets,
    cache_dir,
};
pub use requests::{
    Ask, CANDLE_METRICS, Generation, STOPS_MAX, TEMPLATE_SWITCHES, fields_of_all_engines,
    is_hint_of_another_service, metrics_named, never,
};
pub use weights::{
    AdapterBucket, AdapterPlace, AdapterRoom, Bucket, BucketUri, CredentialsUrl, DynamicAdapters,
    ExtraFiles, Fetch, GgufFiles, ListedFile, Manifest, ManifestFile, OciReference, OciVersion,
    Origin, Scheme, WeightsListing, complete_below,
};
