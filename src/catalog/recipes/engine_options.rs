//! Recognises the program that a command starts, and the options that determine its memory. An unrecognised command counts as
//! `EngineKind::Other`.

use pool::Bytes;

use super::command_line::{CommandLine, base};
use super::llama_offload::Offload;
use super::recipe::{CommandRecipe, LaunchValues, Listen, Recipe};
use crate::documents::DEVICES_MAX;
use crate::engines::{EngineKind, GangMember, LaunchContext, PlacedDevice, ServerRecipe};
use model_files::NumberWidth;

/// Identifies the program that a command line starts.
pub(crate) fn kind_of_command(line: &[String]) -> EngineKind {
    let line = CommandLine {
        argv: line.to_vec(),
        ..CommandLine::default()
    };
    line.kind()
}

/// Memory settings read from a command line.
#[derive(Clone, Debug, PartialEq)]
pub struct EngineOptions {
    pub kind: EngineKind,
    /// Thousandths of each device that the engine fills, whatever the model.
    pub share_per_mille: Option<u32>,
    /// Memory on each device above that share.
    pub beside_share: Bytes,
    /// Cache bytes on each device, if an option sets them.
    pub cache: Option<Bytes>,
    /// Context of one sequence in tokens; with llama.cpp, of all sequences together.
    pub context: Option<u64>,
    /// Sequences computed together.
    pub sequences: Option<u64>,
    pub keys: NumberWidth,
    pub values: NumberWidth,
    /// llama.cpp's `--swa-full`: sliding windows save no memory.
    pub keeps_old_tokens: bool,
    /// The model named in the options.
    pub model: Option<String>,
    /// Number of devices set in the options.
    pub devices: Option<u64>,
    /// llama.cpp's division of the model between GPUs and host memory.
    pub offload: Offload,
}

impl CommandRecipe {
    /// Reads the program and its options, with the templates rendered for `devices` devices.
    pub fn engine_options(&self, devices: u32) -> EngineOptions {
        let little = self.command_line(devices, Bytes(Bytes::GIB));
        let much = self.command_line(devices, Bytes(64 * Bytes::GIB));
        let mut options = EngineOptions::read(&little);
        if options != EngineOptions::read(&much) {
            // The options change with the reservation, so the engine stays within it.
            options.share_per_mille = None;
            options.cache = None;
        }
        options
    }

    /// Returns true if the program spreads over all devices it is given.
    pub(crate) fn follows_device_count(&self) -> bool {
        let [one, two] = [1, 2].map(|devices| self.engine_options(devices));
        match one.kind {
            EngineKind::Vllm | EngineKind::Sglang => one.devices != two.devices,
            EngineKind::Tgi => one.devices.is_none() || one.devices != two.devices,
            EngineKind::LlamaCpp | EngineKind::Tei | EngineKind::TrtLlm | EngineKind::Other => true,
        }
    }

    /// The number of devices that the options state, independent of the placement.
    fn devices_in_options(&self) -> Option<u32> {
        let [one, two] = [1, 2].map(|devices| self.engine_options(devices).devices);
        let count = one.filter(|_| one == two)?;
        u32::try_from(count)
            .ok()
            .filter(|count| *count <= DEVICES_MAX)
    }

    fn command_line(&self, devices: u32, memory: Bytes) -> CommandLine {
        let indices: Vec<u32> = (0..devices).collect();
        let example = Some(GangMember::example(2));
        let values = LaunchValues {
            model_name: "model",
            port: (self.listen != Listen::Socket).then_some(1),
            socket: (self.listen == Listen::Socket).then_some(std::path::Path::new("/socket")),
            devices: &indices,
            memory,
            member: example.as_ref().filter(|_| self.spans_nodes),
        };
        // Templates that cannot be rendered are refused when the catalogue is read.
        let Ok(command) = self.render(&values) else {
            return CommandLine::default();
        };
        let is_shell = command
            .argv
            .first()
            .is_some_and(|program| matches!(base(program), "sh" | "bash" | "dash" | "zsh"));
        let line = if is_shell {
            let texts = command.argv.iter().flat_map(|text| text.split_whitespace());
            texts.map(str::to_owned).collect()
        } else {
            command.argv
        };
        let env = command.env.into_iter().map(|(name, value)| (name, value.0));
        CommandLine {
            argv: line,
            env: env.collect(),
        }
    }
}

impl ServerRecipe {
    /// Reads the figures from the generated command line, exactly as from a hand-written command.
    pub fn engine_options(&self, devices: u32) -> EngineOptions {
        let total = Bytes(1024 * Bytes::GIB);
        let devices: Vec<PlacedDevice> = (0..devices)
            .map(|index| PlacedDevice {
                index,
                uuid: None,
                is_gpu: true,
                total,
            })
            .collect();
        let place = LaunchContext {
            devices: &devices,
            weights: Some(Bytes(Bytes::GIB)),
            ..LaunchContext::example(Bytes(total.0 / 2))
        };
        let line = match self.command(&place) {
            Ok(command) => CommandLine {
                argv: command.argv,
                env: command
                    .env
                    .into_iter()
                    .map(|(name, value)| (name, value.0))
                    .collect(),
            },
            // Half of a large device is enough for any engine.
            Err(_) => CommandLine::default(),
        };
        let mut options = EngineOptions::new(self.engine.kind, &line);
        // The options follow from the reservation, unless the file sets a share.
        options.share_per_mille = self.share_per_mille;
        options.model = Some(self.model.clone());
        options
    }
}

