//! The speech model against the results of `transformers` on the same files (`vectors/speech.py`), and its recordings.

mod opus;
mod recordings;
mod vectors;
mod words;

use super::vocabulary::Vocabulary;
use crate::files::read_json;
use std::path::PathBuf;

/// The folder of the tiny model.
fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/vectors/speech/whisper")
}

/// The tokens of the tiny model.
pub(super) fn vocabulary() -> Vocabulary {
    let config = read_json(&folder().join("config.json")).expect("read");
    let config = config.expect("it is kept");
    let size = config["vocab_size"].as_u64().expect("a size") as usize;
    Vocabulary::read(&folder(), &config, size).expect("the model's tokens")
}

/// The samples of a test recording, as in `vectors/speech.py`: two triangle waves and noise, in integers.
fn samples(count: usize, seed: i64) -> Vec<i16> {
    let mut state = seed;
    let sample = |n: i64| {
        state = (state * 1_103_515_245 + 12_345) % (1 << 31);
        let wave = |period: i64, height: i64| {
            ((n % period) * 2 - period).abs() * height / period - height / 2
        };
        let loud = 1 + (n / 4000 + seed) % 5;
        let pitch = 40 + (n / 8000) * 7 % 50;
        let tone = (wave(pitch, 3000) + wave(3 * pitch + 11, 2000)) * loud;
        (tone.div_euclid(5) + (state >> 16) % 257 - 128) as i16
    };
    (0..count as i64).map(sample).collect()
}

/// The same samples as the network's input.
fn input(count: usize, seed: i64) -> Vec<f32> {
    let samples = samples(count, seed).into_iter();
    samples.map(|sample| f32::from(sample) / 32_768.0).collect()
}

/// A WAV file of 16-bit samples.
fn wav(samples: &[i16], rate: u32) -> Vec<u8> {
    let bytes: Vec<u8> = samples
        .iter()
        .flat_map(|sample| sample.to_le_bytes())
        .collect();
    recordings::riff(1, 1, rate, 16, &bytes)
}
