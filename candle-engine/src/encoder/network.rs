//! The network of an encoder: computes a hidden state for every token of many texts.
//!
//! candle-transformers has BERT, XLM-RoBERTa, DistilBERT, ModernBERT and NomicBERT, one file each, over padded batches with masks.
//! Here, the rows of all texts follow each other without padding: every product is one product over all rows, only attention runs
//! per text, and texts cannot influence each other. One network, with its variations as data, also serves MPNet and GTE, which
//! candle-transformers lacks.

use super::attention::{Attention, Groups, SharedInputs};
use super::linear::{LayerNorm, Linear, Table};
use super::names::{self, FeedInput, LayerNames, QueryKeyValue};
use super::operations;
use super::spec::{EncoderSpec, Positions};
use super::tensors::Tensors;
use crate::error::EngineError;
use candle_core::{Device, Result, Tensor};

/// The tokens of a text, including special tokens.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Sequence {
    pub tokens: Vec<u32>,
    /// Segment (first or second text) of each token.
    pub types: Vec<u32>,
    /// Number of leading tokens that pooling skips: the prompt, for models that exclude it.
    pub passed_over: usize,
}

/// The hidden states of several texts.
pub(crate) struct HiddenStates {
    /// Shape `[all tokens, hidden]`.
    pub rows: Tensor,
    /// First row of each text, in the order of the request.
    pub starts: Vec<usize>,
}

pub(crate) struct Network {
    embeddings: Table,
    positions: Option<Table>,
    types: Option<Table>,
    first_norm: LayerNorm,
    layers: Vec<Layer>,
    last_norm: Option<LayerNorm>,
    attention: Attention,
    norms_before: bool,
    /// Padding token, for families that skip it when they count positions.
    padding: Option<u32>,
    device: Device,
}

struct Layer {
    query_key_value: Vec<Linear>,
    attention_output: Linear,
    /// Absent in ModernBERT's first layer, which directly follows the norm of the embeddings.
    attention_norm: Option<LayerNorm>,
    /// One matrix, or the activated one and the plain one.
    feed_input: Vec<Linear>,
    feed_output: Linear,
    feed_norm: LayerNorm,
}

impl Network {
    /// Reads the network's tensors, for texts of at most `longest` tokens. Also returns the prefix of their names, for a head in
    /// the same files.
    ///
    /// # Errors
    /// If tensors are missing or do not have the shapes of the specification.
    pub fn load(
        spec: &EncoderSpec,
        tensors: &mut Tensors<'_>,
        longest: usize,
    ) -> std::result::Result<(Self, &'static str), EngineError> {
        let outer = names::outer(spec.family);
        let roots = names::roots(spec.family);
        let has_embeddings =
            |root: &&&str| tensors.has(&format!("{root}{}.weight", outer.embeddings));
        let root = *roots.iter().find(has_embeddings).unwrap_or(&"");
        let (hidden, epsilon) = (spec.hidden, spec.epsilon);
        let embeddings_name = format!("{root}{}.weight", outer.embeddings);
        let embeddings = Table::read(tensors, &embeddings_name, spec.vocabulary, hidden)?;
        let mut table = |name: &str, rows: usize| {
            let name = format!("{root}embeddings.{name}.weight");
            (rows > 0)
                .then(|| Table::read(tensors, &name, rows, hidden))
                .transpose()
        };
        let (rows, padding) = match spec.positions {
            Positions::Learned { rows, padding } => (rows, padding),
            Positions::LearnedAndRelative { rows, padding, .. } => (rows, Some(padding)),
            Positions::Turned { .. } => (0, None),
        };
        let positions = table("position_embeddings", rows)?;
        let types = table("token_type_embeddings", spec.token_types)?;
        let norm_names = outer.norm.iter().map(|name| format!("{root}{name}"));
        let mut norm_names = norm_names.collect::<Vec<_>>();
        if let Some(there) = norm_names
            .iter()
            .position(|name| tensors.has(&format!("{name}.weight")))
        {
            norm_names.swap(0, there);
        }
        let first_norm = LayerNorm::read(tensors, &norm_names[0], hidden, epsilon, spec.norm_bias)?;
        let mut namings = names::layers(spec.family);
        let there = namings.iter().position(|naming| {
            let layer = naming.layer.replace("{}", "0");
            tensors.has(&format!("{root}{layer}{}.weight", naming.attention_output))
        });
        let naming = namings.swap_remove(there.unwrap_or(0));
        let layers = (0..spec.layers.len())
            .map(|index| {
                let prefix = format!("{root}{}", naming.layer.replace("{}", &index.to_string()));
                Layer::read(spec, tensors, &naming, &prefix, index)
            })
            .collect::<std::result::Result<Vec<_>, _>>()?;
        let last_norm = if spec.norms_before {
            Some(LayerNorm::read(
                tensors,
                &format!("{root}{}", outer.last_norm),
                hidden,
                epsilon,
                spec.norm_bias,
            )?)
        } else {
            None
        };
        let distances = match spec.positions {
            Positions::LearnedAndRelative { buckets, .. } => Some(tensors.read(
                &format!("{root}encoder.relative_attention_bias.weight"),
                &[buckets, spec.heads],
            )?),
            _ => None,
        };
        let device = tensors.device().clone();
        let attention = Attention::new(spec, distances.as_ref(), longest, &device, tensors.pool())
            .map_err(EngineError::load)?;
        let network = Self {
            embeddings,
            positions,
            types,
            first_norm,
            layers,
            last_norm,
            attention,
            norms_before: spec.norms_before,
            padding,
            device,
        };
        Ok((network, root))
    }

