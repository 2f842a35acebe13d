//! Finds repeated ids with a keyed hash of 16 bytes for each line. A client cannot choose ids that collide under a key that it does
//! not know.

use sha2::{Digest, Sha256};

const HASH_BYTES: usize = 16;
const LINES_AT_FIRST: usize = 1024;

type Hash = [u8; HASH_BYTES];

/// A line whose id is also the id of an earlier line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Repeated {
    pub line: u32,
    pub first_line: u32,
}

#[derive(Debug)]
pub struct Fingerprints {
    /// SHA-256 with the key already in it.
    keyed: Sha256,
    /// 20 bytes for each line.
    lines: Vec<(Hash, u32)>,
}

impl Fingerprints {
    pub fn new() -> Fingerprints {
        let key: [u8; 32] = rand::random();
        Fingerprints {
            keyed: Sha256::new_with_prefix(key),
            lines: Vec::new(),
        }
    }

    pub fn add(&mut self, custom_id: &str, line: u32) {
        let mut hash = self.keyed.clone();
        hash.update(custom_id);
        let mut short = Hash::default();
        short.copy_from_slice(&hash.finalize()[..HASH_BYTES]);
        if self.lines.len() == self.lines.capacity() {
            // Doubling would keep up to 40 bytes for each line. A growth by a sixth keeps less than 24.
            let more = match self.lines.len() {
                0 => LINES_AT_FIRST,
                lines => lines / 6,
            };
            self.lines.reserve_exact(more);
        }
        self.lines.push((short, line));
    }

    /// Returns the first lines of the file that repeat an id.
    pub fn repeated(&mut self, lines_max: usize) -> Vec<Repeated> {
        self.lines.sort_unstable();
        let mut found: Vec<Repeated> = Vec::new();
        for same in self.lines.chunk_by(|(one, _), (other, _)| one == other) {
            let (_, first_line) = same[0];
            for &(_, line) in &same[1..] {
                if found.len() == 2 * lines_max {
                    found.sort_unstable();
                    found.truncate(lines_max);
                }
                found.push(Repeated { line, first_line });
            }
        }
        found.sort_unstable();
        found.truncate(lines_max);
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_million_lines_take_at_most_24_bytes_each() {
        let mut ids = Fingerprints::new();
        for line in 1..=1_000_000 {
            ids.add(&line.to_string(), line);
            let kept_bytes = ids.lines.capacity() * size_of::<(Hash, u32)>();
            assert!(kept_bytes <= 24 * (line as usize).max(LINES_AT_FIRST));
        }
        assert_eq!(ids.repeated(20), []);
    }

    #[test]
    fn the_first_repeated_lines_are_reported_with_the_line_they_repeat() {
        let mut ids = Fingerprints::new();
        for line in 1..=1000 {
            ids.add(&(line % 300).to_string(), line);
        }
        let expected: Vec<Repeated> = (301..=320)
            .map(|line| Repeated {
                line,
                first_line: line - 300,
            })
            .collect();
        assert_eq!(ids.repeated(20), expected);
    }
}
