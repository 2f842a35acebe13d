//! Reads the architecture of a model from the values in a GGUF header, with llama.cpp's names (`LLM_KV_*` in its `llama-arch.cpp`),
//! and the windows that llama.cpp sets for architectures whose files do not list them.

use std::path::Path;

use super::architecture::{Architecture, LayerCache, LayerMemory, Widths};
use super::error::FileError;
use super::gguf::{Gguf, List, Value, Values, integer};

/// Encoders have no cache.
const ENCODERS: [&str; 8] = [
    "bert",
    "gemma-embedding",
    "jina-bert-v2",
    "jina-bert-v3",
    "modern-bert",
    "neo-bert",
    "nomic-bert",
    "nomic-bert-moe",
];

/// Architectures without attention: every layer keeps a state.
const RECURRENT: [&str; 6] = ["mamba", "mamba2", "rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7"];

/// Architectures whose caches have parts that the header does not describe.
const IRREGULAR: [&str; 5] = ["deepseek4", "hy-v4", "minimax-01", "minimax-m3", "qwen4exp"];

/// More layers than any model has; llama.cpp allows 512.
const LAYERS_MAX: u64 = 4096;

/// A figure for all layers, or for each layer.
enum PerLayer {
    One(u64),
    Each(Vec<u64>),
}

impl PerLayer {
    /// Reads a number or a flag, or a list of them.
    fn read(values: &Values, key: &str) -> Option<PerLayer> {
        Some(match values.get(key)? {
            Value::Integer(figure) => PerLayer::One(*figure),
            Value::Flag(flag) => PerLayer::One(u64::from(*flag)),
            Value::Number(figure) => PerLayer::One(integer(*figure)?),
            Value::List(List::Numbers(figures)) => {
                let figures = figures.iter().map(|figure| integer(*figure).unwrap_or(0));
                PerLayer::Each(figures.collect())
            }
            Value::Text(_) | Value::List(List::Texts(_)) => return None,
        })
    }

    fn at_layer(&self, layer: usize) -> u64 {
        match self {
            PerLayer::One(figure) => *figure,
            PerLayer::Each(figures) => figures.get(layer).copied().unwrap_or(0),
        }
    }

    /// The number of listed layers; `None` if one figure holds for all.
    fn listed(&self) -> Option<u64> {
        match self {
            PerLayer::One(_) => None,
            PerLayer::Each(figures) => Some(figures.len() as u64),
        }
    }

    fn most(&self) -> u64 {
        match self {
            PerLayer::One(figure) => *figure,
            PerLayer::Each(figures) => figures.iter().copied().max().unwrap_or(0),
        }
    }
}

impl Architecture {
    pub fn of_gguf(path: &Path, gguf: &Gguf) -> Result<Architecture, FileError> {
        let mut architecture = Architecture::new(path);
        fill(gguf, &mut architecture).map_err(|problem| FileError::Broken {
            path: path.to_owned(),
            problem,
        })?;
        Ok(architecture)
    }
}

/// The values of one architecture in a header.
struct Keys<'a> {
    values: &'a Values,
    name: &'a str,
}

impl Keys<'_> {
    fn per_layer(&self, key: &str) -> Option<PerLayer> {
        PerLayer::read(self.values, &format!("{}.{key}", self.name))
    }

    fn number(&self, key: &str) -> Option<u64> {
        match self.per_layer(key) {
            Some(PerLayer::One(number)) => Some(number),
            _ => None,
        }
    }

    fn positive(&self, key: &str) -> Option<u64> {
        self.number(key).filter(|number| *number > 0)
    }

    fn needed(&self, key: &str) -> Result<u64, String> {
        self.positive(key)
            .ok_or_else(|| format!("`{}.{key}` is missing or 0", self.name))
    }
}

