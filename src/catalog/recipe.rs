//! How a model's engine is started: with the embedded engine, or any command. It fills in the
//! command's templates and checks them when the catalogue is read; it starts nothing.
//! One file because the kinds of recipe share the templates and the checks of them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use minijinja::{Environment, UndefinedBehavior, Value};

use pool::Bytes;

use super::adapter_names::AdapterRoom;
use super::candle_models::Serves;
use super::engine_kind::{CANDLE_CPU_OVERHEAD, EngineKind, GPU_OVERHEAD};
use super::engines::{Extra, Parking, RerankApi, ServerRecipe, TokenApi, post};
use super::limits::DEVICES_MAX;
pub use super::model_file::{
    CacheType, ComputeDevice, Listen, NumberTypes, ProductType, Quantization, Secret, Sleep, Task,
};
use super::ray_serve::RayServeRecipe;
use super::remote::RemoteRecipe;

/// How to run one replica.
#[derive(Clone, Debug, PartialEq)]
pub enum Recipe {
    Candle(CandleRecipe),
    Command(CommandRecipe),
    /// An engine of the table.
    Server(Box<ServerRecipe>),
    /// It runs on a remote server.
    Remote(RemoteRecipe),
    /// It runs in a Ray cluster, as applications of Ray Serve that the pool deploys.
    RayServe(Box<RayServeRecipe>),
}

impl Recipe {
    /// The engine's word in answers: `candle`, `command`, `vllm`, `remote`, `ray_serve`.
    pub fn engine(&self) -> &'static str {
        match self {
            Recipe::Candle(_) => "candle",
            Recipe::Command(_) => "command",
            Recipe::Server(server) => server.engine.word,
            Recipe::Remote(_) => "remote",
            Recipe::RayServe(_) => "ray_serve",
        }
    }

    /// The name by which the engine itself knows the model, if that is another one.
    pub fn served_model_name(&self) -> Option<&str> {
        match self {
            Recipe::Candle(_) => None,
            Recipe::Command(command) => command.served_model_name.as_deref(),
            // It gets the catalogue's name where there is no other.
            Recipe::Server(server) => server.served_model_name.as_deref(),
            Recipe::Remote(remote) => remote.served_model_name.as_deref(),
            Recipe::RayServe(serve) => serve.served_model_name.as_deref(),
        }
    }

    /// Whether the engine fills whatever it is given, so that a measurement of its memory tells what
    /// was reserved and not what it needs.
    pub fn fills_its_reservation(&self) -> bool {
        match self {
            Recipe::Candle(_) | Recipe::Command(_) | Recipe::Remote(_) | Recipe::RayServe(_) => {
                false
            }
            Recipe::Server(server) => server.engine.fills,
        }
    }
}

impl Recipe {
    /// Its 2xx answer means ready.
    pub fn ready_path(&self) -> &str {
        match self {
            Recipe::Candle(_) => "/health",
            Recipe::Command(command) => &command.ready_path,
            Recipe::Server(server) => server.engine.ready_path,
            Recipe::Remote(remote) => &remote.health_path,
            Recipe::RayServe(serve) => &serve.health_path,
        }
    }

    /// Whether its engine takes this field of OpenAI's requests and does nothing with it.
    pub fn ignores(&self, field: &str) -> bool {
        let own: &[&str] = match self {
            Recipe::Candle(_) => &[],
            Recipe::Server(server) => server.engine.ignores,
            // Nothing is known of them.
            Recipe::Command(_) | Recipe::Remote(_) | Recipe::RayServe(_) => return false,
        };
        OF_OPENAI_ALONE.contains(&field) || own.contains(&field)
    }

