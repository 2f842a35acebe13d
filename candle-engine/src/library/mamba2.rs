//! Mamba 2 on candle's operations. A state of constant size replaces the cache, and tokens are computed one after another. The
//! library's version shares the head with the embedding and has one group in its norm.

use super::fields::{HIDDEN_MAX, LAYERS_MAX, needed, only};
use super::library_model::{LibraryModel, Sizes};
use super::weights::head;
use crate::files::ConfigFields;
use candle_core::{D, Module, Result, Tensor};
use candle_nn::{Embedding, Linear, RmsNorm, VarBuilder, embedding, linear_b, rms_norm};

#[derive(Debug, Clone)]
pub(super) struct Mamba2Config {
    vocabulary: usize,
    hidden: usize,
    layers: usize,
    heads: usize,
    /// Width of one head.
    head: usize,
    /// Groups of heads that share the vectors into and out of their states.
    groups: usize,
    /// Numbers in the state for each number of a head.
    state: usize,
    /// Tokens that the convolution sees.
    kernel: usize,
    bias: bool,
    epsilon: f64,
}

impl Mamba2Config {
    fn inner(&self) -> usize {
        self.heads * self.head
    }

    /// Width of the convolved part of a row: heads, and both vectors of each group.
    fn convolved(&self) -> usize {
        self.inner() + 2 * self.groups * self.state
    }
}

struct Block {
    norm: RmsNorm,
    input: Linear,
    /// The kernel of each number, of shape (numbers, tokens).
    kernel: Tensor,
    kernel_bias: Option<Tensor>,
    /// Negative rates of decay, steps and direct weights of the heads.
    rates: Tensor,
    step_bias: Tensor,
    direct: Tensor,
    inner_norm: Tensor,
    output: Linear,
    /// The last rows before the convolution, of shape (numbers, tokens).
    recent: Option<Tensor>,
    /// The state of each head, of shape (heads, width, state).
    state: Option<Tensor>,
}

impl Block {
    fn load(config: &Mamba2Config, weights: &VarBuilder<'_>) -> Result<Self> {
        let mixer = weights.pp("mixer");
        let (inner, convolved) = (config.inner(), config.convolved());
        let convolution = mixer.pp("conv1d");
        let kernel_bias = if convolution.contains_tensor("bias") {
            Some(convolution.get(convolved, "bias")?)
        } else {
            None
        };
        let width = inner + convolved + config.heads;
        Ok(Self {
            norm: rms_norm(config.hidden, config.epsilon, weights.pp("norm"))?,
            input: linear_b(config.hidden, width, config.bias, mixer.pp("in_proj"))?,
            kernel: convolution
                .get((convolved, 1, config.kernel), "weight")?
                .squeeze(1)?,
            kernel_bias,
            rates: mixer.get(config.heads, "A_log")?.exp()?.neg()?,
            step_bias: mixer.get(config.heads, "dt_bias")?,
            direct: mixer.get(config.heads, "D")?,
            inner_norm: mixer.pp("norm").get(inner, "weight")?,
            output: linear_b(inner, config.hidden, config.bias, mixer.pp("out_proj"))?,
            recent: None,
            state: None,
        })
    }

    /// Computes one row, of shape (1, hidden).
    fn forward(&mut self, config: &Mamba2Config, row: &Tensor) -> Result<Tensor> {
        let (inner, heads, groups) = (config.inner(), config.heads, config.groups);
        let all = self.input.forward(&self.norm.forward(row)?)?;
        let gate = all.narrow(D::Minus1, 0, inner)?;
        let convolved =
            self.convolve(config, &all.narrow(D::Minus1, inner, config.convolved())?)?;
        let steps = all.narrow(D::Minus1, inner + config.convolved(), heads)?;
        let steps = softplus(&(steps.squeeze(0)? + &self.step_bias)?)?;
        let values = convolved
            .narrow(0, 0, inner)?
            .reshape((heads, config.head, 1))?;
        // A vector of each group, for each of its heads.
        let of_heads = |first: usize| -> Result<Tensor> {
            let part = convolved.narrow(0, first, groups * config.state)?;
            part.reshape((groups, 1, config.state))?
                .broadcast_as((groups, heads / groups, config.state))?
                .reshape((heads, 1, config.state))
        };
        let into = of_heads(inner)?;
        let out = of_heads(inner + groups * config.state)?;
        let scaled = values.broadcast_mul(&steps.reshape((heads, 1, 1))?)?;
        let added = scaled.broadcast_mul(&into)?;
        let state = match &self.state {
            None => added,
            Some(state) => {
                let decay = (steps * &self.rates)?.exp()?.reshape((heads, 1, 1))?;
                (state.broadcast_mul(&decay)? + added)?
            }
        };
        let read = state.broadcast_mul(&out)?.sum_keepdim(D::Minus1)?;
        let direct = values.broadcast_mul(&self.direct.reshape((heads, 1, 1))?)?;
        self.state = Some(state);
        let mixed = (read + direct)?.reshape((1, inner))? * gate.silu()?;
        let normed = self.norm_of_groups(config, &mixed?)?;
        row + self.output.forward(&normed)?
    }

