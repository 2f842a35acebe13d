//! Chooses what the next step computes: which request begins, whose rows are in the step, on which pages, and who gives
//! pages back when they run out. It reads no clock, so that a run can be repeated.
//! One file because the choices of a step depend on each other and on one account of pages.
//!
//! ```text
//!   arrive ──> waiting ──(seat, budgets and pages)──> filling ──(prompt computed)──> going on, token by token ──> end
//!                 ^                                      │                                │
//!                 └────────── pages ran out: the youngest goes back to the front ─────────┘
//! ```
//!
//! Requests are numbered as they come, and every running one is older than every waiting one: none overtakes. A request is
//! one sequence or several that fork (beams, candidates), which go on together: all have the same length, and their next rows
//! are in one step.
//!
//! Running requests are in every step; prompts fill the rest up to a bound, so that a long one delays the others' next token by
//! no more than that. A prompt skips pages that are known, and waits while another computes a page that it needs too.
//!
//! To a request of one sequence tokens may be proposed ([`draft`]): their rows are in the step behind that of its last token.
//! Only those that turn out right become part of the sequence, and only their rows count as computed.

mod draft;
mod group;

pub(crate) use draft::DraftLimits;

use super::pages::{PageTokens, Pages};
use crate::adapter::Adapter;
use crate::options::Joining;
use crate::step::{AdapterNumber, PAGE_TOKENS, Page, Span, Step};
use group::{Branch, Group};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// A request, numbered in the order of arrival.
pub(crate) type RequestId = u64;

/// What may run at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Pages of the KV cache.
    pub pages: usize,
    /// Requests.
    pub seats: usize,
    /// Rows of prompts in a step without a running request.
    pub prompt_rows: usize,
    /// Rows of prompts in a step in which others wait for their next token.
    pub prompt_rows_beside: usize,
    /// Tokens of all prompts that are computed at the same time; a longer one is computed alone.
    pub prefill_tokens: Option<usize>,
    /// Tokens of all running requests, prompts and the most that they may answer; a longer one runs alone.
    pub total_tokens: Option<usize>,
    /// When those that wait join those that run; `None`: as soon as there is room.
    pub joining: Option<Joining>,
    /// What may be proposed to those that go on.
    pub drafts: DraftLimits,
}

/// What a new request is to the schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Arrival {
    /// Tokens of the prompt, at least one.
    pub prompt: Vec<u32>,
    /// Tokens of prompt and answers, when these become as long as they may.
    pub most_tokens: usize,
    /// Every row of the prompt is wanted, not the last alone; so none can be skipped.
    pub needs_all_rows: bool,
    /// Tokens may be proposed to it: it is one sequence, and goes on by the logits of its last row alone.
    pub takes_drafts: bool,
    /// What it is computed with beside the model.
    pub adapter: Option<Arc<Adapter>>,
}

/// One step, and whose rows it has.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Plan {
    pub step: Step,
    /// Pages that are copied before the step, one after another: from, to.
    pub copies: Vec<(Page, Page)>,
    /// Whose the spans of the step are, in their order.
    pub parts: Vec<Part>,
    /// Requests that have left the queue for the first time.
    pub begun: Vec<RequestId>,
    /// Requests that the whole cache cannot hold; they have been ended.
    pub too_long: Vec<RequestId>,
}

/// The owner of a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    pub request: RequestId,
    pub branch: usize,
    /// Its wanted rows: so many of the step's, from the first.
    pub first_wanted: usize,
    pub wanted: usize,
    /// The last of them, or where tokens are proposed the first, is the row after which the sequence goes on.
    pub decides: bool,
    /// Its last rows are those of so many proposed tokens.
    pub proposed: usize,
}

/// Figures for the metrics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub preemptions: u64,
    /// Tokens of prompts that were not computed, because they were known.
    pub known_tokens: u64,
}

/// All requests and all pages.
#[derive(Debug)]
pub(crate) struct Schedule {
    limits: Limits,
    pages: Pages,
    groups: BTreeMap<RequestId, Group>,
    /// Both in the order of arrival.
    waiting: VecDeque<RequestId>,
    running: Vec<RequestId>,
    last_request: RequestId,
    /// Steps since a request began.
    steps_without_new: u32,
    counts: Counts,
}

