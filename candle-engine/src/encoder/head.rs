//! The head of a cross-encoder: computes one number per pair of texts from their hidden states.

use super::linear::{LayerNorm, Linear};
use super::network::{HiddenStates, Sequence};
use super::pooling::{Reduction, pool, rows_at};
use super::spec::{Activation, EncoderSpec, RankHead};
use super::tensors::Tensors;
use crate::error::EngineError;
use candle_core::{Device, Result, Tensor};

pub(crate) struct Head {
    first: Linear,
    activation: Activation,
    norm: Option<LayerNorm>,
    last: Linear,
    on_mean: bool,
    device: Device,
}

impl Head {
    /// `root` is the common prefix of the network's tensor names.
    ///
    /// # Errors
    /// If tensors are missing or have other shapes.
    pub fn load(
        kind: RankHead,
        spec: &EncoderSpec,
        tensors: &mut Tensors<'_>,
        root: &str,
    ) -> std::result::Result<Self, EngineError> {
        let pooler = format!("{root}pooler.dense");
        let (first, activation, last, has_bias, on_mean) = match kind {
            RankHead::Pooler => (pooler.as_str(), Activation::Tanh, "classifier", true, false),
            RankHead::Dense => (
                "classifier.dense",
                Activation::Tanh,
                "classifier.out_proj",
                true,
                false,
            ),
            RankHead::PreClassifier => (
                "pre_classifier",
                Activation::Relu,
                "classifier",
                true,
                false,
            ),
            RankHead::Normed {
                on_mean,
                activation,
                bias,
            } => ("head.dense", activation, "classifier", bias, on_mean),
        };
        let hidden = spec.hidden;
        let norm = match kind {
            RankHead::Normed { .. } => Some(LayerNorm::read(
                tensors,
                "head.norm",
                hidden,
                spec.epsilon,
                spec.norm_bias,
            )?),
            _ => None,
        };
        Ok(Self {
            first: Linear::read(tensors, first, hidden, hidden, has_bias)?,
            activation,
            norm,
            last: Linear::read(tensors, last, hidden, 1, true)?,
            on_mean,
            device: tensors.device().clone(),
        })
    }

    /// Computes the logit of each text.
    ///
    /// # Errors
    /// If the device fails.
    pub fn logits(&self, sequences: &[&Sequence], hidden: &HiddenStates) -> Result<Vec<f32>> {
        let width = hidden.rows.dim(1)?;
        let rows = if !self.on_mean {
            rows_at(hidden, hidden.starts.iter().copied())?
        } else {
            let all: Vec<f32> = hidden.rows.flatten_all()?.to_vec1()?;
            let of = |(sequence, start): (&&Sequence, &usize)| {
                let end = start + sequence.tokens.len();
                pool(Reduction::Mean, &all[start * width..end * width], width)
            };
            sequences.iter().zip(&hidden.starts).map(of).collect()
        };
        let count = rows.len();
        let rows = Tensor::from_vec(rows.concat(), (count, width), &self.device)?;
        let mut rows = self.first.apply_activated(&rows, self.activation)?;
        if let Some(norm) = &self.norm {
            rows = norm.apply(rows)?;
        }
        self.last.apply(&rows)?.flatten_all()?.to_vec1()
    }
}
