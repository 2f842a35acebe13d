//! The rotary embeddings of a GGUF file.

use super::GgufDescription;
use crate::files::table::FileEncoding;
use crate::stored_tensor::Encoding;
use serde_json::{Map, Value, json};

impl GgufDescription<'_> {
    pub(super) fn rope(
        &self,
        fields: &mut Map<String, Value>,
        key_width: u64,
    ) -> Result<(), String> {
        if let Some(turned) = self.number("rope.dimension_count")?
            && turned != key_width
        {
            if self.architecture != "phi3" || turned > key_width {
                return Err(format!(
                    "{turned} of the {key_width} numbers of a head are rotated, which this engine does not support"
                ));
            }
            // Adds half a number, because the reader truncates.
            let share = (turned as f64 + 0.5) / key_width as f64;
            fields.insert("partial_rotary_factor".to_owned(), json!(share));
        }
        let factor = match self.fraction("rope.scaling.factor")? {
            Some(factor) => Some(factor),
            None => self.fraction("rope.scale_linear")?,
        };
        let factor = factor.filter(|factor| *factor != 0.0 && *factor != 1.0);
        let first = self.number("rope.scaling.original_context_length")?;
        let kind = self.metadata.text(&self.key("rope.scaling.type"))?;
        let long = self.has("rope_factors_short.weight");
        let mut scaling = match (kind, factor) {
            _ if long => json!({
                "rope_type": "longrope",
                "short_factor": self.divisors("rope_factors_short.weight")?,
                "long_factor": self.divisors("rope_factors_long.weight")?,
            }),
            (None | Some("linear"), Some(factor)) => {
                json!({"rope_type": "linear", "factor": factor})
            }
            (Some("yarn"), Some(factor)) => json!({
                "rope_type": "yarn",
                "factor": factor,
                "beta_fast": self.fraction("rope.scaling.yarn_beta_fast")?,
                "beta_slow": self.fraction("rope.scaling.yarn_beta_slow")?,
            }),
            (None | Some("none" | "linear" | "yarn" | "longrope"), _) => return Ok(()),
            (Some(other), _) => {
                return Err(format!(
                    "rope.scaling.type is {other}; this engine supports none, linear, yarn and longrope"
                ));
            }
        };
        if let Some(first) = first {
            scaling["original_max_position_embeddings"] = json!(first);
            // Also at the top level; otherwise Phi-3's default would take precedence over the parameter.
            fields.insert("original_max_position_embeddings".to_owned(), json!(first));
        }
        if long && let Some(amplitude) = self.fraction("rope.scaling.attn_factor")? {
            scaling["attention_factor"] = json!(amplitude);
        }
        fields.insert("rope_scaling".to_owned(), scaling);
        Ok(())
    }

    /// Reads the numbers of a small rotary tensor.
    pub(super) fn divisors(&self, name: &str) -> Result<Vec<f32>, String> {
        let place = self
            .tensors
            .get(name)
            .ok_or_else(|| format!("the tensor {name} is missing"))?;
        if place.written != FileEncoding::Plain(Encoding::F32) {
            return Err(format!("the tensor {name} is not of type F32"));
        }
        let bytes = (self.bytes)(place);
        let numbers: Vec<f32> = bytes
            .chunks_exact(4)
            .map(|number| f32::from_le_bytes([number[0], number[1], number[2], number[3]]))
            .collect();
        match numbers
            .iter()
            .find(|number| !(number.is_finite() && **number > 0.0))
        {
            Some(wrong) => Err(format!(
                "the tensor {name} contains {wrong}, which is not a valid divisor"
            )),
            None => Ok(numbers),
        }
    }
}
