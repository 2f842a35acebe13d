//! The decoding strategies: sampling, beam search and contrastive search.

mod beams;
mod contrastive;

pub(crate) use beams::{BeamSettings, Beams, EarlyStopping, Extension};
pub(crate) use contrastive::{ContrastiveSettings, Directions, choose};

/// The decoding strategy of a request.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) enum Strategy {
    /// Samples from the distribution, or takes the likeliest token if the temperature is 0.
    #[default]
    Sampling,
    Beams(BeamSettings),
    Contrastive(ContrastiveSettings),
}
