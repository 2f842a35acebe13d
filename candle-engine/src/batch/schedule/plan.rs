//! Requests and steps as the schedule sees them, and the rows of a step.

use super::draft::DraftLimits;
use super::group::Branch;
use crate::adapter::Adapter;
use crate::batch::pages::PageTokens;
use crate::options::JoiningRule;
use crate::step::{AdapterNumber, PAGE_TOKENS, Page, Span, Step};
use std::sync::Arc;

/// A request, numbered in the order of arrival.
pub(crate) type RequestId = u64;

/// Limits on what runs simultaneously.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Pages of the KV cache.
    pub pages: usize,
    /// Maximum number of running requests.
    pub seats: usize,
    /// Maximum prompt rows in a step without a running request.
    pub prompt_rows: usize,
    /// Maximum prompt rows in a step in which others wait for their next token.
    pub prompt_rows_beside: usize,
    /// Maximum total length of the prompts computed at the same time; a longer prompt is computed alone.
    pub prefill_tokens: Option<usize>,
    /// Maximum tokens of all running requests, prompts plus maximum completions; a longer request runs alone.
    pub total_tokens: Option<usize>,
    /// Condition for waiting requests to join the running ones; `None` lets them join as soon as there is room.
    pub joining: Option<JoiningRule>,
    /// Limits on proposed tokens.
    pub drafts: DraftLimits,
}

/// A new request, as the schedule sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Arrival {
    /// Tokens of the prompt, at least one.
    pub prompt: Vec<u32>,
    /// Prompt and completion tokens, at their maximum length.
    pub most_tokens: usize,
    /// Every row of the prompt is needed, not only the last, so none can be skipped.
    pub needs_all_rows: bool,
    /// Tokens may be proposed: the request is one sequence, and advances by the logits of its last row alone.
    pub takes_drafts: bool,
    /// The adapter to compute with, if any.
    pub adapter: Option<Arc<Adapter>>,
}

/// One step, and the requests its rows belong to.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Plan {
    pub step: Step,
    /// Page copies to make before the step, in order, as (from, to).
    pub copies: Vec<(Page, Page)>,
    /// The owners of the step's spans, in order.
    pub parts: Vec<Part>,
    /// Requests that have left the queue for the first time.
    pub begun: Vec<RequestId>,
    /// Requests that exceed the capacity of the cache; they have been ended.
    pub too_long: Vec<RequestId>,
}

/// The owner of a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    pub request: RequestId,
    pub branch: usize,
    /// Its requested rows: `wanted` rows of the step from `first_wanted` on.
    pub first_wanted: usize,
    pub wanted: usize,
    /// The sequence advances after its last requested row, or after the first if tokens are proposed.
    pub decides: bool,
    /// Number of proposed tokens; their rows are the last ones.
    pub proposed: usize,
}

/// Counters for the metrics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub preemptions: u64,
    /// Prompt tokens that were not computed because their pages were known.
    pub known_tokens: u64,
}

/// Number of rows of a chunk. A chunk ends at a page boundary if possible, because only full pages are shared.
pub(super) fn chunk(computed: usize, goal: usize, rows: usize) -> usize {
    let end = goal.min(computed + rows);
    let full_pages = end / PAGE_TOKENS * PAGE_TOKENS;
    if end < goal && full_pages > computed {
        full_pages - computed
    } else {
        end - computed
    }
}

/// Adds rows to a plan. The last row of a sequence is requested, and all rows from `rows_from` on.
pub(super) fn place(
    plan: &mut Plan,
    (request, nth, adapter): (RequestId, usize, Option<AdapterNumber>),
    branch: &Branch,
    count: usize,
    rows_from: usize,
) {
    let Step {
        tokens,
        spans,
        wanted,
    } = &mut plan.step;
    let (past, end) = (branch.computed, branch.computed + count);
    let (first_row, first_wanted) = (tokens.len(), wanted.len());
    let decides = end == branch.tokens.len();
    tokens.extend_from_slice(&branch.tokens[past..end]);
    let is_wanted =
        |position: &usize| *position >= rows_from || *position + 1 == branch.tokens.len();
    let rows = (past..end).filter(is_wanted);
    wanted.extend(rows.map(|position| first_row + position - past));
    spans.push(Span {
        past,
        count,
        pages: branch.pages[..end.div_ceil(PAGE_TOKENS)].to_vec(),
        adapter,
        prompt: branch.prompt,
    });
    plan.parts.push(Part {
        request,
        branch: nth,
        first_wanted,
        wanted: wanted.len() - first_wanted,
        decides,
        proposed: 0,
    });
}

/// Adds the rows of proposed tokens to the plan's last span, which belongs to `branch`. All of them are requested.
pub(super) fn place_proposed(plan: &mut Plan, branch: &Branch, proposed: &[u32]) {
    let Step {
        tokens,
        spans,
        wanted,
    } = &mut plan.step;
    if let (Some(span), Some(part)) = (spans.last_mut(), plan.parts.last_mut())
        && !proposed.is_empty()
    {
        wanted.extend(tokens.len()..tokens.len() + proposed.len());
        tokens.extend_from_slice(proposed);
        span.count += proposed.len();
        let pages = (span.past + span.count).div_ceil(PAGE_TOKENS);
        span.pages = branch.pages[..pages].to_vec();
        part.wanted += proposed.len();
        part.proposed = proposed.len();
    }
}

/// The tokens of page number `page` of a text.
pub(super) fn page_tokens(text: &[u32], page: usize) -> PageTokens {
    text.as_chunks().0[page]
}
