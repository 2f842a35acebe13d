//! Translates the grammars of a request. Each is translated once and all share a budget, which bounds the time for requests with
//! many grammars.

use std::collections::BTreeMap;

use super::budget::{Budget, OF_ALL, Spent};
use super::grammar::{CHECKED_TIMES, Expression, GrammarError, checked, expression};

/// Maximum total size of the definitions in a request.
const READ_BYTES_MAX: usize = 128 << 10;

/// Translates and caches grammars until the budget is exhausted.
#[derive(Debug)]
pub(super) struct Grammars {
    left: Budget,
    /// Remaining bytes of definitions.
    readable: usize,
    /// Translated grammars by syntax (true for Lark) and definition.
    known: BTreeMap<(bool, String), Result<Expression, GrammarError>>,
}

impl Default for Grammars {
    fn default() -> Grammars {
        Grammars {
            left: OF_ALL,
            readable: READ_BYTES_MAX,
            known: BTreeMap::new(),
        }
    }
}

impl Grammars {
    /// Translates a Lark grammar.
    pub fn lark(&mut self, definition: &str) -> Result<Expression, GrammarError> {
        self.once(true, definition, |left| expression(definition, left))
    }

    /// Checks a regular expression.
    pub fn regex(&mut self, definition: &str) -> Result<Expression, GrammarError> {
        self.once(false, definition, |left| {
            left.write(CHECKED_TIMES * definition.len())?;
            let text = checked(definition)?;
            Ok(Expression { text, nested: None })
        })
    }

    fn once(
        &mut self,
        is_lark: bool,
        definition: &str,
        translate: impl FnOnce(&mut Budget) -> Result<Expression, GrammarError>,
    ) -> Result<Expression, GrammarError> {
        let place = (is_lark, definition.to_owned());
        let made = match self.known.get(&place) {
            Some(known) => known.clone(),
            None => {
                let left = self.readable.checked_sub(definition.len());
                self.readable = left.ok_or(Spent)?;
                let made = translate(&mut self.left);
                self.known.insert(place, made.clone());
                made
            }
        }?;
        // The request for the engine repeats the expression for each tool.
        self.left.write(made.text.len())?;
        Ok(made)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grammars_of_a_request_share_a_budget_and_equal_ones_are_translated_once() {
        let hard = |nth: usize| format!("start: \"a{nth}\" | x\nx: {}", ["x"; 8].join("|"));
        let easy = "start: \"b\"+";
        let mut equal = Grammars::default();
        for _ in 0..1000 {
            assert!(equal.lark(&hard(1)).is_ok());
        }
        assert!(equal.lark(easy).is_ok());
        let mut different = Grammars::default();
        let spent = (0..1000).find(|nth| different.lark(&hard(*nth)).is_err());
        assert!(spent.is_some_and(|count| count > 2), "{spent:?}");
        assert_eq!(different.lark(easy), Err(GrammarError::NotRegular));
        let mut many = Grammars::default();
        let definitions = (0..10_000).map(|nth| format!("start: \"b{nth}\""));
        let read = definitions
            .filter(|definition| many.lark(definition).is_ok())
            .map(|definition| definition.len());
        assert!(read.sum::<usize>() <= READ_BYTES_MAX);
    }

    #[test]
    fn expressions_that_are_equal_are_not_written_without_end() {
        let most = OF_ALL.bytes / 10_000;
        let plain = "x".repeat(10_000);
        let lark = format!("start: /{plain}/");
        let (mut plains, mut larks) = (Grammars::default(), Grammars::default());
        let held = (0..1000).filter(|_| plains.regex(&plain).is_ok()).count();
        assert!((2..=most).contains(&held), "{held}");
        let held = (0..1000).filter(|_| larks.lark(&lark).is_ok()).count();
        assert!((2..=most).contains(&held), "{held}");
    }
}
