//! A request in progress: its recording, and the window it has come to. Each step decodes one window.

use super::decode::{self, Prefix};
use super::loaded_model::SpeechModel;
use super::recording::Recording;
use super::segments::{self, Segment};
use super::vocabulary::SpeechTask;
use super::words;
use crate::api_error::ApiError;
use crate::error::one_line;
use tokio::sync::mpsc::UnboundedSender;

/// Above this temperature, a window's text does not guide the next window.
const GUIDING_TEMPERATURE_MAX: f32 = 0.5;

/// An event of a request in progress. Their number is bounded by the length of the recording.
#[derive(Debug)]
pub(super) enum SpeechEvent {
    Segment(Segment),
    Finished {
        language: &'static str,
        /// Length of the recording.
        seconds: f64,
    },
    Failed(ApiError),
}

/// The options of a transcription.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct JobOptions {
    pub task: SpeechTask,
    /// `None` detects the language from the first window.
    pub language: Option<&'static str>,
    /// Tokens of the client's prompt.
    pub prompt: Vec<u32>,
    pub temperature: f32,
    /// Finds the times of words.
    pub words: bool,
}

pub(super) struct Job {
    recording: Recording,
    options: JobOptions,
    /// Text before the current window: the end of the prompt and of the windows before.
    before: Vec<u32>,
    /// End of the last word so far, in seconds.
    last_word_end: f64,
    events: UnboundedSender<SpeechEvent>,
}

impl Job {
    pub fn new(
        recording: Recording,
        mut options: JobOptions,
        events: UnboundedSender<SpeechEvent>,
    ) -> Self {
        Self {
            recording,
            before: std::mem::take(&mut options.prompt),
            last_word_end: 0.0,
            options,
            events,
        }
    }

    /// Returns true while the client waits.
    pub fn is_wanted(&self) -> bool {
        !self.events.is_closed()
    }

    /// Decodes the next window and sends its segments. Returns true if more windows follow.
    pub fn step(&mut self, model: &SpeechModel) -> bool {
        match self.decode(model) {
            Ok(more) => more,
            Err(error) => {
                self.fail(error);
                false
            }
        }
    }

    /// Ends the request with an error.
    pub fn fail(&self, error: ApiError) {
        self.send(SpeechEvent::Failed(error));
    }

    fn decode(&mut self, model: &SpeechModel) -> Result<bool, ApiError> {
        let seek = self.recording.position();
        let (samples, frames) = self.recording.window().map_err(undecodable)?;
        if frames == 0 {
            self.send(SpeechEvent::Finished {
                language: self.options.language.unwrap_or("en"),
                seconds: self.recording.seconds(),
            });
            return Ok(false);
        }
        let mel = model.mel.spectrogram(samples);
        let Some(advance) = self.decode_window(model, &mel, seek, frames)? else {
            return Ok(false);
        };
        self.recording.advance(advance);
        Ok(true)
    }

    /// Returns the frames to advance, or `None` if the client has left.
    fn decode_window(
        &mut self,
        model: &SpeechModel,
        mel: &[f32],
        seek: u64,
        frames: usize,
    ) -> Result<Option<usize>, ApiError> {
        let is_wanted = || self.is_wanted();
        let (network, vocabulary) = (&model.network, &model.vocabulary);
        let Some(hidden) = network.encode(mel, is_wanted).map_err(device_failed)? else {
            return Ok(None);
        };
        let mut state = network.begin(&hidden).map_err(device_failed)?;
        let language = match self.options.language {
            Some(language) => language,
            None => {
                let found = decode::language(network, vocabulary, &mut state);
                found.map_err(device_failed)?.unwrap_or("en")
            }
        };
        let start = vocabulary.start_tokens(language, self.options.task);
        let prefix = Prefix {
            before: &self.before,
            start: &start,
        };
        let temperature = self.options.temperature;
        let model_parts = (network, vocabulary);
        let decoded = decode::window(model_parts, &mut state, &prefix, temperature, is_wanted);
        let Some(decoded) = decoded.map_err(device_failed)? else {
            return Ok(None);
        };
        self.options.language = Some(language);
        if decoded.is_silence() {
            return Ok(Some(frames));
        }
        let (mut segments, advance) = segments::split(vocabulary, &decoded, seek, frames);
        if self.options.words && self.is_wanted() {
            let spoken = (language, self.options.task);
            let time = (frames, &mut self.last_word_end);
            words::add(model, &mut state, spoken, &mut segments, time).map_err(device_failed)?;
        }
        for segment in segments {
            self.before.extend_from_slice(&segment.tokens);
            self.send(SpeechEvent::Segment(segment));
        }
        if decoded.temperature > GUIDING_TEMPERATURE_MAX {
            self.before.clear();
        }
        let excess = self.before.len().saturating_sub(network.context_tokens());
        self.before.drain(..excess);
        Ok(Some(advance))
    }

    fn send(&self, event: SpeechEvent) {
        // The client may have disconnected.
        let _ = self.events.send(event);
    }
}

fn device_failed(error: candle_core::Error) -> ApiError {
    ApiError::internal(format!("the device failed: {}", one_line(error)))
}

/// The error for a recording that cannot be decoded.
pub(super) fn undecodable(problem: String) -> ApiError {
    ApiError::field("file", format!("`file` cannot be transcribed: {problem}"))
}
