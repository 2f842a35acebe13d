//! Decoding of recordings in several formats, and of files that are none.

use super::super::recording::Recording;
use super::{input, samples, wav};
use std::io::Cursor;

/// A WAV file. `kind` is 1 for integers, 3 for floating-point numbers, 7 for µ-law.
pub(super) fn riff(kind: u16, channels: u16, rate: u32, bits: u16, data: &[u8]) -> Vec<u8> {
    let frame = channels * bits.div_ceil(8);
    let mut file = b"RIFF".to_vec();
    file.extend((36 + data.len() as u32).to_le_bytes());
    file.extend(b"WAVEfmt ");
    file.extend(16u32.to_le_bytes());
    file.extend(kind.to_le_bytes());
    file.extend(channels.to_le_bytes());
    file.extend(rate.to_le_bytes());
    file.extend((rate.saturating_mul(u32::from(frame))).to_le_bytes());
    file.extend(frame.to_le_bytes());
    file.extend(bits.to_le_bytes());
    file.extend(b"data");
    file.extend((data.len() as u32).to_le_bytes());
    file.extend(data);
    file
}

fn open(file: Vec<u8>) -> Result<Recording, String> {
    Recording::open(Box::new(Cursor::new(file)), None)
}

/// All samples of a recording that is shorter than a window.
fn decoded(file: Vec<u8>) -> Vec<f32> {
    let mut recording = open(file).expect("a recording");
    let (samples, frames) = recording.window().expect("decodes");
    assert_eq!(frames, samples.len() / 160);
    samples.to_vec()
}

fn problem(file: Vec<u8>) -> String {
    let opened = open(file).and_then(|mut recording| {
        recording.window()?;
        Ok(())
    });
    opened.expect_err("it is refused")
}

fn bytes<const N: usize>(samples: &[i16], form: impl Fn(i16) -> [u8; N]) -> Vec<u8> {
    samples.iter().flat_map(|sample| form(*sample)).collect()
}

#[test]
fn every_form_of_wav_samples_is_decoded() {
    let samples = samples(4000, 3);
    let exact = input(4000, 3);
    let float = |sample: i16| f32::from(sample) / 32_768.0;
    let wide = |sample: i16| (i32::from(sample) << 16).to_le_bytes();
    for (name, file, most) in [
        ("16 bits", wav(&samples, 16_000), 0.0),
        (
            "8 bits",
            riff(
                1,
                1,
                16_000,
                8,
                &bytes(&samples, |sample| [((sample >> 8) + 128) as u8]),
            ),
            0.008,
        ),
        (
            "24 bits",
            riff(
                1,
                1,
                16_000,
                24,
                &bytes(&samples, |sample| {
                    let [_, b, c, d] = wide(sample);
                    [b, c, d]
                }),
            ),
            0.0,
        ),
        (
            "32 bits",
            riff(1, 1, 16_000, 32, &bytes(&samples, wide)),
            0.0,
        ),
        (
            "floats",
            riff(
                3,
                1,
                16_000,
                32,
                &bytes(&samples, |sample| float(sample).to_le_bytes()),
            ),
            0.0,
        ),
        (
            "doubles",
            riff(
                3,
                1,
                16_000,
                64,
                &bytes(&samples, |sample| f64::from(float(sample)).to_le_bytes()),
            ),
            0.0,
        ),
    ] {
        let decoded = decoded(file);
        assert_eq!(decoded.len(), exact.len(), "{name}");
        for (ours, theirs) in decoded.iter().zip(&exact) {
            assert!(
                (ours - theirs).abs() <= most + 1e-6,
                "{name}: {ours} {theirs}"
            );
        }
    }
}

#[test]
fn channels_are_mixed_and_other_rates_converted() {
    let (left, right) = (samples(4000, 3), samples(4000, 4));
    let both: Vec<i16> = left
        .iter()
        .zip(&right)
        .flat_map(|(l, r)| [*l, *r])
        .collect();
    let data = bytes(&both, i16::to_le_bytes);
    let mixed = decoded(riff(1, 2, 16_000, 16, &data));
    assert_eq!(mixed.len(), 4000);
    for (index, mixed) in mixed.iter().enumerate() {
        let mean = (f32::from(left[index]) + f32::from(right[index])) / 65_536.0;
        assert!((mixed - mean).abs() < 1e-6);
    }
    let converted = decoded(riff(1, 2, 44_100, 16, &data));
    assert_eq!(converted.len(), 1452);
}