impl Schedule {
    pub fn new(limits: Limits) -> Self {
        Self {
            pages: Pages::new(limits.pages),
            limits,
            groups: BTreeMap::new(),
            waiting: VecDeque::new(),
            running: Vec::new(),
            last_request: 0,
            steps_without_new: 0,
            counts: Counts::default(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    pub fn running(&self) -> usize {
        self.running.len()
    }

    pub fn held_pages(&self) -> usize {
        self.pages.held()
    }

    /// Forgets what is in the pages, if no sequence holds any; whether that is so.
    pub fn forget_pages(&mut self) -> bool {
        let is_idle = self.is_empty();
        if is_idle {
            self.pages = Pages::new(self.limits.pages);
        }
        is_idle
    }

    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Whether a request has left the queue before, even if it is there again.
    pub fn has_begun(&self, request: RequestId) -> bool {
        let group = self.groups.get(&request);
        group.is_some_and(|group| group.has_begun)
    }

    /// Takes a request into the queue.
    pub fn arrive(&mut self, arrival: Arrival) -> RequestId {
        self.last_request += 1;
        let request = self.last_request;
        let group = Group::new(arrival, self.limits.drafts);
        self.groups.insert(request, group);
        self.waiting.push_back(request);
        request
    }

    /// Ends a request, wherever it is; its pages are free.
    pub fn end(&mut self, request: RequestId) {
        if let Some(mut group) = self.groups.remove(&request) {
            group.release(&mut self.pages);
            self.running.retain(|other| *other != request);
            self.waiting.retain(|other| *other != request);
        }
    }

    /// Goes on after a deciding row: the sequences are replaced by `ways`, each a sequence of before and its next token.
    pub fn advance(&mut self, request: RequestId, ways: &[(usize, u32)]) {
        if let Some(group) = self.groups.get_mut(&request) {
            group.advance(ways, &mut self.pages);
        }
    }

    /// The tokens that were proposed to a request for the present step.
    pub fn proposed(&self, request: RequestId) -> &[u32] {
        let group = self.groups.get(&request);
        group.map_or(&[], Group::proposed)
    }

    /// Goes on by the first `count` of the proposed tokens; [`Self::advance`] follows.
    pub fn accept(&mut self, request: RequestId, count: usize) {
        if let Some(group) = self.groups.get_mut(&request) {
            group.accept(count, &mut self.pages);
        }
    }

    /// The next step; `None` when there is nothing to compute.
    pub fn plan(&mut self) -> Option<Plan> {
        let mut plan = Plan::default();
        self.find_pages(&mut plan);
        self.propose();
        for request in &self.running {
            self.place_next_tokens(*request, &mut plan);
        }
        let first_chunk = plan.parts.len();
        let mut rows = match first_chunk {
            0 => self.limits.prompt_rows,
            _ => self.limits.prompt_rows_beside,
        };
        for request in &self.running {
            self.place_chunk(*request, first_chunk, &mut rows, &mut plan);
        }
        self.steps_without_new = self.steps_without_new.saturating_add(1);
        let may_join = self.may_join();
        while rows > 0 && may_join {
            let Some(request) = self.admit(&mut plan) else {
                break;
            };
            self.steps_without_new = 0;
            if !self.groups[&request].is_filling {
                self.place_next_tokens(request, &mut plan);
                rows = rows.min(self.limits.prompt_rows_beside);
            }
            self.place_chunk(request, first_chunk, &mut rows, &mut plan);
        }
        let has_news = !plan.parts.is_empty() || !plan.too_long.is_empty();
        has_news.then_some(plan)
    }

    /// Takes note that a step was computed.
    pub fn computed(&mut self, plan: &Plan) {
        for (part, span) in plan.parts.iter().zip(&plan.step.spans) {
            if let Some(group) = self.groups.get_mut(&part.request) {
                let count = span.count - part.proposed;
                group.computed(part.branch, count, &mut self.pages);
            }
        }
    }

    /// Gives all running requests the pages of their next rows, the oldest first. Nothing is placed yet, so that a request that loses its
    /// pages here is in no step.
    fn find_pages(&mut self, plan: &mut Plan) {
        let mut nth = 0;
        while let Some(request) = self.running.get(nth).copied() {
            let mut has_room = false;
            if let Some(group) = self.groups.get_mut(&request) {
                let known = &mut self.counts.known_tokens;
                has_room = group.find_pages(&mut self.pages, &mut plan.copies, known);
            }
            match has_room {
                true => nth += 1,
                false if self.running.len() == 1 => {
                    self.end(request);
                    plan.too_long.push(request);
                }
                // Tried again, unless it was the youngest itself.
                false => self.preempt_youngest(),
            }
        }
    }

    /// Proposes tokens to those that go on. No page is taken that a waiting request could begin with.
    fn propose(&mut self) {
        let running = self.running.iter().map(|request| &self.groups[request]);
        let rows = running.filter(|group| !group.is_filling);
        let going_on: usize = rows.map(|group| group.branches.len()).sum();
        let takes_pages = self.waiting.is_empty();
        for request in &self.running {
            if let Some(group) = self.groups.get_mut(request) {
                group.propose(going_on, takes_pages, &mut self.pages);
            }
        }
    }

    fn preempt_youngest(&mut self) {
        if let Some(youngest) = self.running.pop()
            && let Some(group) = self.groups.get_mut(&youngest)
        {
            group.release(&mut self.pages);
            self.waiting.push_front(youngest);
            self.counts.preemptions += 1;
        }
    }

    /// Whether enough wait, or have waited for long enough, to join those that run.
    fn may_join(&self) -> bool {
        let (running, waiting) = (self.running.len() as u64, self.waiting.len() as u64);
        match self.limits.joining {
            Some(joining) if running > 0 && self.steps_without_new <= joining.steps => {
                waiting >= running * u64::from(joining.served_ratio_milli) / 1000
            }
            _ => true,
        }
    }

    /// Lets the first of the queue begin, if everything that it needs is there.
    fn admit(&mut self, plan: &mut Plan) -> Option<RequestId> {
        let request = *self.waiting.front()?;
        let is_alone = self.running.is_empty();
        let group = &self.groups[&request];
        if self.running.len() >= self.limits.seats {
            return None;
        }
        let running = || self.running.iter().map(|other| &self.groups[other]);
        let total: usize = running().map(|other| other.most_tokens).sum();
        let is_over = |used: usize, more: usize, most: Option<usize>| {
            used > 0 && most.is_some_and(|most| used.saturating_add(more) > most)
        };
        if is_over(total, group.most_tokens, self.limits.total_tokens) {
            return None;
        }
        let filling = running().filter(|other| other.is_filling);
        let filling: usize = filling.map(Group::prefill_tokens).sum();
        if is_over(filling, group.prefill_tokens(), self.limits.prefill_tokens) {
            return None;
        }
        // One page for each who runs, so that the next step does not take them away again.
        let reserve = self.running.len();
        if group.pages_wanted(&self.pages) + reserve > self.pages.available() {
            if is_alone {
                if !group.has_begun {
                    plan.begun.push(request);
                }
                self.end(request);
                plan.too_long.push(request);
            }
            return None;
        }
        self.waiting.pop_front();
        self.running.push(request);
        let group = self.groups.get_mut(&request)?;
        let known = &mut self.counts.known_tokens;
        if group.begin(&mut self.pages, &mut plan.copies, known) {
            plan.begun.push(request);
        }
        Some(request)
    }

    /// Places the rows of a request that goes on.
    fn place_next_tokens(&self, request: RequestId, plan: &mut Plan) {
        let group = &self.groups[&request];
        if !group.is_filling {
            for (nth, branch) in group.branches.iter().enumerate() {
                let of = (request, nth, group.adapter());
                place(plan, of, branch, 1, usize::MAX);
                place_proposed(plan, branch, group.proposed());
            }
        }
    }

    /// Places the next rows of a prompt, as many as there is room for.
    fn place_chunk(
        &self,
        request: RequestId,
        first_chunk: usize,
        rows: &mut usize,
        plan: &mut Plan,
    ) {
        let group = &self.groups[&request];
        let Some(nth) = group.next_to_fill().filter(|_| *rows > 0) else {
            return;
        };
        let (branch, goal) = (&group.branches[nth], group.goal(nth));
        if let Some(tokens) = group.page_to_share(nth) {
            let computes_it = |(part, span): (&Part, &Span)| {
                let other = &self.groups[&part.request].branches[part.branch];
                span.past < tokens.len()
                    && span.adapter == group.adapter()
                    && other.tokens.starts_with(tokens)
            };
            let chunks = plan.parts.iter().zip(&plan.step.spans).skip(first_chunk);
            if chunks.into_iter().any(computes_it) {
                return;
            }
        }
        let count = chunk(branch.computed, goal, *rows);
        *rows -= count;
        let of = (request, nth, group.adapter());
        place(plan, of, branch, count, group.rows_from);
    }
}

/// Rows of a chunk: it ends with a page where it can, because only whole pages are shared.
fn chunk(computed: usize, goal: usize, rows: usize) -> usize {
    let end = goal.min(computed + rows);
    let full_pages = end / PAGE_TOKENS * PAGE_TOKENS;
    match end < goal && full_pages > computed {
        true => full_pages - computed,
        false => end - computed,
    }
}

/// Adds rows to a plan. Wanted are the last of a sequence, and those from `wants_from` on.
fn place(
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

/// Adds the rows of proposed tokens to the last span of a plan, that of the branch. All of them are wanted.
fn place_proposed(plan: &mut Plan, branch: &Branch, proposed: &[u32]) {
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

/// The tokens of a text's page.
fn page_tokens(text: &[u32], page: usize) -> PageTokens {
    text.as_chunks().0[page]
}

#[cfg(test)]
mod tests;
