//! A recording as samples of the network's rate, read window by window. Its memory is bounded, however long the recording is.

use super::audio::AudioFile;
use super::mel::{HOP, SAMPLE_RATE, WINDOW_FRAMES, WINDOW_SAMPLES};
use super::resample::Converter;
use symphonia::core::io::MediaSource;

/// A recording at a position.
pub(super) struct Recording {
    file: AudioFile,
    converter: Option<Converter>,
    /// Samples from the position on.
    ahead: Vec<f32>,
    decoded: Vec<f32>,
    has_ended: bool,
    /// Frames before the position.
    position: u64,
    /// Samples so far.
    samples: u64,
}

impl Recording {
    /// Opens a recording and decodes its first samples.
    ///
    /// # Errors
    /// If it is not a recording, or has no samples.
    pub fn open(source: Box<dyn MediaSource>, name: Option<&str>) -> Result<Self, String> {
        let mut recording = Self {
            file: AudioFile::open(source, name)?,
            converter: None,
            ahead: Vec::new(),
            decoded: Vec::new(),
            has_ended: false,
            position: 0,
            samples: 0,
        };
        recording.fill(1)?;
        if recording.ahead.is_empty() {
            return Err("it has no samples".to_owned());
        }
        Ok(recording)
    }

    /// The samples of the window at the position, and its length in frames: zero at the end.
    ///
    /// # Errors
    /// If the recording cannot be decoded.
    pub fn window(&mut self) -> Result<(&[f32], usize), String> {
        self.fill(WINDOW_SAMPLES)?;
        let samples = &self.ahead[..self.ahead.len().min(WINDOW_SAMPLES)];
        let frames = (self.ahead.len() / HOP).min(WINDOW_FRAMES);
        Ok((samples, frames))
    }

    /// Moves the position by frames of the current window.
    pub fn advance(&mut self, frames: usize) {
        let samples = (frames * HOP).min(self.ahead.len());
        self.ahead.drain(..samples);
        self.position += frames as u64;
    }

    /// Frames before the position.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The length in seconds of what has been decoded: of the recording, when it has ended.
    pub fn seconds(&self) -> f64 {
        self.samples as f64 / SAMPLE_RATE as f64
    }

    /// Decodes until as many samples lie ahead, or the recording ends.
    fn fill(&mut self, wanted: usize) -> Result<(), String> {
        let before = self.ahead.len();
        while !self.has_ended && self.ahead.len() < wanted {
            let Some(rate) = self.file.next(&mut self.decoded)? else {
                self.has_ended = true;
                break;
            };
            if self.converter.as_ref().map(Converter::rate) != Some(rate)
                && let Some(mut before) = self.converter.replace(Converter::new(rate)?)
            {
                before.finish(&mut self.ahead)?;
            }
            if let Some(converter) = &mut self.converter {
                converter.push(&self.decoded, &mut self.ahead)?;
            }
        }
        if self.has_ended
            && let Some(mut converter) = self.converter.take()
        {
            converter.finish(&mut self.ahead)?;
        }
        self.samples += (self.ahead.len() - before) as u64;
        Ok(())
    }
}
