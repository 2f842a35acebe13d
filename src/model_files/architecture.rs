//! Computes the memory that a model keeps per token and per sequence: its layers, grouped by their cache, and the resulting bytes
//! on one device. `config_architecture` and `gguf_architecture` read the layers; this file only does the arithmetic.

use std::path::{Path, PathBuf};

use super::error::FileError;

/// The properties of a model that determine its memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Architecture {
    /// `model_type` of `config.json`, or `general.architecture` of a GGUF file.
    pub name: Option<String>,
    /// Query heads; the number of devices must divide them.
    pub attention_heads: Option<u64>,
    /// The longest sequence the model was trained for, in tokens.
    pub context: Option<u64>,
    /// Every layer that has a cache or state, grouped.
    pub layers: Vec<LayerGroup>,
    /// The layers with a cache or state in the order of the file, for a GGUF file. At most 4096.
    pub each_layer: Vec<LayerMemory>,
    /// All layers of a GGUF file, including layers that predict additional tokens.
    pub blocks: u64,
    /// The widths of its activations, if known.
    pub widths: Option<Widths>,
    /// Assumptions that an administrator should know.
    pub guesses: Vec<String>,
    /// The file it was read from.
    pub origin: PathBuf,
}

/// Sizes of one token's activations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Widths {
    pub hidden: u64,
    /// Width of the feed-forward part.
    pub wide: u64,
    /// Total width of the queries of all heads.
    pub queries: u64,
    /// The vocabulary size; 0 if unknown.
    pub vocabulary_size: u64,
    /// All blocks, including those without a cache.
    pub blocks: u64,
    /// Width of the feed-forward part of one expert, and the experts that a token uses; 0 without experts.
    pub expert: u64,
    pub experts_used: u64,
}

/// Layers of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerGroup {
    pub count: u64,
    pub cache: LayerCache,
}

/// The memory of one layer at its position.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LayerMemory {
    pub cache: Option<LayerCache>,
    /// Bytes per sequence, independent of its length.
    pub state: u64,
}

/// The memory of one layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerCache {
    /// A key and a value per head and token, limited to the last `window` tokens if there is a window. Heads are divided over the
    /// devices; with fewer heads than devices, each device holds one head.
    Heads {
        heads: u64,
        key_size: u64,
        value_size: u64,
        window: Option<u64>,
    },
    /// Numbers per token that all heads share (multi-head latent attention). Every device of a replica holds all of them.
    Latent {
        numbers: u64,
        /// Numbers per token in engines that store keys and values of each head separately.
        expanded: u64,
    },
    /// Bytes per sequence, independent of its length (linear attention, state spaces).
    State { bytes: u64 },
}

/// Bytes for 256 numbers of the cache: an integer for every type that engines offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumberWidth(pub u64);

impl NumberWidth {
    pub const ONE_BYTE: NumberWidth = NumberWidth(256);
    pub const TWO_BYTES: NumberWidth = NumberWidth(512);
    pub const FOUR_BYTES: NumberWidth = NumberWidth(1024);
}

/// The division of a replica over its devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// Every device computes a part of every layer (vLLM, SGLang, TGI).
    Heads,
    /// Every device holds complete layers (llama.cpp).
    Layers,
}

/// The tokens and number types that the cache must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheLoad {
    /// Tokens of all sequences together.
    pub tokens: u64,
    /// Tokens of the longest sequence.
    pub longest: u64,
    pub sequences: u64,
    pub keys: NumberWidth,
    pub values: NumberWidth,
    /// The engine drops tokens that have left a layer's window; otherwise a window saves no memory.
    pub drops_old_tokens: bool,
    /// Additional tokens that windows hold, for the batch that is being computed.
    pub window_slack: u64,
    /// The engine stores latent keys and values expanded for each head.
    pub expands_latent: bool,
}

impl CacheLoad {
    /// `sequences` sequences, each of `longest` tokens, in two-byte numbers.
    pub fn even(longest: u64, sequences: u64) -> CacheLoad {
        CacheLoad {
            tokens: longest.saturating_mul(sequences),
            longest,
            sequences,
            keys: NumberWidth::TWO_BYTES,
            values: NumberWidth::TWO_BYTES,
            drops_old_tokens: true,
            window_slack: 0,
            expands_latent: false,
        }
    }

