//! Manages the pages of the KV cache: which sequences hold them, which contain tokens that a later prompt may reuse as a prefix,
//! and which page is reused when none is free.
//!
//! A page is free (empty), held (by one or more sequences) or idle (held by none, but full of known tokens). A full page is
//! identified by its tokens and by the known page before it. The known pages therefore form a tree whose paths from the root are
//! prefixes of texts. The tree is walked by comparing the tokens; texts are never identified by a hash alone.
//!
//! A sequence that holds a known page also holds its predecessors, and releases the last page first. A page has therefore always
//! been idle longer than its predecessor, the page that was idle longest is a leaf, and no page becomes unreachable.
//!
//! The contents of a page depend on the adapter it was computed with, so each adapter has a separate tree.

use crate::step::{AdapterNumber, PAGE_TOKENS, Page};
use std::collections::BTreeMap;

/// The predecessor of a page.
#[derive(Debug, Clone, Copy)]
pub(super) enum Predecessor {
    /// None: the page begins a text that is computed with this adapter.
    Text(Option<AdapterNumber>),
    Page(Page),
}

impl From<Option<Page>> for Predecessor {
    fn from(page: Option<Page>) -> Self {
        page.map_or(Self::Text(None), Self::Page)
    }
}

/// The tokens of a full page.
pub(super) type PageTokens = [u32; PAGE_TOKENS];

/// Identifier of a known page in the tree. Never reused, unlike the page itself.
type Node = u64;

/// The predecessor of the first page of every text.
const ROOT: Node = 0;

#[derive(Debug, Clone, Default)]
struct Slot {
    owners: usize,
    /// Identity of a known page: its predecessor's node, its own node, and its tokens.
    known: Option<(Node, Node, PageTokens)>,
    /// Release counter at the time of its last release.
    idle_since: u64,
}

/// The pages of the cache.
#[derive(Debug)]
pub(crate) struct Pages {
    slots: Vec<Slot>,
    free: Vec<Page>,
    /// Known pages that no sequence holds, ordered by idle time, the longest first.
    idle: BTreeMap<u64, Page>,
    tree: BTreeMap<(Node, PageTokens), Page>,
    last_node: Node,
    releases: u64,
    /// Full pages are registered, and other sequences may hold them.
    shares: bool,
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
            shares: true,
        }
    }

    /// Creates pages that belong to one sequence each.
    pub fn unshared(count: usize) -> Self {
        Self {
            shares: false,
            ..Self::new(count)
        }
    }

    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.slots.len()
    }

    /// Number of pages that can be taken.
    pub fn available(&self) -> usize {
        self.free.len() + self.idle.len()
    }

    /// Number of pages that sequences hold.
    pub fn held(&self) -> usize {
        self.slots.len() - self.available()
    }

    /// Takes a page for writing. If none is free, takes the page that was idle longest and forgets its text.
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

    /// Adds a holder to a page that is held already.
    pub fn share(&mut self, page: Page) {
        self.slots[page as usize].owners += 1;
    }

    /// Returns true if other sequences hold the page too; it must then be copied before it is written.
    pub fn is_shared(&self, page: Page) -> bool {
        self.slots[page as usize].owners > 1
    }

    /// Releases the pages of one sequence, given in text order.
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

    /// Returns the known page with `tokens` that follows `before`.
    pub fn find(&self, before: impl Into<Predecessor>, tokens: &PageTokens) -> Option<Page> {
        let node = self.node(before.into())?;
        self.tree.get(&(node, *tokens)).copied()
    }

    /// Returns how many pages at the beginning of `tokens` are known, and how many of these are idle. Holding an idle page reduces
    /// the available ones.
    pub fn known(&self, adapter: Option<AdapterNumber>, tokens: &[u32]) -> (usize, usize) {
        let (mut count, mut idle, mut before) = (0, 0, Predecessor::Text(adapter));
        for tokens in tokens.as_chunks().0 {
            let Some(page) = self.find(before, tokens) else {
                break;
            };
            count += 1;
            idle += usize::from(self.slots[page as usize].owners == 0);
            before = Predecessor::Page(page);
        }
        (count, idle)
    }

    /// Adds a holder to a known page.
    pub fn hold(&mut self, page: Page) {
        let slot = &mut self.slots[page as usize];
        if slot.owners == 0 {
            self.idle.remove(&slot.idle_since);
        }
        slot.owners += 1;
    }

    /// Registers `page`, which follows `before`, as full of `tokens`. If another page has the same text, the caller holds that page
    /// from then on and no longer `page`. Returns the page that the caller now holds.
    pub fn fill(&mut self, before: impl Into<Predecessor>, page: Page, tokens: PageTokens) -> Page {
        if !self.shares {
            return page;
        }
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

    fn node(&self, before: Predecessor) -> Option<Node> {
        match before {
            Predecessor::Text(None) => Some(ROOT),
            // Node numbers count up from the root and never reach this range.
            Predecessor::Text(Some(adapter)) => Some(Node::MAX - Node::from(adapter)),
            Predecessor::Page(page) => self.slots[page as usize].known.map(|(_, node, _)| node),
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
