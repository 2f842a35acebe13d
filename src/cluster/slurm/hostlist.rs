//! Slurm's short form of lists of machines, such as `gpu[07-09,11],big`.

/// The names in the list, in order, at most `most`. Parts of another form are left as they are.
pub(super) fn expand(list: &str, most: usize) -> Vec<String> {
    let mut names = Vec::new();
    for part in super::split_list(list) {
        let part = part.trim();
        if !part.is_empty() && names.len() < most {
            expand_part(part, most, &mut names);
        }
    }
    names
}

/// Expands the first bracket of a name, and the others of each result.
fn expand_part(part: &str, most: usize, names: &mut Vec<String>) {
    let bracket = part
        .split_once('[')
        .and_then(|(before, rest)| Some((before, rest.split_once(']')?)));
    let Some((before, (ranges, after))) = bracket else {
        names.push(part.to_owned());
        return;
    };
    for range in ranges.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let width = first.len();
        let (Ok(first), Ok(last)) = (first.parse::<u64>(), last.parse::<u64>()) else {
            names.push(part.to_owned());
            return;
        };
        for number in first..=last {
            if names.len() >= most {
                return;
            }
            expand_part(&format!("{before}{number:0width$}{after}"), most, names);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_machines_is_expanded_in_order_and_bounded() {
        for (list, expected) in [
            ("", vec![]),
            ("n0", vec!["n0"]),
            (
                "gpu[07-09,11],big",
                vec!["gpu07", "gpu08", "gpu09", "gpu11", "big"],
            ),
            (
                "rack[1-2]n[9-10]",
                vec!["rack1n9", "rack1n10", "rack2n9", "rack2n10"],
            ),
            ("n[a-b]", vec!["n[a-b]"]),
            ("n[1", vec!["n[1"]),
        ] {
            assert_eq!(expand(list, 8), expected, "{list}");
        }
        assert_eq!(expand("n[0-18446744073709551615],m", 2), ["n0", "n1"]);
        assert_eq!(expand("n[0-99]m[0-99],o", 3), ["n0m0", "n0m1", "n0m2"]);
    }
}
