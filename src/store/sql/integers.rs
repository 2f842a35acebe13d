//! Conversion of figures to and from SQLite's integers.

/// SQLite's integers are signed. A value that does not fit (8 EiB, 292 million years) is stored as the largest integer.
pub(crate) fn to_integer(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// The sum of two non-negative columns or values, as a part of a statement. Saturates at the largest integer, where the databases
/// would change the type or fail.
macro_rules! saturating_sum {
    ($one:literal, $other:literal) => {
        concat!(
            "CASE WHEN ",
            $one,
            " > 9223372036854775807 - ",
            $other,
            " THEN 9223372036854775807 ELSE ",
            $one,
            " + ",
            $other,
            " END"
        )
    };
}
pub(crate) use saturating_sum;

/// The reverse conversion. The pool never writes negative values; they read as 0.
pub(crate) fn from_integer(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

/// For figures of type `u32`. The pool never writes larger values.
pub(crate) fn from_small(value: i64) -> u32 {
    u32::try_from(value.max(0)).unwrap_or(u32::MAX)
}
