//! A loaded encoder: its network, and the conversion of its hidden states.

use super::head::Head;
use super::network::{Network, Sequence};
use super::pooling::Pooling;
use crate::error::EngineError;
use crate::sleep::Sleeper;

/// Conversion of hidden states into the result.
pub(super) enum Output {
    Vectors(Pooling),
    Scores(Box<Head>),
}

/// An encoder that computes vectors of texts, or scores of pairs.
pub(crate) struct Encoder {
    pub(super) network: Network,
    pub(super) output: Output,
    pub batch_tokens: usize,
    pub weights_bytes: u64,
    /// The part of `weights_bytes` that is mapped from files.
    pub mapped_bytes: u64,
    pub is_on_cpu: bool,
}

impl Encoder {
    /// Computes the result of each text, in order; `None` if the request was cancelled.
    ///
    /// # Errors
    /// If the device fails or runs out of memory.
    pub fn compute(
        &self,
        sequences: &[&Sequence],
        is_wanted: impl Fn() -> bool,
    ) -> candle_core::Result<Option<Vec<Vec<f32>>>> {
        let Some(hidden) = self.network.compute(sequences, is_wanted)? else {
            return Ok(None);
        };
        match &self.output {
            Output::Vectors(pooling) => pooling.vectors(sequences, &hidden).map(Some),
            Output::Scores(head) => {
                let logits = head.logits(sequences, &hidden)?;
                Ok(Some(logits.into_iter().map(|logit| vec![logit]).collect()))
            }
        }
    }
}

impl Sleeper for Encoder {
    /// Frees nothing on the CPU: weights stay mapped, and everything else is freed after each batch.
    fn sleep(&self) -> Result<(), EngineError> {
        if self.is_on_cpu {
            return Ok(());
        }
        Err(EngineError::load(
            "the weights of an encoder cannot be removed from the GPU while the engine runs; stop the engine instead",
        ))
    }

    fn wake(&self) -> Result<(), EngineError> {
        Ok(())
    }
}
