//! Builds the command line and environment from an engine's description, a model's entry and a placement: the order of the
//! arguments, and the container around them. The arguments themselves are defined in the engine's file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use minijinja::{Environment, UndefinedBehavior, Value};

use serde::{Deserialize, Serialize};

use pool::Bytes;

use super::engine::{ArgumentContext, Engine};
use super::flags::CheckedFlags;
use super::launch_context::{EngineAddress, LaunchContext, PlacedDevice, ServerCommand};
use super::lora::Room;
use crate::documents::template_problem::problem;
use crate::documents::{Listen, Secret, Sleep};
use crate::weights::AdapterRoom;

/// Everything needed to run one replica of an engine from the table. Serialized with the engine's name, for other processes of the
/// same version.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServerRecipe {
    #[serde(with = "super::name_serde")]
    pub engine: &'static Engine,
    /// Replaces the engine's own program.
    pub program: Option<String>,
    /// Arguments before the program, each a template: `[docker, run, …]`.
    pub prefix: Vec<String>,
    /// An absolute path, or the model's name on Hugging Face.
    pub model: String,
    pub is_local: bool,
    pub revision: Option<String>,
    /// Context of one sequence in tokens; `None` uses the model's own.
    pub context: Option<u32>,
    /// Simultaneous requests per replica.
    pub seats: u32,
    /// Thousandths of each device to request; `None` requests what the model needs.
    pub share_per_mille: Option<u32>,
    pub sleep: Sleep,
    pub listen: Listen,
    /// The checked `engine_kwargs`.
    pub flags: CheckedFlags,
    pub env: BTreeMap<String, Secret>,
    pub served_model_name: Option<String>,
    /// LoRA adapters to serve, with their folders.
    pub adapters: Vec<(String, PathBuf)>,
    /// Room for adapters loaded at run time.
    pub run_time_adapters: Option<AdapterRoom>,
    /// An absolute path; `None` uses the pool's working directory.
    pub working_dir: Option<PathBuf>,
}

/// An argument that expands to `-e NAME` for each environment variable of the engine.
const ENV_WORD: &str = "{{ env }}";
/// The variable that marks every engine process, as in the `engine` crate.
const TAG: &str = "MODEL_POOL_ENGINE";
/// Programs whose containers outlive the process that started them.
const CONTAINER_PROGRAMS: [&str; 3] = ["docker", "podman", "nerdctl"];

impl ServerRecipe {
    /// A recipe for a local model with default settings.
    pub fn new(engine: &'static Engine, model: &str) -> ServerRecipe {
        ServerRecipe {
            engine,
            program: None,
            prefix: Vec::new(),
            model: model.to_owned(),
            is_local: true,
            revision: None,
            context: None,
            seats: engine.seats,
            share_per_mille: None,
            sleep: Sleep::Off,
            listen: Listen::Port,
            flags: CheckedFlags::default(),
            env: BTreeMap::new(),
            served_model_name: None,
            adapters: Vec::new(),
            run_time_adapters: None,
            working_dir: None,
        }
    }

    /// The name under which the engine must serve the model.
    pub fn served_name<'a>(&'a self, place: &LaunchContext<'a>) -> &'a str {
        self.served_model_name
            .as_deref()
            .unwrap_or(place.model_name)
    }

