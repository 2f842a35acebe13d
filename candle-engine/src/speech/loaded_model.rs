//! A loaded Whisper model.

use super::alignment::AlignmentHeads;
use super::mel::Mel;
use super::network::Network;
use super::vocabulary::Vocabulary;
use crate::error::EngineError;
use crate::sleep::Sleeper;

pub(crate) struct SpeechModel {
    pub(super) network: Network,
    pub(super) vocabulary: Vocabulary,
    pub(super) mel: Mel,
    pub(super) alignment_heads: AlignmentHeads,
    pub weights_bytes: u64,
    /// The part of `weights_bytes` that is mapped from files.
    pub mapped_bytes: u64,
    pub is_on_cpu: bool,
    /// Maximum tokens of a window's text, with the tokens before it.
    pub context_tokens: usize,
    /// Requests that take turns; further ones wait.
    pub concurrency: usize,
}

impl Sleeper for SpeechModel {
    /// Frees nothing on the CPU: weights stay mapped, and everything else is freed after each window.
    fn sleep(&self) -> Result<(), EngineError> {
        if self.is_on_cpu {
            return Ok(());
        }
        Err(EngineError::load(
            "the weights of a speech model cannot be removed from the GPU while the engine runs; stop the engine instead",
        ))
    }

    fn wake(&self) -> Result<(), EngineError> {
        Ok(())
    }
}
