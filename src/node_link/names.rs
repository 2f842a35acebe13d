//! Rules for names of nodes, and the fixed words of the request that opens their connection.

/// The `Upgrade` of the request that opens the connection.
pub const UPGRADE: &str = "model-pool-node";
/// The error `code` in the response of a standby controller to that request.
pub const STANDBY_CODE: &str = "standby";
/// Maximum length of a node's name.
pub const NODE_NAME_MAX: usize = 63;

/// Checks the name of a node. It appears in names of devices, as `NODE/DEVICE`, in metrics and in commands.
///
/// # Errors
/// The problem with the name.
pub fn check_node_name(name: &str) -> Result<(), String> {
    let is_plain =
        |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.');
    let starts_well = name.starts_with(|first: char| first.is_ascii_alphanumeric());
    if starts_well && name.len() <= NODE_NAME_MAX && name.chars().all(is_plain) {
        Ok(())
    } else {
        Err(format!(
            "{:?} is not a valid node name; allowed are 1 to {NODE_NAME_MAX} letters, digits, dots, dashes and underscores, the first of them a letter or a digit",
            name.chars().take(NODE_NAME_MAX + 1).collect::<String>()
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_name_is_one_label_of_a_host_name() {
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
