//! The grammars that constrain answers: compiles them beside the requests that have none, each within its turn, its time and
//! its memory, and keeps the last ones.

mod compiler;
mod constraint;
mod kept;
mod plain;
mod trial;
mod turns;
mod width;

pub(crate) use constraint::Constraint;
pub use trial::try_grammar;

use crate::api_error::ApiError;
use crate::loading::LoadedModel;
use crate::options::TrialProgram;
use crate::tokenizer::ModelTokenizer;
use axum::http::StatusCode;
use compiler::JSON_SPACE;
use kept::Kept;
use llguidance::ParserFactory;
use llguidance::api::TopLevelGrammar;
use serde_json::{Value, json};
use std::fmt::Write;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::timeout;
use trial::Failed;
use turns::Turns;

/// How long a request waits for its own grammar.
const COMPILE_TIME_MAX: Duration = Duration::from_secs(10);
/// How the matcher says that no token may come first.
const NOTHING_FITS: &str = "NoExtensionBias";

/// What an answer must be.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Grammar {
    /// JSON of a schema. `lenient` ignores words of the schema that cannot be enforced.
    Json { schema: Value, lenient: bool },
    /// A text that the expression matches as a whole.
    Regex(String),
    /// One of these texts.
    Choice(Vec<String>),
    /// A grammar in Lark's form.
    Lark(String),
}

impl Grammar {
    fn compiled_form(&self) -> TopLevelGrammar {
        match self {
            Self::Json { schema, lenient } => {
                TopLevelGrammar::from_json_schema(with_options(schema.clone(), *lenient))
            }
            Self::Regex(expression) => TopLevelGrammar::from_regex(expression),
            Self::Choice(texts) => {
                let texts: Vec<String> = texts.iter().map(|text| quoted(text)).collect();
                TopLevelGrammar::from_lark(format!("start: {}", texts.join(" | ")))
            }
            Self::Lark(grammar) => TopLevelGrammar::from_lark(grammar.clone()),
        }
    }
}

/// A text as a literal of a Lark grammar.
pub(crate) fn quoted(text: &str) -> String {
    // Lark's strings are JSON's, save that DEL must be escaped too.
    Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}

/// A schema with the compiler's own options in it, in the place where it looks for them; a client's are replaced.
pub(crate) fn with_options(schema: Value, lenient: bool) -> Value {
    let mut object = match schema {
        Value::Object(object) => object,
        Value::Bool(false) => return Value::Bool(false),
        _ => serde_json::Map::new(),
    };
    object.insert(
        "x-guidance".to_owned(),
        json!({"whitespace_pattern": JSON_SPACE, "lenient": lenient}),
    );
    Value::Object(object)
}

/// The grammars of one model.
pub(crate) struct Grammars {
    /// Made at the first use, because most requests have no grammar.
    factory: OnceLock<Result<ParserFactory, String>>,
    kept: Mutex<Kept>,
    turns: Turns,
    /// Where grammars are tried that may be dear; without one they are compiled here at once.
    trial: Option<TrialProgram>,
}

/// A grammar as the library takes it, and the text that it is known by.
struct Wanted {
    form: TopLevelGrammar,
    text: String,
}

impl Wanted {
    fn new(grammar: &Grammar) -> Result<Self, ApiError> {
        let form = grammar.compiled_form();
        let text = serde_json::to_string(&form);
        let text = text
            .map_err(|error| ApiError::internal(format!("a grammar cannot be written: {error}")))?;
        Ok(Self { form, text })
    }
}

impl Grammars {
    pub fn new(trial: Option<TrialProgram>) -> Self {
        Self {
            factory: OnceLock::new(),
            kept: Mutex::default(),
            turns: Turns::new(),
            trial,
        }
    }

