//! The input of the network: the logarithmic mel spectrogram of a window, as `WhisperFeatureExtractor` of `transformers` computes
//! it. candle-transformers has the same step with other padding and in F32, and needs the filters as a file.

use realfft::num_complex::Complex;
use realfft::{RealFftPlanner, RealToComplex};
use std::f64::consts::PI;
use std::sync::Arc;

/// Samples per second of the network's input.
pub(super) const SAMPLE_RATE: usize = 16_000;
/// Samples between two frames: 10 ms.
pub(super) const HOP: usize = 160;
/// Frames of a window.
pub(super) const WINDOW_FRAMES: usize = 3000;
/// Samples of a window: 30 s.
pub(super) const WINDOW_SAMPLES: usize = WINDOW_FRAMES * HOP;
/// Samples that one frame covers.
pub(super) const FFT_SAMPLES: usize = 400;
const FREQUENCIES: usize = FFT_SAMPLES / 2 + 1;
/// The least energy of a band.
const FLOOR: f64 = 1e-10;

/// Computes spectrograms with a number of mel bands.
pub(super) struct Mel {
    bands: Vec<Band>,
    hann: Vec<f64>,
    fft: Arc<dyn RealToComplex<f64>>,
}

/// A triangle filter: its first frequency, and its weights from there on.
struct Band {
    first: usize,
    weights: Vec<f64>,
}

impl Mel {
    pub fn new(bands: usize) -> Self {
        let turn = 2.0 * PI / FFT_SAMPLES as f64;
        Self {
            bands: filters(bands),
            hann: (0..FFT_SAMPLES)
                .map(|index| 0.5 - 0.5 * (turn * index as f64).cos())
                .collect(),
            fft: RealFftPlanner::new().plan_fft_forward(FFT_SAMPLES),
        }
    }

    /// Computes `[bands][frames]` of a window of at most [`WINDOW_SAMPLES`]; silence follows a shorter one.
    pub fn spectrogram(&self, samples: &[f32]) -> Vec<f32> {
        let samples = &samples[..samples.len().min(WINDOW_SAMPLES)];
        let mut mel = vec![0.0; self.bands.len() * WINDOW_FRAMES];
        let mut input = self.fft.make_input_vec();
        let mut output = self.fft.make_output_vec();
        let mut scratch = self.fft.make_scratch_vec();
        let mut energies = [0.0; FREQUENCIES];
        for frame in 0..WINDOW_FRAMES {
            let first = (frame * HOP) as i64 - (FFT_SAMPLES / 2) as i64;
            for (index, (number, hann)) in input.iter_mut().zip(&self.hann).enumerate() {
                let sample = samples.get(reflected(first + index as i64));
                *number = f64::from(sample.copied().unwrap_or(0.0)) * hann;
            }
            let lengths_match = self
                .fft
                .process_with_scratch(&mut input, &mut output, &mut scratch)
                .is_ok();
            debug_assert!(lengths_match, "the buffers are made for this transform");
            let squares = output.iter().map(Complex::norm_sqr);
            for (energy, square) in energies.iter_mut().zip(squares) {
                *energy = square;
            }
            for (band, row) in self.bands.iter().zip(mel.chunks_exact_mut(WINDOW_FRAMES)) {
                let part = &energies[band.first..];
                let energy: f64 = band.weights.iter().zip(part).map(|(a, b)| a * b).sum();
                row[frame] = energy.max(FLOOR).log10();
            }
        }
        let loudest = mel.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        mel.into_iter()
            .map(|number| ((number.max(loudest - 8.0) + 4.0) / 4.0) as f32)
            .collect()
    }
}

/// The sample at a place of a window that is reflected at both ends.
fn reflected(place: i64) -> usize {
    let last = WINDOW_SAMPLES as i64 - 1;
    let place = place.abs();
    let place = if place > last {
        2 * last - place
    } else {
        place
    };
    place.unsigned_abs() as usize
}

