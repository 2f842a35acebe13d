//! Reads the description of a Whisper model: `config.json`, and the checks of `preprocessor_config.json`.

use super::mel::{FFT_SAMPLES, HOP, SAMPLE_RATE, WINDOW_FRAMES};
use serde_json::Value;

/// The architecture's name in `config.json`.
pub(super) const ARCHITECTURE: &str = model_files::families::WHISPER;

/// More than any width or depth of a published model. Damaged files are refused before memory is reserved for them.
const COUNT_MAX: u64 = 1 << 17;

/// The shape of a Whisper model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SpeechSpec {
    pub mel_bands: usize,
    pub width: usize,
    pub encoder: Stack,
    pub decoder: Stack,
    pub vocabulary: usize,
    /// Positions of the encoder: two frames each.
    pub source_positions: usize,
    /// Positions of the decoder.
    pub context_tokens: usize,
}

/// The layers of the encoder or the decoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stack {
    pub layers: usize,
    pub heads: usize,
    pub feed_forward: usize,
}

impl SpeechSpec {
    /// Parses a `config.json`.
    ///
    /// # Errors
    /// If a field is missing, invalid, or requires something this engine does not compute.
    pub fn read(json: &Value) -> Result<Self, String> {
        let count = |name: &str| {
            let number = json[name].as_u64();
            let number = number.filter(|number| (1..=COUNT_MAX).contains(number));
            number.map(|number| number as usize).ok_or_else(|| {
                format!(
                    "{name} must be a number from 1 to {COUNT_MAX}, not {}",
                    json[name]
                )
            })
        };
        let stack = |part: &str| {
            Ok::<_, String>(Stack {
                layers: count(&format!("{part}_layers"))?,
                heads: count(&format!("{part}_attention_heads"))?,
                feed_forward: count(&format!("{part}_ffn_dim"))?,
            })
        };
        let spec = Self {
            mel_bands: count("num_mel_bins")?,
            width: count("d_model")?,
            encoder: stack("encoder")?,
            decoder: stack("decoder")?,
            vocabulary: count("vocab_size")?,
            source_positions: count("max_source_positions")?,
            context_tokens: count("max_target_positions")?,
        };
        let activation = json["activation_function"].as_str().unwrap_or("gelu");
        if activation != "gelu" {
            return Err(format!(
                "activation_function is {activation}; this engine computes gelu in Whisper models"
            ));
        }
        if json["scale_embedding"] == true {
            return Err("scale_embedding is true, which this engine does not compute".to_owned());
        }
        for (name, heads) in [
            ("encoder", spec.encoder.heads),
            ("decoder", spec.decoder.heads),
        ] {
            if !spec.width.is_multiple_of(heads) {
                return Err(format!(
                    "d_model {} is not a multiple of {name}_attention_heads {heads}",
                    spec.width
                ));
            }
        }
        if spec.source_positions * 2 != WINDOW_FRAMES {
            return Err(format!(
                "max_source_positions is {}; this engine computes windows of 30 seconds, which have {}",
                spec.source_positions,
                WINDOW_FRAMES / 2
            ));
        }
        if spec.context_tokens < 16 {
            return Err(format!(
                "max_target_positions is {}, less than a window's text needs",
                spec.context_tokens
            ));
        }
        Ok(spec)
    }

    /// Checks that `preprocessor_config.json` describes the spectrogram this engine computes.
    ///
    /// # Errors
    /// If a field differs.
    pub fn check_preprocessor(&self, json: &Value) -> Result<(), String> {
        for (name, ours) in [
            ("feature_size", self.mel_bands),
            ("sampling_rate", SAMPLE_RATE),
            ("hop_length", HOP),
            ("n_fft", FFT_SAMPLES),
            ("chunk_length", WINDOW_FRAMES * HOP / SAMPLE_RATE),
        ] {
            let theirs = &json[name];
            if !theirs.is_null() && theirs.as_u64() != Some(ours as u64) {
                return Err(format!(
                    "{name} is {theirs}; this engine computes {ours} for this model"
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn config() -> Value {
        json!({
            "num_mel_bins": 128, "d_model": 1280, "encoder_layers": 32, "encoder_attention_heads": 20, "encoder_ffn_dim": 5120,
            "decoder_layers": 4, "decoder_attention_heads": 20, "decoder_ffn_dim": 5120, "vocab_size": 51866,
            "max_source_positions": 1500, "max_target_positions": 448, "activation_function": "gelu",
        })
    }

    #[test]
    fn the_shape_of_a_model_is_read() {
        let spec = SpeechSpec::read(&config()).expect("read");
        assert_eq!((spec.mel_bands, spec.decoder.layers), (128, 4));
        assert_eq!(
            spec.check_preprocessor(&json!({"feature_size": 128, "n_fft": 400})),
            Ok(())
        );
        let problem = spec.check_preprocessor(&json!({"feature_size": 80}));
        assert!(
            problem
                .expect_err("it differs")
                .contains("feature_size is 80")
        );
    }

    #[test]
    fn a_wrong_field_is_named_with_its_value() {
        for (name, value) in [
            ("num_mel_bins", json!(0)),
            ("d_model", json!("wide")),
            ("vocab_size", json!(u64::MAX)),
            ("encoder_attention_heads", json!(7)),
            ("activation_function", json!("relu")),
            ("scale_embedding", json!(true)),
            ("max_source_positions", json!(750)),
            ("max_target_positions", json!(3)),
        ] {
            let mut config = config();
            config[name] = value;
            let problem = SpeechSpec::read(&config).expect_err(name);
            assert!(problem.contains(name), "{name}: {problem}");
        }
    }
}
