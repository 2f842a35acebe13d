//! The bits per parameter of quantised weights, from `quantization_config` in `config.json` or ModelOpt's `hf_quant_config.json`.
//! An unknown form counts as not quantised, an upper bound, and is recorded.

use serde_json::Value;

use super::config_json::{Keys, shortened};

/// Thousandths of a bit for one-byte numbers with a scale of four bytes per block of 128 × 128.
const ONE_BYTE: u64 = 8010;
/// The parameters that are quantised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Quantised {
    /// Thousandths of a bit per parameter, including scales.
    pub milli_bits: u64,
    /// Only the experts are quantised.
    pub experts_alone: bool,
    /// The attention is left as it was.
    pub keeps_attention: bool,
}

/// The form of a model's quantised weights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Quantisation {
    None,
    Known(Quantised),
    /// The form's name.
    Unknown(String),
}

/// Bits with scales of `scale_bits` per group.
fn grouped(bits: u64, scale_bits: u64, group: u64) -> u64 {
    let bits = bits.min(64).saturating_mul(1000);
    bits.saturating_add(scale_bits.saturating_mul(1000) / group.max(1))
}

pub(super) fn quantisation(keys: &Keys) -> Quantisation {
    let Some(section) = keys.quantisation() else {
        return Quantisation::None;
    };
    let text = |name: &str| section.get(name).and_then(Value::as_str);
    let number = |name: &str| section.get(name).and_then(Value::as_u64);
    let flag = |name: &str| section.get(name).and_then(Value::as_bool) == Some(true);
    let method = text("quant_method").unwrap_or_default().to_lowercase();
    let algorithm = text("quant_algo").unwrap_or_default().to_uppercase();
    let bits = number("bits").or(number("w_bit"));
    let fraction = section.get("bits").and_then(Value::as_f64);
    let group = number("group_size").or(number("q_group_size"));
    let milli_bits = if method == "mxfp4" {
        Some(4250)
    } else if !algorithm.is_empty() {
        of_algorithm(&algorithm, group)
    } else if let Some(groups) = section.get("config_groups") {
        of_groups(groups)
    } else if method == "bitsandbytes" {
        if flag("load_in_4bit") || flag("_load_in_4bit") {
            Some(grouped(4, 32, 64))
        } else {
            Some(ONE_BYTE)
        }
    } else if method.contains("fp8") || bits == Some(8) {
        Some(ONE_BYTE)
    } else if let Some(bits) = bits {
        // A scale of two bytes and an offset per group.
        Some(grouped(bits, bits.saturating_add(16), group.unwrap_or(128)))
    } else {
        // EXL2 and EXL3 have fractions of bits.
        fraction
            .filter(|bits| (0.5..=32.0).contains(bits))
            .map(|bits| (bits * 1000.0) as u64 + 160)
    };
    let Some(milli_bits) = milli_bits else {
        let name = if method.is_empty() {
            &algorithm
        } else {
            &method
        };
        return Quantisation::Unknown(shortened(&Value::from(name.as_str())));
    };
    let lists = [
        "ignore",
        "exclude_modules",
        "modules_to_not_convert",
        "ignored_layers",
    ];
    let mut left_out = lists
        .iter()
        .filter_map(|name| section.get(*name)?.as_array())
        .flatten()
        .filter_map(Value::as_str);
    Quantisation::Known(Quantised {
        milli_bits,
        experts_alone: method == "mxfp4",
        keeps_attention: left_out.any(|name| name.contains("attn")),
    })
}

/// NVIDIA ModelOpt's names.
fn of_algorithm(algorithm: &str, group: Option<u64>) -> Option<u64> {
    Some(match algorithm {
        // A scale of one byte per 16 numbers.
        name if name.contains("NVFP4") => grouped(4, 8, group.unwrap_or(16)),
        name if name.contains("MXFP4") => grouped(4, 8, group.unwrap_or(32)),
        name if name.contains("MXFP8") => grouped(8, 8, group.unwrap_or(32)),
        name if name.starts_with("FP8") || name.starts_with("INT8") => ONE_BYTE,
        name if name.starts_with("W8") => ONE_BYTE,
        name if name.starts_with("W4") => grouped(4, 16, group.unwrap_or(128)),
        _ => return None,
    })
}

/// The groups of compressed-tensors. Counts the widest.
fn of_groups(groups: &Value) -> Option<u64> {
    let groups = groups.as_object()?.values();
    let widths = groups.map(|group| {
        let weights = group.get("weights")?;
        let bits = weights.get("num_bits")?.as_u64()?;
        let is_float = weights.get("type").and_then(Value::as_str) == Some("float");
        let group = weights.get("group_size").and_then(Value::as_u64);
        Some(match (bits, group) {
            (4, Some(group)) if is_float => grouped(4, 8, group),
            (bits, Some(group)) => grouped(bits, 16, group),
            (bits, None) => grouped(bits, 16, 4096),
        })
    });
    widths.collect::<Option<Vec<u64>>>()?.into_iter().max()
}
