//! Keeps the pages of the KV cache: which sequences hold which, which have tokens that a later prompt may begin with,
//! and which is used again when none is free.
//!
//! A page is free (nothing in it), held (by one or more sequences) or idle (held by none, but full of tokens that are known). A full
//! page is known by its tokens and by the known page before it, so that the known pages form a tree, whose paths from the root
//! are beginnings of texts. The tree is walked by the tokens themselves: no hash decides that two texts are one.
//!
//! A sequence that holds a known page holds those before it, and lets go of the last first. So a page is always idle for longer than the
//! one before it, the longest idle page is a leaf, and no page is left behind that cannot be reached.
//!
//! What is in a page depends on the adapter that it was computed with, so each adapter has a tree of its own.

use crate::step::{AdapterNumber, PAGE_TOKENS, Page};
use std::collections::BTreeMap;

/// What a page follows.
#[derive(Debug, Clone, Copy)]
pub(super) enum Before {
    /// Nothing: it begins a text, which is computed with this adapter.
    Text(Option<AdapterNumber>),
    Page(Page),
}

impl From<Option<Page>> for Before {
    fn from(page: Option<Page>) -> Self {
        page.map_or(Self::Text(None), Self::Page)
    }
}

/// The tokens of a full page.
pub(super) type PageTokens = [u32; PAGE_TOKENS];

/// A known page's name in the tree; never given twice. A page's place may be taken by another text, its name is not.
type Node = u64;

/// Before the first page of every text.
const ROOT: Node = 0;

#[derive(Debug, Clone, Default)]
struct Slot {
    owners: usize,
    /// What it is known by: the name of the page before it, its own, and its tokens.
    known: Option<(Node, Node, PageTokens)>,
    /// When it was let go of; counts releases.
    idle_since: u64,
}

/// All pages.
#[derive(Debug)]
pub(crate) struct Pages {
    slots: Vec<Slot>,
    free: Vec<Page>,
    /// Known pages that no sequence holds, the longest idle first.
    idle: BTreeMap<u64, Page>,
    tree: BTreeMap<(Node, PageTokens), Page>,
    last_node: Node,
    releases: u64,
}

impl Pages {
    pub fn new(count: usize) -> Self {
        Self {
            slots: vec![Slot::default(); count],
            free: (0..count as Page).rev().collect(),
            idle: BTreeMap::new(),
            tree: BTreeMap::new(),
            last_node: ROOT,
            releases: 0,
        }
    }

    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.slots.len()
    }

    /// Pages that can be taken.
    pub fn available(&self) -> usize {
        self.free.len() + self.idle.len()
    }

    /// Pages that sequences hold.
    pub fn held(&self) -> usize {
        self.slots.len() - self.available()
    }

    /// Takes a page for writing. Where none is free it is the longest idle one, whose text is forgotten.
    pub fn take(&mut self) -> Option<Page> {
        let page = match self.free.pop() {
            Some(page) => page,
            None => {
                let (_, page) = self.idle.pop_first()?;
                self.forget(page);
                page
            }
        };
        self.slots[page as usize].owners = 1;
        Some(page)
    }

    /// One more holds a page that is held already.
    pub fn share(&mut self, page: Page) {
        self.slots[page as usize].owners += 1;
    }

    /// Whether others hold it too, so that it must be copied before it is written.
    pub fn is_shared(&self, page: Page) -> bool {
        self.slots[page as usize].owners > 1
    }

    /// Lets go of the pages of one sequence, given in the order of its text.
    pub fn release(&mut self, pages: &[Page]) {
        for page in pages.iter().rev() {
            let slot = &mut self.slots[*page as usize];
            slot.owners -= 1;
            if slot.owners > 0 {
                continue;
            }
            if slot.known.is_some() {
                self.releases += 1;
                slot.idle_since = self.releases;
                self.idle.insert(self.releases, *page);
            } else {
                self.free.push(*page);
            }
        }
    }

    /// The known page with `tokens` that follows `before`.
    pub fn find(&self, before: impl Into<Before>, tokens: &PageTokens) -> Option<Page> {
        let node = self.node(before.into())?;
        self.tree.get(&(node, *tokens)).copied()
    }

    /// How many pages at the beginning of `tokens` are known, and how many of these are idle: to hold them takes those away
    /// from what is available.
    pub fn known(&self, adapter: Option<AdapterNumber>, tokens: &[u32]) -> (usize, usize) {
        let (mut count, mut idle, mut before) = (0, 0, Before::Text(adapter));
        for tokens in tokens.as_chunks().0 {
            let Some(page) = self.find(before, tokens) else {
                break;
            };
            count += 1;
            idle += usize::from(self.slots[page as usize].owners == 0);
            before = Before::Page(page);
        }
        (count, idle)
    }

    /// Holds a known page.
    pub fn hold(&mut self, page: Page) {
        let slot = &mut self.slots[page as usize];
        if slot.owners == 0 {
            self.idle.remove(&slot.idle_since);
        }
        slot.owners += 1;
    }

    /// Makes known that `page`, which follows `before`, is full of `tokens`. Where another page has the same text the caller
    /// holds that one from here on, and `page` no longer. Answers which of the two it is.
    pub fn fill(&mut self, before: impl Into<Before>, page: Page, tokens: PageTokens) -> Page {
        let Some(parent) = self.node(before.into()) else {
            return page;
        };
        match self.tree.get(&(parent, tokens)).copied() {
            Some(same) if same == page => page,
            Some(same) => {
                self.hold(same);
                self.release(&[page]);
                same
            }
            None => {
                self.last_node += 1;
                self.tree.insert((parent, tokens), page);
                self.slots[page as usize].known = Some((parent, self.last_node, tokens));
                page
            }
        }
    }

    fn node(&self, before: Before) -> Option<Node> {
        match before {
            Before::Text(None) => Some(ROOT),
            // Names of pages count up from the root and never come so far.
            Before::Text(Some(adapter)) => Some(Node::MAX - Node::from(adapter)),
            Before::Page(page) => self.slots[page as usize].known.map(|(_, node, _)| node),
        }
    }

    fn forget(&mut self, page: Page) {
        if let Some((parent, _, tokens)) = self.slots[page as usize].known.take() {
            self.tree.remove(&(parent, tokens));
        }
    }
}

#[cfg(test)]
mod tests;
