//! The attention of a block: from normalised hidden states, via queries, keys and values, to the addition to the residual stream.

use super::compute::{AttentionShape, Compute, TurnedPart, Work};
use super::low_rank::{self, AdaptedRows, Target};
use super::weights::Loader;
use crate::error::EngineError;
use crate::spec::{BlockSpec, HeadNorm, Projections, Spec};
use candle_core::Result;

/// The epsilon that `transformers` uses for the norms of DeepSeek's latent vectors, regardless of the configuration.
const LATENT_EPSILON: f32 = 1e-6;

pub(super) struct Attention<C: Compute> {
    pub shape: AttentionShape,
    inputs: Inputs<C>,
    head_norms: Option<(C::Norm, C::Norm)>,
    epsilon: f32,
    turned: Option<TurnedPart>,
    output: C::Matrix,
}

enum Inputs<C: Compute> {
    Plain {
        query: C::Matrix,
        key: C::Matrix,
        value: C::Matrix,
    },
    /// One fused matrix, with rows ordered by head.
    ByHead(C::Matrix),
    Latent(Box<Latent<C>>),
}

struct Latent<C: Compute> {
    query: LatentQuery<C>,
    /// Projects hidden states to the latent vector of keys and values.
    narrow: C::Matrix,
    norm: C::Norm,
    /// Projects hidden states to the rotated part of the key, which all heads share.
    turned: C::Matrix,
    wide: C::Matrix,
    shared_part: Option<TurnedPart>,
}

enum LatentQuery<C: Compute> {
    Direct(C::Matrix),
    Narrow {
        narrow: C::Matrix,
        norm: C::Norm,
        wide: C::Matrix,
    },
}

/// Working memory that the blocks share.
pub(super) struct Buffers<C: Compute> {
    queries: C::Rows,
    keys: C::Rows,
    values: C::Rows,
    mixed: C::Rows,
    narrow: C::Rows,
    normed: C::Rows,
    turned: C::Rows,
    wide: C::Rows,
    low: low_rank::Buffers<C>,
}

impl<C: Compute> Default for Buffers<C> {
    fn default() -> Self {
        Self {
            queries: C::Rows::default(),
            keys: C::Rows::default(),
            values: C::Rows::default(),
            mixed: C::Rows::default(),
            narrow: C::Rows::default(),
            normed: C::Rows::default(),
            turned: C::Rows::default(),
            wide: C::Rows::default(),
            low: low_rank::Buffers::default(),
        }
    }
}

/// The attention dimensions of one block.
pub(super) fn shape(spec: &Spec, block: &BlockSpec) -> AttentionShape {
    AttentionShape {
        heads: spec.heads,
        key_value_heads: spec.key_value_heads,
        key_width: spec.key_width,
        value_width: spec.value_width,
        factor: spec.attention.score_factor * block.score_factor,
        cap: spec.attention.score_cap,
        window: block.window,
    }
}

impl<C: Compute> Attention<C> {
    /// Loads the tensors under `name` (`model.layers.N.self_attn`).
    pub fn load(
        loader: &Loader<'_, C>,
        name: &str,
        spec: &Spec,
        block: &BlockSpec,
    ) -> std::result::Result<Self, EngineError> {
        let shape = shape(spec, block);
        let queries = shape.heads * shape.key_width;
        let keys = shape.key_value_heads * shape.key_width;
        let values = shape.key_value_heads * shape.value_width;
        let bias = spec.attention.query_key_value_bias;
        let mut first = 0;
        let inputs = match &spec.attention.projections {
            Projections::Separate => Inputs::Plain {
                query: loader.matrix(&format!("{name}.q_proj"), queries, spec.hidden, bias)?,
                key: loader.matrix(&format!("{name}.k_proj"), keys, spec.hidden, bias)?,
                value: loader.matrix(&format!("{name}.v_proj"), values, spec.hidden, bias)?,
            },
            Projections::Fused => {
                let rows = [queries, keys, values];
                let [query, key, value] =
                    loader.parts(&format!("{name}.qkv_proj"), rows, spec.hidden, bias)?;
                Inputs::Plain { query, key, value }
            }
            Projections::ByHead => {
                let outputs = queries + keys + values;
                let name = format!("{name}.qkv_proj");
                Inputs::ByHead(loader.matrix(&name, outputs, spec.hidden, bias)?)
            }
            Projections::Latent {
                query_rank,
                key_value_rank,
                turned_width,
                plain_width,
            } => {
                first = *plain_width;
                let ranks = (*query_rank, *key_value_rank, *turned_width, *plain_width);
                Inputs::Latent(Box::new(Latent::load(loader, name, spec, block, ranks)?))
            }
        };
        let head_norms = match spec.attention.head_norm {
            HeadNorm::None => None,
            HeadNorm::PerHead => Some((shape.key_width, shape.key_width)),
            HeadNorm::AllHeads => Some((queries, keys)),
        };
        let adds_one = spec.norm.adds_one;
        Ok(Self {
            shape,
            inputs,
            head_norms: match head_norms {
                None => None,
                Some((queries, keys)) => Some((
                    loader.norm(&format!("{name}.q_norm"), queries, adds_one)?,
                    loader.norm(&format!("{name}.k_norm"), keys, adds_one)?,
                )),
            },
            epsilon: spec.norm.epsilon,
            turned: block.rope.map(|rope| TurnedPart {
                rope,
                head_width: shape.key_width,
                first,
            }),
            output: loader.matrix(
                &format!("{name}.o_proj"),
                spec.hidden,
                shape.heads * shape.value_width,
                spec.attention.output_bias,
            )?,
        })
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "an input, an output, and the state of the step"
    )]
    pub fn forward(
        &self,
        compute: &mut C,
        (work, plan): (&Work<'_>, &C::Plan),
        cache: &mut C::Cache,
        buffers: &mut Buffers<C>,
        adapted: AdaptedRows<'_, C>,
        input: &C::Rows,
        output: &mut C::Rows,
    ) -> Result<()> {
        match &self.inputs {
            Inputs::Plain { query, key, value } => {
                compute.linear(
                    input,
                    [query, key, value],
                    [&mut buffers.queries, &mut buffers.keys, &mut buffers.values],
                )?;
                for (target, rows) in [
                    (Target::Query, &mut buffers.queries),
                    (Target::Key, &mut buffers.keys),
                    (Target::Value, &mut buffers.values),
                ] {
                    low_rank::add(compute, adapted, target, input, rows, &mut buffers.low)?;
                }
            }
            Inputs::ByHead(all) => {
                compute.linear(input, [all], [&mut buffers.wide])?;
                compute.split_heads(
                    &self.shape,
                    &buffers.wide,
                    [&mut buffers.queries, &mut buffers.keys, &mut buffers.values],
                )?;
            }
            Inputs::Latent(latent) => {
                latent.forward(compute, (work, plan), &self.shape, buffers, input)?;
            }
        }
        if let Some((query, key)) = &self.head_norms {
            compute.norm_parts(query, self.epsilon, &mut buffers.queries)?;
            compute.norm_parts(key, self.epsilon, &mut buffers.keys)?;
        }
        if let Some(turned) = self.turned {
            compute.turn(work, plan, turned, &mut buffers.queries)?;
            if let Inputs::Plain { .. } | Inputs::ByHead(_) = self.inputs {
                compute.turn(work, plan, turned, &mut buffers.keys)?;
            }
        }
        compute.attend(
            work,
            plan,
            &self.shape,
            cache,
            &buffers.queries,
            &buffers.keys,
            &buffers.values,
            &mut buffers.mixed,
        )?;
        compute.linear(&buffers.mixed, [&self.output], [&mut *output])?;
        let (mixed, low) = (&buffers.mixed, &mut buffers.low);
        low_rank::add(compute, adapted, Target::Output, mixed, output, low)
    }
}

