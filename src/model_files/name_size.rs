//! Estimates the size of a model's weights from its name: `Llama-2-13B-chat-AWQ` has 13 billion parameters of four bits. Used until
//! an engine has downloaded the weights.

/// The size in a model's name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NameSize {
    /// Billions of parameters.
    pub parameters: f64,
    pub bits: f64,
}

impl NameSize {
    pub fn bytes(self) -> u64 {
        (self.parameters * 1e9 * self.bits / 8.0) as u64
    }
}

/// The fraction of an expert's size that is not shared with other experts. Mixtral 8x7B has 46.7 billion parameters, 8x22B 141.
const EXPERT_PART: f64 = 0.82;
/// Larger numbers are versions and years, not sizes.
const PARAMETERS_MAX: f64 = 5_000.0;
/// Four bits plus scales of groups of 128; rounded up for unquantised parts.
const FOUR_BITS: f64 = 4.8;
const EIGHT_BITS: f64 = 8.3;

/// `None` when the name contains no size.
pub fn of_name(name: &str) -> Option<NameSize> {
    let name = name.rsplit('/').next().unwrap_or(name).to_lowercase();
    let words = || name.split(|letter: char| !letter.is_alphanumeric() && letter != '.');
    // In `235b-a22b` the first number counts: the second one is the parameters active per token.
    let parameters = words().find_map(parameters)?;
    let has_mark = |marks: &[&str]| marks.iter().any(|mark| name.contains(mark));
    let bits = if has_mark(&[
        "awq",
        "gptq",
        "int4",
        "4bit",
        "4-bit",
        "w4a16",
        "squeezellm",
        "nf4",
        "nvfp4",
        "mxfp4",
    ]) {
        FOUR_BITS
    } else if has_mark(&["fp8", "int8", "8bit", "8-bit", "w8a8", "w8a16"]) {
        EIGHT_BITS
    } else {
        16.0
    };
    Some(NameSize { parameters, bits })
}

/// Reads `70b`, `1.1b`, `560m`, `8x7b`; also at the end of a word, except in `qwen2.5b`.
fn parameters(word: &str) -> Option<f64> {
    let (digits, unit) = match word.strip_suffix('b') {
        Some(digits) => (digits, 1.0),
        None => (word.strip_suffix('m')?, 1e-3),
    };
    let number = |text: &str| text.parse::<f64>().ok().filter(|number| *number > 0.0);
    let billions = match digits.split_once('x') {
        Some((experts, each)) => number(experts)? * number(each)? * EXPERT_PART,
        None => number(digits)?,
    };
    let billions = billions * unit;
    (billions <= PARAMETERS_MAX).then_some(billions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_published_models_yield_their_sizes() {
        for (name, parameters, bits) in [
            ("meta-llama/Llama-2-70b-chat-hf", 70.0, 16.0),
            ("TheBloke/Llama-2-13B-chat-AWQ", 13.0, FOUR_BITS),
            ("mistralai/Mixtral-8x7B-Instruct-v0.1", 46.0, 16.0),
            ("Qwen/Qwen2.5-0.5B-Instruct", 0.5, 16.0),
            ("Qwen/Qwen3-235B-A22B-FP8", 235.0, EIGHT_BITS),
            ("bigscience/bloom-560m", 0.56, 16.0),
            ("databricks/dolly-v2-12b", 12.0, 16.0),
            ("OpenAssistant/falcon-40b-sft-top1-560", 40.0, 16.0),
        ] {
            let size = of_name(name).expect(name);
            assert!(
                (size.parameters / parameters - 1.0).abs() < 0.01 && size.bits == bits,
                "{name}: {size:?}"
            );
        }
        for name in [
            "amazon/LightGPT",
            "thenlper/gte-large",
            "org/model-v2",
            "b",
            "org/2024m5b9",
        ] {
            assert_eq!(of_name(name), None, "{name}");
        }
    }
}
