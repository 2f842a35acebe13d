//! Determines the attention of each layer from the various keys in `config.json` files: all tokens, a window, or a state. The
//! result is runs of equal layers, never a list whose length is an untrusted number.

use serde_json::Value;

use super::config_json::{Keys, shortened};

/// The context of architectures that keep only states and state no limit.
pub const CONTEXT_OF_STATES: u64 = 1 << 20;

/// The attention of one layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerKind {
    /// Attends to all earlier tokens.
    Full,
    /// Attends to this many of the last tokens.
    Window(u64),
    /// Keeps a state of fixed size.
    State,
    /// Attends and keeps a state.
    Both,
    /// Keeps nothing.
    Nothing,
}

impl LayerKind {
    pub fn has_state(self) -> bool {
        matches!(self, LayerKind::State | LayerKind::Both)
    }

    /// `None` if the layer does not attend to earlier tokens; otherwise its window, if it has one.
    pub fn attention(self) -> Option<Option<u64>> {
        match self {
            LayerKind::Full | LayerKind::Both => Some(None),
            LayerKind::Window(window) => Some(Some(window)),
            LayerKind::State | LayerKind::Nothing => None,
        }
    }
}

/// Runs of equal layers, in order if the file lists each layer, otherwise in any order.
pub type Runs = Vec<(u64, LayerKind)>;

pub fn layer_kinds(keys: &Keys, layers: u64, guesses: &mut Vec<String>) -> Result<Runs, String> {
    let window = window(keys)?;
    let local = window.map_or(LayerKind::Full, LayerKind::Window);
    if let Some(runs) = listed(keys, layers, local, guesses)? {
        return Ok(runs);
    }
    if let Some(runs) = hybrid(keys, layers)? {
        return Ok(runs);
    }
    if keys.kind() == "falcon_h1" {
        return Ok(vec![(layers, LayerKind::Both)]);
    }
    if window.is_none() {
        return Ok(vec![(layers, LayerKind::Full)]);
    }
    let full = full_beside_windows(keys, layers)?;
    Ok(vec![(full, LayerKind::Full), (layers - full, local)])
}

/// The window size of the layers with a window.
fn window(keys: &Keys) -> Result<Option<u64>, String> {
    let kind = keys.kind();
    if kind.starts_with("llama4") {
        // Chunks of this length never attend to each other; 8192 is the program's default.
        return Ok(Some(
            keys.number(&["attention_chunk_size"])?.unwrap_or(8192),
        ));
    }
    let is_used = match keys.flag("use_sliding_window") {
        Some(used) => used,
        // Qwen's files contain a window that is disabled unless this key is true.
        None => !kind.starts_with("qwen"),
    };
    let size = keys.number(&["sliding_window", "sliding_window_size"])?;
    Ok(size.filter(|size| *size > 0 && is_used))
}

/// Number of full-attention layers, in models whose other layers have a window.
fn full_beside_windows(keys: &Keys, layers: u64) -> Result<u64, String> {
    let kind = keys.kind();
    if kind.starts_with("llama4") {
        // Layers without rotary positions attend to all tokens.
        if let Some(each) = keys.list("no_rope_layers").filter(|each| !each.is_empty()) {
            let full = each
                .iter()
                .filter(|layer| layer.as_u64() == Some(0))
                .count() as u64;
            return Ok(full.min(layers));
        }
        let every = keys.number(&["no_rope_layer_interval", "nope_layer_interval"])?;
        return Ok(layers / every.filter(|every| *every > 0).unwrap_or(4));
    }
    if kind.starts_with("qwen") {
        // Layers above this one have windows.
        let below = keys.number(&["max_window_layers"])?.unwrap_or(layers);
        return Ok(below.min(layers));
    }
    let names = ["sliding_window_pattern", "_sliding_window_pattern"];
    match keys.value(&names) {
        // A pattern such as LLLG, repeated over the layers.
        Some(Value::String(word)) if !word.is_empty() => {
            let length = word.chars().count() as u64;
            let full_in = |letters: u64| {
                let taken = usize::try_from(letters).unwrap_or(usize::MAX);
                word.chars()
                    .take(taken)
                    .filter(|letter| *letter == 'G')
                    .count() as u64
            };
            Ok((layers / length)
                .saturating_mul(full_in(length))
                .saturating_add(full_in(layers % length))
                .min(layers))
        }
        Some(_) => Ok(layers / keys.needed(&names)?),
        None => Ok(match kind {
            "gemma2" | "gpt_oss" => layers / 2,
            "gemma3" | "gemma3_text" => layers / 6,
            "cohere2" | "olmo3" | "exaone4" => layers / 4,
            _ => 0,
        }),
    }
}