    /// Computes the hidden states of all tokens; no text may be empty. Returns `None` if the request was cancelled.
    ///
    /// # Errors
    /// If the device fails or runs out of memory.
    pub fn compute(
        &self,
        sequences: &[&Sequence],
        is_wanted: impl Fn() -> bool,
    ) -> Result<Option<HiddenStates>> {
        // Places texts of the same length next to each other: their attention is one product.
        let mut order: Vec<usize> = (0..sequences.len()).collect();
        order.sort_by_key(|index| sequences[*index].tokens.len());
        let ordered: Vec<&Sequence> = order.iter().map(|index| sequences[*index]).collect();
        let groups = Groups::new(ordered.iter().map(|sequence| sequence.tokens.len()));
        let mut starts = vec![0; sequences.len()];
        let mut row = 0;
        for index in order {
            starts[index] = row;
            row += sequences[index].tokens.len();
        }
        let mut rows = self.embed(&ordered)?;
        let prepared = self.attention.prepare(&groups)?;
        for (index, layer) in self.layers.iter().enumerate() {
            if !is_wanted() {
                return Ok(None);
            }
            rows = if self.norms_before {
                self.layer_with_norms_before(index, layer, rows, &groups, &prepared)?
            } else {
                self.layer_with_norms_after(index, layer, rows, &groups, &prepared)?
            };
        }
        if let Some(norm) = &self.last_norm {
            rows = norm.apply(rows)?;
        }
        Ok(Some(HiddenStates { rows, starts }))
    }

    fn embed(&self, sequences: &[&Sequence]) -> Result<Tensor> {
        let joined = |of: &dyn Fn(&Sequence) -> Vec<u32>| -> Vec<u32> {
            sequences.iter().flat_map(|sequence| of(sequence)).collect()
        };
        let look_up = |table: &Table, numbers| table.look_up(numbers, &self.device);
        let mut rows = look_up(
            &self.embeddings,
            joined(&|sequence| sequence.tokens.clone()),
        )?;
        if let Some(types) = &self.types {
            // A family with a single row uses it for both texts.
            let last = types.rows()? as u32 - 1;
            let kinds = joined(&|sequence| {
                sequence
                    .types
                    .iter()
                    .map(|kind| (*kind).min(last))
                    .collect()
            });
            rows = (rows + look_up(types, kinds)?)?;
        }
        if let Some(positions) = &self.positions {
            let places = joined(&|sequence| self.positions_of(&sequence.tokens));
            rows = (rows + look_up(positions, places)?)?;
        }
        self.first_norm.apply(rows)
    }

    /// Like transformers' `create_position_ids_from_input_ids` for families that skip padding tokens.
    fn positions_of(&self, tokens: &[u32]) -> Vec<u32> {
        let Some(padding) = self.padding else {
            return (0..tokens.len() as u32).collect();
        };
        let mut last = padding;
        let position = |token: &u32| {
            if *token == padding {
                padding
            } else {
                last += 1;
                last
            }
        };
        tokens.iter().map(position).collect()
    }

