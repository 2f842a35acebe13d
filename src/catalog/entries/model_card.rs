//! Facts from a model's files that help people choose a model: family, size and dimensions. Reads headers, but no weights.

use std::path::Path;
use std::time::SystemTime;

use sha2::{Digest, Sha256};

use super::entry::Entry;
use crate::recipes::candle_models;
use model_files::config_json::Keys;
use model_files::gguf::Gguf;
use model_files::{Architecture, ModelFiles, bytes_of_weight_files};

/// Facts about a model; unknown ones are `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelCard {
    /// `gguf` or `safetensors`.
    pub format: Option<&'static str>,
    /// `model_type`, or GGUF's `general.architecture`.
    pub family: Option<String>,
    pub parameters: Option<u64>,
    /// Storage type of the weights: `Q4_K_M`, `BF16`, `AWQ`.
    pub quantization: Option<String>,
    /// The trained context in tokens.
    pub context: Option<u64>,
    /// The hidden size.
    pub hidden: Option<u64>,
    pub layers: Option<u64>,
    /// Total size of the weight files.
    pub bytes: Option<u64>,
    /// Modification time of the weight files.
    pub modified: Option<SystemTime>,
}

impl Entry {
    /// A digest of the model's name, its engine's arguments and, if known, its weights.
    pub fn digest(&self, weights: Option<u64>) -> String {
        let weights = weights
            .map(|digest| format!("{digest:016x}"))
            .unwrap_or_default();
        let text = format!("{}\n{}\n{weights}", self.name, self.arguments());
        let digest = Sha256::digest(text.as_bytes());
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl ModelCard {
    /// Reads the file or folder of a model. Blocking.
    pub fn read(path: &Path) -> ModelCard {
        let gguf = candle_models::gguf_file(path);
        let mut card = ModelCard {
            bytes: bytes_of_weight_files(gguf.as_deref().unwrap_or(path)),
            modified: std::fs::metadata(path)
                .and_then(|metadata| metadata.modified())
                .ok(),
            ..ModelCard::default()
        };
        let architecture = match &gguf {
            Some(file) => card.of_gguf(file),
            None => card.of_folder(path),
        };
        if let Some(architecture) = architecture {
            card.family = architecture.name;
            card.context = architecture.context;
            let widths = architecture.widths;
            card.hidden = widths
                .map(|widths| widths.hidden)
                .filter(|hidden| *hidden > 0);
            card.layers = widths
                .map(|widths| widths.blocks)
                .filter(|layers| *layers > 0);
        }
        card
    }

    fn of_gguf(&mut self, file: &Path) -> Option<Architecture> {
        let gguf = Gguf::read(file).ok()?;
        self.format = Some("gguf");
        self.bytes = Some(gguf.tensor_bytes);
        self.parameters = Some(gguf.elements);
        let file_type_number = gguf.values.number("general.file_type").ok().flatten();
        self.quantization = file_type_number.and_then(file_type).map(str::to_owned);
        Architecture::of_gguf(file, &gguf).ok()
    }

    fn of_folder(&mut self, path: &Path) -> Option<Architecture> {
        let folder = if path.is_file() { path.parent()? } else { path };
        let config = folder.join("config.json");
        let keys = Keys::read(&config).ok();
        self.quantization = keys.as_ref().and_then(stored_as);
        let Ok(files) = ModelFiles::read(path) else {
            return Architecture::of_config_json(&config).ok();
        };
        if !files.by_config {
            self.format = Some("safetensors");
            let weights = &files.weights;
            // Quantized numbers are packed and cannot be counted as stored elements.
            let is_plain = weights.other_bytes <= weights.stored_bytes / 100;
            self.parameters = is_plain.then_some(weights.float_elements);
            self.bytes = Some(weights.stored_bytes);
        }
        Some(files.architecture)
    }
}

/// The quantization method, or the type of unquantized numbers.
fn stored_as(keys: &Keys) -> Option<String> {
    let quantized = keys.value(&["quantization_config"]);
    let method = quantized.and_then(|config| config.get("quant_method")?.as_str());
    let method = method.filter(|method| method.len() <= 32);
    let plain = || match keys.text("torch_dtype").or(keys.text("dtype"))? {
        "float32" => Some("F32"),
        "float16" => Some("F16"),
        "bfloat16" => Some("BF16"),
        _ => None,
    };
    method
        .map(str::to_uppercase)
        .or_else(|| plain().map(str::to_owned))
}

/// Names for `general.file_type`, as numbered by llama.cpp.
fn file_type(number: u64) -> Option<&'static str> {
    Some(match number {
        0 => "F32",
        1 => "F16",
        2 => "Q4_0",
        3 => "Q4_1",
        7 => "Q8_0",
        8 => "Q5_0",
        9 => "Q5_1",
        10 => "Q2_K",
        11 => "Q3_K_S",
        12 => "Q3_K_M",
        13 => "Q3_K_L",
        14 => "Q4_K_S",
        15 => "Q4_K_M",
        16 => "Q5_K_S",
        17 => "Q5_K_M",
        18 => "Q6_K",
        19 => "IQ2_XXS",
        20 => "IQ2_XS",
        21 => "Q2_K_S",
        22 => "IQ3_XS",
        23 => "IQ3_XXS",
        24 => "IQ1_S",
        25 => "IQ4_NL",
        26 => "IQ3_S",
        27 => "IQ3_M",
        28 => "IQ2_S",
        29 => "IQ2_M",
        30 => "IQ4_XS",
        31 => "IQ1_M",
        32 => "BF16",
        36 => "TQ1_0",
        37 => "TQ2_0",
        38 => "MXFP4",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn demo(name: &str) -> std::path::PathBuf {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        root.join("demo/models").join(name)
    }

    #[test]
    fn a_safetensors_folder_yields_size_parameters_family_and_context() {
        let path = demo("tiny-guide");
        let card = ModelCard::read(&path);
        assert_eq!(card.format, Some("safetensors"), "{card:?}");
        let file = std::fs::metadata(path.join("model.safetensors")).unwrap();
        let bytes = card.bytes.unwrap();
        assert!(bytes > 0 && bytes <= file.len(), "{card:?}");
        let parameters = card.parameters.unwrap();
        assert!(parameters > 0 && parameters <= bytes, "{card:?}");
        assert!(card.family.is_some() && card.context.is_some(), "{card:?}");
        assert!(card.modified.is_some());
    }

    #[test]
    fn an_unreadable_folder_yields_an_empty_card() {
        assert_eq!(
            ModelCard::read(&demo("no-such-model")),
            ModelCard::default()
        );
    }

    #[test]
    fn the_quantization_method_takes_precedence_over_the_number_type() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config.json");
        for (text, stored) in [
            (r#"{"torch_dtype": "bfloat16"}"#, Some("BF16")),
            (r#"{"dtype": "float16"}"#, Some("F16")),
            (
                r#"{"torch_dtype": "float16", "quantization_config": {"quant_method": "awq"}}"#,
                Some("AWQ"),
            ),
            (r#"{"quantization_config": {"quant_method": 4}}"#, None),
            ("{}", None),
        ] {
            std::fs::write(&file, text).unwrap();
            let keys = Keys::read(&file).unwrap();
            assert_eq!(stored_as(&keys).as_deref(), stored, "{text}");
        }
    }
}