/// Reads the kinds from files that list each layer.
fn listed(
    keys: &Keys,
    layers: u64,
    local: LayerKind,
    guesses: &mut Vec<String>,
) -> Result<Option<Runs>, String> {
    let mut runs = Runs::new();
    if let Some(word) = keys.text("hybrid_override_pattern") {
        for letter in word.chars() {
            let kind = match letter {
                'M' => LayerKind::State,
                '*' => LayerKind::Full,
                _ => LayerKind::Nothing,
            };
            push(&mut runs, kind);
        }
        return Ok(Some(cut(runs, layers)));
    }
    let names = ["layer_types", "layers_block_type", "attn_type_list"];
    let Some((name, each)) = names.iter().find_map(|name| Some((name, keys.list(name)?))) else {
        return Ok(None);
    };
    for layer in each {
        let kind = match (layer.as_str(), layer.as_u64()) {
            (Some("full_attention" | "attention" | "global_attention"), _) | (_, Some(1)) => {
                LayerKind::Full
            }
            (Some("sliding_attention" | "local_attention"), _) => local,
            (Some("chunked_attention"), _) => {
                let size = keys.number(&["attention_chunk_size"])?;
                size.map_or(LayerKind::Full, LayerKind::Window)
            }
            (Some("linear_attention" | "mamba" | "mamba2" | "conv" | "recurrent"), _)
            | (_, Some(0)) => LayerKind::State,
            (Some("hybrid"), _) => LayerKind::Both,
            (Some("mlp" | "moe"), _) => LayerKind::Nothing,
            _ => {
                let note = format!(
                    "`{name}` has the unknown value {}; plain attention is assumed",
                    shortened(layer)
                );
                if !guesses.contains(&note) && guesses.len() < 8 {
                    guesses.push(note);
                }
                LayerKind::Full
            }
        };
        push(&mut runs, kind);
    }
    Ok(Some(cut(runs, layers)))
}

/// Reads hybrid models that define a rule instead of a list.
fn hybrid(keys: &Keys, layers: u64) -> Result<Option<Runs>, String> {
    let with = |full: u64| {
        let full = full.min(layers);
        Some(vec![
            (full, LayerKind::Full),
            (layers - full, LayerKind::State),
        ])
    };
    if let Some(every) = keys
        .number(&["full_attention_interval"])?
        .filter(|every| *every > 0)
    {
        return Ok(with(layers / every));
    }
    if let Some(period) = keys
        .number(&["attn_layer_period"])?
        .filter(|period| *period > 0)
    {
        let offset = keys.number(&["attn_layer_offset"])?.unwrap_or(0);
        return Ok(with(layers.saturating_sub(offset).div_ceil(period)));
    }
    for name in ["attn_layer_indices", "full_attn_idxs"] {
        if let Some(each) = keys.list(name) {
            return Ok(with(each.len() as u64));
        }
    }
    let kimi = keys
        .value(&["linear_attn_config"])
        .and_then(|section| section.get("full_attn_layers"))
        .and_then(Value::as_array);
    if let Some(each) = kimi {
        return Ok(with(each.len() as u64));
    }
    if keys.kind() == "qwen3_next" {
        return Ok(with(layers / 4));
    }
    Ok(None)
}

fn push(runs: &mut Runs, kind: LayerKind) {
    match runs.last_mut() {
        Some((count, last)) if *last == kind => *count += 1,
        _ => runs.push((1, kind)),
    }
}

/// Cuts or extends the runs to exactly `layers`: extra prediction layers are listed but not loaded, and unlisted layers attend to
/// all tokens.
fn cut(runs: Runs, layers: u64) -> Runs {
    let mut left = layers;
    let mut kept = Runs::new();
    for (count, kind) in runs {
        let count = count.min(left);
        left -= count;
        kept.push((count, kind));
    }
    kept.push((left, LayerKind::Full));
    kept.retain(|(count, _)| *count > 0);
    kept
}

/// The sizes of a state space's layer (Mamba and Mamba 2).
#[derive(Clone, Copy, Debug)]
pub struct StateSpace {
    /// Inner channels.
    pub inner: u64,
    /// 0 in the first generation.
    pub heads: u64,
    pub groups: u64,
    pub kernel: u64,
}

