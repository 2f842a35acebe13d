//! Recordings in Opus against the samples that libopus decodes from the same files (`vectors/opus.py`), and damaged ones.

use super::super::audio::AudioFile;
use candle_core::{Device, safetensors};
use serde_json::Value;
use std::io::Cursor;
use std::path::PathBuf;

/// Samples between two of the reference.
const STRIDE: usize = 11;
/// The longest frame, in samples.
const FRAME_MAX: usize = 2880;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/vectors/opus")
}

fn kept(name: &str) -> Vec<u8> {
    std::fs::read(folder().join(name)).expect("it is kept")
}

/// The files with the number of their samples and their modes.
fn files() -> Vec<(String, usize, Value)> {
    let facts = String::from_utf8(kept("expected.json")).expect("a text");
    let facts: Value = serde_json::from_str(&facts).expect("it is JSON");
    let facts = facts.as_object().expect("files").iter();
    let facts = facts.map(|(name, fact)| {
        let samples = fact["samples"].as_u64().expect("a number") as usize;
        (name.clone(), samples, fact["modes"].clone())
    });
    facts.collect()
}

/// All samples at 48 kHz, the mean of the channels.
fn decoded(file: Vec<u8>) -> Result<Vec<f32>, String> {
    let mut file = AudioFile::open(Box::new(Cursor::new(file)), None)?;
    let (mut all, mut packet) = (Vec::new(), Vec::new());
    while let Some(rate) = file.next(&mut packet)? {
        assert_eq!(rate, 48_000);
        all.extend_from_slice(&packet);
    }
    Ok(all)
}

/// The loudest sample of the difference.
fn difference(ours: &[f32], theirs: &[f32]) -> f32 {
    let pairs = ours.iter().zip(theirs);
    pairs.fold(0.0, |most, (ours, theirs)| (ours - theirs).abs().max(most))
}

/// Writes other bytes at a place of the header of Opus, which WebM has without a checksum.
fn with_header(place: usize, bytes: &[u8]) -> Vec<u8> {
    let mut file = kept("stream.webm");
    let head = file.windows(8).position(|part| part == b"OpusHead");
    let first = head.expect("a header") + place;
    file[first..first + bytes.len()].copy_from_slice(bytes);
    file
}

#[test]
fn every_mode_frame_and_container_decodes_as_by_libopus() {
    let file = folder().join("expected.safetensors");
    let expected = safetensors::load(file, &Device::Cpu).expect("it is kept");
    let mut modes = Vec::new();
    for (name, count, found) in files() {
        let samples = decoded(kept(&name)).expect("decodes");
        // Ogg has the length of the recording. The other containers keep the silence of the last frame.
        let longer = samples.len() - count;
        let most = if name.ends_with(".ogg") { 0 } else { FRAME_MAX };
        assert!(longer <= most, "{name}: {} of {count}", samples.len());
        let ours: Vec<f32> = samples[..count].iter().step_by(STRIDE).copied().collect();
        let theirs: Vec<f32> = expected[&name].to_vec1().expect("numbers");
        assert_eq!(ours.len(), theirs.len(), "{name}");
        let loudest = theirs.iter().fold(0.0f32, |most, x| most.max(x.abs()));
        assert!(loudest > 0.1, "{name}: {loudest}");
        let difference = difference(&ours, &theirs);
        assert!(difference < 1e-4, "{name}: differs by {difference}");
        modes.extend(found.as_array().expect("modes").iter().cloned());
    }
    for mode in ["silk", "hybrid", "celt"] {
        assert!(modes.contains(&Value::from(mode)), "{mode}");
    }
}

#[test]
fn a_stream_of_a_browser_that_ends_anywhere_is_read_as_far_as_it_goes() {
    for name in ["stream.webm", "hybrid-10.ogg"] {
        let file = kept(name);
        let all = decoded(file.clone()).expect("decodes");
        let mut lengths = Vec::new();
        for length in (0..file.len()).step_by(23) {
            let Ok(samples) = decoded(file[..length].to_vec()) else {
                continue;
            };
            // Without its last page, Ogg does not say where the recording ends.
            let shared = samples.len().min(all.len());
            assert_eq!(samples[..shared], all[..shared], "{name}: {length} bytes");
            lengths.push(samples.len());
        }
        assert!(lengths.is_sorted(), "{name}: {lengths:?}");
        assert!(lengths.last() > Some(&(all.len() * 3 / 4)), "{name}");
    }
}

#[test]
fn the_gain_of_the_header_applies() {
    let plain = decoded(kept("stream.webm")).expect("decodes");
    // 6 dB more.
    let louder = decoded(with_header(16, &1536i16.to_le_bytes())).expect("decodes");
    let doubled: Vec<f32> = plain.iter().map(|sample| sample * 1.995_262_3).collect();
    assert!(difference(&louder, &doubled) < 1e-5);
    let loudest = decoded(with_header(16, &i16::MAX.to_le_bytes())).expect("decodes");
    assert!(loudest.iter().all(|sample| sample.abs() <= 8.0));
}

#[test]
fn the_delay_of_the_encoder_is_left_out() {
    let all = decoded(kept("stream.webm")).expect("decodes");
    // Longer than the first packet.
    let late = decoded(with_header(10, &3000u16.to_le_bytes())).expect("decodes");
    assert_eq!(late, all[3000..]);
    let none = decoded(with_header(10, &u16::MAX.to_le_bytes())).expect("decodes");
    assert!(none.is_empty());
}

#[test]
fn channels_that_cannot_be_decoded_are_named() {
    let problem = decoded(with_header(9, &[3])).expect_err("refused");
    assert!(problem.contains("3 channels of Opus"), "{problem}");
    let problem = decoded(with_header(18, &[2])).expect_err("refused");
    assert!(problem.contains("mapping family 2"), "{problem}");
}

#[test]
fn damaged_files_end_with_samples_or_an_error() {
    let mut state = 7u64;
    let mut random = |below: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) as usize % below.max(1)
    };
    let (mut read, mut refused) = (0, 0);
    for (name, ..) in files() {
        let file = kept(&name);
        for _ in 0..60 {
            let mut damaged = file.clone();
            for _ in 0..=random(6) {
                let place = random(damaged.len());
                match random(4) {
                    0 => damaged.truncate(place + 1),
                    1 => {
                        let end = damaged.len().min(place + random(200));
                        drop(damaged.drain(place..end));
                    }
                    2 => {
                        let from = random(file.len());
                        let part = &file[from..file.len().min(from + 200)];
                        drop(damaged.splice(place..place, part.iter().copied()));
                    }
                    _ => damaged[place] = random(256) as u8,
                }
                if damaged.is_empty() {
                    damaged.push(0);
                }
            }
            match decoded(damaged) {
                Ok(samples) => {
                    read += 1;
                    assert!(samples.iter().all(|sample| sample.abs() <= 8.0), "{name}");
                }
                Err(problem) => {
                    refused += 1;
                    assert!(!problem.is_empty());
                }
            }
        }
    }
    assert!(read > 100 && refused > 100, "{read} {refused}");
}
