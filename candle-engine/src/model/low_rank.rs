//! LoRA adapters: add the product of two narrow matrices to the output of some of a block's matrices, for the rows of sequences
//! that use an adapter. The rows of other sequences are unchanged.

use super::compute::Compute;
use crate::files::LegacyNames;
use crate::spec::{BlockSpec, FeedForward, Projections, Spec};
use crate::step::{AdapterNumber, Step};
use crate::stored_tensor::{Encoding, StoredTensor};
use candle_core::{Error, Result};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The update of one matrix: `factor · wide(narrow(x))`.
#[derive(Debug, Clone)]
pub(crate) struct LowRank {
    /// Shape `[rank, inputs]`.
    pub narrow: StoredTensor,
    /// Shape `[outputs, rank]`.
    pub wide: StoredTensor,
    pub factor: f32,
}

/// An adapter in host memory, by the names of the matrices that it changes (`model.layers.0.self_attn.q_proj`).
#[derive(Debug, Clone, Default)]
pub(crate) struct AdapterTensors(pub BTreeMap<String, LowRank>);

/// The matrices of a block that adapters may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    Query,
    Key,
    Value,
    Output,
    Gate,
    Up,
    Down,
}

const TARGETS: usize = 7;

/// One tensor of the model's files: the targets stacked in it with their row counts, and its columns.
#[derive(Debug, Clone)]
struct StackedTensor {
    parts: Vec<(Target, usize)>,
    columns: usize,
}

impl StackedTensor {
    fn rows(&self) -> usize {
        self.parts.iter().map(|(_, rows)| rows).sum()
    }
}

/// Everything that adapters of a model may change.
#[derive(Debug, Default)]
pub(super) struct Targets {
    places: BTreeMap<String, StackedTensor>,
    /// The names of matrices in the model's files, if they differ from the usual ones.
    own_names: Option<&'static LegacyNames>,
    /// At least some blocks have experts.
    has_experts: bool,
}

fn places(spec: &Spec, index: usize) -> Vec<(String, StackedTensor)> {
    use Target::{Down, Gate, Key, Output, Query, Up, Value};
    let name = |module: &str| format!("model.layers.{index}.{module}");
    let place = |parts: &[(Target, usize)], columns: usize| StackedTensor {
        parts: parts.to_vec(),
        columns,
    };
    let queries = spec.heads * spec.key_width;
    let keys = spec.key_value_heads * spec.key_width;
    let values = spec.key_value_heads * spec.value_width;
    let mut places = vec![(
        name("self_attn.o_proj"),
        place(&[(Output, spec.hidden)], spec.heads * spec.value_width),
    )];
    let inputs = [(Query, queries), (Key, keys), (Value, values)];
    match spec.attention.projections {
        Projections::Separate => {
            let modules = ["q_proj", "k_proj", "v_proj"];
            places.extend(modules.into_iter().zip(inputs).map(|(module, part)| {
                let module = name(&format!("self_attn.{module}"));
                (module, place(&[part], spec.hidden))
            }));
        }
        Projections::Fused => {
            places.push((name("self_attn.qkv_proj"), place(&inputs, spec.hidden)));
        }
        Projections::Latent { .. } | Projections::ByHead => {}
    }
    if let FeedForward::Plain(plain) = &spec.blocks[index].feed_forward {
        let (up, down) = (
            place(&[(Up, plain.width)], spec.hidden),
            place(&[(Down, spec.hidden)], plain.width),
        );
        places.extend([(name("mlp.up_proj"), up), (name("mlp.down_proj"), down)]);
    }
    if let FeedForward::Gated(gated) = &spec.blocks[index].feed_forward {
        let (gate, up) = ((Gate, gated.width), (Up, gated.width));
        if gated.fused {
            places.push((name("mlp.gate_up_proj"), place(&[gate, up], spec.hidden)))
        } else {
            places.extend([
                (name("mlp.gate_proj"), place(&[gate], spec.hidden)),
                (name("mlp.up_proj"), place(&[up], spec.hidden)),
            ])
        }
        places.push((
            name("mlp.down_proj"),
            place(&[(Down, spec.hidden)], gated.width),
        ));
    }
    places
}

impl Targets {
    pub fn new(spec: &Spec) -> Self {
        let blocks = 0..spec.blocks.len();
        let is_expert = |block: &BlockSpec| matches!(block.feed_forward, FeedForward::Experts(_));
        Self {
            places: blocks.flat_map(|index| places(spec, index)).collect(),
            own_names: LegacyNames::new(&spec.architecture),
            has_experts: spec.blocks.iter().any(is_expert),
        }
    }

    /// Renames the matrices of an adapter to the usual names.
    pub fn named(&self, tensors: &Arc<AdapterTensors>) -> Arc<AdapterTensors> {
        let Some(own_names) = self.own_names else {
            return Arc::clone(tensors);
        };
        let usual = |name: &String| own_names.usual_module(name).unwrap_or_else(|| name.clone());
        let named = tensors
            .0
            .iter()
            .map(|(name, low)| (usual(name), low.clone()));
        Arc::new(AdapterTensors(named.collect()))
    }