    /// What its engine's errors contain when it is about to end.
    pub fn exit_messages(&self) -> &'static [&'static str] {
        match self {
            Recipe::Server(server) => server.engine.last_errors,
            Recipe::Candle(_) | Recipe::Command(_) | Recipe::Remote(_) | Recipe::RayServe(_) => &[],
        }
    }

    /// Whether its engine says by this error that it is about to end.
    pub fn is_exit_message(&self, error: &str) -> bool {
        self.exit_messages().iter().any(|it| error.contains(it))
    }

    /// Whether its engine has this route. Of those of which nothing is known it is supposed; they say
    /// themselves what they have not.
    pub fn has(&self, extra: Extra) -> bool {
        match self {
            Recipe::Candle(candle) => candle.has(extra),
            Recipe::Server(server) => server.engine.routes.contains(&extra),
            Recipe::Command(_) | Recipe::Remote(_) | Recipe::RayServe(_) => true,
        }
    }

    /// Whether its model writes texts, as far as that is known.
    pub fn generates(&self) -> bool {
        match self {
            Recipe::Candle(candle) => matches!(candle.serves, None | Some(Serves::Texts)),
            Recipe::Server(server) => server.engine.kind != EngineKind::Tei,
            Recipe::Command(_) | Recipe::Remote(_) | Recipe::RayServe(_) => true,
        }
    }

    /// How its engine wants to be asked for tokens.
    pub fn token_api(&self) -> TokenApi {
        match self {
            Recipe::Server(server) => server.engine.tokens,
            Recipe::Candle(_) | Recipe::Command(_) | Recipe::Remote(_) | Recipe::RayServe(_) => {
                TokenApi::Vllm
            }
        }
    }

    /// Whether its engine's embeddings have as many dimensions as a request wants.
    pub fn has_dimensions(&self) -> bool {
        match self {
            Recipe::Candle(_) => true,
            Recipe::Server(server) => server.engine.dimensions,
            Recipe::Command(_) | Recipe::Remote(_) | Recipe::RayServe(_) => true,
        }
    }

    /// How its engine wants to be asked for ranks.
    pub fn rerank_api(&self) -> RerankApi {
        match self {
            Recipe::Server(server) => server.engine.rerank,
            Recipe::Candle(_) | Recipe::Command(_) | Recipe::Remote(_) | Recipe::RayServe(_) => {
                RerankApi::Common
            }
        }
    }

    /// It runs on a remote server or in Ray: nothing is loaded here, and the pool sees no memory of it.
    pub fn is_remote(&self) -> bool {
        matches!(self, Recipe::Remote(_) | Recipe::RayServe(_))
    }

    /// The application of Ray Serve, if it is one.
    pub fn ray_serve(&self) -> Option<&RayServeRecipe> {
        match self {
            Recipe::RayServe(serve) => Some(&**serve),
            Recipe::Candle(_) | Recipe::Command(_) | Recipe::Server(_) | Recipe::Remote(_) => None,
        }
    }

    /// The remote server, for people, if there is one.
    pub fn remote_url(&self) -> Option<String> {
        match self {
            Recipe::Remote(remote) => Some(remote.url.to_string()),
            Recipe::RayServe(serve) => Some(format!("Ray Serve at {}", serve.place.address)),
            Recipe::Candle(_) | Recipe::Command(_) | Recipe::Server(_) => None,
        }
    }

    /// The most devices that one replica spreads over.
    pub fn devices_max(&self) -> u32 {
        match self {
            Recipe::Candle(candle) if candle.device == ComputeDevice::Cuda => DEVICES_MAX,
            Recipe::Candle(_) => 1,
            Recipe::Server(server) => server.engine.devices_max,
            Recipe::Command(_) | Recipe::Remote(_) | Recipe::RayServe(_) => DEVICES_MAX,
        }
    }

    /// How its engine sleeps; `None`: it cannot, or is not to.
    pub fn parking(&self) -> Option<&'static super::Parking> {
        match self {
            Recipe::Candle(candle) => candle.parking(),
            Recipe::Server(server) => server.engine.parks(server.sleep),
            Recipe::Command(_) | Recipe::Remote(_) | Recipe::RayServe(_) => None,
        }
    }
}

