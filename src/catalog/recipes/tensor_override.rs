//! The tensors of a llama.cpp model that options keep on the host or on a certain GPU.

/// Higher numbers of devices are mistakes.
const DEVICES_MAX: usize = 128;
/// Tensors of experts (`LLM_FFN_EXPS_REGEX`) and of other feed-forward parts (`LLM_FFN_DENSE_REGEX`).
const EXPERTS: &str = r"\.ffn_(up|down|gate|gate_up)_(ch|)exps";
const FEED_FORWARD: &str = r"\.ffn_(up|down|gate)\.";

const CPU: &str = "CPU";

/// A place for all tensors whose names match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorOverride {
    pub pattern: Pattern,
    pub target: Target,
}

/// The names of tensors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// A regular expression from the command line.
    Text(String),
    /// Experts in layers before this one.
    ExpertsBefore(u64),
    /// The feed-forward parts without experts in layers before this one.
    FeedForwardBefore(u64),
}

/// A place for tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    Host,
    Device(usize),
}

impl Pattern {
    /// The regular expression, to be searched in names.
    pub fn regex(&self) -> &str {
        match self {
            Pattern::Text(text) => text,
            Pattern::ExpertsBefore(_) => EXPERTS,
            Pattern::FeedForwardBefore(_) => FEED_FORWARD,
        }
    }

    /// Returns true if the pattern applies to tensors of this layer. `None`: a tensor outside the layers.
    pub fn applies_to(&self, layer: Option<u64>) -> bool {
        match self {
            Pattern::Text(_) => true,
            Pattern::ExpertsBefore(first) | Pattern::FeedForwardBefore(first) => {
                layer.is_some_and(|layer| layer < *first)
            }
        }
    }
}

/// The place that a buffer type's name means.
pub(super) fn target(place: &str) -> Option<Target> {
    if place == CPU || place.ends_with("_Host") || place.starts_with("CPU_") {
        return Some(Target::Host);
    }
    let digits = place.trim_start_matches(|letter: char| !letter.is_ascii_digit());
    let has_name = digits.len() < place.len();
    let index: usize = digits.parse().ok()?;
    (has_name && index < DEVICES_MAX).then_some(Target::Device(index))
}
