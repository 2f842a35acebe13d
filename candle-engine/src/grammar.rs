//! Compiles the grammars that constrain answers, keeps the last ones, and says which tokens may come next.

use crate::api_error::ApiError;
use crate::error::one_line;
use crate::tokenizer::ModelTokenizer;
use llguidance::api::TopLevelGrammar;
use llguidance::toktrie::{ApproximateTokEnv, TokEnv, TokRxInfo, TokTrie};
use llguidance::{Matcher, ParserFactory};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::panic::catch_unwind;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Compiled grammars that are kept; one is some megabytes at most.
const KEPT_GRAMMARS: usize = 32;
/// White space between the parts of JSON is bounded, so that a model cannot fill its answer with it.
const JSON_SPACE: &str = r"[ \n\r\t]{1,20}";
/// Address space; what is not used is no memory.
const COMPILER_STACK_BYTES: usize = 256 * 1024 * 1024;
const REASON_LETTERS_MAX: usize = 300;
/// Ways on that a grammar may have at one place, and those that may be tried for all tokens together: an object of as many
/// optional properties as a schema has room for has about twice as many. 20,000 of them take a millisecond.
const WAYS_MAX: usize = 50_000;
const WAYS_TRIED_MAX: usize = 1_000_000;
/// How the matcher says that no token may come first.
const NOTHING_FITS: &str = "NoExtensionBias";
/// So many tokens are gone before a grammar is taken, so that one that cannot be followed is refused at once.
const TRIED_TOKENS: usize = 24;

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
    compiled: Mutex<VecDeque<(String, Matcher)>>,
    /// One at a time, so that grammars take one core from the answers and no more.
    compiling: Mutex<()>,
}

impl Grammars {
    pub fn new() -> Self {
        Self {
            factory: OnceLock::new(),
            compiled: Mutex::new(VecDeque::new()),
            compiling: Mutex::new(()),
        }
    }

