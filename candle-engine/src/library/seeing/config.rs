//! The description of a decoder that sees: its text and its vision tower.

use crate::files::ConfigFields;
use crate::library::fields::{full_rope_or, key_value_heads, needed, one_of, shape};
use crate::library::library_model::Sizes;
use serde_json::Value;

const SIDE_MAX: usize = 1024;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Config {
    pub(super) text: TextConfig,
    pub(super) vision: VisionConfig,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct TextConfig {
    /// The prefix of its tensors' names.
    pub prefix: &'static str,
    pub vocabulary: usize,
    pub context_tokens: usize,
    pub hidden: usize,
    pub layers: usize,
    pub heads: usize,
    pub key_heads: usize,
    pub head: usize,
    pub wide: usize,
    pub epsilon: f64,
    pub theta: f64,
    /// The axis of the position that turns each pair of numbers of a head: time, row or column.
    pub axes: Vec<usize>,
    pub attention_bias: bool,
    pub feed_forward_bias: bool,
    /// Queries and keys have norms.
    pub norms_heads: bool,
    pub tied_head: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct VisionConfig {
    pub names: &'static TowerNames,
    pub hidden: usize,
    pub layers: usize,
    pub heads: usize,
    pub wide: usize,
    pub patch: usize,
    /// Equal frames of a patch; `None` if its matrix has no such dimension.
    pub frames: Option<usize>,
    pub merge: usize,
    /// Positions of a side of the square of learned positions.
    pub side: usize,
    /// The centres of the outer patches of an image and of the square coincide. Otherwise both cover the same area.
    pub aligns_corners: bool,
    pub epsilon: f64,
    pub merger_epsilon: f64,
    pub output: usize,
    /// Layers whose rows are added to the first layers of the text, in their order.
    pub deep: Vec<usize>,
}

/// The names of a tower's tensors.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TowerNames {
    pub patch: &'static str,
    pub positions: &'static str,
    pub blocks: &'static str,
    pub norm: &'static str,
    /// One matrix for queries, keys and values, or three.
    pub projections: &'static [&'static str],
    pub attention_output: &'static str,
    pub feed_forward_norm: &'static str,
    pub up: &'static str,
    pub down: &'static str,
    pub last_norm: Option<&'static str>,
    pub merger: &'static str,
    pub deep_mergers: &'static str,
    pub merger_norm: &'static str,
    pub merger_up: &'static str,
    pub merger_down: &'static str,
}

impl Config {
    pub(super) fn sizes(&self) -> Sizes {
        let text = &self.text;
        Sizes {
            vocabulary: text.vocabulary,
            context_tokens: text.context_tokens,
            cache_numbers: 2 * text.key_heads * text.head * text.layers,
        }
    }

    /// # Errors
    /// If the parts do not fit each other, or a tower has impossible sizes.
    pub(super) fn check(&self) -> Result<(), String> {
        let (text, vision) = (&self.text, &self.vision);
        if vision.output != text.hidden {
            return Err(format!(
                "out_hidden_size of the vision tower is {}, and hidden_size of the text is {}",
                vision.output, text.hidden
            ));
        }
        if text.axes.len() * 2 != text.head {
            return Err(format!(
                "mrope_section has the sum {}; half of head_dim is {}",
                text.axes.len(),
                text.head / 2
            ));
        }
        if vision.deep.len() > text.layers {
            return Err(format!(
                "deepstack_visual_indexes has {} layers, and the text has {}",
                vision.deep.len(),
                text.layers
            ));
        }
        let ascends = vision.deep.windows(2).all(|pair| pair[0] < pair[1]);
        if !ascends
            || vision
                .deep
                .last()
                .is_some_and(|last| *last >= vision.layers)
        {
            return Err(format!(
                "deepstack_visual_indexes is {:?}; it must ascend, below {}",
                vision.deep, vision.layers
            ));
        }
        let (hidden, heads) = (vision.hidden, vision.heads);
        if !hidden.is_multiple_of(heads) || !(hidden / heads).is_multiple_of(4) {
            return Err(format!(
                "hidden_size {hidden} of the vision tower does not divide into {heads} heads of a multiple of 4"
            ));
        }
        for (name, side) in [
            ("patch_size", vision.patch),
            ("spatial_merge_size", vision.merge),
            ("temporal_patch_size", vision.frames.unwrap_or(1)),
            ("the side of learned positions", vision.side),
        ] {
            if side == 0 || side > SIDE_MAX {
                return Err(format!(
                    "{name} is {side}, which is not between 1 and {SIDE_MAX}"
                ));
            }
        }
        Ok(())
    }
}

