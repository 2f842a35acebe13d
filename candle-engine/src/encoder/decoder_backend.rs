//! Vectors and scores from the hidden states of a decoder. Its texts join and leave the running batch like any request.

use super::network::Sequence;
use super::pooling::{Pooling, Reduction};
use super::purpose::{NamedToken, SCORE_WEIGHTS, ScoreBy, ScorePlan};
use super::queue::{EncoderResult, finite};
use crate::api_error::ApiError;
use crate::batch::{Batch, Generator, StatesRequest};
use crate::error::EngineError;
use crate::files::{EMBEDDING, HEAD, ModelFiles};
use crate::kernels::Matrix;
use crate::loading::LoadedModel;
use crate::options::WAITING_REQUESTS_MAX;
use crate::sleep::Sleeper;
use crate::tokenizer::ModelTokenizer;
use axum::http::StatusCode;
use futures_util::{StreamExt, TryStreamExt, stream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::Semaphore;

/// Maximum number of texts in the batch. It matches the maximum number of rows in a step, and stays below the batch's queue limit.
const TEXTS_AT_ONCE: usize = 512;
/// Maximum number of texts per request in the batch, which lets requests take turns.
const TEXTS_OF_REQUEST: usize = 64;

/// A decoder that computes vectors or scores.
pub(crate) struct DecoderBackend {
    model: Arc<LoadedModel>,
    batch: Arc<Batch>,
    output: Output,
    /// Components that free memory while the engine sleeps.
    pub sleepers: Vec<Arc<dyn Sleeper>>,
    turns: Semaphore,
    requests: AtomicUsize,
}

/// Conversion of hidden states into the result.
pub(crate) enum Output {
    Vectors(Arc<Pooling>),
    Scores(ScoreHead),
}

impl DecoderBackend {
    pub fn new(
        model: Arc<LoadedModel>,
        batch: Arc<Batch>,
        output: Output,
        sleepers: Vec<Arc<dyn Sleeper>>,
    ) -> Self {
        Self {
            model,
            batch,
            output,
            sleepers,
            turns: Semaphore::new(TEXTS_AT_ONCE),
            requests: AtomicUsize::new(0),
        }
    }

    pub fn generator(&self) -> &Generator {
        &self.model.generator
    }

    /// Computes a vector for each text; a score is a vector of length one. Dropping the future cancels it.
    pub async fn compute(&self, sequences: Vec<Sequence>) -> EncoderResult {
        let _place = self.enter()?;
        let texts = stream::iter(sequences);
        let vectors = texts.map(|sequence| self.compute_one(sequence));
        let vectors: Vec<_> = vectors.buffered(TEXTS_OF_REQUEST).try_collect().await?;
        let Output::Vectors(pooling) = &self.output else {
            return finite(vectors);
        };
        let pooling = Arc::clone(pooling);
        let after = tokio::task::spawn_blocking(move || pooling.after(vectors));
        let failed = || ApiError::internal("the engine failed on this request");
        let vectors = after.await.map_err(|_| failed())?;
        finite(vectors.map_err(|error| {
            ApiError::internal(format!(
                "the device failed: {}",
                crate::error::one_line(error)
            ))
        })?)
    }

    async fn compute_one(&self, sequence: Sequence) -> Result<Vec<f32>, ApiError> {
        let ended = || ApiError::internal("the engine's thread has ended");
        let _turn = self.turns.acquire().await.map_err(|_| ended())?;
        let mut tokens = sequence.tokens;
        if let Output::Scores(head) = &self.output {
            head.drop_padding(&mut tokens);
        }
        let of_all = match &self.output {
            Output::Vectors(pooling) => !pooling.is_of([Reduction::LastToken]),
            Output::Scores(_) => false,
        };
        let states = self.batch.states(StatesRequest { tokens, of_all })?;
        let rows = states.await.map_err(|_| ended())??;
        match &self.output {
            Output::Vectors(pooling) => pooling.of_rows(&rows, sequence.passed_over),
            Output::Scores(head) => rows.last().map(|row| vec![head.logit(row)]),
        }
        .ok_or_else(|| ApiError::internal("the batch gave no hidden states"))
    }

    /// # Errors
    /// 429 if too many requests are active.
    fn enter(&self) -> Result<ActiveRequest<'_>, ApiError> {
        let before = self.requests.fetch_add(1, Ordering::Relaxed);
        let place = ActiveRequest(&self.requests);
        if before < WAITING_REQUESTS_MAX {
            return Ok(place);
        }
        Err(ApiError::with_status(
            StatusCode::TOO_MANY_REQUESTS,
            "queue_full",
            format!(
                "{WAITING_REQUESTS_MAX} requests are already waiting for this engine; try again later"
            ),
        ))
    }
}

/// Counts a request as active until dropped.
struct ActiveRequest<'a>(&'a AtomicUsize);