    /// Builds the complete command line.
    ///
    /// # Errors
    /// If the placement does not allow a command line; the message gives the numbers.
    pub fn command(&self, place: &LaunchContext<'_>) -> Result<ServerCommand, String> {
        let engine = self.engine;
        let inputs = ArgumentContext {
            recipe: self,
            place,
        };
        if engine.needs_gpu && !inputs.has_gpus() {
            return Err(format!(
                "{} requires GPUs, but the model is placed in host memory; set inventory.provider to nvml, or choose another engine_config.type",
                engine.name()
            ));
        }
        let own = (engine.environment)(&inputs);
        let lora = engine
            .lora
            .filter(|_| self.run_time_adapters.is_some())
            .map_or(&[][..], |lora| lora.environment);
        let lora = lora
            .iter()
            .map(|(name, value)| (*name, (*value).to_owned()));
        let mut env: BTreeMap<String, Secret> = own
            .into_iter()
            .chain(lora)
            .map(|(name, value)| (name.to_owned(), Secret(value)))
            .collect();
        let templates = Templates::new(self, place);
        for (name, template) in &self.env {
            let value = templates.fill(&template.0, || format!("env.{name}"))?;
            env.insert(name.clone(), Secret(value));
        }
        let mut argv = self.prefix_arguments(&templates, &env)?;
        match &self.program {
            // Fixed arguments after the program, such as `serve` in `vllm serve`, also follow a custom program.
            Some(program) => {
                argv.push(program.clone());
                argv.extend(self.subcommand());
            }
            None => argv.extend(engine.program.iter().map(|word| (*word).to_owned())),
        }
        argv.extend((engine.arguments)(&inputs)?);
        self.adapter_arguments(&mut argv);
        argv.extend(self.parser_arguments(place.template));
        let own = self.flags.of_key.iter();
        let own = own.filter(|(key, _)| !self.is_for_the_pool(key));
        argv.extend(own.flat_map(|(_, words)| words.iter().cloned()));
        Ok(ServerCommand {
            argv,
            env,
            cleanup: self.cleanup(place),
        })
    }

    fn adapter_arguments(&self, argv: &mut Vec<String>) {
        let is_wanted = !self.adapters.is_empty() || self.run_time_adapters.is_some();
        let Some(lora) = self.engine.lora.filter(|_| is_wanted) else {
            return;
        };
        argv.push(lora.enable.to_owned());
        if let Some(modules) = lora.modules.filter(|_| !self.adapters.is_empty()) {
            argv.push(modules.to_owned());
            let modules = self.adapters.iter();
            argv.extend(modules.map(|(name, path)| format!("{name}={}", path.display())));
        }
        let Some(room) = self.run_time_adapters else {
            return;
        };
        let count = room.count as usize + self.adapters.len();
        for (key, value) in lora.room {
            if self.flags.of_key.iter().any(|(known, _)| known == key) {
                continue;
            }
            argv.push(format!("--{}", key.replace('_', "-")));
            argv.push(match value {
                Room::Count => count.to_string(),
                Room::Rank => room.rank.to_string(),
                Room::Word(word) => (*word).to_owned(),
            });
        }
    }

    fn subcommand(&self) -> impl Iterator<Item = String> {
        let after = self.engine.program.iter().skip(1);
        after.map(|word| (*word).to_owned())
    }

    fn prefix_arguments(
        &self,
        templates: &Templates,
        env: &BTreeMap<String, Secret>,
    ) -> Result<Vec<String>, String> {
        let mut words = Vec::new();
        for (index, template) in self.prefix.iter().enumerate() {
            if template == ENV_WORD {
                // The tag identifies the processes in the container as the pool's.
                let names = env.keys().map(String::as_str).chain([TAG]);
                words.extend(names.flat_map(|name| ["-e".to_owned(), name.to_owned()]));
                continue;
            }
            words.push(templates.fill(template, || format!("command_prefix[{index}]"))?);
        }
        Ok(words)
    }

    /// The number of leading arguments of the prefix up to and including a container program.
    fn container_prefix_length(&self) -> Option<usize> {
        let base = |word: &String| word.rsplit('/').next().unwrap_or(word).to_owned();
        let position = self.prefix.iter().position(|word| {
            let base = base(word);
            CONTAINER_PROGRAMS.iter().any(|known| base == *known)
        })?;
        Some(position + 1)
    }

    fn cleanup(&self, place: &LaunchContext<'_>) -> Option<Vec<String>> {
        let words = self
            .prefix
            .iter()
            .take(self.container_prefix_length()?)
            .cloned();
        let remove = ["rm", "-f", place.container].map(str::to_owned);
        Some(words.chain(remove).collect())
    }

