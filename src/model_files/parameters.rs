//! Estimates the size of a model's weights from its `config.json` alone, by counting parameters. Used until the weights are on
//! disk.

use std::path::Path;

use super::config_json::Keys;
use super::error::FileError;
use super::layer_parameters::{
    Mixers, attention, feed_forward, mixers, product, state_parameters, sum,
};
use super::quantisation::{Quantisation, quantisation};

/// Maximum deviation of `weights_by_config` in per cent of the true size, for architectures that `config_architecture` knows. Other
/// architectures may deviate more.
pub const CONFIG_TOLERANCE_PER_CENT: u64 = 5;

/// Parameter counts, computed from a model's architecture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parameters {
    pub total: u64,
    /// Parameters of its experts, which some models store in fewer bits than the others.
    pub experts: u64,
    /// Embeddings and the output layer, which quantised models usually leave unquantised.
    pub embeddings: u64,
    /// Parameters of its attention, or of what takes its place.
    pub attention: u64,
}

/// Bytes of the weights according to a `config.json`, using the width from its `dtype` or its `quantization_config`.
pub fn weights_by_config(path: &Path) -> Result<u64, FileError> {
    let keys = Keys::read(path)?;
    bytes(&keys).map_err(|problem| FileError::Broken {
        path: path.to_owned(),
        problem,
    })
}

/// Assumptions about the size of weights that are not on disk.
pub fn guesses_by_config(path: &Path) -> Result<Vec<String>, FileError> {
    Ok(match quantisation(&Keys::read(path)?) {
        Quantisation::Unknown(name) => vec![format!(
            "the quantisation `{name}` is unknown; its weights count as not quantised, an upper bound"
        )],
        Quantisation::None | Quantisation::Known(_) => Vec::new(),
    })
}

/// Counts parameters from a `config.json`, without vision and audio parts.
pub fn parameters_by_config(path: &Path) -> Result<Parameters, FileError> {
    let keys = Keys::read(path)?;
    parameters(&keys).map_err(|problem| FileError::Broken {
        path: path.to_owned(),
        problem,
    })
}

fn bytes(keys: &Keys) -> Result<u64, String> {
    let count = parameters(keys)?;
    let plain_bits: u64 = match keys.text("torch_dtype").or(keys.text("dtype")) {
        Some("float32" | "float") => 32,
        Some("float8_e4m3fn" | "int8") => 8,
        _ => 16,
    };
    // Quantised parameters, and thousandths of a bit for each of them.
    let (parts, milli_bits) = match quantisation(keys) {
        Quantisation::None | Quantisation::Unknown(_) => (0, 0_u64),
        Quantisation::Known(form) => {
            let kept = if form.keeps_attention {
                count.attention
            } else {
                0
            };
            let parts = if form.experts_alone {
                count.experts
            } else {
                count
                    .total
                    .saturating_sub(count.embeddings)
                    .saturating_sub(kept)
            };
            (parts, form.milli_bits)
        }
    };
    let rest = u128::from(count.total - parts) * u128::from(plain_bits) * 1000;
    let bits = rest + u128::from(parts) * u128::from(milli_bits);
    Ok(u64::try_from(bits / 8000).unwrap_or(u64::MAX))
}

fn parameters(keys: &Keys) -> Result<Parameters, String> {
    let kind = keys.kind();
    let hidden = keys.hidden()?;
    let layers = keys.layers()?;
    let vocabulary = keys.needed(&["vocab_size"])?;
    if matches!(
        kind,
        "bert" | "roberta" | "xlm-roberta" | "camembert" | "electra"
    ) {
        return encoder(keys, vocabulary, hidden, layers);
    }
    let one_table = product(&[vocabulary, hidden]);
    let is_tied = keys.flag("tie_word_embeddings").unwrap_or_else(|| {
        kind.starts_with("gemma")
            || matches!(
                kind,
                "gpt2"
                    | "cohere"
                    | "cohere2"
                    | "opt"
                    | "bloom"
                    | "falcon"
                    | "falcon_mamba"
                    | "mamba"
                    | "mamba2"
            )
    });
    let learned_positions = match kind {
        "gpt2" => keys.number(&["n_positions", "max_position_embeddings", "n_ctx"])?,
        _ => None,
    };
    let embeddings = sum(&[
        product(&[one_table, if is_tied { 1 } else { 2 }]),
        product(&[learned_positions.unwrap_or(0), hidden]),
    ]);
    let Mixers {
        attending,
        with_state,
        feed_forward: blocks,
    } = mixers(keys, layers)?;
    let of_attention = match attending {
        0 => 0,
        count => product(&[count, attention(keys, hidden)?]),
    };
    let of_states = match with_state {
        0 => 0,
        count => product(&[count, state_parameters(keys, hidden)?]),
    };
    let (experts, feed_forward) = feed_forward(keys, hidden, blocks)?;
    let norms_per_layer = match kind {
        "gemma2" | "gemma3" | "gemma3_text" => 4,
        "mamba" | "mamba2" | "falcon_mamba" | "nemotron_h" => 1,
        _ => 2,
    };
    let norms = sum(&[product(&[layers, norms_per_layer, hidden]), hidden]);
    let total = sum(&[
        embeddings,
        of_attention,
        of_states,
        experts,
        feed_forward,
        norms,
    ]);
    Ok(Parameters {
        total,
        experts,
        embeddings,
        attention: sum(&[of_attention, of_states]),
    })
}

/// An encoder of BERT's form, with its pooler.
fn encoder(keys: &Keys, vocabulary: u64, hidden: u64, layers: u64) -> Result<Parameters, String> {
    let positions = keys.needed(&["max_position_embeddings"])?;
    let types = keys.number(&["type_vocab_size"])?.unwrap_or(2);
    let wide = keys.needed(&["intermediate_size"])?;
    let table = product(&[sum(&[vocabulary, positions, types]), hidden]);
    let square = sum(&[product(&[hidden, hidden]), hidden]);
    let layer = sum(&[
        product(&[4, square]),
        product(&[2, hidden, wide]),
        wide,
        hidden,
        product(&[4, hidden]),
    ]);
    Ok(Parameters {
        total: sum(&[
            table,
            product(&[2, hidden]),
            product(&[layers, layer]),
            square,
        ]),
        experts: 0,
        embeddings: table,
        attention: product(&[layers, 4, square]),
    })
}
