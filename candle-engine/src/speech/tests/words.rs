//! Compares the times of words with OpenAI's `whisper` on the tiny model (`vectors/words.py`).

use super::super::alignment::AlignmentHeads;
use super::super::segments::Segment;
use super::super::spec::Stack;
use super::super::words;
use super::vectors::{hidden, model, task, tokens};
use super::{folder, input};
use serde_json::{Value, json};

const RATE: usize = 16_000;
const FRAMES_PER_SECOND: f64 = 100.0;
const WINDOW_FRAMES: usize = 3000;

fn segment(part: &Value) -> Segment {
    let time = |name: &str| part[name].as_f64().expect("a time");
    Segment {
        seek: part["seek"].as_u64().expect("frames"),
        start: (time("start") * FRAMES_PER_SECOND).round() as u64,
        end: (time("end") * FRAMES_PER_SECOND).round() as u64,
        text: String::new(),
        tokens: tokens(&part["tokens"]),
        temperature: 0.0,
        mean_logprob: 0.0,
        compression_ratio: 1.0,
        no_speech: 0.0,
        words: Vec::new(),
    }
}

#[test]
fn the_times_of_words_equal_those_of_the_reference() {
    let text = std::fs::read_to_string(folder().with_file_name("words.json"));
    let all: Value = serde_json::from_str(&text.expect("it is kept")).expect("it is JSON");
    let mut model = model();
    let decoder = Stack {
        layers: 2,
        heads: 2,
        feed_forward: 48,
    };
    for case in all.as_array().expect("cases") {
        let heads = json!({"alignment_heads": case["alignment_heads"]});
        model.alignment_heads = AlignmentHeads::read(&heads, decoder);
        let count = case["seconds"].as_u64().expect("seconds") as usize * RATE;
        let samples = input(count, case["seed"].as_i64().expect("a seed"));
        let language = case["language"].as_str().expect("a language");
        let segments = case["segments"].as_array().expect("segments");
        let mut segments: Vec<Segment> = segments.iter().map(segment).collect();
        let mut last_end = 0.0;
        for window in segments.chunk_by_mut(|one, other| one.seek == other.seek) {
            let first = window[0].seek as usize * 160;
            let samples = &samples[first..count.min(first + WINDOW_FRAMES * 160)];
            let hidden = hidden(&model, samples);
            let mut state = model.network.begin(&hidden).expect("begins");
            let time = (samples.len() / 160, &mut last_end);
            words::add(&model, &mut state, (language, task(case)), window, time).expect("computes");
        }
        let theirs = case["words"].as_array().expect("words");
        assert_eq!(segments.len(), theirs.len());
        for (ours, theirs) in segments.iter().zip(theirs) {
            let theirs = theirs.as_array().expect("words");
            let texts = theirs.iter().map(|word| word[0].as_str().expect("a word"));
            let texts: Vec<&str> = texts.collect();
            let found: Vec<&str> = ours.words.iter().map(|word| word.text.as_str()).collect();
            assert_eq!(found, texts, "{case}");
            for (ours, theirs) in ours.words.iter().zip(theirs) {
                for (ours, theirs) in [(ours.start, &theirs[1]), (ours.end, &theirs[2])] {
                    let difference = (ours - theirs.as_f64().expect("a time")).abs();
                    assert!(difference < 1e-3, "{ours} {theirs}: {case}");
                }
            }
        }
    }
}
