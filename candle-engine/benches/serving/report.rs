//! The tables: medians over rounds with their spread, and speed ratios between engines.

use crate::measures::Measure;
use crate::servers::Engine;
use std::collections::BTreeMap;

/// An engine with a model.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Subject {
    pub shape: String,
    pub file: String,
    pub engine: Engine,
}

/// For every subject and measure, one number per round.
pub type Results = BTreeMap<Subject, BTreeMap<Measure, Vec<f64>>>;

impl Measure {
    fn label(self) -> String {
        match self {
            Self::ColdReady => "load, cold, to ready (ms)".to_owned(),
            Self::ColdFirst => "load, cold, to the first token (ms)".to_owned(),
            Self::ColdShare => "cold load of the disk's read speed (%)".to_owned(),
            Self::WarmReady => "load, warm, to ready (ms)".to_owned(),
            Self::WarmFirst => "load, warm, to the first token (ms)".to_owned(),
            Self::Prefill(tokens) => format!("prefill of {tokens} (tokens/s)"),
            Self::Decode(1) => "decode alone (tokens/s)".to_owned(),
            Self::Decode(at_once) => format!("decode, {at_once} at once (tokens/s)"),
            Self::BandwidthShare => "decode alone of the memory's bandwidth (%)".to_owned(),
            Self::FirstUnderLoad => "first token of 512 beside 8 streams (ms)".to_owned(),
            Self::PauseUnderLoad => "longest pause of those streams (ms)".to_owned(),
            Self::AnonymousAtLoad => "anonymous memory after load (MiB)".to_owned(),
            Self::AnonymousAfter => "anonymous memory at the end (MiB)".to_owned(),
            Self::FileAfter => "mapped file memory at the end (MiB)".to_owned(),
            Self::ProportionalAfter => "memory in all, PSS (MiB)".to_owned(),
            Self::Speculation(text, at_once, is_on) => {
                let with = if is_on {
                    "with proposals"
                } else {
                    "without proposals"
                };
                format!("{}, {at_once} at once, {with} (tokens/s)", text.name())
            }
            Self::Agreement => "same text as llama-server (%)".to_owned(),
        }
    }

    fn more_is_better(self) -> bool {
        matches!(
            self,
            Self::ColdShare
                | Self::Prefill(_)
                | Self::Decode(_)
                | Self::BandwidthShare
                | Self::Speculation(..)
                | Self::Agreement
        )
    }

    /// The target for this crate's engine: a ratio to the other engine, or an absolute number.
    fn aim(self, file: &str, other: Engine) -> Option<Aim> {
        match (self, other) {
            (Self::Decode(1), Engine::Llama) if file == "q8_0" => Some(Aim::Ratio(1.3)),
            (Self::Decode(1), Engine::Llama) if file == "q4_k_m" => Some(Aim::Ratio(1.0)),
            (Self::Decode(8), Engine::Llama) if file == "q8_0" => Some(Aim::Ratio(1.5)),
            (Self::Decode(8), Engine::Llama) if file == "q4_k_m" => Some(Aim::Ratio(1.2)),
            (Self::Prefill(_), Engine::Llama) => Some(Aim::Ratio(1.0)),
            (Self::Decode(8), Engine::Transformers) => Some(Aim::Ratio(3.0)),
            (Self::Prefill(_), Engine::Transformers) => Some(Aim::Ratio(0.5)),
            (Self::ColdShare, _) => Some(Aim::AtLeast(90.0)),
            (Self::BandwidthShare, _) => Some(Aim::AtLeast(60.0)),
            (Self::WarmReady, _) => Some(Aim::AtMost(300.0)),
            _ => None,
        }
    }
}

enum Aim {
    Ratio(f64),
    AtLeast(f64),
    AtMost(f64),
}

/// Median, minimum and maximum.
struct Spread {
    middle: f64,
    least: f64,
    most: f64,
}

impl Spread {
    fn new(numbers: &[f64]) -> Option<Self> {
        let mut sorted = numbers.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (least, most) = (*sorted.first()?, *sorted.last()?);
        let half = sorted.len() / 2;
        let middle = if sorted.len().is_multiple_of(2) {
            f64::midpoint(sorted[half - 1], sorted[half])
        } else {
            sorted[half]
        };
        Some(Self {
            middle,
            least,
            most,
        })
    }

