//! Decodes the text of one window, as OpenAI's reference does: the likeliest tokens first, and samples at higher temperatures if the
//! text repeats itself or the model is unsure of it.

use super::network::{Network, WindowState};
use super::rules::{self, log_sum};
use super::vocabulary::{Language, Vocabulary};
use candle_core::Result;
use flate2::Compression;
use flate2::write::ZlibEncoder;
use rand::Rng;
use std::io::Write;

/// Temperatures after the first, for requests with temperature 0.
const FALLBACK_TEMPERATURES: [f32; 5] = [0.2, 0.4, 0.6, 0.8, 1.0];
/// A text that shrinks more when compressed repeats itself.
const COMPRESSION_MAX: f64 = 2.4;
/// A text with a lower mean of logarithmic probabilities is unsure.
const MEAN_LOGPROB_MIN: f64 = -1.0;
/// An unsure text counts as silence above this probability of silence.
const NO_SPEECH_MIN: f64 = 0.6;

/// The text of a window.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct WindowText {
    /// Text and timestamps, without the end.
    pub tokens: Vec<u32>,
    pub temperature: f32,
    pub mean_logprob: f64,
    pub compression_ratio: f64,
    pub no_speech: f64,
}

impl WindowText {
    /// Returns true if the window has no speech, whatever its text.
    pub fn is_silence(&self) -> bool {
        self.no_speech > NO_SPEECH_MIN && self.mean_logprob < MEAN_LOGPROB_MIN
    }

    fn is_unsure(&self) -> bool {
        let is_bad =
            self.compression_ratio > COMPRESSION_MAX || self.mean_logprob < MEAN_LOGPROB_MIN;
        is_bad && !self.is_silence()
    }
}

/// The tokens before a window's text.
pub(super) struct Prefix<'a> {
    /// Text before the window: the client's prompt, and the text of the windows before.
    pub before: &'a [u32],
    pub start: &'a [u32],
}

/// Decodes a window. Returns `None` if it is not wanted any more.
///
/// # Errors
/// If the device fails or runs out of memory.
pub(super) fn window(
    (network, vocabulary): (&Network, &Vocabulary),
    state: &mut WindowState,
    prefix: &Prefix<'_>,
    temperature: f32,
    is_wanted: impl Fn() -> bool,
) -> Result<Option<WindowText>> {
    let fallback = if temperature > 0.0 {
        &[][..]
    } else {
        &FALLBACK_TEMPERATURES
    };
    let temperatures = std::iter::once(temperature).chain(fallback.iter().copied());
    let mut last = None;
    for temperature in temperatures {
        state.clear();
        let decoded = attempt(network, vocabulary, state, prefix, temperature, &is_wanted)?;
        let Some(decoded) = decoded else {
            return Ok(None);
        };
        let is_unsure = decoded.is_unsure();
        last = Some(decoded);
        if !is_unsure {
            break;
        }
    }
    Ok(last)
}

fn attempt(
    network: &Network,
    vocabulary: &Vocabulary,
    state: &mut WindowState,
    prefix: &Prefix<'_>,
    temperature: f32,
    is_wanted: &impl Fn() -> bool,
) -> Result<Option<WindowText>> {
    let half = network.context_tokens() / 2;
    let mut input = Vec::new();
    if !prefix.before.is_empty() {
        let first = prefix.before.len().saturating_sub(half - 1);
        input.push(vocabulary.start_of_previous);
        input.extend_from_slice(&prefix.before[first..]);
    }
    let start = input.len() as u32;
    input.extend_from_slice(prefix.start);
    let most = half.min(network.context_tokens() - input.len());
    let last = input.len() as u32 - 1;
    let mut rows = network.decode(state, &input, &[start, last])?;
    let mut logits = rows.pop().unwrap_or_default();
    let no_speech = vocabulary.no_speech.zip(rows.pop());
    let no_speech = no_speech.map_or(0.0, |(token, logits)| probability(&logits, token));
    let mut tokens = Vec::new();
    let mut sum = 0.0;
    while tokens.len() < most {
        if !is_wanted() {
            return Ok(None);
        }
        if !tokens.is_empty() {
            let last = tokens.last().copied().unwrap_or_default();
            let mut rows = network.decode(state, &[last], &[0])?;
            logits = rows.pop().unwrap_or_default();
        }
        rules::apply(vocabulary, &tokens, &mut logits);
        let token = choose(&logits, temperature, &mut rand::rng());
        let Some(token) = token else {
            candle_core::bail!("the logits of a token are not finite");
        };
        sum += probability(&logits, token).ln();
        if token == vocabulary.end {
            break;
        }
        tokens.push(token);
    }
    let text = vocabulary.text(&tokens);
    Ok(Some(WindowText {
        mean_logprob: sum / (tokens.len() + 1) as f64,
        compression_ratio: compression_ratio(stripped(&text)),
        tokens,
        temperature,
        no_speech,
    }))
}