    fn tokens_in(&self, window: Option<u64>) -> u64 {
        match window.filter(|_| self.drops_old_tokens) {
            None => self.tokens,
            Some(window) => self
                .longest
                .min(window)
                .saturating_mul(self.sequences)
                .saturating_add(self.window_slack)
                .min(self.tokens),
        }
    }
}

impl Architecture {
    /// The cache of `load` on each of `devices`, in bytes.
    pub fn cache_bytes_per_device(&self, load: &CacheLoad, split: Split, devices: u32) -> u64 {
        let devices = u64::from(devices.max(1));
        let parts = match split {
            Split::Heads => devices,
            Split::Layers => 1,
        };
        let bytes = self.layers.iter().fold(0_u64, |sum, group| {
            sum.saturating_add(group.cache.bytes(load, parts).saturating_mul(group.count))
        });
        match split {
            Split::Heads => bytes,
            Split::Layers => bytes.div_ceil(devices),
        }
    }

    /// The memory of one more token of one sequence, on one device, before any window is full.
    pub fn cache_bytes_per_token(&self, width: NumberWidth) -> u64 {
        let load = CacheLoad {
            keys: width,
            values: width,
            drops_old_tokens: false,
            ..CacheLoad::even(1, 1)
        };
        self.layers
            .iter()
            .filter(|group| !matches!(group.cache, LayerCache::State { .. }))
            .fold(0_u64, |sum, group| {
                sum.saturating_add(group.cache.bytes(&load, 1).saturating_mul(group.count))
            })
    }

    /// Tokens of one sequence: the requested number, or else the model's own. A model without a cache needs none.
    pub fn tokens(&self, requested: Option<u64>) -> Result<u64, FileError> {
        match requested.or(self.context) {
            Some(tokens) => Ok(tokens),
            None if self.layers.is_empty() => Ok(0),
            None => Err(FileError::Broken {
                path: self.origin.clone(),
                problem: "`max_position_embeddings` is missing, and engine_config.max_total_tokens does not set the context either".to_owned(),
            }),
        }
    }

    /// Adds layers to a group of equal layers, or as a new group.
    pub fn push(&mut self, count: u64, cache: LayerCache) {
        if count == 0 {
            return;
        }
        match self.layers.iter_mut().find(|group| group.cache == cache) {
            Some(group) => group.count = group.count.saturating_add(count),
            None => self.layers.push(LayerGroup { count, cache }),
        }
    }

    pub fn new(origin: &Path) -> Architecture {
        Architecture {
            origin: origin.to_owned(),
            ..Architecture::default()
        }
    }
}

impl LayerCache {
    /// Bytes of one layer when it is divided into `parts`.
    pub fn bytes(self, load: &CacheLoad, parts: u64) -> u64 {
        match self {
            LayerCache::Heads {
                heads,
                key_size,
                value_size,
                window,
            } => {
                let per_head = key_size
                    .saturating_mul(load.keys.0)
                    .saturating_add(value_size.saturating_mul(load.values.0));
                scaled([heads.div_ceil(parts), load.tokens_in(window)], per_head)
            }
            LayerCache::Latent { numbers, expanded } => {
                let kept = if load.expands_latent {
                    expanded
                } else {
                    numbers
                };
                scaled([load.tokens, kept], load.keys.0)
            }
            LayerCache::State { bytes } => bytes.saturating_mul(load.sequences).div_ceil(parts),
        }
    }
}

/// The product, in bytes, of factors and a width for 256 numbers.
fn scaled(factors: [u64; 2], bytes_of_256: u64) -> u64 {
    factors
        .iter()
        .try_fold(u128::from(bytes_of_256), |product, factor| {
            product.checked_mul(u128::from(*factor))
        })
        .map_or(u64::MAX, |product| {
            u64::try_from(product.div_ceil(256)).unwrap_or(u64::MAX)
        })
}