fn state_space(keys: &Keys) -> Result<StateSpace, String> {
    let is_second = keys.kind() == "mamba2";
    // Mamba 2 itself uses the names of attention.
    let own = |name: &'static str| {
        if is_second {
            keys.number(&[name])
        } else {
            Ok(None)
        }
    };
    let heads = keys
        .number(&["mamba_n_heads", "mamba_num_heads"])?
        .or(own("num_heads")?);
    let head_size = keys
        .number(&["mamba_d_head", "mamba_head_dim"])?
        .or(own("head_dim")?);
    let inner = match (heads, head_size, keys.number(&["intermediate_size"])?) {
        (Some(heads), Some(head_size), _) => heads.saturating_mul(head_size),
        // The first generation has no other width.
        (_, _, Some(inner)) if matches!(keys.kind(), "mamba" | "falcon_mamba") => inner,
        _ => keys
            .hidden()?
            .saturating_mul(keys.number(&["mamba_expand", "expand"])?.unwrap_or(2)),
    };
    Ok(StateSpace {
        inner,
        heads: heads.unwrap_or(0),
        groups: keys.number(&["mamba_n_groups", "n_groups"])?.unwrap_or(0),
        kernel: keys.number(&["mamba_d_conv", "conv_kernel"])?.unwrap_or(4),
    })
}

const STATE_SIZES: [&str; 4] = [
    "mamba_d_state",
    "ssm_state_size",
    "mamba_state_dim",
    "state_size",
];

/// Parameters of one layer with a state space, if the keys exist.
pub fn state_space_parameters(keys: &Keys) -> Result<Option<u64>, String> {
    let Some(size) = keys.number(&STATE_SIZES)? else {
        return Ok(None);
    };
    let hidden = keys.hidden()?;
    let space = state_space(keys)?;
    let product = |one: u64, other: u64| one.saturating_mul(other);
    let parts = if space.heads > 0 {
        let inputs = space
            .inner
            .saturating_add(product(2, product(space.groups, size)));
        let projected = inputs
            .saturating_add(space.inner)
            .saturating_add(space.heads);
        [
            product(hidden, projected),
            product(inputs, space.kernel.saturating_add(1)),
            product(3, space.heads),
            space.inner,
            product(space.inner, hidden),
        ]
    } else {
        let rank = match keys.number(&["time_step_rank", "mamba_dt_rank"]) {
            Ok(Some(rank)) => rank,
            _ => hidden.div_ceil(16),
        };
        [
            product(hidden, product(2, space.inner)),
            product(space.inner, space.kernel.saturating_add(1)),
            product(space.inner, rank.saturating_add(product(2, size))),
            product(space.inner, rank.saturating_add(size).saturating_add(2)),
            product(space.inner, hidden),
        ]
    };
    Ok(Some(
        parts.iter().fold(0, |sum, part| sum.saturating_add(*part)),
    ))
}

/// Bytes of the state of one layer and sequence, if the keys exist. Counts four bytes for each number of the state and two for the
/// inputs of its convolution, the maximum of all engines.
pub fn state_bytes(keys: &Keys) -> Result<Option<u64>, String> {
    let product = |factors: &[u64]| {
        factors
            .iter()
            .fold(1_u64, |product, factor| product.saturating_mul(*factor))
    };
    // Gated delta nets (Qwen3-Next): a matrix per value head.
    if let Some(heads) = keys.number(&["linear_num_value_heads"])? {
        let key_heads = keys.needed(&["linear_num_key_heads"])?;
        let key_size = keys.needed(&["linear_key_head_dim"])?;
        let value_size = keys.needed(&["linear_value_head_dim"])?;
        let kernel = keys.number(&["linear_conv_kernel_dim"])?.unwrap_or(4);
        let inputs =
            product(&[2, key_heads, key_size]).saturating_add(product(&[heads, value_size]));
        return Ok(Some(
            product(&[4, heads, key_size, value_size]).saturating_add(product(&[
                2,
                kernel.saturating_sub(1),
                inputs,
            ])),
        ));
    }
    // State spaces (Mamba and Mamba 2): this many numbers per inner channel.
    let size = keys.number(&STATE_SIZES)?;
    if let Some(size) = size {
        let StateSpace {
            inner,
            groups,
            kernel,
            ..
        } = state_space(keys)?;
        let inputs = inner.saturating_add(product(&[2, groups, size]));
        return Ok(Some(
            product(&[4, inner, size]).saturating_add(product(&[2, kernel, inputs])),
        ));
    }
    // Short convolutions (LFM2): only the most recent inputs.
    if let Some(length) = keys.number(&["conv_L_cache"])? {
        return Ok(Some(product(&[2, length, keys.hidden()?])));
    }
    Ok(None)
}
