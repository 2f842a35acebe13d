//! The grammars that constrain completions: compiles them with limits on concurrency, time and memory, without delaying requests
//! without a grammar, and caches the latest ones.

mod cache;
mod compiler;
pub(crate) mod compiling;
mod constraint;
mod cost;
mod trial;
mod turns;
mod width;

pub(crate) use constraint::Constraint;
pub use trial::try_grammar;

use crate::api_error::ApiError;
use crate::options::TrialProgram;
use crate::tokenizer::ModelTokenizer;
use cache::GrammarCache;
use compiler::JSON_SPACE;
use llguidance::ParserFactory;
use llguidance::api::TopLevelGrammar;
use serde_json::{Value, json};
use std::fmt::Write;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use turns::Turns;

/// The matcher's name for a state in which no token is allowed.
const NOTHING_FITS: &str = "NoExtensionBias";

/// A constraint on a completion.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Grammar {
    /// JSON that matches a schema. `lenient` ignores keywords that cannot be enforced.
    Json { schema: Value, lenient: bool },
    /// A text that matches the expression from beginning to end.
    Regex(String),
    /// A choice of texts.
    Choice(Vec<String>),
    /// A grammar in Lark syntax.
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

/// Quotes a text as a literal of a Lark grammar.
pub(crate) fn quoted(text: &str) -> String {
    // Lark strings equal JSON strings, except that DEL must be escaped too.
    Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}

/// Adds the compiler's options to a schema, replacing options from the client.
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

/// The grammar compiler and cache of one model.
pub(crate) struct Grammars {
    /// Created on first use, because most requests have no grammar.
    factory: OnceLock<Result<ParserFactory, String>>,
    kept: Mutex<GrammarCache>,
    turns: Turns,
    /// Program that tries potentially expensive grammars. Without one, they are compiled in this process directly.
    trial: Option<TrialProgram>,
}

/// A grammar in the library's form, and its cache key.
struct KeyedGrammar {
    form: TopLevelGrammar,
    text: String,
}

impl KeyedGrammar {
    fn new(grammar: &Grammar) -> Result<Self, ApiError> {
        let form = grammar.compiled_form();
        let text = serde_json::to_string(&form);
        let text = text.map_err(|error| {
            ApiError::internal(format!("a grammar cannot be serialized: {error}"))
        })?;
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

    /// Returns a grammar from the cache, or compiles it on the current thread.
    ///
    /// # Errors
    /// 400 with the reason if the grammar cannot be compiled or no text satisfies it. `param` is the field it came from.
    #[cfg(test)]
    pub fn constraint(
        &self,
        grammar: &Grammar,
        tokenizer: &ModelTokenizer,
        param: &str,
    ) -> Result<Constraint, ApiError> {
        self.make(KeyedGrammar::new(grammar)?, tokenizer, param)
    }

    fn make(
        &self,
        wanted: KeyedGrammar,
        tokenizer: &ModelTokenizer,
        param: &str,
    ) -> Result<Constraint, ApiError> {
        if let Some(known) = self.find(&wanted.text, tokenizer, param) {
            return known;
        }
        let factory = self.factory(tokenizer).map_err(|reason| {
            ApiError::field(
                param,
                format!("`{param}`: this model's tokenizer does not support grammars ({reason})"),
            )
        })?;
        let compiled = compiler::compile(factory, wanted.form);
        let compiled = compiled.map_err(|reason| refused(param, &reason))?;
        let matcher = compiled.matcher.clone();
        self.kept().keep(wanted.text, compiled);
        Ok(constraint_of(matcher, tokenizer))
    }

    /// Looks up a grammar in the cache, including cached refusals.
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

    fn kept(&self) -> MutexGuard<'_, GrammarCache> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Renders the figures in the Prometheus text format.
    pub fn text(&self) -> String {
        let kept = (
            "kept_bytes",
            "gauge",
            "Approximate memory of the cached compiled grammars, in bytes.",
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