/// What concerns OpenAI's own service, and has no meaning on a machine of one's own.
const OF_OPENAI_ALONE: [&str; 10] = [
    "metadata",
    "prediction",
    "prompt_cache_key",
    "prompt_cache_retention",
    "safety_identifier",
    "service_tier",
    "store",
    "user",
    // No engine has levels of it.
    "verbosity",
    "web_search_options",
];

/// Bounds on tokens in the embedded engine; `None` is without one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct TokenBudgets {
    /// Of one prompt.
    pub input: Option<u32>,
    /// Of all prompts that are computed at the same time.
    pub prefill: Option<u32>,
    /// Of all requests that run, with the most that they may answer.
    pub total: Option<u32>,
    /// When waiting requests join those that run; `None`: as soon as there is room.
    pub joining: Option<Joining>,
}

/// Waiting requests join once so many of them wait, or after so many steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Joining {
    /// Thousandths of the number of those that run.
    pub served_ratio_milli: u32,
    /// Steps without a new request after which one joins in any case.
    pub steps: u32,
}

/// Tokens that the embedded engine proposes by looking up a request's own text; `None` is the engine's own choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Speculation {
    /// Of one request in a step; 0 is no speculation.
    pub tokens: Option<u32>,
    /// How many last tokens are looked up, at most and at least.
    pub lookup_max: Option<u32>,
    pub lookup_min: Option<u32>,
}

/// The embedded engine.
#[derive(Clone, Debug, PartialEq)]
pub struct CandleRecipe {
    /// The folder with `config.json`, the tokenizer and the weights, or a GGUF file; absolute.
    pub model_path: PathBuf,
    /// What the model is for; `None` while its files are not here and nothing else says it.
    pub serves: Option<Serves>,
    /// What it is served for: by its own file, or else by the model's files.
    pub task: Option<Task>,
    /// Tokens of one sequence; `None`: what the model's own files say.
    pub context: Option<u32>,
    /// Sequences that are computed together.
    pub concurrency: u32,
    /// Processor threads; `None`: the engine's own choice.
    pub threads: Option<u32>,
    /// Requests that are made tokens of at once; `None`: the engine's own choice.
    pub tokenizer_workers: Option<u32>,
    pub budgets: TokenBudgets,
    pub speculation: Speculation,
    /// Wide weights are written anew in this form while they are loaded.
    pub quantization: Option<Quantization>,
    pub numbers: NumberTypes,
    /// Every number of the weights is looked at before the model counts as ready.
    pub verify: bool,
    /// Layers that do not fit on its GPUs are computed on the CPU.
    pub overflows: bool,
    pub device: ComputeDevice,
    pub sleep: Sleep,
    /// LoRA adapters that are loaded with it, with their folders.
    pub adapters: Vec<(String, PathBuf)>,
    /// For those that come while it runs.
    pub adapter_room: AdapterRoom,
    pub env: BTreeMap<String, Secret>,
}

impl CandleRecipe {
    /// Whether its model answers on this route; of a model that is not here yet all are supposed.
    fn has(&self, extra: Extra) -> bool {
        match (extra, self.serves) {
            (Extra::Tokenize | Extra::Detokenize, _) => true,
            (Extra::Embeddings, serves) => {
                matches!(serves, None | Some(Serves::Embeddings))
            }
            (Extra::Rerank | Extra::Score, serves) => matches!(serves, None | Some(Serves::Ranks)),
            (Extra::Transcriptions | Extra::Translations | Extra::Speech, _) => false,
        }
    }

    /// How it sleeps, if it is to. Of what embeds and ranks most are encoders, whose weights would stay on a GPU.
    fn parking(&self) -> Option<&'static Parking> {
        match (self.sleep, self.device, self.serves) {
            (Sleep::Off | Sleep::Discard, _, _) => None,
            (Sleep::Weights, ComputeDevice::Cpu, _) => Some(&CANDLE_ON_THE_CPU),
            (Sleep::Weights, _, Some(Serves::Embeddings | Serves::Ranks)) => None,
            (Sleep::Weights, _, Some(Serves::Texts) | None) => Some(&CANDLE_ON_A_GPU),
        }
    }
}

