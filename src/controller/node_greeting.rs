//! What a greeting of a node is checked for without the loop: its protocol, its generation, its name and those of its devices.

use super::node_messages::{never, not_now};
use node_link::{Hello, PROTOCOL, Refused, check_node_name};
use store::NodePass;

const DEVICES_MAX: usize = 256;
const NAME_BYTES_MAX: usize = 200;

/// Why a node is not accepted, as far as that is known without the loop. `own`: the generation of this controller.
pub(super) fn check(hello: &Hello, pass: &NodePass, own: Option<u64>) -> Result<(), Refused> {
    if hello.protocol != PROTOCOL {
        let own = env!("CARGO_PKG_VERSION");
        let (newer, older) = match hello.protocol > PROTOCOL {
            true => ("controller", "node"),
            false => ("node", "controller"),
        };
        return Err(never(format!(
            "this controller (version {own}) speaks protocol {PROTOCOL} with nodes, and the node (version {}) speaks {}: upgrade the {newer} to the version of the {older}",
            printable(&hello.version),
            hello.protocol
        )));
    }
    if let (Some(own), Some(obeyed)) = (own, hello.generation)
        && own < obeyed
    {
        return Err(not_now(format!(
            "this controller does not lead any more: the node has obeyed one of generation {obeyed}, and this one has {own} (D4)"
        )));
    }
    check_node_name(&hello.name).map_err(never)?;
    if let NodePass::Credential { node } = pass
        && *node != hello.name
    {
        return Err(never(format!(
            "it comes with what node {node} came back with; start it with a token of its own"
        )));
    }
    let names = || hello.devices.iter().map(|it| &it.name);
    let is_bad = |name: &String| {
        name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains(char::is_control)
    };
    if hello.devices.len() > DEVICES_MAX || names().any(is_bad) {
        return Err(never(format!(
            "it has {} devices; allowed are {DEVICES_MAX}, each with a name of at most {NAME_BYTES_MAX} bytes",
            hello.devices.len()
        )));
    }
    Ok(())
}

fn printable(text: &str) -> String {
    let plain = text.chars().filter(|it| it.is_ascii_graphic());
    plain.take(40).collect()
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use config::Provider;
    use node_link::RelayForm;

    fn hello(generation: Option<u64>) -> Hello {
        Hello {
            protocol: PROTOCOL,
            version: "9.9.9".to_owned(),
            name: "gpu-2".to_owned(),
            epoch: 1,
            place: "here".to_owned(),
            controller: None,
            relay: RelayForm {
                address: SocketAddr::from(([127, 0, 0, 1], 7)),
                secret: String::new(),
                fingerprint: None,
            },
            provider: Provider::Fixed,
            devices: Vec::new(),
            demand: None,
            generation,
        }
    }

    #[test]
    fn d4_a_node_that_has_obeyed_a_later_controller_is_refused_by_an_earlier_one() {
        for (own, obeyed, is_accepted) in [
            (Some(6), Some(7), false),
            (Some(7), Some(7), true),
            (Some(8), Some(7), true),
            // An earlier version of either side, or a state that one process has alone.
            (Some(6), None, true),
            (None, Some(7), true),
        ] {
            let checked = check(&hello(obeyed), &NodePass::Token, own);
            assert_eq!(checked.is_ok(), is_accepted, "{own:?} {obeyed:?}");
        }
    }

    #[test]
    fn d4_a_node_of_an_earlier_version_has_no_generation_and_is_understood() {
        let mut sent = serde_json::to_value(hello(Some(7))).expect("a greeting");
        let _ = sent.as_object_mut().map(|it| it.remove("generation"));
        let read: Hello = serde_json::from_value(sent).expect("understood");
        assert_eq!(read.generation, None);
    }
}