    /// The constraint of a grammar of `model`, compiled on threads of its own: it may take seconds, and nothing waits for it
    /// but this request and those whose grammars have no turn.
    ///
    /// # Errors
    /// 400 with the reason when it cannot be compiled, costs too much or is satisfied by nothing; `param` is the field it came
    /// with. 503 when too many others are compiled.
    pub async fn compile(
        model: &Arc<LoadedModel>,
        grammar: &Grammar,
        param: &str,
    ) -> Result<Constraint, ApiError> {
        let grammars = &model.grammars;
        let wanted = Wanted::new(grammar)?;
        if let Some(known) = grammars.find(&wanted.text, &model.tokenizer, param) {
            return known;
        }
        grammars.try_first(grammar, &wanted, model, param).await?;
        if grammars.factory.get().is_none() {
            // A large vocabulary takes its time, which is none of this grammar's.
            let own = Arc::clone(model);
            let made =
                tokio::task::spawn_blocking(move || own.grammars.factory(&own.tokenizer).is_ok());
            made.await.map_err(|_| failed())?;
        }
        let turn = grammars.turns.compilation(param).await?;
        let (tell, reply) = oneshot::channel();
        let own = Arc::clone(model);
        let (text, field) = (wanted.text.clone(), param.to_owned());
        std::thread::Builder::new()
            .name("grammar-turn".to_owned())
            .spawn(move || {
                let made = own.grammars.make(wanted, &own.tokenizer, &field);
                drop(turn);
                let _ = tell.send(made);
            })
            .map_err(|error| ApiError::internal(format!("the system gives no thread ({error})")))?;
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

    /// Tries a grammar in another process, unless its form alone says that it is cheap.
    async fn try_first(
        &self,
        grammar: &Grammar,
        wanted: &Wanted,
        model: &LoadedModel,
        param: &str,
    ) -> Result<(), ApiError> {
        let Some(program) = &self.trial else {
            return Ok(());
        };
        if plain::is_plain(grammar) {
            return Ok(());
        }
        let turn = self.turns.trial(param).await?;
        // A request with the same grammar may have found out meanwhile.
        let known = self.find(&wanted.text, &model.tokenizer, param);
        if let Some(known) = known {
            return known.map(drop);
        }
        self.turns.tried.fetch_add(1, Relaxed);
        let tried = trial::run(program, wanted.form.clone(), &model.tokenizer).await;
        drop(turn);
        match tried {
            Ok(()) => Ok(()),
            Err(Failed::TooDear(reason)) => {
                self.turns.refused.fetch_add(1, Relaxed);
                self.kept().refuse(wanted.text.clone(), reason.clone());
                Err(refused(param, &reason))
            }
            Err(Failed::Untried(reason)) => Err(ApiError {
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

    /// Compiles a grammar on this thread's time, or takes it from those that are kept.
    ///
    /// # Errors
    /// As [`Self::compile`].
    #[cfg(test)]
    pub fn constraint(
        &self,
        grammar: &Grammar,
        tokenizer: &ModelTokenizer,
        param: &str,
    ) -> Result<Constraint, ApiError> {
        self.make(Wanted::new(grammar)?, tokenizer, param)
    }

    fn make(
        &self,
        wanted: Wanted,
        tokenizer: &ModelTokenizer,
        param: &str,
    ) -> Result<Constraint, ApiError> {
        if let Some(known) = self.find(&wanted.text, tokenizer, param) {
            return known;
        }
        let factory = self.factory(tokenizer).map_err(|reason| {
            ApiError::field(
                param,
                format!("`{param}`: this model's tokenizer cannot be held to a grammar ({reason})"),
            )
        })?;
        let compiled = compiler::compile(factory, wanted.form);
        let compiled = compiled.map_err(|reason| refused(param, &reason))?;
        let matcher = compiled.matcher.clone();
        self.kept().keep(wanted.text, compiled);
        Ok(constraint_of(matcher, tokenizer))
    }

    /// What is known of a grammar.
    fn find(
        &self,
        text: &str,
        tokenizer: &ModelTokenizer,
        param: &str,
    ) -> Option<Result<Constraint, ApiError>> {
        let known = self.kept().find(text)?;
        let known = known.map_err(|reason| refused(param, &reason));
        Some(known.map(|matcher| constraint_of(matcher, tokenizer)))
    }

    fn factory(&self, tokenizer: &ModelTokenizer) -> Result<&ParserFactory, &String> {
        let made = self.factory.get_or_init(|| {
            let texts = &tokenizer.token_texts;
            let words = (0..tokenizer.vocabulary as u32).map(|token| {
                let bytes = texts.bytes(token);
                match texts.special.contains(&token) {
                    true => compiler::special(bytes),
                    false => bytes.to_vec(),
                }
            });
            compiler::factory(words.collect())
        });
        made.as_ref()
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// In the text form of Prometheus.
    pub fn text(&self) -> String {
        let kept = (
            "kept_bytes",
            "gauge",
            "Memory of the compiled grammars that are kept, about.",
            self.kept().bytes() as u64,
        );
        let mut text = String::new();
        for (name, kind, help, value) in self.turns.gauges().into_iter().chain([kept]) {
            let name = format!("candle_engine_grammars_{name}");
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}"
            );
        }
        text
    }
}

fn constraint_of(matcher: llguidance::Matcher, tokenizer: &ModelTokenizer) -> Constraint {
    Constraint::new(matcher, tokenizer.vocabulary as u32)
}

fn failed() -> ApiError {
    ApiError::internal("the engine failed on the grammar of this request")
}

fn refused(param: &str, reason: &str) -> ApiError {
    let reason = match reason.contains(NOTHING_FITS) {
        true => "no text satisfies it; change the grammar",
        false => reason,
    };
    ApiError::field(param, format!("`{param}` cannot be followed: {reason}"))
}

#[cfg(test)]
mod tests;