/// The language of a window: the likeliest of the model's languages.
///
/// # Errors
/// If the device fails or runs out of memory.
pub(super) fn language(
    network: &Network,
    vocabulary: &Vocabulary,
    state: &mut WindowState,
) -> Result<Option<&'static str>> {
    state.clear();
    let rows = network.decode(state, &[vocabulary.start], &[0])?;
    let Some(logits) = rows.first() else {
        return Ok(None);
    };
    let logit = |language: &&Language| logits[language.token as usize];
    let languages = vocabulary.languages.iter();
    let likeliest = languages.max_by(|one, other| logit(one).total_cmp(&logit(other)));
    Ok(likeliest.map(|language| language.code))
}

fn probability(logits: &[f32], token: u32) -> f64 {
    let logit = logits.get(token as usize).copied();
    logit.map_or(0.0, |logit| f64::from(logit - log_sum(logits)).exp())
}

/// The likeliest token, or a sample. `None` if no logit is a number.
fn choose(logits: &[f32], temperature: f32, random: &mut impl Rng) -> Option<u32> {
    let all = logits.iter().enumerate();
    let usable = all.filter(|(_, logit)| logit.is_finite());
    // The first of equally likely tokens.
    let likeliest = usable
        .clone()
        .reduce(|best, other| if other.1 > best.1 { other } else { best });
    let (likeliest, most) = likeliest?;
    if temperature <= 0.0 {
        return Some(likeliest as u32);
    }
    let weight = |logit: f32| f64::from((logit - most) / temperature).exp();
    let sum: f64 = usable.clone().map(|(_, logit)| weight(*logit)).sum();
    let mut left = random.random::<f64>() * sum;
    for (token, logit) in usable {
        left -= weight(*logit);
        if left <= 0.0 {
            return Some(token as u32);
        }
    }
    Some(likeliest as u32)
}

/// The text without white space at its ends, as Python's `strip` removes it: the separators U+001C to U+001F count as white space.
pub(super) fn stripped(text: &str) -> &str {
    let is_space = |c: char| c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c);
    text.trim_matches(is_space)
}

/// The size of a text, divided by its compressed size.
fn compression_ratio(text: &str) -> f64 {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
    let compressed = encoder
        .write_all(text.as_bytes())
        .and_then(|()| encoder.finish());
    let bytes = compressed.map_or(usize::MAX, |compressed| compressed.len());
    text.len() as f64 / bytes.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    fn text(mean_logprob: f64, compression_ratio: f64, no_speech: f64) -> WindowText {
        WindowText {
            tokens: Vec::new(),
            temperature: 0.0,
            mean_logprob,
            compression_ratio,
            no_speech,
        }
    }

    #[test]
    fn a_text_that_repeats_itself_or_is_unlikely_is_tried_again_unless_it_is_silence() {
        assert!(!text(-0.5, 1.5, 0.0).is_unsure());
        assert!(text(-0.5, 2.5, 0.0).is_unsure());
        assert!(text(-1.1, 1.5, 0.5).is_unsure());
        assert!(!text(-1.1, 1.5, 0.7).is_unsure());
        assert!(text(-1.1, 1.5, 0.7).is_silence());
        assert!(!text(-0.9, 1.5, 0.9).is_silence());
    }

    #[test]
    fn repetition_is_seen_in_the_compression_ratio() {
        assert!(compression_ratio(&"thank you ".repeat(30)) > COMPRESSION_MAX);
        let sentence = "The pool keeps many models on a few devices.";
        assert!(compression_ratio(sentence) < COMPRESSION_MAX);
        assert!(compression_ratio("").abs() < 1e-9);
    }

    #[test]
    fn separators_are_white_space_at_the_ends_of_a_text() {
        assert_eq!(stripped(" \u{1e}a\u{1c} b\u{1f}\u{3000}"), "a\u{1c} b");
        assert_eq!(stripped("\u{1b}\u{1d}"), "\u{1b}");
        assert_eq!(stripped("\u{1e}\u{1e}"), "");
    }

    #[test]
    fn the_first_likeliest_token_is_chosen_and_a_temperature_samples() {
        let mut random = StdRng::seed_from_u64(1);
        let logits = [f32::NEG_INFINITY, 1.0, 3.0, 3.0, f32::NAN];
        assert_eq!(choose(&logits, 0.0, &mut random), Some(2));
        assert_eq!(choose(&[f32::NAN], 0.0, &mut random), None);
        let mut counts = [0; 5];
        for _ in 0..3000 {
            let token = choose(&logits, 1.0, &mut random).expect("a token");
            counts[token as usize] += 1;
        }
        assert_eq!((counts[0], counts[4]), (0, 0));
        // e² : e² : 1.
        for (token, share) in [(1, 0.0634), (2, 0.4683), (3, 0.4683)] {
            let found = f64::from(counts[token]) / 3000.0;
            assert!((found - share).abs() < 0.03, "{counts:?}");
        }
    }
}
