//! The spectrogram, hidden states, logits, tokens and transcripts of the tiny model.

use super::super::decode::{self, Prefix};
use super::super::job::{Job, JobOptions, SpeechEvent};
use super::super::loaded_model::SpeechModel;
use super::super::loading::load;
use super::super::mel::Mel;
use super::super::recording::Recording;
use super::super::vocabulary::SpeechTask;
use super::{folder, input, samples, wav};
use crate::options::{EngineOptions, Listen, NumberTypes, ProductType};
use crate::progress::Progress;
use candle_core::{Device, Tensor};
use serde_json::Value;
use std::io::Cursor;
use tokio::sync::mpsc::unbounded_channel;

const RATE: usize = 16_000;

pub(super) fn model() -> SpeechModel {
    let options = EngineOptions {
        numbers: NumberTypes {
            products: ProductType::F32,
            ..NumberTypes::default()
        },
        ..EngineOptions::new(folder(), "whisper", Listen::Unix("socket".into()))
    };
    let config = super::super::loading::config_of(&options).expect("read");
    let config = config.expect("a Whisper model");
    load(&options, &config, &Progress::default()).expect("loads")
}

fn expected() -> Value {
    let text = std::fs::read_to_string(folder().join("expected.json")).expect("it is kept");
    serde_json::from_str(&text).expect("it is JSON")
}

/// Asserts that every `stride`-th number of ours is close to the expected ones.
fn assert_close(name: &str, ours: &[f32], stride: usize, most: f32) {
    let file = folder().join("expected.safetensors");
    let expected = candle_core::safetensors::load(file, &Device::Cpu).expect("it is kept");
    let theirs: Vec<f32> = expected[name].to_vec1().expect("numbers");
    let ours: Vec<f32> = ours.iter().step_by(stride).copied().collect();
    assert_eq!(ours.len(), theirs.len(), "{name}");
    let differences = ours
        .iter()
        .zip(&theirs)
        .map(|(ours, theirs)| (ours - theirs).abs());
    let largest = differences.fold(0.0, f32::max);
    assert!(largest < most, "{name}: differs by {largest}");
}

pub(super) fn hidden(model: &SpeechModel, samples: &[f32]) -> Tensor {
    let mel = model.mel.spectrogram(samples);
    let hidden = model.network.encode(&mel, || true).expect("computes");
    hidden.expect("it is wanted")
}

pub(super) fn task(case: &Value) -> SpeechTask {
    match case["task"].as_str() {
        Some("translate") => SpeechTask::Translate,
        _ => SpeechTask::Transcribe,
    }
}

pub(super) fn tokens(value: &Value) -> Vec<u32> {
    let list = value.as_array().expect("a list").iter();
    list.map(|token| token.as_u64().expect("a token") as u32)
        .collect()
}

fn assert_near(ours: f64, theirs: &Value) {
    let theirs = theirs.as_f64().expect("a number");
    assert!((ours - theirs).abs() < 1e-3, "{ours} {theirs}");
}

#[test]
fn the_spectrogram_equals_that_of_transformers_with_80_and_128_bands() {
    let samples = input(5 * RATE, 1);
    assert_close("mel", &Mel::new(80).spectrogram(&samples), 97, 1e-4);
    assert_close("mel128", &Mel::new(128).spectrogram(&samples), 131, 1e-4);
}

#[test]
fn hidden_states_and_logits_equal_those_of_transformers() {
    let model = model();
    let hidden = hidden(&model, &input(5 * RATE, 1));
    let numbers: Vec<f32> = hidden
        .flatten_all()
        .and_then(|all| all.to_vec1())
        .expect("numbers");
    assert_close("hidden", &numbers, 13, 1e-4);
    let tokens = tokens(&expected()["tokens"]);
    let places: Vec<u32> = (0..tokens.len() as u32).collect();
    let mut state = model.network.begin(&hidden).expect("begins");
    let logits = model.network.decode(&mut state, &tokens, &places);
    assert_close("logits", &logits.expect("computes").concat(), 17, 1e-4);
    // Token by token, with the cached text.
    state.clear();
    let logits = tokens.iter().map(|token| {
        let mut rows = model
            .network
            .decode(&mut state, &[*token], &[0])
            .expect("computes");
        rows.remove(0)
    });
    let logits: Vec<f32> = logits.collect::<Vec<_>>().concat();
    assert_close("logits", &logits, 17, 1e-4);
}

