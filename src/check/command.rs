//! The command of one replica as it would be run, with secrets masked, and a check that its program exists. Port, socket and
//! container name are examples.

use std::path::Path;

use catalog::{
    ComputeDevice, EngineAddress, Entry, GangMember, LaunchContext, LaunchValues, Listen,
    PlacedDevice, Recipe, ServerCommand, find_program,
};
use engine::CudaProgram;
use pool::{Bytes, NodeSpan};

const PORT: u16 = 8000;
const SOCKET: &str = "data/run/replica.sock";

/// A command line to show.
pub(super) struct CommandDisplay {
    pub line: String,
    /// If the program is missing on this machine: the key that names it, and a message.
    pub missing: Option<(&'static str, String)>,
}

/// The command on these devices; an error gives the reason why there is none.
pub(super) fn command(
    entry: &Entry,
    devices: &[PlacedDevice],
    bytes: Bytes,
    cuda: &CudaProgram,
) -> Result<Option<CommandDisplay>, String> {
    let nodes = match entry.nodes {
        NodeSpan::Exactly(nodes) => nodes,
        NodeSpan::One | NodeSpan::AsNeeded => 1,
    };
    // The command of the first of several nodes.
    let member = (nodes > 1).then(|| GangMember::example(nodes));
    match &entry.recipe {
        Recipe::Remote(_) | Recipe::RayServe(_) => Ok(None),
        Recipe::Candle(recipe) => {
            let device = recipe.device.as_str();
            let program = match recipe.device {
                ComputeDevice::Cuda => engine::CUDA_PROGRAM,
                ComputeDevice::Cpu | ComputeDevice::Metal => "model-pool",
            };
            let mut line = format!(
                "{program} engine --model-dir {} --model-name {} --socket {SOCKET} --concurrency {}",
                recipe.model_path.display(),
                entry.name,
                recipe.concurrency
            );
            if let Ok(context) = recipe.context_tokens() {
                line += &format!(" --context {context}");
            }
            let counts = [
                ("threads", recipe.threads),
                ("tokenizer-workers", recipe.tokenizer_workers),
                ("num-speculative-tokens", recipe.speculation.tokens),
                ("prompt-lookup-max", recipe.speculation.lookup_max),
                ("prompt-lookup-min", recipe.speculation.lookup_min),
            ];
            for (name, count) in counts {
                line += &count.map_or_else(String::new, |count| format!(" --{name} {count}"));
            }
            let types = [
                ("dtype", recipe.numbers.products.as_str()),
                ("kv-cache-dtype", recipe.numbers.kv_cache.as_str()),
            ];
            for (name, value) in types.into_iter().filter(|(_, value)| *value != "auto") {
                line += &format!(" --{name} {value}");
            }
            if let Some(form) = recipe.quantization {
                line += &format!(" --quantization {}", form.as_str());
            }
            line += &match recipe.device {
                ComputeDevice::Cpu => format!(" --device {device}"),
                ComputeDevice::Cuda | ComputeDevice::Metal => {
                    let each: Vec<String> = (0..devices.len().max(1))
                        .map(|index| format!("{device}:{index}"))
                        .collect();
                    format!(" --device {}", each.join(","))
                }
            };
            let is_for_gpus = recipe.device == ComputeDevice::Cuda;
            let missing = is_for_gpus
                .then(|| missing_of_cuda(devices, cuda))
                .flatten();
            Ok(Some(CommandDisplay { line, missing }))
        }
        Recipe::Command(recipe) => {
            let indices: Vec<u32> = devices
                .iter()
                .filter(|device| device.is_gpu)
                .map(|device| device.index)
                .collect();
            let values = LaunchValues {
                model_name: &entry.name,
                port: (recipe.listen != Listen::Socket).then_some(PORT),
                socket: (recipe.listen == Listen::Socket).then_some(Path::new(SOCKET)),
                devices: &indices,
                memory: bytes,
                member: member.as_ref(),
            };
            let rendered = recipe.render(&values).map_err(|error| error.to_string())?;
            let folder = rendered.working_dir;
            let command = ServerCommand {
                argv: rendered.argv,
                env: rendered.env,
                cleanup: None,
            };
            let keyed = (
                "engine_config.command",
                "install it, or correct the command",
            );
            Ok(Some(shown(&command, folder.as_deref(), keyed)))
        }
        Recipe::Server(recipe) => {
            let place = LaunchContext {
                model_name: &entry.name,
                at: match recipe.listen {
                    Listen::Port | Listen::At(_) => EngineAddress::Port(PORT),
                    Listen::Socket => EngineAddress::Socket(Path::new(SOCKET)),
                },
                devices,
                weights: entry
                    .weights_per_device(u32::try_from(devices.len()).unwrap_or(1).max(1) * nodes),
                member: member.as_ref(),
                template: recipe.template_forms(),
                ..LaunchContext::example(bytes)
            };
            let command = recipe.command(&place)?;
            let keyed = if recipe.prefix.is_empty() {
                ("engine_config.program", recipe.engine.install)
            } else {
                (
                    "engine_config.command_prefix",
                    "install it, or correct the command prefix",
                )
            };
            Ok(Some(shown(&command, recipe.working_dir.as_deref(), keyed)))
        }
    }
}

/// The reason why the embedded engine would not start on this machine's GPUs.
fn missing_of_cuda(devices: &[PlacedDevice], cuda: &CudaProgram) -> Option<(&'static str, String)> {
    let key = "engine_config.engine_kwargs.device";
    if devices.iter().any(|device| !device.is_gpu) {
        let problem = "is cuda, but this machine shows no NVIDIA GPU, so loads fail here; install the driver, or write cpu";
        return Some((key, problem.to_owned()));
    }
    let trouble = cuda.trouble()?;
    let problem = format!("is cuda, but loads fail here: {}", trouble.problem);
    Some((key, problem))
}

fn shown(
    command: &ServerCommand,
    folder: Option<&Path>,
    (key, advice): (&'static str, &str),
) -> CommandDisplay {
    let program = command.argv.first().map_or("", String::as_str);
    let missing = find_program(program, folder, &command.env)
        .is_none()
        .then(|| {
            let place = if program.contains('/') {
                ""
            } else {
                " on the PATH"
            };
            let problem =
                format!("there is no program `{program}`{place}, so loads fail; {advice}");
            (key, problem)
        });
    CommandDisplay {
        line: command.masked(),
        missing,
    }
}
