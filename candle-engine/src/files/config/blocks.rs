//! The blocks of a decoder: windows, rotary embeddings and feed-forward networks.

use super::Reader;
use super::rope::{FULL, SLIDING};
use crate::spec::{Activation, BlockSpec, FeedForward, GatedSpec, Norms, Rope};
use model_files::families::DecoderFamily as Family;

impl Reader<'_> {
    pub(super) fn all_blocks(&self, ropes: &[Rope]) -> Result<Vec<BlockSpec>, String> {
        let windows = self.windows()?;
        let turns = self.turns()?;
        let norms = match self.family {
            Family::Gemma2 | Family::Gemma3 => Norms::BeforeAndAfter,
            Family::Olmo2 => Norms::After,
            _ => Norms::Before,
        };
        let gated = self.gated()?;
        let experts = self.experts()?;
        (0..self.blocks)
            .map(|place| {
                let window = windows[place];
                let rope = usize::from(ropes.len() > 1 && window.is_some());
                Ok(BlockSpec {
                    // A window larger than the context has no effect.
                    window: window.filter(|window| *window < self.context_tokens),
                    rope: turns[place].then_some(rope),
                    score_factor: 1.0,
                    norms,
                    feed_forward: match &experts {
                        Some((experts, places)) if places[place] => {
                            FeedForward::Experts(experts.clone())
                        }
                        _ => FeedForward::Gated(gated.clone()),
                    },
                })
            })
            .collect()
    }

    pub(super) fn gated(&self) -> Result<GatedSpec, String> {
        Ok(GatedSpec {
            width: self
                .config
                .count("intermediate_size", self.defaults.width)?,
            activation: self.activation()?,
            fused: self.family == Family::Phi3,
            bias: match self.family {
                Family::Llama | Family::SmolLm3 | Family::Granite => {
                    self.config.flag("mlp_bias", false)?
                }
                _ => false,
            },
        })
    }

    pub(super) fn activation(&self) -> Result<Activation, String> {
        let name = match self.family {
            // `gelu` in older Gemma files always meant the tanh approximation.
            Family::Gemma => return Ok(Activation::GeluTanh),
            Family::Gemma2 | Family::Gemma3 => "hidden_activation",
            _ => "hidden_act",
        };
        match self.config.text(name)? {
            None if self.is_gemma() => Ok(Activation::GeluTanh),
            None | Some("silu" | "swish") => Ok(Activation::Silu),
            Some("gelu_pytorch_tanh" | "gelu_new") => Ok(Activation::GeluTanh),
            Some("gelu") => Ok(Activation::Gelu),
            Some(other) => Err(format!(
                "{name} is {other}; this engine supports silu, gelu and gelu_pytorch_tanh"
            )),
        }
    }

    /// The attention window of each block.
    pub(super) fn windows(&self) -> Result<Vec<Option<usize>>, String> {
        let config = self.config;
        let window = if config.has("sliding_window") {
            config.maybe_number_of("sliding_window")?
        } else {
            self.defaults.window
        };
        // Some files use zero for no window.
        let window = window.filter(|window| *window > 0);
        let is_set = config.flag("use_sliding_window", false)?;
        let from = config.maybe_number_of("max_window_layers")?.unwrap_or(28);
        let everywhere = |window| Ok(vec![window; self.blocks]);
        let slides: Box<dyn Fn(usize) -> bool> = match self.family {
            Family::Mistral | Family::Mixtral | Family::Phi3 => return everywhere(window),
            Family::Qwen3Moe => return everywhere(window.filter(|_| is_set)),
            Family::Qwen2 | Family::Qwen3 if is_set => Box::new(move |place| place >= from),
            Family::Qwen2Moe if is_set => {
                Box::new(move |place| place.is_multiple_of(2) && place < from)
            }
            Family::SmolLm3 if is_set => {
                let turns = self.turns()?;
                Box::new(move |place| !turns[place])
            }
            Family::Gemma2 => Box::new(|place| place.is_multiple_of(2)),
            Family::Gemma3 => {
                let pattern = config.count("sliding_window_pattern", 6)?;
                Box::new(move |place| !(place + 1).is_multiple_of(pattern))
            }
            _ => return everywhere(None),
        };
        let kinds = self.kinds()?;
        (0..self.blocks)
            .map(|place| {
                let slides = kinds
                    .as_ref()
                    .map_or_else(|| slides(place), |kinds| kinds[place]);
                match window {
                    Some(window) if slides => Ok(Some(window)),
                    None if slides && self.is_gemma() => {
                        Err("it has blocks with a window, but no sliding_window".to_owned())
                    }
                    _ => Ok(None),
                }
            })
            .collect()
    }

    /// Returns for each block whether it has a window, if `layer_types` is present.
    pub(super) fn kinds(&self) -> Result<Option<Vec<bool>>, String> {
        let Some(kinds) = self.config.texts("layer_types")? else {
            return Ok(None);
        };
        self.one_for_each_block("layer_types", kinds.len())?;
        let slides = kinds.into_iter().map(|kind| match kind {
            FULL => Ok(false),
            SLIDING => Ok(true),
            other => Err(format!(
                "layer_types contains {other}; this engine supports {FULL} and {SLIDING}"
            )),
        });
        slides.collect::<Result<Vec<_>, _>>().map(Some)
    }

    /// Returns for each block whether it uses rotary embeddings.
    pub(super) fn turns(&self) -> Result<Vec<bool>, String> {
        if self.family != Family::SmolLm3 {
            return Ok(vec![true; self.blocks]);
        }
        match self.config.numbers_of("no_rope_layers")? {
            // Despite the field's name, one means that the block uses them.
            Some(turns) => {
                self.one_for_each_block("no_rope_layers", turns.len())?;
                Ok(turns.into_iter().map(|turns| turns != 0).collect())
            }
            None => {
                let interval = self.config.count("no_rope_layer_interval", 4)?;
                Ok((1..=self.blocks)
                    .map(|place| !place.is_multiple_of(interval))
                    .collect())
            }
        }
    }

    pub(super) fn one_for_each_block(&self, name: &str, count: usize) -> Result<(), String> {
        if count == self.blocks {
            Ok(())
        } else {
            Err(format!(
                "{name} has {count} entries, num_hidden_layers is {}",
                self.blocks
            ))
        }
    }
}
