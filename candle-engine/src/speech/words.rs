//! The times of words, as OpenAI's `timing.py` finds them: the tokens of a window's segments are aligned with its frames, joined to
//! words, and words that are much longer than the others are shortened.

use super::decode::stripped;
use super::loaded_model::SpeechModel;
use super::network::WindowState;
use super::segments::{Segment, Word};
use super::vocabulary::{SpeechTask, Vocabulary};
use candle_core::Result;

/// Positions of the encoder per second.
const STEPS_PER_SECOND: f64 = 50.0;
/// Frames per second.
const FRAMES_PER_SECOND: f64 = 100.0;
/// Frames per position of the encoder.
const STEP_FRAMES: usize = 2;
/// The median of the words' durations counts at most as this, in seconds.
const MEDIAN_MAX: f64 = 0.7;

/// Languages that are written without spaces between words.
const WITHOUT_SPACES: [&str; 6] = ["zh", "ja", "th", "lo", "my", "yue"];
const PUNCTUATION: &str = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~";
/// Belongs to the next word.
const OPENING: &str = "\"'“¿([{-";
/// Belongs to the word before.
const CLOSING: &str = "\"'.。,，!！?？:：”)]}、";
const SENTENCE_ENDS: &str = ".。!！?？";

/// A word with the number of its tokens.
#[derive(Debug, Clone, PartialEq)]
struct Part {
    text: String,
    tokens: usize,
    start: f64,
    end: f64,
}

impl Part {
    fn seconds(&self) -> f64 {
        self.end - self.start
    }
}

/// Finds the words of the segments of a window, which has `frames`. `last_end` is the end of the last word before, and after.
///
/// # Errors
/// If the device fails or runs out of memory.
pub(super) fn add(
    model: &SpeechModel,
    state: &mut WindowState,
    (language, task): (&str, SpeechTask),
    segments: &mut [Segment],
    (frames, last_end): (usize, &mut f64),
) -> Result<()> {
    let vocabulary = &model.vocabulary;
    let is_text = |token: &u32| vocabulary.is_text(*token);
    let texts: Vec<Vec<u32>> = segments
        .iter()
        .map(|segment| segment.tokens.iter().copied().filter(is_text).collect())
        .collect();
    let text = texts.concat();
    let Some(first) = segments.first() else {
        return Ok(());
    };
    let offset = first.seek as f64 / FRAMES_PER_SECOND;
    let mut input = vocabulary.start_tokens(language, task);
    let start = input.len();
    input.push(vocabulary.no_timestamps());
    input.extend_from_slice(&text);
    input.push(vocabulary.end);
    let (network, heads) = (&model.network, &model.alignment_heads);
    let attentions = network.attentions(state, &input, heads, frames / STEP_FRAMES)?;
    let beginnings = attentions.beginnings(start, input.len() - 1);
    let mut parts = split(vocabulary, &text, WITHOUT_SPACES.contains(&language));
    let mut token = 0;
    for part in &mut parts {
        part.start = seconds_of(&beginnings, token);
        token += part.tokens;
        part.end = seconds_of(&beginnings, token);
    }
    let median = shorten_at_sentences(&mut parts);
    join_punctuation(&mut parts);
    let mut parts = parts.into_iter();
    for (segment, tokens) in segments.iter_mut().zip(texts.iter().map(Vec::len)) {
        let mut taken = 0;
        while taken < tokens
            && let Some(part) = parts.next()
        {
            taken += part.tokens;
            if !part.text.is_empty() {
                segment.words.push(Word {
                    text: part.text,
                    start: rounded(offset + part.start),
                    end: rounded(offset + part.end),
                });
            }
        }
        if let Some(end) = shorten_at_ends(segment, median, *last_end) {
            *last_end = end;
        }
    }
    Ok(())
}

/// Hundredths of a second.
pub(super) fn rounded(seconds: f64) -> f64 {
    (seconds * 100.0).round() / 100.0
}

fn seconds_of(beginnings: &[usize], token: usize) -> f64 {
    let place = beginnings.get(token).or(beginnings.last());
    place.copied().unwrap_or_default() as f64 / STEPS_PER_SECOND
}