#[test]
fn a_recording_is_read_in_windows_with_bounded_memory() {
    let second = bytes(&samples(16_000, 3), i16::to_le_bytes);
    let mut recording = open(riff(1, 1, 16_000, 16, &second.repeat(75))).expect("a recording");
    let mut frames = Vec::new();
    loop {
        let (samples, count) = recording.window().expect("decodes");
        assert!(samples.len() <= 480_000);
        if count == 0 {
            break;
        }
        frames.push(count);
        recording.advance(count);
    }
    assert_eq!(frames, [3000, 3000, 1500]);
    assert!((recording.seconds() - 75.0).abs() < 1e-9);
}

#[test]
fn a_wav_that_ends_early_or_has_a_wrong_length_is_read_as_far_as_it_goes() {
    let whole = wav(&samples(4000, 3), 16_000);
    let cut = decoded(whole[..44 + 2000].to_vec());
    assert!((900..=1000).contains(&cut.len()), "{}", cut.len());
    let mut endless = whole.clone();
    // A stream's length, which was not known when its head was written.
    endless[4..8].fill(0xff);
    endless[40..44].fill(0xff);
    assert_eq!(decoded(endless).len(), 4000);
}

#[test]
fn what_is_no_recording_is_refused_with_the_reason() {
    let noise: Vec<u8> = (0..5000u32)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect();
    let text = b"What is the capital of Japan?".repeat(50);
    for file in [noise, text, b"RIFF".to_vec(), vec![0; 100]] {
        let problem = problem(file);
        assert!(problem.contains("known are wav, mp3"), "{problem}");
    }
    assert!(problem(wav(&[], 16_000)).contains("no samples"));
    let data = bytes(&samples(400, 3), i16::to_le_bytes);
    let problem = problem(riff(1, 1, 1, 16, &data));
    assert!(problem.contains("sample rate is 1 Hz"), "{problem}");
}

/// A file of a tone of 441 Hz, made by `vectors/recordings.py`.
fn kept(name: &str) -> Vec<u8> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/vectors/recordings");
    std::fs::read(std::path::Path::new(folder).join(name)).expect("it is kept")
}

#[test]
fn every_compressed_format_decodes_to_the_same_tone() {
    for name in [
        "tone.mp3",
        "tone.flac",
        "tone.ogg",
        "tone.m4a",
        "lossless.m4a",
        "tone.webm",
        "opus.webm",
        "tone.aiff",
        "adpcm.wav",
        "mulaw.wav",
        "video.mp4",
    ] {
        let samples = decoded(kept(name));
        // Encoders pad the ends.
        assert!(
            (12_000..15_000).contains(&samples.len()),
            "{name}: {}",
            samples.len()
        );
        let middle = &samples[3200..9600];
        let rises = middle
            .windows(2)
            .filter(|pair| pair[0] < 0.0 && pair[1] >= 0.0);
        let rises = rises.count();
        assert!(
            (174..=178).contains(&rises),
            "{name}: {rises} periods in 400 ms"
        );
        let loudest = middle
            .iter()
            .fold(0.0f32, |most, sample| most.max(sample.abs()));
        assert!((0.45..0.58).contains(&loudest), "{name}: {loudest}");
    }
}

#[test]
fn a_file_with_a_length_in_its_head_that_is_too_large_is_read_as_far_as_it_goes() {
    // FLAC's head has 8 KiB of padding.
    for (name, tenths) in [("tone.mp3", 6), ("tone.flac", 9)] {
        let whole = kept(name);
        let samples = decoded(whole[..whole.len() * tenths / 10].to_vec());
        assert!(
            (500..12_500).contains(&samples.len()),
            "{name}: {}",
            samples.len()
        );
    }
}

#[test]
fn a_video_without_sound_and_an_unknown_codec_are_refused_with_the_reason() {
    let problem_of = |name| problem(kept(name));
    assert!(
        problem_of("silent.mp4").contains("no audio track"),
        "{}",
        problem_of("silent.mp4")
    );
    // A codec that nothing knows.
    let mut unknown = kept("opus.webm");
    let name = unknown.windows(6).position(|part| part == b"A_OPUS");
    unknown[name.expect("a name") + 5] = b'X';
    let problem = problem(unknown);
    assert!(problem.contains("no audio track"), "{problem}");
}

#[test]
fn samples_that_are_not_numbers_become_silence() {
    let data: Vec<u8> = [0.5, f32::NAN, f32::INFINITY, -0.5]
        .iter()
        .flat_map(|x| x.to_le_bytes())
        .collect();
    let decoded = decoded(riff(3, 1, 16_000, 32, &data));
    assert_eq!(decoded, [0.5, 0.0, 0.0, -0.5]);
}
