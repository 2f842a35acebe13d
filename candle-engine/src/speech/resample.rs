//! Converts mono samples of any rate to the network's rate, in pieces.

use super::mel::SAMPLE_RATE;
use rubato::audioadapter_buffers::direct::InterleavedSlice;
use rubato::{Fft, FixedSync, Resampler};

/// Rates that recordings may have.
pub(super) const RATES: std::ops::RangeInclusive<u32> = 2_000..=768_000;

/// The largest transform of a conversion, in samples: rates that share few factors with [`SAMPLE_RATE`] need large ones.
const TRANSFORM_MAX: usize = 50_000;

/// Frames of the input that are converted together.
const CHUNK: usize = 4096;

/// Converts one recording, or passes its samples on if they have the network's rate.
pub(super) struct Converter {
    rate: u32,
    fft: Option<Fft<f32>>,
    waiting: Vec<f32>,
    output: Vec<f32>,
    /// Samples at the beginning that are the filter's delay.
    delay_left: usize,
    taken: u64,
    given: u64,
}

impl Converter {
    /// # Errors
    /// If the rate is outside [`RATES`].
    pub fn new(rate: u32) -> Result<Self, String> {
        if !RATES.contains(&rate) {
            return Err(format!(
                "its sample rate is {rate} Hz; recordings may have {} to {} Hz",
                RATES.start(),
                RATES.end()
            ));
        }
        let transform = rate as usize / greatest_common_divisor(rate as usize, SAMPLE_RATE);
        if transform > TRANSFORM_MAX {
            return Err(format!(
                "its sample rate is {rate} Hz, whose conversion to {SAMPLE_RATE} Hz takes {transform} samples at a time; at most {TRANSFORM_MAX} are allowed: convert it to 48000 Hz"
            ));
        }
        let mut converter = Self {
            rate,
            fft: None,
            waiting: Vec::new(),
            output: Vec::new(),
            delay_left: 0,
            taken: 0,
            given: 0,
        };
        if rate as usize != SAMPLE_RATE {
            let fft = Fft::new(rate as usize, SAMPLE_RATE, CHUNK, 1, FixedSync::Input);
            let fft = fft.map_err(|error| error.to_string())?;
            converter.output = vec![0.0; fft.output_frames_max()];
            // The filter's middle is a sample of the input: half a sample before the middle that `output_delay` assumes, if the
            // size is odd.
            let (input, output) = (fft.fft_size_in(), fft.fft_size_out());
            converter.delay_left = (input / 2 * output + input / 2) / input;
            converter.fft = Some(fft);
        }
        Ok(converter)
    }

    pub fn rate(&self) -> u32 {
        self.rate
    }

    /// Converts samples and appends as many as are ready.
    ///
    /// # Errors
    /// If the conversion fails.
    pub fn push(&mut self, samples: &[f32], converted: &mut Vec<f32>) -> Result<(), String> {
        self.taken += samples.len() as u64;
        if self.fft.is_none() {
            self.given += samples.len() as u64;
            converted.extend_from_slice(samples);
            return Ok(());
        }
        self.waiting.extend_from_slice(samples);
        let mut first = 0;
        while self.waiting.len() - first >= CHUNK {
            self.convert(first, converted)?;
            first += CHUNK;
        }
        self.waiting.drain(..first);
        Ok(())
    }

    /// Appends the rest, when the recording has ended.
    ///
    /// # Errors
    /// If the conversion fails.
    pub fn finish(&mut self, converted: &mut Vec<f32>) -> Result<(), String> {
        let whole = (self.taken * SAMPLE_RATE as u64).div_ceil(u64::from(self.rate));
        while self.given < whole {
            self.waiting.resize(CHUNK, 0.0);
            let before = converted.len();
            let given = self.given;
            self.convert(0, converted)?;
            self.waiting.clear();
            if self.given > whole {
                converted.truncate(before + (whole - given) as usize);
                self.given = whole;
            }
        }
        Ok(())
    }

    /// Converts one chunk of the waiting samples.
    fn convert(&mut self, first: usize, converted: &mut Vec<f32>) -> Result<(), String> {
        let Some(fft) = &mut self.fft else {
            return Ok(());
        };
        let room = self.output.len();
        let input = InterleavedSlice::new(&self.waiting[first..first + CHUNK], 1, CHUNK);
        let input = input.map_err(|error| error.to_string())?;
        let output = InterleavedSlice::new_mut(&mut self.output, 1, room);
        let mut output = output.map_err(|error| error.to_string())?;
        let (_, made) = fft
            .process_into_buffer(&input, &mut output, None)
            .map_err(|error| error.to_string())?;
        let passed_over = self.delay_left.min(made);
        self.delay_left -= passed_over;
        converted.extend_from_slice(&self.output[passed_over..made]);
        self.given += (made - passed_over) as u64;
        Ok(())
    }
}