/// Joins tokens to words: at spaces and punctuation, or only to complete characters in languages without spaces.
fn split(vocabulary: &Vocabulary, tokens: &[u32], is_without_spaces: bool) -> Vec<Part> {
    let part = |text: String, tokens: usize| Part {
        text,
        tokens,
        start: 0.0,
        end: 0.0,
    };
    let all: Vec<char> = vocabulary.text(tokens).chars().collect();
    let mut characters: Vec<Part> = Vec::new();
    let (mut first, mut place) = (0, 0);
    for end in 1..=tokens.len() {
        let text = vocabulary.text(&tokens[first..end]);
        // A replacement character is complete if the text has it itself.
        let unfinished = text.chars().position(|c| c == char::REPLACEMENT_CHARACTER);
        let is_complete = unfinished
            .is_none_or(|index| all.get(place + index) == Some(&char::REPLACEMENT_CHARACTER));
        if is_complete || end == tokens.len() {
            place += text.chars().count();
            characters.push(part(text, end - first));
            first = end;
        }
    }
    if is_without_spaces {
        return characters;
    }
    let mut words: Vec<Part> = Vec::new();
    for next in characters {
        let begins = next.text.starts_with(' ') || PUNCTUATION.contains(stripped(&next.text));
        match words.last_mut() {
            Some(word) if !begins => {
                word.text += &next.text;
                word.tokens += next.tokens;
            }
            _ => words.push(next),
        }
    }
    words
}

/// Shortens words at the ends of sentences to twice the median duration, which it returns.
fn shorten_at_sentences(parts: &mut [Part]) -> f64 {
    let durations = parts.iter().map(Part::seconds);
    let mut durations: Vec<f64> = durations.filter(|seconds| *seconds != 0.0).collect();
    durations.sort_by(f64::total_cmp);
    let middle = durations.len() / 2;
    let median = match durations.as_slice() {
        [] => return 0.0,
        sorted if sorted.len() % 2 == 1 => sorted[middle],
        sorted => f64::midpoint(sorted[middle - 1], sorted[middle]),
    };
    let median = median.min(MEDIAN_MAX);
    for index in 1..parts.len() {
        if parts[index].seconds() <= median * 2.0 {
            continue;
        }
        if SENTENCE_ENDS.contains(&parts[index].text) {
            parts[index].end = parts[index].start + median * 2.0;
        } else if SENTENCE_ENDS.contains(&parts[index - 1].text) {
            parts[index].start = parts[index].end - median * 2.0;
        }
    }
    median
}

/// Joins punctuation to the word after or before it, whose times stay. The joined part becomes empty.
fn join_punctuation(parts: &mut [Part]) {
    let mut next = parts.len().saturating_sub(1);
    for index in (0..next).rev() {
        let text = &parts[index].text;
        if text.starts_with(' ') && OPENING.contains(stripped(text)) {
            let opening = std::mem::take(&mut parts[index].text);
            parts[next].text.insert_str(0, &opening);
            parts[next].tokens += std::mem::take(&mut parts[index].tokens);
        } else {
            next = index;
        }
    }
    let mut before = 0;
    for index in 1..parts.len() {
        if !parts[before].text.ends_with(' ') && CLOSING.contains(&parts[index].text) {
            let closing = std::mem::take(&mut parts[index].text);
            parts[before].text += &closing;
            parts[before].tokens += std::mem::take(&mut parts[index].tokens);
        } else {
            before = index;
        }
    }
}

