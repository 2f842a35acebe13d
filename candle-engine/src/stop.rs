//! Searches for stop strings in streamed text.

/// Finds the first stop string, even across pieces, and removes it from the text.
#[derive(Debug, Clone, Default)]
pub(crate) struct StopMatcher {
    stops: Vec<String>,
    /// Text withheld because it may be the beginning of a stop string.
    held: String,
}

/// The result of adding a piece.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct StopStep {
    /// Text that is certain not to belong to a stop string.
    pub text: String,
    /// The stop string that was found. It is dropped, with everything after it.
    pub stopped: Option<String>,
}

impl StopMatcher {
    /// Empty stop strings are ignored, because they would match at the start.
    pub fn new(stops: impl IntoIterator<Item = String>) -> Self {
        Self {
            stops: stops.into_iter().filter(|stop| !stop.is_empty()).collect(),
            held: String::new(),
        }
    }

    /// Adds the next piece.
    pub fn push(&mut self, piece: &str) -> StopStep {
        self.held.push_str(piece);
        // Of stop strings that begin at the same position, the first one listed wins.
        let found = self
            .stops
            .iter()
            .filter_map(|stop| Some((self.held.find(stop)?, stop)))
            .min_by_key(|(start, _)| *start);
        if let Some((start, stop)) = found {
            let stopped = Some(stop.clone());
            self.held.truncate(start);
            return StopStep {
                text: std::mem::take(&mut self.held),
                stopped,
            };
        }
        let kept = self.held.split_off(self.certain_length());
        StopStep {
            text: std::mem::replace(&mut self.held, kept),
            stopped: None,
        }
    }

    /// Returns the rest after the last piece.
    pub fn finish(self) -> String {
        self.held
    }

    /// Length of `held` without its longest suffix that could still become a stop string, in bytes.
    fn certain_length(&self) -> usize {
        let longest = self.stops.iter().map(String::len).max().unwrap_or(0);
        let first = self.held.len().saturating_sub(longest);
        let may_begin_a_stop = |place: usize| {
            self.stops
                .iter()
                .any(|stop| stop.starts_with(&self.held[place..]))
        };
        self.held
            .char_indices()
            .map(|(place, _)| place)
            .find(|&place| place >= first && may_begin_a_stop(place))
            .unwrap_or(self.held.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    fn run(stops: &[&str], pieces: &[&str]) -> (String, bool) {
        let mut matcher = StopMatcher::new(stops.iter().map(|stop| (*stop).to_owned()));
        let mut text = String::new();
        for piece in pieces {
            let step = matcher.push(piece);
            text += &step.text;
            if step.stopped.is_some() {
                return (text, true);
            }
        }
        (text + &matcher.finish(), false)
    }

    #[test]
    fn a_stop_string_split_between_pieces_is_found_and_removed() {
        assert_eq!(
            run(&["END"], &["one E", "N", "D two"]),
            ("one ".to_owned(), true)
        );
    }

    #[test]
    fn a_partial_match_that_does_not_complete_is_returned() {
        assert_eq!(
            run(&["END"], &["E", "N", "E", "N", "X"]),
            ("ENENX".to_owned(), false)
        );
        assert_eq!(run(&["END"], &["one EN"]), ("one EN".to_owned(), false));
    }

    #[test]
    fn the_earliest_of_several_stop_strings_wins() {
        assert_eq!(
            run(&["\n\n", "stop"], &["a stop b\n", "\n"]),
            ("a ".to_owned(), true)
        );
    }

    #[test]
    fn the_matched_stop_string_is_reported() {
        let met = |stops: &[&str]| {
            let mut matcher = StopMatcher::new(stops.iter().map(|stop| (*stop).to_owned()));
            matcher.push("one two").stopped
        };
        assert_eq!(met(&["two", "ne"]).as_deref(), Some("ne"));
        assert_eq!(met(&["one", "one t"]).as_deref(), Some("one"));
        assert_eq!(met(&["three"]), None);
    }

    #[test]
    fn letters_of_several_bytes_are_never_cut() {
        assert_eq!(
            run(&["é!"], &["caf", "é", "?é", "!"]),
            ("café?".to_owned(), true)
        );
    }

    #[test]
    fn an_empty_stop_string_never_matches() {
        assert_eq!(run(&[""], &["a", "b"]), ("ab".to_owned(), false));
    }

    #[test]
    fn any_split_gives_the_same_result_as_the_complete_text() {
        let mut random = StdRng::seed_from_u64(7);
        for _ in 0..2000 {
            let letters = ["a", "b", "ab", "é", "ba"];
            let mut some = |count: usize| {
                (0..count)
                    .map(|_| letters[random.random_range(0..letters.len())])
                    .collect::<Vec<_>>()
            };
            let (pieces, stop) = (some(12), some(3).concat());
            let whole = pieces.concat();
            let expected = whole.find(&stop).map_or((whole.clone(), false), |place| {
                (whole[..place].to_owned(), true)
            });
            assert_eq!(
                run(&[&stop], &pieces),
                expected,
                "stop {stop:?} in {pieces:?}"
            );
        }
    }
}
