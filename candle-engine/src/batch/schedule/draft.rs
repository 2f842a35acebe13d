//! Proposes the next tokens of a sequence by prompt lookup: finds its last tokens earlier in its text and expects the same
//! continuation. The number of proposals depends on how often recent ones were right. Pure: it sees only tokens.
//!
//! Proposals cost rows of a step and never change a completion. A lookup counts as right or wrong even if its tokens were not
//! proposed. A sequence therefore needs no proposals to detect that its text starts or stops repeating.

/// Minimum number of extra rows that cost as much as a step of a single row: weights are read from memory once for all rows.
const ROWS_OF_A_STEP: f32 = 5.0;
/// Maximum rows of generating requests in a step, proposals included. With more rows, the duration of a step grows in proportion to
/// them.
const STEP_ROWS_MAX: usize = 16;
/// Weight of the latest lookup in the running average.
const WEIGHT: f32 = 0.25;
/// Maximum entries of an index; entries of a longer text overwrite each other.
const PLACES_MAX: usize = 1 << 15;

/// Limits on proposed tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DraftLimits {
    /// Maximum number of proposals per sequence and step; 0 disables them.
    pub tokens: usize,
    /// Longest and shortest row of last tokens to look up, tried in this order. At least 1.
    pub lookup_max: usize,
    pub lookup_min: usize,
}

/// The proposals of one sequence.
#[derive(Debug)]
pub(super) struct Draft {
    limits: DraftLimits,
    index: Index,
    /// Probability that a looked-up token is right: a running average that favors recent lookups.
    right: f32,
    /// The first token found by the last lookup.
    expected: Option<u32>,
    /// The proposals in the current step, and how many of them were accepted.
    proposed: Vec<u32>,
    accepted: usize,
}

impl Draft {
    /// Creates the state for a sequence of at most `most_tokens` tokens.
    pub fn new(limits: DraftLimits, most_tokens: usize) -> Self {
        Self {
            limits,
            index: Index::new(limits, most_tokens),
            right: 0.0,
            expected: None,
            proposed: Vec::new(),
            accepted: 0,
        }
    }

    /// Proposes up to `most` tokens that may follow `tokens`, in a step in which `going_on` rows are computed anyway.
    pub fn propose(&mut self, tokens: &[u32], most: usize, going_on: usize) {
        self.expected = None;
        self.proposed.clear();
        self.accepted = 0;
        let room = (STEP_ROWS_MAX / going_on.max(1)).saturating_sub(1);
        let most = most.min(room).min(self.limits.tokens);
        if most == 0 {
            return;
        }
        self.index.add(tokens);
        let Some(place) = self.index.find(tokens) else {
            return;
        };
        self.expected = Some(tokens[place]);
        for nth in 0..paying(self.right, going_on).min(most) {
            // After the end of the text, the proposals themselves continue it: a loop can be proposed for more than one turn.
            let next = match tokens.get(place + nth) {
                Some(next) => *next,
                None => self.proposed[place + nth - tokens.len()],
            };
            self.proposed.push(next);
        }
    }

    /// Keeps at most the first `most` proposals.
    pub fn keep(&mut self, most: usize) {
        self.proposed.truncate(most);
    }

    pub fn proposed(&self) -> &[u32] {
        &self.proposed
    }

    /// Accepts the first `count` proposals and returns them.
    pub fn accept(&mut self, count: usize) -> &[u32] {
        self.accepted = count;
        &self.proposed[..count]
    }

    /// Records the token that follows the accepted ones.
    pub fn settle(&mut self, token: u32) {
        let expected = self.expected.take();
        if self.proposed.is_empty() {
            if let Some(expected) = expected {
                self.learn(expected == token);
            }
            return;
        }
        for _ in 0..self.accepted {
            self.learn(true);
        }
        if self.accepted < self.proposed.len() {
            self.learn(false);
        }
        self.proposed.clear();
        self.accepted = 0;
    }

    fn learn(&mut self, was_right: bool) {
        let result = f32::from(u8::from(was_right));
        self.right += (result - self.right) * WEIGHT;
    }
}

/// Number of proposals that gain more than they cost in a step with `going_on` other rows. Each proposal is right with probability
/// `right` if all earlier ones are.
///
/// A step of `n` rows takes `(n + 4) / 5` times as long as a step of one row and yields `n` tokens, so an additional row must yield
/// `n / (n + 4)` tokens.
fn paying(right: f32, going_on: usize) -> usize {
    let rows = going_on.max(1) as f32;
    let least = rows / (rows + ROWS_OF_A_STEP - 1.0);
    let (mut count, mut chance) = (0, right);
    while chance >= least && count < STEP_ROWS_MAX {
        count += 1;
        chance *= right;
    }
    count
}

/// The latest position of each row of tokens in a text. Each token is added once, and a lookup reads one entry per length.
#[derive(Debug)]
struct Index {
    /// Lengths of the indexed rows, longest first.
    lengths: Vec<usize>,
    /// For each length, a hash table: the position after the latest row with that hash, or 0.
    places: Vec<Vec<u32>>,
    bits: u32,
    /// The first position that has not been added.
    next: usize,
}

impl Index {
    fn new(limits: DraftLimits, most_tokens: usize) -> Self {
        let places = most_tokens.clamp(64, PLACES_MAX).next_power_of_two();
        let lengths: Vec<usize> = (limits.lookup_min..=limits.lookup_max).rev().collect();
        Self {
            // Allocated by the first lookup: many completions have none.
            places: vec![Vec::new(); lengths.len()],
            lengths,
            bits: places.trailing_zeros(),
            next: 1,
        }
    }

    /// Adds the new tokens of a text that has grown.
    fn add(&mut self, tokens: &[u32]) {
        for (length, places) in self.lengths.iter().zip(&mut self.places) {
            places.resize(1 << self.bits, 0);
            for end in self.next.max(*length)..tokens.len() {
                let place = place_of(&tokens[end - length..end], self.bits);
                places[place] = end as u32;
            }
        }
        self.next = self.next.max(tokens.len());
    }

    /// Returns the position after the latest earlier occurrence of the text's last tokens.
    fn find(&self, tokens: &[u32]) -> Option<usize> {
        let mut each = self.lengths.iter().zip(&self.places);
        each.find_map(|(length, places)| {
            let last = &tokens[tokens.len().checked_sub(*length)?..];
            let end = places[place_of(last, self.bits)] as usize;
            // Different rows may have the same hash.
            (end > 0 && tokens[end - length..end] == *last).then_some(end)
        })
    }
}

/// Hash of a row, in `bits` bits.
fn place_of(row: &[u32], bits: u32) -> usize {
    let mix = |hash: u64, token: &u32| {
        (hash.rotate_left(5) ^ u64::from(*token)).wrapping_mul(0x9E37_79B9_7F4A_7C15)
    };
    (row.iter().fold(0, mix) >> (64 - bits)) as usize
}

#[cfg(test)]
mod tests;
