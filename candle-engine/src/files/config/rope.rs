//! Reads the parameters of rotary embeddings: `rope_scaling` together with `rope_theta`, or `rope_parameters`, for all blocks or
//! per kind of block.
//!
//! Formulas and defaults follow `modeling_rope_utils.py` of `transformers` 5.

use super::fields::Fields;
use crate::spec::{Rope, RopeScaling};
use model_files::families::DecoderFamily as Family;
use serde_json::{Map, Value};

/// The kinds of blocks that may have separate parameters.
pub(super) const FULL: &str = "full_attention";
pub(super) const SLIDING: &str = "sliding_attention";

/// The parts of the model's description that its rotary embeddings depend on.
pub(super) struct RopeContext {
    pub family: Family,
    /// Numbers of a head that may be rotated.
    pub head_width: usize,
    pub context_tokens: usize,
    pub interleaved: bool,
    /// Default base, if neither form has one.
    pub theta: f64,
    /// Default share of a head to rotate, if neither form has one. `None` for families that always rotate the complete head.
    pub share: Option<f64>,
}

/// Rotary parameters of one kind of block, with the factor on attention scores from DeepSeek's YaRN.
pub(super) struct RopeParameters {
    pub rope: Rope,
    pub score_factor: f64,
}

/// The parameters that all blocks share.
pub(super) fn of_all(config: Fields<'_>, around: &RopeContext) -> Result<RopeParameters, String> {
    let parameters = parameters(config)?;
    if let Some(own) = [FULL, SLIDING].into_iter().find_map(|kind| {
        parameters
            .as_ref()
            .and_then(|parameters| parameters.get(kind))
    }) {
        return turned(config, &object(own)?, around);
    }
    turned(config, &parameters.unwrap_or_default(), around)
}

/// Gemma 3's parameters, which are separate for blocks with full and with windowed attention.
pub(super) fn by_kind(
    config: Fields<'_>,
    around: &RopeContext,
    local_theta: f64,
) -> Result<[RopeParameters; 2], String> {
    let stated = config
        .object("rope_parameters")?
        .cloned()
        .unwrap_or_default();
    let own = |kind: &str| match stated.get(kind) {
        None | Some(Value::Null) => Ok(Map::new()),
        Some(own) => object(own),
    };
    let (mut full, mut sliding) = (own(FULL)?, own(SLIDING)?);
    if let Some(scaling) = config.object("rope_scaling")? {
        full.extend(scaling.clone());
    }
    // The base for blocks with a window, in the older form.
    let local = config.positive("rope_local_base_freq", local_theta)?;
    sliding
        .entry("rope_theta")
        .or_insert_with(|| Value::from(local));
    Ok([
        turned(config, &full, around)?,
        turned(config, &sliding, around)?,
    ])
}

fn object(value: &Value) -> Result<Map<String, Value>, String> {
    value
        .as_object()
        .cloned()
        .ok_or_else(|| format!("rope_parameters contains {value}, which is not an object"))
}

/// The older form takes precedence if both are present.
fn parameters(config: Fields<'_>) -> Result<Option<Map<String, Value>>, String> {
    let old = config.object("rope_scaling")?;
    Ok(match old {
        Some(old) => Some(old.clone()),
        None => config.object("rope_parameters")?.cloned(),
    })
}

fn turned(
    config: Fields<'_>,
    parameters: &Map<String, Value>,
    around: &RopeContext,
) -> Result<RopeParameters, String> {
    let parameters = Value::Object(parameters.clone());
    let own = Fields::new(&parameters);
    let named = |problem: String| format!("in its rope parameters, {problem}");
    let theta = match own.maybe_positive("rope_theta").map_err(named)? {
        Some(theta) => theta,
        None => config.positive("rope_theta", around.theta)?,
    };
    let kind = match own.text("rope_type").map_err(named)? {
        Some(kind) => kind,
        None => own.text("type").map_err(named)?.unwrap_or("default"),
    };
    let share = match own.maybe_positive("partial_rotary_factor").map_err(named)? {
        Some(share) => share,
        None => config.positive("partial_rotary_factor", around.share.unwrap_or(1.0))?,
    };
    let turned_width = match around.share {
        Some(_) => (around.head_width as f64 * share) as usize,
        None => around.head_width,
    };
    if turned_width == 0 || !turned_width.is_multiple_of(2) || turned_width > around.head_width {
        return Err(format!(
            "heads of {} numbers cannot rotate {turned_width}: use an even number of them{}",
            around.head_width,
            match around.family {
                Family::GptNeoX => " (rotary_pct, or partial_rotary_factor of its rope parameters)",
                _ => "",
            }
        ));
    }
    let read = RopeReader {
        own,
        around,
        turned_width,
        first_context_tokens: first_context(config, own, around)?,
    };
    let (scaling, score_factor) = read.scaling(kind).map_err(named)?;
    Ok(RopeParameters {
        rope: Rope {
            theta: theta as f32,
            turned_width,
            interleaved: around.interleaved,
            scaling,
        },
        score_factor,
    })
}

