//! Distributes the tiles of a section of products among threads.

use std::ops::Range;

/// Assigns neighboring tiles to each task: in each round, all threads together take half of the remaining tiles. A thread therefore
/// reads long stretches, which can be prefetched, and no thread waits long for another at the end.
pub(super) struct Shares {
    pub tiles: usize,
    pub threads: usize,
    /// Minimum tiles per share, except for the last one.
    pub least: usize,
}

impl Shares {
    /// Yields for each round its first task, its first tile and the tiles per task. The last round takes all remaining tiles.
    fn rounds(&self) -> impl Iterator<Item = (usize, usize, usize)> {
        let (mut task, mut first) = (0, 0);
        std::iter::from_fn(move || {
            let left = self.tiles - first;
            if left == 0 {
                return None;
            }
            let size = (left / (2 * self.threads)).max(self.least);
            let round = (task, first, size);
            task += self.threads.min(left.div_ceil(size));
            first += left.min(self.threads * size);
            Some(round)
        })
    }

    pub fn count(&self) -> usize {
        self.rounds().last().map_or(0, |(task, first, size)| {
            task + (self.tiles - first).div_ceil(size)
        })
    }

    pub fn share(&self, task: usize) -> Range<usize> {
        let round = self.rounds().take_while(|round| round.0 <= task).last();
        let (first_task, first, size) = round.unwrap_or_default();
        let first = first + (task - first_task) * size;
        first..self.tiles.min(first + size)
    }
}

#[cfg(test)]
mod tests {
    use super::Shares;

    #[test]
    fn shares_are_contiguous_and_cover_every_tile_once() {
        for tiles in [0, 1, 2, 3, 7, 64, 177, 1000] {
            for threads in [1, 2, 3, 16, 64] {
                for least in [1, 2, 9] {
                    let shares = Shares {
                        tiles,
                        threads,
                        least,
                    };
                    let mut next = 0;
                    for task in 0..shares.count() {
                        let share = shares.share(task);
                        assert_eq!(share.start, next, "{tiles} {threads} {least} {task}");
                        assert!(share.end > share.start, "no share is empty");
                        next = share.end;
                    }
                    assert_eq!(next, tiles, "{tiles} {threads} {least}");
                }
            }
        }
    }

    #[test]
    fn work_shares_shrink_towards_the_end() {
        let shares = Shares {
            tiles: 176,
            threads: 2,
            least: 1,
        };
        let sizes: Vec<usize> = (0..shares.count())
            .map(|task| shares.share(task).len())
            .collect();
        assert_eq!(sizes[..4], [44, 44, 22, 22]);
        assert_eq!(sizes.last(), Some(&1));
    }
}