impl Recipe {
    /// The number of devices that a command states.
    pub(crate) fn devices_in_command(&self) -> Option<u32> {
        match self {
            Recipe::Candle(_) | Recipe::Server(_) | Recipe::Remote(_) | Recipe::RayServe(_) => None,
            Recipe::Command(command) => command.devices_in_options(),
        }
    }
}

impl EngineOptions {
    fn read(line: &CommandLine) -> EngineOptions {
        EngineOptions::new(line.kind(), line)
    }

    fn new(kind: EngineKind, line: &CommandLine) -> EngineOptions {
        let mut options = EngineOptions {
            kind,
            share_per_mille: kind.share_per_mille(),
            beside_share: Bytes::ZERO,
            cache: None,
            context: None,
            sequences: None,
            keys: NumberWidth::TWO_BYTES,
            values: NumberWidth::TWO_BYTES,
            keeps_old_tokens: false,
            model: None,
            devices: None,
            offload: Offload::default(),
        };
        match kind {
            EngineKind::Vllm => options.read_vllm(line),
            EngineKind::Sglang => options.read_sglang(line),
            EngineKind::Tgi => options.read_tgi(line),
            EngineKind::LlamaCpp => options.read_llama(line),
            EngineKind::TrtLlm => options.read_trtllm(line),
            // TEI has no cache.
            EngineKind::Tei => options.cache = Some(Bytes::ZERO),
            EngineKind::Other => {}
        }
        options
    }

    fn read_vllm(&mut self, line: &CommandLine) {
        let share = line.fraction(&["--gpu-memory-utilization"], "");
        self.share_per_mille = share.or(self.share_per_mille);
        // CUDA graphs are captured after the share has been filled.
        if !line.has("--enforce-eager") {
            self.beside_share = Bytes(512 * Bytes::MIB);
        }
        self.cache = line.number(&["--kv-cache-memory-bytes"], "").map(Bytes);
        if self.cache.is_some() {
            self.share_per_mille = None;
        }
        self.devices = line.number(&["-tp", "--tensor-parallel-size"], "");
        self.context = line.number(&["--max-model-len"], "");
        self.sequences = line.number(&["--max-num-seqs"], "");
        self.keys = line.width(&["--kv-cache-dtype"]);
        self.values = self.keys;
        let after_serve = line.argv.iter().skip_while(|word| *word != "serve").nth(1);
        let positional = after_serve.filter(|word| !word.starts_with('-')).cloned();
        self.model = positional.or_else(|| line.option(&["--model"], "").map(str::to_owned));
    }

    fn read_sglang(&mut self, line: &CommandLine) {
        let share = line.fraction(&["--mem-fraction-static"], "");
        self.share_per_mille = share.or(self.share_per_mille);
        // The share holds weights and cache; activations and graphs are added to it.
        self.beside_share = Bytes(3 * Bytes::GIB);
        self.devices = line.number(&["--tp", "--tp-size", "--tensor-parallel-size"], "");
        self.context = line.number(&["--context-length"], "");
        self.sequences = line.number(&["--max-running-requests"], "");
        self.keys = line.width(&["--kv-cache-dtype"]);
        self.values = self.keys;
        self.model = line
            .option(&["--model-path", "--model"], "")
            .map(str::to_owned);
    }

    fn read_tgi(&mut self, line: &CommandLine) {
        let share = line.fraction(&["--cuda-memory-fraction"], "CUDA_MEMORY_FRACTION");
        self.share_per_mille = share.or(self.share_per_mille);
        self.devices = line.number(&["--num-shard"], "NUM_SHARD");
        self.context = line.number(&["--max-total-tokens"], "MAX_TOTAL_TOKENS");
        self.sequences = line.number(&["--max-batch-size"], "MAX_BATCH_SIZE");
        self.keys = line.width(&["--kv-cache-dtype"]);
        self.values = self.keys;
        self.model = line.option(&["--model-id"], "MODEL_ID").map(str::to_owned);
    }

    fn read_trtllm(&mut self, line: &CommandLine) {
        let tensor_parallel = ["--tensor-parallel-size", "--tp-size"];
        self.devices = line.number(&tensor_parallel, "");
        self.context = line.number(&["--max-seq-len"], "");
        self.sequences = line.number(&["--max-batch-size"], "");
    }

    fn read_llama(&mut self, line: &CommandLine) {
        self.context = line.number(&["-c", "--ctx-size"], "LLAMA_ARG_CTX_SIZE");
        self.sequences = line.number(&["-np", "--parallel"], "LLAMA_ARG_N_PARALLEL");
        self.keys = line.llama_width(&["-ctk", "--cache-type-k"], "LLAMA_ARG_CACHE_TYPE_K");
        self.values = line.llama_width(&["-ctv", "--cache-type-v"], "LLAMA_ARG_CACHE_TYPE_V");
        self.keeps_old_tokens = line.has("--swa-full");
        self.offload = Offload::read(line);
        self.model = line
            .option(&["-m", "--model"], "LLAMA_ARG_MODEL")
            .map(str::to_owned);
    }
}
