//! Proposes the next tokens of a sequence: its last tokens are looked up earlier in its text, and what followed there is expected
//! again. How many are proposed depends on how often that was right of late. Pure: it sees nothing but tokens.
//!
//! What is proposed costs rows of a step and changes no answer. A lookup is counted as right or wrong whether its tokens were
//! proposed or not, so that nothing has to be proposed to find out that a text repeats, or does so no more.

/// So many further rows cost as much as a step of a single row, at least: weights are read from memory once for all rows.
const ROWS_OF_A_STEP: f32 = 5.0;
/// Most rows in a step of those that go on, with what is proposed to them: with more of them a step takes as long as it has rows.
const STEP_ROWS_MAX: usize = 16;
/// What a lookup counts beside all those before it.
const WEIGHT: f32 = 0.25;
/// Places of an index, at most; a longer text forgets what it has no place for.
const PLACES_MAX: usize = 1 << 15;

/// How far tokens are proposed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DraftLimits {
    /// Most tokens for one sequence in a step; 0 is none.
    pub tokens: usize,
    /// How many last tokens are looked up: first the most, then fewer. At least 1.
    pub lookup_max: usize,
    pub lookup_min: usize,
}

/// The proposals of one sequence.
#[derive(Debug)]
pub(super) struct Draft {
    limits: DraftLimits,
    index: Index,
    /// How probably a looked-up token is right, by the lookups so far; the latest count most.
    right: f32,
    /// The first token of the last lookup.
    expected: Option<u32>,
    /// What is in the present step, and how much of it was right.
    proposed: Vec<u32>,
    accepted: usize,
}

impl Draft {
    /// Of a sequence with at most so many tokens.
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

    /// Proposes what may follow `tokens`, at most `most`, in a step in which `going_on` rows are computed anyway.
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
            // Where the text ends, what is proposed follows: so a loop is longer than one turn of it.
            let next = match tokens.get(place + nth) {
                Some(next) => *next,
                None => self.proposed[place + nth - tokens.len()],
            };
            self.proposed.push(next);
        }
    }

    /// Has so many of the proposed tokens left at most.
    pub fn keep(&mut self, most: usize) {
        self.proposed.truncate(most);
    }

    pub fn proposed(&self) -> &[u32] {
        &self.proposed
    }

    /// The first `count` proposed tokens were right; answers these.
    pub fn accept(&mut self, count: usize) -> &[u32] {
        self.accepted = count;
        &self.proposed[..count]
    }

    /// Takes note of the token that follows what was accepted.
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

/// How many proposed tokens bring more than they cost beside `going_on` rows, where each is right with this probability if those
/// before it are.
///
/// A step of `n` rows takes `(n + 4) / 5` as long as one of a single row and brings `n` tokens, so a fifth more must bring
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

/// Where rows of tokens stood last in a text. Each token is added once, and a lookup looks at one place for each length.
#[derive(Debug)]
struct Index {
    /// The longest rows first.
    lengths: Vec<usize>,
    /// For each length its places, one by the hash of a row: the position after the latest row with that hash; 0 is none.
    places: Vec<Vec<u32>>,
    bits: u32,
    /// The first position that was not added yet.
    next: usize,
}

impl Index {
    fn new(limits: DraftLimits, most_tokens: usize) -> Self {
        let places = most_tokens.clamp(64, PLACES_MAX).next_power_of_two();
        let lengths: Vec<usize> = (limits.lookup_min..=limits.lookup_max).rev().collect();
        Self {
            // Taken with the first lookup: many answers have none.
            places: vec![Vec::new(); lengths.len()],
            lengths,
            bits: places.trailing_zeros(),
            next: 1,
        }
    }

    /// Adds what is new in a text that has grown.
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

    /// The position in the text that was added where its last tokens were followed before.
    fn find(&self, tokens: &[u32]) -> Option<usize> {
        let mut each = self.lengths.iter().zip(&self.places);
        each.find_map(|(length, places)| {
            let last = &tokens[tokens.len().checked_sub(*length)?..];
            let end = places[place_of(last, self.bits)] as usize;
            // Other rows may have the same hash.
            (end > 0 && tokens[end - length..end] == *last).then_some(end)
        })
    }
}

/// A place of 2 to the power of `bits`.
fn place_of(row: &[u32], bits: u32) -> usize {
    let mix = |hash: u64, token: &u32| {
        (hash.rotate_left(5) ^ u64::from(*token)).wrapping_mul(0x9E37_79B9_7F4A_7C15)
    };
    (row.iter().fold(0, mix) >> (64 - bits)) as usize
}

#[cfg(test)]
mod tests;
