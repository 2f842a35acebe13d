//! The results of an evaluation: a response or a failure for each prompt and model, and their totals. Pure.

use std::time::Duration;

use serde_json::{Value, json};

use super::judge::{Case, Verdict};
use super::prompts::Prompt;
use crate::response::ModelResponse;

/// The result for one prompt and one model.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    Answer(Box<ModelResponse>),
    Failure(String),
}

/// The judge's result for one prompt.
#[derive(Clone, Debug, PartialEq)]
pub enum Judgement {
    Verdict(Verdict),
    Failure(String),
}

#[derive(Clone, Debug)]
pub struct Evaluation {
    pub models: Vec<String>,
    pub prompts: Vec<Prompt>,
    /// By prompt, then by model; `None` if the request was not sent.
    outcomes: Vec<Vec<Option<Outcome>>>,
    /// The model that ranks the answers.
    pub judge: Option<String>,
    /// By prompt; `None` if there were fewer than two responses, or the judge was not called.
    pub judgements: Vec<Option<Judgement>>,
}

/// The totals of one model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sums {
    pub responses: usize,
    pub failures: usize,
    pub prompt_tokens: u64,
    pub response_tokens: u64,
    /// Median times to the first and the last token, after the wait for the model.
    pub first_token: Option<Duration>,
    pub total: Option<Duration>,
    /// The longest wait for the model.
    pub waited: Duration,
    /// Number of verdicts on its responses, number of first places, and sum of its ranks from 1.
    pub verdicts: usize,
    pub firsts: usize,
    pub ranks: usize,
}

impl Sums {
    /// The mean rank.
    pub fn rank(&self) -> Option<f64> {
        (self.verdicts > 0).then(|| self.ranks as f64 / self.verdicts as f64)
    }
}

impl Evaluation {
    pub fn new(models: Vec<String>, prompts: Vec<Prompt>) -> Evaluation {
        Evaluation {
            outcomes: vec![vec![None; models.len()]; prompts.len()],
            judge: None,
            judgements: vec![None; prompts.len()],
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

    /// The judge's case for a prompt.
    pub fn case(&self, row: usize) -> Option<Case> {
        let responses = self.outcomes[row].iter().enumerate();
        let responses = responses.filter_map(|(column, outcome)| match outcome {
            Some(Outcome::Answer(response)) => Some((column, response.text.trim().to_owned())),
            _ => None,
        });
        Case::new(&self.prompts[row].text, responses.collect(), row)
    }

    /// Number of calls to the judge.
    pub fn judged(&self) -> usize {
        self.judgements.iter().flatten().count()
    }

    /// Number of calls without a verdict.
    pub fn unjudged(&self) -> usize {
        let all = self.judgements.iter().flatten();
        all.filter(|judgement| matches!(judgement, Judgement::Failure(_)))
            .count()
    }

    pub fn count(&self) -> usize {
        self.outcomes.iter().flatten().flatten().count()
    }

    pub fn failed(&self) -> usize {
        let outcomes = self.outcomes.iter().flatten().flatten();
        outcomes
            .filter(|outcome| matches!(outcome, Outcome::Failure(_)))
            .count()
    }

    pub fn sums(&self, column: usize) -> Sums {
        let mut sums = Sums::default();
        let (mut firsts, mut wholes) = (Vec::new(), Vec::new());
        for outcome in self.outcomes.iter().filter_map(|row| row[column].as_ref()) {
            let Outcome::Answer(response) = outcome else {
                sums.failures += 1;
                continue;
            };
            sums.responses += 1;
            let usage = response.usage.unwrap_or_default();
            let (prompt, completion) = (usage.prompt_tokens, usage.completion_tokens);
            sums.prompt_tokens = sums.prompt_tokens.saturating_add(prompt.unwrap_or(0));
            let completion = completion.unwrap_or(response.pieces);
            sums.response_tokens = sums.response_tokens.saturating_add(completion);
            let waited = response.waited.unwrap_or_default();
            sums.waited = sums.waited.max(waited);
            firsts.extend(response.first_at.map(|at| at.saturating_sub(waited)));
            wholes.extend(response.last_at.map(|at| at.saturating_sub(waited)));
        }
        for judgement in self.judgements.iter().flatten() {
            let Judgement::Verdict(Verdict { ranking, .. }) = judgement else {
                continue;
            };
            if let Some(place) = ranking.iter().position(|model| *model == column) {
                sums.verdicts += 1;
                sums.firsts += usize::from(place == 0);
                sums.ranks += place + 1;
            }
        }
        sums.first_token = middle(firsts);
        sums.total = middle(wholes);
        sums
    }

    pub fn to_json(&self) -> Value {
        let models = self.models.iter().enumerate().map(|(column, model)| {
            let sums = self.sums(column);
            let mut object = json!({
                "model": model,
                "answers": sums.responses,
                "failures": sums.failures,
                "prompt_tokens": sums.prompt_tokens,
                "completion_tokens": sums.response_tokens,
                "median_first_token_ms": sums.first_token.map(milliseconds),
                "median_whole_ms": sums.total.map(milliseconds),
                "longest_wait_ms": milliseconds(sums.waited),
            });
            if self.judge.is_some() {
                object["verdicts"] = json!(sums.verdicts);
                object["first_places"] = json!(sums.firsts);
                object["mean_rank"] = json!(sums.rank());
            }
            object
        });
        let rows = self
            .prompts
            .iter()
            .zip(&self.outcomes)
            .zip(&self.judgements);
        let prompts = rows.map(|((prompt, row), judgement)| {
            let responses = self.models.iter().zip(row).map(|(model, outcome)| match outcome {
                None => json!({"model": model, "error": "was not asked"}),
                Some(Outcome::Failure(error)) => json!({"model": model, "error": error}),
                Some(Outcome::Answer(response)) => json!({
                    "model": model,
                    "text": response.text,
                    "reasoning": Some(&response.reasoning).filter(|text| !text.is_empty()),
                    "finish_reason": response.finish,
                    "prompt_tokens": response.usage.and_then(|usage| usage.prompt_tokens),
                    "completion_tokens": response.usage.and_then(|usage| usage.completion_tokens),
                    "first_token_ms": response.first_at.map(milliseconds),
                    "whole_ms": response.last_at.map(milliseconds),
                    "waited_ms": response.waited.map(milliseconds),
                }),
            });
            let mut object =
                json!({"line": prompt.line, "prompt": prompt.text, "answers": responses.collect::<Vec<_>>()});
            if let Some(judgement) = judgement {
                object["verdict"] = match judgement {
                    Judgement::Failure(error) => json!({"error": error}),
                    Judgement::Verdict(verdict) => {
                        let names = verdict.ranking.iter().map(|model| &self.models[*model]);
                        json!({"ranking": names.collect::<Vec<_>>(), "reason": verdict.reason})
                    }
                };
            }
            object
        });
        let mut object =
            json!({"models": models.collect::<Vec<_>>(), "prompts": prompts.collect::<Vec<_>>()});
        if let Some(judge) = &self.judge {
            object["judge"] = json!(judge);
        }
        object
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn middle(mut times: Vec<Duration>) -> Option<Duration> {
    times.sort();
    times.get(times.len() / 2).copied()
}
