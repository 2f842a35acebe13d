//! Devices that a program prints.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::{GIB, gone, read, settings};
use model_pool::inventory::{DeviceKind, Inventory, InventorySettings, Provider};
use model_pool::pool::Bytes;

const TWO: &str = r#"{
  "devices": [
    {"name": "npu0", "memory": 34359738368, "used": 6442450944, "product": "Ascend 910B", "index": 4,
     "variable": "ASCEND_RT_VISIBLE_DEVICES", "utilisation_percent": 250},
    {"name": "gpu", "memory": 17179869184, "used": 0, "accelerator": "amd"}
  ],
  "processes": [
    {"pid": 11, "device": "npu0", "memory": 4294967296},
    {"pid": 11, "device": "npu0", "memory": 1073741824},
    {"pid": 12, "device": "npu0", "memory": 1073741824}
  ]
}"#;

/// A program that runs this shell text.
fn program(folder: &Path, text: &str) -> PathBuf {
    let path = folder.join("devices");
    let next = folder.join("devices.next");
    fs::write(&next, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(&next, PermissionsExt::from_mode(0o755)).unwrap();
    fs::rename(next, &path).unwrap();
    path
}

fn prints(folder: &Path, text: &str) -> PathBuf {
    fs::write(folder.join("document"), text).unwrap();
    program(
        folder,
        &format!("cat {}", folder.join("document").display()),
    )
}

fn with(program: &Path) -> InventorySettings {
    InventorySettings {
        command: vec![program.display().to_string()],
        ..settings(Provider::Command)
    }
}

#[test]
fn a_program_describes_devices_and_what_each_process_holds() {
    let folder = tempfile::tempdir().unwrap();
    let inventory = Inventory::open(&with(&prints(folder.path(), TWO))).unwrap();
    let [npu, gpu] = inventory.devices() else {
        panic!("two devices")
    };
    assert_eq!((npu.kind, gpu.kind), (DeviceKind::Other, DeviceKind::Amd));
    assert_eq!((npu.index, gpu.index), (4, 1));
    assert_eq!(npu.variable.as_deref(), Some("ASCEND_RT_VISIBLE_DEVICES"));
    assert_eq!(npu.total, Bytes(32 * GIB));
    let figures = read(&inventory, &[11]);
    assert_eq!(
        (figures[0].own, figures[0].foreign),
        (Bytes(5 * GIB), Bytes(GIB))
    );
    assert_eq!(figures[0].utilisation_percent, Some(100));
    assert_eq!(figures[1].used, Bytes::ZERO);

    // A device that the program no longer prints is unknown; the other is read.
    let (_, one) = TWO.split_once("    {\"name\": \"gpu\"").unwrap();
    let one = format!("{{\"devices\": [{{\"name\": \"gpu\"{one}").replace("\"npu0\"", "\"gpu\"");
    prints(folder.path(), &one);
    let readings = inventory.measure(&BTreeSet::new());
    let error = readings[0].1.as_ref().unwrap_err().to_string();
    assert!(
        error.contains("npu0") && error.contains("does not report the device"),
        "{error}"
    );
    assert!(readings[1].1.is_ok(), "{readings:?}");
}

#[test]
fn what_a_program_does_wrong_is_an_error_with_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let shell = |text: &str| program(folder.path(), text);
    let device =
        |more: &str| format!(r#"{{"devices": [{{"name": "a", "memory": 9, "used": 1{more}}}]}}"#);
    let says = |text: &str| format!("cat <<'END'\n{text}\nEND");
    for (text, words) in [
        (
            "echo no driver here >&2; exit 3",
            "exit status: 3: no driver here",
        ),
        ("echo hello", "cannot be read"),
        ("exit 0", "cannot be read"),
        ("head -c 10000000 /dev/zero", "more than 1048576 bytes"),
        (&says(r#"{"devices": []}"#), "it has 0 devices"),
        (&says(&device(r#", "speed": 1"#)), "unknown field `speed`"),
        (
            &says(&device(r#", "accelerator": "tpu""#)),
            "unknown variant `tpu`",
        ),
        (
            &says(&device(r#", "accelerator": "host""#)),
            "allowed: nvidia, amd, intel, other",
        ),
        (
            &says(&device("").replace("\"a\"", "\"a/b\"")),
            "without `/`",
        ),
        (
            &says(&device("").replace("9", "0")),
            "the memory of `a` is 0",
        ),
        (&says(&device("").replace("9", "-9")), "cannot be read"),
        (
            &says(&device("").replace("}]", r#"}, {"name": "a", "memory": 1, "used": 1}]"#)),
            "two devices have the name `a`",
        ),
        (
            &says(&device("").replace(
                "}]",
                r#"}], "processes": [{"pid": 1, "device": "b", "memory": 1}]"#,
            )),
            "a process is on `b`",
        ),
    ] {
        let path = shell(text);
        let refused = Inventory::open(&with(&path)).unwrap_err().to_string();
        let name = path.display().to_string();
        assert!(
            refused.contains(words) && refused.contains(&name),
            "{text}: {refused}"
        );
        assert!(refused.len() < 700, "{refused}");
    }
    let refused = Inventory::open(&with(Path::new("/nowhere/devices"))).unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("cannot start `/nowhere/devices`"),
        "{refused}"
    );
}

#[test]
fn a_program_that_hangs_is_killed_with_everything_it_started() {
    let folder = tempfile::tempdir().unwrap();
    let inventory = Inventory::open(&with(&prints(folder.path(), TWO))).unwrap();
    let pids = folder.path().join("pids");
    program(
        folder.path(),
        &format!(
            "sleep 600 & echo $! >{0}.next; echo $$ >>{0}.next; mv {0}.next {0}; wait",
            pids.display()
        ),
    );
    let readings = inventory.measure(&BTreeSet::new());
    for (_, reading) in readings {
        let error = reading.unwrap_err().to_string();
        assert!(
            error.contains("did not end within 5 s") || error.contains("has not answered"),
            "{error}"
        );
    }
    let pids = fs::read_to_string(pids).unwrap();
    gone(pids.lines().map(|pid| pid.parse().unwrap()));
}

#[test]
fn a_program_gets_no_secret_of_the_pool() {
    let folder = tempfile::tempdir().unwrap();
    let path = program(
        folder.path(),
        &format!(
            "env >{}; cat {}",
            folder.path().join("env").display(),
            folder.path().join("document").display()
        ),
    );
    fs::write(folder.path().join("document"), TWO).unwrap();
    Inventory::open(&with(&path)).unwrap();
    let variables = fs::read_to_string(folder.path().join("env")).unwrap();
    let known = [
        "PATH",
        "HOME",
        "LANG",
        "LD_LIBRARY_PATH",
        "TMPDIR",
        "USER",
        "PWD",
        "OLDPWD",
        "SHLVL",
        "_",
    ];
    for line in variables.lines() {
        let name = line.split('=').next().unwrap();
        assert!(known.contains(&name), "{line}");
    }
}
