//! Settings for starting any command: templates, which are checked when the catalogue is read and rendered at launch.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use minijinja::{Environment, UndefinedBehavior, Value};

use crate::documents::template_problem::problem;
use crate::documents::{Listen, LoopbackAddress, Secret};
use crate::engines::GangMember;
use pool::Bytes;

/// Any program with an OpenAI API.
#[derive(Clone, Debug, PartialEq)]
pub struct CommandRecipe {
    /// Program and arguments; each is a template.
    pub command: Vec<String>,
    pub listen: Listen,
    /// Returns 200 when the engine is ready.
    pub ready_path: String,
    /// The engine's environment variables; each value is a template.
    pub env: BTreeMap<String, Secret>,
    pub served_model_name: Option<String>,
    /// An absolute path; `None` uses the pool's working directory.
    pub working_dir: Option<PathBuf>,
    /// An absolute path, or the model's name on Hugging Face for engines that download it.
    pub model_path: Option<String>,
    pub context: Option<u32>,
    /// A replica spans several nodes.
    pub spans_nodes: bool,
    /// Commands for sleeping and waking, if configured.
    pub sleep: Option<SleepCommands>,
}

/// Programs that move an engine off its devices and back. Each argument may use `{{ pid }}`, the process started for the engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SleepCommands {
    /// Never empty: the program and its arguments.
    pub sleep: Vec<String>,
    pub wake: Vec<String>,
}

impl SleepCommands {
    /// Renders the arguments with the process id; errors name `key`.
    pub fn render(words: &[String], key: &str, pid: u32) -> Result<Vec<String>, TemplateError> {
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        let context = Value::from_pairs([("pid", Value::from(pid))]);
        let fill = |(nth, word): (usize, &String)| {
            environment
                .render_str(word, &context)
                .map_err(|error| TemplateError {
                    key: format!("{key}[{nth}]"),
                    problem: format!("{}; only {{{{ pid }}}} has a value here", error.kind()),
                })
        };
        words.iter().enumerate().map(fill).collect()
    }
}

/// Values known only when an engine is started.
#[derive(Clone, Copy, Debug)]
pub struct LaunchValues<'a> {
    pub model_name: &'a str,
    /// Set for `Listen::Port`.
    pub port: Option<u16>,
    /// Set for `Listen::Socket`.
    pub socket: Option<&'a Path>,
    /// Device indices in the engine's own numbering.
    pub devices: &'a [u32],
    /// Memory the replica may use on each device.
    pub memory: Bytes,
    /// Set for a process of a replica that spans several nodes.
    pub member: Option<&'a GangMember>,
}

/// A fully rendered command. `Debug` hides the values of `env`.
#[derive(Clone, Debug, PartialEq)]
pub struct RenderedCommand {
    /// Never empty: the program and its arguments.
    pub argv: Vec<String>,
    pub env: BTreeMap<String, Secret>,
    pub working_dir: Option<PathBuf>,
}

/// An error in rendering a template.
#[derive(Debug, thiserror::Error)]
#[error("{key}: {}", self.explain())]
pub struct TemplateError {
    /// The key with the template, such as `engine_config.command[2]`.
    pub key: String,
    pub problem: String,
}

impl TemplateError {
    /// The problem and the names available to templates, without the key.
    pub fn explain(&self) -> String {
        format!(
            "{}; a template may use {}",
            self.problem,
            TEMPLATE_NAMES.join(", ")
        )
    }
}

const TEMPLATE_NAMES: [&str; 12] = [
    "{{ port }} (with listen: port, or an address)",
    "{{ socket }} (with listen: socket)",
    "{{ model_path }} (with engine_config.model_path or hf_model_id)",
    "{{ model_name }}",
    "{{ devices }}",
    "{{ device_count }}",
    "{{ memory_bytes }}",
    "{{ context }} (with engine_config.max_total_tokens)",
    "{{ node_rank }}",
    "{{ nodes }}",
    "{{ leader_address }} (with pool_config.nodes)",
    "{{ leader_port }} (with pool_config.nodes)",
];

impl CommandRecipe {
    /// Renders every template. A name without a value is an error, never an empty text.
    pub fn render(&self, values: &LaunchValues<'_>) -> Result<RenderedCommand, TemplateError> {
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        let context = self.context_of(values);
        let fill = |key: String, template: &str| {
            let text = environment
                .render_str(template, &context)
                .map_err(|error| TemplateError {
                    key: key.clone(),
                    problem: problem(&error, template, &context),
                })?;
            if text.contains('\0') {
                let problem =
                    "the text contains a NUL byte, which cannot be passed to a program".to_owned();
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
        names.extend(GangMember::names(values.member));
        match self.listen {
            Listen::Port => {
                names.extend(values.port.map(|port| ("port", Value::from(port))));
            }
            Listen::At(at) => {
                let port = at.port.or(values.port);
                names.extend(port.map(|port| ("port", Value::from(port))));
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

    /// Renders the templates with sample values, to find errors when the catalogue is read instead of at load time, and verifies
    /// that the engine receives its address.
    pub(crate) fn check(&self) -> Result<(), TemplateError> {
        let socket = Path::new("/run/model-pool-listen-probe.sock");
        let example = Some(GangMember::example(2));
        let values = LaunchValues {
            model_name: "organisation/model",
            port: Some(PROBE_PORT),
            socket: Some(socket),
            devices: &[0],
            memory: Bytes(Bytes::GIB),
            member: example.as_ref().filter(|_| self.spans_nodes),
        };
        let rendered = self.render(&values)?;
        let (probe, name) = match self.listen {
            // The program has a fixed port.
            Listen::At(LoopbackAddress { port: Some(_), .. }) => return Ok(()),
            Listen::Port | Listen::At(_) => (PROBE_PORT.to_string(), "{{ port }}"),
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
                    "neither the command nor env uses {name}, so the engine does not receive its address"
                ),
            })
        }
    }
}

/// A port unlikely to be in a real command line.
const PROBE_PORT: u16 = 59_731;
