//! Records the fields that are read, for tests that compare them with the API's description.

use std::cell::RefCell;
use std::collections::BTreeSet;

thread_local! {
    static READ: RefCell<Option<BTreeSet<String>>> = const { RefCell::new(None) };
}

pub(crate) fn note(path: String) {
    READ.with_borrow_mut(|read| read.as_mut().map(|read| read.insert(path)));
}

/// Returns the paths of the fields that are taken while `work` runs.
pub fn fields_read_during(work: impl FnOnce()) -> BTreeSet<String> {
    READ.set(Some(BTreeSet::new()));
    work();
    READ.take().unwrap_or_default()
}
