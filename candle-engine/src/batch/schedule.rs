//! Plans the next step: which request begins, whose rows are in the step, on which pages, and which request gives pages back when
//! they run out. It reads no clock, which makes runs repeatable.
//!
//! ```text
//!   arrive ──> waiting ──(seat, budgets and pages)──> filling ──(prompt computed)──> going on, token by token ──> end
//!                 ^                                      │                                │
//!                 └────────── pages ran out: the youngest goes back to the front ─────────┘
//! ```
//!
//! Requests are numbered in order of arrival, and every running request is older than every waiting one: none overtakes. A request
//! is one sequence, or several that fork (beams, candidates) and advance together: they have the same length, and their next rows
//! are in one step.
//!
//! Running requests are in every step. Prompts fill the rest up to a bound, which limits how long a long prompt delays the next
//! tokens of others. A prompt skips known pages, and waits while another request computes a page that it needs too.
//!
//! Tokens may be proposed for a request with a single sequence ([`draft`]). Their rows follow its last token's row in the step.
//! Only tokens that turn out right become part of the sequence, and only their rows count as computed.

mod draft;
mod group;
mod plan;

pub(crate) use draft::DraftLimits;
pub(crate) use plan::{Arrival, Counts, Limits, Part, Plan, RequestId};

use super::pages::Pages;
use crate::step::{Page, Span};
use group::Group;
use plan::{chunk, place, place_proposed};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The state of all requests and pages.
#[derive(Debug)]
pub(crate) struct Schedule {
    limits: Limits,
    pages: Pages,
    groups: BTreeMap<RequestId, Group>,
    /// Request ids in order of arrival.
    waiting: VecDeque<RequestId>,
    running: Vec<RequestId>,
    last_request: RequestId,
    /// Steps since a request last began.
    steps_without_new: u32,
    counts: Counts,
    /// Sequences may share pages.
    shares: bool,
}

impl Schedule {
    pub fn new(limits: Limits) -> Self {
        Self {
            shares: true,
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

    /// Creates a schedule in which each page belongs to one sequence.
    pub fn unshared(limits: Limits) -> Self {
        Self {
            shares: false,
            pages: Pages::unshared(limits.pages),
            ..Self::new(limits)
        }
    }

    /// The first pages of all running sequences.
    pub fn first_pages(&self) -> BTreeSet<Page> {
        let running = self.running.iter().map(|request| &self.groups[request]);
        let branches = running.flat_map(|group| &group.branches);
        branches
            .filter_map(|branch| branch.pages.first().copied())
            .collect()
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

    /// Forgets the contents of all pages and returns true, unless a request is still present.
    pub fn forget_pages(&mut self) -> bool {
        let is_idle = self.is_empty();
        if is_idle {
            self.pages = if self.shares {
                Pages::new(self.limits.pages)
            } else {
                Pages::unshared(self.limits.pages)
            };
        }
        is_idle
    }

    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Returns true if the request has left the queue before, even if it was queued again.
    pub fn has_begun(&self, request: RequestId) -> bool {
        let group = self.groups.get(&request);
        group.is_some_and(|group| group.has_begun)
    }

    /// Adds a request to the queue.
    pub fn arrive(&mut self, arrival: Arrival) -> RequestId {
        self.last_request += 1;
        let request = self.last_request;
        let group = Group::new(arrival, self.limits.drafts);
        self.groups.insert(request, group);
        self.waiting.push_back(request);
        request
    }

    /// Ends a request in any state and frees its pages.
    pub fn end(&mut self, request: RequestId) {
        if let Some(mut group) = self.groups.remove(&request) {
            group.release(&mut self.pages);
            self.running.retain(|other| *other != request);
            self.waiting.retain(|other| *other != request);
        }
    }

    /// Advances after a deciding row: replaces the sequences by `ways`, each the index of an old sequence and its next token.
    pub fn advance(&mut self, request: RequestId, ways: &[(usize, u32)]) {
        if let Some(group) = self.groups.get_mut(&request) {
            group.advance(ways, &mut self.pages);
        }
    }

    /// The tokens proposed for a request in the current step.
    pub fn proposed(&self, request: RequestId) -> &[u32] {
        let group = self.groups.get(&request);
        group.map_or(&[], Group::proposed)
    }

    /// Advances by the first `count` proposed tokens; [`Self::advance`] follows.
    pub fn accept(&mut self, request: RequestId, count: usize) {
        if let Some(group) = self.groups.get_mut(&request) {
            group.accept(count, &mut self.pages);
        }
    }

    /// Plans the next step; returns `None` if there is nothing to compute.
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

    /// Records that a step was computed.
    pub fn computed(&mut self, plan: &Plan) {
        for (part, span) in plan.parts.iter().zip(&plan.step.spans) {
            if let Some(group) = self.groups.get_mut(&part.request) {
                let count = span.count - part.proposed;
                group.computed(part.branch, count, &mut self.pages);
            }
        }
    }

    /// Assigns all running requests the pages of their next rows, the oldest first. Runs before rows are placed: a request that
    /// loses its pages here is in no step.
    fn find_pages(&mut self, plan: &mut Plan) {
        let mut nth = 0;
        while let Some(request) = self.running.get(nth).copied() {
            let mut has_room = false;
            if let Some(group) = self.groups.get_mut(&request) {
                let known = &mut self.counts.known_tokens;
                has_room = group.find_pages(&mut self.pages, &mut plan.copies, known);
            }
            if has_room {
                nth += 1
            } else if self.running.len() == 1 {
                self.end(request);
                plan.too_long.push(request);
            } else {
                // Retries, unless the youngest request was this one.
                self.preempt_youngest()
            }
        }
    }

    /// Proposes tokens to the requests that continue. Takes no page that a waiting request could begin with.
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

    /// Returns true if enough requests wait, or have waited long enough, to join the running ones.
    fn may_join(&self) -> bool {
        let (running, waiting) = (self.running.len() as u64, self.waiting.len() as u64);
        match self.limits.joining {
            Some(joining) if running > 0 && self.steps_without_new <= joining.steps => {
                waiting >= running * u64::from(joining.served_ratio_milli) / 1000
            }
            _ => true,
        }
    }

    /// Starts the first queued request if everything it needs is available.
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
        // Reserves one page per running request; otherwise the next step would take the new request's pages away again.
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

    /// Places the next rows of a request that is generating.
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

    /// Places the next rows of a prompt, as many as fit.
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

#[cfg(test)]
mod tests;