#[test]
fn the_tokens_of_a_window_equal_those_of_transformers() {
    let model = model();
    let all = expected();
    for case in all["windows"].as_array().expect("cases") {
        let count = case["seconds"].as_u64().expect("seconds") as usize * RATE;
        let hidden = hidden(
            &model,
            &input(count, case["seed"].as_i64().expect("a seed")),
        );
        let mut state = model.network.begin(&hidden).expect("begins");
        let language = decode::language(&model.network, &model.vocabulary, &mut state);
        assert_eq!(language.expect("computes"), case["detected"].as_str());
        let code = case["language"].as_str().expect("a language");
        let start = model.vocabulary.start_tokens(code, task(case));
        let prefix = Prefix {
            before: &[],
            start: &start,
        };
        let parts = (&model.network, &model.vocabulary);
        let decoded = decode::window(parts, &mut state, &prefix, 0.0, || true);
        let decoded = decoded.expect("computes").expect("it is wanted");
        assert_eq!(decoded.temperature, 0.0, "{case}");
        assert_eq!(decoded.tokens, tokens(&case["tokens"]), "{case}");
        assert_near(decoded.mean_logprob, &case["avg_logprob"]);
    }
}

#[test]
fn a_transcript_of_several_windows_equals_that_of_the_reference() {
    let model = model();
    let all = expected();
    for case in all["transcripts"].as_array().expect("cases") {
        let count = case["seconds"].as_u64().expect("seconds") as usize * RATE;
        let samples = samples(count, case["seed"].as_i64().expect("a seed"));
        let file = Cursor::new(wav(&samples, RATE as u32));
        let recording = Recording::open(Box::new(file), None).expect("a recording");
        let prompt = case["prompt"].as_str().filter(|prompt| !prompt.is_empty());
        let prompt = prompt.map(|prompt| model.vocabulary.encode(&format!(" {prompt}")));
        let given = case["language"].as_str().expect("a language");
        let detects = case["task"] == "transcribe" && prompt.is_none();
        let language = model.vocabulary.language(given).expect("known");
        let options = JobOptions {
            task: task(case),
            language: (!detects).then_some(language),
            prompt: prompt.transpose().expect("encodes").unwrap_or_default(),
            temperature: 0.0,
            words: false,
        };
        let (events, mut received) = unbounded_channel();
        let mut job = Job::new(recording, options, events);
        while job.step(&model) {}
        let mut segments = case["segments"].as_array().expect("segments").iter();
        loop {
            match received.try_recv().expect("an event") {
                SpeechEvent::Segment(ours) => {
                    let theirs = segments.next().expect("as many segments");
                    assert_eq!(
                        ours.text,
                        theirs["text"].as_str().expect("a text"),
                        "{theirs}"
                    );
                    assert_eq!(ours.tokens, tokens(&theirs["tokens"]), "{theirs}");
                    assert_eq!(
                        ours.seek,
                        theirs["seek"].as_u64().expect("frames"),
                        "{theirs}"
                    );
                    assert_near(ours.start as f64 / 100.0, &theirs["start"]);
                    assert_near(ours.end as f64 / 100.0, &theirs["end"]);
                    assert_near(ours.mean_logprob, &theirs["avg_logprob"]);
                    let ratio = theirs["compression_ratio"].as_f64().expect("a ratio");
                    // Programs that compress differ by a few bytes.
                    let difference = (ours.compression_ratio - ratio).abs();
                    assert!(difference < 0.2 * ratio, "{difference}: {theirs}");
                }
                SpeechEvent::Finished { language, seconds } => {
                    assert_eq!(language, given);
                    assert_near(seconds, &case["seconds"]);
                    break;
                }
                SpeechEvent::Failed(error) => panic!("{error:?}"),
            }
        }
        assert_eq!(segments.count(), 0, "no segment is missing");
    }
}

#[test]
fn a_request_whose_client_has_left_ends_before_its_next_window() {
    let model = model();
    let file = Cursor::new(wav(&samples(RATE, 1), RATE as u32));
    let recording = Recording::open(Box::new(file), None).expect("a recording");
    let options = JobOptions {
        task: SpeechTask::Transcribe,
        language: Some("en"),
        prompt: Vec::new(),
        temperature: 0.0,
        words: false,
    };
    let (events, received) = unbounded_channel();
    let mut job = Job::new(recording, options, events);
    assert!(job.is_wanted());
    drop(received);
    assert!(!job.is_wanted() && !job.step(&model));
}
