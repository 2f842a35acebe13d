//! Owns the forward pass of a Llama: tokens in, the last layer's hidden states and logits out, and the cache of keys and
//! values between calls. Never chooses a token.
//!
//! candle-transformers has the same network, but gives out the logits of the last position alone; scores of a prompt and
//! contrastive search need more than that. A test holds the two equal.

use candle_core::{DType, Device, Result, Tensor};
use candle_nn::{
    Embedding, Linear, Module, RmsNorm, VarBuilder, embedding, linear_no_bias, rms_norm,
};
use candle_transformers::models::llama::{Config, Llama3RopeConfig, Llama3RopeType};
use candle_transformers::utils::{build_causal_mask, repeat_kv};
use std::f32::consts::TAU;

/// Keys and values of one layer, as `(1, heads, tokens, width)`.
type Pair = (Tensor, Tensor);

/// What was computed for the tokens so far. A clone costs nothing until it goes its own way.
#[derive(Debug, Clone)]
pub(crate) struct KvCache {
    /// The part that clones share and never copy, by layer; empty before [`KvCache::share`].
    shared: Vec<Pair>,
    own: Vec<Option<Pair>>,
    tokens: usize,
}

impl KvCache {
    fn new(layers: usize) -> Self {
        Self {
            shared: Vec::new(),
            own: vec![None; layers],
            tokens: 0,
        }
    }

    /// Tokens that are in it, which is the position of the next.
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// Makes what is in it the part that all clones share. Only what comes after is each clone's own.
    pub fn share(&mut self) {
        if self.shared.is_empty() && self.own.iter().all(Option::is_some) {
            self.shared = self.own.iter_mut().filter_map(Option::take).collect();
        }
    }

    /// Adds the keys and values of new tokens to a layer and gives all of it.
    fn extend(&mut self, layer: usize, (keys, values): Pair) -> Result<Pair> {
        let own = match &self.own[layer] {
            Some((old_keys, old_values)) => (
                Tensor::cat(&[old_keys, &keys], 2)?,
                Tensor::cat(&[old_values, &values], 2)?,
            ),
            None => (keys, values),
        };
        let all = match self.shared.get(layer) {
            Some((shared_keys, shared_values)) => (
                Tensor::cat(&[shared_keys, &own.0], 2)?,
                Tensor::cat(&[shared_values, &own.1], 2)?,
            ),
            None => own.clone(),
        };
        self.own[layer] = Some(own);
        Ok(all)
    }
}

/// Angles of the rotary embedding for every position of the context.
#[derive(Debug, Clone)]
struct Rotary {
    cos: Tensor,
    sin: Tensor,
}

impl Rotary {
    fn new(config: &Config, context_tokens: usize, dtype: DType, device: &Device) -> Result<Self> {
        let width = config.hidden_size / config.num_attention_heads;
        let frequencies: Vec<f32> = (0..width)
            .step_by(2)
            .map(|index| config.rope_theta.powf(index as f32 / width as f32).recip())
            .map(|frequency| match &config.rope_scaling {
                Some(scaling) if matches!(scaling.rope_type, Llama3RopeType::Llama3) => {
                    scaled(frequency, scaling)
                }
                _ => frequency,
            })
            .collect();
        let frequencies = Tensor::new(frequencies, device)?.reshape((1, width / 2))?;
        let positions = Tensor::arange(0, context_tokens as u32, device)?
            .to_dtype(DType::F32)?
            .reshape((context_tokens, 1))?;
        let angles = positions.matmul(&frequencies)?;
        Ok(Self {
            cos: angles.cos()?.to_dtype(dtype)?,
            sin: angles.sin()?.to_dtype(dtype)?,
        })
    }

    fn turn(&self, heads: &Tensor, position: usize) -> Result<Tensor> {
        let tokens = heads.dim(2)?;
        let cos = self.cos.narrow(0, position, tokens)?;
        let sin = self.sin.narrow(0, position, tokens)?;
        candle_nn::rotary_emb::rope(&heads.contiguous()?, &cos, &sin)
    }
}

/// Llama 3's stretch of the long wave lengths, for contexts longer than the model was first trained on.
fn scaled(frequency: f32, scaling: &Llama3RopeConfig) -> f32 {
    let first_context = scaling.original_max_position_embeddings as f32;
    let wave_length = TAU / frequency;
    let (longest, shortest) = (
        first_context / scaling.low_freq_factor,
        first_context / scaling.high_freq_factor,
    );
    if wave_length < shortest {
        frequency
    } else if wave_length > longest {
        frequency / scaling.factor
    } else {
        let smooth = (first_context / wave_length - scaling.low_freq_factor)
            / (scaling.high_freq_factor - scaling.low_freq_factor);
        (1.0 - smooth) * frequency / scaling.factor + smooth * frequency
    }
}

struct Attention {
    query: Linear,
    key: Linear,
    value: Linear,
    output: Linear,
    heads: usize,
    groups: usize,
}

