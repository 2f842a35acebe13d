//! Decoders of random weights.
