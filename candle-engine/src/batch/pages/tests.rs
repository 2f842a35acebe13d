//! Tests pages by example and with random operations; a checker recounts the holders.

use super::*;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeSet;

fn full(token: u32) -> PageTokens {
    [token; PAGE_TOKENS]
}

/// Takes one page for each of `texts` and fills it.
fn written(pages: &mut Pages, texts: &[u32]) -> Vec<Page> {
    let mut held: Vec<Page> = Vec::new();
    for token in texts {
        let page = pages.take().expect("a page");
        let page = pages.fill(held.last().copied(), page, full(*token));
        held.push(page);
    }
    held
}

/// Recounts all pages. `held` lists the pages of each holder.
fn check(pages: &Pages, held: &[Vec<Page>]) {
    let mut owners = vec![0; pages.count()];
    for page in held.iter().flatten() {
        owners[*page as usize] += 1;
    }
    let free: BTreeSet<Page> = pages.free.iter().copied().collect();
    assert_eq!(free.len(), pages.free.len(), "a page is free twice");
    let idle: BTreeSet<Page> = pages.idle.values().copied().collect();
    assert_eq!(idle.len(), pages.idle.len(), "a page is idle twice");
    for page in 0..pages.count() as Page {
        let slot = &pages.slots[page as usize];
        assert_eq!(slot.owners, owners[page as usize], "page {page}");
        let places = [free.contains(&page), idle.contains(&page), slot.owners > 0];
        let count = places.iter().filter(|is_there| **is_there).count();
        assert_eq!(count, 1, "page {page} is lost or in two places: {places:?}");
        assert!(!idle.contains(&page) || slot.known.is_some());
        if let Some((parent, _, tokens)) = slot.known {
            assert_eq!(pages.tree.get(&(parent, tokens)), Some(&page));
            let reachable = parent == ROOT
                || pages
                    .slots
                    .iter()
                    .any(|slot| slot.known.is_some_and(|(_, node, _)| node == parent));
            assert!(reachable, "page {page} was left behind");
        }
    }
    let known = pages.slots.iter().filter(|slot| slot.known.is_some());
    assert_eq!(known.count(), pages.tree.len());
}

#[test]
fn cached_texts_are_found_page_by_page() {
    let mut pages = Pages::new(8);
    let held = written(&mut pages, &[1, 2, 3]);
    let text = |tokens: &[u32]| {
        tokens
            .iter()
            .flat_map(|token| full(*token))
            .collect::<Vec<_>>()
    };
    assert_eq!(pages.known(None, &text(&[1, 2, 3, 4])), (3, 0));
    assert_eq!(pages.known(None, &text(&[1, 3])), (1, 0));
    assert_eq!(pages.known(None, &text(&[2])), (0, 0), "it begins no text");
    pages.release(&held);
    assert_eq!(pages.known(None, &text(&[1, 2])), (2, 2));
    assert_eq!((pages.held(), pages.available()), (0, 8));
    check(&pages, &[]);
}

#[test]
fn the_last_page_of_the_longest_idle_text_is_reused_first() {
    let mut pages = Pages::new(4);
    let first = written(&mut pages, &[1, 2]);
    let second = written(&mut pages, &[7, 8]);
    pages.release(&first);
    pages.release(&second);
    assert_eq!(pages.take(), Some(first[1]));
    assert_eq!(pages.take(), Some(first[0]));
    assert_eq!(pages.find(None, &full(7)), Some(second[0]));
    assert_eq!(pages.find(None, &full(1)), None);
    pages.hold(second[0]);
    assert_eq!(pages.take(), Some(second[1]));
    assert_eq!(pages.take(), None, "the rest is held");
}

#[test]
fn filling_a_page_with_a_cached_prefix_reuses_the_cached_page() {
    let mut pages = Pages::new(4);
    let first = written(&mut pages, &[1]);
    let second = written(&mut pages, &[1, 2]);
    assert_eq!(first[0], second[0]);
    assert!(pages.is_shared(first[0]) && !pages.is_shared(second[1]));
    assert_eq!(pages.held(), 2);
    check(&pages, &[first, second]);
}

#[test]
fn no_page_is_lost_or_owned_twice_under_random_operations() {
    for seed in 0..40 {
        let mut random = StdRng::seed_from_u64(seed);
        let mut pages = Pages::new(random.random_range(1..24));
        // The pages of each holder, and whether its last page is full.
        let mut held: Vec<(Vec<Page>, bool)> = Vec::new();
        for _ in 0..600 {
            let holder = match held.len() {
                0 => None,
                count => Some(random.random_range(0..count)),
            };
            match (random.random_range(0..10), holder) {
                (0..3, _) => held.push((Vec::new(), true)),
                (3..5, Some(holder)) => {
                    let (gone, _) = held.swap_remove(holder);
                    pages.release(&gone);
                }
                (5, Some(holder)) => {
                    let copy = held[holder].clone();
                    copy.0.iter().for_each(|page| pages.share(*page));
                    held.push(copy);
                }
                (_, Some(holder)) => {
                    let (mine, is_full) = &mut held[holder];
                    if *is_full {
                        // Only a few different tokens, which makes texts collide.
                        let tokens = full(random.random_range(0..3));
                        match pages.find(mine.last().copied(), &tokens) {
                            Some(page) if random.random_bool(0.5) => {
                                pages.hold(page);
                                mine.push(page);
                            }
                            _ => match pages.take() {
                                Some(page) => {
                                    mine.push(page);
                                    *is_full = false;
                                }
                                None => assert_eq!(pages.available(), 0),
                            },
                        }
                    } else {
                        let last = *mine.last().expect("it has one");
                        let own = if !pages.is_shared(last) {
                            Some(last)
                        } else {
                            pages.take().inspect(|_| pages.release(&[last]))
                        };
                        // If no page is left for a copy, the page remains unchanged.
                        if let Some(page) = own {
                            mine.pop();
                            let tokens = full(random.random_range(0..3));
                            mine.push(pages.fill(mine.last().copied(), page, tokens));
                            *is_full = true;
                        }
                    }
                }
                _ => {}
            }
            let all: Vec<Vec<Page>> = held.iter().map(|(pages, _)| pages.clone()).collect();
            check(&pages, &all);
        }
    }
}
