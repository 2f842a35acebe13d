//! One step of a network: rows of tokens of many sequences, and the pages of the KV cache that each has.

/// Tokens of one page of the KV cache.
pub(crate) const PAGE_TOKENS: usize = 16;

/// A page of the KV cache, by its place: the same in every layer.
pub(crate) type Page = u32;

/// An adapter that was loaded, by a number that is never given again.
pub(crate) type AdapterNumber = u32;

/// One pass through the network. The rows of all sequences lie behind each other, in the order of `spans`.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Step {
    /// The token of each row.
    pub tokens: Vec<u32>,
    pub spans: Vec<Span>,
    /// Rows whose hidden states are wanted, ascending.
    pub wanted: Vec<usize>,
}

/// The rows of one sequence in a step.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Span {
    /// Tokens of the sequence that are in the cache before the step: the position of its first row.
    pub past: usize,
    /// Its rows in this step, at least one.
    pub count: usize,
    /// Where its tokens lie, in order: token `t` in `pages[t / PAGE_TOKENS]`. Covers `past + count` tokens. Pages may be
    /// shared with others up to `past`; the page of a new row is its own.
    pub pages: Vec<Page>,
    /// The adapter that its rows are computed with.
    pub adapter: Option<AdapterNumber>,
}