/// Shortens the first and the last word of a segment that reach far beyond it or follow a pause. Returns the last word's end.
fn shorten_at_ends(segment: &mut Segment, median: f64, last_end: f64) -> Option<f64> {
    let (start, end) = (segment.start, segment.end);
    let (start, end) = (start as f64 / 100.0, end as f64 / 100.0);
    let words = segment.words.as_mut_slice();
    let longest = median * 2.0;
    let first = words.first()?.clone();
    let second = words.get(1).cloned();
    let is_long = first.end - first.start > longest
        || second
            .as_ref()
            .is_some_and(|second| second.end - first.start > longest * 2.0);
    if first.end - last_end > median * 4.0 && is_long {
        if let Some(second) = second
            && second.end - second.start > longest
        {
            let boundary = (second.end / 2.0).max(second.end - longest);
            words[0].end = boundary;
            words[1].start = boundary;
        }
        words[0].start = (words[0].end - longest).max(0.0);
    }
    if start < words[0].end && start - 0.5 > words[0].start {
        words[0].start = (words[0].end - median).min(start).max(0.0);
    }
    let last = words.last_mut()?;
    if end > last.start && end + 0.5 < last.end {
        last.end = (last.start + median).max(end);
        return Some(end);
    }
    Some(last.end)
}

#[cfg(test)]
mod tests {
    use super::super::tests::vocabulary;
    use super::*;

    fn parts(list: &[(&str, f64, f64)]) -> Vec<Part> {
        let part = |(text, start, end): &(&str, f64, f64)| Part {
            text: (*text).to_owned(),
            tokens: 1,
            start: *start,
            end: *end,
        };
        list.iter().map(part).collect()
    }

    fn texts(parts: &[Part]) -> Vec<(&str, usize)> {
        let texts = parts.iter().map(|part| (part.text.as_str(), part.tokens));
        texts.filter(|(text, _)| !text.is_empty()).collect()
    }

    #[test]
    fn tokens_are_joined_to_words_at_spaces_and_punctuation() {
        let vocabulary = vocabulary();
        let text = " The pool, keeps Größe.";
        let tokens = vocabulary.encode(text).expect("encodes");
        let words = split(&vocabulary, &tokens, false);
        let found: Vec<&str> = words.iter().map(|word| word.text.as_str()).collect();
        assert_eq!(found, [" The", " pool", ",", " keeps", " Größe", "."]);
        let count: usize = words.iter().map(|word| word.tokens).sum();
        assert_eq!(count, tokens.len());
    }

    #[test]
    fn characters_are_complete_in_languages_without_spaces() {
        let vocabulary = vocabulary();
        let tokens = vocabulary.encode("大阪は日本").expect("encodes");
        let words = split(&vocabulary, &tokens, true);
        assert!(
            words.iter().all(|word| !word.text.contains('\u{fffd}')),
            "{words:?}"
        );
        let all: String = words.iter().map(|word| word.text.as_str()).collect();
        assert_eq!(all, "大阪は日本");
        assert!(words.len() > 2, "{words:?}");
        // A character that ends early is kept.
        let cut = &tokens[..1];
        assert_eq!(split(&vocabulary, cut, true).len(), 1);
    }

    #[test]
    fn punctuation_joins_the_word_it_belongs_to() {
        let mut words = parts(&[
            (" (", 0.0, 0.1),
            ("a", 0.1, 0.2),
            (")", 0.2, 0.3),
            (".", 0.3, 0.4),
            (" \"", 0.4, 0.5),
            (" b", 0.5, 0.6),
            ("!", 0.6, 0.7),
        ]);
        join_punctuation(&mut words);
        assert_eq!(texts(&words), [(" (a).", 4), (" \" b!", 3)]);
        assert_eq!((words[1].start, words[1].end), (0.1, 0.2));
        join_punctuation(&mut []);
    }

    #[test]
    fn long_words_at_the_ends_of_sentences_are_shortened() {
        let mut words = parts(&[
            (" a", 0.0, 0.2),
            (" b", 0.2, 0.4),
            (".", 0.4, 3.0),
            (" c", 3.0, 5.0),
            (" d", 5.0, 5.2),
        ]);
        let median = shorten_at_sentences(&mut words);
        assert!((median - 0.2).abs() < 1e-9);
        assert!((words[2].end - 0.8).abs() < 1e-9, "{words:?}");
        assert!((words[3].start - 4.6).abs() < 1e-9, "{words:?}");
        assert!(shorten_at_sentences(&mut []).abs() < 1e-9);
    }
}