    /// Compiles a grammar, or takes it from those that are kept. It takes milliseconds of a core.
    ///
    /// # Errors
    /// 400 with the reason when it cannot be compiled or nothing satisfies it; `param` is the field it came with.
    pub fn constraint(
        &self,
        grammar: &Grammar,
        tokenizer: &ModelTokenizer,
        param: &str,
    ) -> Result<Constraint, ApiError> {
        let factory = self.factory.get_or_init(|| factory(tokenizer));
        let factory = factory.as_ref().map_err(|reason| {
            ApiError::field(
                param,
                format!("`{param}`: this model's tokenizer cannot be held to a grammar ({reason})"),
            )
        })?;
        let form = grammar.compiled_form();
        let key = serde_json::to_string(&form)
            .map_err(|error| ApiError::internal(format!("a grammar cannot be written: {error}")))?;
        let kept = self.kept().iter().find(|(known, _)| *known == key).cloned();
        let matcher = match kept {
            Some((_, matcher)) => matcher,
            None => {
                let turn = self
                    .compiling
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner);
                let matcher = compile(factory, form).map_err(|reason| refused(param, &reason))?;
                drop(turn);
                let mut kept = self.kept();
                kept.push_back((key, matcher.clone()));
                if kept.len() > KEPT_GRAMMARS {
                    kept.pop_front();
                }
                matcher
            }
        };
        Ok(Constraint {
            // Its own memory, so that answers on several threads do not wait for each other.
            matcher: matcher.deep_clone(),
            end: tokenizer.vocabulary as u32,
        })
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, VecDeque<(String, Matcher)>> {
        self.compiled.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn refused(param: &str, reason: &str) -> ApiError {
    let reason = match reason.contains(NOTHING_FITS) {
        true => "no text satisfies it; change the grammar",
        false => reason,
    };
    ApiError::field(param, format!("`{param}` cannot be followed: {reason}"))
}

fn shortened(reason: &str) -> String {
    one_line(reason).chars().take(REASON_LETTERS_MAX).collect()
}

/// A factory whose vocabulary has one token more than the model's: the end of an answer, whatever tokens end it.
fn factory(tokenizer: &ModelTokenizer) -> Result<ParserFactory, String> {
    let vocabulary = &tokenizer.token_texts;
    let mut bytes: Vec<Vec<u8>> = (0..tokenizer.vocabulary as u32)
        .map(|token| {
            let marker = vocabulary
                .special
                .contains(&token)
                .then_some(TokTrie::SPECIAL_TOKEN_MARKER);
            marker
                .into_iter()
                .chain(vocabulary.bytes(token).iter().copied())
                .collect()
        })
        .collect();
    let mut end = vec![TokTrie::SPECIAL_TOKEN_MARKER];
    end.extend(b"<end of answer>");
    bytes.push(end);
    let info = TokRxInfo::new(bytes.len() as u32, tokenizer.vocabulary as u32);
    let made = catch_unwind(|| {
        let environment: TokEnv = Arc::new(ApproximateTokEnv::new(TokTrie::from(&info, &bytes)));
        let mut factory = ParserFactory::new_simple(&environment)?;
        factory.quiet();
        let limits = factory.limits_mut();
        limits.verbose_errors = false;
        limits.max_items_in_row = WAYS_MAX;
        limits.step_max_items = WAYS_TRIED_MAX;
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(factory)
    });
    match made {
        Ok(Ok(factory)) => Ok(factory),
        Ok(Err(error)) => Err(shortened(&error.to_string())),
        Err(_) => Err("its tokens are not understood".to_owned()),
    }
}

/// Compiles on a thread of its own, whose stack is as deep as the largest grammar that is taken may need it: the compiler goes
/// down one level for each reference from one definition to the next.
fn compile(factory: &ParserFactory, form: TopLevelGrammar) -> Result<Matcher, String> {
    std::thread::scope(|scope| {
        let compiling = std::thread::Builder::new()
            .name("grammar".to_owned())
            .stack_size(COMPILER_STACK_BYTES)
            .spawn_scoped(scope, || {
                let mut matcher = Matcher::new(factory.create_parser(form));
                let first = matcher.compute_mask_or_eos();
                let first = match first.map(|mask| mask.is_zero()) {
                    Ok(false) => tried(matcher.deep_clone(), factory.tok_env().tok_trie()),
                    Ok(true) => Ok(true),
                    Err(error) => Err(shortened(&error.to_string())),
                };
                (matcher, first)
            });
        let compiling =
            compiling.map_err(|error| format!("the system gives no thread ({error})"))?;
        match compiling.join() {
            Ok((matcher, Ok(false))) => Ok(matcher),
            Ok((_, Ok(true))) => Err("no text satisfies it".to_owned()),
            Ok((_, Err(reason))) => Err(reason),
            Err(_) => Err("it is not understood".to_owned()),
        }
    })
}

/// Follows a grammar for some tokens, white space aside. Whether it comes to a place where nothing may follow, not even the end.
fn tried(mut matcher: Matcher, vocabulary: &TokTrie) -> Result<bool, String> {
    let is_text = |token: &u32| {
        let first = vocabulary.token(*token).first();
        first.is_some_and(|byte| {
            !byte.is_ascii_whitespace() && *byte != TokTrie::SPECIAL_TOKEN_MARKER
        })
    };
    for _ in 0..TRIED_TOKENS {
        if matcher.is_stopped() {
            break;
        }
        let allowed = matcher.compute_mask_or_eos();
        let allowed = allowed.map_err(|error| shortened(&error.to_string()))?;
        let Some(next) = allowed.iter().find(is_text) else {
            return Ok(allowed.is_zero());
        };
        let gone = matcher.consume_token(next);
        gone.map_err(|error| shortened(&error.to_string()))?;
    }
    Ok(false)
}

/// A grammar on its way through one answer.
#[derive(Clone)]
pub(crate) struct Constraint {
    matcher: Matcher,
    /// The end of an answer, as the grammar has it.
    end: u32,
}

impl Constraint {
    /// A copy with a memory of its own, for another thread; a clone shares what it computes.
    pub fn apart(&self) -> Self {
        Self {
            matcher: self.matcher.deep_clone(),
            end: self.end,
        }
    }

    /// Takes away the tokens that may not come next. `ends` may come where the answer may end. Whether any token but an end
    /// is left; if not, the answer is whole.
    ///
    /// # Errors
    /// When the grammar has become too complex.
    pub fn mask(&mut self, logits: &mut [f32], ends: &[u32]) -> Result<bool, ApiError> {
        let allowed = self.matcher.compute_mask_or_eos().map_err(|error| {
            let reason = shortened(&error.to_string());
            ApiError::invalid(format!("the grammar cannot be followed any more: {reason}"))
        })?;
        let may_end = allowed.is_allowed(self.end);
        let mut goes_on = false;
        for (token, logit) in (0u32..).zip(logits.iter_mut()) {
            let is_end = ends.contains(&token);
            if allowed.is_allowed(token) {
                goes_on |= !is_end;
            } else if !(is_end && may_end) {
                *logit = f32::NEG_INFINITY;
            }
        }
        Ok(goes_on)
    }

    /// Goes on by a token that is no end.
    ///
    /// # Errors
    /// When the grammar has too many ways on from there, which is the request's.
    pub fn accept(&mut self, token: u32) -> Result<(), ApiError> {
        self.matcher.consume_token(token).map_err(|error| {
            let reason = shortened(&error.to_string());
            ApiError::invalid(format!("the grammar cannot be followed any more: {reason}"))
        })
    }

    /// Nothing may follow.
    pub fn is_complete(&self) -> bool {
        self.matcher.is_stopped()
    }
}

#[cfg(test)]
mod tests;