fn fill(gguf: &Gguf, architecture: &mut Architecture) -> Result<(), String> {
    let Some(name) = gguf.values.text("general.architecture")? else {
        return Err("`general.architecture` is missing".to_owned());
    };
    let keys = Keys {
        values: &gguf.values,
        name,
    };
    architecture.name = Some(name.to_owned());
    architecture.context = keys.number("context_length");
    let is_recurrent = RECURRENT.contains(&name);
    let heads = match keys.per_layer("attention.head_count") {
        Some(heads) => heads,
        None if is_recurrent => PerLayer::One(0),
        None => {
            return Err(format!("`{name}.attention.head_count` is missing or 0"));
        }
    };
    architecture.attention_heads = Some(heads.most()).filter(|heads| *heads > 0);
    if ENCODERS.contains(&name) {
        return Ok(());
    }
    let blocks = keys.needed("block_count")?;
    if blocks > LAYERS_MAX {
        return Err(format!(
            "`{name}.block_count` is {blocks}; at most {LAYERS_MAX} layers are possible"
        ));
    }
    // Layers that predict additional tokens are included, but have no cache.
    let predicting = keys.number("nextn_predict_layers").unwrap_or(0);
    if predicting > blocks {
        return Err(format!(
            "`{name}.nextn_predict_layers` is {predicting}, and `{name}.block_count` is {blocks}"
        ));
    }
    architecture.blocks = blocks;
    let layers = blocks - predicting;
    let reader = LayerReader::new(&keys, heads)?;
    let wide = reader.feed_forward.as_ref().map_or(0, PerLayer::most);
    architecture.widths = keys.number("embedding_length").map(|hidden| Widths {
        hidden,
        wide: wide.max(keys.number("expert_feed_forward_length").unwrap_or(0)),
        queries: reader.most_heads.saturating_mul(reader.key_size),
        vocabulary_size: keys
            .number("vocab_size")
            .or_else(|| gguf.rows_of("token_embd.weight"))
            .unwrap_or(0),
        blocks: layers,
        expert: keys.number("expert_feed_forward_length").unwrap_or(wide),
        experts_used: keys.number("expert_used_count").unwrap_or(0),
    });
    if let Some(listed) = reader.listed()
        && layers > listed
    {
        return Err(format!(
            "`{name}.block_count` is {blocks}, and a list gives figures for {listed} layers"
        ));
    }
    if IRREGULAR.contains(&name) {
        architecture.guesses.push(format!(
            "the cache of the architecture `{name}` is not regular; full attention in every layer is assumed"
        ));
    }
    for layer in 0..layers {
        let memory = reader.memory(layer, layers);
        if let Some(cache) = memory.cache {
            architecture.push(1, cache);
        }
        if memory.state > 0 {
            let bytes = memory.state;
            architecture.push(1, LayerCache::State { bytes });
        }
        architecture.each_layer.push(memory);
    }
    Ok(())
}

/// The figures from which the cache of each layer follows.
struct LayerReader {
    is_recurrent: bool,
    /// Every layer has attention and a state (Falcon-H1).
    has_both: bool,
    key_value_heads: PerLayer,
    most_heads: u64,
    key_size: u64,
    value_size: u64,
    /// Sizes in layers with a window, if they differ.
    window_sizes: Option<(u64, u64)>,
    /// Numbers per token and layer of multi-head latent attention: as kept, and expanded for each head.
    latent: Option<(u64, u64)>,
    feed_forward: Option<PerLayer>,
    /// Layers are attention, a state, or a feed-forward part (Nemotron-H).
    has_feed_forward_layers: bool,
    window: Option<u64>,
    pattern: WindowPattern,
    state: Option<u64>,
    /// Layers with a state: each, or all but every n-th.
    recurrent: Option<PerLayer>,
    attention_every: Option<u64>,
    /// The last layers reuse the cache of earlier layers.
    shared: u64,
}

/// The layers with a window.
enum WindowPattern {
    Never,
    /// All but every n-th; the exception is the first of n if the flag is set.
    Period(u64, bool),
    Each(Vec<u64>),
}

impl LayerReader {
    fn new(keys: &Keys<'_>, heads: PerLayer) -> Result<LayerReader, String> {
        let name = keys.name;
        let is_recurrent = RECURRENT.contains(&name);
        let most_heads = heads.most();
        let size = |key: &str| match keys.positive(key) {
            Some(size) => Ok(size),
            None if is_recurrent => Ok(0),
            None => Ok::<u64, String>(keys.needed("embedding_length")?.div_ceil(most_heads.max(1))),
        };
        let key_size = size("attention.key_length")?;
        let value_size = size("attention.value_length")?;
        // For latent attention the file lists the single cached key, which includes the value, and separately the sizes of each
        // head.
        let of_each_head = keys
            .number("attention.key_length_mla")
            .zip(keys.number("attention.value_length_mla"));
        let indexer = keys.number("attention.indexer.key_length").unwrap_or(0);
        let latent = of_each_head.map(|(key, value)| {
            let expanded = most_heads.saturating_mul(key.saturating_add(value));
            (key_size.saturating_add(indexer), expanded)
        });
        let window = keys.positive("attention.sliding_window");
        let pattern = match (keys.per_layer("attention.sliding_window_pattern"), window) {
            (_, None) => WindowPattern::Never,
            (Some(PerLayer::Each(each)), _) => WindowPattern::Each(each),
            (Some(PerLayer::One(every)), _) => WindowPattern::Period(every, false),
            (None, _) => default_pattern(name),
        };
        let window_sizes = keys
            .positive("attention.key_length_swa")
            .zip(keys.positive("attention.value_length_swa"));
        let state = state_bytes(keys, most_heads);
        let attention_every = keys.positive("full_attention_interval").or_else(|| {
            // llama.cpp's default.
            matches!(name, "qwen3next" | "qwen35" | "qwen35moe").then_some(4)
        });
        Ok(LayerReader {
            is_recurrent,
            has_both: name == "falcon-h1",
            key_value_heads: keys.per_layer("attention.head_count_kv").unwrap_or(heads),
            most_heads,
            key_size,
            value_size,
            window_sizes,
            latent,
            feed_forward: keys.per_layer("feed_forward_length"),
            has_feed_forward_layers: name.starts_with("nemotron_h"),
            window,
            pattern,
            state,
            recurrent: keys.per_layer("attention.recurrent_layers"),
            attention_every: attention_every.filter(|_| state.is_some()),
            shared: keys.number("attention.shared_kv_layers").unwrap_or(0),
        })
    }

