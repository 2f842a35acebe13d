//! The forms of a transcript: JSON, plain text, and subtitles as SubRip and WebVTT.

use super::languages;
use super::segments::{Segment, Word};
use super::vocabulary::SpeechTask;
use super::words::rounded;
use serde_json::{Value, json};
use std::fmt::Write;

/// The `response_format` of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TranscriptFormat {
    Json,
    Text,
    Srt,
    VerboseJson(Granularity),
    Vtt,
}

/// The parts of a recording that get times: `timestamp_granularities[]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Granularity {
    Segments,
    Words,
    SegmentsAndWords,
}

impl TranscriptFormat {
    const ALL: [(&'static str, Self); 5] = [
        ("json", Self::Json),
        ("text", Self::Text),
        ("srt", Self::Srt),
        ("verbose_json", Self::VerboseJson(Granularity::Segments)),
        ("vtt", Self::Vtt),
    ];

    pub fn parse(text: &str) -> Option<Self> {
        let known = Self::ALL.iter().find(|(name, _)| *name == text);
        known.map(|(_, format)| *format)
    }

    /// The media type of a response, as OpenAI's API sends it.
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Json | Self::VerboseJson(_) => "application/json",
            Self::Text | Self::Srt | Self::Vtt => "text/plain; charset=utf-8",
        }
    }

    /// Returns true if the response has the times of words.
    pub fn has_words(self) -> bool {
        matches!(
            self,
            Self::VerboseJson(Granularity::Words | Granularity::SegmentsAndWords)
        )
    }
}

/// A complete transcript.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Transcript {
    pub task: SpeechTask,
    pub language: &'static str,
    pub seconds: f64,
    pub segments: Vec<Segment>,
}

impl Transcript {
    /// The text of all segments.
    pub fn text(&self) -> String {
        let text: String = self
            .segments
            .iter()
            .map(|part| part.text.as_str())
            .collect();
        text.trim().to_owned()
    }

    /// The body of a response.
    pub fn write(&self, format: TranscriptFormat) -> String {
        match format {
            TranscriptFormat::Json => self.json().to_string(),
            TranscriptFormat::VerboseJson(parts) => self.verbose_json(parts).to_string(),
            TranscriptFormat::Text => self.text() + "\n",
            TranscriptFormat::Srt => self.srt(),
            TranscriptFormat::Vtt => self.vtt(),
        }
    }

    fn json(&self) -> Value {
        json!({"text": self.text(), "usage": usage(self.seconds)})
    }

    fn verbose_json(&self, parts: Granularity) -> Value {
        let mut json = json!({
            "task": self.task.as_str(), "language": languages::name_of(self.language), "duration": self.seconds,
            "text": self.text(), "usage": usage(self.seconds),
        });
        if parts != Granularity::Words {
            json["segments"] = self.segments_json();
        }
        if parts != Granularity::Segments {
            let words = self.segments.iter().flat_map(|part| &part.words);
            json["words"] = words.filter_map(word).collect();
        }
        json
    }

    fn segments_json(&self) -> Value {
        let segments = self.segments.iter().enumerate().map(|(id, part)| {
            json!({
                "id": id, "seek": part.seek, "start": seconds(part.start), "end": seconds(part.end), "text": part.text,
                "tokens": part.tokens, "temperature": tenths(part.temperature), "avg_logprob": part.mean_logprob,
                "compression_ratio": part.compression_ratio, "no_speech_prob": part.no_speech,
            })
        });
        segments.collect()
    }

    fn srt(&self) -> String {
        let mut text = String::new();
        for (index, part) in self.segments.iter().enumerate() {
            let (start, end) = (clock(part.start, true, ','), clock(part.end, true, ','));
            let _ = write!(
                text,
                "{}\n{start} --> {end}\n{}\n\n",
                index + 1,
                cue(&part.text)
            );
        }
        text
    }

    fn vtt(&self) -> String {
        let mut text = "WEBVTT\n\n".to_owned();
        for part in &self.segments {
            let (start, end) = (clock(part.start, false, '.'), clock(part.end, false, '.'));
            let _ = write!(text, "{start} --> {end}\n{}\n\n", cue(&part.text));
        }
        text
    }
}

/// A word without the space before it. `None` if nothing else is in it.
fn word(word: &Word) -> Option<Value> {
    let text = word.text.trim();
    let times = json!({"word": text, "start": rounded(word.start), "end": rounded(word.end)});
    (!text.is_empty()).then_some(times)
}

/// The `usage` of a response.
pub(super) fn usage(seconds: f64) -> Value {
    json!({"type": "duration", "seconds": seconds.ceil() as u64})
}

fn seconds(hundredths: u64) -> f64 {
    hundredths as f64 / 100.0
}

