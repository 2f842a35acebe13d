//! The strategies by which the tokens of an answer are found: sampling, beam search and contrastive search.

mod beams;
mod contrastive;

pub(crate) use beams::{BeamSettings, Beams, EarlyStopping, Extension};
pub(crate) use contrastive::{ContrastiveSettings, Directions, choose};

/// How a request wants its tokens found.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) enum Strategy {
    /// Drawn from the distribution, or the likeliest where the temperature is 0.
    #[default]
    Sampling,
    Beams(BeamSettings),
    Contrastive(ContrastiveSettings),
}
