//! A bitset of the requests that have a result.

use std::io::{self, ErrorKind};

const BITS: u64 = u64::BITS as u64;
/// The id of a result has eight hexadecimal digits for the request's number.
const REQUESTS_MAX: u64 = 1 << 32;

#[derive(Debug)]
pub struct Finished {
    words: Vec<u64>,
    requests: u64,
}

impl Finished {
    pub fn new(requests: u64) -> io::Result<Finished> {
        if requests > REQUESTS_MAX {
            let message = format!("a batch has at most {REQUESTS_MAX} requests, not {requests}");
            return Err(io::Error::new(ErrorKind::InvalidInput, message));
        }
        Ok(Finished {
            words: vec![0; requests.div_ceil(BITS) as usize],
            requests,
        })
    }

    pub fn requests(&self) -> u64 {
        self.requests
    }

    pub fn has(&self, request: u64) -> bool {
        let word = self.words.get((request / BITS) as usize);
        word.is_some_and(|word| word >> (request % BITS) & 1 == 1)
    }

    /// Adds a request of the batch. Returns false if it was there.
    pub fn add(&mut self, request: u64) -> bool {
        let is_new = !self.has(request);
        self.words[(request / BITS) as usize] |= 1 << (request % BITS);
        is_new
    }

    pub fn next_missing(&self, from: u64) -> Option<u64> {
        let first = (from / BITS) as usize;
        let words = self.words.iter().enumerate().skip(first);
        let mut missing = words.filter_map(|(nth, word)| {
            // Requests before `from` count as finished.
            let before = if nth == first {
                (1 << (from % BITS)) - 1
            } else {
                0
            };
            let bit = u64::from((word | before).trailing_ones());
            (bit < BITS).then_some(nth as u64 * BITS + bit)
        });
        missing.next().filter(|&request| request < self.requests)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_missing_request_is_found_across_words() {
        let mut finished = Finished::new(200).expect("small");
        assert_eq!(finished.next_missing(0), Some(0));
        for request in (0..130).chain(150..200) {
            assert!(finished.add(request));
            assert!(!finished.add(request));
        }
        for (from, next) in [
            (0, Some(130)),
            (130, Some(130)),
            (140, Some(140)),
            (149, Some(149)),
            (150, None),
            (199, None),
            (200, None),
            (9999, None),
        ] {
            assert_eq!(finished.next_missing(from), next, "{from}");
        }
        assert!(!finished.has(9999));
        Finished::new(REQUESTS_MAX + 1).expect_err("too many");
    }
}
