//! A loaded LoRA adapter, as referenced by running requests.

use crate::step::AdapterNumber;

/// A loaded adapter. It is in use while references exist outside the table of adapters.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Adapter {
    pub name: String,
    pub number: AdapterNumber,
}
