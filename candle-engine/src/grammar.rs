//! Owns the grammars that answers are held to: compiling, keeping the last ones, and which tokens may come next. Never
//! chooses a token.

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
    ApiError::field(param, format!("`{param}` cannot be followed: {reason}"))
}

fn shortened(reason: &str) -> String {
    one_line(reason).chars().take(REASON_LETTERS_MAX).collect()
}

/// A factory whose vocabulary has one token more than the model's: the end of an answer, whatever tokens end it.
fn factory(tokenizer: &ModelTokenizer) -> Result<ParserFactory, String> {
    let words = &tokenizer.words;
    let mut bytes: Vec<Vec<u8>> = (0..tokenizer.vocabulary as u32)
        .map(|token| {
            let marker = words
                .special
                .contains(&token)
                .then_some(TokTrie::SPECIAL_TOKEN_MARKER);
            marker
                .into_iter()
                .chain(words.bytes(token).iter().copied())
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
        factory.limits_mut().verbose_errors = false;
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
                let first = matcher.compute_mask_or_eos().map(|mask| mask.is_zero());
                (matcher, first)
            });
        let compiling =
            compiling.map_err(|error| format!("the system gives no thread ({error})"))?;
        match compiling.join() {
            Ok((matcher, Ok(false))) => Ok(matcher),
            Ok((_, Ok(true))) => Err("no text satisfies it".to_owned()),
            Ok((_, Err(error))) => Err(shortened(&error.to_string())),
            Err(_) => Err("it is not understood".to_owned()),
        }
    })
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
    /// When the grammar does not have it there.
    pub fn accept(&mut self, token: u32) -> Result<(), ApiError> {
        self.matcher.consume_token(token).map_err(|error| {
            let reason = shortened(&error.to_string());
            ApiError::internal(format!("the grammar lost its way: {reason}"))
        })
    }

    /// Nothing may follow.
    pub fn is_complete(&self) -> bool {
        self.matcher.is_stopped()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::detokenize::DecodeTokens;
    use crate::model_config::ModelConfig;
    use std::path::Path;

    fn demo() -> ModelTokenizer {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../demo/models/tiny-chat");
        let config = ModelConfig::read(&folder).expect("a configuration");
        ModelTokenizer::load(&folder, &config).expect("a tokenizer")
    }

    fn schema(schema: Value) -> Grammar {
        Grammar::Json {
            schema,
            lenient: false,
        }
    }

    /// Whether the whole text satisfies the grammar.
    fn takes(grammar: &Grammar, text: &str) -> bool {
        let (tokenizer, grammars) = (demo(), Grammars::new());
        let constraint = grammars.constraint(grammar, &tokenizer, "guided_json");
        let mut constraint = constraint.expect("compiles");
        let end = 2;
        for token in tokenizer.encode(text, false).expect("encodes") {
            let mut logits = vec![0.0; tokenizer.vocabulary];
            constraint.mask(&mut logits, &[end]).expect("a mask");
            if logits[token as usize] != 0.0 {
                return false;
            }
            constraint.accept(token).expect("is allowed");
        }
        let mut logits = vec![0.0; tokenizer.vocabulary];
        constraint.mask(&mut logits, &[end]).expect("a mask");
        logits[end as usize] == 0.0
    }

    #[test]
    fn a_schema_takes_its_own_json_and_no_other() {
        let person = schema(json!({
            "type": "object", "required": ["name", "age"], "additionalProperties": false,
            "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}}
        }));
        assert!(takes(&person, r#"{"name": "Ada", "age": 36}"#));
        assert!(takes(&person, "{\n  \"name\": \"日本\",\n  \"age\": 3\n}"));
        assert!(!takes(&person, r#"{"name": "Ada"}"#));
        assert!(!takes(&person, r#"{"name": "Ada", "age": -1}"#));
        assert!(!takes(&person, "hello"));
    }

    #[test]
    fn expressions_choices_and_grammars_are_followed() {
        let regex = Grammar::Regex(r"\d{4}-\d{2}/(a|b)".to_owned());
        assert!(takes(&regex, "2024-11/a") && !takes(&regex, "2024-1/a"));
        let choice = Grammar::Choice(vec!["yes".to_owned(), "no \"thanks\"\u{7f}".to_owned()]);
        assert!(takes(&choice, "yes") && takes(&choice, "no \"thanks\"\u{7f}"));
        assert!(!takes(&choice, "no"));
        let lark = Grammar::Lark("start: \"a\" (\",\" \"a\")*".to_owned());
        assert!(takes(&lark, "a,a,a") && !takes(&lark, "a,"));
    }

    #[test]
    fn what_cannot_be_compiled_or_satisfied_is_refused_with_the_reason() {
        let (tokenizer, grammars) = (demo(), Grammars::new());
        for grammar in [
            schema(json!({"type": "wizard"})),
            schema(json!({"enum": []})),
            schema(json!(false)),
            schema(json!({"type": "integer", "minimum": 5, "maximum": 3})),
            schema(json!({"$ref": "http://127.0.0.1:1/schema.json"})),
            schema(json!({"$ref": "file:///etc/passwd"})),
            schema(json!({"$ref": "#"})),
            schema(json!({"$ref": "#/nowhere"})),
            schema(json!({"type": "string", "pattern": "("})),
            schema(json!({"not": {"type": "string"}})),
            Grammar::Regex("(".to_owned()),
            Grammar::Lark("start: other".to_owned()),
            Grammar::Lark("".to_owned()),
        ] {
            let shown = format!("{grammar:?}");
            let error = grammars.constraint(&grammar, &tokenizer, "guided_json");
            let error = error.err().unwrap_or_else(|| panic!("{shown} is taken"));
            assert_eq!(error.status, 400, "{shown}: {}", error.message);
            assert!(error.message.len() < 500, "{shown}: {}", error.message);
        }
        let lenient = Grammar::Json {
            schema: json!({"type": "string", "not": {"const": "x"}}),
            lenient: true,
        };
        assert!(grammars.constraint(&lenient, &tokenizer, "x").is_ok());
    }

    #[test]
    fn hostile_grammars_end_soon() {
        let (tokenizer, grammars) = (demo(), Grammars::new());
        let definitions = |count: usize, one: &dyn Fn(usize) -> Value| {
            let mut all: serde_json::Map<String, Value> = (0..count)
                .map(|nth| (format!("a{nth}"), one(nth + 1)))
                .collect();
            all.insert(
                format!("a{count}"),
                json!({"type": "object", "properties": {"x": {"type": "integer"}}}),
            );
            json!({"$ref": "#/$defs/a0", "$defs": all})
        };
        let to = |nth: usize| json!({"$ref": format!("#/$defs/a{nth}")});
        let rules = |count: usize| {
            let rules: String = (0..count)
                .map(|nth| format!("a{nth}: a{}\n", nth + 1))
                .collect();
            format!("start: a0\n{rules}a{count}: \"x\"\n")
        };
        for (name, grammar) in [
            ("chain", schema(definitions(1500, &to))),
            (
                "all of",
                schema(definitions(24, &|nth| json!({"allOf": [to(nth), to(nth)]}))),
            ),
            (
                "any of",
                schema(definitions(24, &|nth| json!({"anyOf": [to(nth), to(nth)]}))),
            ),
            (
                "one of",
                schema(definitions(
                    24,
                    &|nth| json!({"oneOf": [to(nth), {"allOf": [to(nth), {"required": ["x"]}]}]}),
                )),
            ),
            (
                "properties",
                schema(definitions(
                    24,
                    &|nth| json!({"properties": {"a": to(nth), "b": to(nth)}}),
                )),
            ),
            (
                "pattern",
                schema(json!({"type": "string", "pattern": "(".repeat(20_000)})),
            ),
            (
                "patterns",
                schema(
                    json!({"allOf": (0..300).map(|nth| json!({"type": "string", "pattern": format!("^a*b{{{nth}}}.*$")})).collect::<Vec<_>>()}),
                ),
            ),
            ("long", Grammar::Regex("ab".repeat(30_000))),
            (
                "wide",
                Grammar::Regex(
                    (0..9000)
                        .map(|nth| format!("x{nth}"))
                        .collect::<Vec<_>>()
                        .join("|"),
                ),
            ),
            (
                "optional",
                Grammar::Regex("a?".repeat(5000) + &"a".repeat(5000)),
            ),
            (
                "stars",
                Grammar::Regex("a".to_owned() + &"*+".repeat(20_000)),
            ),
            (
                "stars of stars",
                Grammar::Regex("(.*a){200}(.*b){200}".to_owned()),
            ),
            ("rules", Grammar::Lark(rules(2500))),
            (
                "nots",
                Grammar::Lark(format!("start: T\nT: {}/a/", "~".repeat(30_000))),
            ),
            (
                "groups",
                Grammar::Lark(format!("start: {}", "\"a\" | ".repeat(8000) + "\"a\"")),
            ),
            (
                "ambiguous",
                Grammar::Lark("start: a a a a a\na: a a | \"x\" |\n".to_owned()),
            ),
        ] {
            let begun = std::time::SystemTime::now();
            let taken = grammars.constraint(&grammar, &tokenizer, "x");
            let spent = begun.elapsed().unwrap_or_default();
            println!(
                "{name}: {spent:?} {:?}",
                taken.as_ref().err().map(|error| &error.message)
            );
            assert!(spent.as_secs() < 10, "{name} took {spent:?}");
            let Ok(mut constraint) = taken else { continue };
            // The steps of an answer run on threads with small stacks.
            let begun = std::time::SystemTime::now();
            for _ in 0..6 {
                let mut logits = vec![0.0; tokenizer.vocabulary];
                let Ok(true) = constraint.mask(&mut logits, &[2]) else {
                    break;
                };
                let next = (3..).find(|token: &u32| logits[*token as usize] == 0.0);
                if constraint.accept(next.expect("something goes on")).is_err() {
                    break;
                }
            }
            drop(constraint.clone().apart());
            let spent = begun.elapsed().unwrap_or_default();
            assert!(spent.as_secs() < 10, "{name} took {spent:?}");
        }
    }

    #[test]
    fn only_so_many_compiled_grammars_are_kept() {
        let (tokenizer, grammars) = (demo(), Grammars::new());
        for index in 0..KEPT_GRAMMARS + 5 {
            let choice = Grammar::Choice(vec![format!("answer {index}")]);
            for _ in 0..2 {
                assert!(grammars.constraint(&choice, &tokenizer, "x").is_ok());
            }
        }
        assert_eq!(grammars.kept().len(), KEPT_GRAMMARS);
    }

    #[test]
    fn a_whole_answer_can_only_end() {
        let (tokenizer, grammars) = (demo(), Grammars::new());
        let choice = Grammar::Choice(vec!["yes".to_owned()]);
        let mut constraint = grammars
            .constraint(&choice, &tokenizer, "x")
            .expect("compiles");
        for token in tokenizer.encode("yes", false).expect("encodes") {
            assert!(!constraint.is_complete());
            constraint.accept(token).expect("is allowed");
        }
        let mut logits = vec![0.0; tokenizer.vocabulary];
        assert_eq!(constraint.mask(&mut logits, &[2]), Ok(false));
        let left: Vec<u32> = (0..logits.len() as u32)
            .filter(|token| logits[*token as usize] == 0.0)
            .collect();
        assert_eq!(tokenizer.decode(&left).as_deref(), Ok(""));
        assert_eq!(left, [2]);
    }
}
