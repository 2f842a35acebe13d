//! An adapter that is loaded: what requests hold of it while they are computed.

use crate::step::AdapterNumber;

/// In use as long as somebody beside the table of adapters has it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Adapter {
    pub name: String,
    pub number: AdapterNumber,
}
