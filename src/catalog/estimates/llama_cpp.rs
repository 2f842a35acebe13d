//! Memory of llama-server on each GPU and on the host, from the tensors of a GGUF file and the options that place them (M1). The
//! rules are llama.cpp's (0c1e570):
//!
//! ```text
//! layers        the last --n-gpu-layers, the output being the last; divided in order by --tensor-split (load_tensors)
//! embeddings    on the host; if they are also the output, a second copy on the output's GPU
//! overrides     the first pattern that matches a tensor's name decides (create_tensor)
//! cache         with its layer, or on the host with --no-kv-offload; windows hold their tokens and a batch, in steps of 256
//! compute       per GPU: logits and the largest layer of a batch, and its mask; a matrix of the host that a batch is multiplied
//!               with is copied to the GPU first
//! ```

use super::estimate::EstimateError;
use super::llama_places::{Places, Sums};
use crate::engines::{GPU_OVERHEAD, LLAMA_CPU_OVERHEAD};
use crate::recipes::{EngineOptions, Offload, SplitMode, Target};
use model_files::gguf::Gguf;
use model_files::{Architecture, CacheLoad, LayerCache, ModelFiles, TensorSize};
use pool::Bytes;

/// Simultaneous sequences, unless an option sets them.
const SEQUENCES: u64 = 4;
/// Cells of a cache are allocated in steps.
const CELLS_STEP: u64 = 256;
/// Copies of a batch's inputs, which let several GPUs work at the same time.
const PIPELINE_COPIES: u64 = 4;
/// The memory of one replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LlamaNeed {
    /// Including the engine's own memory; empty if it runs in host memory alone.
    pub devices: Vec<Bytes>,
    pub host: Bytes,
    /// The part of `host` that is mapped from the file.
    pub mapped: Bytes,
    /// Parts that could not be placed, with the option that prevents it. The figures are upper bounds.
    pub guesses: Vec<String>,
}

/// The context and the sequences of a replica.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// Tokens of all sequences together.
    pub tokens: u64,
    pub sequences: u64,
}

impl Room {
    pub(crate) fn new(
        options: &EngineOptions,
        architecture: &Architecture,
        context: Option<u32>,
    ) -> Result<Room, EstimateError> {
        // llama.cpp's context is for all sequences together, and it knows the file's figure only if the command passes it.
        let tokens = options.context.or(architecture.context);
        Ok(Room {
            tokens: architecture.tokens(tokens.or(context.map(u64::from)))?,
            sequences: options.sequences.unwrap_or(SEQUENCES).max(1),
        })
    }
}

/// Memory on the host if there is no GPU.
pub(crate) fn on_host(options: &EngineOptions, files: &ModelFiles, room: Room) -> LlamaNeed {
    let plan = Plan::new(options, files, room, 0);
    plan.need()
}

/// Memory on each of `devices` GPUs and on the host.
pub(crate) fn on_gpus(
    options: &EngineOptions,
    files: &ModelFiles,
    room: Room,
    devices: u32,
) -> LlamaNeed {
    Plan::new(options, files, room, devices as usize).need()
}

/// The placement of one model.
struct Plan<'a> {
    options: &'a EngineOptions,
    files: &'a ModelFiles,
    room: Room,
    places: Places<'a>,
}

