//! One step of a network: token rows of many sequences, and the KV cache pages of each.

/// Number of tokens per page of the KV cache.
pub(crate) const PAGE_TOKENS: usize = 16;

/// A page of the KV cache, by its index, which is the same in every layer.
pub(crate) type Page = u32;

/// The number of a loaded adapter; never reused.
pub(crate) type AdapterNumber = u32;

/// One pass through the network. The rows of all sequences follow each other, in the order of `spans`.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Step {
    /// The token of each row.
    pub tokens: Vec<u32>,
    pub spans: Vec<Span>,
    /// Rows whose hidden states are requested, ascending.
    pub wanted: Vec<usize>,
}

/// The rows of one sequence in a step.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Span {
    /// Number of the sequence's tokens in the cache before the step, which is the position of its first row.
    pub past: usize,
    /// Number of its rows in this step, at least one.
    pub count: usize,
    /// The pages of its tokens: token `t` is in `pages[t / PAGE_TOKENS]`. Must cover `past + count` tokens. Pages may be shared
    /// with other sequences up to `past`; pages with new rows must be exclusive.
    pub pages: Vec<Page>,
    /// Number of tokens that came with the request; the model chose the later ones. Models that encode a prompt need it.
    pub prompt: usize,
    /// The adapter for its rows.
    pub adapter: Option<AdapterNumber>,
}
