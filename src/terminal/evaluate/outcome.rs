//! What came of an evaluation: an answer or a failure for each prompt and model, and their sums. Pure.

use std::time::Duration;

use serde_json::{Value, json};

use super::prompts::Prompt;
use crate::answer::Answer;

/// Of one prompt and one model.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    Answer(Box<Answer>),
    Failure(String),
}

#[derive(Clone, Debug)]
pub struct Evaluation {
    pub models: Vec<String>,
    pub prompts: Vec<Prompt>,
    /// By prompt, then by model; `None`: it was not asked.
    outcomes: Vec<Vec<Option<Outcome>>>,
}

/// The sums of one model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sums {
    pub answers: usize,
    pub failures: usize,
    pub prompt_tokens: u64,
    pub answer_tokens: u64,
    /// The middle of the times to the first token and to the last, after the wait for the model.
    pub first_token: Option<Duration>,
    pub whole: Option<Duration>,
    /// The longest wait for the model.
    pub waited: Duration,
}

impl Evaluation {
    pub fn new(models: Vec<String>, prompts: Vec<Prompt>) -> Evaluation {
        Evaluation {
            outcomes: vec![vec![None; models.len()]; prompts.len()],
            models,
            prompts,
        }
    }

    pub fn set(&mut self, row: usize, column: usize, outcome: Outcome) {
        self.outcomes[row][column] = Some(outcome);
    }

    pub fn of_prompt(&self, row: usize) -> &[Option<Outcome>] {
        &self.outcomes[row]
    }

    pub fn asked(&self) -> usize {
        self.outcomes.iter().flatten().flatten().count()
    }

    pub fn failed(&self) -> usize {
        let outcomes = self.outcomes.iter().flatten().flatten();
        outcomes
            .filter(|it| matches!(it, Outcome::Failure(_)))
            .count()
    }

    pub fn sums(&self, column: usize) -> Sums {
        let mut sums = Sums::default();
        let (mut firsts, mut wholes) = (Vec::new(), Vec::new());
        for outcome in self.outcomes.iter().filter_map(|row| row[column].as_ref()) {
            let Outcome::Answer(answer) = outcome else {
                sums.failures += 1;
                continue;
            };
            sums.answers += 1;
            let usage = answer.usage.unwrap_or_default();
            sums.prompt_tokens += usage.prompt_tokens.unwrap_or(0);
            sums.answer_tokens += usage.completion_tokens.unwrap_or(answer.pieces);
            let waited = answer.waited.unwrap_or_default();
            sums.waited = sums.waited.max(waited);
            firsts.extend(answer.first_at.map(|at| at.saturating_sub(waited)));
            wholes.extend(answer.last_at.map(|at| at.saturating_sub(waited)));
        }
        sums.first_token = middle(firsts);
        sums.whole = middle(wholes);
        sums
    }

    pub fn to_json(&self) -> Value {
        let models = self.models.iter().enumerate().map(|(column, model)| {
            let sums = self.sums(column);
            json!({
                "model": model,
                "answers": sums.answers,
                "failures": sums.failures,
                "prompt_tokens": sums.prompt_tokens,
                "completion_tokens": sums.answer_tokens,
                "median_first_token_ms": sums.first_token.map(milliseconds),
                "median_whole_ms": sums.whole.map(milliseconds),
                "longest_wait_ms": milliseconds(sums.waited),
            })
        });
        let prompts = self.prompts.iter().zip(&self.outcomes).map(|(prompt, row)| {
            let answers = self.models.iter().zip(row).map(|(model, outcome)| match outcome {
                None => json!({"model": model, "error": "was not asked"}),
                Some(Outcome::Failure(error)) => json!({"model": model, "error": error}),
                Some(Outcome::Answer(answer)) => json!({
                    "model": model,
                    "text": answer.text,
                    "reasoning": Some(&answer.reasoning).filter(|it| !it.is_empty()),
                    "finish_reason": answer.finish,
                    "prompt_tokens": answer.usage.and_then(|it| it.prompt_tokens),
                    "completion_tokens": answer.usage.and_then(|it| it.completion_tokens),
                    "first_token_ms": answer.first_at.map(milliseconds),
                    "whole_ms": answer.last_at.map(milliseconds),
                    "waited_ms": answer.waited.map(milliseconds),
                }),
            });
            json!({"line": prompt.line, "prompt": prompt.text, "answers": answers.collect::<Vec<_>>()})
        });
        json!({"models": models.collect::<Vec<_>>(), "prompts": prompts.collect::<Vec<_>>()})
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn middle(mut times: Vec<Duration>) -> Option<Duration> {
    times.sort();
    times.get(times.len() / 2).copied()
}