/// Triangles that are equally wide on Slaney's mel scale, each with an area of one, as `librosa.filters.mel` makes them: linear
/// below 1 kHz, and logarithmic above (M. Slaney, "Auditory Toolbox", Technical Report 1998-010).
fn filters(count: usize) -> Vec<Band> {
    let nyquist = SAMPLE_RATE as f64 / 2.0;
    let step = mel_of(nyquist) / (count + 1) as f64;
    let edges: Vec<f64> = (0..count + 2)
        .map(|index| hertz_of(step * index as f64))
        .collect();
    let hertz = |bin: usize| nyquist * bin as f64 / (FREQUENCIES - 1) as f64;
    let band = |edges: &[f64]| {
        let (low, peak, high) = (edges[0], edges[1], edges[2]);
        let weight = |bin: usize| {
            let rising = (hertz(bin) - low) / (peak - low);
            let falling = (high - hertz(bin)) / (high - peak);
            rising.min(falling).max(0.0) * 2.0 / (high - low)
        };
        let weights: Vec<f64> = (0..FREQUENCIES).map(weight).collect();
        let is_used = |weight: &f64| *weight > 0.0;
        let first = weights.iter().position(is_used).unwrap_or(0);
        let last = weights.iter().rposition(is_used).unwrap_or(0);
        Band {
            first,
            weights: weights[first..=last].to_vec(),
        }
    };
    edges.windows(3).map(band).collect()
}

/// The mel scale's linear part: mels per hertz, and its end.
const MELS_PER_HERTZ: f64 = 3.0 / 200.0;
const LINEAR_HERTZ: f64 = 1000.0;
const LINEAR_MELS: f64 = 15.0;

/// Mels per unit of the natural logarithm, above the linear part.
fn steps() -> f64 {
    27.0 / 6.4f64.ln()
}

fn mel_of(hertz: f64) -> f64 {
    if hertz < LINEAR_HERTZ {
        hertz * MELS_PER_HERTZ
    } else {
        LINEAR_MELS + (hertz / LINEAR_HERTZ).ln() * steps()
    }
}

fn hertz_of(mels: f64) -> f64 {
    if mels < LINEAR_MELS {
        mels / MELS_PER_HERTZ
    } else {
        LINEAR_HERTZ * ((mels - LINEAR_MELS) / steps()).exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_band_of_both_filter_banks_covers_a_frequency() {
        for count in [80, 128] {
            let bands = filters(count);
            assert_eq!(bands.len(), count);
            for (index, band) in bands.iter().enumerate() {
                assert!(band.weights.iter().all(|weight| *weight > 0.0), "{index}");
                assert!(band.first + band.weights.len() <= FREQUENCIES, "{index}");
            }
        }
    }

    #[test]
    fn the_mel_scale_inverts_itself() {
        for hertz in [0.0, 440.0, 999.9, 1000.0, 4321.0, 8000.0] {
            assert!((hertz_of(mel_of(hertz)) - hertz).abs() < 1e-9, "{hertz}");
        }
    }

    #[test]
    fn a_tone_is_loudest_in_the_band_of_its_frequency() {
        let tone: Vec<f32> = (0..SAMPLE_RATE)
            .map(|index| (index as f32 * 2.0 * std::f32::consts::PI * 2000.0 / 16_000.0).sin())
            .collect();
        let mel = Mel::new(80).spectrogram(&tone);
        let at = |band: usize| mel[band * WINDOW_FRAMES + 50];
        let loudest = (0..80).max_by(|one, other| at(*one).total_cmp(&at(*other)));
        let step = mel_of(8000.0) / 81.0;
        let band = loudest.expect("there are bands");
        let peak = hertz_of(step * (band + 1) as f64);
        assert!((peak - 2000.0).abs() < 100.0, "{peak}");
        assert!(at(70) < at(band) - 1.0, "other bands are softer");
    }

    #[test]
    fn silence_has_the_same_value_everywhere() {
        let mel = Mel::new(80).spectrogram(&[0.0; 100]);
        assert_eq!(mel.len(), 80 * WINDOW_FRAMES);
        assert!(mel.iter().all(|number| (*number + 1.5).abs() < 1e-6));
    }
}