/// It keeps its mapping of the weights, whose pages are the system's then, and drops caches.
const CANDLE_ON_THE_CPU: Parking = Parking {
    depth: Sleep::Weights,
    sleep: post("/sleep"),
    wake: &[post("/wake_up")],
    is_sleeping: Some("/is_sleeping"),
    resident_per_device: CANDLE_CPU_OVERHEAD,
    weights_on_host: false,
};

/// Its weights wait where they came from: in pages of mapped files, or in what was quantised at load.
const CANDLE_ON_A_GPU: Parking = Parking {
    resident_per_device: GPU_OVERHEAD,
    weights_on_host: true,
    ..CANDLE_ON_THE_CPU
};

/// Any program that speaks the OpenAI API.
#[derive(Clone, Debug, PartialEq)]
pub struct CommandRecipe {
    /// Program and arguments, each a template.
    pub command: Vec<String>,
    pub listen: Listen,
    /// Answers 200 when the engine is ready.
    pub ready_path: String,
    /// Variables of the engine's environment; each value is a template.
    pub env: BTreeMap<String, Secret>,
    pub served_model_name: Option<String>,
    /// Absolute; `None`: the pool's own.
    pub working_dir: Option<PathBuf>,
    /// An absolute path, or the model's name on Hugging Face for engines that fetch it.
    pub model_path: Option<String>,
    pub context: Option<u32>,
    /// How it is put to sleep, if that is configured.
    pub sleep: Option<SleepCommands>,
}

/// Programs that move an engine off its devices and back. Each word may use `{{ pid }}`, the process
/// that was started for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SleepCommands {
    /// At least the program.
    pub sleep: Vec<String>,
    pub wake: Vec<String>,
}

impl SleepCommands {
    /// The words with the process filled in; `key` names them in the error.
    pub fn render(words: &[String], key: &str, pid: u32) -> Result<Vec<String>, TemplateError> {
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        let context = Value::from_pairs([("pid", Value::from(pid))]);
        let fill = |(nth, word): (usize, &String)| {
            environment
                .render_str(word, &context)
                .map_err(|error| TemplateError {
                    key: format!("{key}[{nth}]"),
                    problem: format!("{}; here alone {{{{ pid }}}} has a value", error.kind()),
                })
        };
        words.iter().enumerate().map(fill).collect()
    }
}

/// What is known only when an engine is started.
#[derive(Clone, Copy, Debug)]
pub struct LaunchValues<'a> {
    pub model_name: &'a str,
    /// With `Listen::Port`.
    pub port: Option<u16>,
    /// With `Listen::Socket`.
    pub socket: Option<&'a Path>,
    /// Indices of the devices, as the engine's own numbering has them.
    pub devices: &'a [u32],
    /// What the replica may use on each device.
    pub memory: Bytes,
}

/// A command with nothing left to fill in. The values of `env` stay hidden in `Debug`.
#[derive(Clone, Debug, PartialEq)]
pub struct RenderedCommand {
    /// At least the program.
    pub argv: Vec<String>,
    pub env: BTreeMap<String, Secret>,
    pub working_dir: Option<PathBuf>,
}

/// Why a template cannot be filled in.
#[derive(Debug, thiserror::Error)]
#[error("{key}: {}", self.explain())]
pub struct TemplateError {
    /// The key that holds the template, such as `engine_config.command[2]`.
    pub key: String,
    pub problem: String,
}

impl TemplateError {
    /// The problem and what a template may use, without the key.
    pub fn explain(&self) -> String {
        format!(
            "{}; a template may use {}",
            self.problem,
            TEMPLATE_NAMES.join(", ")
        )
    }
}

