//! Reads the architecture of a model from the values in a GGUF header, with llama.cpp's names (`LLM_KV_*` in its `llama-arch.cpp`),
//! and the windows that llama.cpp sets for architectures whose files do not list them.

use std::path::Path;

use super::architecture::{Architecture, LayerCache, Widths};
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

fn fill(gguf: &Gguf, architecture: &mut Architecture) -> Result<(), String> {
    let Some(name) = gguf.values.text("general.architecture")? else {
        return Err("`general.architecture` is missing".to_owned());
    };
    let per_layer = |key: &str| PerLayer::read(&gguf.values, &format!("{name}.{key}"));
    let number = |key: &str| match per_layer(key) {
        Some(PerLayer::One(number)) => Some(number),
        _ => None,
    };
    let needed = |key: &str| {
        number(key)
            .filter(|number| *number > 0)
            .ok_or_else(|| format!("`{name}.{key}` is missing or 0"))
    };
    architecture.name = Some(name.to_owned());
    architecture.context = number("context_length");
    let heads = per_layer("attention.head_count")
        .ok_or_else(|| format!("`{name}.attention.head_count` is missing or 0"))?;
    let most_heads = heads.most();
    architecture.attention_heads = Some(most_heads).filter(|heads| *heads > 0);
    if ENCODERS.contains(&name) {
        return Ok(());
    }
    // Layers that predict additional tokens are included, but have no cache.
    let layers = needed("block_count")?.saturating_sub(number("nextn_predict_layers").unwrap_or(0));
    let default_size =
        || Ok::<u64, String>(needed("embedding_length")?.div_ceil(most_heads.max(1)));
    let size = |key: &str| {
        number(key)
            .filter(|size| *size > 0)
            .map_or_else(default_size, Ok)
    };
    let (key_size, value_size) = (
        size("attention.key_length")?,
        size("attention.value_length")?,
    );
    let key_value_heads = per_layer("attention.head_count_kv").unwrap_or(heads);
    let wide = per_layer("feed_forward_length").map_or(0, |wide| wide.most());
    architecture.widths = number("embedding_length").map(|hidden| Widths {
        hidden,
        wide: wide.max(number("expert_feed_forward_length").unwrap_or(0)),
        queries: most_heads.saturating_mul(key_size),
        vocabulary_size: number("vocab_size").unwrap_or(0),
        blocks: layers,
    });
    let listed = matches!(key_value_heads, PerLayer::Each(_));

    let window = number("attention.sliding_window").filter(|size| *size > 0);
    let (pattern, full_every) = match per_layer("attention.sliding_window_pattern") {
        Some(PerLayer::Each(each)) => (Some(each), full_every(name)),
        Some(PerLayer::One(every)) => (None, Some(every)),
        None => (None, full_every(name)),
    };
    let state = state_bytes(&number);
    let hybrid_every = state
        .and(number("full_attention_interval"))
        .filter(|every| *every > 0);

    if !listed && pattern.is_none() {
        let heads = key_value_heads.at_layer(0);
        // For latent attention the file lists the single cached head, and separately the sizes of each head.
        let own = number("attention.key_length_mla").zip(number("attention.value_length_mla"));
        let group = |window| match own {
            Some((key, value)) => LayerCache::Latent {
                numbers: key_size.saturating_add(value_size),
                expanded: most_heads.saturating_mul(key.saturating_add(value)),
            },
            None => LayerCache::Heads {
                heads,
                key_size,
                value_size,
                window,
            },
        };
        if let (Some(every), Some(bytes)) = (hybrid_every, state) {
            architecture.push(layers / every, group(None));
            architecture.push(layers - layers / every, LayerCache::State { bytes });
            return Ok(());
        }
        let full = match (window, full_every) {
            (Some(_), Some(every)) if every > 0 => layers / every,
            // llama.cpp sets no window for unlisted architectures.
            _ => layers,
        };
        architecture.push(full, group(None));
        architecture.push(layers - full, group(window));
        return Ok(());
    }
    let most = key_value_heads_len(&key_value_heads).max(pattern.as_ref().map_or(0, Vec::len));
    if layers > most as u64 {
        return Err(format!(
            "`{name}.block_count` is {layers}, and a list gives figures for {most} layers"
        ));
    }
    for layer in 0..usize::try_from(layers).unwrap_or(most) {
        let heads = key_value_heads.at_layer(layer);
        if heads == 0 {
            // A layer without attention has a state, if the architecture has one.
            if let Some(bytes) = state {
                architecture.push(1, LayerCache::State { bytes });
            }
            continue;
        }
        let is_local = match (&pattern, full_every) {
            (Some(each), _) => each.get(layer).copied().unwrap_or(0) != 0,
            (None, Some(every)) if every > 0 => !(layer as u64 + 1).is_multiple_of(every),
            _ => false,
        };
        let window = window.filter(|_| is_local);
        architecture.push(
            1,
            LayerCache::Heads {
                heads,
                key_size,
                value_size,
                window,
            },
        );
    }
    Ok(())
}

fn key_value_heads_len(heads: &PerLayer) -> usize {
    match heads {
        PerLayer::One(_) => 0,
        PerLayer::Each(each) => each.len(),
    }
}

/// The period of layers that attend to all tokens, as llama.cpp sets it (`set_swa_pattern`).
fn full_every(architecture: &str) -> Option<u64> {
    match architecture {
        "gemma2" | "gpt-oss" => Some(2),
        "gemma3" => Some(6),
        "gemma3n" => Some(5),
        "cohere2" | "olmo2" | "exaone4" | "llama4" => Some(4),
        _ => None,
    }
}

/// The state of one layer and sequence in four-byte numbers, as in llama.cpp.
fn state_bytes(number: &dyn Fn(&str) -> Option<u64>) -> Option<u64> {
    let (inner, size) = (number("ssm.inner_size")?, number("ssm.state_size")?);
    let kernel = number("ssm.conv_kernel").unwrap_or(4);
    let groups = number("ssm.group_count").unwrap_or(0);
    let inputs = inner.saturating_add(groups.saturating_mul(size).saturating_mul(2));
    let numbers = inner
        .saturating_mul(size)
        .saturating_add(kernel.saturating_sub(1).saturating_mul(inputs));
    Some(numbers.saturating_mul(4))
}
