//! llama-server's options that decide which parts of a model are on the GPUs and which stay in host memory, read as llama.cpp
//! 0c1e570 reads them (`common/arg.cpp`).

use std::path::PathBuf;

use super::command_line::CommandLine;
use super::tensor_override::{Pattern, Target, TensorOverride, target};
use model_files::NumberWidth;

/// Rows of a batch that are computed together, unless `--ubatch-size` sets them.
const UBATCH: u64 = 512;
const BATCH: u64 = 2048;
/// More layers than any model has.
const ALL_LAYERS: u64 = 999;
/// More devices than a machine has.
const DEVICES_MAX: usize = 128;
/// llama.cpp's limit (`llama_max_tensor_buft_overrides`).
const OVERRIDES_MAX: usize = 4096;

const TRUE: [&str; 4] = ["on", "enabled", "true", "1"];
const FALSE: [&str; 4] = ["off", "disabled", "false", "0"];

/// The options of one command line. An invalid option is listed and has no effect.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Offload {
    /// The last layers, on the GPUs; the output counts as a layer. `None`: all.
    pub gpu_layers: Option<u64>,
    /// The first pattern that matches a tensor's name decides.
    pub overrides: Vec<TensorOverride>,
    /// Proportions of the devices; empty for equal parts.
    pub proportions: Vec<f64>,
    pub split: SplitMode,
    pub main_gpu: usize,
    /// The cache stays in host memory.
    pub cache_on_host: bool,
    /// The number of devices that it may use; `None` for all.
    pub devices: Option<usize>,
    /// The weights are read into memory, or locked there, instead of mapped from their file.
    pub holds_weights: bool,
    /// Large batches are not computed on a GPU if their weights are in host memory.
    pub keeps_operations: bool,
    /// Rows computed together.
    pub ubatch: u64,
    /// All sequences share one cache.
    pub has_common_cache: bool,
    /// Attention scores are stored.
    pub stores_scores: bool,
    /// Layers that predict additional tokens are loaded.
    pub predicts: bool,
    /// The file of a projector for images and audio, if the options name one.
    pub projector: Option<PathBuf>,
    /// The projector stays in host memory.
    pub projector_on_host: bool,
    /// The model that proposes tokens, if the options name one.
    pub draft: Option<Box<Draft>>,
    /// Options with an effect on memory, as they were written.
    pub words: Vec<String>,
    /// Options that llama-server refuses, with the reason.
    pub problems: Vec<String>,
}

/// A second, smaller model that proposes tokens. Its parts are divided over the GPUs like the model's.
#[derive(Clone, Debug, PartialEq)]
pub struct Draft {
    /// `None`: llama-server fetches it.
    pub path: Option<PathBuf>,
    /// As `Offload::gpu_layers`.
    pub gpu_layers: Option<u64>,
    pub keys: NumberWidth,
    pub values: NumberWidth,
}

/// `--split-mode`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SplitMode {
    /// A single GPU.
    None,
    /// Complete layers.
    #[default]
    Layer,
    /// Rows of matrices.
    Row,
    /// Parts of every tensor and of the cache.
    Tensor,
}

impl Offload {
    pub(super) fn read(line: &CommandLine) -> Offload {
        let mut offload = Offload::default();
        let layers = line.option(
            &["-ngl", "--gpu-layers", "--n-gpu-layers"],
            "LLAMA_ARG_N_GPU_LAYERS",
        );
        offload.gpu_layers = offload.layers("--n-gpu-layers", layers);
        if let Some(layers) = offload.gpu_layers.filter(|layers| *layers < ALL_LAYERS) {
            offload.words.push(format!("--n-gpu-layers {layers}"));
        }
        offload.read_overrides(line);
        offload.read_split(line);
        offload.read_draft(line);
        let number = |names: &[&str], variable: &str, usual: u64| {
            line.number(names, variable).unwrap_or(usual)
        };
        let batch = number(&["-b", "--batch-size"], "LLAMA_ARG_BATCH", BATCH);
        let rows = number(&["-ub", "--ubatch-size"], "LLAMA_ARG_UBATCH", UBATCH);
        offload.ubatch = rows.min(batch);
        offload.cache_on_host = !line.switch(
            &["-kvo", "--kv-offload"],
            &["-nkvo", "--no-kv-offload"],
            ["LLAMA_ARG_KV_OFFLOAD", "LLAMA_ARG_NO_KV_OFFLOAD"],
            true,
        );
        if offload.cache_on_host {
            offload.words.push("--no-kv-offload".to_owned());
        }
        offload.holds_weights = holds_weights(line);
        offload.keeps_operations = !line.switch(
            &["--op-offload"],
            &["--no-op-offload"],
            ["LLAMA_ARG_OP_OFFLOAD", "LLAMA_ARG_NO_OP_OFFLOAD"],
            true,
        );
        let sequences = line.option(&["-np", "--parallel"], "LLAMA_ARG_N_PARALLEL");
        offload.has_common_cache = line.switch(
            &["-kvu", "--kv-unified"],
            &["-no-kvu", "--no-kv-unified"],
            ["LLAMA_ARG_KV_UNIFIED", "LLAMA_ARG_NO_KV_UNIFIED"],
            // Without a number of sequences, llama-server chooses four that share the cache.
            sequences.is_none_or(|text| text.starts_with('-')),
        );
        let attention = line.option(&["-fa", "--flash-attn"], "LLAMA_ARG_FLASH_ATTN");
        let projector = line.option(&["-mm", "--mmproj"], "LLAMA_ARG_MMPROJ");
        offload.projector = projector.map(PathBuf::from);
        offload.projector_on_host = !line.switch(
            &["--mmproj-offload"],
            &["--no-mmproj-offload"],
            ["LLAMA_ARG_MMPROJ_OFFLOAD", "LLAMA_ARG_NO_MMPROJ_OFFLOAD"],
            true,
        );
        let speculation = line.option(&["--spec-type"], "LLAMA_ARG_SPEC_TYPE");
        offload.predicts = speculation.is_some_and(|types| types.contains("mtp"));
        offload.stores_scores = attention.is_some_and(|text| FALSE.contains(&text));
        offload
    }

