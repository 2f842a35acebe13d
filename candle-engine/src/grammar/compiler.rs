//! Compiles a grammar for a vocabulary with bounded cost: the library limits the work between its steps, `width.rs` the work within
//! a step, and this module the memory of the result.

use super::width;
use crate::error::one_line;
use llguidance::api::{GrammarInit, TopLevelGrammar};
use llguidance::earley::lexerspec::LexerSpec;
use llguidance::toktrie::{ApproximateTokEnv, TokEnv, TokRxInfo, TokTrie};
use llguidance::{Matcher, ParserFactory, panic_utils};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Bounded white space between JSON tokens, which keeps a model from filling its completion with it.
pub(super) const JSON_SPACE: &str = r"[ \n\r\t]{1,20}";
/// Address space only; unused pages take no memory.
pub(super) const STACK_BYTES: usize = 256 * 1024 * 1024;
/// Memory limit of one compiled grammar. Each running completion has a copy.
const COMPILED_BYTES_MAX: usize = 64 * 1024 * 1024;
const REASON_LETTERS_MAX: usize = 300;
/// Limits on parser items at one position, and in the computation of one token mask. An object with the maximum number of optional
/// properties needs about twice that number of items. 20,000 items take a millisecond.
const WAYS_MAX: usize = 50_000;
const WAYS_TRIED_MAX: usize = 1_000_000;
/// Fuel limit for the first byte of a completion, in the library's unit; a millisecond takes about 14,000 to 50,000. The library
/// does not limit this step.
const FIRST_BYTE_FUEL: u64 = 2_000_000;
/// Estimated bytes retained per unit of fuel, for memory that the library does not count.
const BYTES_PER_FUEL: usize = 8;
/// Memory of the smallest grammar, and of each rule or token.
const LEAST_BYTES: usize = 128 * 1024;
const SYMBOL_BYTES: usize = 400;
/// Number of tokens to walk before accepting a grammar, to reject unsatisfiable ones immediately.
const TRIED_TOKENS: usize = 24;

/// The only reason that is not about the grammar.
pub(super) const NO_THREAD: &str = "cannot start a thread";

const TOO_COMPLEX: &str = "its expressions are too complex; use fewer intersections (`allOf`, `&`), complements and bounded repetitions, and a smaller `multipleOf`";

/// A grammar that can be matched.
#[derive(Clone)]
pub(super) struct CompiledGrammar {
    pub matcher: Matcher,
    /// Estimated memory, from the library's counters.
    pub bytes: usize,
}

/// Creates a factory whose vocabulary has one additional token: the end of a completion, whichever token ends it. `bytes` holds the
/// bytes of each token, with a marker in front of special ones.
pub(super) fn factory(mut bytes: Vec<Vec<u8>>) -> Result<ParserFactory, String> {
    let vocabulary = bytes.len() as u32;
    bytes.push(special(b"<end of answer>"));
    let info = TokRxInfo::new(bytes.len() as u32, vocabulary);
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
        Ok(Err(error)) => Err(readable(&error.to_string())),
        Err(_) => Err("its tokens cannot be parsed".to_owned()),
    }
}

/// The bytes of a special token.
pub(super) fn special(text: &[u8]) -> Vec<u8> {
    let mut bytes = vec![TokTrie::SPECIAL_TOKEN_MARKER];
    bytes.extend_from_slice(text);
    bytes
}

/// Compiles on a thread with a stack for the deepest grammar that is accepted: the compiler recurses once per reference between
/// definitions.
pub(super) fn compile(
    factory: &ParserFactory,
    form: TopLevelGrammar,
) -> Result<CompiledGrammar, String> {
    std::thread::scope(|scope| {
        let compiling = std::thread::Builder::new()
            .name("grammar".to_owned())
            .stack_size(STACK_BYTES)
            .spawn_scoped(scope, || compile_here(factory, form));
        let compiling = compiling.map_err(|error| format!("{NO_THREAD} ({error})"))?;
        let compiled = compiling.join();
        compiled.unwrap_or_else(|_| Err("it cannot be parsed".to_owned()))
    })
}

