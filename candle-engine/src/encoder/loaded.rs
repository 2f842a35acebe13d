//! A loaded encoder: its network, and what its hidden states become.

use super::head::Head;
use super::network::{Network, Sequence};
use super::pooling::Pooling;
use crate::error::EngineError;
use crate::sleep::Sleeper;

/// What hidden states become.
pub(super) enum Output {
    Vectors(Pooling),
    Scores(Box<Head>),
}

/// An encoder that makes vectors of texts, or scores of pairs.
pub(crate) struct Encoder {
    pub(super) network: Network,
    pub(super) output: Output,
    pub batch_tokens: usize,
    pub weights_bytes: u64,
    /// Of them, those that lie in mapped files.
    pub mapped_bytes: u64,
    pub is_on_cpu: bool,
}

impl Encoder {
    /// What each text becomes, in order; `None` when the request was cancelled.
    ///
    /// # Errors
    /// When the device fails or has no memory.
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
    /// On the CPU there is nothing to give back between requests: weights are kept, and the rest is freed after each batch.
    fn sleep(&self) -> Result<(), EngineError> {
        if self.is_on_cpu {
            return Ok(());
        }
        Err(EngineError::load(
            "the weights of an encoder cannot leave the GPU while the engine lives; stop the engine in place of it",
        ))
    }

    fn wake(&self) -> Result<(), EngineError> {
        Ok(())
    }
}