    /// Checks what does not depend on a placement: the templates, and that a container gets a name.
    pub fn check_templates(&self) -> Result<(), String> {
        let device = PlacedDevice {
            index: 0,
            uuid: Some("GPU-0".to_owned()),
            is_gpu: true,
            total: Bytes(80 * Bytes::GIB),
        };
        let devices = [device];
        let socket = Path::new("/run/model-pool.sock");
        let at = match self.listen {
            Listen::Port | Listen::At(_) => EngineAddress::Port(8000),
            Listen::Socket => EngineAddress::Socket(socket),
        };
        let place = LaunchContext {
            devices: &devices,
            at,
            ..LaunchContext::example(Bytes(40 * Bytes::GIB))
        };
        let templates = Templates::new(self, &place);
        for (name, template) in &self.env {
            templates.fill(&template.0, || format!("env.{name}"))?;
        }
        let words = self.prefix_arguments(&templates, &BTreeMap::new())?;
        if self.container_prefix_length().is_some()
            && !words.iter().any(|word| word.contains(place.container))
        {
            return Err(
                "engine_config.command_prefix: the container has no name, which the pool needs to remove it; add `--name`, `\"{{ container }}\"`"
                    .to_owned(),
            );
        }
        Ok(())
    }
}

/// Renders the templates of a command line.
struct Templates {
    environment: Environment<'static>,
    names: Value,
}

impl Templates {
    fn new(recipe: &ServerRecipe, place: &LaunchContext<'_>) -> Templates {
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        let names = names(recipe, place);
        Templates { environment, names }
    }

    /// Renders one template. Errors name its key within `engine_config`.
    fn fill(&self, template: &str, key: impl Fn() -> String) -> Result<String, String> {
        let text = self
            .environment
            .render_str(template, &self.names)
            .map_err(|error| {
                let problem = problem(&error, template, &self.names);
                format!(
                    "engine_config.{}: {problem}; a template may use {TEMPLATE_NAMES}",
                    key()
                )
            })?;
        if text.contains('\0') {
            Err(format!(
                "engine_config.{}: it contains a NUL byte, which cannot be passed to a program",
                key()
            ))
        } else {
            Ok(text)
        }
    }
}

fn names(recipe: &ServerRecipe, place: &LaunchContext<'_>) -> Value {
    let gpus = || place.devices.iter().filter(|device| device.is_gpu);
    let indices: Vec<String> = gpus().map(|device| device.index.to_string()).collect();
    let uuids: Option<Vec<&str>> = gpus().map(|device| device.uuid.as_deref()).collect();
    let mut names: BTreeMap<&str, Value> = BTreeMap::from([
        ("container", place.container.into()),
        ("model_name", place.model_name.into()),
        ("model_path", recipe.model.as_str().into()),
        ("devices", indices.join(",").into()),
        // The driver accepts an index where it reports no UUIDs.
        (
            "device_uuids",
            uuids
                .map_or_else(|| indices.join(","), |uuids| uuids.join(","))
                .into(),
        ),
        ("device_count", place.devices.len().into()),
        ("memory_bytes", place.reserved.0.into()),
    ]);
    match place.at {
        EngineAddress::Port(port) => names.insert("port", port.into()),
        EngineAddress::Socket(path) => names.insert("socket", path.display().to_string().into()),
    };
    Value::from(names)
}

const TEMPLATE_NAMES: &str = "{{ container }}, {{ port }} or {{ socket }}, {{ model_path }}, {{ model_name }}, {{ devices }}, {{ device_uuids }}, {{ device_count }}, {{ memory_bytes }}, and in command_prefix the word {{ env }} alone";

impl ServerCommand {
    /// The command line for display: likely secrets are masked, and arguments with spaces quoted.
    pub fn masked(&self) -> String {
        let sounds_secret = |name: &str| {
            // Names with these words hold counts of tokens, not secrets.
            let name = name
                .to_uppercase()
                .replace("TOKENS", "")
                .replace("TOKENIZ", "");
            ["KEY", "TOKEN", "SECRET", "PASSWORD", "CREDENTIAL"]
                .iter()
                .any(|word| name.contains(word))
        };
        let masked = |word: &String| {
            let mut ends = word.match_indices('=').map(|(end, _)| end);
            match ends.find(|end| sounds_secret(&word[..*end])) {
                Some(end) => format!("{}=…", &word[..end]),
                None if word.is_empty() || word.contains([' ', '"', '{', '$']) => {
                    format!("'{word}'")
                }
                None => word.clone(),
            }
        };
        let env = self.env.iter().map(|(name, value)| {
            if sounds_secret(name) {
                format!("{name}=…")
            } else {
                format!("{name}={}", value.0)
            }
        });
        env.chain(self.argv.iter().map(masked))
            .collect::<Vec<_>>()
            .join(" ")
    }
}

#[cfg(test)]
mod tests;