fn compile_here(factory: &ParserFactory, form: TopLevelGrammar) -> Result<CompiledGrammar, String> {
    let environment = factory.tok_env().clone();
    let read = panic_utils::catch_unwind(AssertUnwindSafe(|| {
        let limits = factory.limits().clone();
        GrammarInit::Serialized(form).to_internal(Some(environment), limits)
    }));
    let (grammar, lexer) = read.map_err(|error| readable(&error.to_string()))?;
    let expressions = lexer.regex_builder.exprset();
    width::check(expressions)?;
    try_first_bytes(factory, &lexer)?;
    // Two copies: the grammar's own, and the matcher's.
    let described = 2 * expressions.num_bytes() + grammar.num_symbols() * SYMBOL_BYTES;
    let init = GrammarInit::Internal(grammar, lexer);
    let parser = factory.create_parser_from_init_default(init);
    let parser = parser.map_err(|error| readable(&error.to_string()))?;
    let lexer = parser.parser.lexer_stats();
    let mut matcher = Matcher::new(Ok(parser));
    let first = matcher.compute_mask_or_eos();
    let first = first.map_err(|error| readable(&error.to_string()))?;
    let spent = lexer.total_fuel_spent + fuel_of_last_mask(&matcher) as usize;
    let bytes = LEAST_BYTES + described + lexer.num_bytes + spent * BYTES_PER_FUEL;
    if bytes > COMPILED_BYTES_MAX {
        let mebibytes = |bytes: usize| bytes / (1024 * 1024);
        return Err(format!(
            "it needs about {} MiB of memory, and at most {} are allowed; make it smaller or less complex",
            mebibytes(bytes),
            mebibytes(COMPILED_BYTES_MAX)
        ));
    }
    let vocabulary = factory.tok_env().tok_trie();
    if first.is_zero() || comes_to_no_end(matcher.deep_clone(), vocabulary)? {
        return Err("no text satisfies it".to_owned());
    }
    Ok(CompiledGrammar { matcher, bytes })
}

/// Computes the transitions for every first byte, with a fuel limit that the library does not apply to this step.
fn try_first_bytes(factory: &ParserFactory, lexer: &LexerSpec) -> Result<(), String> {
    let mut lexer = lexer.clone();
    lexer.add_extra_lexemes(&factory.extra_lexemes());
    let mut limits = factory.limits().clone();
    let states_max = limits.max_lexer_states;
    let automaton = lexer.to_regex_vec(&mut limits);
    let mut automaton = automaton.map_err(|error| readable(&error.to_string()))?;
    automaton.set_max_states(states_max);
    automaton.set_fuel(FIRST_BYTE_FUEL);
    let start = automaton.initial_state(&lexer.all_lexemes());
    for byte in 0..=u8::MAX {
        automaton.transition(start, byte);
        if automaton.has_error() {
            return Err(TOO_COMPLEX.to_owned());
        }
    }
    Ok(())
}

/// Walks a grammar for a few tokens, ignoring white space. Returns true if it reaches a state in which nothing may follow, not even
/// the end.
fn comes_to_no_end(mut matcher: Matcher, vocabulary: &TokTrie) -> Result<bool, String> {
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
        let allowed = allowed.map_err(|error| readable(&error.to_string()))?;
        let Some(next) = allowed.iter().find(is_text) else {
            return Ok(allowed.is_zero());
        };
        let gone = matcher.consume_token(next);
        gone.map_err(|error| readable(&error.to_string()))?;
    }
    Ok(false)
}

/// The fuel spent on the last mask.
pub(super) fn fuel_of_last_mask(matcher: &Matcher) -> u64 {
    matcher
        .last_step_stats()
        .map_or(0, |stats| stats.lexer_cost)
}

/// Formats the library's reason in one line, and rewrites references to its internals in terms of schemas and grammars.
pub(super) fn readable(reason: &str) -> String {
    let has = |words: &str| reason.contains(words);
    if has("grammar.symbols.len()") {
        return "it has too many parts: about 65,000 rules and texts are allowed; use fewer alternatives, and fewer `anyOf` in one `allOf`, whose combinations multiply".to_owned();
    }
    if has("initial_lexer_fuel") || has("fuel exhausted") || has("too many expressions constructed")
    {
        return TOO_COMPLEX.to_owned();
    }
    if has("Unable to determine if regex is empty") {
        return format!(
            "it takes too long to determine if any text satisfies its expressions: {TOO_COMPLEX}"
        );
    }
    if reason.starts_with("panic: ") {
        return "it cannot be parsed; simplify it".to_owned();
    }
    let reason = one_line(reason.replace("<non-verbose/>", ""));
    reason.chars().take(REASON_LETTERS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn library_errors_are_reworded_in_terms_of_the_schema() {
        for (reason, words) in [
            (
                "panic: assertion failed: grammar.symbols.len() < u16::MAX as usize - 10\n<backtrace>\n 0: a::b\n</backtrace>",
                "fewer `anyOf` in one `allOf`",
            ),
            (
                "lexer precomputation failed; either increase limits.initial_lexer_fuel or disable limits.precompute_large_lexemes",
                "too complex",
            ),
            (
                "panic: index out of bounds\n<backtrace>\n",
                "cannot be parsed",
            ),
            ("Unimplemented keys: [\"not\"]\n<non-verbose/>", "[\"not\"]"),
        ] {
            let text = readable(reason);
            assert!(text.contains(words), "{text}");
            for inside in [
                "panic",
                "backtrace",
                "limits.",
                "assertion",
                "verbose",
                "\n",
            ] {
                assert!(!text.contains(inside), "{text}");
            }
        }
    }
}
