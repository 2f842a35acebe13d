//! An adapter that is loaded: what requests hold of it while they are computed.

use crate::step::AdapterNumber;

/// In use while there is a reference to it beside the table of adapters.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Adapter {
    pub name: String,
    pub number: AdapterNumber,
}
