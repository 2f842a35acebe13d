//! Whisper models: from a recording to its transcript.
//!
//! A recording is decoded ([`audio`], [`opus`]), converted to 16 kHz ([`resample`]) and read in windows of 30 seconds
//! ([`recording`]). A window becomes a spectrogram ([`mel`]), passes through the network ([`network`]), and its text is decoded with
//! timestamps ([`decode`], [`rules`]). The last complete segment decides where the next window begins ([`segments`]). Words get
//! times on request ([`alignment`], [`words`]). Requests take turns by windows ([`queue`]).

mod alignment;
mod attention;
mod audio;
mod decode;
mod form;
mod formats;
mod job;
mod languages;
mod loaded_model;
mod loading;
mod mel;
mod network;
mod opus;
mod queue;
mod recording;
mod recordings_folder;
mod resample;
mod rules;
mod segments;
mod service;
mod spec;
#[cfg(test)]
mod tests;
mod upload;
mod vocabulary;
mod words;

pub(crate) use form::FORM_BYTES_MAX;
pub(crate) use loading::{config_of, load};
pub(crate) use service::{PATHS, SpeechService};
pub(crate) use vocabulary::SpeechTask;
