//! One request in the schedule: its sequences, how far they are computed, and the pages they hold.

use super::draft::{Draft, DraftLimits};
use super::plan::{Arrival, page_tokens};
use crate::adapter::Adapter;
use crate::batch::pages::{Pages, Predecessor};
use crate::step::{AdapterNumber, PAGE_TOKENS, Page};
use std::sync::Arc;

/// One sequence: a prompt and its continuation.
#[derive(Debug, Clone, Default)]
pub(super) struct Branch {
    pub tokens: Vec<u32>,
    /// Number of tokens that came with the request.
    pub prompt: usize,
    /// Tokens whose keys and values are in the cache.
    pub computed: usize,
    pub pages: Vec<Page>,
}

impl Branch {
    fn page_before(&self, page: usize, adapter: Option<AdapterNumber>) -> Predecessor {
        let before = page.checked_sub(1).map(|before| self.pages[before]);
        before.map_or(Predecessor::Text(adapter), Predecessor::Page)
    }

    /// Replaces its own pages by known pages, from its current position up to `limit` tokens. Returns the number of skipped tokens.
    fn skip_known(
        &mut self,
        limit: usize,
        adapter: Option<AdapterNumber>,
        pages: &mut Pages,
    ) -> usize {
        let before = self.computed;
        while self.computed.is_multiple_of(PAGE_TOKENS) && self.computed + PAGE_TOKENS <= limit {
            let page = self.computed / PAGE_TOKENS;
            let tokens = page_tokens(&self.tokens, page);
            let Some(known) = pages.find(self.page_before(page, adapter), &tokens) else {
                break;
            };
            pages.hold(known);
            match self.pages.get_mut(page) {
                Some(own) => pages.release(&[std::mem::replace(own, known)]),
                None => self.pages.push(known),
            }
            self.computed += PAGE_TOKENS;
        }
        self.computed - before
    }

    /// Takes pages until all tokens have a place. Returns false if the pages ran out.
    fn take_pages(&mut self, pages: &mut Pages) -> bool {
        while self.pages.len() < self.tokens.len().div_ceil(PAGE_TOKENS) {
            match pages.take() {
                Some(page) => self.pages.push(page),
                None => return false,
            }
        }
        true
    }

    /// Makes the page of its next row exclusive, by a copy if necessary. Returns false if no page was available.
    fn own_page(&mut self, pages: &mut Pages, copies: &mut Vec<(Page, Page)>) -> bool {
        let last = self.computed / PAGE_TOKENS;
        match self.pages.get(last).copied() {
            None => self.take_pages(pages),
            Some(page) if pages.is_shared(page) => {
                let Some(copy) = pages.take() else {
                    return false;
                };
                copies.push((page, copy));
                pages.release(&[page]);
                self.pages[last] = copy;
                true
            }
            Some(_) => true,
        }
    }
}

/// A request: one or more sequences.
#[derive(Debug)]
pub(super) struct Group {
    /// At least one; all have the same length.
    pub branches: Vec<Branch>,
    /// The adapter; the reference keeps it loaded.
    adapter: Option<Arc<Adapter>>,
    pub most_tokens: usize,
    /// First row that is requested; `usize::MAX` if only the last one is.
    pub rows_from: usize,
    /// Tokens before the next one are still to be computed.
    pub is_filling: bool,
    pub has_begun: bool,
    /// Present if tokens may be proposed.
    draft: Option<Draft>,
}

impl Group {
    pub fn new(arrival: Arrival, drafts: DraftLimits) -> Self {
        let takes_drafts = arrival.takes_drafts && drafts.tokens > 0;
        let first = Branch {
            prompt: arrival.prompt.len(),
            tokens: arrival.prompt,
            ..Branch::default()
        };
        Self {
            branches: vec![first],
            adapter: arrival.adapter,
            most_tokens: arrival.most_tokens,
            rows_from: if arrival.needs_all_rows {
                0
            } else {
                usize::MAX
            },
            is_filling: true,
            has_begun: false,
            draft: takes_drafts.then(|| Draft::new(drafts, arrival.most_tokens)),
        }
    }

    pub fn adapter(&self) -> Option<AdapterNumber> {
        self.adapter.as_ref().map(|adapter| adapter.number)
    }

    /// Number of tokens to compute before the sequence can advance. Several sequences advance in one step, which computes their
    /// last tokens.
    pub fn goal(&self, nth: usize) -> usize {
        let tokens = self.branches[nth].tokens.len();
        match self.branches.len() {
            1 => tokens,
            _ => tokens - 1,
        }
    }

    /// Number of tokens that count toward the prompt limit.
    pub fn prefill_tokens(&self) -> usize {
        self.branches[0].tokens.len()
    }

    /// Number of tokens that known pages may supply: the last token and the requested rows must be computed.
    fn skippable(&self, nth: usize) -> usize {
        (self.branches[nth].tokens.len() - 1).min(self.rows_from)
    }

    /// Number of available pages that the request takes when it begins. Sequences share the pages of their common prefix.
    pub fn pages_wanted(&self, pages: &Pages) -> usize {
        let first = &self.branches[0].tokens;
        let (known, idle) = pages.known(self.adapter(), &first[..self.skippable(0)]);
        let all = first.len().div_ceil(PAGE_TOKENS);
        let common = |other: &Branch| {
            let both = first.iter().zip(&other.tokens);
            both.take_while(|(a, b)| a == b).count()
        };
        let others = &self.branches[1..];
        let common = others.iter().map(common).min().unwrap_or_default();
        all - known + idle + others.len() * (all - common / PAGE_TOKENS)
    }

