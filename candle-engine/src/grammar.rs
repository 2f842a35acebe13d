//! The grammars that constrain answers: compiles them beside the requests that have none, each within its turn, its time and
//! its memory, and keeps the last ones.

mod compiler;
pub(crate) mod compiling;
mod constraint;
mod kept;
mod plain;
mod trial;
mod turns;
mod width;

pub(crate) use constraint::Constraint;
pub use trial::try_grammar;

use crate::api_error::ApiError;
use crate::options::TrialProgram;
use crate::tokenizer::ModelTokenizer;
use compiler::JSON_SPACE;
use kept::Kept;
use llguidance::ParserFactory;
use llguidance::api::TopLevelGrammar;
use serde_json::{Value, json};
use std::fmt::Write;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use turns::Turns;

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

    /// Compiles a grammar on this thread's time, or takes it from those that are kept.
    ///
    /// # Errors
    /// 400 with the reason when it cannot be compiled or nothing satisfies it; `param` is the field it came with.
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
                if texts.special.contains(&token) {
                    compiler::special(bytes)
                } else {
                    bytes.to_vec()
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

fn refused(param: &str, reason: &str) -> ApiError {
    let reason = if reason.contains(NOTHING_FITS) {
        "no text satisfies it; change the grammar"
    } else {
        reason
    };
    ApiError::field(param, format!("`{param}` cannot be followed: {reason}"))
}

#[cfg(test)]
mod tests;
