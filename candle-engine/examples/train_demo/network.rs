//! The trainable network: Llama's layers, built from operations with gradients.

use candle_core::{
    CpuStorage, CustomOp1, D, DType, Device, Layout, Result, Shape, Tensor, Var, bail,
};
use candle_nn::{ops, rotary_emb};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;

/// The dimensions of a demo model.
#[derive(Clone, Copy)]
pub struct NetworkShape {
    pub vocabulary: usize,
    pub hidden: usize,
    pub intermediate: usize,
    pub layers: usize,
    pub heads: usize,
    pub key_value_heads: usize,
    pub positions: usize,
}

impl NetworkShape {
    pub const ROPE_THETA: f32 = 10_000.0;
    pub const NORM_EPSILON: f32 = 1e-5;

    fn head_width(&self) -> usize {
        self.hidden / self.heads
    }
}

/// The network's variables, under Hugging Face's names, which makes saving a plain dump.
pub struct Network {
    shape: NetworkShape,
    variables: BTreeMap<String, Var>,
    cosine: Tensor,
    sine: Tensor,
}

impl Network {
    /// Random weights; a seed always gives the same ones.
    ///
    /// # Errors
    /// If candle cannot create a tensor.
    pub fn new(shape: NetworkShape, seed: u64) -> Result<Self> {
        let mut random = StdRng::seed_from_u64(seed);
        let mut variables = BTreeMap::new();
        let mut add = |name: String, rows: usize, columns: usize, deviation: f32| -> Result<()> {
            let values: Vec<f32> = (0..rows * columns)
                .map(|_| normal(&mut random) * deviation)
                .collect();
            variables.insert(name, Var::from_vec(values, (rows, columns), &Device::Cpu)?);
            Ok(())
        };
        let (hidden, key_value) = (shape.hidden, shape.head_width() * shape.key_value_heads);
        // Smaller initial output projections keep the scale of the residual stream independent of the number of layers.
        let depth = (2.0 * shape.layers as f32).sqrt();
        let spread = |width: usize| 1.0 / (width as f32).sqrt();
        add(
            "model.embed_tokens.weight".to_owned(),
            shape.vocabulary,
            hidden,
            0.05,
        )?;
        for layer in 0..shape.layers {
            let name = |part: &str| format!("model.layers.{layer}.{part}.weight");
            add(name("self_attn.q_proj"), hidden, hidden, spread(hidden))?;
            add(name("self_attn.k_proj"), key_value, hidden, spread(hidden))?;
            add(name("self_attn.v_proj"), key_value, hidden, spread(hidden))?;
            add(
                name("self_attn.o_proj"),
                hidden,
                hidden,
                spread(hidden) / depth,
            )?;
            add(
                name("mlp.gate_proj"),
                shape.intermediate,
                hidden,
                spread(hidden),
            )?;
            add(
                name("mlp.up_proj"),
                shape.intermediate,
                hidden,
                spread(hidden),
            )?;
            add(
                name("mlp.down_proj"),
                hidden,
                shape.intermediate,
                spread(shape.intermediate) / depth,
            )?;
        }
        for layer in 0..shape.layers {
            for part in ["input_layernorm", "post_attention_layernorm"] {
                variables.insert(
                    format!("model.layers.{layer}.{part}.weight"),
                    Var::ones(hidden, DType::F32, &Device::Cpu)?,
                );
            }
        }
        variables.insert(
            "model.norm.weight".to_owned(),
            Var::ones(hidden, DType::F32, &Device::Cpu)?,
        );
        let (cosine, sine) = rotary(&shape)?;
        Ok(Self {
            shape,
            variables,
            cosine,
            sine,
        })
    }

    pub fn variables(&self) -> &BTreeMap<String, Var> {
        &self.variables
    }

    pub fn parameter_count(&self) -> usize {
        self.variables
            .values()
            .map(|variable| variable.elem_count())
            .sum()
    }

    /// Hidden states after the last norm. `tokens` has shape `(batch, length)`, the result `(batch × length, hidden)`.
    ///
    /// # Errors
    /// If candle fails.
    pub fn hidden_states(&self, tokens: &Tensor) -> Result<Tensor> {
        let (batch, length) = tokens.dims2()?;
        let hidden = self.shape.hidden;
        let mut x = self
            .weight("model.embed_tokens")?
            .index_select(&tokens.flatten_all()?, 0)?;
        for layer in 0..self.shape.layers {
            let name = |part: &str| format!("model.layers.{layer}.{part}");
            let normed = self.norm(&x, &name("input_layernorm"))?;
            x = (x + self.attention(&normed, batch, length, &name("self_attn"))?)?;
            let normed = self.norm(&x, &name("post_attention_layernorm"))?;
            let gate = self.linear(&normed, &name("mlp.gate_proj"))?.silu()?;
            let inner = (gate * self.linear(&normed, &name("mlp.up_proj"))?)?;
            x = (x + self.linear(&inner, &name("mlp.down_proj"))?)?;
        }
        self.norm(&x, "model.norm")?
            .reshape((batch * length, hidden))
    }