impl<C: Compute> Latent<C> {
    fn load(
        loader: &Loader<'_, C>,
        name: &str,
        spec: &Spec,
        block: &BlockSpec,
        (query_rank, rank, turned_width, plain_width): (Option<usize>, usize, usize, usize),
    ) -> std::result::Result<Self, EngineError> {
        let queries = spec.heads * spec.key_width;
        let bias = spec.attention.query_key_value_bias;
        let query = match query_rank {
            None => LatentQuery::Direct(loader.matrix(
                &format!("{name}.q_proj"),
                queries,
                spec.hidden,
                false,
            )?),
            Some(rank) => LatentQuery::Narrow {
                narrow: loader.matrix(&format!("{name}.q_a_proj"), rank, spec.hidden, bias)?,
                norm: loader.norm(&format!("{name}.q_a_layernorm"), rank, false)?,
                wide: loader.matrix(&format!("{name}.q_b_proj"), queries, rank, false)?,
            },
        };
        let [narrow, turned] = loader.parts(
            &format!("{name}.kv_a_proj_with_mqa"),
            [rank, turned_width],
            spec.hidden,
            bias,
        )?;
        Ok(Self {
            query,
            narrow,
            norm: loader.norm(&format!("{name}.kv_a_layernorm"), rank, false)?,
            turned,
            wide: loader.matrix(
                &format!("{name}.kv_b_proj"),
                spec.heads * (plain_width + spec.value_width),
                rank,
                false,
            )?,
            shared_part: block.rope.map(|rope| TurnedPart {
                rope,
                head_width: turned_width,
                first: 0,
            }),
        })
    }

    /// Computes queries, keys and values of all heads. The cache stores these instead of the latent vectors: the latent form would
    /// save memory, but every step would have to expand every past token.
    fn forward(
        &self,
        compute: &mut C,
        (work, plan): (&Work<'_>, &C::Plan),
        shape: &AttentionShape,
        buffers: &mut Buffers<C>,
        input: &C::Rows,
    ) -> Result<()> {
        match &self.query {
            LatentQuery::Direct(query) => {
                compute.linear(input, [query], [&mut buffers.queries])?;
            }
            LatentQuery::Narrow { narrow, norm, wide } => {
                compute.linear(input, [narrow], [&mut buffers.narrow])?;
                compute.norm(norm, LATENT_EPSILON, &buffers.narrow, &mut buffers.normed)?;
                compute.linear(&buffers.normed, [wide], [&mut buffers.queries])?;
            }
        }
        compute.linear(
            input,
            [&self.narrow, &self.turned],
            [&mut buffers.narrow, &mut buffers.turned],
        )?;
        compute.norm(
            &self.norm,
            LATENT_EPSILON,
            &buffers.narrow,
            &mut buffers.normed,
        )?;
        compute.linear(&buffers.normed, [&self.wide], [&mut buffers.wide])?;
        if let Some(part) = self.shared_part {
            compute.turn(work, plan, part, &mut buffers.turned)?;
        }
        compute.join_latent(
            shape,
            &buffers.wide,
            &buffers.turned,
            &mut buffers.keys,
            &mut buffers.values,
        )
    }
}
