//! Bounds the cost of a single step through the expressions of a grammar. Intersections multiply the branches of their parts, and
//! the library checks its own limits only between steps.

use llguidance::derivre::ExprRef;
use llguidance::derivre::raw::ExprSet;

/// Maximum number of branches of all intersections of a grammar. At about 100 ns each, a step over them takes a fraction of a
/// second.
const WAYS_MAX: f64 = 2_097_152.0;
/// Branches of a complement: one per byte value, and one for all values that no other part names.
const COMPLEMENT_WAYS: f64 = 257.0;
/// Branches of a remainder: a digit or a point.
const REMAINDER_WAYS: f64 = 11.0;

/// Expression tags as numbered by the library, which does not export them.
mod kind {
    pub const EMPTY: u8 = 1;
    pub const NOTHING: u8 = 2;
    pub const BYTE: u8 = 3;
    pub const BYTES: u8 = 4;
    pub const LITERAL: u8 = 5;
    pub const REMAINDER: u8 = 6;
    pub const COMPLEMENT: u8 = 8;
    pub const SEQUENCE: u8 = 10;
    pub const INTERSECTION: u8 = 12;
}

/// # Errors
/// If the intersections have too many branches; the message has their number.
pub(super) fn check(expressions: &ExprSet) -> Result<(), String> {
    let ways = ways(expressions);
    if ways <= WAYS_MAX {
        return Ok(());
    }
    Err(format!(
        "the intersections of its expressions (`allOf`, `&`, a `pattern` with a length or a `format`) have about {ways:.0} branches, and at most {WAYS_MAX} are allowed; intersect fewer or shorter expressions"
    ))
}

/// Counts the branches that a single step can open in all intersections. A repetition has the branches of its body, and a sequence
/// the branches of its widest part; more of them open only over several steps, and the library's own limits apply between steps.
fn ways(expressions: &ExprSet) -> f64 {
    let count = u32::try_from(expressions.len()).unwrap_or(u32::MAX);
    // Parts precede the expressions that contain them. Floats, because the counts may exceed any integer.
    let mut widths = vec![0.0f64; count as usize];
    let mut intersections = 0.0;
    for id in 1..count {
        let expression = ExprRef::new(id);
        let parts = expressions.get_args(expression);
        let widths_of_parts = parts.iter().map(|part| widths[part.as_usize()]);
        let width = match expressions.get_tag(expression) as u8 {
            kind::EMPTY | kind::NOTHING => 0.0,
            kind::BYTE | kind::BYTES => 1.0,
            kind::LITERAL => widths_of_parts.fold(1.0, f64::max),
            kind::REMAINDER => REMAINDER_WAYS,
            kind::COMPLEMENT => COMPLEMENT_WAYS,
            // If a part may be empty, the next part opens in the same step.
            kind::SEQUENCE if !expressions.is_nullable(parts[0]) => {
                widths_of_parts.fold(0.0, f64::max)
            }
            kind::INTERSECTION => {
                let width: f64 = widths_of_parts.map(|width| width.max(1.0)).product();
                intersections += width;
                width
            }
            _ => widths_of_parts.sum(),
        };
        widths[id as usize] = width;
    }
    intersections
}

#[cfg(test)]
mod tests {
    use super::*;
    use llguidance::derivre::{RegexAst, RegexBuilder};

    fn built(expression: &RegexAst) -> (RegexBuilder, ExprRef) {
        let mut builder = RegexBuilder::new();
        let made = builder.mk(expression).expect("an expression");
        (builder, made)
    }

    fn searched(expression: String) -> RegexAst {
        RegexAst::SearchRegex(expression)
    }

    #[test]
    fn the_expression_kind_numbers_match_those_of_the_library() {
        let text = |text: &str| RegexAst::Regex(text.to_owned());
        for (expression, number) in [
            (RegexAst::EmptyString, kind::EMPTY),
            (RegexAst::NoMatch, kind::NOTHING),
            (text("a"), kind::BYTE),
            (text("[ab]"), kind::BYTES),
            (text("abc"), kind::LITERAL),
            (text("[ab]c"), kind::SEQUENCE),
            (RegexAst::MultipleOf(7, 0), kind::REMAINDER),
            (RegexAst::Not(Box::new(text("abc"))), kind::COMPLEMENT),
            (
                RegexAst::And(vec![text("a.*"), text(".*b")]),
                kind::INTERSECTION,
            ),
        ] {
            let (builder, made) = built(&expression);
            assert_eq!(
                builder.exprset().get_tag(made) as u8,
                number,
                "{expression:?}"
            );
        }
    }

    #[test]
    fn each_additional_expression_multiplies_the_width_of_an_intersection() {
        let mut before = 0.0;
        for count in 2..12u8 {
            let one = |nth: u8| searched(format!(".*{}.{{{}}}", char::from(b'a' + nth), nth + 5));
            let (builder, _) = built(&RegexAst::And((0..count).map(one).collect()));
            let now = ways(builder.exprset());
            assert!(now > 2.0 * before, "{count}: {now} after {before}");
            before = now;
        }
        assert!(before > WAYS_MAX, "{before}");
    }

    #[test]
    fn a_long_expression_without_intersections_is_never_too_wide() {
        let (builder, _) = built(&searched("(ab|[c-f]x){2,900}".repeat(100)));
        assert_eq!(ways(builder.exprset()), 0.0);
        assert_eq!(check(builder.exprset()), Ok(()));
    }

    #[test]
    fn a_pattern_with_a_length_and_a_format_is_accepted() {
        let (builder, _) = built(&RegexAst::And(vec![
            searched(r"^[a-z0-9._-]+@[a-z0-9-]+(\.[a-z]{2,})+$".to_owned()),
            searched("^[^@]+@[^@]+$".to_owned()),
            RegexAst::Regex("(?s:.{6,254})".to_owned()),
        ]));
        assert_eq!(check(builder.exprset()), Ok(()));
    }
}