impl<'a> Plan<'a> {
    fn new(
        options: &'a EngineOptions,
        files: &'a ModelFiles,
        room: Room,
        count: usize,
    ) -> Plan<'a> {
        Plan {
            options,
            files,
            room,
            places: Places::new(&options.offload, &files.architecture, count),
        }
    }

    fn offload(&self) -> &Offload {
        &self.options.offload
    }

    fn need(mut self) -> LlamaNeed {
        let mut sums = Sums {
            devices: vec![0; self.places.count],
            ..Sums::default()
        };
        // The largest matrix of a layer that stays on the host.
        let mut largest_copied = 0;
        let mut layers_on_host = false;
        let mut has_output = false;
        for tensor in &self.files.tensors {
            let TensorSize { name, bytes, .. } = tensor;
            has_output |= name == "output.weight";
            let layer = self.places.layer_of(name);
            if layer.is_some_and(|layer| self.places.is_skipped(layer)) {
                continue;
            }
            let usual = layer.and_then(|layer| self.places.device_of(layer));
            let place = match self.places.overridden(name) {
                Ok(None) => usual,
                Ok(Some(Target::Host)) => None,
                Ok(Some(Target::Device(device))) if device < self.places.count => Some(device),
                // llama-server refuses to start.
                Ok(Some(Target::Device(_))) => usual,
                Err(()) => {
                    sums.add_weights(None, *bytes);
                    usual
                }
            };
            if place.is_none() && layer.is_some_and(|layer| layer < self.places.blocks) {
                layers_on_host = true;
                if tensor.rows > 1 {
                    largest_copied = largest_copied.max(*bytes);
                }
            }
            if place.is_some() && self.splits_rows() && tensor.rows > 1 {
                self.places.divide(&mut sums, *bytes);
            } else {
                sums.add_weights(place, *bytes);
            }
        }
        let output = self.places.device_of(self.places.blocks);
        if let Some(device) = output
            && !has_output
            && let Some(table) =
                (self.files.tensors.iter()).find(|tensor| tensor.name == "token_embd.weight")
            && !matches!(self.places.overridden(&table.name), Ok(Some(Target::Host)))
        {
            // The embeddings are also the output.
            sums.add(Some(device), table.bytes);
        }
        self.add_projector(&mut sums);
        self.add_draft(&mut sums);
        self.add_caches(&mut sums);
        self.add_compute(&mut sums, output, layers_on_host, largest_copied);
        if self.splits_all() {
            let all = sums
                .devices
                .iter()
                .fold(0_u64, |sum, part| sum.saturating_add(*part));
            sums.devices.fill(0);
            self.places.divide(&mut sums, all);
        }
        let devices = (sums.devices.iter())
            .map(|bytes| Bytes(*bytes) + GPU_OVERHEAD)
            .collect();
        // llama-server without a GPU copies weights into a layout for the processor.
        let holds_weights = self.offload().holds_weights || self.places.parts.is_empty();
        LlamaNeed {
            devices,
            mapped: if holds_weights {
                Bytes::ZERO
            } else {
                Bytes(sums.host_weights)
            },
            host: Bytes(sums.host) + LLAMA_CPU_OVERHEAD,
            guesses: self.places.guesses,
        }
    }

    /// Matrices are divided by rows.
    fn splits_rows(&self) -> bool {
        self.offload().split == SplitMode::Row
    }

    fn splits_all(&self) -> bool {
        self.offload().split == SplitMode::Tensor
    }

    /// A projector for images is on the first usable GPU. Its file is read when it is local, and its buffer is as large as a
    /// batch of patches, which is small.
    fn add_projector(&mut self, sums: &mut Sums) {
        let offload = self.offload();
        let Some(path) = &offload.projector else {
            return;
        };
        let place = self.places.parts.first().map(|(device, _)| *device);
        let place = place.filter(|_| !offload.projector_on_host);
        match Gguf::read(path) {
            Ok(gguf) => sums.add(place, gguf.tensor_bytes),
            Err(error) => {
                let guess = format!("its projector (--mmproj) is not counted: {error}");
                self.places.guesses.push(guess);
            }
        }
    }

    /// A model that proposes tokens has its own weights, cache and buffer, for the same context.
    fn add_draft(&mut self, sums: &mut Sums) {
        let Some(draft) = &self.offload().draft else {
            return;
        };
        let files = match &draft.path {
            Some(path) => ModelFiles::read(path).map_err(|error| error.to_string()),
            None => Err("llama-server fetches it".to_owned()),
        };
        let files = match files {
            Ok(files) => files,
            Err(problem) => {
                let guess =
                    format!("its draft model (--spec-draft-model) is not counted: {problem}");
                self.places.guesses.push(guess);
                return;
            }
        };
        let options = EngineOptions {
            keys: draft.keys,
            values: draft.values,
            offload: Offload {
                gpu_layers: draft.gpu_layers,
                overrides: Vec::new(),
                projector: None,
                draft: None,
                ..self.offload().clone()
            },
            ..self.options.clone()
        };
        let need = Plan::new(&options, &files, self.room, self.places.count).need();
        for (device, bytes) in need.devices.iter().enumerate() {
            sums.add(Some(device), bytes.saturating_sub(GPU_OVERHEAD).0);
        }
        sums.add(None, need.host.saturating_sub(LLAMA_CPU_OVERHEAD).0);
        sums.host_weights = sums.host_weights.saturating_add(need.mapped.0);
    }

    fn add_caches(&self, sums: &mut Sums) {
        let sequences = self.room.sequences;
        for (layer, memory) in self.files.architecture.each_layer.iter().enumerate() {
            let place = self
                .places
                .device_of(layer as u64)
                .filter(|_| !self.offload().cache_on_host);
            if let Some(cache) = memory.cache {
                sums.add(place, cache.bytes(&self.load(cache), 1));
            }
            sums.add(place, memory.state.saturating_mul(sequences));
        }
    }

    /// The cells of a layer's cache.
    fn load(&self, cache: LayerCache) -> CacheLoad {
        let Room { tokens, sequences } = self.room;
        let in_steps = |cells: u64| cells.div_ceil(CELLS_STEP).saturating_mul(CELLS_STEP);
        let window = match cache {
            LayerCache::Heads { window, .. } if !self.options.keeps_old_tokens => window,
            _ => None,
        };
        let (streams, of_stream, in_window) = if self.offload().has_common_cache {
            (1, tokens, sequences)
        } else {
            (sequences, tokens.div_ceil(sequences), 1)
        };
        let of_stream = in_steps(of_stream);
        let cells = window.map_or(of_stream, |window| {
            let kept = window
                .saturating_mul(in_window)
                .saturating_add(self.offload().ubatch);
            in_steps(of_stream.min(kept))
        });
        CacheLoad {
            keys: self.options.keys,
            values: self.options.values,
            drops_old_tokens: false,
            ..CacheLoad::even(cells, streams)
        }
    }

    fn add_compute(
        &self,
        sums: &mut Sums,
        output: Option<usize>,
        layers_on_host: bool,
        largest_copied: u64,
    ) {
        let architecture = &self.files.architecture;
        let Some(widths) = architecture.widths else {
            return;
        };
        let offload = self.offload();
        let rows = offload.ubatch.min(self.room.tokens);
        let numbers = |count: u64| rows.saturating_mul(count).saturating_mul(4);
        let hidden = numbers(widths.hidden);
        let cells = if offload.has_common_cache {
            self.room.tokens
        } else {
            self.room.tokens.div_ceil(self.room.sequences)
        };
        let has_cache = architecture
            .layers
            .iter()
            .any(|group| !matches!(group.cache, LayerCache::State { .. }));
        let cells = if has_cache { cells } else { 0 };
        let mask = rows.saturating_mul(cells).saturating_mul(2);
        let heads = architecture.attention_heads.unwrap_or(0);
        let scores = if offload.stores_scores {
            numbers(cells.saturating_mul(heads)).saturating_add(mask)
        } else {
            0
        };
        let experts = widths.experts_used;
        let feed_forward = if experts == 0 {
            numbers(widths.wide).saturating_mul(3)
        } else {
            // A row for each expert in use.
            let expert =
                numbers(widths.hidden).saturating_add(numbers(widths.expert).saturating_mul(4));
            expert.saturating_mul(experts)
        };
        // Latent attention multiplies the compressed keys with a query of the same width for each head.
        let latent = architecture.layers.iter().map(|group| match group.cache {
            LayerCache::Latent { numbers, .. } => numbers.saturating_mul(heads),
            LayerCache::Heads { .. } | LayerCache::State { .. } => 0,
        });
        let queries = numbers(latent.max().unwrap_or(0));
        let layer = feed_forward
            .saturating_add(queries)
            .saturating_add(hidden.saturating_mul(3))
            .saturating_add(mask)
            .saturating_add(scores);
        let logits = numbers(widths.vocabulary_size)
            .saturating_add(hidden)
            .saturating_add(mask);
        let is_pipelined = self.places.parts.len() > 1
            && offload.split == SplitMode::Layer
            && offload.overrides.is_empty()
            && !offload.cache_on_host
            && self.places.device_of(0).is_some();
        let copies = if is_pipelined {
            mask.saturating_add(hidden.saturating_mul(3))
                .saturating_mul(PIPELINE_COPIES - 1)
        } else {
            0
        };
        let copied = if offload.keeps_operations {
            0
        } else {
            largest_copied
        };
        for (device, _) in &self.places.parts {
            if sums.devices[*device] == 0 && copied == 0 {
                continue;
            }
            let computed = if output == Some(*device) {
                layer.max(logits)
            } else {
                layer
            };
            let bytes = computed.saturating_add(copies).saturating_add(copied);
            sums.add(Some(*device), bytes);
        }
        let on_host = match (layers_on_host || self.places.parts.is_empty(), output) {
            (_, None) => layer.max(logits).saturating_add(hidden),
            (true, Some(_)) => layer.saturating_add(hidden),
            (false, Some(_)) => mask.saturating_add(hidden.saturating_mul(2)),
        };
        sums.add(None, on_host);
    }
}