impl Attention {
    fn load(weights: &VarBuilder<'_>, config: &Config) -> Result<Self> {
        let hidden = config.hidden_size;
        let grouped = hidden / config.num_attention_heads * config.num_key_value_heads;
        Ok(Self {
            query: linear_no_bias(hidden, hidden, weights.pp("q_proj"))?,
            key: linear_no_bias(hidden, grouped, weights.pp("k_proj"))?,
            value: linear_no_bias(hidden, grouped, weights.pp("v_proj"))?,
            output: linear_no_bias(hidden, hidden, weights.pp("o_proj"))?,
            heads: config.num_attention_heads,
            groups: config.num_key_value_heads,
        })
    }

    fn forward(
        &self,
        input: &Tensor,
        rotary: &Rotary,
        layer: usize,
        cache: &mut KvCache,
    ) -> Result<Tensor> {
        let (batch, tokens, hidden) = input.dims3()?;
        let width = hidden / self.heads;
        let by_head = |projected: Tensor, heads: usize| {
            projected
                .reshape((batch, tokens, heads, width))?
                .transpose(1, 2)
        };
        let query = rotary.turn(
            &by_head(self.query.forward(input)?, self.heads)?,
            cache.tokens,
        )?;
        let key = rotary.turn(
            &by_head(self.key.forward(input)?, self.groups)?,
            cache.tokens,
        )?;
        let value = by_head(self.value.forward(input)?, self.groups)?.contiguous()?;
        let (keys, values) = cache.extend(layer, (key, value))?;
        let repeats = self.heads / self.groups;
        let keys = repeat_kv(keys, repeats)?.to_dtype(DType::F32)?;
        let values = repeat_kv(values, repeats)?.to_dtype(DType::F32)?;
        let scores = query.to_dtype(DType::F32)?.matmul(&keys.t()?)?;
        let scores = (scores / (width as f64).sqrt())?;
        let scores = if tokens == 1 {
            scores
        } else {
            let mask = build_causal_mask(tokens, cache.tokens, input.device())?;
            let never = Tensor::new(f32::NEG_INFINITY, input.device())?;
            let mask = mask.broadcast_as(scores.shape())?;
            mask.where_cond(&never.broadcast_as(scores.shape())?, &scores)?
        };
        let mixed = candle_nn::ops::softmax_last_dim(&scores)?.matmul(&values.contiguous()?)?;
        let mixed = mixed.to_dtype(input.dtype())?.transpose(1, 2)?;
        self.output
            .forward(&mixed.reshape((batch, tokens, hidden))?)
    }
}

struct Block {
    norm_before_attention: RmsNorm,
    attention: Attention,
    norm_before_gate: RmsNorm,
    gate: Linear,
    up: Linear,
    down: Linear,
}

impl Block {
    fn load(weights: &VarBuilder<'_>, config: &Config) -> Result<Self> {
        let (hidden, wide, eps) = (
            config.hidden_size,
            config.intermediate_size,
            config.rms_norm_eps,
        );
        let mlp = weights.pp("mlp");
        Ok(Self {
            norm_before_attention: rms_norm(hidden, eps, weights.pp("input_layernorm"))?,
            attention: Attention::load(&weights.pp("self_attn"), config)?,
            norm_before_gate: rms_norm(hidden, eps, weights.pp("post_attention_layernorm"))?,
            gate: linear_no_bias(hidden, wide, mlp.pp("gate_proj"))?,
            up: linear_no_bias(hidden, wide, mlp.pp("up_proj"))?,
            down: linear_no_bias(wide, hidden, mlp.pp("down_proj"))?,
        })
    }

    fn forward(
        &self,
        input: &Tensor,
        rotary: &Rotary,
        layer: usize,
        cache: &mut KvCache,
    ) -> Result<Tensor> {
        let normed = self.norm_before_attention.forward(input)?;
        let input = (self.attention.forward(&normed, rotary, layer, cache)? + input)?;
        let normed = self.norm_before_gate.forward(&input)?;
        let gated = (self.gate.forward(&normed)?.silu()? * self.up.forward(&normed)?)?;
        self.down.forward(&gated)? + input
    }
}

/// The weights of a Llama on a device.
pub(crate) struct Llama {
    embedding: Embedding,
    blocks: Vec<Block>,
    norm: RmsNorm,
    head: Linear,
    rotary: Rotary,
    device: Device,
}

impl Llama {
    /// # Errors
    /// When a tensor is missing or the device refuses.
    pub fn load(weights: &VarBuilder<'_>, config: &Config, context_tokens: usize) -> Result<Self> {
        let (vocabulary, hidden) = (config.vocab_size, config.hidden_size);
        let embedding = embedding(vocabulary, hidden, weights.pp("model.embed_tokens"))?;
        let head = if config.tie_word_embeddings {
            Linear::new(embedding.embeddings().clone(), None)
        } else {
            linear_no_bias(hidden, vocabulary, weights.pp("lm_head"))?
        };
        let blocks = (0..config.num_hidden_layers)
            .map(|layer| Block::load(&weights.pp(format!("model.layers.{layer}")), config))
            .collect::<Result<_>>()?;
        Ok(Self {
            embedding,
            blocks,
            norm: rms_norm(hidden, config.rms_norm_eps, weights.pp("model.norm"))?,
            head,
            rotary: Rotary::new(config, context_tokens, weights.dtype(), weights.device())?,
            device: weights.device().clone(),
        })
    }