    /// Explains that a matrix cannot be changed by adapters.
    fn missing(&self, name: &str) -> String {
        let is_of_experts = name.contains(".experts.")
            || name.contains("shared_expert")
            || name.contains("block_sparse_moe")
            || name.ends_with("mlp.gate");
        if self.has_experts && is_of_experts {
            return format!(
                "it changes {name}, but this engine supports adapters only for attention and ordinary feed-forward parts, not for experts: train it with target_modules of the attention only, or serve the model with VLLMEngine"
            );
        }
        let known = self.places.keys().next().map_or("none", String::as_str);
        format!(
            "it changes {name}, which this model does not have or adapters cannot change in this engine; an example of a matrix that they can change is {known}"
        )
    }

    /// # Errors
    /// The first mismatch between the adapter and the model.
    pub fn check(&self, tensors: &AdapterTensors) -> std::result::Result<(), String> {
        for (name, low) in &tensors.0 {
            let Some(place) = self.places.get(name) else {
                return Err(self.missing(name));
            };
            let (narrow, wide) = (low.narrow.shape.as_slice(), low.wide.shape.as_slice());
            let (&[rank, columns], &[rows, same]) = (narrow, wide) else {
                return Err(format!("the tensors of {name} are not matrices"));
            };
            if rank == 0 || rank != same {
                return Err(format!(
                    "lora_A of {name} has rank {rank}, but lora_B has {same}"
                ));
            }
            if (rows, columns) != (place.rows(), place.columns) {
                return Err(format!(
                    "it changes a matrix {name} of {rows} × {columns}, but this model's is {} × {}: it was trained for another model",
                    place.rows(),
                    place.columns
                ));
            }
            let is_plain = |stored: &StoredTensor| {
                matches!(
                    stored.encoding,
                    Encoding::F32 | Encoding::F16 | Encoding::Bf16
                )
            };
            if !is_plain(&low.narrow) || !is_plain(&low.wide) {
                return Err(format!(
                    "the tensors of {name} are not in F32, F16 or BF16; save the adapter in one of them"
                ));
            }
        }
        Ok(())
    }
}

/// The matrices of an adapter for one block, on its device.
pub(super) struct BlockAdapter<C: Compute> {
    parts: [Option<Part<C>>; TARGETS],
}

struct Part<C: Compute> {
    narrow: C::Matrix,
    wide: C::Matrix,
    factor: f32,
}

impl<C: Compute> BlockAdapter<C> {
    /// Loads the block's part of a checked adapter.
    pub fn load(compute: &C, spec: &Spec, index: usize, tensors: &AdapterTensors) -> Result<Self> {
        let mut parts = std::array::from_fn(|_| None);
        for (name, place) in places(spec, index) {
            let Some(low) = tensors.0.get(&name) else {
                continue;
            };
            let mut first = 0;
            for (target, rows) in place.parts {
                let wide = low.wide.rows(first..first + rows);
                let wide =
                    wide.ok_or_else(|| Error::msg(format!("{name} has not {rows} more rows")))?;
                first += rows;
                parts[target as usize] = Some(Part {
                    narrow: compute.matrix(&low.narrow, None)?,
                    wide: compute.matrix(&wide, None)?,
                    factor: low.factor,
                });
            }
        }
        Ok(Self { parts })
    }
}

/// For each adapter of a step, its rows and its matrices for one block.
pub(super) type AdaptedRows<'a, C> = &'a [(&'a [usize], &'a BlockAdapter<C>)];

/// Groups the rows of a step by adapter.
pub(super) fn groups(step: &Step) -> BTreeMap<AdapterNumber, Vec<usize>> {
    let mut groups: BTreeMap<AdapterNumber, Vec<usize>> = BTreeMap::new();
    let mut row = 0;
    for span in &step.spans {
        if let Some(adapter) = span.adapter {
            groups
                .entry(adapter)
                .or_default()
                .extend(row..row + span.count);
        }
        row += span.count;
    }
    groups
}

/// Working memory that the blocks share.
pub(super) struct Buffers<C: Compute> {
    picked: C::Rows,
    narrow: C::Rows,
    wide: C::Rows,
    factors: Vec<f32>,
}

impl<C: Compute> Default for Buffers<C> {
    fn default() -> Self {
        Self {
            picked: C::Rows::default(),
            narrow: C::Rows::default(),
            wide: C::Rows::default(),
            factors: Vec::new(),
        }
    }
}

/// Adds the adapters' updates to a matrix's output for `input`.
pub(super) fn add<C: Compute>(
    compute: &mut C,
    adapted: AdaptedRows<'_, C>,
    target: Target,
    input: &C::Rows,
    output: &mut C::Rows,
    buffers: &mut Buffers<C>,
) -> Result<()> {
    for (rows, adapter) in adapted {
        let Some(part) = &adapter.parts[target as usize] else {
            continue;
        };
        let Buffers {
            picked,
            narrow,
            wide,
            factors,
        } = buffers;
        compute.pick(input, rows, picked)?;
        compute.linear(picked, [&part.narrow], [&mut *narrow])?;
        compute.linear(narrow, [&part.wide], [&mut *wide])?;
        factors.clear();
        factors.resize(rows.len(), part.factor);
        compute.add_picked(wide, rows, factors, output)?;
    }
    Ok(())
}