    fn written(&self, digits: impl Fn(f64) -> String) -> String {
        if self.least == self.most {
            return digits(self.middle);
        }
        format!(
            "{} ({}–{})",
            digits(self.middle),
            digits(self.least),
            digits(self.most)
        )
    }
}

fn number(number: f64) -> String {
    let digits = if number >= 100.0 { 0 } else { 1 };
    format!("{number:.digits$}")
}

fn factor(number: f64) -> String {
    format!("{number:.2} ×")
}

/// Prints a table for this engine against each other engine with the same file, and for this engine at eight bits against
/// `transformers` in BF16.
pub fn print(results: &Results) {
    for (ours, measured) in results
        .iter()
        .filter(|(subject, _)| subject.engine == Engine::Ours)
    {
        let others = results.iter().filter(|(other, _)| {
            let is_same = other.file == ours.file;
            let is_rival =
                ours.file == "q8_0" && other.file == "bf16" && other.engine == Engine::Transformers;
            other.shape == ours.shape && other.engine != Engine::Ours && (is_same || is_rival)
        });
        let mut is_alone = true;
        for (other, against) in others {
            is_alone = false;
            print_pair(ours, measured, other, against);
        }
        if is_alone {
            print_alone(ours, measured);
        }
    }
    let without_ours = results.iter().filter(|(subject, _)| {
        subject.engine != Engine::Ours
            && !results
                .keys()
                .any(|other| other.engine == Engine::Ours && other.shape == subject.shape)
    });
    for (subject, measured) in without_ours {
        print_alone(subject, measured);
    }
}

fn print_alone(subject: &Subject, measured: &BTreeMap<Measure, Vec<f64>>) {
    println!(
        "\n### {} {}: {}\n",
        subject.shape,
        subject.file,
        subject.engine.name()
    );
    println!("| | {} |\n|---|---|", subject.engine.name());
    for (measure, numbers) in measured {
        if let Some(spread) = Spread::new(numbers) {
            println!("| {} | {} |", measure.label(), spread.written(number));
        }
    }
}

fn print_pair(
    ours: &Subject,
    measured: &BTreeMap<Measure, Vec<f64>>,
    other: &Subject,
    against: &BTreeMap<Measure, Vec<f64>>,
) {
    let name = other.engine.name();
    println!(
        "\n### {}: ours with {} against {name} with {}\n",
        ours.shape, ours.file, other.file
    );
    println!("| | ours | {name} | ours is better by | aim |\n|---|---|---|---|---|");
    for (&measure, numbers) in measured {
        let theirs = against.get(&measure);
        let ratios: Vec<f64> = numbers
            .iter()
            .zip(theirs.into_iter().flatten())
            .map(|(ours, theirs)| {
                if measure.more_is_better() {
                    ours / theirs
                } else {
                    theirs / ours
                }
            })
            .collect();
        let (Some(spread), ratio) = (Spread::new(numbers), Spread::new(&ratios)) else {
            continue;
        };
        let verdict = |holds: bool| if holds { "holds" } else { "missed" };
        let aim = match (measure.aim(&ours.file, other.engine), &ratio) {
            (Some(Aim::Ratio(least)), Some(ratio)) => {
                format!("≥ {} {}", factor(least), verdict(ratio.middle >= least))
            }
            (Some(Aim::AtLeast(least)), _) => {
                format!("≥ {least} {}", verdict(spread.middle >= least))
            }
            (Some(Aim::AtMost(most)), _) => format!("≤ {most} {}", verdict(spread.middle <= most)),
            _ => String::new(),
        };
        let theirs = theirs
            .and_then(|numbers| Spread::new(numbers))
            .map_or_else(|| "–".to_owned(), |theirs| theirs.written(number));
        let ratio = ratio.map_or_else(|| "–".to_owned(), |ratio| ratio.written(factor));
        println!(
            "| {} | {} | {theirs} | {ratio} | {aim} |",
            measure.label(),
            spread.written(number)
        );
    }
}