const TEMPLATE_NAMES: [&str; 8] = [
    "{{ port }} (with listen: port)",
    "{{ socket }} (with listen: socket)",
    "{{ model_path }} (with engine_config.model_path or hf_model_id)",
    "{{ model_name }}",
    "{{ devices }}",
    "{{ device_count }}",
    "{{ memory_bytes }}",
    "{{ context }} (with engine_config.max_total_tokens)",
];

impl CommandRecipe {
    /// Fills in every template. A name that has no value here is an error, never an empty text.
    pub fn render(&self, values: &LaunchValues<'_>) -> Result<RenderedCommand, TemplateError> {
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        let context = self.context_of(values);
        let fill = |key: String, template: &str| {
            let text = environment
                .render_str(template, &context)
                .map_err(|error| {
                    let detail = error.detail().map(str::to_owned);
                    let problem = detail.unwrap_or_else(|| error.kind().to_string());
                    TemplateError {
                        key: key.clone(),
                        problem,
                    }
                })?;
            if text.contains('\0') {
                let problem = "the text holds a NUL byte, which no program can be given".to_owned();
                return Err(TemplateError { key, problem });
            }
            Ok(text)
        };
        let argv = self
            .command
            .iter()
            .enumerate()
            .map(|(index, template)| fill(format!("engine_config.command[{index}]"), template))
            .collect::<Result<Vec<_>, _>>()?;
        let env = self
            .env
            .iter()
            .map(|(name, template)| {
                let value = fill(format!("engine_config.env.{name}"), &template.0)?;
                Ok((name.clone(), Secret(value)))
            })
            .collect::<Result<BTreeMap<_, _>, TemplateError>>()?;
        Ok(RenderedCommand {
            argv,
            env,
            working_dir: self.working_dir.clone(),
        })
    }

    fn context_of(&self, values: &LaunchValues<'_>) -> Value {
        let devices: Vec<String> = values.devices.iter().map(u32::to_string).collect();
        let mut names: BTreeMap<&str, Value> = BTreeMap::from([
            ("model_name", Value::from(values.model_name)),
            ("devices", Value::from(devices.join(","))),
            ("device_count", Value::from(values.devices.len())),
            ("memory_bytes", Value::from(values.memory.0)),
        ]);
        match self.listen {
            Listen::Port => {
                names.extend(values.port.map(|port| ("port", Value::from(port))));
            }
            Listen::Socket => {
                let socket = values.socket.map(|path| path.display().to_string());
                names.extend(socket.map(|path| ("socket", Value::from(path))));
            }
        }
        names.extend(
            self.model_path
                .as_deref()
                .map(|path| ("model_path", Value::from(path))),
        );
        names.extend(self.context.map(|tokens| ("context", Value::from(tokens))));
        Value::from(names)
    }

    /// Fills the templates with made-up values, so that a mistake shows when the catalogue is
    /// read and not at three in the morning, and proves that the engine gets its address.
    pub(super) fn check(&self) -> Result<(), TemplateError> {
        let socket = Path::new("/run/model-pool-listen-probe.sock");
        let values = LaunchValues {
            model_name: "organisation/model",
            port: Some(PROBE_PORT),
            socket: Some(socket),
            devices: &[0],
            memory: Bytes(Bytes::GIB),
        };
        let rendered = self.render(&values)?;
        let (probe, name) = match self.listen {
            Listen::Port => (PROBE_PORT.to_string(), "{{ port }}"),
            Listen::Socket => (socket.display().to_string(), "{{ socket }}"),
        };
        let mut texts = rendered
            .argv
            .iter()
            .chain(rendered.env.values().map(|value| &value.0));
        if texts.any(|text| text.contains(&probe)) {
            Ok(())
        } else {
            Err(TemplateError {
                key: "engine_config.command".to_owned(),
                problem: format!(
                    "neither the command nor env uses {name}, so the engine cannot know where to listen"
                ),
            })
        }
    }
}

/// A port that no real command line spells out by itself.
const PROBE_PORT: u16 = 59_731;

#[cfg(test)]
pub(super) mod tests;
