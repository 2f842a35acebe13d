//! What nodes may be called, and the fixed words of the request that opens their connection.

/// The `Upgrade` of the request that opens the connection.
pub const UPGRADE: &str = "model-pool-node";
/// The `code` of the error with which a controller that stands by answers that request.
pub const STANDBY_CODE: &str = "standby";
/// The longest name of a node.
pub const NODE_NAME_MAX: usize = 63;

/// Names appear in those of devices, as `NODE/DEVICE`, in metrics and in commands.
///
/// # Errors
/// What is wrong with it.
pub fn check_node_name(name: &str) -> Result<(), String> {
    let is_plain = |it: char| it.is_ascii_alphanumeric() || matches!(it, '-' | '_' | '.');
    let starts_well = name.starts_with(|it: char| it.is_ascii_alphanumeric());
    if starts_well && name.len() <= NODE_NAME_MAX && name.chars().all(is_plain) {
        Ok(())
    } else {
        Err(format!(
            "{:?} is no name for a node; allowed are 1 to {NODE_NAME_MAX} letters, digits, dots, dashes and underscores, the first of them a letter or a digit",
            name.chars().take(NODE_NAME_MAX + 1).collect::<String>()
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_word_of_a_host_name() {
        for good in ["gpu-2", "a", "n01.lab_4", &"x".repeat(NODE_NAME_MAX)] {
            assert_eq!(check_node_name(good), Ok(()), "{good}");
        }
        for bad in [
            "",
            "-a",
            "a b",
            "a/b",
            "ä",
            "a\n",
            &"x".repeat(NODE_NAME_MAX + 1),
        ] {
            assert!(check_node_name(bad).is_err(), "{bad}");
        }
    }
}