impl Drop for ActiveRequest<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Computes a score from the last hidden state.
pub(crate) struct ScoreHead {
    yes: Vec<f32>,
    no: Option<Vec<f32>>,
    /// Scaling and soft cap, as for the decoder's own logits.
    factor: f32,
    cap: Option<f32>,
    /// Padding token to strip from the end of texts.
    padding: Option<u32>,
}

impl ScoreHead {
    /// Reads the rows of the weight matrix that the score needs.
    ///
    /// # Errors
    /// If tensors are missing or have other shapes, or the words are not single tokens.
    pub fn read(
        plan: &ScorePlan,
        files: &ModelFiles,
        tokenizer: &ModelTokenizer,
    ) -> Result<Self, EngineError> {
        let spec = files.spec()?;
        let (yes, no) = match &plan.by {
            ScoreBy::Row => {
                let [usual, bare] = SCORE_WEIGHTS;
                let padding = files.config()["pad_token_id"].as_u64();
                let name = match files.maybe_tensor(usual)? {
                    Some(_) => usual,
                    None => bare,
                };
                return Ok(Self {
                    yes: row(files, name, 0, 1)?,
                    no: None,
                    factor: 1.0,
                    cap: None,
                    padding: padding.and_then(|id| u32::try_from(id).ok()),
                });
            }
            ScoreBy::Tokens { yes, no } => (yes, no),
        };
        let name = if spec.ties_head { EMBEDDING } else { HEAD };
        let row_of = |word: &NamedToken| {
            let id = match word {
                NamedToken::Id(id) => Some(*id),
                NamedToken::Text(text) => tokenizer.token_of(text),
            };
            let id = id.filter(|id| (*id as usize) < tokenizer.vocabulary);
            let id = id.ok_or_else(|| {
                EngineError::model(
                    files.description(),
                    format!("its scores use the token {word}, which its tokenizer does not have"),
                    "serve a reranker, or leave the option task out",
                )
            })?;
            row(files, name, id as usize, spec.vocabulary)
        };
        Ok(Self {
            yes: row_of(yes)?,
            no: no.as_ref().map(row_of).transpose()?,
            factor: spec.logit_factor,
            cap: spec.logit_cap,
            padding: None,
        })
    }

    /// `transformers` scores after the last token that is not padding. It treats every token with the padding id as padding,
    /// including an end token with the same id.
    fn drop_padding(&self, tokens: &mut Vec<u32>) {
        if let Some(padding) = self.padding {
            let last = tokens.iter().rposition(|token| *token != padding);
            tokens.truncate(last.unwrap_or(0) + 1);
        }
    }

    fn logit(&self, state: &[f32]) -> f32 {
        let of = |row: &[f32]| {
            let products = row.iter().zip(state);
            let sum = products.map(|(one, other)| f64::from(*one) * f64::from(*other));
            let logit = sum.sum::<f64>() * f64::from(self.factor);
            match self.cap.map(f64::from) {
                Some(cap) => cap * (logit / cap).tanh(),
                None => logit,
            }
        };
        (of(&self.yes) - self.no.as_deref().map_or(0.0, of)) as f32
    }
}

/// Reads one row of a matrix with `rows` rows.
fn row(files: &ModelFiles, name: &str, index: usize, rows: usize) -> Result<Vec<f32>, EngineError> {
    let hidden = files.spec()?.hidden;
    let wrong = |problem: String| {
        EngineError::model(
            files.description(),
            problem,
            "the weights do not belong to this description: download the model's files again",
        )
    };
    let stored = files.tensor(name)?;
    if stored.shape != [rows, hidden] {
        return Err(wrong(format!(
            "the tensor {name} has shape {:?}, and {:?} is needed",
            stored.shape,
            [rows, hidden]
        )));
    }
    let matrix = Matrix::new(stored).map_err(|problem| wrong(format!("{name}: {problem}")))?;
    let mut numbers = vec![0.0; hidden];
    matrix.row(index, &mut numbers);
    if numbers.iter().all(|number| number.is_finite()) {
        Ok(numbers)
    } else {
        Err(wrong(format!("the tensor {name} has no finite numbers")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_score_is_the_logit_difference_after_the_last_non_padding_token() {
        let head = |no, factor, cap| ScoreHead {
            yes: vec![1.0, 2.0],
            no,
            factor,
            cap,
            padding: Some(0),
        };
        let state = [3.0, -1.0];
        assert_eq!(head(None, 1.0, None).logit(&state), 1.0);
        assert_eq!(head(Some(vec![1.0, 0.0]), 0.5, None).logit(&state), -1.0);
        let dropped = |mut tokens: Vec<u32>| {
            head(None, 1.0, None).drop_padding(&mut tokens);
            tokens
        };
        assert_eq!(dropped(vec![5, 0, 6, 0, 0]), [5, 0, 6]);
        assert_eq!(dropped(vec![0, 0]), [0]);
        let capped = head(Some(vec![1.0, 0.0]), 1.0, Some(2.0)).logit(&state);
        assert!((capped - (2.0 * 0.5f32.tanh() - 2.0 * 1.5f32.tanh())).abs() < 1e-6);
    }
}