/// The context of the original training. A top-level field takes precedence over one inside the parameters, and Phi-3 has a
/// separate default.
fn first_context(
    config: Fields<'_>,
    own: Fields<'_>,
    around: &RopeContext,
) -> Result<usize, String> {
    const NAME: &str = "original_max_position_embeddings";
    if let Some(tokens) = config.maybe_count(NAME)? {
        return Ok(tokens);
    }
    if around.family == Family::Phi3 {
        return Ok(4096);
    }
    own.count(NAME, around.context_tokens)
}

struct RopeReader<'a> {
    own: Fields<'a>,
    around: &'a RopeContext,
    turned_width: usize,
    first_context_tokens: usize,
}

impl RopeReader<'_> {
    fn scaling(&self, kind: &str) -> Result<(RopeScaling, f64), String> {
        let plain = |scaling| Ok((scaling, 1.0));
        match (self.around.family, kind) {
            // Dynamic scaling starts beyond the model's context, which requests never exceed.
            (_, "default" | "dynamic") => plain(RopeScaling::None),
            (Family::Phi3, "su" | "yarn" | "longrope") | (_, "longrope") => plain(self.long()?),
            (_, "linear") => plain(RopeScaling::Linear {
                factor: self.required("factor")? as f32,
            }),
            (_, "llama3") => plain(self.llama3()?),
            (family, "yarn") => {
                let factor = self.factor()?;
                let over_all = self.own.number("mscale_all_dim", 0.0)?;
                let deepseek = matches!(family, Family::DeepseekV2 | Family::DeepseekV3);
                let score = if deepseek && over_all != 0.0 {
                    yarn_amplitude(factor, over_all).powi(2)
                } else {
                    1.0
                };
                Ok((self.yarn(factor)?, score))
            }
            (_, other) => Err(format!(
                "rope_type is {other}; this engine supports default, linear, dynamic, llama3, yarn and longrope"
            )),
        }
    }

    fn required(&self, name: &str) -> Result<f64, String> {
        self.own
            .maybe_positive(name)?
            .ok_or_else(|| format!("{name} is missing"))
    }

    /// The factor by which the context was extended.
    fn factor(&self) -> Result<f64, String> {
        let stretched = self.around.context_tokens as f64 / self.first_context_tokens as f64;
        self.own.positive("factor", stretched)
    }

    fn llama3(&self) -> Result<RopeScaling, String> {
        let (low, high) = (
            self.required("low_freq_factor")?,
            self.required("high_freq_factor")?,
        );
        if high <= low {
            return Err(format!(
                "high_freq_factor {high} is not above low_freq_factor {low}"
            ));
        }
        Ok(RopeScaling::Llama3 {
            factor: self.required("factor")? as f32,
            low_frequency_factor: low as f32,
            high_frequency_factor: high as f32,
            first_context_tokens: self.first_context_tokens,
        })
    }

    fn yarn(&self, factor: f64) -> Result<RopeScaling, String> {
        let (scale, over_all) = (
            self.own.number("mscale", 0.0)?,
            self.own.number("mscale_all_dim", 0.0)?,
        );
        let amplitude = match self.own.maybe_positive("attention_factor")? {
            Some(amplitude) => amplitude,
            None if scale != 0.0 && over_all != 0.0 => {
                yarn_amplitude(factor, scale) / yarn_amplitude(factor, over_all)
            }
            None => yarn_amplitude(factor, 1.0),
        };
        // Zero counts as omitted.
        let turns = |name: &str, default: f64| {
            let stated = self.own.number(name, default)?;
            Ok::<_, String>(if stated == 0.0 { default } else { stated } as f32)
        };
        Ok(RopeScaling::Yarn {
            factor: factor as f32,
            fast_turns: turns("beta_fast", 32.0)?,
            slow_turns: turns("beta_slow", 1.0)?,
            first_context_tokens: self.first_context_tokens,
            amplitude: amplitude as f32,
            truncates: self.own.flag("truncate", true)?,
        })
    }

    fn long(&self) -> Result<RopeScaling, String> {
        let divisors = |name: &str| {
            let list = self
                .own
                .positives(name)?
                .ok_or_else(|| format!("{name} is missing"))?;
            let needed = self.turned_width / 2;
            if list.len() == needed {
                Ok(list)
            } else {
                Err(format!(
                    "{name} has {} numbers, the heads need {needed}",
                    list.len()
                ))
            }
        };
        let amplitude = match self.own.maybe_positive("attention_factor")? {
            Some(amplitude) => amplitude,
            None => long_amplitude(self.factor()?, self.first_context_tokens),
        };
        Ok(RopeScaling::Long {
            short: divisors("short_factor")?,
            long: divisors("long_factor")?,
            first_context_tokens: self.first_context_tokens,
            amplitude: amplitude as f32,
        })
    }
}

/// YaRN's attention factor for a context extended by `factor`.
pub(crate) fn yarn_amplitude(factor: f64, scale: f64) -> f64 {
    if factor <= 1.0 {
        1.0
    } else {
        0.1 * scale * factor.ln() + 1.0
    }
}

/// LongRoPE's attention factor.
pub(crate) fn long_amplitude(factor: f64, first_context_tokens: usize) -> f64 {
    if factor <= 1.0 {
        1.0
    } else {
        (1.0 + factor.ln() / (first_context_tokens as f64).ln()).sqrt()
    }
}
