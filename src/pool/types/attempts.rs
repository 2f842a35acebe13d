//! Texts for attempts to run a model. They distinguish failed loads from engines that crashed after they were ready, and singular
//! from plural.

use alloc::borrow::ToOwned;
use alloc::string::String;

use crate::types::reason::plural;

/// The last consecutive attempts, of which `crashes` became ready first.
pub(crate) fn last(failures: u32, crashes: u32) -> String {
    match (failures, crashes) {
        (1, 0) => "the last load failed".to_owned(),
        (_, 0) => format!("the last {failures} loads failed"),
        (1, _) => "the engine crashed after it was ready".to_owned(),
        _ if failures == crashes => {
            format!("the last {failures} engines crashed after they were ready")
        }
        _ => format!(
            "the last {failures} tries failed, {crashes} of them by a crash after the engine was ready"
        ),
    }
}

/// The number of attempts as text.
pub(crate) fn counted(failures: u32, crashes: u32) -> String {
    let loads = failures.saturating_sub(crashes);
    let failed = format!("{loads} failed load{}", plural(loads));
    let crashed = match crashes {
        1 => "1 crash of an engine that was ready".to_owned(),
        _ => format!("{crashes} crashes of engines that were ready"),
    };
    match (loads, crashes) {
        (_, 0) => failed,
        (0, _) => crashed,
        _ => format!("{failed} and {crashed}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crashes_and_failed_loads_are_counted_separately_and_singular_is_used_for_one() {
        let texts = |failures, crashes| (last(failures, crashes), counted(failures, crashes));
        let is = |one: &str, two: &str| (one.to_owned(), two.to_owned());
        assert_eq!(texts(1, 0), is("the last load failed", "1 failed load"));
        assert_eq!(texts(3, 0), is("the last 3 loads failed", "3 failed loads"));
        assert_eq!(
            texts(1, 1),
            is(
                "the engine crashed after it was ready",
                "1 crash of an engine that was ready"
            )
        );
        assert_eq!(
            texts(3, 1),
            is(
                "the last 3 tries failed, 1 of them by a crash after the engine was ready",
                "2 failed loads and 1 crash of an engine that was ready"
            )
        );
    }
}