    /// The options that keep tensors on the host or on a certain GPU, in order; variables come first.
    fn read_overrides(&mut self, line: &CommandLine) {
        let variable = |name: &str| line.env.get(name).map(String::as_str);
        if let Some(text) = variable("LLAMA_ARG_OVERRIDE_TENSOR") {
            self.override_tensors(text);
        }
        if variable("LLAMA_ARG_CPU_MOE").is_some_and(|text| TRUE.contains(&text)) {
            self.experts_on_host();
        }
        for (name, option) in [
            ("LLAMA_ARG_N_CPU_MOE", "--n-cpu-moe"),
            ("LLAMA_ARG_N_CPU_FFN", "--n-cpu-ffn"),
        ] {
            if let Some(text) = variable(name) {
                self.first_on_host(option, text);
            }
        }
        for (index, word) in line.argv.iter().enumerate() {
            let (name, joined) = match word.split_once('=') {
                Some((name, value)) if name.starts_with("--") => (name, Some(value)),
                _ => (word.as_str(), None),
            };
            let next = || line.argv.get(index + 1).map(String::as_str);
            let value = || joined.or_else(next).unwrap_or_default();
            match CommandLine::canonical(name).as_str() {
                "-ot" | "--override-tensor" => self.override_tensors(value()),
                "-cmoe" | "--cpu-moe" => self.experts_on_host(),
                "-ncmoe" | "--n-cpu-moe" => self.first_on_host("--n-cpu-moe", value()),
                "-ncffn" | "--n-cpu-ffn" => self.first_on_host("--n-cpu-ffn", value()),
                _ => {}
            }
        }
        if self.overrides.len() > OVERRIDES_MAX {
            self.problems.push(format!(
                "--override-tensor has {} patterns; at most {OVERRIDES_MAX} are possible",
                self.overrides.len()
            ));
            self.overrides.truncate(OVERRIDES_MAX);
        }
    }

    fn experts_on_host(&mut self) {
        self.words.push("--cpu-moe".to_owned());
        self.overrides.push(TensorOverride {
            pattern: Pattern::ExpertsBefore(u64::MAX),
            target: Target::Host,
        });
    }

    fn first_on_host(&mut self, option: &str, text: &str) {
        let Some(layers) = self.count(option, text) else {
            return;
        };
        self.words.push(format!("{option} {layers}"));
        let pattern = if option == "--n-cpu-moe" {
            Pattern::ExpertsBefore(layers)
        } else {
            Pattern::FeedForwardBefore(layers)
        };
        self.overrides.push(TensorOverride {
            pattern,
            target: Target::Host,
        });
    }

    /// Reads `pattern=place,pattern=place`. A comma always separates, also inside a pattern.
    fn override_tensors(&mut self, text: &str) {
        self.words.push(format!("--override-tensor {text}"));
        for part in text.split(',') {
            let Some((pattern, place)) = part.split_once('=') else {
                self.problems.push(format!(
                    "--override-tensor has `{part}` without a place; write PATTERN=CPU or PATTERN=CUDA0, without commas inside a pattern"
                ));
                continue;
            };
            match target(place) {
                Some(target) => self.overrides.push(TensorOverride {
                    pattern: Pattern::Text(pattern.to_owned()),
                    target,
                }),
                None => self.problems.push(format!(
                    "--override-tensor names the place `{place}`, which is not known; write CPU, or a device with its number such as CUDA0"
                )),
            }
        }
    }

    fn read_draft(&mut self, line: &CommandLine) {
        let path = line.option(
            &["-md", "--model-draft", "--spec-draft-model"],
            "LLAMA_ARG_SPEC_DRAFT_MODEL",
        );
        let fetched = line.option(
            &["-hfd", "--hf-repo-draft", "--spec-draft-hf"],
            "LLAMA_ARG_SPEC_DRAFT_HF_REPO",
        );
        if path.or(fetched).is_none() {
            return;
        }
        let layers = line.option(
            &[
                "-ngld",
                "--gpu-layers-draft",
                "--n-gpu-layers-draft",
                "--spec-draft-ngl",
            ],
            "LLAMA_ARG_N_GPU_LAYERS_DRAFT",
        );
        self.draft = Some(Box::new(Draft {
            path: path.map(PathBuf::from),
            gpu_layers: self.layers("--spec-draft-ngl", layers),
            keys: line.llama_width(
                &["-ctkd", "--spec-draft-type-k"],
                "LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_K",
            ),
            values: line.llama_width(
                &["-ctvd", "--spec-draft-type-v"],
                "LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_V",
            ),
        }));
    }