    pub fn empty_cache(&self) -> KvCache {
        KvCache::new(self.blocks.len())
    }

    /// The hidden states of the last layer for `tokens`, which follow those in the cache: one row a token.
    ///
    /// # Errors
    /// When the device refuses.
    pub fn forward(&self, tokens: &[u32], cache: &mut KvCache) -> Result<Tensor> {
        let input = Tensor::new(tokens, &self.device)?.unsqueeze(0)?;
        let mut hidden = self.embedding.forward(&input)?;
        for (layer, block) in self.blocks.iter().enumerate() {
            hidden = block.forward(&hidden, &self.rotary, layer, cache)?;
        }
        cache.tokens += tokens.len();
        self.norm.forward(&hidden)?.squeeze(0)
    }

    /// Logits after each of `count` rows of hidden states from `first`.
    ///
    /// # Errors
    /// When the device refuses.
    pub fn logits(&self, hidden: &Tensor, first: usize, count: usize) -> Result<Vec<Vec<f32>>> {
        let rows = hidden.narrow(0, first, count)?.contiguous()?;
        self.head.forward(&rows)?.to_dtype(DType::F32)?.to_vec2()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_nn::VarMap;
    use candle_transformers::models::llama as reference;

    fn config(rope_scaling: Option<Llama3RopeConfig>, tie_word_embeddings: bool) -> Config {
        Config {
            hidden_size: 32,
            intermediate_size: 48,
            vocab_size: 50,
            num_hidden_layers: 3,
            num_attention_heads: 4,
            num_key_value_heads: 2,
            use_flash_attn: false,
            rms_norm_eps: 1e-5,
            rope_theta: 10_000.0,
            bos_token_id: None,
            eos_token_id: None,
            rope_scaling,
            max_position_embeddings: 64,
            tie_word_embeddings,
        }
    }

    fn distance(a: &[f32], b: &[f32]) -> f32 {
        assert_eq!(a.len(), b.len());
        a.iter()
            .zip(b)
            .map(|(a, b)| (a - b).abs())
            .fold(0.0, f32::max)
    }

    #[test]
    fn the_logits_are_those_of_the_reference() {
        let llama3 = Llama3RopeConfig {
            factor: 8.0,
            low_freq_factor: 1.0,
            high_freq_factor: 4.0,
            original_max_position_embeddings: 16,
            rope_type: Llama3RopeType::Llama3,
        };
        for (scaling, tied) in [(None, true), (None, false), (Some(llama3), false)] {
            let config = config(scaling, tied);
            let (map, device) = (VarMap::new(), Device::Cpu);
            let weights = VarBuilder::from_varmap(&map, DType::F32, &device);
            let wanted = reference::Llama::load(weights.clone(), &config).expect("loads");
            let ours = Llama::load(&weights, &config, 64).expect("loads");
            let mut their_cache =
                reference::Cache::new(true, DType::F32, &config, &device).expect("a cache");
            let mut cache = ours.empty_cache();
            let mut position = 0;
            for tokens in [&[3u32, 7, 1, 9, 30][..], &[4], &[5, 49, 2], &[8]] {
                let input = Tensor::new(tokens, &device).unwrap().unsqueeze(0).unwrap();
                let theirs = wanted.forward(&input, position, &mut their_cache).unwrap();
                let theirs: Vec<f32> = theirs.squeeze(0).unwrap().to_vec1().unwrap();
                let hidden = ours.forward(tokens, &mut cache).unwrap();
                let logits = ours.logits(&hidden, tokens.len() - 1, 1).unwrap();
                assert!(distance(&logits[0], &theirs) < 1e-5);
                position += tokens.len();
                assert_eq!(cache.tokens(), position);
                // What is in the cache is shared from here on, and nothing changes.
                cache.share();
            }
        }
    }

    #[test]
    fn clones_of_a_cache_go_their_own_ways() {
        let (map, device) = (VarMap::new(), Device::Cpu);
        let config = config(None, true);
        let weights = VarBuilder::from_varmap(&map, DType::F32, &device);
        let llama = Llama::load(&weights, &config, 64).expect("loads");
        let last = |tokens: &[u32], cache: &mut KvCache| {
            let hidden = llama.forward(tokens, cache).unwrap();
            llama
                .logits(&hidden, tokens.len() - 1, 1)
                .unwrap()
                .remove(0)
        };
        let mut prompt = llama.empty_cache();
        last(&[1, 2, 3], &mut prompt);
        prompt.share();
        let (mut first, mut second) = (prompt.clone(), prompt);
        last(&[4], &mut first);
        last(&[5], &mut second);
        let mut alone = llama.empty_cache();
        assert!(distance(&last(&[6], &mut first), &last(&[1, 2, 3, 4, 6], &mut alone)) < 1e-5);
        let mut alone = llama.empty_cache();
        assert!(
            distance(
                &last(&[6], &mut second),
                &last(&[1, 2, 3, 5, 6], &mut alone)
            ) < 1e-5
        );
    }
}