    /// Takes the pages to begin with. Returns true the first time.
    pub fn begin(
        &mut self,
        pages: &mut Pages,
        copies: &mut Vec<(Page, Page)>,
        known_tokens: &mut u64,
    ) -> bool {
        self.is_filling = true;
        self.find_pages(pages, copies, known_tokens);
        !std::mem::replace(&mut self.has_begun, true)
    }

    /// The sequence whose prompt is computed now. Sequences follow each other, because later ones reuse what the first has
    /// computed.
    pub fn next_to_fill(&self) -> Option<usize> {
        let is_open = |nth: &usize| self.branches[*nth].computed < self.goal(*nth);
        (0..self.branches.len()).find(|nth| self.is_filling && is_open(nth))
    }

    /// Finds the pages of the next rows. Returns false if they ran out; pages found so far are kept.
    pub fn find_pages(
        &mut self,
        pages: &mut Pages,
        copies: &mut Vec<(Page, Page)>,
        known_tokens: &mut u64,
    ) -> bool {
        let adapter = self.adapter();
        while let Some(nth) = self.next_to_fill() {
            let limit = self.goal(nth).min(self.skippable(nth));
            *known_tokens += self.branches[nth].skip_known(limit, adapter, pages) as u64;
            if !self.branches[nth].take_pages(pages) {
                return false;
            }
            if self.branches[nth].computed < self.goal(nth) {
                return true;
            }
        }
        self.is_filling = false;
        let mut branches = self.branches.iter_mut();
        branches.all(|branch| branch.own_page(pages, copies))
    }

    /// The text up to the end of the next page, if a known page could supply that page.
    pub fn page_to_share(&self, nth: usize) -> Option<&[u32]> {
        let branch = &self.branches[nth];
        let end = branch.computed + PAGE_TOKENS;
        let is_full_page =
            branch.computed.is_multiple_of(PAGE_TOKENS) && end <= self.skippable(nth);
        is_full_page.then(|| &branch.tokens[..end])
    }

    /// Records computed rows and registers the pages they fill.
    pub fn computed(&mut self, nth: usize, count: usize, pages: &mut Pages) {
        let adapter = self.adapter();
        let branch = &mut self.branches[nth];
        let full = branch.computed / PAGE_TOKENS;
        branch.computed += count;
        for page in full..branch.computed / PAGE_TOKENS {
            let tokens = page_tokens(&branch.tokens, page);
            branch.pages[page] = pages.fill(
                branch.page_before(page, adapter),
                branch.pages[page],
                tokens,
            );
        }
        if self.rows_from != usize::MAX {
            self.rows_from = self.rows_from.max(branch.computed);
        }
        if self.is_filling {
            self.is_filling = self.next_to_fill().is_some();
        }
    }

    /// Proposes tokens for the next step, which has `going_on` other rows, and takes pages for them if `takes_pages`. Proposals
    /// without a page are dropped.
    pub fn propose(&mut self, going_on: usize, takes_pages: bool, pages: &mut Pages) {
        let (Some(draft), [branch]) = (&mut self.draft, &mut self.branches[..]) else {
            return;
        };
        let tokens = branch.tokens.len();
        let is_next = !self.is_filling && branch.computed + 1 == tokens;
        let most = if is_next {
            // The last token of a completion is never computed.
            self.most_tokens.saturating_sub(tokens + 1)
        } else {
            0
        };
        draft.propose(&branch.tokens, most, going_on);
        let wanted = (tokens + draft.proposed().len()).div_ceil(PAGE_TOKENS);
        while takes_pages && is_next && branch.pages.len() < wanted {
            match pages.take() {
                Some(page) => branch.pages.push(page),
                None => break,
            }
        }
        draft.keep((branch.pages.len() * PAGE_TOKENS).saturating_sub(tokens));
    }

    pub fn proposed(&self) -> &[u32] {
        self.draft.as_ref().map_or(&[], Draft::proposed)
    }

    /// Advances by the first `count` proposals, whose rows were computed.
    pub fn accept(&mut self, count: usize, pages: &mut Pages) {
        if let (Some(draft), [branch]) = (&mut self.draft, &mut self.branches[..]) {
            branch.tokens.extend_from_slice(draft.accept(count));
            self.computed(0, count, pages);
        }
    }

    /// Replaces the sequences by `ways`: the index of an old sequence, and its next token.
    pub fn advance(&mut self, ways: &[(usize, u32)], pages: &mut Pages) {
        self.rows_from = usize::MAX;
        if let ([(0, token)], [branch]) = (ways, &mut self.branches[..]) {
            branch.tokens.push(*token);
            if let Some(draft) = &mut self.draft {
                draft.settle(*token);
                let held = branch.computed.div_ceil(PAGE_TOKENS);
                pages.release(&branch.pages.split_off(held));
            }
            return;
        }
        let way = |(parent, token): &(usize, u32)| {
            let mut branch = self.branches[*parent].clone();
            branch.tokens.push(*token);
            branch
        };
        let next: Vec<Branch> = ways.iter().map(way).collect();
        for page in next.iter().flat_map(|branch| &branch.pages) {
            pages.share(*page);
        }
        let before = std::mem::replace(&mut self.branches, next);
        before
            .iter()
            .for_each(|branch| pages.release(&branch.pages));
    }

    /// Releases all pages; the sequences must be computed again.
    pub fn release(&mut self, pages: &mut Pages) {
        for branch in &mut self.branches {
            pages.release(&std::mem::take(&mut branch.pages));
            branch.computed = 0;
        }
    }
}
