//! One request in the schedule: its sequences, what of them is computed, and the pages that they hold.

use super::draft::{Draft, DraftLimits};
use super::{Arrival, page_tokens};
use crate::adapter::Adapter;
use crate::batch::pages::{Before, Pages};
use crate::step::{AdapterNumber, PAGE_TOKENS, Page};
use std::sync::Arc;

/// One sequence: a prompt and what follows it.
#[derive(Debug, Clone, Default)]
pub(super) struct Branch {
    pub tokens: Vec<u32>,
    /// Tokens whose keys and values are in the cache.
    pub computed: usize,
    pub pages: Vec<Page>,
}

impl Branch {
    fn page_before(&self, page: usize, adapter: Option<AdapterNumber>) -> Before {
        let before = page.checked_sub(1).map(|before| self.pages[before]);
        before.map_or(Before::Text(adapter), Before::Page)
    }

    /// Takes known pages from the place where it is, as far as `limit` tokens, in place of its own. Answers how many tokens
    /// these are.
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

    /// Takes pages until all its tokens have a place. Whether there were enough.
    fn take_pages(&mut self, pages: &mut Pages) -> bool {
        while self.pages.len() < self.tokens.len().div_ceil(PAGE_TOKENS) {
            match pages.take() {
                Some(page) => self.pages.push(page),
                None => return false,
            }
        }
        true
    }

    /// Makes the page of its next row its own. Whether there was one.
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

/// One request.
#[derive(Debug)]
pub(super) struct Group {
    /// At least one; all of the same length.
    pub branches: Vec<Branch>,
    /// What it is computed with, in use as long as this is here.
    adapter: Option<Arc<Adapter>>,
    pub most_tokens: usize,
    /// Rows from here on are wanted; beyond all, where only the last is.
    pub rows_from: usize,
    /// Not all that is before the next token is computed.
    pub is_filling: bool,
    pub has_begun: bool,
    /// Where tokens may be proposed to it.
    draft: Option<Draft>,
}

impl Group {
    pub fn new(arrival: Arrival, drafts: DraftLimits) -> Self {
        let takes_drafts = arrival.takes_drafts && drafts.tokens > 0;
        let first = Branch {
            tokens: arrival.prompt,
            ..Branch::default()
        };
        Self {
            branches: vec![first],
            adapter: arrival.adapter,
            most_tokens: arrival.most_tokens,
            rows_from: match arrival.needs_all_rows {
                true => 0,
                false => usize::MAX,
            },
            is_filling: true,
            has_begun: false,
            draft: takes_drafts.then(|| Draft::new(drafts, arrival.most_tokens)),
        }
    }

    pub fn adapter(&self) -> Option<AdapterNumber> {
        self.adapter.as_ref().map(|adapter| adapter.number)
    }

    /// Tokens that are computed before it can go on. The rows after which several sequences go on are in one step, so their
    /// last tokens are left for it.
    pub fn goal(&self, nth: usize) -> usize {
        let tokens = self.branches[nth].tokens.len();
        match self.branches.len() {
            1 => tokens,
            _ => tokens - 1,
        }
    }

    /// Tokens that it counts for among the prompts.
    pub fn prefill_tokens(&self) -> usize {
        self.branches[0].tokens.len()
    }

    /// Tokens of a sequence that may come from known pages: at least the last is computed, and what is wanted.
    fn skippable(&self, nth: usize) -> usize {
        (self.branches[nth].tokens.len() - 1).min(self.rows_from)
    }

    /// Pages that it takes from those available when it begins. What its sequences have in common they hold together.
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

    /// Takes the pages that it begins with. Whether it is the first time.
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

    /// The sequence that is filled now; they follow each other, because the later ones find what the first has computed.
    pub fn next_to_fill(&self) -> Option<usize> {
        let is_open = |nth: &usize| self.branches[*nth].computed < self.goal(*nth);
        (0..self.branches.len()).find(|nth| self.is_filling && is_open(nth))
    }

    /// Finds the pages of the next rows. Whether there were enough; what was found stays.
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

    /// The text up to the end of the next page, if the page would be skipped were it known.
    pub fn page_to_share(&self, nth: usize) -> Option<&[u32]> {
        let branch = &self.branches[nth];
        let end = branch.computed + PAGE_TOKENS;
        let is_full_page =
            branch.computed.is_multiple_of(PAGE_TOKENS) && end <= self.skippable(nth);
        is_full_page.then(|| &branch.tokens[..end])
    }

    /// Takes note of computed rows; pages that are full with them become known.
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

    /// Proposes tokens for its next step beside `going_on` rows, and takes the pages of their rows where it may; what has no place is
    /// left out.
    pub fn propose(&mut self, going_on: usize, takes_pages: bool, pages: &mut Pages) {
        let (Some(draft), [branch]) = (&mut self.draft, &mut self.branches[..]) else {
            return;
        };
        let tokens = branch.tokens.len();
        let is_next = !self.is_filling && branch.computed + 1 == tokens;
        let most = match is_next {
            // The last token of an answer is never computed.
            true => self.most_tokens.saturating_sub(tokens + 1),
            false => 0,
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

    /// Goes on by the first `count` proposed tokens, whose rows were computed.
    pub fn accept(&mut self, count: usize, pages: &mut Pages) {
        if let (Some(draft), [branch]) = (&mut self.draft, &mut self.branches[..]) {
            branch.tokens.extend_from_slice(draft.accept(count));
            self.computed(0, count, pages);
        }
    }

    /// Replaces the sequences by `ways`: those of before, each with a token more.
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

    /// Gives all its pages back; everything must be computed again.
    pub fn release(&mut self, pages: &mut Pages) {
        for branch in &mut self.branches {
            pages.release(&std::mem::take(&mut branch.pages));
            branch.computed = 0;
        }
    }
}