    /// Logits `(rows, vocabulary)` of hidden states `(rows, hidden)`; the embedding is tied.
    ///
    /// # Errors
    /// If candle fails.
    pub fn logits(&self, hidden_states: &Tensor) -> Result<Tensor> {
        self.linear(hidden_states, "model.embed_tokens")
    }

    fn attention(&self, x: &Tensor, batch: usize, length: usize, name: &str) -> Result<Tensor> {
        let (heads, groups, width) = (
            self.shape.heads,
            self.shape.key_value_heads,
            self.shape.head_width(),
        );
        let split = |part: &str, count: usize| -> Result<Tensor> {
            let projected = self.linear(x, &format!("{name}.{part}"))?;
            projected
                .reshape((batch, length, count, width))?
                .transpose(1, 2)?
                .contiguous()
        };
        let (cosine, sine) = (
            self.cosine.narrow(0, 0, length)?,
            self.sine.narrow(0, 0, length)?,
        );
        let query = rotary_emb::rope_slow(&split("q_proj", heads)?, &cosine, &sine)?;
        let key = rotary_emb::rope_slow(&split("k_proj", groups)?, &cosine, &sine)?;
        let value = split("v_proj", groups)?;
        // Query heads that share a key head become rows of one larger matrix, which avoids copies of keys and values.
        let rows = heads / groups * length;
        let query = query.reshape((batch * groups, rows, width))?;
        let key = key.reshape((batch * groups, length, width))?;
        let value = value.reshape((batch * groups, length, width))?;
        let scores = query.matmul(&key.t()?)?;
        let weights = scores.apply_op1(CausalSoftmax {
            scale: 1.0 / (width as f32).sqrt(),
        })?;
        let mixed = weights
            .matmul(&value)?
            .reshape((batch, heads, length, width))?;
        let mixed = mixed
            .transpose(1, 2)?
            .reshape((batch * length, heads * width))?;
        self.linear(&mixed, &format!("{name}.o_proj"))
    }

    fn norm(&self, x: &Tensor, name: &str) -> Result<Tensor> {
        ops::rms_norm_slow(x, self.weight(name)?, NetworkShape::NORM_EPSILON)
    }

    fn linear(&self, x: &Tensor, name: &str) -> Result<Tensor> {
        x.matmul(&self.weight(name)?.t()?)
    }

    fn weight(&self, name: &str) -> Result<&Tensor> {
        match self.variables.get(&format!("{name}.weight")) {
            Some(variable) => Ok(variable.as_tensor()),
            None => bail!("the network has no weight {name}"),
        }
    }
}

fn rotary(shape: &NetworkShape) -> Result<(Tensor, Tensor)> {
    let width = shape.head_width();
    let angles: Vec<f32> = (0..shape.positions)
        .flat_map(|position| (0..width).step_by(2).map(move |i| (position, i)))
        .map(|(position, i)| {
            position as f32 / NetworkShape::ROPE_THETA.powf(i as f32 / width as f32)
        })
        .collect();
    let angles = Tensor::from_vec(angles, (shape.positions, width / 2), &Device::Cpu)?;
    Ok((angles.cos()?, angles.sin()?))
}

/// A standard normal number, by the Box-Muller transform.
fn normal(random: &mut StdRng) -> f32 {
    let radius = (-2.0 * (1.0 - random.random::<f32>()).ln()).sqrt();
    radius * (std::f32::consts::TAU * random.random::<f32>()).cos()
}

/// Differentiable softmax over the last dimension, in which row `r` sees the first `r % length + 1` columns.
struct CausalSoftmax {
    scale: f32,
}

impl CustomOp1 for CausalSoftmax {
    fn name(&self) -> &'static str {
        "causal-softmax"
    }

    fn cpu_fwd(&self, storage: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let (CpuStorage::F32(values), Some((start, end))) = (storage, layout.contiguous_offsets())
        else {
            bail!("causal-softmax needs contiguous f32 values")
        };
        let length = layout.shape().dim(D::Minus1)?;
        let mut output = vec![0f32; end - start];
        for (row, (input, output)) in values[start..end]
            .chunks_exact(length)
            .zip(output.chunks_exact_mut(length))
            .enumerate()
        {
            let seen = row % length + 1;
            let (input, output) = (&input[..seen], &mut output[..seen]);
            let largest = input.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let mut sum = 0.0;
            for (score, weight) in input.iter().zip(output.iter_mut()) {
                *weight = ((score - largest) * self.scale).exp();
                sum += *weight;
            }
            output.iter_mut().for_each(|weight| *weight /= sum);
        }
        Ok((CpuStorage::F32(output), layout.shape().clone()))
    }

    fn bwd(&self, _: &Tensor, result: &Tensor, gradient: &Tensor) -> Result<Option<Tensor>> {
        let weighted = (gradient * result)?;
        let total = weighted.sum_keepdim(D::Minus1)?;
        let shared = result.broadcast_mul(&total)?;
        Ok(Some(((weighted - shared)? * f64::from(self.scale))?))
    }
}
