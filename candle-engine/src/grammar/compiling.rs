//! Compiles the grammar of a request without blocking others: with limited concurrency and a timeout, and after a trial in another
//! process if it may be expensive.

use super::trial::{self, TrialFailure};
use super::{Constraint, Grammar, Grammars, KeyedGrammar, cost, refused};
use crate::api_error::ApiError;
use crate::tokenizer::ModelTokenizer;
use axum::http::StatusCode;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// Compilation timeout of one grammar.
const COMPILE_TIME_MAX: Duration = Duration::from_secs(10);

/// A loaded model, for which grammars are compiled on other threads.
pub(crate) trait GrammarModel: Send + Sync + 'static {
    fn grammars(&self) -> &Grammars;
    fn tokenizer(&self) -> &ModelTokenizer;
}

/// Compiles a grammar for `model` on separate threads. Compilation may take seconds, which delays only this request and requests
/// that wait for a compilation slot.
///
/// # Errors
/// 400 with the reason if the grammar cannot be compiled, is too expensive, or no text satisfies it; `param` is the field
/// it came from. 503 if too many other grammars are being compiled.
pub(crate) async fn compile(
    model: &Arc<impl GrammarModel>,
    grammar: &Grammar,
    param: &str,
) -> Result<Constraint, ApiError> {
    let grammars = model.grammars();
    let wanted = KeyedGrammar::new(grammar)?;
    if let Some(known) = grammars.find(&wanted.text, model.tokenizer(), param) {
        return known;
    }
    try_first(grammars, grammar, &wanted, model.tokenizer(), param).await?;
    if grammars.factory.get().is_none() {
        // A large vocabulary takes time, which must not count toward this grammar's timeout.
        let own = Arc::clone(model);
        let made =
            tokio::task::spawn_blocking(move || own.grammars().factory(own.tokenizer()).is_ok());
        made.await.map_err(|_| failed())?;
    }
    let turn = grammars.turns.compilation(param).await?;
    let (tell, reply) = oneshot::channel();
    let own = Arc::clone(model);
    let (text, field) = (wanted.text.clone(), param.to_owned());
    std::thread::Builder::new()
        .name("grammar-turn".to_owned())
        .spawn(move || {
            let made = own.grammars().make(wanted, own.tokenizer(), &field);
            drop(turn);
            let _ = tell.send(made);
        })
        .map_err(|error| ApiError::internal(format!("cannot start a thread ({error})")))?;
    match timeout(COMPILE_TIME_MAX, reply).await {
        Ok(made) => made.map_err(|_| failed())?,
        Err(_) => {
            grammars.turns.given_up.fetch_add(1, Relaxed);
            let seconds = COMPILE_TIME_MAX.as_secs();
            let reason = format!(
                "the grammar takes too long to compile (more than {seconds} s); make it smaller or less complex"
            );
            grammars.kept().refuse(text, reason.clone());
            Err(refused(param, &reason))
        }
    }
}

/// Tries a grammar in another process, unless its form guarantees that it is cheap.
async fn try_first(
    grammars: &Grammars,
    grammar: &Grammar,
    wanted: &KeyedGrammar,
    tokenizer: &ModelTokenizer,
    param: &str,
) -> Result<(), ApiError> {
    let Some(program) = &grammars.trial else {
        return Ok(());
    };
    if cost::is_plain(grammar) {
        return Ok(());
    }
    let turn = grammars.turns.trial(param).await?;
    // Another request with the same grammar may have finished first.
    let known = grammars.find(&wanted.text, tokenizer, param);
    if let Some(known) = known {
        return known.map(drop);
    }
    grammars.turns.tried.fetch_add(1, Relaxed);
    let tried = trial::run(program, wanted.form.clone(), tokenizer).await;
    drop(turn);
    match tried {
        Ok(()) => Ok(()),
        Err(TrialFailure::TooDear(reason)) => {
            grammars.turns.refused.fetch_add(1, Relaxed);
            grammars.kept().refuse(wanted.text.clone(), reason.clone());
            Err(refused(param, &reason))
        }
        Err(TrialFailure::Untried(reason)) => Err(ApiError {
            param: Some(param.to_owned()),
            ..ApiError::with_status(
                StatusCode::SERVICE_UNAVAILABLE,
                "grammars_busy",
                format!(
                    "`{param}` could not be tried in a separate process: {reason}; try again in a moment"
                ),
            )
        }),
    }
}

fn failed() -> ApiError {
    ApiError::internal("the engine failed on the grammar of this request")
}