    fn layer_with_norms_after(
        &self,
        index: usize,
        layer: &Layer,
        rows: Tensor,
        groups: &Groups,
        prepared: &SharedInputs,
    ) -> Result<Tensor> {
        let Some(norm) = &layer.attention_norm else {
            candle_core::bail!("a layer that norms after attention has no norm");
        };
        let looked_up = self.attend(index, layer, &rows, groups, prepared)?;
        let rows = norm.apply((looked_up + rows)?)?;
        let fed = self.feed(layer, &rows)?;
        layer.feed_norm.apply((fed + rows)?)
    }

    fn layer_with_norms_before(
        &self,
        index: usize,
        layer: &Layer,
        rows: Tensor,
        groups: &Groups,
        prepared: &SharedInputs,
    ) -> Result<Tensor> {
        let normed = match &layer.attention_norm {
            Some(norm) => norm.apply(rows.copy()?)?,
            None => rows.clone(),
        };
        let rows = (self.attend(index, layer, &normed, groups, prepared)? + rows)?;
        let normed = layer.feed_norm.apply(rows.copy()?)?;
        self.feed(layer, &normed)? + rows
    }

    fn attend(
        &self,
        index: usize,
        layer: &Layer,
        rows: &Tensor,
        groups: &Groups,
        prepared: &SharedInputs,
    ) -> Result<Tensor> {
        let query_key_value = Linear::apply_all(&layer.query_key_value, rows)?;
        let mixed = self
            .attention
            .mix(index, &query_key_value, groups, prepared)?;
        layer.attention_output.apply(&mixed)
    }

    fn feed(&self, layer: &Layer, rows: &Tensor) -> Result<Tensor> {
        let activation = self.attention.activation;
        let inner = match layer.feed_input.as_slice() {
            [one] => one.apply_activated(rows, activation)?,
            several => {
                let mut products = Linear::apply_all(several, rows)?.into_iter();
                let (Some(gate), Some(plain)) = (products.next(), products.next()) else {
                    candle_core::bail!("a feed-forward part has one input or two");
                };
                // The parts of a product share its memory, and an activation writes in place.
                (operations::activate(gate.copy()?, activation)? * plain)?
            }
        };
        layer.feed_output.apply(&inner)
    }
}

impl Layer {
    fn read(
        spec: &EncoderSpec,
        tensors: &mut Tensors<'_>,
        names: &LayerNames,
        prefix: &str,
        index: usize,
    ) -> std::result::Result<Self, EngineError> {
        let (hidden, wide, biases) = (spec.hidden, spec.feed_width, spec.biases);
        let mut linear = |name: &str, inputs: usize, outputs: usize, has_bias: bool| {
            Linear::read(
                tensors,
                &format!("{prefix}{name}"),
                inputs,
                outputs,
                has_bias,
            )
        };
        let split =
            |combined: Linear, parts: usize| combined.split(parts).map_err(EngineError::load);
        let query_key_value = match &names.query_key_value {
            QueryKeyValue::Fused(name) => {
                let combined = linear(name, hidden, 3 * hidden, biases.query_key_value)?;
                split(combined, 3)?
            }
            QueryKeyValue::Separate(names) => names
                .iter()
                .map(|name| linear(name, hidden, hidden, biases.query_key_value))
                .collect::<std::result::Result<_, _>>()?,
        };
        let attention_output = linear(
            names.attention_output,
            hidden,
            hidden,
            biases.attention_output,
        )?;
        let feed_input = match &names.feed_input {
            FeedInput::Plain(name) => vec![linear(name, hidden, wide, biases.feed_input)?],
            FeedInput::Pair(names) => names
                .iter()
                .map(|name| linear(name, hidden, wide, biases.feed_input))
                .collect::<std::result::Result<_, _>>()?,
            FeedInput::Fused {
                name,
                activated_first,
            } => {
                let mut both = split(linear(name, hidden, 2 * wide, biases.feed_input)?, 2)?;
                if !activated_first {
                    both.reverse();
                }
                both
            }
        };
        let feed_output = linear(names.feed_output, wide, hidden, biases.feed_output)?;
        let mut norm = |name: &str| {
            LayerNorm::read(
                tensors,
                &format!("{prefix}{name}"),
                hidden,
                spec.epsilon,
                spec.norm_bias,
            )
        };
        let has_attention_norm = !(spec.norms_before && index == 0);
        Ok(Self {
            query_key_value,
            attention_output,
            attention_norm: if has_attention_norm {
                Some(norm(names.attention_norm)?)
            } else {
                None
            },
            feed_input,
            feed_output,
            feed_norm: norm(names.feed_norm)?,
        })
    }
}