fn greatest_common_divisor(one: usize, other: usize) -> usize {
    if other == 0 {
        one
    } else {
        greatest_common_divisor(other, one % other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::f64::consts::PI;

    fn converted(rate: u32, samples: &[f32], piece: usize) -> Vec<f32> {
        let mut converter = Converter::new(rate).expect("a rate");
        let mut converted = Vec::new();
        for part in samples.chunks(piece) {
            converter.push(part, &mut converted).expect("converts");
        }
        converter.finish(&mut converted).expect("ends");
        converted
    }

    #[test]
    fn a_rate_whose_conversion_needs_a_large_transform_is_refused_before_it_is_made() {
        for rate in [44_101, 48_000, 96_000, 192_000, 768_000] {
            assert!(Converter::new(rate).is_ok(), "{rate}");
        }
        for rate in [96_001, 191_999, 767_999] {
            let error = Converter::new(rate).err().expect("refused");
            assert!(error.contains("48000 Hz"), "{error}");
        }
    }

    fn sine(rate: u32, hertz: f64, seconds: f64) -> Vec<f32> {
        let count = (f64::from(rate) * seconds) as usize;
        let angle = |index: usize| 2.0 * PI * hertz * index as f64 / f64::from(rate);
        (0..count).map(|index| angle(index).sin() as f32).collect()
    }

    /// The places where a signal rises through zero, between samples.
    fn rises(samples: &[f32]) -> Vec<f64> {
        let pairs = samples.windows(2).enumerate();
        let rising = pairs.filter(|(_, pair)| pair[0] < 0.0 && pair[1] >= 0.0);
        let place = |(index, pair): (usize, &[f32])| {
            index as f64 + f64::from(-pair[0] / (pair[1] - pair[0]))
        };
        rising.map(place).collect()
    }

    #[test]
    fn a_sine_keeps_its_frequency_place_height_and_length_at_every_rate() {
        for rate in [
            8_000, 11_025, 16_000, 22_050, 44_100, 44_101, 48_000, 96_000, 192_000,
        ] {
            let made = converted(rate, &sine(rate, 440.0, 0.7), 1000);
            let expected = sine(16_000, 440.0, 0.7);
            let longer = made.len().abs_diff(expected.len());
            assert!(longer <= 1, "{rate}: {}", made.len());
            // The filter's edges are left out. The first sample is far from a rise, which a rounded sample may pass: 55 periods
            // are 2,000 samples.
            let (ours, theirs) = (&made[2018..9018], &expected[2018..9018]);
            let (ours_rise, theirs_rise) = (rises(ours), rises(theirs));
            assert_eq!(ours_rise.len(), theirs_rise.len(), "{rate}");
            let pairs = ours_rise.iter().zip(&theirs_rise);
            for (ours, theirs) in pairs {
                assert!((ours - theirs).abs() < 0.51, "{rate}: {ours} {theirs}");
            }
            let first_and_last = |rises: &[f64]| rises[rises.len() - 1] - rises[0];
            let periods = (ours_rise.len() - 1) as f64;
            let hertz = 16_000.0 * periods / first_and_last(&ours_rise);
            assert!((hertz - 440.0).abs() < 0.1, "{rate}: {hertz}");
            let highest = ours.iter().fold(0.0f32, |most, sample| most.max(*sample));
            assert!((highest - 1.0).abs() < 5e-3, "{rate}: {highest}");
        }
    }

    #[test]
    fn a_tone_above_half_the_rate_is_removed() {
        let made = converted(48_000, &sine(48_000, 12_000.0, 0.5), 4096);
        let middle = &made[1000..7000];
        assert!(middle.iter().all(|sample| sample.abs() < 1e-2));
    }

    #[test]
    fn pieces_of_any_size_give_the_same_samples() {
        let samples = sine(44_100, 1000.0, 0.3);
        let all = converted(44_100, &samples, samples.len());
        for piece in [1, 7, 4095, 4096, 5000] {
            assert_eq!(converted(44_100, &samples, piece), all, "{piece}");
        }
    }

    #[test]
    fn an_absurd_rate_is_refused_with_the_allowed_ones() {
        for rate in [0, 1, 1_999, 768_001, u32::MAX] {
            let problem = Converter::new(rate).err().expect("refused");
            assert!(problem.contains("2000 to 768000 Hz"), "{problem}");
        }
    }
}
