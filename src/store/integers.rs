//! Conversion of figures to SQLite's integers and back.

/// SQLite's integers are signed. A value that does not fit (8 EiB, 292 million years) is stored as the largest.
pub(crate) fn to_integer(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// The reverse; a negative value is never written by the pool and reads as 0.
pub(crate) fn from_integer(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

/// For figures of type `u32`; larger values are never written by the pool.
pub(crate) fn from_small(value: i64) -> u32 {
    u32::try_from(value.max(0)).unwrap_or(u32::MAX)
}