/// A temperature as the nearest tenth, without the rounding of 32-bit numbers.
fn tenths(temperature: f32) -> f64 {
    (f64::from(temperature) * 1000.0).round() / 1000.0
}

/// The text of a cue. An empty line would end it, and an arrow would begin another.
fn cue(text: &str) -> String {
    let lines = text.trim().lines().map(str::trim);
    let lines: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
    lines.join("\n").replace("-->", "->")
}

/// `hh:mm:ss,mmm`. WebVTT's first part is left out below an hour.
fn clock(hundredths: u64, always_hours: bool, point: char) -> String {
    let (all_seconds, milliseconds) = (hundredths / 100, hundredths % 100 * 10);
    let (hours, minutes, seconds) = (all_seconds / 3600, all_seconds / 60 % 60, all_seconds % 60);
    let hours = if hours > 0 || always_hours {
        format!("{hours:02}:")
    } else {
        String::new()
    };
    format!("{hours}{minutes:02}:{seconds:02}{point}{milliseconds:03}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(start: u64, end: u64, text: &str) -> Segment {
        Segment {
            seek: 0,
            start,
            end,
            text: text.to_owned(),
            tokens: vec![5, 6],
            temperature: 0.2,
            mean_logprob: -0.25,
            compression_ratio: 1.5,
            no_speech: 0.125,
            words: vec![Word {
                text: format!(" {}", text.trim()),
                start: start as f64 / 100.0,
                end: end as f64 / 100.0 - 0.125,
            }],
        }
    }

    fn transcript() -> Transcript {
        Transcript {
            task: SpeechTask::Transcribe,
            language: "de",
            seconds: 3725.4,
            segments: vec![
                segment(0, 250, " Guten Tag."),
                segment(366_150, 372_500, " a --> b\n\n Ende "),
            ],
        }
    }

    #[test]
    fn subrip_numbers_its_cues_and_writes_hours_and_commas() {
        let expected = "1\n00:00:00,000 --> 00:00:02,500\nGuten Tag.\n\n\
            2\n01:01:01,500 --> 01:02:05,000\na -> b\nEnde\n\n";
        assert_eq!(transcript().write(TranscriptFormat::Srt), expected);
    }

    #[test]
    fn webvtt_has_a_head_and_hours_only_where_needed() {
        let expected = "WEBVTT\n\n00:00.000 --> 00:02.500\nGuten Tag.\n\n\
            01:01:01.500 --> 01:02:05.000\na -> b\nEnde\n\n";
        assert_eq!(transcript().write(TranscriptFormat::Vtt), expected);
    }

    #[test]
    fn json_has_the_text_and_verbose_json_everything() {
        let json: Value =
            serde_json::from_str(&transcript().write(TranscriptFormat::Json)).expect("JSON");
        assert_eq!(json["text"], "Guten Tag. a --> b\n\n Ende");
        assert_eq!(json["usage"], json!({"type": "duration", "seconds": 3726}));
        let text = transcript().write(TranscriptFormat::VerboseJson(Granularity::Segments));
        let json: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(json["language"], "german");
        assert_eq!(json["segments"][1]["id"], 1);
        assert_eq!(json["segments"][1]["start"], 3661.5);
        assert_eq!(json["segments"][0]["temperature"], 0.2);
        assert_eq!(
            transcript().write(TranscriptFormat::Text),
            "Guten Tag. a --> b\n\n Ende\n"
        );
    }

    #[test]
    fn verbose_json_has_segments_words_or_both() {
        let read = |parts| {
            let text = transcript().write(TranscriptFormat::VerboseJson(parts));
            serde_json::from_str::<Value>(&text).expect("JSON")
        };
        let words = read(Granularity::Words);
        assert_eq!(
            words["words"][0],
            json!({"word": "Guten Tag.", "start": 0.0, "end": 2.38})
        );
        assert_eq!(words.get("segments"), None);
        assert_eq!(read(Granularity::Segments).get("words"), None);
        let both = read(Granularity::SegmentsAndWords);
        assert!(both["words"].is_array() && both["segments"].is_array());
    }

    #[test]
    fn an_empty_transcript_is_valid_in_every_format() {
        let empty = Transcript {
            segments: Vec::new(),
            ..transcript()
        };
        assert_eq!(empty.write(TranscriptFormat::Text), "\n");
        assert_eq!(empty.write(TranscriptFormat::Srt), "");
        assert_eq!(empty.write(TranscriptFormat::Vtt), "WEBVTT\n\n");
    }

    #[test]
    fn every_format_of_openai_is_known() {
        for (name, format) in TranscriptFormat::ALL {
            assert_eq!(TranscriptFormat::parse(name), Some(format));
        }
        assert_eq!(TranscriptFormat::parse("diarized_json"), None);
    }
}