    /// A number of layers on GPUs; `None` for all.
    fn layers(&mut self, option: &str, text: Option<&str>) -> Option<u64> {
        match text {
            None | Some("auto" | "all") => None,
            Some(text) if text.starts_with('-') && text[1..].parse::<u64>().is_ok() => None,
            Some(text) => self.count(option, text),
        }
    }

    fn read_split(&mut self, line: &CommandLine) {
        if let Some(text) = line.option(&["-sm", "--split-mode"], "LLAMA_ARG_SPLIT_MODE") {
            self.split = match text {
                // The server of llama-cpp-python has numbers.
                "none" | "0" => SplitMode::None,
                "layer" | "1" => SplitMode::Layer,
                "row" | "2" => SplitMode::Row,
                "tensor" => SplitMode::Tensor,
                _ => {
                    self.problems.push(format!(
                        "--split-mode is `{text}`; allowed: none, layer, row, tensor"
                    ));
                    SplitMode::default()
                }
            };
            if self.split != SplitMode::Layer {
                self.words.push(format!("--split-mode {text}"));
            }
        }
        if let Some(text) = line.option(&["-ts", "--tensor-split"], "LLAMA_ARG_TENSOR_SPLIT") {
            match proportions(text) {
                Ok(proportions) => self.proportions = proportions,
                Err(problem) => self.problems.push(problem),
            }
            let is_even = self.proportions.windows(2).all(|pair| pair[0] == pair[1]);
            if !is_even {
                self.words.push(format!("--tensor-split {text}"));
            }
        }
        if let Some(text) = line.option(&["-mg", "--main-gpu"], "LLAMA_ARG_MAIN_GPU") {
            let index = self.count("--main-gpu", text).unwrap_or(0);
            self.main_gpu = usize::try_from(index).unwrap_or(usize::MAX);
        }
        if let Some(text) = line.option(&["-dev", "--device"], "LLAMA_ARG_DEVICE") {
            let count = match text {
                "none" => 0,
                names => names.split(',').count(),
            };
            self.words.push(format!("--device {text}"));
            self.devices = Some(count);
        }
    }

    /// A number of an option, or a problem that names it.
    fn count(&mut self, option: &str, text: &str) -> Option<u64> {
        let count = text.parse().ok();
        if count.is_none() {
            self.problems.push(format!(
                "{option} is `{text}`, but a whole number is expected"
            ));
        }
        count
    }
}

/// Reads `--load-mode`, or the switches of older versions and of llama-cpp-python.
fn holds_weights(line: &CommandLine) -> bool {
    if let Some(mode) = line.option(&["-lm", "--load-mode"], "LLAMA_ARG_LOAD_MODE") {
        // `auto`, the default of newer versions, maps the file on every GPU that has its own memory.
        return !matches!(mode, "mmap" | "auto");
    }
    let maps = line.switch(
        &["--mmap"],
        &["--no-mmap"],
        ["LLAMA_ARG_MMAP", "LLAMA_ARG_NO_MMAP"],
        true,
    );
    let locks = line.switch(&["--mlock"], &[], ["LLAMA_ARG_MLOCK", ""], false);
    let reads = line.switch(
        &["-dio", "--direct-io"],
        &["-ndio", "--no-direct-io"],
        ["LLAMA_ARG_DIO", "LLAMA_ARG_NO_DIO"],
        false,
    );
    let of_python = |name: &str| line.option(&[name], "").map(str::to_ascii_lowercase);
    let never_maps = of_python("--use-mmap").is_some_and(|text| FALSE.contains(&&*text));
    let always_locks = of_python("--use-mlock").is_some_and(|text| TRUE.contains(&&*text));
    !maps || locks || reads || never_maps || always_locks
}

fn proportions(text: &str) -> Result<Vec<f64>, String> {
    let parts: Vec<&str> = text.split([',', '/']).collect();
    if parts.len() > DEVICES_MAX {
        return Err(format!(
            "--tensor-split has {} parts; at most {DEVICES_MAX} are possible",
            parts.len()
        ));
    }
    let mut read = Vec::new();
    for part in parts {
        let proportion = part.trim().parse().ok();
        let Some(proportion) = proportion.filter(|part: &f64| part.is_finite() && *part >= 0.0)
        else {
            return Err(format!(
                "--tensor-split has the part `{part}`, but a number of 0 or more is expected"
            ));
        };
        read.push(proportion);
    }
    // llama.cpp divides by free memory if every part is 0.
    if read.iter().all(|part| *part == 0.0) {
        read.clear();
    }
    Ok(read)
}