    /// Appends a row, of shape (1, numbers), and convolves the last ones.
    fn convolve(&mut self, config: &Mamba2Config, row: &Tensor) -> Result<Tensor> {
        let row = row.t()?.contiguous()?;
        let before = match self.recent.take() {
            Some(recent) => recent.narrow(1, 1, config.kernel - 1)?,
            None => row.zeros_like()?.repeat((1, config.kernel - 1))?,
        };
        let recent = Tensor::cat(&[&before, &row], 1)?;
        let sum = (&recent * &self.kernel)?.sum(1)?;
        self.recent = Some(recent);
        match &self.kernel_bias {
            Some(bias) => (sum + bias)?.silu(),
            None => sum.silu(),
        }
    }

    fn norm_of_groups(&self, config: &Mamba2Config, row: &Tensor) -> Result<Tensor> {
        let grouped = row.reshape((config.groups, config.inner() / config.groups))?;
        let variance = (grouped.sqr()?.mean_keepdim(1)? + config.epsilon)?;
        let normed = grouped.broadcast_div(&variance.sqrt()?)?;
        normed
            .reshape((1, config.inner()))?
            .broadcast_mul(&self.inner_norm)
    }
}

/// `ln(1 + exp(x))`, without overflow for large numbers.
fn softplus(numbers: &Tensor) -> Result<Tensor> {
    let small = (numbers.abs()?.neg()?.exp()? + 1.0)?.log()?;
    numbers.relu()? + small
}

pub(super) struct Mamba2 {
    config: Mamba2Config,
    embedding: Embedding,
    blocks: Vec<Block>,
    norm: RmsNorm,
    head: Linear,
}

impl LibraryModel for Mamba2 {
    type Config = Mamba2Config;

    fn describe(
        config: ConfigFields<'_>,
        _context: usize,
    ) -> std::result::Result<(Mamba2Config, Sizes), String> {
        let read = Mamba2Config {
            vocabulary: needed(config, &["vocab_size"])?,
            hidden: needed(config, &["hidden_size"])?,
            layers: needed(config, &["num_hidden_layers"])?,
            heads: config.count("num_heads", 128)?,
            head: config.count("head_dim", 64)?,
            groups: config.count("n_groups", 8)?,
            state: config.count("state_size", 128)?,
            kernel: config.count("conv_kernel", 4)?,
            bias: config.flag("use_bias", false)?,
            epsilon: config.positive("layer_norm_epsilon", 1e-5)?,
        };
        only(config, "use_conv_bias", true)?;
        let widths = [
            ("hidden_size", read.hidden),
            ("num_heads × head_dim", read.heads.saturating_mul(read.head)),
            (
                "n_groups × state_size",
                read.groups.saturating_mul(read.state),
            ),
            ("conv_kernel", read.kernel),
        ];
        if let Some((name, width)) = widths.iter().find(|(_, width)| *width > HIDDEN_MAX) {
            return Err(format!(
                "{name} is {width}, which is more than {HIDDEN_MAX}"
            ));
        }
        if read.layers > LAYERS_MAX {
            return Err(format!(
                "num_hidden_layers is {}, which is more than {LAYERS_MAX}",
                read.layers
            ));
        }
        if !read.heads.is_multiple_of(read.groups) {
            return Err(format!(
                "num_heads {} does not divide into n_groups {}",
                read.heads, read.groups
            ));
        }
        let limit = config
            .value("time_step_limit")
            .and_then(|limit| limit.as_array());
        let limits = |limit: &serde_json::Value| {
            limit
                .as_f64()
                .is_some_and(|limit| limit.is_finite() && limit != 0.0)
        };
        if limit.is_some_and(|limit| limit.iter().any(limits)) {
            return Err(
                "time_step_limit limits steps, which this engine does not compute for this family"
                    .to_owned(),
            );
        }
        let sizes = Sizes::without_cache(read.vocabulary);
        Ok((read, sizes))
    }

    fn load(config: &Mamba2Config, weights: VarBuilder<'_>) -> Result<Self> {
        let inner = weights.pp("backbone");
        let embedding = embedding(config.vocabulary, config.hidden, inner.pp("embeddings"))?;
        let is_tied = !weights.contains_tensor("lm_head.weight");
        let head = head(&embedding, is_tied, &weights)?;
        let blocks = (0..config.layers).map(|nth| Block::load(config, &inner.pp("layers").pp(nth)));
        Ok(Self {
            embedding,
            blocks: blocks.collect::<Result<_>>()?,
            norm: rms_norm(config.hidden, config.epsilon, inner.pp("norm_f"))?,
            head,
            config: config.clone(),
        })
    }

    fn forward(&mut self, tokens: &Tensor, _past: usize) -> Result<Tensor> {
        let rows = self.embedding.forward(tokens)?.squeeze(0)?;
        let mut last = None;
        for nth in 0..rows.dim(0)? {
            let mut row = rows.narrow(0, nth, 1)?;
            for block in &mut self.blocks {
                row = block.forward(&self.config, &row)?;
            }
            last = Some(row);
        }
        let last = last.ok_or_else(|| candle_core::Error::msg("no tokens to compute"))?;
        self.head.forward(&self.norm.forward(&last)?)
    }

    fn reset(&mut self) -> bool {
        for block in &mut self.blocks {
            block.recent = None;
            block.state = None;
        }
        true
    }
}
