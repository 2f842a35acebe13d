//! Checks a node's greeting as far as possible without the loop: protocol, generation, and the names of the node and its devices.

use crate::messages::node_messages::{never, not_now};
use engine::RelaySecret;
use node_link::{Hello, NodeDevice, NodeRefusal, PROTOCOL, check_node_name};
use store::NodePass;

const DEVICES_MAX: usize = 256;
const NAME_BYTES_MAX: usize = 200;
/// The longest path that systems support, plus the identifier of the machine's boot.
const PLACE_BYTES_MAX: usize = 4200;

/// Refuses a greeting that can be judged without the loop. `own` is this controller's generation.
pub(crate) fn check(hello: &Hello, pass: &NodePass, own: Option<u64>) -> Result<(), NodeRefusal> {
    if hello.protocol != PROTOCOL {
        let own = env!("CARGO_PKG_VERSION");
        let (newer, older) = if hello.protocol > PROTOCOL {
            ("controller", "node")
        } else {
            ("node", "controller")
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
            "this controller is no longer the leader: the node has obeyed generation {obeyed}, and this controller has {own} (D4)"
        )));
    }
    check_node_name(&hello.name).map_err(never)?;
    if let NodePass::Credential { node } = pass
        && *node != hello.name
    {
        return Err(never(format!(
            "its credential belongs to node {node}; start this node with its own join token"
        )));
    }
    let is_bad = |device: &NodeDevice| {
        let lists_max = device.labels.len().max(device.links.len());
        device.name.is_empty()
            || lists_max > DEVICES_MAX
            || texts_of(device).any(|text| !is_short_line(text))
    };
    if hello.devices.len() > DEVICES_MAX || hello.devices.iter().any(is_bad) {
        return Err(never(format!(
            "it has {} devices; allowed are {DEVICES_MAX}, each with a name and other texts of at most {NAME_BYTES_MAX} bytes without control characters, and at most {DEVICES_MAX} links and labels",
            hello.devices.len()
        )));
    }
    if !is_short_line(&hello.version) || hello.place.len() > PLACE_BYTES_MAX {
        return Err(never(format!(
            "its version has {} bytes and its place {}; allowed are {NAME_BYTES_MAX} and {PLACE_BYTES_MAX}",
            hello.version.len(),
            hello.place.len()
        )));
    }
    RelaySecret::parse(&hello.relay.secret).map_err(never)?;
    Ok(())
}

/// All texts of a device that are shown or stored.
fn texts_of(device: &NodeDevice) -> impl Iterator<Item = &String> {
    let known = [
        &device.uuid,
        &device.product_name,
        &device.pci,
        &device.variable,
    ];
    let links = device.links.iter().map(|(name, _)| name);
    std::iter::once(&device.name)
        .chain(known.into_iter().flatten())
        .chain(links)
        .chain(&device.labels)
}

fn is_short_line(text: &str) -> bool {
    text.len() <= NAME_BYTES_MAX && !text.contains(char::is_control)
}

fn printable(text: &str) -> String {
    let plain = text.chars().filter(char::is_ascii_graphic);
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
                secret: "s".repeat(64),
                fingerprint: None,
            },
            provider: Provider::Fixed,
            devices: Vec::new(),
            demand: None,
            generation,
            runs_members: true,
            process: 1,
        }
    }

    #[test]
    fn d4_a_node_that_obeyed_a_later_controller_is_refused_by_an_earlier_one() {
        for (own, obeyed, is_accepted) in [
            (Some(6), Some(7), false),
            (Some(7), Some(7), true),
            (Some(8), Some(7), true),
            // An earlier version of either side, or a store used by a single process.
            (Some(6), None, true),
            (None, Some(7), true),
        ] {
            let checked = check(&hello(obeyed), &NodePass::Token, own);
            assert_eq!(checked.is_ok(), is_accepted, "{own:?} {obeyed:?}");
        }
    }

    #[test]
    fn b3_a_nodes_hello_is_bounded() {
        let device = || NodeDevice {
            name: "gpu0".to_owned(),
            is_gpu: true,
            kind: None,
            index: 0,
            uuid: None,
            partition: None,
            variable: None,
            total: 1,
            installed: 1,
            is_unified: false,
            has_mps: false,
            headroom: 0,
            product_name: None,
            product: 0,
            pci: None,
            links: Vec::new(),
            labels: Vec::new(),
        };
        let with = |change: &dyn Fn(&mut Hello)| {
            let mut hello = hello(None);
            hello.devices = vec![device()];
            change(&mut hello);
            check(&hello, &NodePass::Token, None)
        };
        assert_eq!(with(&|_| {}), Ok(()));
        let long = "x".repeat(NAME_BYTES_MAX + 1);
        let changes: [&dyn Fn(&mut Hello); 13] = [
            &|hello| hello.relay.secret = "x\r\nPOST / HTTP/1.1".to_owned(),
            &|hello| hello.relay.secret.push('\n'),
            &|hello| hello.version = long.clone(),
            &|hello| hello.place = "x".repeat(PLACE_BYTES_MAX + 1),
            &|hello| hello.devices[0].name = String::new(),
            &|hello| hello.devices[0].name = "a\u{1b}[31m".to_owned(),
            &|hello| hello.devices[0].uuid = Some(long.clone()),
            &|hello| hello.devices[0].variable = Some(long.clone()),
            &|hello| hello.devices[0].pci = Some("a\nb".to_owned()),
            &|hello| hello.devices[0].product_name = Some(long.clone()),
            &|hello| hello.devices[0].labels = vec!["a\u{7}".to_owned()],
            &|hello| hello.devices[0].labels = vec![String::new(); DEVICES_MAX + 1],
            &|hello| hello.devices = vec![device(); DEVICES_MAX + 1],
        ];
        for (nth, change) in changes.into_iter().enumerate() {
            assert!(with(change).is_err(), "change {nth}");
        }
    }

    #[test]
    fn d4_a_hello_of_an_earlier_version_parses_without_a_generation() {
        let mut sent = serde_json::to_value(hello(Some(7))).expect("a greeting");
        let _ = sent
            .as_object_mut()
            .map(|fields| fields.remove("generation"));
        let read: Hello = serde_json::from_value(sent).expect("understood");
        assert_eq!(read.generation, None);
    }
}