    /// The number of layers that the lists of figures cover.
    fn listed(&self) -> Option<u64> {
        let of_pattern = match &self.pattern {
            WindowPattern::Each(each) => Some(each.len() as u64),
            WindowPattern::Never | WindowPattern::Period(..) => None,
        };
        [self.key_value_heads.listed(), of_pattern]
            .into_iter()
            .flatten()
            .min()
    }

    fn memory(&self, layer: u64, layers: u64) -> LayerMemory {
        let index = usize::try_from(layer).unwrap_or(usize::MAX);
        let state = self.state.unwrap_or(0);
        let only_state = LayerMemory { cache: None, state };
        if self.is_recurrent {
            return only_state;
        }
        if let Some(recurrent) = &self.recurrent {
            if recurrent.at_layer(index) != 0 {
                return only_state;
            }
        } else if let Some(every) = self.attention_every
            && !(layer + 1).is_multiple_of(every)
        {
            return only_state;
        }
        let heads = self.key_value_heads.at_layer(index);
        if heads == 0 {
            // A layer without attention has a state. In Nemotron-H a feed-forward part may be a layer.
            let wide = self
                .feed_forward
                .as_ref()
                .map_or(0, |wide| wide.at_layer(index));
            let is_feed_forward = self.has_feed_forward_layers && wide > 0;
            return if is_feed_forward {
                LayerMemory::default()
            } else {
                only_state
            };
        }
        if layer >= layers.saturating_sub(self.shared) {
            return LayerMemory::default();
        }
        let has_window = match &self.pattern {
            WindowPattern::Never => false,
            WindowPattern::Period(0, _) => true,
            WindowPattern::Period(every, true) => !layer.is_multiple_of(*every),
            WindowPattern::Period(every, false) => !(layer + 1).is_multiple_of(*every),
            WindowPattern::Each(each) => each.get(index).copied().unwrap_or(0) != 0,
        };
        let (key_size, value_size) = self
            .window_sizes
            .filter(|_| has_window)
            .unwrap_or((self.key_size, self.value_size));
        let cache = match self.latent {
            Some((numbers, expanded)) => LayerCache::Latent { numbers, expanded },
            None => LayerCache::Heads {
                heads,
                key_size,
                value_size,
                window: self.window.filter(|_| has_window),
            },
        };
        LayerMemory {
            cache: Some(cache),
            state: if self.has_both { state } else { 0 },
        }
    }
}

/// The windows that llama.cpp sets for files without a pattern (`load_swa_pattern` in `src/models` of 0c1e570).
fn default_pattern(architecture: &str) -> WindowPattern {
    match architecture {
        "gemma2" | "gpt-oss" => WindowPattern::Period(2, false),
        "gemma3" => WindowPattern::Period(6, false),
        "gemma3n" => WindowPattern::Period(5, false),
        "plamo3" => WindowPattern::Period(8, false),
        "afmoe" | "cohere2" | "exaone-moe" | "exaone4" | "llama4" | "mellum" | "muse-glimmer"
        | "olmo2" => WindowPattern::Period(4, false),
        "cohere2moe" | "laguna" | "smallthinker" => WindowPattern::Period(4, true),
        _ => WindowPattern::Never,
    }
}

/// The state of one layer and sequence in four-byte numbers (`n_embd_r` and `n_embd_s` in `llama-hparams.cpp` of 0c1e570).
fn state_bytes(keys: &Keys<'_>, heads: u64) -> Option<u64> {
    let product = |factors: &[u64]| {
        factors
            .iter()
            .fold(1_u64, |product, factor| product.saturating_mul(*factor))
    };
    let kernel = keys.number("ssm.conv_kernel").unwrap_or(4);
    let hidden = || keys.number("embedding_length").unwrap_or(0);
    let numbers = if let Some(size) = keys.positive("wkv.head_size") {
        let shifts = keys.number("token_shift_count").unwrap_or(2);
        product(&[hidden(), shifts.saturating_add(size)])
    } else if let Some(length) = keys.positive("shortconv.l_cache") {
        product(&[hidden(), length - 1])
    } else if let Some(size) = keys.positive("kda.head_dim") {
        let inner = product(&[heads, size]);
        product(&[3, kernel.saturating_sub(1), inner]).saturating_add(product(&[inner, size]))
    } else {
        let (inner, size) = (
            keys.number("ssm.inner_size")?,
            keys.number("ssm.state_size")?,
        );
        let groups = keys.number("ssm.group_count").unwrap_or(0);
        let inputs = inner.saturating_add(product(&[2, groups, size]));
        product(&[inner, size]).saturating_add(product(&[kernel.saturating_sub(1), inputs]))
    };
    Some(numbers.saturating_mul(4))
}
