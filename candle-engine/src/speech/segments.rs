//! Splits a window's text at its timestamps into segments, and decides where the next window begins, as OpenAI's `transcribe.py`.

use super::decode::{WindowText, stripped};
use super::vocabulary::Vocabulary;

/// Frames per step of a timestamp.
const STEP_FRAMES: usize = 2;
/// Least frames between two windows: 200 ms. The reference has none, and a text of very short segments would cost a window each.
const ADVANCE_MIN: usize = 20;

/// A part of the transcript. Times are in hundredths of a second.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Segment {
    /// The beginning of its window.
    pub seek: u64,
    pub start: u64,
    pub end: u64,
    pub text: String,
    pub tokens: Vec<u32>,
    pub temperature: f32,
    pub mean_logprob: f64,
    pub compression_ratio: f64,
    pub no_speech: f64,
    /// Empty unless the request wants words.
    pub words: Vec<Word>,
}

/// A word with its times in seconds.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Word {
    /// With the space before it.
    pub text: String,
    pub start: f64,
    pub end: f64,
}

/// Splits the text of a window that begins at `seek` and has `frames`. Returns its segments, and the frames to advance.
pub(super) fn split(
    vocabulary: &Vocabulary,
    window: &WindowText,
    seek: u64,
    frames: usize,
) -> (Vec<Segment>, usize) {
    let tokens = window.tokens.as_slice();
    let is_timestamp = |token: &u32| vocabulary.is_timestamp(*token);
    let frame_of = |token: u32| vocabulary.steps_of(token) * STEP_FRAMES;
    let segment = |start: usize, end: usize, tokens: &[u32]| {
        let text = vocabulary.text(tokens);
        let is_kept = start != end && !stripped(&text).is_empty();
        is_kept.then(|| Segment {
            seek,
            start: seek + start as u64,
            end: seek + end as u64,
            text,
            tokens: tokens.to_vec(),
            temperature: window.temperature,
            mean_logprob: window.mean_logprob,
            compression_ratio: window.compression_ratio,
            no_speech: window.no_speech,
            words: Vec::new(),
        })
    };
    // Places between two timestamps in a row.
    let pairs = tokens.windows(2).enumerate();
    let pairs = pairs.filter(|(_, pair)| pair.iter().all(is_timestamp));
    let mut cuts: Vec<usize> = pairs.map(|(index, _)| index + 1).collect();
    let ends_with_one = match tokens {
        [.., before, last] => !is_timestamp(before) && is_timestamp(last),
        _ => false,
    };
    if cuts.is_empty() {
        let last = tokens
            .iter()
            .rev()
            .copied()
            .find(|token| is_timestamp(token));
        let last = last.map(frame_of).filter(|frame| *frame > 0);
        let all = segment(0, last.unwrap_or(frames), tokens);
        return (all.into_iter().collect(), frames.max(ADVANCE_MIN));
    }
    if ends_with_one {
        cuts.push(tokens.len());
    }
    let mut first = 0;
    let mut segments = Vec::with_capacity(cuts.len());
    for cut in cuts {
        let part = &tokens[first..cut];
        let time = |token: Option<&u32>| token.map_or(0, |token| frame_of(*token));
        segments.extend(segment(time(part.first()), time(part.last()), part));
        first = cut;
    }
    let advance = if ends_with_one {
        frames
    } else {
        // Text after the last pair is not complete, and the next window begins before it.
        frame_of(tokens[first - 1])
    };
    (segments, advance.max(ADVANCE_MIN))
}

#[cfg(test)]
mod tests {
    use super::super::tests::vocabulary;
    use super::*;

    /// The start, the end and the number of tokens of each segment, and the frames to advance.
    fn split_tokens(tokens: &[u32]) -> (Vec<(u64, u64, usize)>, usize) {
        let window = WindowText {
            tokens: tokens.to_vec(),
            temperature: 0.0,
            mean_logprob: -0.1,
            compression_ratio: 1.0,
            no_speech: 0.0,
        };
        let (segments, advance) = split(&vocabulary(), &window, 1000, 3000);
        let segments = segments.into_iter();
        let segments = segments.map(|part| (part.start, part.end, part.tokens.len()));
        (segments.collect(), advance)
    }

    fn time(step: u32) -> u32 {
        vocabulary().first_timestamp + step
    }

    #[test]
    fn a_window_advances_to_its_last_complete_segment() {
        let tokens = [
            time(0),
            40,
            time(100),
            time(100),
            41,
            42,
            time(300),
            time(310),
            43,
        ];
        let expected = vec![(1000, 1200, 3), (1200, 1600, 4)];
        assert_eq!(split_tokens(&tokens), (expected, 600));
    }

    #[test]
    fn a_window_that_ends_with_one_timestamp_is_complete() {
        let tokens = [time(0), 40, time(100), time(100), 41, time(300)];
        let expected = vec![(1000, 1200, 3), (1200, 1600, 3)];
        assert_eq!(split_tokens(&tokens), (expected, 3000));
    }

    #[test]
    fn a_window_without_pairs_is_one_segment() {
        assert_eq!(
            split_tokens(&[time(5), 40, time(70)]),
            (vec![(1000, 1140, 3)], 3000)
        );
        assert_eq!(split_tokens(&[time(0), 40]), (vec![(1000, 4000, 2)], 3000));
        assert_eq!(split_tokens(&[]), (vec![], 3000));
    }

    #[test]
    fn segments_without_text_or_length_are_left_out_and_a_window_always_advances() {
        let tokens = [time(0), 40, time(1), time(1), time(1), 41];
        let (segments, advance) = split_tokens(&tokens);
        assert_eq!((segments.len(), advance), (1, ADVANCE_MIN));
        let separator = vocabulary().encode("\u{1e}").expect("encodes")[0];
        let tokens = [time(0), separator, time(100), time(100), 41, time(300)];
        assert_eq!(split_tokens(&tokens), (vec![(1200, 1600, 3)], 3000));
    }
}