/// Returns a nested object of the configuration.
///
/// # Errors
/// If it is missing.
pub(super) fn section<'a>(
    config: ConfigFields<'a>,
    name: &str,
) -> Result<ConfigFields<'a>, String> {
    let value = config.value(name).filter(|value| value.is_object());
    let value = value.ok_or_else(|| format!("{name} is missing"))?;
    Ok(ConfigFields::new(value))
}

/// Requires what all towers have: three channels and the approximated activation.
///
/// # Errors
/// If the tower differs.
pub(super) fn check_tower(config: ConfigFields<'_>, channels: &str) -> Result<(), String> {
    one_of(config, "hidden_act", &["gelu_pytorch_tanh"])?;
    match config.count(channels, 3)? {
        3 => Ok(()),
        found => Err(format!(
            "{channels} is {found}; this engine computes images of 3 channels"
        )),
    }
}

/// The differences between the families' texts.
pub(super) struct TextForm {
    pub prefix: &'static str,
    pub theta: f64,
    pub epsilon: f64,
    pub sections: [usize; 3],
    /// Of each three pairs, one belongs to each axis. Otherwise the pairs of an axis follow each other.
    pub interleaves: bool,
    pub norms_heads: bool,
    pub attention_bias: bool,
    pub feed_forward_bias: bool,
    pub tied_head: bool,
}

/// Reads the text.
///
/// # Errors
/// The problem, if a field is missing or wrong.
pub(super) fn text(config: ConfigFields<'_>, form: &TextForm) -> Result<TextConfig, String> {
    let shape = shape(
        config,
        &["hidden_size"],
        &["num_hidden_layers"],
        &["num_attention_heads"],
    )?;
    one_of(config, "hidden_act", &["silu"])?;
    let head = config.count("head_dim", 128)?;
    if !head.is_multiple_of(2) {
        return Err(format!("head_dim is {head}, which is not even"));
    }
    Ok(TextConfig {
        prefix: form.prefix,
        vocabulary: shape.vocabulary,
        context_tokens: needed(config, &["max_position_embeddings"])?,
        hidden: shape.hidden,
        layers: shape.layers,
        heads: shape.heads,
        key_heads: key_value_heads(config, shape.heads)?,
        head,
        wide: needed(config, &["intermediate_size"])?,
        epsilon: config.positive("rms_norm_eps", form.epsilon)?,
        theta: full_rope_or(config, form.theta)?,
        axes: axes(config, form)?,
        attention_bias: form.attention_bias,
        feed_forward_bias: form.feed_forward_bias,
        norms_heads: form.norms_heads,
        tied_head: form.tied_head,
    })
}

fn axes(config: ConfigFields<'_>, form: &TextForm) -> Result<Vec<usize>, String> {
    let object = ["rope_parameters", "rope_scaling"]
        .into_iter()
        .find_map(|name| config.value(name));
    let object = ConfigFields::new(object.unwrap_or(&Value::Null));
    let sections = match object.numbers_of("mrope_section")? {
        None => form.sections,
        Some(found) => <[usize; 3]>::try_from(found)
            .map_err(|found| format!("mrope_section is {found:?}; it must have three numbers"))?,
    };
    if sections.iter().any(|section| *section > SIDE_MAX) {
        return Err(format!(
            "mrope_section is {sections:?}, with numbers above {SIDE_MAX}"
        ));
    }
    if form.interleaves {
        // As far as its section reaches, the second of each three pairs belongs to rows and the third to columns.
        let axis = |pair: usize| {
            let axis = pair % 3;
            if pair < 3 * sections[axis] { axis } else { 0 }
        };
        return Ok((0..sections.iter().sum()).map(axis).collect());
    }
    let pairs = sections.iter().enumerate();
    Ok(pairs
        .flat_map(|(axis, count)| std::iter::repeat_n(axis, *count))
        .collect())
}
