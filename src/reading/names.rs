//! The similarity of names, for suggestions.

/// A longer name is not a typing error, and comparing takes quadratic time.
const COMPARED_BYTES_MAX: usize = 96;
/// The minimum similarity, on a scale from 0 to 1 for equal names.
pub(crate) const ALIKE_LEAST: f64 = 0.6;

/// The most similar known name, if it is similar enough.
pub fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    if name.len() > COMPARED_BYTES_MAX {
        return None;
    }
    let name = name.to_lowercase();
    known
        .filter_map(|candidate| Some((likeness(&name, &candidate.to_lowercase())?, candidate)))
        .max_by(|left, right| left.0.total_cmp(&right.0).then(right.1.cmp(left.1)))
        .map(|(_, candidate)| candidate)
}

/// The similarity of two names, if it is high enough for a typing error. Skips the comparison if the letters already rule it out.
pub fn likeness(one: &str, other: &str) -> Option<f64> {
    if one.len().max(other.len()) > COMPARED_BYTES_MAX || !may_be_alike(one, other) {
        return None;
    }
    let likeness = strsim::normalized_damerau_levenshtein(one, other);
    (likeness >= ALIKE_LEAST).then_some(likeness)
}

/// Returns true if the letters, ignoring their order, allow a high similarity: two fifths of them may be changed, and each change
/// removes at most two differences.
fn may_be_alike(one: &str, other: &str) -> bool {
    let mut counts = [0_i16; 64];
    let mut count = |name: &str, by: i16| {
        for letter in name.chars() {
            counts[letter as usize % 64] += by;
        }
    };
    count(one, 1);
    count(other, -1);
    let apart: usize = counts
        .iter()
        .map(|count| usize::from(count.unsigned_abs()))
        .sum();
    apart * 5 <= one.len().max(other.len()) * 4
}
